"""Level 4: the quantizer is one opaque operator of `torch.library`, with a fake implementation made from itself.

The schema is read off the installed signature, so arguments keep their order and defaults. The fake is the installed
Python body with the compiled kernel replaced by one that does nothing: shapes, dtypes and refusals cannot drift from
the real call, as a copied shape formula would (at K = 96 FlashInfer 0.6.3 raises where 0.6.11 pads).
"""

import inspect
import types

import torch

from workbook_overlay.kernels import stand_in

NAME = "custom-op"
KNOWN = {
    "fp4_quantize": {
        "35403815f78d2bd5e2feb9f88843708f156e51bc3b60c64891f581a4fa978e52": "0.6.1, 0.6.3, 0.6.7.post3",
        "b03b8c7cf4216511e8a28eca2fd0ca4dc7d1121ee771da7737e0b6fd5eba6a37": "0.6.11.post1",
        "c1556058ee43a143b5341f380385fb5a138e745fe93df2222b933af41375a60e": "0.6.14, 0.6.18",
    },
}

_LIBRARY = torch.library.Library("workbook", "FRAGMENT")  # an operator lives as long as its library


def without_kernel(function, module):
    """A copy of `function` whose globals lead to a kernel that does nothing, on any device."""
    loader = inspect.unwrap(module.get_fp4_quantization_module)
    loaded = {}

    def get_fp4_quantization_module(backend="100"):
        if backend not in loaded:
            with stand_in(refuse_as_kernel):
                loaded[backend] = loader(backend)
        return loaded[backend]

    changed = {
        "get_fp4_quantization_module": get_fp4_quantization_module,
        "get_compute_capability": lambda device: torch.cuda.get_device_capability(),
        "device_support_pdl": lambda device: False,
    }
    body = inspect.unwrap(function)
    changed_body = types.FunctionType(
        body.__code__, {**body.__globals__, **changed}, body.__name__, body.__defaults__, body.__closure__
    )
    changed_body.__kwdefaults__ = body.__kwdefaults__

    def fake(*args, **kwargs):
        device = args[0].device
        outputs = changed_body(
            *map(to_meta, args), **{name: to_meta(value) for name, value in kwargs.items()}
        )
        return tuple(
            torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=device) for out in outputs
        )

    return fake


def refuse_as_kernel(input, global_scale, _values, _scales, sf_vec_size, sf_use_ue8m0, *_rest):
    """The compiled kernel without its work: it refuses what that does (fp4Quantize.cpp, FlashInfer 0.6.3, 0.6.11)."""
    if sf_use_ue8m0 and sf_vec_size != 32:
        raise RuntimeError("sf_vec_size can only be 32 when sf_use_ue8m0 is true")
    if not sf_use_ue8m0 and (global_scale is None or sf_vec_size != 16):
        raise RuntimeError(
            "global_scale is required and sf_vec_size can only be 16 when sf_use_ue8m0 is false"
        )
    if input.dtype not in (torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        raise RuntimeError("fp4_quantize only supports fp16, bf16 and e4m3 input")


def to_meta(value):
    """A meta tensor of the same shape and strides; anything else as it is. No driver is asked for anything."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def replace(module):
    original = module.fp4_quantize
    _LIBRARY.define("fp4_quantize" + torch.library.infer_schema(original, mutates_args=()))
    _LIBRARY.impl("fp4_quantize", original, "CUDA")
    torch.library.register_fake("workbook::fp4_quantize", without_kernel(original, module), lib=_LIBRARY)
    return {"fp4_quantize": torch.ops.workbook.fp4_quantize.default}


def patched_source(name, source):
    """The installed function stays, as the operator's body; the operator takes its name."""
    kept = source.replace(f"def {name}(", "def original(", 1)
    defined = [
        line.strip()
        for line in inspect.getsource(replace).splitlines()
        if line.startswith(("    _L", "    torch"))
    ]
    return kept + "\n\n" + "\n".join([*defined, f"{name} = torch.ops.workbook.{name}.default", ""])
