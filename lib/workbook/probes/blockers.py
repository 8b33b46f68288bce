"""All that stops a trace, in order: trace, make what failed constant or opaque, trace again; print a JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python -P blockers.py '{"entry": "flashinfer.fp4_quantize", ...}'

How a function is passed is found from what it did in one eager call, not from a list. That call makes the process warm,
as a server is when it compiles. Where no kernel can be built, FlashInfer's build and load steps are stood in for.
"""

import functools
import inspect
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from workbook_overlay.answer import answer, spec
from workbook_overlay.call import make_inputs, resolve, shapes, versions

MOST = 60
KERNEL_NOTE = "stand-in, nothing was built; its functions are real tvm_ffi.Function objects without a kernel"


@contextmanager
def without_building(stand_ins):
    """Within the block FlashInfer's loader runs its own code, but ninja is not started and nothing is loaded.

    What the call asks of a fake CUDA tensor goes by way of meta tensors.
    """
    import types

    import flashinfer.jit.core as core
    import flashinfer.jit.cpp_ext as cpp_ext
    import tvm_ffi
    from workbook_overlay.kernels import StandInModule, do_nothing
    from workbook_overlay.meta import through_meta

    def run(command, *args, **kwargs):
        if command and str(command[0]).endswith("ninja"):
            return subprocess.CompletedProcess(command, 0, stdout="", stderr="")
        return subprocess.run(command, *args, **kwargs)

    def load_module(path, *args, **kwargs):
        note = f"kernel module {str(path).rpartition('/')[2]}: {KERNEL_NOTE}"
        if note not in stand_ins:
            stand_ins.append(note)
        return StandInModule(tvm_ffi.convert(do_nothing))

    subprocess = cpp_ext.subprocess
    cpp_ext.subprocess = types.SimpleNamespace(**{**vars(subprocess), "run": run})
    core.tvm_ffi = types.SimpleNamespace(**{**vars(tvm_ffi), "load_module": load_module})
    try:
        with through_meta():
            yield
    finally:
        cpp_ext.subprocess, core.tvm_ffi = subprocess, tvm_ffi


def load_call(asked: dict, stand_ins: list):
    """The function to trace, its inputs, and contexts for them: a row of the table, or the user's own with a file."""
    from contextlib import nullcontext

    if asked.get("inputs_file"):
        import importlib
        import runpy

        sys.path.insert(0, str(Path(asked["inputs_file"]).parent))
        module, _, name = asked["entry"].partition(":")
        function = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        if not hasattr(inspect.unwrap(function), "__code__"):
            raise TypeError(f"it is no Python function but a {type(function).__name__}")
        file = Path(asked["inputs_file"]).name
        give = runpy.run_path(asked["inputs_file"]).get("inputs")
        if not callable(give):
            raise TypeError(f"{file} defines no function inputs()")
        inputs = give()
        if not isinstance(inputs, tuple | list):  # a tensor would be taken apart
            raise TypeError(
                f"inputs() in {file} has to give a tuple of arguments, not a {type(inputs).__name__}"
            )
        return function, tuple(inputs), nullcontext(), nullcontext(), False
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay import entries
    from workbook_overlay.planned import bound_without_gpu

    row = entries.row(asked["entry"])
    mode = FakeTensorMode()
    function = bound_without_gpu(row, stand_ins) if "planned" in row else resolve(row["path"])
    if kwargs := row.get("kwargs"):
        function = functools.partial(function, **kwargs)
    with mode:
        inputs = tuple(make_inputs(row["args"]))
    return function, inputs, mode, without_building(stand_ins), True


def attempt(function, inputs):
    """One trace under fullgraph; the exception that stopped it, and the seconds it took."""
    import torch

    torch._dynamo.reset()

    def forward(*args):
        return function(*args)

    started = time.perf_counter()
    try:
        torch.compile(forward, fullgraph=True, backend="eager")(*inputs)
    except Exception as error:
        return error, time.perf_counter() - started
    return None, time.perf_counter() - started


def blockers(asked: dict) -> dict:
    from workbook_overlay import kernels
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.explain import explain
    from workbook_overlay.passing import watch

    declared = None
    if not asked.get("inputs_file"):
        declared = declare_gpu(asked["arch"])
        import flashinfer  # noqa: F401  # where it is missing, that is not the call's failure
    layers = []
    try:
        function, inputs, mode, eager, has_kernels = load_call(asked, kernels.STAND_INS)
        with mode, eager, watch() as seen:
            function(*inputs)
    except (Exception, SystemExit) as error:
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    from workbook_overlay.search import Search

    search = Search(function, asked["entry"].partition(":")[0].partition(".")[0], seen, has_kernels)
    with mode:
        way = "start"
        while way is not None and len(layers) < MOST:
            error, seconds = attempt(function, inputs)
            if error is None:
                layers.append(
                    {"error": None, "seconds": seconds, "passed": "end", "how": "the trace reaches its end"}
                )
                break
            way, how = search.next(error)
            layers.append(
                {"error": explain(error), "seconds": seconds, "passed": way or "not passed", "how": how}
            )
            print(f"{len(layers)}: {way or 'not passed'}: {how}", file=sys.stderr, flush=True)
    search.passed.restore()
    return {
        "layers": layers,
        "declared": declared,
        "input_shapes": shapes(inputs),
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


if __name__ == "__main__":
    sys.exit(answer(lambda: blockers(spec())))
