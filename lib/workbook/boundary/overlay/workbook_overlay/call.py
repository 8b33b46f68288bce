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


def fill(value, described, generator) -> None:
    """Put values in a tensor that `make_input` made, in place; lists are gone through.

    `fill` is a number for every element, or `probabilities`, rows that sum to one; `below` draws integers from 0 up to
    it. Otherwise floats are drawn from the normal distribution, bytes at random, and other integers are 0.
    """
    import torch

    if isinstance(value, list):
        for one, each in zip(value, described, strict=True):
            fill(one, each, generator)
    if not isinstance(value, torch.Tensor) or "ints" in described:
        return
    how = described.get("fill")
    if how == "probabilities":
        value.normal_(generator=generator).copy_(value.softmax(-1))
    elif how is not None:
        value.fill_(how)
    elif value.dtype.is_floating_point:
        value.copy_(torch.randn(value.shape, generator=generator, device=value.device))
    elif "below" in described or value.dtype is torch.uint8:
        value.random_(0, described.get("below", 256), generator=generator)
    else:
        value.zero_()
