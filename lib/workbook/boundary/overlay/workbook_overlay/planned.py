"""Calls that are methods of a planned object: FlashInfer's attention wrappers, which plan before they run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbook_overlay.call import make_inputs, resolve
from workbook_overlay.shadow import ANSWERS

WORKSPACE_BYTES = 128 << 20  # what FlashInfer's documentation advises


def bound(row: dict, device: str = "cuda") -> Callable:
    """The row's method, of an object that has planned the row's example; the workspace is on `device`."""
    import torch

    path, _, method = row["path"].rpartition(".")
    planned = resolve(path)(torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device))
    planned.plan(*make_inputs(row["planned"], device))
    return getattr(planned, method)


def bound_without_gpu(row: dict, stand_ins: list[str]) -> Callable:
    """The same without a GPU: planned on CPU tensors, with kernels that are foreign functions and do nothing."""
    import tvm_ffi
    from torch.overrides import TorchFunctionMode

    from workbook_overlay.kernels import stand_in

    class Unpinned(TorchFunctionMode):
        """Pinned memory needs a driver."""

        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = {name: one for name, one in (kwargs or {}).items() if name != "pin_memory"}
            return function(*args, **kwargs)

    note = "stand-in for planning; its functions are real tvm_ffi.Function objects without a kernel"
    if (told := f"{row['path']}: planned on CPU tensors, kernel module: {note}") not in stand_ins:
        stand_ins.append(told)
    resolve(row["path"])  # imports FlashInfer, whose questions are to be answered
    with Unpinned(), questions_answered(), stand_in(tvm_ffi.convert(plan_nothing)):
        return bound(row, "cpu")


def plan_nothing(*_args: object) -> int:
    """A kernel function of a wrapper: as a plan its answer is a number that nobody reads."""
    return 0


@contextmanager
def questions_answered() -> Iterator[None]:
    """Within the block FlashInfer's questions about a device are answered as in a shadow, for any device."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "flashinfer"]
    saved = [
        (module, name, vars(module)[name]) for module in modules for name in ANSWERS if name in vars(module)
    ]
    for module, name, _ in saved:
        setattr(module, name, ANSWERS[name])
    try:
        yield
    finally:
        for module, name, original in saved:
            setattr(module, name, original)
