"""What compiles kernels at run time: nvcc against the GPUs and the driver, the host's compiler, ninja, the linker.

Sources: FlashInfer 0.6.3 and its repository in August 2026, aot.py (`detect_sm_capabilities`: which CUDA has which
target) and jit/cpp_ext.py (where nvcc, ninja and the compiler are looked for, and what is linked); NVIDIA's CUDA
features archive (12.9 brought the family-specific targets, sm_103 and sm_121); SGLang 0.5.23,
kernels/jit/utils/arch.py (sm_120f wants 12.9).
"""

from packaging.version import Version

from workbook.doctor.check import Asked, failed, not_applicable, ok, warning
from workbook.doctor.facts import NodeFacts
from workbook.doctor.gpus import NO_GPU, dotted, newer_driver
from workbook.types import DoctorCheck

# From this compute capability on, the oldest nvcc that has its target; 11.8 has all those before Hopper (PTX ISA 7.8).
OLDEST_NVCC = (
    ((7, 5), Version("11.8")),
    ((9, 0), Version("12.3")),
    ((10, 0), Version("12.8")),
    ((10, 3), Version("12.9")),
    ((11, 0), Version("13.0")),
    ((12, 0), Version("12.8")),
    ((12, 1), Version("12.9")),
)
# With an older nvcc FlashInfer and SGLang leave out or replace their family-specific kernels (sm_100f, sm_120f).
FAMILY_NVCC = Version("12.9")
FAMILIES = ((10, 0), (12, 0))
# From this version on FlashInfer refuses every 12.x GPU with an older nvcc: compilation_context.py, since 0.6.7.
FLASHINFER_SM12 = Version("0.6.7")
# FlashInfer 0.6.11.post1's activation.cuh was seen not to build with g++ 12.2, and to build with 13.3.
SEEN_TO_BUILD = 13


def oldest_nvcc(capability: tuple[int, int], flashinfer: Version | None) -> Version:
    """The oldest nvcc that compiles for this GPU, for this FlashInfer."""
    if capability[0] == 12 and flashinfer is not None and flashinfer >= FLASHINFER_SM12:
        return FAMILY_NVCC
    return max((row for row in OLDEST_NVCC if row[0] <= capability), default=OLDEST_NVCC[0])[1]


def nvcc(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "CUDA toolkit"
    if not facts.visible:
        return not_applicable(name, f"{NO_GPU}: traces declare a CUDA version")
    version = facts.flashinfer
    targets = {gpu.compute_capability for gpu in facts.visible}
    oldest = max(oldest_nvcc(target, version) for target in targets)
    of = f" with FlashInfer {version}" if version else ""
    needed = f"nvcc {oldest} or later, for compute capability {', '.join(map(dotted, sorted(targets)))}{of}"
    wished = max(oldest, FAMILY_NVCC) if targets.intersection(FAMILIES) else oldest
    setting = f"set CUDA_HOME to it {asked.env_hint}"
    if facts.nvcc.version is None:
        return failed(
            name,
            f"no nvcc at {facts.nvcc.path} (by {facts.nvcc_named_by}): {facts.nvcc.error}",
            needed,
            f"Install CUDA toolkit {wished} or later there, and {setting}.",
        )
    found = facts.nvcc.version
    said = f"nvcc {found} at {facts.nvcc.path} (by {facts.nvcc_named_by})"
    if found < oldest:
        return failed(
            name, said, needed, f"Install CUDA toolkit {wished} or later beside the old one, and {setting}."
        )
    if facts.driver_cuda is not None and found.major > facts.driver_cuda.major:
        return failed(
            name,
            said,
            f"no newer than the driver's CUDA {facts.driver_cuda}",
            f"{newer_driver(found)}, or a toolkit of CUDA {facts.driver_cuda.major}, and {setting}.",
        )
    if found < wished:
        return warning(
            name,
            said,
            f"{needed}; {wished} for the family-specific kernels",
            f"Install CUDA toolkit {wished} or later and {setting}, or note that those kernels are left out.",
        )
    if facts.torch_cuda is not None and found.major != facts.torch_cuda.major:
        return warning(
            name,
            said,
            f"CUDA {facts.torch_cuda.major}, which torch was built for",
            f"Install a toolkit of CUDA {facts.torch_cuda.major} and {setting}: else kernels that are compiled here "
            "load another CUDA run-time library than torch's.",
        )
    return ok(name, said, needed)


def compiler(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name = "C++ compiler"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    found, newest = facts.cxx.version, facts.newest_gcc
    if found is None:
        return failed(
            name,
            f"{facts.cxx.path}: {facts.cxx.error}",
            "a C++ compiler, named by CXX or c++ on PATH",
            f"Install g++ {newest or SEEN_TO_BUILD} there, or set CC and CXX {asked.env_hint}.",
        )
    said = f"{facts.cxx.path} {found}"
    if newest is not None and found.major > newest:
        return failed(
            name,
            said,
            f"g++ {newest} or older, by what this nvcc's headers take",
            f"Install g++-{newest} there, and set CC: gcc-{newest} and CXX: g++-{newest} {asked.env_hint}.",
        )
    if found.major < SEEN_TO_BUILD:
        return warning(
            name,
            said,
            f"g++ {SEEN_TO_BUILD} or later",
            f"Where a kernel does not build, install g++-{SEEN_TO_BUILD} there, and set CC: gcc-{SEEN_TO_BUILD} and "
            f"CXX: g++-{SEEN_TO_BUILD} {asked.env_hint}: FlashInfer's activation.cuh was seen to fail with g++ 12.2.",
        )
    return ok(name, said, f"{SEEN_TO_BUILD} {f'to {newest}' if newest else 'or later'}")


def ninja(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "ninja", "ninja on PATH, for FlashInfer's run-time compilation"
    if not facts.visible:
        return not_applicable(name, NO_GPU)
    if facts.ninja.version is not None:
        return ok(name, f"{facts.ninja.path} {facts.ninja.version}", needed)
    path = f"put the folder bin of that environment first on PATH {asked.env_hint}"
    if "ninja" in facts.packages:
        said = f"the package {facts.packages['ninja']} is installed, its program is not on PATH"
        return failed(name, said, needed, f"{path[0].upper()}{path[1:]}.")
    return failed(
        name,
        f"{facts.ninja.path}: {facts.ninja.error}",
        needed,
        f"Install it with pip install ninja, and {path}.",
    )


def linker(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "libcuda link", "-lcuda and -lcudart can be linked, as run-time compilation does"
    if not facts.visible or facts.cxx.version is None:
        return not_applicable(name, "no C++ compiler to link with" if facts.visible else NO_GPU)
    if facts.link_error is None:
        return ok(name, "a library was linked with -lcuda and -lcudart", needed)
    if "-lcudart" in facts.link_error:
        remedy = f"Set CUDA_HOME to a toolkit that has lib64/libcudart.so {asked.env_hint}."
    else:
        remedy = (
            "Make a folder with a link libcuda.so to the driver's libcuda.so.1 (ldconfig -p shows where it is), and "
            f"name the folder at LIBRARY_PATH {asked.env_hint}."
        )
    return failed(name, facts.link_error or "the linker failed without a word", needed, remedy)


CHECKS = (nvcc, compiler, ninja, linker)
