"""The disk that stacks take: measured figures, and whether there is room before anything is fetched."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from packaging.version import Version

from workbook.errors import UsageError
from workbook.paths import stacks_dir
from workbook.types import DiskUse, Stack

GB = 1e9
Kind = Literal["full", "minimal"]
# Measured with `du` while `workbook stack create embedded --flashinfer VERSION` ran, wheels included.
FLASHINFER_DISK = {
    Version(version): DiskUse(installed_gb=installed, peak_gb=peak, measured=f"FlashInfer {version}")
    for version, installed, peak in (
        ("0.6.3", 0.06, 0.07),
        ("0.6.11.post1", 0.11, 0.12),
        ("0.7.2", 0.62, 0.69),
        ("0.7.4", 0.90, 1.00),
    )
}


# The same of `workbook stack create NAME --sources`: the peak is two copies of its kernel wheel, of which none is kept.
SGLANG_DISK = {
    Version(version): DiskUse(installed_gb=installed, peak_gb=peak, measured=f"SGLang {version}")
    for version, installed, peak in (
        ("0.5.9", 0.03, 1.10),
        ("0.5.12", 0.04, 0.69),
        ("0.5.23", 0.14, 0.89),
    )
}


def size_gb(folder: Path) -> float:
    """Disk that a folder takes, in GB of 10^9 bytes; links in it are not followed."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) / GB


def check_disk(
    stack: Stack,
    kind: Kind | None,
    flashinfer: Iterable[str],
    sglang: str | None,
    say: Callable[[str], None],
) -> None:
    """Say what disk it takes, by measured figures, and stop before anything is fetched where that is too much.

    Args:
        kind: the environment that is to be made; None makes none.
        flashinfer: the versions of FlashInfer that are to be fetched.
        sglang: the version of SGLang whose sources are to be fetched.
        say: called with the sentence.

    Raises:
        UsageError: the disk of the stacks folder has less free than that.
    """
    uses = [_nearest(FLASHINFER_DISK, version) for version in flashinfer]
    uses += [_nearest(SGLANG_DISK, sglang)] if sglang else []
    if kind is None and not uses:
        return
    place = next(folder for folder in (stacks_dir(), *stacks_dir().absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(place).free / GB
    measured: DiskUse | None = getattr(stack, kind) if kind else None
    if kind and measured is None:
        say(f"How much disk stack {stack.name}, {kind}, takes was not measured yet; {free:.1f} GB are free.")
        return
    uses += [measured] if measured else []
    installed = sum(use.installed_gb for use in uses)
    peak = installed + max(use.peak_gb - use.installed_gb for use in uses)
    sources = "; ".join(dict.fromkeys(use.measured for use in uses))
    say(
        f"This takes about {installed:.2f} GB in {stacks_dir()}, at most {peak:.2f} GB while it is made "
        f"(measured: {sources}); {free:.1f} GB are free."
    )
    if free < peak:
        raise UsageError(
            f"{stacks_dir()} has {free:.2f} GB free, and this needs about {peak:.2f} GB.",
            "Make room, or let WORKBOOK_STACKS name a folder on a larger disk.",
        )


def _nearest(figures: Mapping[Version, DiskUse], version: str) -> DiskUse:
    """The figures of the nearest measured version that is not newer, else of the oldest."""
    older = [one for one in figures if one <= Version(version)]
    return figures[max(older) if older else min(figures)]
