"""Level 4's fakes without a GPU: against the installed Python run on CPU tensors, and with a symbolic token count.

    PYTHONPATH=<overlay>:<FlashInfer's folder> WORKBOOK_PATCH_LEVEL=4 python -P fake_shapes.py

Prints one JSON object. The reference is the installed function itself over a stand-in for its compiled kernel, which
writes nothing and refuses what fp4Quantize.cpp refuses; it shares no code with the fake.
"""

import json

from workbook_overlay.declare import declare_gpu

declare_gpu("sm120")  # FlashInfer asks for a GPU when it is imported

# ruff: noqa: E402
import flashinfer
import torch
from flashinfer.autotuner import AutoTuner, autotune
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from workbook_overlay import entries
from workbook_overlay.call import make_inputs, resolve, shapes
from workbook_overlay.kernels import stand_in
from workbook_overlay.shadow import ORIGINAL

QUANTIZABLE = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
TOKENS = (128, 200, 384)  # the second is no multiple of any tile
BLOCKS = [(16, False), (32, True), (16, False), (32, True), (16, True), (32, False), (24, False)]
FORMS = ["row-major", "column-major", "row-major", "column-major", "every other row", "left half"]
whole_tiles = st.integers(1, 10).map(lambda tiles: 32 * tiles)
seen = {"succeeded": {}, "refused": {}}


def reference_kernel(x, global_scale, _values, _scales, sf_vec_size, ue8m0, *_rest):
    """A stand-in for the compiled quantizers, line by line as in fp4Quantize.cpp; each kind is a RuntimeError here."""
    contiguous = x.contiguous().stride() == x.stride() or 0 in x.shape
    allowed = [contiguous, sf_vec_size == 32 if ue8m0 else global_scale is not None and sf_vec_size == 16]
    allowed += [x.dim() >= 2, x.shape[-1] % sf_vec_size == 0, x.dtype in QUANTIZABLE]
    if not all(allowed):
        raise RuntimeError("refused")


def laid_out(form, shape):
    """The strides of a tensor of `shape`: row-major, column-major, or a part of a larger one."""
    *lead, rows, columns = shape
    if form == "column-major":
        return torch.empty((*lead, columns, rows), device="meta").transpose(-2, -1).stride()
    if form == "every other row":
        return torch.empty((*lead, 2 * rows, columns), device="meta")[..., ::2, :].stride()
    if form == "left half":
        return torch.empty((*lead, rows, 2 * columns), device="meta")[..., :columns].stride()
    return torch.empty(tuple(shape), device="meta").stride()


def described(call, *args, **kwargs):
    """What a call gives, or the name of the exception with which it refuses."""
    try:
        return [(str(out.dtype), tuple(out.shape), tuple(out.stride())) for out in call(*args, **kwargs)]
    except Exception as refusal:
        return type(refusal).__name__


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from(["fp4_quantize", "fp4_quantize", "fp4_quantize", "nvfp4_batched_quantize"]),
    dtype=st.sampled_from([*QUANTIZABLE, *QUANTIZABLE, torch.float32]),
    lead=st.lists(st.integers(1, 3), max_size=2),
    rows=whole_tiles | st.integers(1, 300),
    columns=st.one_of(whole_tiles, whole_tiles, st.integers(1, 300)),
    form=st.sampled_from(FORMS),
    scaled=st.sampled_from([True, True, True, False]),
    block=st.sampled_from(BLOCKS),
    swizzled=st.booleans(),
    tile_of_8=st.booleans(),
)
def compare(name, dtype, lead, rows, columns, form, scaled, block, swizzled, tile_of_8):
    """A fake gives the dtypes, shapes and strides, or the refusal, of the installed function."""
    shape, batched, options = (*lead, rows, columns), name != "fp4_quantize", {"sf_vec_size": block[0]}
    if not batched:
        options |= {"sf_use_ue8m0": block[1], "enable_pdl": False}
        options |= {"is_sf_swizzled_layout": swizzled, "is_sf_8x4_layout": tile_of_8}

    def called(function, device):
        x = torch.empty_strided(shape, laid_out(form, shape), dtype=dtype, device=device)
        scale = torch.empty(1, device=device) if scaled or batched else None
        return described(function, x, scale, **options)

    real = called(getattr(getattr(flashinfer, name), ORIGINAL), "cpu")
    with FakeTensorMode():
        fake = called(getattr(flashinfer, name), "cuda")
    assert fake == real, f"fake {fake}, installed {real}"
    counts, what = (
        (seen["refused"], real) if isinstance(real, str) else (seen["succeeded"], f"{name}, {form}")
    )
    counts[what] = counts.get(what, 0) + 1


def symbolic(row):
    """The graphs made for three token counts, and each one's outputs against those of static sizes."""
    function, kwargs, graphs = resolve(row["path"]), row.get("kwargs", {}), []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    tokens = row["args"][0]["shape"][0]
    rows_of_tokens = [
        isinstance(one, dict) and one.get("shape", [0])[0] == tokens and "strides" not in one
        for one in row["args"]
    ]
    compiled = torch.compile(lambda *args: function(*args, **kwargs), fullgraph=True, backend=backend)
    different = []
    for count in TOKENS:
        args = [
            one | {"shape": [count, *one["shape"][1:]]} if varies else one
            for one, varies in zip(row["args"], rows_of_tokens, strict=True)
        ]
        with FakeTensorMode():
            static = function(*make_inputs(args), **kwargs)
        with FakeTensorMode(shape_env=ShapeEnv()):
            inputs = make_inputs(args)
            for one, varies in zip(inputs, rows_of_tokens, strict=True):
                if varies:
                    torch._dynamo.mark_dynamic(one, 0)
            if shapes(listed(compiled(*inputs))) != shapes(listed(static)):
                different.append(count)
    torch._dynamo.reset()
    return {"graphs": len(graphs), "different": different}


def listed(outputs):
    return outputs if isinstance(outputs, tuple | list) else [outputs]


def tuned():
    """What FlashInfer's autotuner remembers after fakes ran while it tuned."""
    for path in ("flashinfer.mm_fp4", "flashinfer.fused_moe.cutlass_fused_moe"):
        row = entries.row(path)
        with FakeTensorMode(), autotune(True):
            resolve(path)(*make_inputs(row["args"]), **row.get("kwargs", {}))
    tuner = AutoTuner.get()
    return [*tuner.profiling_cache, *tuner.stats.tuned_op_total_configs]


def main():
    # for the reference: the installed function does not answer for a CPU tensor
    flashinfer.fp4_quantization.get_compute_capability = lambda device: (12, 0)
    with stand_in(reference_kernel):
        compare()
    # an attention wrapper's plan holds for one token count
    rows = [row for row in entries.rows() if "planned" not in row]
    print(json.dumps({**seen, "symbolic": {row["path"]: symbolic(row) for row in rows}, "tuned": tuned()}))


if __name__ == "__main__":
    main()
