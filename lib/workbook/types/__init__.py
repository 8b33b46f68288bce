"""The vocabulary of the workbook: frozen models and enums, no I/O. Units stand in the names."""

from workbook.types.base import CaptureMode, Lane, ProcessState, Record, Stage, Status
from workbook.types.boundary import (
    Blocker,
    Declared,
    Entry,
    Frame,
    MatrixCell,
    MatrixRequest,
    PatchDiff,
    PatchLevel,
    Remedy,
    RemedyOutcome,
    Traced,
    TraceOutcome,
    ValueOutcome,
)
from workbook.types.catalog import DiskUse, LaunchProfile, Node, Stack
from workbook.types.runs import SCHEMA_VERSION, EnvSnapshot, Gpu, Provenance, RunRecord
from workbook.types.serving import BenchPoint, CaptureStep, Piece, ServeOutcome, SplitOutcome, StageOutcome

__all__ = [
    "SCHEMA_VERSION",
    "BenchPoint",
    "Blocker",
    "CaptureMode",
    "CaptureStep",
    "Declared",
    "DiskUse",
    "Entry",
    "EnvSnapshot",
    "Frame",
    "Gpu",
    "Lane",
    "LaunchProfile",
    "MatrixCell",
    "MatrixRequest",
    "Node",
    "PatchDiff",
    "PatchLevel",
    "Piece",
    "ProcessState",
    "Provenance",
    "Record",
    "Remedy",
    "RemedyOutcome",
    "RunRecord",
    "ServeOutcome",
    "SplitOutcome",
    "Stack",
    "Stage",
    "StageOutcome",
    "Status",
    "TraceOutcome",
    "Traced",
    "ValueOutcome",
]
