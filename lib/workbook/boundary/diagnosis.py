"""What an exception of Dynamo says: how it ended, at which operation, and whose frames led there. Text in, data out."""

import re
import sys
from typing import Any

from workbook.types import Frame, Lane, Status

# What makes the call, in the model's place: the overlay's own function, or a probe.
CALLER = "workbook_overlay/tracing.py"
_PROBES = ("blockers", "remedies", "split")
OPERATION_LIMIT = 120  # characters
_BREAK_ID = re.compile(r"/(gb\d{4})\b")
_CONTEXT = re.compile(r"Developer debug context: (.*)")
_SKIPPED = re.compile(r"module: (?:<unknown module>|(?P<module>[^,\s]+)), qualname: (?P<name>[^,\s]+)")
_CLASS_METHOD = re.compile(
    r"call_method UserDefinedClassVariable\(<class '(?P<owner>[^']+)'>\) (?P<name>\w+)"
)
_OBJECT_METHOD = re.compile(r"call_method UserDefinedObjectVariable\((?P<owner>\w+)\) (?P<name>\w+)")
_CALLED_OBJECT = re.compile(r"\Aobject=(?:\w+\.)*(?P<owner>\w+)\Z")  # torch 2.14
_WITH = re.compile(r"\AAttempted SETUP_WITH.*UserDefinedObjectVariable\((?P<owner>\w+)\)")
_BUILTIN = re.compile(r"\Abuiltin (?P<name>\w+) \[")
_CLASS_CALL = re.compile(r"call_function UserDefinedClassVariable\(<class '(?P<owner>[^']+)'>\)")
_FUNCTION = re.compile(r"<function (?P<name>\S+) at 0x[0-9a-f]+>|\AFunction: (?P<bare>\S+)\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DATA = re.compile(r"data-dependent expression (.+?) \(unhinted")
_NO_GPU = re.compile(
    r"not linked with support for cuda|not compiled with CUDA|compiled without CUDA support"
    r"|no NVIDIA driver|driver version is insufficient"
    r"|dummy base class _cuda|Cannot re-initialize CUDA|DeclaredProperties' object has no attribute"
)
_EXPLANATION_END = re.compile(
    r"(?:\n|\\n)\s*"
    r"(?:from user code:|For more information, run with TORCH_LOGS|Set TORCHDYNAMO_VERBOSE|Exception raised from|\Z)"
)


def fields(error: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of a `Traced` record that an exception tells; `blamed` depends on the entry and is not among them."""
    message = error["message"] if error else ""
    return {
        "status": status(error),
        "break_id": break_id(message),
        "operation": operation(message),
        "frames": frames(error["stack"]) if error else (),
        "message": explanation(message),
    }


def status(error: dict[str, Any] | None) -> Status:
    """How a trace ended. A disabled function is a graph break; other refusals are operations Dynamo cannot trace.

    What only fails because there is no GPU says nothing about the code, and is `not_supported_here`.
    """
    if error is None:
        return Status.OK
    if _NO_GPU.search(error["message"]):
        return Status.NOT_SUPPORTED_HERE
    kind = (
        error["gb_type"] or error["message"].partition("\n")[0]
    )  # torch 2.9 has the kind in the message only
    if "torch.compiler.disable" in kind:
        return Status.GRAPH_BREAK
    return Status.DYNAMO_UNSUPPORTED if error["type"].startswith("torch._dynamo.exc.") else Status.CRASHED


def break_id(message: str) -> str | None:
    """PyTorch's number for the kind of graph break, such as gb0007; older versions give none."""
    found = _BREAK_ID.search(message)
    return found[1] if found else None


def operation(message: str) -> str | None:
    """The operation that could not be traced, as `module.function`, `Class.method` or a function's name.

    Read from Dynamo's debug context, whose form differs by kind of graph break (torch 2.9 to 2.14).
    """
    if data := _DATA.search(message):
        return f"a branch on data: {data[1]}"[:OPERATION_LIMIT]
    found = _CONTEXT.search(message)
    if found is None or not found[1].strip():
        return "Tensor.data_ptr" if "Cannot access data pointer" in message else None
    context = found[1].strip()
    return named(context)[:OPERATION_LIMIT]


def named(context: str) -> str:
    """The operation that a debug context names; a name stays what it is."""
    if skipped := _SKIPPED.search(context):
        return ".".join(part for part in (skipped["module"], skipped["name"]) if part)
    if method := _CLASS_METHOD.search(context) or _OBJECT_METHOD.search(context):
        return f"{method['owner'].rpartition('.')[2]}.{method['name']}"
    if entered := _WITH.search(context):
        return f"{entered['owner']}.__enter__"
    if builtin := _BUILTIN.search(context):
        return builtin["name"]
    if called := _CALLED_OBJECT.search(context):
        return f"{called['owner']}.__call__"
    if call := _CLASS_CALL.search(context):
        return call["owner"]
    if function := _FUNCTION.search(context):
        return function["name"] or function["bare"]
    return _ADDRESS.sub("", context)


def explanation(message: str) -> str:
    """Dynamo's own words without the stack and the advice to report a bug."""
    return _EXPLANATION_END.split(message, maxsplit=1)[0].strip()


def lane(file: str) -> Lane:
    """Whose code a file is, by its path from the innermost folder of sys.path on."""
    top = file.partition("/")[0].removesuffix(".py")
    if top in ("flashinfer", "sglang", "torch"):
        return Lane(top)
    if file == CALLER or (top in _PROBES and "/" not in file):
        return Lane.MODEL
    return Lane.STDLIB if top in sys.stdlib_module_names else Lane.OTHER


def frames(stack: list[dict[str, Any]]) -> tuple[Frame, ...]:
    """The call chain, outermost first."""
    return tuple(
        Frame(
            lane=lane(at["file"]),
            module=at["file"].removesuffix(".py").removesuffix("/__init__").replace("/", "."),
            function=at["function"],
            file=at["file"],
            line=at["line"],
            code=at["code"].strip(),
        )
        for at in stack
    )


def blamed(chain: tuple[Frame, ...], entry: str) -> str:
    """The innermost function of the entry's own package, as `module:function`; the entry itself if none was entered."""
    frame = blamed_frame(chain, entry)
    if frame is not None:
        return f"{frame.module}:{frame.function}"
    module, _, function = entry.rpartition(".")
    return f"{module}:{function}"


def located(chain: tuple[Frame, ...], entry: str) -> str:
    """The blamed function with its line, `module:function:line`; the entry itself if none was entered."""
    frame = blamed_frame(chain, entry)
    return f"{frame.module}:{frame.function}:{frame.line}" if frame else entry


def blamed_frame(chain: tuple[Frame, ...], entry: str) -> Frame | None:
    """The innermost frame in the entry's own package; `entry` is a dotted path or `module:function`."""
    package = entry.partition(":")[0].partition(".")[0]
    inside = [frame for frame in chain if frame.module.partition(".")[0] == package]
    return inside[-1] if inside else None
