"""What a server and its capture did: pieces, captured shapes, benchmark points, the stages reached."""

from typing import Literal

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
    """One captured shape, as the server's log tells it; `label` is that of its server."""

    label: str = ""
    rank: int
    phase: str
    num_tokens: int
    start_s: float
    duration_s: float
    avail_mem_gb: float | None = None


class BenchPoint(Record):
    """One repeat of one benchmark point. Percentiles are None where the client gives none.

    Args:
        failed: requests that did not come back.
        short: requests that came back with fewer output tokens than were asked for.
        clients: processes that the load was spread over.
        client_cpu: CPU time of the busiest of them over wall time; near 1 it is the client that was measured.
        server_tok_s: output tokens/s by the server's own counter over the same time.
        prefill_in_graph: share of the prefill batches that ran in a CUDA graph, by the server's log, warm-up included.
        decode_in_graph: the same of the decode batches that the log tells.
        caveat: why the point does not say what it seems to, such as a saturated client; empty where nothing is known.
    """

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
    short: int = Field(default=0, ge=0)
    clients: int = Field(default=1, ge=1)
    client_cpu: float | None = None
    server_tok_s: float | None = None
    prefill_in_graph: float | None = None
    decode_in_graph: float | None = None
    caveat: str = ""

    @property
    def usable(self) -> bool:
        """Whether it may be averaged: every request came back whole, and something was generated."""
        whole = not self.failed and not self.short and self.completed == self.requested
        return whole and self.output_tok_s > 0


class SweepEnd(Record):
    """Why the repeats of one point ended: `precise` (the interval is narrow enough), a budget was spent, or an error.

    Args:
        half_width: half the 95 % interval of mean output tokens/s over that mean; None from too few repeats.
    """

    label: str
    concurrency: int
    repeats: int
    half_width: float | None
    ended_by: Literal["precise", "repeats spent", "time spent", "broken off"]


class Agreement(Record):
    """How alike two runs of the same prompts at temperature 0 are.

    Args:
        equal_share: tokens that are equal, position by position, over all positions.
        first_divergence: for each prompt the first position that differs; None where all are equal.
        max_logprob_diff: largest difference of the log-probabilities of equal tokens before the first divergence.
        max_flip: largest change of log-probability, in nats, that it took to make a first divergence.
    """

    name: str
    prompts: int
    tokens: int
    equal_share: float = Field(ge=0, le=1)
    first_divergence: tuple[int | None, ...]
    max_logprob_diff: float | None = None
    max_flip: float | None = None


class AccuracyOutcome(Record):
    """The gate: the candidate against the baseline, with the baseline's own run-to-run noise as the yardstick."""

    baseline: str
    candidate: str
    status: Status
    reason: str
    noise: tuple[Agreement, ...]
    compared: tuple[Agreement, ...]


class GpuSample(Record):
    """One GPU at one moment, by NVML. `throttled` names the reasons for which its clock was held down."""

    time_s: float
    gpu: int
    utilization_percent: float | None = None
    memory_gb: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


class DoctorCheck(Record):
    """One thing that a run needs of a node: what was found, what is needed, and what to do where that is missing."""

    name: str
    verdict: Literal["ok", "warning", "failed", "not applicable"]
    found: str
    needed: str = ""
    remedy: str = ""


class ServeOutcome(Record):
    """A server's life: the command that ran, when it was ready, what it captured, how it ended.

    Args:
        capture_s: seconds from the first captured size to the last one, over all ranks and phases; None without any.
        capture_mode: what it was asked for.
        graph_memory_gb: GPU memory that the graphs took, as the log tells it; the largest of the ranks.
        left_behind: what was still there after the stop (a process, its port, GPU memory); empty when nothing was.
    """

    profile: str
    status: Status
    command: str
    label: str = ""
    patch_level: int = 0
    capture_mode: CaptureMode | None = None
    sglang: str = ""
    ready_s: float | None = None
    capture_s: float | None = None
    graph_memory_gb: float | None = None
    peak_rss_gb: float | None = None
    left_behind: tuple[str, ...] = ()
    reason: str = ""
    decisive_line: str = ""
    line_number: int | None = None


class Measurement(Record):
    """What one run found about its servers, all measured in one go on one node, so that they may be compared.

    Args:
        serves: the baseline's first; of a server that was started more than once, each start.
        accuracy: of each candidate.
    """

    serves: tuple[ServeOutcome, ...] = ()
    steps: tuple[CaptureStep, ...] = ()
    points: tuple[BenchPoint, ...] = ()
    ends: tuple[SweepEnd, ...] = ()
    accuracy: tuple[AccuracyOutcome, ...] = ()
    samples: tuple[GpuSample, ...] = ()


class StageOutcome(Record):
    """One cell of the outcome matrix: a row label, a stage, how it ended and where that is written."""

    label: str
    stage: Stage
    status: Status
    detail: str = ""
    evidence: str = ""
