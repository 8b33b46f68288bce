"""The entry points that can be traced: the rows of the overlay's table."""

import json

from workbook.errors import UsageError, nearest
from workbook.paths import OVERLAY
from workbook.types import Entry

ENTRIES = tuple(
    Entry.model_validate(row)
    for row in json.loads((OVERLAY / "workbook_overlay" / "entries.json").read_text())
)

ALL = "all"
ARCHS = ("sm90", "sm100", "sm103", "sm110", "sm120", "sm121")


def entry(path: str) -> Entry:
    """The row for a dotted path.

    Raises:
        UsageError: there is none; the nearest is offered.
    """
    rows = {row.path: row for row in ENTRIES}
    if path not in rows:
        hint = nearest(path, rows, f"known: {', '.join(rows)}.", 0.4)
        raise UsageError(f"No entry point {path!r};", hint)
    return rows[path]


def paths(*named: str) -> list[str]:
    """Entry points by name; `all` alone is every row of the table."""
    return [row.path for row in ENTRIES] if named == (ALL,) else list(named)


def check_arch(arch: str) -> str:
    """The name of an architecture, as it is.

    Raises:
        UsageError: the boundary has no compute capability for it.
    """
    if arch not in ARCHS:
        raise UsageError(f"No architecture {arch!r};", f"known: {', '.join(ARCHS)}.")
    return arch
