"""Runs on disk: created as a visible partial, sealed by one rename, found and loaded only when sealed.

<runs>/<campaign>/<UTC>-<notebook>-<label>-<hex6>/
    run.json  env.json  raw/  <table>.parquet  <records>.json  notebook.ipynb  notebook.html
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic import ValidationError

from workbook.errors import UsageError, WorkbookError
from workbook.exclusive import held
from workbook.paths import runs_dir
from workbook.types import SCHEMA_VERSION, EnvSnapshot, Record, RunRecord, Status

PARTIAL = ".partial"
MATRIX = "matrix"  # the campaign, and the name of its runs, in which matrices over versions are kept
BENCH = "bench"  # the same for what `workbook bench` measures
RUNS_HINT = "Set WORKBOOK_RUNS to a folder that is writable."
R = TypeVar("R", bound=Record)


def write_text(path: Path, text: str) -> None:
    """Write beside and rename, flushed to disk: `path` is the old text or the new, never a half."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(3)}")
    try:
        with beside.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WorkbookError(
            f"Cannot write {path}: {error.strerror}.", "Nothing half-written was left."
        ) from error


def make_folder(path: Path, hint: str) -> Path:
    """A folder that is there afterwards.

    Raises:
        WorkbookError: it cannot be made; `hint` says what to do.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkbookError(f"Cannot make the folder {path}: {error.strerror}.", hint) from error
    return path


@contextmanager
def locked(campaign: str) -> Iterator[None]:
    """Within the block no other `workbook run` works in this campaign's folder.

    Raises:
        WorkbookError: another one does.
    """
    folder = make_folder(runs_dir() / campaign, RUNS_HINT)
    busy = f"Campaign {campaign} is being run by another process."
    with held(folder / ".lock", busy, "Wait for it, or give --campaign NAME."):
        yield


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Run:
    """A run being made. Its folder ends in `.partial` until it is sealed."""

    id: str
    campaign: str
    notebook: str
    label: str
    params: dict[str, Any]
    started: datetime
    path: Path

    @property
    def raw(self) -> Path:
        """The folder of raw output, never edited afterwards."""
        return self.path / "raw"

    def add_records(self, name: str, records: Sequence[Record]) -> None:
        """Keep records as `<name>.json`."""
        write_text(
            self.path / f"{name}.json", json.dumps([one.model_dump(mode="json") for one in records], indent=1)
        )

    def add_table(self, name: str, records: Sequence[Record]) -> None:
        """Keep flat records as a tidy table, `<name>.parquet`, and as `<name>.json`."""
        self.add_records(name, records)
        pd.DataFrame([one.model_dump(mode="json") for one in records]).to_parquet(
            self.path / f"{name}.parquet"
        )

    def seal(
        self,
        status: Status,
        env: EnvSnapshot,
        *,
        verdict: str,
        parents: Iterable[str] = (),
        error: str = "",
    ) -> "SealedRun":
        """Write env.json and run.json and give the folder its final name: from then on it loads.

        Raises:
            WorkbookError: the disk is full or not writable; the run stays partial.
        """
        record = RunRecord(
            id=self.id,
            campaign=self.campaign,
            notebook=self.notebook,
            label=self.label,
            status=status,
            params=self.params,
            parents=tuple(parents),
            started=self.started,
            ended=datetime.now(UTC),
            verdict=verdict,
            error=error,
        )
        write_text(self.path / "env.json", env.model_dump_json(indent=1))
        files = {path.name: sha256(path) for path in sorted(self.path.iterdir()) if path.is_file()}
        record = record.model_copy(update={"files": files})
        write_text(self.path / "run.json", record.model_dump_json(indent=1))
        final = self.path.with_name(self.id)
        try:
            self.path.rename(final)
        except OSError as problem:
            raise WorkbookError(
                f"Cannot seal run {self.id}: {problem.strerror}.", f"It stays in {self.path}."
            ) from problem
        return SealedRun(record, final)


@dataclass(frozen=True)
class SealedRun:
    """A complete run, read from disk."""

    record: RunRecord
    path: Path

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def env(self) -> EnvSnapshot:
        """Where it took place."""
        return _parse(EnvSnapshot, self.path / "env.json")

    def has(self, name: str) -> bool:
        """Whether the run kept records of this name."""
        return f"{name}.json" in self.record.files

    def records(self, name: str, kind: type[R]) -> list[R]:
        """The records kept as `<name>.json`.

        Raises:
            WorkbookError: the file is missing or does not hold records of this kind.
        """
        path = self.path / f"{name}.json"
        try:
            return [kind.model_validate(one) for one in json.loads(path.read_text())]
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(path) from error

    def table(self, name: str) -> pd.DataFrame:
        """The table kept as `<name>.parquet`."""
        return pd.read_parquet(self.path / f"{name}.parquet")


def create(campaign: str, notebook: str, label: str, params: dict[str, Any]) -> Run:
    """Begin a run: a partial folder with an empty raw/.

    Raises:
        WorkbookError: the folder cannot be made.
    """
    started = datetime.now(UTC)
    run_id = f"{started:%Y%m%dT%H%M%SZ}-{notebook}-{label}-{secrets.token_hex(3)}"
    path = runs_dir() / campaign / f"{run_id}{PARTIAL}"
    make_folder(path / "raw", RUNS_HINT)
    return Run(run_id, campaign, notebook, label, params, started, path)


def load(path: Path) -> SealedRun:
    """Read one sealed run.

    Raises:
        UsageError: there is no such run, or it is partial.
        WorkbookError: its record is damaged or of another schema version, or one of its files is not as it was.
    """
    if path.name.endswith(PARTIAL):
        raise UsageError(f"Run {path.name} was never finished.", "Run its notebook again.")
    if not (path / "run.json").is_file():
        raise UsageError(f"No run in {path}.")
    record = _parse(RunRecord, path / "run.json")
    for name, expected in record.files.items():
        file = path / name
        if not file.is_file() or sha256(file) != expected:
            raise _damaged(file)
    return SealedRun(record, path)


def find(campaign: str, notebook: str | None = None) -> list[SealedRun]:
    """The sealed runs of a campaign, oldest first."""
    folder = runs_dir() / campaign
    runs = [
        load(path)
        for path in folder.glob("*-*/")
        if not path.name.endswith(PARTIAL) and (path / "run.json").is_file()
    ]
    runs.sort(key=lambda run: run.record.started)  # a run's name has whole seconds only
    return [run for run in runs if notebook in (None, run.record.notebook)]


def partials(campaign: str) -> list[str]:
    """The names of the runs of a campaign that were never finished."""
    return sorted(path.name for path in (runs_dir() / campaign).glob(f"*{PARTIAL}"))


def campaigns() -> list[str]:
    """The campaigns of notebooks that have a folder, oldest first."""
    folders = [path for path in runs_dir().glob("*/") if path.name not in (MATRIX, BENCH)]
    return [path.name for path in sorted(folders, key=lambda path: path.stat().st_mtime)]


def _damaged(path: Path) -> WorkbookError:
    return WorkbookError(
        f"{path} is missing or damaged.", "Delete that run's folder and run its notebook again."
    )


def _parse(kind: type[R], path: Path) -> R:
    try:
        text = path.read_text()
        version = json.loads(text).get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise WorkbookError(
                f"{path} has schema version {version}; this workbook reads {SCHEMA_VERSION}.",
                "Use the version of the workbook that wrote it.",
            )
        return kind.model_validate_json(text)
    except (OSError, ValueError, ValidationError, AttributeError) as error:
        raise _damaged(path) from error
