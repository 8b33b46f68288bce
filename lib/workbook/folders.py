"""Folders that are whole or not there: built beside their place, and incomplete from the first moment of a removal."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbook.disk import size_gb
from workbook.errors import UsageError


def own(folder: Path) -> Path:
    """The folder itself.

    Raises:
        UsageError: it is a link: what that leads to is not the workbook's.
    """
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link to somewhere else.", "Remove the link, and run this again.")
    return folder


def partial(folder: Path) -> Path:
    """Where the folder lies while it is being made or removed."""
    return folder.with_name(f"{folder.name}.partial")


def is_there(folder: Path) -> bool:
    """Whether there is anything to remove: the folder, or what an interruption left of it."""
    return any(own(one).exists() for one in (folder, partial(folder)))


@contextmanager
def half_made(folder: Path) -> Iterator[None]:
    """A new folder to build in; nothing is left of it when that fails or is interrupted."""
    discard(folder)
    folder.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def made_beside(folder: Path) -> Iterator[Path]:
    """A new folder beside it to build in: what is left there under `site` takes its place, the rest goes."""
    beside = partial(folder)
    with half_made(beside):
        yield beside
        (beside / "site").rename(folder)
    remove_tree(beside)


def discard(folder: Path) -> float:
    """Remove a folder; the GB of 10^9 bytes that came free."""
    beside = partial(folder)
    freed = size_gb(folder) + size_gb(beside)  # one is left there where a removal was interrupted
    remove_tree(beside)
    if own(folder).exists():
        folder.rename(beside)
        remove_tree(beside)
    return freed


def remove_tree(folder: Path) -> None:
    """Remove a folder that may not be there."""
    if own(folder).exists():
        shutil.rmtree(folder)
