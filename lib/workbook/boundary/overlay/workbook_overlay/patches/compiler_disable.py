"""Level 3: `torch.compiler.disable` on the quantizer, the usual advice; a graph break, which fullgraph forbids."""

import torch

NAME = "compiler-disable"


def replace(module, originals):
    return {name: torch.compiler.disable(original) for name, original in originals.items()}


def patched_source(name, source):
    return "@torch.compiler.disable\n" + source
