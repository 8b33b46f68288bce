"""SGLang's own compile and split step on a small FP4 module, at one patch level; nothing is captured without a GPU."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch
from workbook.boundary.levels import level
from workbook.boundary.trace import TraceRequest, outcome
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import CaptureMode, SplitOutcome, Stack, Stage, Status

NUM_LAYERS = 3
HIDDEN = 256
CAPTURE_SIZES = (4, 8, 16, 32)
SPLIT_OPS = ("workbook_toy.attention",)
TIMEOUT_S = 300


def split(
    node: NodeConnection,
    stack: Stack,
    *,
    arch: str,
    patch_level: int,
    tp: int = 1,
    capture_mode: CaptureMode = CaptureMode.PIECEWISE,
    capture_sizes: Sequence[int] = CAPTURE_SIZES,
    raw_dir: Path | None = None,
) -> SplitOutcome:
    """Compile and split the module at every capture size (in tokens), in a process of its own.

    Args:
        tp: tensor-parallel size it is meant for; the module is that of one rank, and ranks compile alike.
        capture_mode: only `piecewise` compiles; for the others the capture stage alone is answered.
        raw_dir: where the probe's own output is kept.

    Raises:
        UsageError: unknown architecture or level, FlashInfer or torch missing, or a patch refused.
        WorkbookError: the probe itself failed.
    """
    check_arch(arch)
    level(patch_level)
    spec = {"arch": arch, "hidden": HIDDEN, "num_layers": NUM_LAYERS, "capture_sizes": list(capture_sizes)}
    answer = run_probe(
        node,
        stack,
        "split.py",
        [json.dumps(spec)],
        timeout_s=TIMEOUT_S,
        patch_level=patch_level,
        env={"WORKBOOK_STAND_IN_KERNELS": "1", "WORKBOOK_CPU_SGLANG": "1"},
        raw=raw_dir / f"split-{arch}-level{patch_level}" if raw_dir else None,
    )
    stages, reasons = judge(answer, tp=tp, capture_mode=capture_mode)
    declared = answer["declared"] | {"input_shapes": [f"bfloat16 ({max(capture_sizes)}, {HIDDEN})"]}
    stopped = None
    if answer["error"]:
        request = TraceRequest(arch=arch, patch_level=patch_level)
        stopped = outcome(request, {"output_shapes": [], **answer, "declared": declared})
    return SplitOutcome(
        arch=arch,
        patch_level=patch_level,
        tp=tp,
        capture_mode=capture_mode,
        num_layers=NUM_LAYERS,
        num_tokens=max(capture_sizes),
        capture_sizes=tuple(capture_sizes),
        split_ops=SPLIT_OPS,
        stages=stages,
        reasons=reasons,
        pieces=answer["pieces"],
        num_graphs=answer["num_graphs"],
        stopped=stopped,
        seconds=answer["seconds"],
        versions=answer["versions"],
        declared=declared,
        stand_ins=answer["stand_ins"],
        applied=answer["applied"],
    )


def judge(
    answer: dict[str, Any], *, tp: int, capture_mode: CaptureMode
) -> tuple[dict[Stage, Status], dict[Stage, str]]:
    """How each stage ended, with the reason where it did not end well. A stage that was not reached is absent."""
    if answer["import_error"]:
        reason = f"SGLang's compile machinery does not import here: {answer['import_error']}"
        return {Stage.IMPORT: Status.NOT_SUPPORTED_HERE}, {Stage.IMPORT: reason}
    stages = {Stage.IMPORT: Status.OK, Stage.JIT: Status.NOT_SUPPORTED_HERE}
    reasons = {
        Stage.JIT: "no kernel is built: the quantizer's compiled module is never called on fake tensors"
    }
    traced = diagnosis.status(answer["error"])
    stages[Stage.TRACE] = traced
    if traced is not Status.OK:
        reasons[Stage.TRACE] = diagnosis.operation(answer["error"]["message"]) or answer["error"]["type"]
        return stages, reasons
    stages[Stage.COMPILE] = Status.OK
    stages[Stage.CAPTURE] = Status.NOT_SUPPORTED_HERE
    reasons[Stage.CAPTURE] = capture_reason(answer["num_gpus"], tp, capture_mode)
    return stages, reasons


def capture_reason(num_gpus: int, tp: int, capture_mode: CaptureMode) -> str:
    """Why nothing was captured here."""
    if capture_mode is CaptureMode.EAGER:
        return "capture mode eager captures nothing"
    wanted = f"{capture_mode} at tensor parallel {tp} needs {tp} CUDA device{'s' if tp > 1 else ''}"
    if num_gpus < tp:
        return f"{wanted}, and this node has {num_gpus or 'none'}"
    return f"{wanted}, which this node has, but capturing on a GPU is not written yet"
