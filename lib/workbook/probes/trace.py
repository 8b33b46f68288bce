"""Trace one call under `torch.compile(fullgraph=True)` and print what happened as one JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python trace.py '{"entry": "flashinfer.fp4_quantize", ...}'

Runs on the node, in a process of its own. Without a GPU the inputs are FakeTensors that claim to be CUDA tensors, and
`workbook_overlay.declare` answers for the GPU; FlashInfer's and Dynamo's code is the installed one.
"""

import sys
import time

from workbook_overlay.answer import answer, spec
from workbook_overlay.call import make_inputs, resolve, shapes, versions


def warm_up(entry, inputs, kwargs, stand_ins: list[str]) -> None:
    """One eager call up to the kernel, as a server makes before it compiles: its JIT specification is there then."""
    from workbook_overlay.shadow import shadow

    def note(name: str) -> None:
        told = f"kernel module {name}: stand-in for the eager warm-up call, no kernel ran"
        if told not in stand_ins:
            stand_ins.append(told)

    shadow(entry, on_spec=note)(*inputs, **kwargs)


def trace(spec: dict) -> dict:
    started = time.perf_counter()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay import entries, kernels, patches, tracing
    from workbook_overlay.declare import declare_gpu

    declared = declare_gpu(spec["arch"])
    row = entries.row(spec["entry"])
    entry = resolve(row["path"])
    with FakeTensorMode():
        inputs, kwargs = make_inputs(row["args"]), row.get("kwargs", {})
        if spec["process_state"] == "warm":
            warm_up(entry, inputs, kwargs, kernels.STAND_INS)

        def forward(*args):
            return entry(*args, **kwargs)

        imported = time.perf_counter()
        result = tracing.trace(forward, inputs)
    return result | {
        "declared": declared | {"input_shapes": shapes(inputs)},
        "import_seconds": imported - started,
        "applied": patches.APPLIED,
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


if __name__ == "__main__":
    sys.exit(answer(lambda: trace(spec())))
