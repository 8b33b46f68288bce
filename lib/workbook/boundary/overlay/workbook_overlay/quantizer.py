"""FlashInfer's FP4 quantizer in a warm process, and the operators that a remedy may put around it."""

import functools
import inspect
import sys
from contextlib import contextmanager

from workbook_overlay import entries
from workbook_overlay.call import resolve, shapes

LOADER = "get_fp4_quantization_module"


class Quantizer:
    """The installed function after one eager call, and the operators that a remedy may lead to.

    Args:
        path: the installed function's dotted path, which the entry table has.
        inputs: its positional arguments; fake CUDA tensors, or plain CPU tensors.
        capability: the declared compute capability.
        note: recorded of the kernel's stand-in; empty where it is no part of a trace.
    """

    def __init__(self, path: str, inputs, capability: tuple[int, int], note: str = "") -> None:
        import torch

        from workbook_overlay.boundary import Boundary
        from workbook_overlay.kernels import stand_in
        from workbook_overlay.meta import to_meta
        from workbook_overlay.shadow import shadow

        self.function = function = resolve(path)
        self.inputs, self.fake = inputs, shadow(function)
        self.boundary = Boundary(function, entries.row(path))
        self.module = sys.modules[inspect.unwrap(function).__module__]
        self.loader = getattr(self.module, LOADER)
        self.library = torch.library.Library("workbook_remedy", "FRAGMENT")
        with stand_in(note=note) as self.kernels, self.any_device(capability):
            self.eager_shapes = shapes(function(*map(to_meta, inputs)))

    @contextmanager
    def any_device(self, capability: tuple[int, int]):
        """Within the block the compute capability is told of any device, as the installed function refuses to."""
        installed = self.module.get_compute_capability
        self.module.get_compute_capability = lambda device: capability
        try:
            yield
        finally:
            self.module.get_compute_capability = installed

    def set_kernels(self, kernel) -> None:
        """From now on every function of the loaded modules is `kernel`."""
        for module in self.kernels:
            vars(module).update(dict.fromkeys([one for one in vars(module) if one[0] != "_"], kernel))

    @contextmanager
    def quiet_kernels(self):
        """Within the block the kernels take fake tensors, and do nothing."""
        from workbook_overlay.kernels import do_nothing

        kept = [dict(vars(module)) for module in self.kernels]
        self.set_kernels(do_nothing)
        try:
            yield
        finally:
            for module, attributes in zip(self.kernels, kept, strict=True):
                vars(module).update(attributes)

    def fake_of_half(self, *args, **kwargs):
        """Wrong on purpose: the outputs have half the rows."""
        outputs = self.fake(*args, **kwargs)
        return tuple(one.new_empty((one.shape[0] // 2, *one.shape[1:])) for one in outputs)

    def decorated(self, name: str, fake):
        """An operator by `torch.library.custom_op`."""
        import torch

        made = torch.library.custom_op(f"workbook_remedy::{name}", mutates_args=())(self.function)
        made.register_fake(fake)
        return made

    def defined(self, name: str, fake):
        """An operator by `Library.define` and `impl`, as patch level 4 makes it, but on every device."""
        import torch

        boundary = self.boundary
        self.library.define(name + boundary.schema())
        self.library.impl(name, boundary.body(self.function), "CompositeExplicitAutograd")
        torch.library.register_fake(f"workbook_remedy::{name}", boundary.body(fake), lib=self.library)
        return boundary.through(getattr(torch.ops.workbook_remedy, name).default)

    @functools.cached_property
    def operator(self):
        """The operator of `defined`, made once."""
        return self.defined("fp4_quantize", self.fake)
