"""Level 4: each call of the entry table is an opaque operator of torch.library, with a fake made from itself.

The fake is the installed Python over kernels that do nothing (`shadow`): shapes, dtypes and refusals cannot drift from
the real call, as a copied shape formula would (at K = 96 FlashInfer 0.6.3 raises where 0.6.11 pads).
"""

import inspect

import torch

from workbook_overlay import entries
from workbook_overlay.boundary import Boundary, number
from workbook_overlay.shadow import shadow

NAME = "custom-op"
OPERATOR = "__workbook_operator__"  # where a patched function keeps what calls its operator whatever traces

_LIBRARY = torch.library.Library("workbook", "FRAGMENT")  # an operator lives as long as its library


def refuse_fp4(input, global_scale, _values, _scales, sf_vec_size, sf_use_ue8m0, *_rest):
    """The compiled FP4 quantizer without its work: what it refuses (fp4Quantize.cpp, FlashInfer 0.6.1 to 0.7.4)."""
    if not input.is_contiguous():
        raise RuntimeError("input must be contiguous")
    if sf_use_ue8m0 and sf_vec_size != 32:
        raise RuntimeError("sf_vec_size can only be 32 when sf_use_ue8m0 is true")
    if not sf_use_ue8m0 and (global_scale is None or sf_vec_size != 16):
        raise RuntimeError(
            "global_scale is required and sf_vec_size can only be 16 when sf_use_ue8m0 is false"
        )
    if input.dtype not in (torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        raise RuntimeError("fp4_quantize only supports fp16, bf16 and e4m3 input")


def refuse_fp4_batched(input, global_scale, _values, _scales, sf_vec_size, *_rest):
    """The same of the quantizer of a batch, whose Python checks less."""
    if input.shape[-1] % 16 != 0:
        raise RuntimeError("the last dimension must be a multiple of 16")
    refuse_fp4(input, global_scale, None, None, sf_vec_size, False)


REFUSALS = {"fp4_quantize": refuse_fp4, "fp4_batched_quantize": refuse_fp4_batched}


def replace(module, originals):
    rows = {entries.function_name(row): row for row in entries.rows()}
    # every fake is made before the first name is rebound, so that a fake never reaches another's operator
    fakes = {name: shadow(original, REFUSALS) for name, original in originals.items()}
    found = {name: opaque(original, rows[name], fakes[name]) for name, original in originals.items()}
    for owner in {name.partition(".")[0] for name in found if "." in name}:
        number_when_planned(getattr(module, owner))
    return found


def number_when_planned(owner):
    """Objects of a class get the number by which their operator finds them when they plan, which precedes any run."""
    plan = owner.plan

    def plan_and_number(self, *args, **kwargs):
        number(self)
        return plan(self, *args, **kwargs)

    owner.plan = plan_and_number


def opaque(original, row, fake):
    """Define the operator around a function; what takes the function's name."""
    boundary = Boundary(original, row)
    operator = entries.function_name(row).replace(".", "_")
    tags = (torch.Tag.nondeterministic_seeded,) if row.get("random") else ()
    operators = []
    for out in (False, True) if row.get("out") in boundary.signature.parameters else (False,):
        name = f"{operator}{'.out' if out else ''}"
        _LIBRARY.define(name + boundary.schema(out), tags=tags)
        _LIBRARY.impl(name, boundary.body(original, out), "CUDA")
        # without this every call goes through autograd's boxed fallback, for a kernel that has no gradient
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"workbook::{name}", boundary.body(fake, out), lib=_LIBRARY)
        packet = getattr(torch.ops.workbook, operator)
        operators.append(packet.out if out else packet.default)
    through = boundary.through(*operators)
    replacement = boundary.replacement(through)
    setattr(replacement, OPERATOR, through)
    return replacement


def patched_source(name, source):
    """The installed function stays, as the operator's body; what calls the operator takes its name."""
    kept = source.replace(f"def {name.rpartition('.')[2]}(", "def original(", 1)
    defined = [line.strip() for line in inspect.getsource(opaque).splitlines() if "_LIBRARY" in line]
    return (
        kept
        + "\n\n"
        + "\n".join([*defined, f"{name} = boundary.replacement(boundary.through(*operators))", ""])
    )
