"""What the workbook says when it cannot go on: one sentence on what was wrong and where, one on what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """A hint at the known name that is most like `name`, or `otherwise` where none is at least `cutoff` alike."""
    near = get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


class WorkbookError(Exception):
    """The workbook itself failed (exit status 1).

    Args:
        message: what was wrong and where, in one sentence.
        hint: what to do next, in one sentence; empty when the message already says it.
    """

    exit_status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.message = message
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a user's mistake in a notebook shows its sentence, not a traceback."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(WorkbookError):
    """The user asked for something that does not exist or cannot be (exit status 2)."""

    exit_status = 2


class PatchRefusedError(UsageError):
    """The installed code is not what a patch was written for, so nothing was patched."""


class ParameterError(UsageError):
    """A notebook parameter is misspelt, of the wrong type or out of range."""
