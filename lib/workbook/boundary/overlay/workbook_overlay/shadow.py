"""FlashInfer's own Python, run for its shapes: a copy of a function that reaches no kernel and asks no GPU.

The copy is made of the installed code: every FlashInfer function that it calls is copied too, over globals in which
kernel modules and questions to the GPU are answered here. Nothing that other code sees is changed, so a fake can run
while another thread serves.
"""

import contextlib
import copy
import functools
import re
import types
from collections.abc import Callable, Mapping

#: Where a patched function keeps what it replaced.
ORIGINAL = "__workbook_original__"
_MAKES_A_KERNEL_SPEC = re.compile(r"gen_\w*")


class Nothing:
    """Any attribute, call or item of it is itself: a kernel module without kernels."""

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> "Nothing":
        return self

    __getitem__ = __call__


class Kernels(Nothing):
    """A kernel module whose functions do nothing but refuse what the compiled ones refuse."""

    def __init__(self, refusals: Mapping[str, Callable[..., None]]) -> None:
        self.__dict__.update(refusals)

    def build_and_load(self, *_args: object, **_kwargs: object) -> "Kernels":
        return self


class Untuned(Nothing):
    """FlashInfer's autotuner, which hashes and keeps shapes: here any kernel will do, and sizes may be symbolic."""

    def choose_one(self, *_args: object, **_kwargs: object) -> tuple[Nothing, int]:
        return Nothing(), -1  # the runner, which only launches its kernel, and its fallback tactic


def capability(_device: object = None) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability()


def workspace(_name: str, num_bytes: int, *_args: object, **_kwargs: object):
    """A scratch buffer of this call's own; FlashInfer's are kept by device, and must stay real."""
    import torch

    return torch.empty(num_bytes, dtype=torch.uint8, device="meta")


#: What FlashInfer asks of the GPU on the way to a kernel, by the name of the function that asks.
ANSWERS: dict[str, Callable] = {
    "get_compute_capability": capability,
    "device_support_pdl": lambda _device: False,
    "get_device_sm_count": lambda _device: 1,  # sizes a workspace, no output
    "_get_cache_buf": workspace,
    "_get_stream_cache_buf": workspace,
    "get_seed_and_offset": lambda *_args, **_kwargs: (0, 0),  # no random number is drawn for a shape
}


class NoGpu:
    """torch.cuda where no tensor is on a GPU: the device is 0, nothing is being captured, no stream is switched to."""

    def __init__(self, cuda: types.ModuleType) -> None:
        self._cuda = cuda
        self.device = self.stream = lambda _which: contextlib.nullcontext()
        self.current_device = lambda: 0
        self.is_current_stream_capturing = lambda: False
        self.current_stream = lambda _device=None: Nothing()

    def __getattr__(self, name: str) -> object:
        return getattr(self._cuda, name)


class TorchWithoutGpu:
    """torch, with `NoGpu` for torch.cuda."""

    def __init__(self, torch: types.ModuleType) -> None:
        self._torch = torch
        self.cuda = NoGpu(torch.cuda)

    def __getattr__(self, name: str) -> object:
        return getattr(self._torch, name)


class Shadow:
    """The copies of one function and of all that it calls."""

    def __init__(
        self,
        package: str,
        refusals: Mapping[str, Callable[..., None]],
        on_spec: Callable[[str], None] | None,
    ) -> None:
        self._package = package
        self._on_spec = on_spec
        self._kernels = Kernels(refusals)
        self._functions: dict[int, object] = {}
        self._globals: dict[int, dict] = {}

    def of(self, value: object) -> object:
        """The copy of a function of the package; anything else as it is. A patched function is its original."""
        value = getattr(value, ORIGINAL, value)
        if id(value) in self._functions:
            return self._functions[id(value)]
        if isinstance(value, functools._lru_cache_wrapper):
            inner = self.of(value.__wrapped__)
            return inner if inner in ANSWERS.values() else functools.cache(inner)
        if isinstance(value, types.ModuleType) and value.__name__ == "torch":
            return TorchWithoutGpu(value)
        if isinstance(value, type) and value.__name__ == "AutoTuner":
            return Untuned()
        if not isinstance(value, types.FunctionType) or value.__module__.partition(".")[0] != self._package:
            return value
        if value.__name__ in ANSWERS:
            return ANSWERS[value.__name__]
        if _MAKES_A_KERNEL_SPEC.fullmatch(value.__name__):
            return self._kernels_of(value)
        return self._copy(value)

    def _kernels_of(self, makes_spec: Callable) -> Callable:
        def kernels(*args, **kwargs):
            if self._on_spec is not None:
                self._on_spec(makes_spec(*args, **kwargs).name)
            return self._kernels

        return kernels

    def _copy(self, function: types.FunctionType) -> types.FunctionType:
        names = self._globals.setdefault(id(function.__globals__), dict(function.__globals__))
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        copied = types.FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells or None
        )
        copied.__kwdefaults__ = function.__kwdefaults__
        copied.__dict__.update(function.__dict__)
        self._functions[id(function)] = copied  # before what it calls: functions call each other
        for ours, theirs in zip(cells, function.__closure__ or (), strict=True):
            ours.cell_contents = self.of(theirs.cell_contents)
        for name in names_used(function.__code__):
            if name in function.__globals__:
                names[name] = self.of(function.__globals__[name])
        return copied


def names_used(code: types.CodeType) -> set[str]:
    """The names that code, and the code within it, may look up in its globals."""
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*map(names_used, inner))


def shadow(
    function: Callable,
    refusals: Mapping[str, Callable[..., None]] | None = None,
    on_spec: Callable[[str], None] | None = None,
) -> Callable:
    """A copy of `function` for tensors of any device: the same checks and allocations, on meta tensors, no kernel.

    Args:
        refusals: by the name of a compiled function, what is called in its place, to refuse what it refuses.
        on_spec: if given, kernel specifications are made by FlashInfer's own code, as in an eager call, and this is
            called with the name of each; nothing is built either way.

    Returns:
        A function whose outputs are empty tensors of the right shapes, strides and dtypes on the input's device.
    """
    body = Shadow(function.__module__.partition(".")[0], refusals or {}, on_spec).of(function)

    def run(*args, **kwargs):
        import torch

        from workbook_overlay.meta import like, stay_on_meta, to_meta

        tensors = [one for one in [*args, *kwargs.values()] if isinstance(one, torch.Tensor)]
        args = [stand_in_object(one) if hasattr(one, "_cached_module") else to_meta(one) for one in args]
        kwargs = {
            name: stand_in_object(one) if name == "self" else to_meta(one) for name, one in kwargs.items()
        }
        with stay_on_meta():
            outputs = body(*args, **kwargs)
        return like(outputs, tensors[0].device)

    return run


def stand_in_object(planned: object) -> object:
    """A copy of a planned object, such as an attention wrapper, whose tensors are meta and whose kernels do nothing."""
    import torch

    from workbook_overlay.meta import to_meta

    plain = (type(None), bool, int, float, str, list, tuple, dict, torch.dtype, torch.device)
    copied = copy.copy(planned)
    for name, value in vars(planned).items():
        if isinstance(value, torch.Tensor):
            setattr(copied, name, to_meta(value))
        elif not isinstance(value, plain):
            setattr(copied, name, Nothing())
    return copied
