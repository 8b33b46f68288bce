"""PyTorch's own check of level 4's operators, on CPU tensors: torch.library.opcheck.

    PYTHONPATH=<overlay>:<FlashInfer's folder> WORKBOOK_PATCH_LEVEL=4 python -P operator_checks.py

Prints one JSON object: what each check said of each operator. The operators get a CPU body here, which is the installed
Python over stand-ins for its compiled kernels; two more operators are wrong on purpose.
"""

import json
from types import SimpleNamespace

from workbook_overlay.declare import declare_gpu

declare_gpu("sm120")  # FlashInfer asks for a GPU when it is imported

# ruff: noqa: E402
import flashinfer
import flashinfer.jit.core
import torch
from workbook_overlay.shadow import ORIGINAL, shadow

CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
LIBRARIES = [
    torch.library.Library("workbook", "FRAGMENT"),
    torch.library.Library("workbook_wrong", "FRAGMENT"),
]


def stand_in_fp4_quantize(x, global_scale, values, scales, *_options):
    values.copy_(x.view(torch.uint8)[..., : values.shape[-1]])
    scales.fill_(int(global_scale))


def stand_in_rmsnorm(out, x, weight, eps, _enable_pdl):
    out.copy_(torch.nn.functional.rms_norm(x, weight.shape, weight, eps))


def stand_in_fused_add_rmsnorm(x, residual, weight, eps, _enable_pdl):
    residual.add_(x)
    x.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, eps))


def stand_in_silu_and_mul(out, x, _enable_pdl):
    gate, up = x.chunk(2, -1)
    out.copy_(torch.nn.functional.silu(gate) * up)


STAND_INS = SimpleNamespace(
    fp4_quantize=stand_in_fp4_quantize,
    rmsnorm=stand_in_rmsnorm,
    fused_add_rmsnorm=stand_in_fused_add_rmsnorm,
    silu_and_mul=stand_in_silu_and_mul,
)


def without_gpu():
    """FlashInfer loads the stand-ins, and answers for a CPU tensor."""
    flashinfer.jit.core.JitSpec.build_and_load = lambda *_args: STAND_INS
    for module in (flashinfer.fp4_quantization, flashinfer.norm, flashinfer.activation):
        for name, answer in (("get_compute_capability", (12, 0)), ("device_support_pdl", False)):
            if hasattr(module, name):
                setattr(module, name, lambda device, answer=answer: answer)


def installed(name):
    return getattr(getattr(flashinfer, name), ORIGINAL)


def writes_into(name):
    """The body of an `.out` overload, which returns nothing."""

    def body(*args, **kwargs):
        installed(name)(*args, **kwargs)

    return body


def wrong(name, schema, body, fake):
    """An operator that opcheck must find fault with."""
    LIBRARIES[1].define(name + schema)
    LIBRARIES[1].impl(name, body, "CPU")
    torch.library.register_fake(f"workbook_wrong::{name}", fake, lib=LIBRARIES[1])
    return getattr(torch.ops.workbook_wrong, name).default


def half_the_rows(*args):
    """Wrong on purpose."""
    return tuple(one[: one.shape[0] // 2] for one in shadow(installed("fp4_quantize"))(*args))


def checked(operator, *args):
    found = torch.library.opcheck(operator, args, test_utils=CHECKS, raise_exception=False)
    return {check: said if said == "SUCCESS" else type(said).__name__ for check, said in found.items()}


def main():
    without_gpu()
    for name in ("fp4_quantize", "fused_add_rmsnorm", "rmsnorm", "silu_and_mul"):
        LIBRARIES[0].impl(name, installed(name), "CPU")
    for name in ("rmsnorm", "silu_and_mul"):
        LIBRARIES[0].impl(f"{name}.out", writes_into(name), "CPU")
    torch.manual_seed(0)
    ops = torch.ops.workbook
    x, weight, scale = torch.randn(200, 256).half(), torch.randn(256).half(), torch.ones(1)
    wrong_fake = wrong(
        "wrong_fake", "(Tensor x, Tensor s) -> (Tensor, Tensor)", installed("fp4_quantize"), half_the_rows
    )
    hidden_mutation = wrong(
        "hidden_mutation",
        "(Tensor x, Tensor y, Tensor w) -> ()",
        installed("fused_add_rmsnorm"),
        lambda *_: None,
    )
    found = {
        "fp4_quantize": checked(ops.fp4_quantize.default, x, scale),
        "fp4_quantize, linear": checked(ops.fp4_quantize.default, x, scale, 16, False, False),
        "fp4_quantize, column-major": checked(ops.fp4_quantize.default, x[:192].view(256, 192).t(), scale),
        "fused_add_rmsnorm": checked(ops.fused_add_rmsnorm.default, x.clone(), x.clone(), weight),
        "rmsnorm": checked(ops.rmsnorm.default, x, weight, 1e-6),
        "rmsnorm.out": checked(ops.rmsnorm.out, x, weight, 1e-6, torch.empty_like(x)),
        "silu_and_mul": checked(ops.silu_and_mul.default, x),
        "silu_and_mul.out": checked(ops.silu_and_mul.out, x, torch.empty(200, 128).half()),
        "wrong fake": checked(wrong_fake, x, scale),
        "hidden mutation": checked(hidden_mutation, x.clone(), x.clone(), weight),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
