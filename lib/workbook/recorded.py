"""What was measured elsewhere or earlier and is kept in data/recorded, each with its provenance."""

from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from workbook import measurements
from workbook.errors import UsageError, WorkbookError
from workbook.paths import DATA
from workbook.types import MatrixCell, Measurement, Provenance, RealCapture, ValueOutcome

MATRIX = "20261130-matrix"
VALUES = "20261130-h200-values"
SERVING = "20261130-h200-serving"
CAPTURES = "20261130-h200-foresee"


def matrix(name: str = MATRIX) -> tuple[Provenance, list[MatrixCell]]:
    """A recorded matrix over versions.

    Raises:
        UsageError: no such recording.
        WorkbookError: it is damaged.
    """
    frame = pd.read_parquet(_folder(name) / "cells.parquet").astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    try:
        return provenance(name), TypeAdapter(list[MatrixCell]).validate_python(rows)
    except ValidationError as error:
        raise _damaged(name) from error


def values(name: str = VALUES) -> tuple[Provenance, list[ValueOutcome]]:
    """Level 4 against the bare call on a GPU, as it was recorded.

    Raises:
        UsageError: no such recording.
        WorkbookError: it is damaged.
    """
    text = (_folder(name) / "values.json").read_text()
    try:
        return provenance(name), TypeAdapter(list[ValueOutcome]).validate_json(text)
    except ValidationError as error:
        raise _damaged(name) from error


def serving(name: str = SERVING) -> tuple[Provenance, Measurement]:
    """Two servers compared on a GPU, as it was recorded.

    Raises:
        UsageError: no such recording.
        WorkbookError: it is damaged.
    """
    return provenance(name), measurements.read(_folder(name))


def captures(name: str = CAPTURES) -> list[RealCapture]:
    """What came of piecewise captures on a GPU, as it was recorded.

    Raises:
        UsageError: no such recording.
        WorkbookError: it is damaged.
    """
    try:
        return TypeAdapter(list[RealCapture]).validate_json((_folder(name) / "captures.json").read_text())
    except (OSError, ValidationError) as error:
        raise _damaged(name) from error


def provenance(name: str) -> Provenance:
    """When, on what and with which versions a recording was made.

    Raises:
        UsageError: no such recording.
        WorkbookError: it is damaged.
    """
    try:
        return Provenance.model_validate_json((_folder(name) / "provenance.json").read_text())
    except (OSError, ValidationError) as error:
        raise _damaged(name) from error


def _folder(name: str) -> Path:
    folder = DATA / "recorded" / name
    if not folder.is_dir():
        known = ", ".join(sorted(path.name for path in (DATA / "recorded").glob("*/")))
        raise UsageError(f"No recording {name!r};", f"known: {known}.")
    return folder


def _damaged(name: str) -> WorkbookError:
    return WorkbookError(f"data/recorded/{name} is damaged.", "Get it anew: git checkout -- data/recorded")
