"""Let SGLang import without a GPU: a stand-in for sgl_kernel, and the two operators that torchvision lacks.

The CPU build of sgl_kernel is not on PyPI. SGLang only imports names from it; as it finds no AMX operators it
runs its own torch code. So a stand-in whose every function refuses to be called is enough; nothing is faked.
PyPI's torchvision for Linux is a CUDA build, whose extension does not load beside a CPU torch.
"""

import importlib.abc
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from workbook_overlay import hook

KERNELS = "sgl_kernel"
SUBMODULES = {"kvcacheio"}  # others are probed by SGLang, which takes ImportError for an answer
TORCHVISION_OPERATORS = ("nms", "qnms")
BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def activate() -> None:
    """Register the stand-ins. They give way to an installed sgl_kernel and to a torchvision that works."""
    if not any(isinstance(finder, _StandIn) for finder in sys.meta_path):
        sys.meta_path.append(_StandIn())  # last: an installed sgl_kernel is found before it
    hook.before_import("torchvision", complete_torchvision)


def complete_torchvision() -> None:
    """Define the operators that `import torchvision` asks for, where its own extension cannot."""
    spec = PathFinder.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
    for operator in TORCHVISION_OPERATORS:
        # defining one that the extension registered as well would abort the process
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", BOXES)


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes `sgl_kernel`, and the submodules that SGLang takes for granted."""

    def find_spec(self, name, path=None, target=None):
        if name == KERNELS:
            return ModuleSpec(name, self, origin="workbook stand-in", is_package=True)
        parent, _, child = name.rpartition(".")
        if parent == KERNELS and child in SUBMODULES and self._made(parent):
            return ModuleSpec(name, self, origin="workbook stand-in")
        return None

    def _made(self, name):
        spec = getattr(sys.modules.get(name), "__spec__", None)
        return spec is not None and spec.loader is self

    def exec_module(self, module):
        def missing(name):
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return _refusing(f"{module.__name__}.{name}")

        module.__getattr__ = missing


def _refusing(name):
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"{name} needs the CPU build of sgl_kernel; this is a stand-in")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse
