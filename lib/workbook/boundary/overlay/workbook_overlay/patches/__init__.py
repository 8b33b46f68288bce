"""The patch table: which patches a level applies, and how a patch is put in place at import.

A patch is a module here with `KNOWN` (hash of each target function's source -> the versions it was read in) and
`replace(module) -> {function name: new object}`. It is imported with its target, not before: it needs torch.
"""

import hashlib
import inspect
import sys
from importlib import import_module
from types import ModuleType

from workbook_overlay.hook import after_import

LEVELS: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("cuda_version",),
    2: ("cuda_version", "jit_loading"),
    3: ("compiler_disable",),
    4: ("custom_op",),
}

_QUANTIZER = ("flashinfer.fp4_quantization", "flashinfer.quantization.fp4_quantization")

#: The modules that a patch acts on; by FlashInfer version one of them exists.
TARGETS: dict[str, tuple[str, ...]] = {
    "cuda_version": ("flashinfer.jit.cpp_ext",),
    "jit_loading": _QUANTIZER,
    "compiler_disable": _QUANTIZER,
    "custom_op": _QUANTIZER,
}

#: What was applied in this process: "patch: module.function (source hash)".
APPLIED: list[str] = []


class PatchRefused(ImportError):
    """The installed code is not what the patch expects, so nothing was changed."""


def source_hash(function: object) -> str:
    """SHA-256 of a function's source, decorators included."""
    return hashlib.sha256(inspect.getsource(inspect.unwrap(function)).encode()).hexdigest()


def check(patch: ModuleType, module: ModuleType) -> dict[str, str]:
    """The source hash of each target function.

    Raises:
        PatchRefused: a function is missing or its source is not one that the patch was written for.
    """
    found = {}
    for name, known in patch.KNOWN.items():
        function = vars(module).get(name)
        if function is None:
            raise PatchRefused(
                f"patch {patch.NAME}: {module.__name__} has no function {name}; nothing was patched"
            )
        found[name] = source_hash(function)
        if found[name] not in known:
            raise PatchRefused(
                f"patch {patch.NAME}: {module.__name__}.{name} in {module.__file__} is not a version this patch knows "
                f"(source hash {found[name][:12]}); nothing was patched"
            )
    return found


def apply(patch: ModuleType, module: ModuleType) -> None:
    """Check every target, then rebind them all: all or nothing."""
    hashes = check(patch, module)
    for name, new in patch.replace(module).items():
        setattr(module, name, new)
        APPLIED.append(f"{patch.NAME}: {module.__name__}.{name} ({hashes[name][:12]})")


def target(name: str) -> ModuleType | None:
    """The installed module that a patch acts on, imported."""
    import_module("flashinfer")
    there = [sys.modules[one] for one in TARGETS[name] if one in sys.modules]
    return next((module for module in there if defines(load(name), module)), None)


def defines(patch: ModuleType, module: ModuleType) -> bool:
    """Whether a module defines the patch's target functions, rather than re-exporting another's."""
    found = (vars(module).get(name) for name in patch.KNOWN)
    return all(getattr(one, "__module__", module.__name__) == module.__name__ for one in found)


def apply_where_defined(patch: ModuleType, module: ModuleType) -> None:
    """Apply a patch unless the module only re-exports: its source is then another module's."""
    if defines(patch, module):
        apply(patch, module)


def load(name: str) -> ModuleType:
    """The patch module `name`."""
    return import_module(f"{__name__}.{name}")


def activate(level: int) -> None:
    """Have the patches of `level` applied as their target modules are imported."""
    for name in LEVELS[level]:
        for target in TARGETS[name]:
            after_import(target, lambda module, name=name: apply_where_defined(load(name), module))
