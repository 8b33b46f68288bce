"""A call to trace, on the node: the function at a dotted path, its inputs, and what a record says of both."""

import importlib
import sys


def resolve(path: str):
    """The object at a dotted path such as `flashinfer.fp4_quantize`."""
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def make_inputs(described: list[dict]) -> list:
    """Tensors on the (fake) GPU from `{"dtype": "bfloat16", "shape": [128, 256]}`."""
    import torch

    return [torch.empty(one["shape"], dtype=getattr(torch, one["dtype"]), device="cuda") for one in described]


def shapes(values) -> list[str]:
    """Each tensor as `bfloat16 (128, 256)`; what is no tensor is left out."""
    return [
        f"{one.dtype} {tuple(one.shape)}".removeprefix("torch.") for one in values if hasattr(one, "shape")
    ]


def versions() -> dict[str, str]:
    """Of Python, and of torch and FlashInfer as far as this process has imported them."""
    found = {"python": sys.version.split()[0]}
    for module, name in (("torch", "torch"), ("flashinfer", "flashinfer-python")):
        if module in sys.modules:
            found[name] = sys.modules[module].__version__
    return found
