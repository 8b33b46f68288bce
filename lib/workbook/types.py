"""The vocabulary of the workbook: frozen models and enums, no I/O. Units stand in the names."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Record(BaseModel):
    """Base of everything that is stored: immutable, and no field passes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Status(StrEnum):
    """How a question ended. The value is what stands in JSON and in the report."""

    OK = "ok"
    DYNAMO_UNSUPPORTED = "dynamo_unsupported"
    GRAPH_BREAK = "graph_break"
    JIT_FAILED = "jit_failed"
    CAPTURE_FAILED = "capture_failed"
    OOM = "oom"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    WRONG_OUTPUT = "wrong_output"
    NOT_SUPPORTED_HERE = "not_supported_here"
    ALREADY_FIXED_UPSTREAM = "already_fixed_upstream"


class ProcessState(StrEnum):
    """What the process had done before the trace: nothing, or an eager warm-up as a server has."""

    COLD = "cold"
    WARM = "warm"


class CaptureMode(StrEnum):
    """Which CUDA graphs a server captures."""

    EAGER = "eager"
    DECODE_GRAPHS = "decode-graphs"
    PIECEWISE = "piecewise"
    BREAKABLE = "breakable"


class Stage(StrEnum):
    """A stage on the way to an answer, in order; the columns of the outcome matrix."""

    IMPORT = "import"
    JIT = "jit"
    TRACE = "trace"
    COMPILE = "compile"
    CAPTURE = "capture"
    SERVE = "serve"
    BENCH = "bench"
    ACCURACY = "accuracy"


class Lane(StrEnum):
    """Whose code a frame of the call chain is."""

    MODEL = "model"
    SGLANG = "sglang"
    FLASHINFER = "flashinfer"
    TORCH = "torch"
    STDLIB = "standard library"
    OTHER = "other"


class Frame(Record):
    """One frame of a call chain, outermost first. `function` is bare, `file` starts at the package."""

    lane: Lane
    module: str
    function: str
    file: str
    line: int
    code: str = ""


class Declared(Record):
    """What a trace without a GPU was told, since nothing here could answer. All else is installed code."""

    inputs: Literal["fake CUDA tensors", "CUDA tensors"]
    input_shapes: tuple[str, ...]
    compute_capability: tuple[int, int]
    cuda_version: str
    cuda_version_source: Literal["declared", "installed"]
    arch_list: str
    cuda_home: str | None


class Traced(Record):
    """How one trace of one call ended, on which versions, and what was stood in for."""

    entry: str
    arch: str
    process_state: ProcessState
    status: Status
    break_id: str | None = None
    operation: str | None = None
    blamed: str | None = None
    frames: tuple[Frame, ...] = ()
    message: str = ""
    seconds: float
    versions: dict[str, str]
    stand_ins: tuple[str, ...] = ()


class TraceOutcome(Traced):
    """What Dynamo makes of one call under `fullgraph=True`, in a process of its own."""

    patch_level: int
    output_shapes: tuple[str, ...] = ()
    declared: Declared
    applied: tuple[str, ...] = ()


class Remedy(Record):
    """One row of the table of remedies: how it is applied to the quantizer, and what it risks."""

    name: str
    applied: str
    risk: str


class RemedyOutcome(Traced):
    """What one remedy does for the FP4 quantizer: the trace, what was observed of its risks, and its cost.

    Costs are microseconds of an eager call over the bare call (`bare_us_p50`), CPU tensors around a kernel that does
    nothing; None where the remedy does not pass or nothing was measured, and `cost_note` says which.
    """

    remedy: str
    output_shapes: tuple[str, ...] = ()
    declared: Declared
    observed: tuple[str, ...] = ()
    bare_us_p50: float | None = None
    overhead_us_p10: float | None = None
    overhead_us_p50: float | None = None
    overhead_us_p90: float | None = None
    cost_calls: int = Field(default=0, ge=0)
    cost_note: str = ""


class MatrixRequest(Record):
    """What a matrix spans. An empty `flashinfer` means each stack's own version."""

    stacks: tuple[str, ...] = Field(min_length=1)
    flashinfer: tuple[str, ...] = ()
    entries: tuple[str, ...] = Field(min_length=1)
    levels: tuple[int, ...] = Field(min_length=1)
    process_states: tuple[ProcessState, ...] = tuple(ProcessState)
    arch: str
    node: str = "local"


class MatrixCell(Record):
    """One cell of a matrix over versions: a trace without its frames. `blamed` is module:function:line."""

    stack: str
    torch: str
    python: str
    flashinfer: str
    entry: str
    arch: str
    patch_level: int
    process_state: ProcessState
    status: Status
    break_id: str | None = None
    operation: str | None = None
    blamed: str | None = None
    message: str = ""
    seconds: float


class ValueOutcome(Record):
    """Level 4 against the bare call on a real GPU: values bit for bit on poisoned outputs, the fake's shapes, the cost.

    `unwritten` is, for each output, the share of bytes that no kernel wrote. Costs are microseconds of host time over
    the bare call: `overhead_us` through the operator, as a graph calls it that is not captured; `eager_overhead_us` by
    the patched name, which calls the operator only where something traces. None where they were not measured.
    """

    entry: str
    status: Status
    message: str = ""
    gpu: str | None = None
    compute_capability: tuple[int, int] | None = None
    output_shapes: tuple[str, ...] = ()
    unwritten: tuple[float, ...] = ()
    fake_equal: bool | None = None
    equal: bool | None = None
    repeatable: bool | None = None
    bare_us_p50: float | None = None
    eager_overhead_us_p50: float | None = None
    overhead_us_p10: float | None = None
    overhead_us_p50: float | None = None
    overhead_us_p90: float | None = None
    calls: int = 0
    versions: dict[str, str] = {}


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


class Blocker(Traced):
    """One layer of `blockers`: what stopped the trace, and how it was passed to reach the next.

    The last of a list says how the tracing ended: status ok, or a blocker that is `not passed`, and why.
    """

    order: int = Field(ge=1)
    passed: Literal["constant", "opaque", "not passed", "end"]
    how: str
    declared: Declared | None


class TensorInput(Record):
    """An example input of an entry point: dtype as torch names it, shape in elements."""

    dtype: str
    shape: tuple[int, ...]


class Entry(Record):
    """An entry point that can be traced: a row of the table that the overlay reads on the node (entries.json)."""

    path: str
    modules: tuple[str, ...]
    meaning: str
    archs: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}
    planned: tuple[Any, ...] = ()
    types: dict[str, str] = {}
    returns: str | None = None
    mutates: tuple[str, ...] = ()
    out: str | None = None
    random: bool = False

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """The arguments that are tensors."""
        tensors = [one for one in self.args if isinstance(one, dict) and "shape" in one]
        return tuple(TensorInput(dtype=one["dtype"], shape=one["shape"]) for one in tensors)


class PatchLevel(Record):
    """One level of the patch table."""

    level: int
    name: str
    changes: str
    expected: str
    patches: tuple[str, ...]


class PatchDiff(Record):
    """What one patch does to one installed function: a unified diff of its source, or why it refuses."""

    patch: str
    target: str
    source_sha256: str = ""
    known_in: str = ""
    diff: str = ""
    refused: str = ""
    cures: tuple[str, ...] = ()


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
    patched_sources: dict[str, str] = {}

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
    files: dict[str, str] = {}


class Node(Record):
    """Where processes run. Only `local` exists so far; ssh is to come. `stack` is what its own Python has."""

    name: str
    kind: Literal["local"] = "local"
    python: str | None = None
    stack: str = "embedded"
    env: dict[str, str] = {}


class DiskUse(Record):
    """Disk that an environment takes once it is made, and at most while it is made; GB of 10^9 bytes."""

    installed_gb: float = Field(gt=0)
    peak_gb: float = Field(gt=0)
    measured: str


class Stack(Record):
    """A named, locked set of versions. `full` and `minimal` are absent where the size was never measured."""

    name: str
    torch: str
    flashinfer: str
    sglang: str
    purpose: str
    full: DiskUse | None = None
    minimal: DiskUse | None = None


class LaunchProfile(Record):
    """What a server is launched with: the intent, not yet the flags of one SGLang version."""

    name: str
    description: str
    model: str
    load_format: Literal["auto", "dummy"] = "auto"
    device: Literal["cpu", "cuda"] = "cuda"
    tp: int = Field(default=1, ge=1)
    quantization: str | None = None
    attention_backend: str | None = None
    moe_runner: str | None = None
    nsa_decode_backend: str | None = None
    nsa_prefill_backend: str | None = None
    capture_mode: CaptureMode = CaptureMode.DECODE_GRAPHS
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    extra_flags: tuple[str, ...] = ()
    env: dict[str, str] = {}
    concurrencies: tuple[int, ...]
    input_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    requests_per_slot: int = Field(default=4, ge=1)
    note: str = ""
