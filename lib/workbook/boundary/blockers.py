"""All that stops a call under `fullgraph=True`, in order, from one process: no restart for each."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch, entry
from workbook.errors import UsageError
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import Blocker, ProcessState, Stack

TIMEOUT_S = 600
_PROGRESS = re.compile(r"\d+: .+")
_OWN_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def blockers(
    node: NodeConnection,
    stack: Stack,
    path: str,
    *,
    arch: str = "sm120",
    inputs: Path | None = None,
    raw_dir: Path | None = None,
    on_layer: Callable[[str], None] = lambda line: None,
) -> list[Blocker]:
    """Every operation that cannot be traced, in the order in which a trace meets them; the last tells how it ended.

    Args:
        path: a row of the entry table, or with `inputs` any `module:function` that the node can import.
        arch: the declared GPU architecture; not used with `inputs`.
        inputs: a Python file whose function `inputs()` gives the positional arguments of the call.
        raw_dir: where the probe's own output is kept.
        on_layer: called with a line for each layer as it is passed.

    Raises:
        UsageError: unknown entry or architecture, no such file, or the function fails before any tracing.
        WorkbookError: the probe failed.
    """
    asked = _asked(path, arch, inputs)
    if inputs is not None:
        there = node.place(inputs.resolve())
        node.put(inputs.resolve(), there)
        asked["inputs_file"] = str(there)
    answer = run_probe(
        node,
        stack,
        "blockers.py",
        [json.dumps(asked)],
        timeout_s=TIMEOUT_S,
        raw=raw_dir / f"blockers-{path.replace(':', '-')}" if raw_dir else None,
        on_stderr=lambda line: on_layer(line) if _PROGRESS.fullmatch(line) else None,
    )
    if "failed" in answer:
        raise UsageError(f"{path} fails before any tracing: {answer['failed']}.")
    return [
        _blocker(number, layer, answer, path, arch) for number, layer in enumerate(answer["layers"], start=1)
    ]


def _asked(path: str, arch: str, inputs: Path | None) -> dict[str, Any]:
    if inputs is None and ":" in path:
        raise UsageError(f"{path} is not in the table of entry points.", "Give its arguments: --inputs FILE")
    if inputs is None:
        return {"entry": entry(path).path, "arch": check_arch(arch)}
    if not _OWN_FUNCTION.fullmatch(path):
        raise UsageError(f"{path!r} is not MODULE:FUNCTION.", "For example: mypackage.layers:quantize")
    if not inputs.is_file():
        raise UsageError(
            f"No file {inputs}.", "It has to define inputs(), which gives the arguments of the call."
        )
    return {"entry": path, "arch": arch}


def _blocker(number: int, layer: dict[str, Any], answer: dict[str, Any], path: str, arch: str) -> Blocker:
    told = diagnosis.fields(layer["error"])
    declared = answer["declared"]
    return Blocker(
        order=number,
        entry=path,
        arch=arch,
        process_state=ProcessState.WARM,
        blamed=diagnosis.located(told["frames"], path) if layer["error"] else None,
        passed=layer["passed"],
        how=layer["how"],
        seconds=layer["seconds"],
        versions=answer["versions"],
        declared=declared and declared | {"input_shapes": answer["input_shapes"]},
        stand_ins=answer["stand_ins"],
        **told,
    )
