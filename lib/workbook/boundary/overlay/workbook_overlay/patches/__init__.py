"""The patch table: which patches a level applies, to which functions, and how one is put in place at import.

A patch is a module here with `NAME` and `replace(module, originals) -> {name: new object}`; it is imported with its
target, not before, since it needs torch. `known.json` has the SHA-256 of each function's source -> the FlashInfer
versions, or "SGLang" and those, in which it was read; any other source is refused.
"""

import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from workbook_overlay import entries, unimported
from workbook_overlay.hook import after_import
from workbook_overlay.shadow import ORIGINAL

LEVELS: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("cuda_version",),
    2: ("cuda_version", "jit_loading"),
    3: ("compiler_disable",),
    4: ("custom_op",),
    5: ("custom_op", "nsa_indexer"),
}

_QUANTIZER = ("flashinfer.fp4_quantization", "flashinfer.quantization.fp4_quantization")

#: For each patch the modules that it acts on, and the functions there. Which exist goes by FlashInfer's version.
TARGETS: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda_version": {"flashinfer.jit.cpp_ext": ("get_cuda_path", "get_cuda_version")},
    "jit_loading": dict.fromkeys(_QUANTIZER, ("get_fp4_quantization_module",)),
    "compiler_disable": dict.fromkeys(_QUANTIZER, ("fp4_quantize",)),
    "custom_op": entries.functions_by_module(),
    "nsa_indexer": {
        "sglang.srt.layers.attention.nsa.nsa_indexer": ("Indexer.forward_cuda",),
        "sglang.srt.layers.radix_attention": ("RadixAttention.forward",),
    },
}

#: What was applied in this process: "patch: module.function (source hash)".
APPLIED: list[str] = []


class PatchRefused(ImportError):
    """The installed code is not what the patch expects, so nothing was changed."""


def source_hash(function: object) -> str:
    """SHA-256 of a function's source, decorators included."""
    return text_hash(inspect.getsource(inspect.unwrap(function)))


def text_hash(source: str) -> str:
    """SHA-256 of a source."""
    return hashlib.sha256(source.encode()).hexdigest()


@functools.cache
def known_sources() -> dict[str, dict[str, str]]:
    """For each function that a patch acts on: the hash of its source -> the FlashInfer versions that have it."""
    return json.loads((Path(__file__).parents[1] / "known.json").read_text())


def lookup(module: ModuleType, name: str) -> Callable | None:
    """A module's function, or a method as `Class.method`; None if it is not there."""
    owner, _, attribute = name.rpartition(".")
    return vars(vars(module).get(owner, object) if owner else module).get(attribute)


def originals(name: str, module: ModuleType) -> dict[str, Callable]:
    """The patch's functions that a module defines; none where it only re-exports another's.

    Raises:
        PatchRefused: the module lacks one of them.
    """
    names = TARGETS[name][module.__name__]
    found = {one: there for one in names if (there := lookup(module, one)) is not None}
    own = {one: each for one, each in found.items() if each.__module__ == module.__name__}
    missing = [one for one in names if one not in found]
    if missing and (own or not found):
        raise PatchRefused(
            f"patch {load(name).NAME}: {module.__name__} has no function {missing[0]}; nothing was patched"
        )
    return own


def check(name: str, module: ModuleType) -> dict[str, str]:
    """The source hash of each function that the patch acts on in a module.

    Raises:
        PatchRefused: one is missing, or its source is not one that the patch was written for.
    """
    hashes = {one: source_hash(function) for one, function in originals(name, module).items()}
    for one, found in hashes.items():
        check_known(name, f"{module.__name__}.{one}", one, found, module.__file__)
    return hashes


def check_known(name: str, target: str, function: str, sha: str, file: object) -> None:
    """Nothing, if the patch was written for a function with this source hash.

    Raises:
        PatchRefused: it was not.
    """
    if sha not in known_sources().get(function, {}):
        raise PatchRefused(
            f"patch {load(name).NAME}: {target} in {file} is not a version this patch knows "
            f"(source hash {sha[:12]}); nothing was patched"
        )


def apply(name: str, module: ModuleType) -> None:
    """Check every target in a module, then rebind them all: all or nothing."""
    hashes = check(name, module)
    patch = load(name)
    originals_there = originals(name, module)
    for one, new in patch.replace(module, originals_there).items():
        setattr(new, ORIGINAL, originals_there[one])
        owner, _, attribute = one.rpartition(".")
        setattr(getattr(module, owner) if owner else module, attribute, new)
        APPLIED.append(f"{patch.NAME}: {module.__name__}.{one} ({hashes[one][:12]})")


def targets(name: str) -> list[ModuleType]:
    """The installed modules that define what a patch acts on, imported.

    Raises:
        PatchRefused: a module lacks a function, or none of them is installed.
    """
    import_module("flashinfer")
    there = [sys.modules[one] for one in TARGETS[name] if one in sys.modules]
    if found := [module for module in there if originals(name, module)]:
        return found
    raise PatchRefused(f"patch {load(name).NAME}: no such module is installed; nothing was patched")


def read_targets(name: str) -> list[tuple[str, str, str]]:
    """(module, function, source) of each function that a patch of SGLang acts on; nothing is imported.

    Raises:
        PatchRefused: SGLang is not installed, or has no such function.
    """
    found = []
    for module, functions in TARGETS[name].items():
        file = unimported.file_of(module)
        for function in functions:
            source = unimported.source_of(file, function) if file else None
            if source is None:
                told = no_sglang() or f"SGLang {version('sglang')} has no {module}.{function}"
                raise PatchRefused(f"patch {load(name).NAME}: {told}; nothing was patched")
            found.append((module, function, source))
    return found


def no_sglang() -> str:
    """That SGLang is not there, in words; nothing where it is."""
    return "" if unimported.file_of("sglang.__init__") else "SGLang is not installed here"


def of_sglang(name: str) -> bool:
    """Whether a patch acts on SGLang."""
    return all(module.startswith("sglang.") for module in TARGETS[name])


def load(name: str) -> ModuleType:
    """The patch module `name`."""
    return import_module(f"{__name__}.{name}")


def activate(level: int) -> None:
    """Have the patches of `level` applied as their target modules are imported."""
    for name in LEVELS[level]:
        for target in TARGETS[name]:
            after_import(target, lambda module, name=name: apply(name, module))
