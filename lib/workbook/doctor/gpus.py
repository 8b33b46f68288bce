"""GPUs, their driver, and what holds their memory."""

from collections import Counter

from packaging.version import Version

from workbook.doctor.check import Asked, failed, not_applicable, ok, warning
from workbook.doctor.facts import GpuFacts, Holder, NodeFacts
from workbook.types import DoctorCheck

# Oldest driver branch that runs a CUDA of this major version: NVIDIA, "CUDA Compatibility", table of driver versions.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
# FlashInfer refuses to work below (0.6.3, jit/core.py, check_cuda_arch).
OLDEST_GPU = (7, 5)
# FlashInfer's FP4 quantizer builds below and writes nothing: seen on an H200 with 0.6.11.post1 (data/recorded).
FP4_GPU = (10, 0)
# A driver keeps some memory for itself (0.6 GiB of an idle H200, measured); more than this is someone's.
IDLE_GIB = 1.5
NO_GPU = "no GPU here"


def present(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "GPUs", "the GPUs that the node's description names" if asked.node.gpus else ""
    if facts.gpus:
        return _visible(name, facts, asked, needed)
    if facts.gpus_on_bus:
        said = f"{facts.gpus_on_bus} NVIDIA on the bus, no answer from the driver: {facts.gpu_error}"
        remedy = (
            "Run nvidia-smi there. In a container, start it with --gpus all; on the machine itself, install the "
            "driver, or restart after an update of it."
        )
        return (failed if asked.needs_gpu else warning)(name, said, "a driver that answers", remedy)
    return not_applicable(name, "none: traces, patches and the CPU server work; nothing can be captured")


def _visible(name: str, facts: NodeFacts, asked: Asked, needed: str) -> DoctorCheck:
    there = {gpu.index for gpu in facts.gpus}
    if unknown := sorted(set(asked.node.gpus or ()) - there):
        return failed(
            name,
            f"{len(there)}, with indices {', '.join(map(str, sorted(there)))}",
            f"GPU {', '.join(map(str, unknown))}, which the node's description names",
            f"Mend gpus: in {asked.description}.",
        )
    if not facts.visible:
        return failed(
            name,
            f"{len(there)}, all of them hidden by CUDA_VISIBLE_DEVICES",
            "at least one that a program sees",
            f"Unset CUDA_VISIBLE_DEVICES there, or name indices at gpus: in {asked.description}.",
        )
    kinds = Counter(f"{gpu.name} ({gpu.memory_gib:.1f} GiB)" for gpu in facts.visible)
    hidden = len(facts.gpus) - len(facts.visible)
    found = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    return ok(name, found + (f"; {hidden} more not used" if hidden else ""), needed)


def architecture(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "GPU architecture"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    found = sorted({gpu.compute_capability for gpu in facts.visible})
    said = ", ".join(map(dotted, found))
    if found[0] < OLDEST_GPU:
        return failed(
            name,
            said,
            f"compute capability {dotted(OLDEST_GPU)} or higher, for FlashInfer",
            f"Leave that GPU out: gpus: in {asked.description}.",
        )
    if len(found) > 1:
        return warning(
            name,
            said,
            "one architecture",
            f"Name GPUs of one kind at gpus: in {asked.description}: ranks wait for the slowest.",
        )
    fp4 = asked.profile is None or "fp4" in (asked.profile.quantization or "")
    if fp4 and found[0] < FP4_GPU:
        return warning(
            name,
            said,
            f"{dotted(FP4_GPU)} or higher, for FlashInfer's FP4 kernels",
            "Measure anything but FP4 here: below that its quantizer builds, runs and writes nothing, with no error.",
        )
    return ok(name, said, f"{dotted(OLDEST_GPU)} or higher")


def driver(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "driver"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    runs = facts.driver_cuda
    said = f"{facts.driver}, for CUDA {runs or 'of unknown version'}"
    if facts.torch_cuda is None:
        if "torch" not in facts.packages:
            return ok(name, said)  # the check of torch says what is wrong
        return (failed if asked.needs_gpu else warning)(
            name,
            f"{said}; torch {facts.packages['torch']} is a CPU build",
            "a torch that was built for CUDA",
            "Name a stack whose torch has CUDA (--stack; workbook stack list shows them), with its Python at python: "
            f"in {asked.description}.",
        )
    needed = f"CUDA {facts.torch_cuda}, which torch was built for"
    if runs is None or runs >= facts.torch_cuda:
        return ok(name, said, needed)
    if runs.major < facts.torch_cuda.major:
        return failed(
            name, said, needed, f"{newer_driver(facts.torch_cuda)}, or take a stack with an older CUDA."
        )
    return warning(
        name,
        said,
        needed,
        "It runs by minor version compatibility; where a kernel fails with `unsupported toolchain`, install a driver "
        f"for CUDA {facts.torch_cuda}.",
    )


def newer_driver(cuda: Version) -> str:
    """What makes this CUDA run, without the full stop."""
    oldest = OLDEST_DRIVER.get(cuda.major)
    return (
        f"Install a driver of branch {oldest} or later"
        if oldest
        else f"Install a driver for CUDA {cuda.major}"
    )


def memory(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "GPU memory", "all of it free: what another process takes or computes changes the figures"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    busy = [gpu for gpu in facts.visible if gpu.holders or gpu.memory_gib - gpu.free_gib > IDLE_GIB]
    if busy:
        return warning(
            name,
            "; ".join(map(_held, busy)),
            needed,
            "Wait for them, ask their owners, or name other GPUs at gpus: in "
            f"{asked.description}. The workbook ends no process that it did not start.",
        )
    least = min(gpu.free_gib for gpu in facts.visible)
    return ok(name, f"{least:.1f} GiB free{' on each' if len(facts.visible) > 1 else ''}", needed)


def _held(gpu: GpuFacts) -> str:
    holders = ", ".join(map(_named, gpu.holders)) or "a process that is not visible from here"
    return f"GPU {gpu.index}: {gpu.free_gib:.1f} of {gpu.memory_gib:.1f} GiB free, held by {holders}"


def _named(one: Holder) -> str:
    size = None if one.memory_gib is None else f"{one.memory_gib:.1f} GiB"
    details = ", ".join(part for part in (one.name, one.user, size) if part)
    return f"pid {one.pid} ({details})" if details else f"pid {one.pid}"


def peers(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "peer access"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    if asked.profile is not None and asked.profile.tp == 1:
        return not_applicable(name, f"profile {asked.profile.name} has tp 1")
    seen = {gpu.index for gpu in facts.visible}
    pairs = [pair for pair in facts.peers if seen.issuperset(pair.gpus)]
    if len(seen) == 1:
        return not_applicable(name, "one GPU")
    if not pairs or any(pair.read is None for pair in pairs):
        return not_applicable(name, "not told here; nvidia-smi topo -p2p r shows it")
    if apart := [pair.gpus for pair in pairs if not pair.read]:
        shown = ", ".join(f"{one}-{other}" for one, other in apart[:4])
        return warning(
            name,
            f"{len(apart)} of {len(pairs)} pairs do not read each other's memory: {shown}",
            "all pairs, for an all-reduce without a detour through the host",
            "Look at nvidia-smi topo -p2p r; in a virtual machine, or with PCIe ACS or the IOMMU on, whoever runs "
            "the host can permit it. Without it a tp run works, and is slower.",
        )
    links = sum(bool(pair.nvlink) for pair in pairs)
    by = "NVLink" if links == len(pairs) else "PCIe" if not links else f"NVLink ({links}) and PCIe"
    return ok(name, f"{len(pairs)} of {len(pairs)} pairs, by {by}", "all pairs")


def dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


CHECKS = (present, architecture, driver, memory, peers)
