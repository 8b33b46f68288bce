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


class DeclaredProperties:
    """What stands for torch's device properties: no more than was declared."""

    def __init__(self, name: str, major: int, minor: int) -> None:
        self.name, self.major, self.minor = name, major, minor


def declare_gpu(arch: str) -> dict:
    """Answer for the GPU: compute capability, and the CUDA version where torch has none.

    The compute capability (`torch.cuda.get_device_capability`, and `get_device_properties` where there is no GPU, with
    nothing else in it), the current device (0), `torch.version.cuda` (only when it is None) and
    FLASHINFER_CUDA_ARCH_LIST; nothing else. Returns them for the record.
    """
    import torch

    capability = ARCHS[arch]
    source = "installed"
    if torch.version.cuda is None:
        torch.version.cuda = DEFAULT_CUDA
        source = "declared"
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = f"{capability[0]}.{capability[1]}a"
    torch.cuda.get_device_capability = lambda device=None: capability
    if not torch.cuda.is_available():
        properties = DeclaredProperties(f"declared {arch}", *capability)
        # Dynamo, imported later, takes objects of this class for constants, as it does where there is a GPU
        torch.cuda._CudaDeviceProperties = DeclaredProperties
        torch.cuda.get_device_properties = lambda device=None: properties
        torch.cuda.current_device = lambda: 0
    return told(capability, source)


def told(capability: tuple[int, int], cuda_version_source: str) -> dict:
    """What was declared, for the record."""
    import torch

    return {
        "inputs": "fake CUDA tensors",
        "compute_capability": capability,
        "cuda_version": torch.version.cuda,
        "cuda_version_source": cuda_version_source,
        "arch_list": os.environ["FLASHINFER_CUDA_ARCH_LIST"],
        "cuda_home": os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"),
    }
