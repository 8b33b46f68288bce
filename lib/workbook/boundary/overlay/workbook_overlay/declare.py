"""What a process without a GPU is told about the GPU it is to reason about. Said once, before FlashInfer's import."""

import os
from collections.abc import Mapping

#: CUDA version declared where torch was built without one; the first that knows FP4 (`-DENABLE_FP4`, FlashInfer 0.6.3).
DEFAULT_CUDA = "12.8"

ARCHS: Mapping[str, tuple[int, int]] = {
    "sm90": (9, 0),
    "sm100": (10, 0),
    "sm103": (10, 3),
    "sm110": (11, 0),
    "sm120": (12, 0),
    "sm121": (12, 1),
}


def declare_gpu(arch: str) -> dict:
    """Answer for the GPU: compute capability, and the CUDA version where torch has none.

    Three answers, nothing else: `torch.cuda.get_device_capability`, `torch.version.cuda` (only when it is None) and
    FLASHINFER_CUDA_ARCH_LIST. Returns them for the record.
    """
    import torch

    capability = ARCHS[arch]
    source = "installed"
    if torch.version.cuda is None:
        torch.version.cuda = DEFAULT_CUDA
        source = "declared"
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = f"{capability[0]}.{capability[1]}a"
    torch.cuda.get_device_capability = lambda device=None: capability
    return {
        "inputs": "fake CUDA tensors",
        "compute_capability": capability,
        "cuda_version": torch.version.cuda,
        "cuda_version_source": source,
        "arch_list": os.environ["FLASHINFER_CUDA_ARCH_LIST"],
        "cuda_home": os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"),
    }
