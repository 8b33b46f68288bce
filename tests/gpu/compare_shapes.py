"""Level 4's fake against the real call on this GPU: shapes, dtypes, strides and refusals; prints one JSON object.

PYTHONPATH=<overlay>:<FlashInfer's folder> WORKBOOK_PATCH_LEVEL=4 python compare_shapes.py

FlashInfer builds its kernel on first use. Values are not compared: on sm90 this kernel writes none.
"""

import itertools
import json

import flashinfer
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float32")
TOKENS = (1, 7, 128, 300)
HIDDEN = (64, 96, 128, 250)
OPTIONS = ("sf_vec_size", "sf_use_ue8m0", "is_sf_swizzled_layout", "is_sf_8x4_layout")
CHOICES = ((16, 32), (False, True), (True, False), (False, True))


def describe(call, *args, **kwargs):
    """What a call gives, or the name of the exception with which it refuses."""
    try:
        return [(str(out.dtype), tuple(out.shape), tuple(out.stride())) for out in call(*args, **kwargs)]
    except Exception as refusal:
        return type(refusal).__name__


def main():
    quantize, differ, combinations, both = torch.ops.workbook.fp4_quantize.default, [], 0, 0
    for dtype, m, k, lead, *chosen in itertools.product(DTYPES, TOKENS, HIDDEN, ((), (2,)), *CHOICES):
        options = dict(zip(OPTIONS, chosen, strict=True))
        x = torch.zeros((*lead, m, k), dtype=getattr(torch, dtype), device="cuda")
        scale = torch.ones(1, device="cuda")
        real = describe(quantize, x, scale, **options)
        with FakeTensorMode() as mode:
            fake = describe(quantize, mode.from_tensor(x), mode.from_tensor(scale), **options)
        combinations += 1
        both += not isinstance(real, str)
        if real != fake:
            differ.append({"dtype": dtype, "shape": list(x.shape), **options, "real": real, "fake": fake})
    torch.cuda.synchronize()
    versions = {"torch": torch.__version__, "flashinfer": flashinfer.__version__}
    print(json.dumps({"combinations": combinations, "both_succeed": both, "differ": differ, **versions}))


if __name__ == "__main__":
    main()
