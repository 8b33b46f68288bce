"""One trace of a function under `torch.compile(fullgraph=True)`, as plain data: how it ended, and its seconds."""

import time
from collections.abc import Callable, Sequence

from workbook_overlay.call import shapes
from workbook_overlay.explain import explain


def trace(forward: Callable, inputs: Sequence) -> dict:
    """What Dynamo makes of `forward(*inputs)`; an exception of the trace is an answer."""
    import torch

    graphs = []

    def backend(graph, _example_inputs):
        graphs.append(graph)
        return graph.forward

    result = {"error": None, "output_shapes": []}
    started = time.perf_counter()
    try:
        outputs = torch.compile(forward, fullgraph=True, backend=backend)(*inputs)
        if not graphs:
            raise RuntimeError("nothing was traced: Dynamo is switched off")
    except Exception as error:
        result["error"] = explain(error)
    else:
        result["output_shapes"] = shapes(outputs if isinstance(outputs, tuple | list) else [outputs])
    return result | {"seconds": time.perf_counter() - started}
