"""What SGLang's compile step made of each graph: one JSON line a graph, to be held beside a forecast.

`WORKBOOK_PIECES` names the file, which all ranks of a server may share. A line that cannot be written is a warning.
"""

import functools
import itertools
import json
import os
import sys
from collections import Counter
from pathlib import Path

from workbook_overlay.hook import after_import

BACKEND = "sglang.srt.compilation.backend"


def activate(file: str) -> None:
    """Have every graph that this process compiles told in `file`, made where it is missing."""
    path = Path(file).resolve()  # a server may change its working directory
    after_import(BACKEND, lambda module: _watch(module, path))


def describe(backend, graph) -> dict:
    """How a graph was split, and what is in it.

    Args:
        backend: the SGLangBackend that was called with it.
        graph: the whole graph, a torch.fx.GraphModule, as Dynamo handed it over.

    Returns:
        `pieces`, of which `split` are the operations split at and `compiled` the rest; `split_ops`, how often it was
        split at each; `nodes`, all of the whole graph's; `operations`, how often each of torch.ops is called.
    """
    from torch._ops import OperatorBase, OpOverloadPacket

    split = sum(piece.is_splitting_graph for piece in backend.piecewise_graphs)
    nodes = list(graph.graph.nodes)
    operations = Counter(
        str(node.target)
        for node in nodes
        if node.op == "call_function" and isinstance(node.target, OperatorBase | OpOverloadPacket)
    )
    return {
        "pieces": len(backend.piecewise_graphs),
        "split": split,
        "compiled": len(backend.piecewise_graphs) - split,
        "split_ops": {
            op: n for op, n in sorted(operations.items()) if op in backend.compile_config.split_ops
        },
        "nodes": len(nodes),
        "operations": dict(sorted(operations.items())),
    }


def _watch(module, path: Path) -> None:
    backend = getattr(module, "SGLangBackend", None)
    compile_graph = vars(backend or object).get("__call__")
    if compile_graph is None:
        _warn(path, f"{module.__name__} has no SGLangBackend to call")
        return
    count = itertools.count(1)

    @functools.wraps(compile_graph)
    def watched(self, graph, example_inputs):
        compiled = compile_graph(self, graph, example_inputs)
        try:
            line = {"rank": _tp_rank(), "pid": os.getpid(), "num_graphs": next(count)}
            _append(path, json.dumps(line | describe(self, graph)) + "\n")
        except Exception as error:  # whatever it is, the server goes on
            _warn(path, f"{type(error).__name__}: {error}")
        return compiled

    backend.__call__ = watched


def _tp_rank() -> int | None:
    """The tensor-parallel rank of this process; None outside a server."""
    from sglang.srt.distributed.parallel_state import get_tensor_model_parallel_rank

    try:
        return get_tensor_model_parallel_rank()
    except Exception:  # an assertion in one version, something else in another
        return None


def _append(path: Path, line: str) -> None:
    """One write in append mode: lines of several processes do not mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _warn(path: Path, why: str) -> None:
    print(f"workbook: {path} has nothing of a graph: {' '.join(why.split())}", file=sys.stderr)
