"""Where and from what a run was made: environments, records on disk, recordings."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from workbook.types.base import Record, Status

SCHEMA_VERSION = 1


class Gpu(Record):
    """One GPU as its driver reports it."""

    index: int
    name: str
    compute_capability: str
    memory_gb: float


class EnvSnapshot(Record):
    """Where a run took place."""

    node: str
    hostname: str
    cpu: str
    cores: int
    memory_gb: float
    os: str
    python: str
    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda: str | None
    packages: dict[str, str]
    git_commit: str | None
    git_dirty: bool | None
    argv: tuple[str, ...]
    patched_sources: dict[str, str] = Field(default_factory=dict)

    @property
    def hardware(self) -> str:
        """One line that names the hardware, by which runs are kept apart."""
        if not self.gpus:
            return f"CPU only ({self.cores} cores, {self.cpu})"
        names = sorted({gpu.name for gpu in self.gpus})
        return f"{len(self.gpus)} x {' / '.join(names)}"


class RunRecord(Record):
    """One run of one notebook. `files` are the names and SHA-256 of its records and tables."""

    schema_version: Literal[1] = 1
    id: str
    campaign: str
    notebook: str
    label: str
    status: Status
    params: dict[str, Any]
    parents: tuple[str, ...] = ()
    started: datetime
    ended: datetime
    error: str = ""
    verdict: str = ""
    files: dict[str, str] = Field(default_factory=dict)


class Provenance(Record):
    """Where a recording comes from: never shown as if it ran now."""

    date: str
    hardware: str
    versions: str
    made_by: str
    commit: str
    note: str = ""

    @property
    def sentence(self) -> str:
        """For a caption."""
        return f"Recorded on {self.date}, {self.hardware}; {self.versions}"
