"""Level 1: the CUDA path and version without a subprocess, as the investigators of the original case tried first."""

import inspect
import os
import shutil
from pathlib import Path

import torch
from packaging.version import Version

NAME = "cuda-version"
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


def replace(module, originals):
    return {"get_cuda_path": get_cuda_path, "get_cuda_version": get_cuda_version}


def patched_source(name, source):
    return inspect.getsource(globals()[name])
