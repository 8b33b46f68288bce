"""One process at a time: a lock on a file, which ends with the process that holds it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbook.errors import WorkbookError


@contextmanager
def held(path: Path, busy: str, hint: str) -> Iterator[None]:
    """Within the block no other process holds this file; its content stays as it is.

    Raises:
        WorkbookError: another one does: `busy` and `hint` say so.
    """
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WorkbookError(busy, hint) from None
        yield
