"""One trace under `torch.compile(fullgraph=True)`, as plain data: how it ended, and its seconds."""

import time
from collections.abc import Callable, Sequence

from workbook_overlay.call import make_inputs, resolve, shapes, versions
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


def trace_entry(path: str, process_state: str, declared: dict) -> dict:
    """What Dynamo makes of one call of the entry table, on fake CUDA tensors.

    Args:
        path: the row's dotted path.
        process_state: `cold`, or `warm` for an eager call before it.
        declared: what `declare_gpu` gave.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    from workbook_overlay import entries, kernels, patches
    from workbook_overlay.planned import bound_without_gpu

    row = entries.row(path)
    planned = "planned" in row
    entry = bound_without_gpu(row, kernels.STAND_INS) if planned else resolve(path)
    kwargs = row.get("kwargs", {})

    def forward(*args):
        return entry(*args, **kwargs)

    with FakeTensorMode():
        inputs = make_inputs(row["args"])
        if process_state == "warm" and not planned:  # planning has made it warm: see `stand_ins`
            warm_up(entry, inputs, kwargs, kernels.STAND_INS)
        result = trace(forward, inputs)
    return result | {
        "declared": declared | {"input_shapes": shapes(inputs)},
        "applied": patches.APPLIED,
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


def warm_up(entry: Callable, inputs: Sequence, kwargs: dict, stand_ins: list[str]) -> None:
    """One eager call up to the kernel, as a server makes before it compiles: its JIT specification is there then."""
    from workbook_overlay.shadow import shadow

    def note(name: str) -> None:
        told = f"kernel module {name}: stand-in for the eager warm-up call, no kernel ran"
        if told not in stand_ins:
            stand_ins.append(told)

    shadow(entry, on_spec=note)(*inputs, **kwargs)
