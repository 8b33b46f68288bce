"""Text from logs and programs made fit to show: nothing in it may act, hide or overflow."""

import html
import re

ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\n\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and its kin: titles, links
    r"|\x1b[ -/]*[0-~]"
)
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Marks that reorder what follows could make a line read as another one.
DIRECTIONS = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """The text without terminal escapes; other control characters and direction marks become visible.

    A line that a progress bar wrote over and over keeps its last state.
    """
    clean = ESCAPES.sub("", str(text))
    clean = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in clean.split("\n"))
    clean = CONTROLS.sub(lambda hit: chr(0x2400 + ord(hit[0])) if hit[0] < " " else "\ufffd", clean)
    return DIRECTIONS.sub(lambda hit: f"[U+{ord(hit[0]):04X}]", clean)


def escape(text: object) -> str:
    """`plain` text, safe as HTML content and inside a quoted attribute."""
    return html.escape(plain(text), quote=True)


def one_line(text: object, limit: int) -> str:
    """`plain` text as one line of at most `limit` characters."""
    return elide(" ".join(plain(text).split()), limit)


def elide(text: str, limit: int) -> str:
    """The text in at most `limit` characters (at least 1); what goes is taken from the middle."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, (limit - 1) // 2
    return text[:head] + "…" + text[len(text) - tail :]
