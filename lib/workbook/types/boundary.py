"""What Dynamo makes of a call: entry points, patch levels, traces, blockers, remedies, values."""

from typing import Any, Literal

from pydantic import Field

from workbook.types.base import Lane, ProcessState, Record, Status


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


class Blocker(Traced):
    """One layer of `blockers`: what stopped the trace, and how it was passed to reach the next.

    The last of a list says how the tracing ended: status ok, or a blocker that is `not passed`, and why.
    """

    order: int = Field(ge=1)
    passed: Literal["constant", "opaque", "not passed", "end"]
    how: str
    declared: Declared | None


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
    versions: dict[str, str] = Field(default_factory=dict)


class Entry(Record):
    """An entry point that can be traced: a row of the table that the overlay reads on the node (entries.json)."""

    path: str
    modules: tuple[str, ...]
    meaning: str
    archs: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = Field(default_factory=dict)
    planned: tuple[Any, ...] = ()
    types: dict[str, str] = Field(default_factory=dict)
    returns: str | None = None
    mutates: tuple[str, ...] = ()
    out: str | None = None
    random: bool = False


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
