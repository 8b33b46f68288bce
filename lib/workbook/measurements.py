"""What was found about servers, kept in a run and read back: a file for each kind of record."""

import json
from pathlib import Path

from workbook.errors import WorkbookError
from workbook.store import Run
from workbook.types import Measurement

RECORDS = {"serve": "serves", "sweep_ends": "ends", "accuracy": "accuracy"}
TABLES = {"points": "points", "capture": "steps", "telemetry": "samples"}
FILES = RECORDS | TABLES


def keep(run: Run, found: Measurement) -> None:
    """Keep it in a run that is being made: records as JSON, what is flat and long as a table too."""
    for name, field in RECORDS.items():
        run.add_records(name, getattr(found, field))
    for name, field in TABLES.items():
        run.add_table(name, getattr(found, field))


def read(folder: Path) -> Measurement:
    """Read it from a folder; what it has no file for is empty.

    Raises:
        WorkbookError: a file is not what was kept.
    """
    texts = {field: folder / f"{name}.json" for name, field in FILES.items()}
    try:
        parts = {field: json.loads(path.read_text()) for field, path in texts.items() if path.is_file()}
        return Measurement.model_validate_json(json.dumps(parts))
    except (OSError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise WorkbookError(f"The records in {folder} are damaged: {why}.", "Measure again.") from error
