"""A call to trace, on the node: the function at a dotted path, its inputs, and what a record says of both."""

import importlib
import sys


def resolve(path: str):
    """The object at a dotted path such as `flashinfer.fp4_quantize` or `flashinfer.Wrapper.run`."""
    module, _, attribute = path.rpartition(".")
    if module.rpartition(".")[2][:1].isupper():
        return getattr(resolve(module), attribute)  # of a class
    return getattr(importlib.import_module(module), attribute)


def make_inputs(described: list, device: str = "cuda") -> list:
    """A call's arguments from the words of the entry table.

    `{"dtype": "bfloat16", "shape": [128, 256]}` is a tensor, on the (fake) GPU and with `strides` where they are given;
    `{"ints": [0, 4]}` is an int32 tensor of these; `{"torch_dtype": "bfloat16"}` is a dtype; a list is a list of such;
    anything else is itself.
    """
    return [make_input(one, device) for one in described]


def make_input(described, device: str = "cuda"):
    """One argument."""
    import torch

    if isinstance(described, list):
        return make_inputs(described, device)
    if not isinstance(described, dict):
        return described
    if "torch_dtype" in described:
        return getattr(torch, described["torch_dtype"])
    if "ints" in described:
        return torch.tensor(described["ints"], dtype=torch.int32, device=device)
    dtype, shape = getattr(torch, described["dtype"]), described["shape"]
    if "strides" in described:
        return torch.empty_strided(shape, described["strides"], dtype=dtype, device=device)
    return torch.empty(shape, dtype=dtype, device=device)


def shapes(values) -> list[str]:
    """Each tensor as `bfloat16 (128, 256)`; lists are gone through, what is no tensor is left out."""
    found = []
    for one in values:
        if isinstance(one, list | tuple):
            found += shapes(one)
        elif hasattr(one, "shape"):
            found.append(f"{one.dtype} {tuple(one.shape)}".removeprefix("torch."))
    return found


def versions() -> dict[str, str]:
    """Of Python, and of torch and FlashInfer as far as this process has imported them."""
    found = {"python": sys.version.split()[0]}
    for module, name in (("torch", "torch"), ("flashinfer", "flashinfer-python")):
        if module in sys.modules:
            found[name] = sys.modules[module].__version__
    return found
