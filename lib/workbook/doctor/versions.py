"""What is installed, against the stack's lock."""

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbook.doctor.check import Asked, failed, not_applicable, ok, warning
from workbook.doctor.facts import NodeFacts
from workbook.paths import LOCKS
from workbook.types import DoctorCheck, Stack

FLASHINFER = "flashinfer-python"
KERNELS = ("sglang-kernel", "sgl-kernel")  # the second up to SGLang 0.5.9
SHOWN = 5


def read_lock(stack: Stack, python: str) -> dict[str, str]:
    """Package -> version of a stack, for this version of Python; where it has no lock, what its description names."""
    lock = LOCKS / f"{stack.name}.txt"
    lines = lock.read_text().splitlines() if lock.is_file() else []
    environment = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    pinned = {}
    for wanted in (Requirement(line) for line in lines if line and not line.startswith("#")):
        if wanted.marker is None or wanted.marker.evaluate(environment):
            pinned[str(canonicalize_name(wanted.name))] = str(wanted.specifier).removeprefix("==")
    return pinned | {"torch": stack.torch, FLASHINFER: stack.flashinfer, "sglang": stack.sglang}


def same(found: str, locked: str) -> bool:
    """Whether a version is the locked one; a build's own suffix (+cu130, +cpu) says nothing against it."""
    try:
        one, other = Version(found), Version(locked)
    except InvalidVersion:
        return found == locked
    return one == other if other.local else Version(one.public) == other


def torch(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    found, needed = facts.packages.get("torch"), asked.locked["torch"]
    if found is None:
        return failed("torch", "not installed", needed, asked.install)
    return _compared("torch", found, needed, asked)


def flashinfer(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    needed = asked.locked[FLASHINFER]
    in_environment = facts.packages.get(FLASHINFER)
    if in_environment and "sglang" in facts.packages and not facts.gpus:
        return failed(
            FLASHINFER,
            f"{in_environment}, in the same environment as SGLang",
            f"{needed} in a folder of its own: without a GPU the server does not start beside it",
            f"Uninstall flashinfer-python there. {asked.how_to_get}",
        )
    found = in_environment or facts.flashinfer_folder
    if found is None:
        return failed(
            FLASHINFER,
            "not installed, and no folder of its own",
            needed,
            asked.how_to_get,
        )
    where = "" if in_environment else ", in a folder of its own"
    return _compared(FLASHINFER, found, needed, asked, where)


def sglang(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    found, needed = facts.packages.get("sglang"), asked.locked["sglang"]
    if found is None:
        said = "not installed: no server can be started" + ("" if asked.profile else "; traces work")
        return (failed if asked.profile else warning)("sglang", said, needed, asked.install)
    return _compared("sglang", found, needed, asked)


def kernels(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = next((kernel for kernel in KERNELS if kernel in asked.locked), None)
    if name is None:
        return not_applicable(
            KERNELS[0], "not in this lock: the CPU server computes with SGLang's own torch code"
        )
    found, needed = facts.packages.get(name), asked.locked[name]
    if found is None:
        return (failed if asked.needs_gpu else warning)(name, "not installed", needed, asked.install)
    return _compared(name, found, needed, asked)


def others(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "other packages"
    locked = {
        package: version
        for package, version in asked.locked.items()
        if package not in ("torch", FLASHINFER, "sglang", *KERNELS)
    }
    there = {package: facts.packages[package] for package in locked if package in facts.packages}
    differing = [
        f"{package} {version} (locked: {locked[package]})"
        for package, version in sorted(there.items())
        if not same(version, locked[package])
    ]
    said = (
        f"{len(there) - len(differing)} of {len(locked)} as locked, {len(locked) - len(there)} not installed"
    )
    if not differing:
        return ok(name, said, f"locks/{asked.stack.name}.txt")
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return warning(
        name,
        f"{said}; {', '.join(differing[:SHOWN])}{more}",
        f"locks/{asked.stack.name}.txt",
        asked.install,
    )


def _compared(name: str, found: str, needed: str, asked: Asked, where: str = "") -> DoctorCheck:
    if same(found, needed):
        return ok(name, found + where, needed)
    return warning(name, found + where, f"{needed}, by the lock of stack {asked.stack.name}", asked.install)


CHECKS = (torch, flashinfer, sglang, kernels, others)
