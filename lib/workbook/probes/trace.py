"""Trace one call under `torch.compile(fullgraph=True)` and print what happened as one JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python trace.py '{"entry": "flashinfer.fp4_quantize", ...}'

Runs on the node, in a process of its own. Without a GPU the inputs are FakeTensors that claim to be CUDA tensors, and
`workbook_overlay.declare` answers for the GPU; FlashInfer's and Dynamo's code is the installed one.
"""

import sys
import time

from workbook_overlay.answer import answer, spec
from workbook_overlay.call import make_inputs, resolve, shapes, versions


def warm_up(entry, inputs) -> None:
    """One eager call, as a server makes before it compiles; the kernel itself is a stand-in."""
    from workbook_overlay.kernels import stand_in

    with stand_in(note="stand-in for the eager warm-up call, no kernel ran"):
        entry(*inputs)


def trace(spec: dict) -> dict:
    started = time.perf_counter()
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay import kernels, patches
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.explain import explain

    result = {"declared": declare_gpu(spec["arch"]), "error": None, "output_shapes": []}
    entry = resolve(spec["entry"])
    with FakeTensorMode():
        inputs = make_inputs(spec["inputs"])
        if spec["process_state"] == "warm":
            warm_up(entry, inputs)

        def forward(*args):
            return entry(*args)

        graphs = []

        def backend(graph, _example_inputs):
            graphs.append(graph)
            return graph.forward

        imported = time.perf_counter()
        try:
            outputs = torch.compile(forward, fullgraph=True, backend=backend)(*inputs)
            if not graphs:
                raise RuntimeError("nothing was traced: Dynamo is switched off")
        except Exception as error:
            result["error"] = explain(error)
        else:
            outputs = outputs if isinstance(outputs, tuple | list) else [outputs]
            result["output_shapes"] = shapes(outputs)
    ended = time.perf_counter()
    return result | {
        "seconds": ended - imported,
        "import_seconds": imported - started,
        "applied": patches.APPLIED,
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


if __name__ == "__main__":
    sys.exit(answer(lambda: trace(spec())))
