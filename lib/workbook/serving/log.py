"""What a server's or client's log says. Its text comes from elsewhere and is cleaned before it is shown."""

import re
from collections.abc import Iterator
from pathlib import Path

SHOWN_CHARS = 300
ERROR_LINE = re.compile(r"\b\w*(?:Error|Exception)\b|\berror:")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(line: str) -> str:
    """A line without what would steer a terminal, cut to a readable length."""
    clean = CONTROL.sub("", line).strip()
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[:SHOWN_CHARS]}…"


def decisive_line(log: Path) -> tuple[str, int | None]:
    """The last line that names an error, else the last line, and its number; ("", None) for an empty log."""
    last: tuple[str, int | None] = ("", None)
    error = None
    with log.open(errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if shown := printable(line):
                last = (shown, number)
                if ERROR_LINE.search(line):
                    error = last
    return error or last


def where(log: Path) -> str:
    """The decisive line as the end of a sentence, with the place to look it up."""
    line, number = decisive_line(log)
    return f"{line} (line {number} of {log})" if line else f"it said nothing ({log} is empty)"


def new_lines(log: Path) -> Iterator[str | None]:
    """The lines as they come, without end; None whenever there is no further one yet."""
    with log.open(errors="replace", newline="\n") as text:
        pending = ""
        while True:
            pending += text.readline()
            if pending.endswith("\n"):
                yield printable(pending)
                pending = ""
            else:
                yield None
