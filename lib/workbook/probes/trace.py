"""Trace one call under `torch.compile(fullgraph=True)` and print what happened as one JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python trace.py '{"entry": "flashinfer.fp4_quantize", ...}'

Runs on the node, in a process of its own. Without a GPU the inputs are FakeTensors that claim to be CUDA tensors, and
`workbook_overlay.declare` answers for the GPU; FlashInfer's and Dynamo's code is the installed one.
"""

import sys

from workbook_overlay.answer import answer, spec


def trace(asked: dict) -> dict:
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.tracing import trace_entry

    return trace_entry(asked["entry"], asked["process_state"], declare_gpu(asked["arch"]))


if __name__ == "__main__":
    sys.exit(answer(lambda: trace(spec())))
