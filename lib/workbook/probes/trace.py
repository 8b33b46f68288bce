"""Trace one call under `torch.compile(fullgraph=True)` and print what happened as one JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python trace.py '{"entry": "flashinfer.fp4_quantize", ...}'

Runs on the node, in a process of its own. Without a GPU the inputs are FakeTensors that claim to be CUDA tensors, and
`workbook_overlay.declare` answers for the GPU; FlashInfer's and Dynamo's code is the installed one.
"""

import sys
import time

from workbook_overlay.answer import answer, spec
from workbook_overlay.call import make_inputs, resolve, versions


def warm_up(entry, inputs) -> None:
    """One eager call, as a server makes before it compiles; the kernel itself is a stand-in."""
    from workbook_overlay.kernels import stand_in

    with stand_in(note="stand-in for the eager warm-up call, no kernel ran"):
        entry(*inputs)


def trace(spec: dict) -> dict:
    started = time.perf_counter()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay import kernels, patches, tracing
    from workbook_overlay.declare import declare_gpu

    declared = declare_gpu(spec["arch"])
    entry = resolve(spec["entry"])
    with FakeTensorMode():
        inputs = make_inputs(spec["inputs"])
        if spec["process_state"] == "warm":
            warm_up(entry, inputs)

        def forward(*args):
            return entry(*args)

        imported = time.perf_counter()
        result = tracing.trace(forward, inputs)
    return result | {
        "declared": declared,
        "import_seconds": imported - started,
        "applied": patches.APPLIED,
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


if __name__ == "__main__":
    sys.exit(answer(lambda: trace(spec())))
