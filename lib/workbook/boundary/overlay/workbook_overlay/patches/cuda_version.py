"""Level 1: the CUDA path and version without a subprocess, as the investigators of the original case tried first."""

import inspect
import os
import shutil
from pathlib import Path

import torch
from packaging.version import Version

NAME = "cuda-version"
_READ_IN = "0.6.1, 0.6.3, 0.6.7.post3, 0.6.11.post1, 0.6.14, 0.6.18, 0.7.2, 0.7.4"
KNOWN = {
    "get_cuda_path": {
        "59cde0b77f6b07c99b8930b3f47fd97b41dce9fddfa83c3c6869a9f3e9d23990": _READ_IN,
    },
    "get_cuda_version": {
        "d3db254435dfe74e5f31e6adf08716d70444fece0b7f395a5c1d6e67065440f6": _READ_IN,
    },
}

_NVCC = shutil.which("nvcc")
# FlashInfer's own default where there is no nvcc.
CUDA_PATH = (
    os.environ.get("CUDA_HOME")
    or os.environ.get("CUDA_PATH")
    or (str(Path(_NVCC).parents[1]) if _NVCC else "/usr/local/cuda")
)


def get_cuda_path() -> str:
    return CUDA_PATH


def get_cuda_version() -> Version:
    return Version(torch.version.cuda)


def replace(module):
    return {"get_cuda_path": get_cuda_path, "get_cuda_version": get_cuda_version}


def patched_source(name, source):
    return inspect.getsource(globals()[name])
