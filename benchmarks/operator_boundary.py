"""What level 4 costs a call of the FP4 quantizer, against the bare call, in one run on this machine.

    .venv/bin/python benchmarks/operator_boundary.py

Plain CPU tensors and a kernel that does nothing, so that the boundary is all that differs; no figure here speaks for a
GPU (`workbook values` measures there). The rival is the call as FlashInfer ships it, and the usual way to an operator,
`torch.library.custom_op`.
"""

import sys

from workbook import catalog
from workbook.node.connect import connect
from workbook.node.probe import flashinfer_dir
from workbook.paths import OVERLAY
from workbook.types import Stack

ENTRY = "flashinfer.fp4_quantize"


def main() -> None:
    sys.path[:0] = [str(OVERLAY), str(flashinfer_dir(connect("local"), catalog.load(Stack, "embedded")))]
    import torch
    from workbook_overlay import entries, timing
    from workbook_overlay.call import make_inputs, resolve
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.quantizer import Quantizer

    capability = declare_gpu("sm120")["compute_capability"]
    function = resolve(ENTRY)
    sys.modules[function.__module__].get_compute_capability = lambda device: capability
    inputs = make_inputs(entries.row(ENTRY)["args"], "cpu")
    quantizer = Quantizer(ENTRY, inputs, capability)
    calls = {
        "by its patched name, eager": quantizer.boundary.replacement(quantizer.operator),
        "through level 4's operator": quantizer.operator,
        "through torch.library.custom_op": quantizer.decorated("fp4_quantize_decorated", quantizer.fake),
    }
    with torch.inference_mode():
        found = timing.overheads(function, list(calls.values()), inputs)
    bare = found["bare_us_p50"]
    print(f"bare call: {bare:.1f} µs (p50 of {found['calls']:,} calls, in turn with the others)")
    for name, spread in zip(calls, found["overheads"], strict=True):
        more = spread["overhead_us_p50"]
        range_ = f"{spread['overhead_us_p10']:+.1f} to {spread['overhead_us_p90']:+.1f}"
        print(f"{name}: {more:+.1f} µs ({range_}), {1 + more / bare:.2f} of the bare call")


if __name__ == "__main__":
    main()
