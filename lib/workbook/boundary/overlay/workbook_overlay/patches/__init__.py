"""The patch table: which patches a level applies, and how a patch is put in place at import.

A patch is a module here with `TARGETS` (module names, by FlashInfer version one of them exists), `KNOWN` (hash of each
target function's source -> the versions it was read in) and `replace(module) -> {function name: new object}`.
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


def target(patch: ModuleType) -> ModuleType | None:
    """The installed module that defines the patch's target functions, imported; not one that re-exports them."""
    import_module("flashinfer")
    for name in patch.TARGETS:
        module = sys.modules.get(name)
        if module and all(getattr(vars(module).get(one), "__module__", None) == name for one in patch.KNOWN):
            return module
    return None


def load(name: str) -> ModuleType:
    """The patch module `name`."""
    return import_module(f"{__name__}.{name}")


def activate(level: int) -> None:
    """Have the patches of `level` applied as their target modules are imported."""
    for name in LEVELS[level]:
        patch = load(name)
        for target in patch.TARGETS:
            after_import(target, lambda module, patch=patch: apply(patch, module))
