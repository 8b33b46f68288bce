"""What a server's or client's log says. Its text comes from elsewhere and is cleaned before it is shown."""

import re
from collections.abc import Iterator
from pathlib import Path

SHOWN_CHARS = 300
# An exception counts where it begins the line, as a traceback has it: warnings mention exceptions that were caught.
ERROR_LINE = re.compile(
    r"(?:\[[^]]*\]:? *)*[\w.]*(?:Error|Exception)\b|.*(?:\berror:|crashed with exit code)"
)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(line: str) -> str:
    """A line without what would steer a terminal, cut to a readable length."""
    clean = CONTROL.sub("", line).strip()
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[:SHOWN_CHARS]}…"


def decisive_line(log: Path, *, or_last: bool = True) -> tuple[str, int | None]:
    """The last line that names an error, and its number; ("", None) when there is none.

    Args:
        log: where to look.
        or_last: for want of such a line, the last one that is not blank.
    """
    last: tuple[str, int | None] = ("", None)
    error = None
    with log.open(errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if shown := printable(line):
                last = (shown, number)
                if ERROR_LINE.match(shown):
                    error = last
    return error or (last if or_last else ("", None))


def where(log: Path, *, or_last: bool = True) -> str:
    """The decisive line as the end of a sentence, with the place to look it up."""
    line, number = decisive_line(log, or_last=or_last)
    return f"{line} (line {number} of {log})" if line else f"no error is named in {log}"


def new_lines(log: Path) -> Iterator[str | None]:
    """The lines as they come and as they are, without end; None whenever there is no further one yet."""
    with log.open(errors="replace", newline="\n") as text:
        pending = ""
        while True:
            pending += text.readline()
            if pending.endswith("\n"):
                yield pending.removesuffix("\n")
                pending = ""
            else:
                yield None
