"""Where a server keeps what it compiles: a set of folders for each stack, SGLang and patch level.

A kernel that another level has built, or a graph that it has compiled, would hide the crash that is looked for. The
folders are kept from run to run of the same level, since the builds take minutes.
"""

from pathlib import Path

# What reads each is in the comment; SGLang's own have changed between its versions, and unknown ones do no harm.
FOLDERS = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",  # FlashInfer's JIT
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TILELANG_CACHE_DIR": "tilelang",  # sparse attention
    "SGLANG_CACHE_DIR": "sglang",  # its compiled graphs, with an Inductor and a Triton cache inside, and autotuning
    "SGLANG_DG_CACHE_DIR": "deep-gemm",  # of its own until SGLang 0.5.16
    "SGLANG_JIT_CACHE_DIR": "sglang-jit",  # SGLang's own kernels, from 0.5.20 on
    "TVM_FFI_CACHE_DIR": "tvm-ffi",  # SGLang's own kernels, before
}


def caches_dir(stacks: Path, stack: str, sglang_version: str, patch_level: int) -> Path:
    """The folder of all caches of one patch level.

    Args:
        stacks: the node's folder of stacks.
        stack: name of the stack whose Python runs the server.
        sglang_version: of that Python.
    """
    return stacks / "caches" / f"{stack}-sglang-{sglang_version}" / f"level-{patch_level}"


def cache_env(folder: Path) -> dict[str, str]:
    """The environment that makes everything a server compiles go under `folder`."""
    return {name: str(folder / part) for name, part in FOLDERS.items()}
