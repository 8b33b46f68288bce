"""What a server and its capture did: pieces, captured shapes, benchmark points, the stages reached."""

from pydantic import Field

from workbook.types.base import CaptureMode, Record, Stage, Status
from workbook.types.boundary import Declared, TraceOutcome


class Piece(Record):
    """A piece of a piecewise graph: compiled (and captured), or split off and run eagerly."""

    name: str
    split: bool
    operations: tuple[str, ...]


class SplitOutcome(Record):
    """What SGLang's own compile machinery makes of a small module that quantizes to FP4."""

    arch: str
    patch_level: int
    tp: int
    capture_mode: CaptureMode
    num_layers: int
    num_tokens: int
    capture_sizes: tuple[int, ...]
    split_ops: tuple[str, ...]
    stages: dict[Stage, Status]
    reasons: dict[Stage, str]
    pieces: tuple[Piece, ...] = ()
    num_graphs: int = Field(default=0, ge=0)
    stopped: TraceOutcome | None = None
    seconds: float
    versions: dict[str, str]
    declared: Declared
    stand_ins: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()


class CaptureStep(Record):
    """One captured shape, as the server's log tells it."""

    rank: int
    phase: str
    num_tokens: int
    start_s: float
    duration_s: float
    avail_mem_gb: float | None = None


class BenchPoint(Record):
    """One repeat of one benchmark point. Percentiles are None where the client gives none."""

    run_id: str
    label: str
    concurrency: int = Field(ge=1)
    repeat: int = Field(ge=0)
    requested: int
    completed: int
    failed: int
    duration_s: float
    output_tok_s: float
    ttft_ms_p50: float | None = None
    ttft_ms_p90: float | None = None
    ttft_ms_p99: float | None = None
    itl_ms_p50: float | None = None
    itl_ms_p90: float | None = None
    itl_ms_p99: float | None = None
    seed: int


class ServeOutcome(Record):
    """A server's life: the command that ran, when it was ready, how it ended."""

    profile: str
    status: Status
    command: str
    ready_s: float | None = None
    peak_rss_gb: float | None = None
    reason: str = ""
    decisive_line: str = ""
    line_number: int | None = None


class StageOutcome(Record):
    """One cell of the outcome matrix: a row label, a stage, how it ended and where that is written."""

    label: str
    stage: Stage
    status: Status
    detail: str = ""
    evidence: str = ""
