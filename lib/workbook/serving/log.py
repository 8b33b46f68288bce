"""What a server's or client's log says. Its text comes from elsewhere and is cleaned before it is shown.

A log may be stamped (`2026-11-30T16:40:01.123Z text`, the time of each line's arrival) or not: both read alike.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from workbook.types import Status

SHOWN_CHARS = 300
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")
# An exception counts where it begins the line, as a traceback has it: warnings mention exceptions that were caught.
ERROR_LINE = re.compile(
    r"(?:\[[^]]*\]:? *)*[\w.]*(?:Error|Exception|exc\.\w+)\b|.*(?:\berror:|crashed with exit code)"
)
ERROR_WORDS = (
    "Error",
    "Exception",
    "error:",
    "crashed with exit code",
    "exc.",
)  # one of them is in every such line
# What the launcher and the watcher say of a rank that has said more itself.
CONSEQUENCE = re.compile(
    r"crashed with exit code|scheduler died during|went on without it|(?:^|\] )EOFError$"
)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# By the cause, where a log has several: what failed in a capture is also a failed capture.
CAUSES = (
    (Status.DYNAMO_UNSUPPORTED, re.compile(r"torch\._dynamo\.exc\.")),
    (Status.JIT_FAILED, re.compile(r"(?i)ninja build failed|error building extension|ninja: build stopped|nvcc fatal")),
    (Status.OOM, re.compile(r"OutOfMemoryError|(?i:out of memory)|Not enough memory")),
    (Status.CAPTURE_FAILED, re.compile(r"(?i)graph failed|StreamCapture|stream is capturing|during capture")),
)  # fmt: skip


def split_stamp(line: str) -> tuple[datetime | None, str]:
    """A line's time of arrival, where it has one, and the line without it."""
    found = STAMP.match(line)
    at = read_time(found[1]) if found else None
    return at, line[found.end() :] if found and at else line


def read_time(text: str) -> datetime | None:
    """A time in ISO format with its zone; None where the digits are no time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def unstamped(line: str) -> str:
    """A line without the time of its arrival."""
    found = STAMP.match(line)
    return line[found.end() :] if found else line


def printable(line: str) -> str:
    """A line without what would steer a terminal, cut to a readable length."""
    clean = CONTROL.sub("", line.strip()[: 10 * SHOWN_CHARS]).strip()  # a line may have megabytes
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[:SHOWN_CHARS]}…"


def decisive_line(log: Path, *, or_last: bool = True) -> tuple[str, int | None]:
    """The last line that names an error, and its number; ("", None) when there is none.

    What the launcher says of a rank's death counts only where the rank itself said nothing.

    Args:
        log: where to look.
        or_last: for want of such a line, the last one that is not blank.
    """
    cause = consequence = last = ("", 0)
    with log.open(errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                last = (line, number)
                if names_error(line):
                    if CONSEQUENCE.search(line):
                        consequence = last
                    else:
                        cause = last
    text, number = cause if cause[1] else consequence if consequence[1] else last if or_last else ("", 0)
    return printable(unstamped(text)), number or None


def failure_status(log: Path) -> Status:
    """What a server died of, by the errors that its log names; CRASHED where they tell no cause."""
    with log.open(errors="replace", newline="\n") as lines:
        errors = [printable(unstamped(line)) for line in lines if names_error(line)]
    for status, pattern in CAUSES:
        if any(pattern.search(error) for error in errors):
            return status
    return Status.CRASHED


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


def names_error(line: str) -> bool:
    """Whether the line names an error; a search for words first, since a log may have a million lines."""
    return any(word in line for word in ERROR_WORDS) and bool(ERROR_LINE.match(printable(unstamped(line))))
