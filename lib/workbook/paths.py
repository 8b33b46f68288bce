"""Where things lie in a checkout. Everything is found from here, so any working directory will do."""

import os
from pathlib import Path

from workbook.errors import WorkbookError

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
DATA = ROOT / "data"
LOCKS = ROOT / "locks"
OVERLAY = Path(__file__).resolve().parent / "boundary" / "overlay"
PROBES = Path(__file__).resolve().parent / "probes"


def runs_dir() -> Path:
    """The folder of all campaigns; `WORKBOOK_RUNS` moves it (to a larger disk, or aside for a test)."""
    return Path(os.environ.get("WORKBOOK_RUNS") or DATA / "runs")


def reports_dir() -> Path:
    """The folder of rendered reports; `WORKBOOK_REPORTS` moves it."""
    return Path(os.environ.get("WORKBOOK_REPORTS") or ROOT / "reports")


def stacks_dir() -> Path:
    """Where stacks (virtual environments, FlashInfer folders) are kept; `WORKBOOK_STACKS` moves it."""
    return Path(os.environ.get("WORKBOOK_STACKS") or ROOT / ".stacks")


def require_checkout() -> Path:
    """The checkout's root.

    Raises:
        WorkbookError: the package was installed away from its notebooks.
    """
    if not NOTEBOOKS.is_dir():
        raise WorkbookError(
            f"No notebooks beside the package (looked in {NOTEBOOKS}).",
            "Install it from a checkout with `make setup` or `pip install -e .`.",
        )
    return ROOT
