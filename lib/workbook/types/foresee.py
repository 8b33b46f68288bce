"""What is foretold of a whole model's piecewise capture, and what a real one came to."""

from enum import StrEnum

from pydantic import Field

from workbook.types.base import CaptureMode, Record
from workbook.types.boundary import Blocker, Declared


class Foretold(StrEnum):
    """What a forecast says of a capture."""

    TRACES = "traces"
    STOPS = "stops"
    SWITCHED_OFF = "switched_off"
    CANNOT_TELL = "cannot_tell"


class ModelBlocker(Blocker):
    """One operation of a model that cannot be traced, in order.

    `layer` is the module that stops, such as model.layers.3.mlp; `past` says in words what gets past it, and
    `past_level` the patch level that does.
    """

    layer: str = ""
    past: str
    past_level: int | None = None


class SplitGraph(Record):
    """One graph that Dynamo made of the model, and how SGLang split it. Several mean that it was compiled again."""

    pieces: int = Field(ge=1)
    split: int = Field(ge=0)
    compiled: int = Field(ge=0)
    split_ops: dict[str, int]
    operations: dict[str, int]
    nodes: int = Field(ge=0)


class GraphMemory(Record):
    """What the captured graphs will take of a GPU, estimated.

    `pool_gib` is the largest sum of tensors alive at once at the largest capture size, from the traced graph;
    `graphs` are as many as compiled pieces times capture sizes, and `per_graph_mib` what each was measured to take.
    """

    pool_gib: float = Field(ge=0)
    graphs: int = Field(ge=0)
    per_graph_mib: float = Field(ge=0)
    total_gib: float = Field(ge=0)
    basis: str


class Forecast(Record):
    """Whether the piecewise capture of a launch profile will trace: the whole model, one rank, no GPU.

    Args:
        outcome: `stops` is at the first of `blockers`; `switched_off`: SGLang itself would not capture; `reason` says
            why for these two and for `cannot_tell`.
        layers: of the model as it was traced; `model_layers`, of the whole model, or 0 where its config does not say.
        torch_pin: the stack's version of torch, where another may have been asked.
        graphs: at the sizes of `compiled_sizes`, largest first.
        capture_sizes: in tokens, as the installed SGLang chooses them; empty where it did not come to that.
        switches: settings by which SGLang changed or gave up what the profile asks, in its own words.
        chosen: what SGLang chose, or was told, for backends and types.
        weights_gib: of this rank.
        declared: what torch was told of the GPUs; None where nothing had to be asked.
        seconds: by phase.
        peak_gib: memory of the process.
    """

    profile: str
    model: str
    architecture: str
    quantization: str | None
    stack: str
    torch_pin: str = ""
    versions: dict[str, str]
    arch: str
    tp: int = Field(ge=1)
    rank: int = Field(ge=0)
    patch_level: int = Field(ge=0)
    outcome: Foretold
    reason: str = ""
    layers: int = Field(ge=0)
    model_layers: int = Field(default=0, ge=0)
    blockers: tuple[ModelBlocker, ...] = ()
    graphs: tuple[SplitGraph, ...] = ()
    capture_sizes: tuple[int, ...] = ()
    compiled_sizes: tuple[int, ...] = ()
    memory: GraphMemory | None = None
    switches: tuple[str, ...] = ()
    chosen: dict[str, str] = Field(default_factory=dict)
    weights_gib: float = Field(default=0, ge=0)
    argv: tuple[str, ...] = ()
    declared: Declared | None
    gpu: str
    applied: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    seconds: dict[str, float]
    peak_gib: float = Field(ge=0)


class CaptureEnd(StrEnum):
    """How the piecewise capture of a real server ended."""

    CAPTURED = "captured"
    DIED = "died"
    SWITCHED_OFF = "switched_off"


class CaptureFault(Record):
    """What a server died of: the first exception of its log.

    `blamed` is the innermost frame, `module:function`; `during` is load, warm_up (the eager pass before the trace),
    trace or capture.
    """

    type: str
    message: str = Field(max_length=300)
    blamed: str
    during: str


class RealCapture(Record):
    """What came of a server's piecewise capture on a GPU, to be held beside a forecast.

    Args:
        layers: the model's first layers, all that the server was given.
        argv: of SGLang's server; the model's folder stands there as the checkpoint's name.
        deep_gemm: whether the server could import DeepGEMM.
        mode: piecewise, or breakable, which splits without Dynamo and so has no `graphs`.
        reason: why SGLang switched the capture off, in its own words.
        graphs: each that Dynamo made of the model, in order.
        recompiles: the guard that failed before each graph but the first.
        capture_sizes: in tokens.
        graph_gib: what the capture added to the process's memory on the GPU.
        alone: whether no other server was on the GPU.
        answered: whether a request of 40 tokens was answered within 40 s; None where none was sent.
        capture_s: of that, what compile and capture took.
        seconds: from the start until the server was ready or dead.
    """

    name: str
    checkpoint: str
    layers: int = Field(ge=1)
    argv: tuple[str, ...]
    env: dict[str, str]
    deep_gemm: bool
    mode: CaptureMode
    outcome: CaptureEnd
    reason: str = ""
    fault: CaptureFault | None = None
    graphs: tuple[SplitGraph, ...] = ()
    recompiles: tuple[str, ...] = ()
    capture_sizes: tuple[int, ...] = ()
    graph_gib: float | None = Field(default=None, ge=0)
    alone: bool
    answered: bool | None = None
    capture_s: float | None = Field(default=None, ge=0)
    seconds: float = Field(ge=0)

    @property
    def cuda_graphs(self) -> int:
        """How many were captured: a compiled piece has one for each size; 0 where nothing was captured so."""
        if self.outcome is not CaptureEnd.CAPTURED or not self.graphs:
            return 0
        return self.graphs[-1].compiled * len(self.capture_sizes)
