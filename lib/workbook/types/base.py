"""The enums, and the base of every record."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


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
