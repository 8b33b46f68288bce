"""What Dynamo makes of one call under `fullgraph=True`: each trace in a process of its own."""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch, entry
from workbook.boundary.levels import level
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import ProcessState, Stack, TraceOutcome

TIMEOUT_S = 300


@dataclass(frozen=True)
class TraceRequest:
    """What to trace: an entry point, the declared architecture, the patch level and the process's history."""

    entry: str = "flashinfer.fp4_quantize"
    arch: str = "sm120"
    patch_level: int = 0
    process_state: ProcessState = ProcessState.COLD

    @property
    def name(self) -> str:
        return f"{self.entry}-{self.arch}-level{self.patch_level}-{self.process_state}"


def trace(
    node: NodeConnection, stack: Stack, request: TraceRequest, raw_dir: Path | None = None
) -> TraceOutcome:
    """Trace one call on `node` and say how it ended; a crash of Dynamo is an outcome, not an error.

    Args:
        raw_dir: where the probe's own output is kept.

    Raises:
        UsageError: unknown entry, architecture or level, FlashInfer or torch missing, or a patch refused.
        WorkbookError: the probe itself failed.
    """
    entry(request.entry)
    check_arch(request.arch)
    level(request.patch_level)
    spec = {
        "entry": request.entry,
        "arch": request.arch,
        "process_state": request.process_state,
    }
    answer = run_probe(
        node,
        stack,
        "trace.py",
        [json.dumps(spec)],
        timeout_s=TIMEOUT_S,
        patch_level=request.patch_level,
        env={"WORKBOOK_STAND_IN_KERNELS": "1"},
        raw=raw_dir / request.name if raw_dir else None,
    )
    return outcome(request, answer)


def outcome(request: TraceRequest, answer: dict[str, Any]) -> TraceOutcome:
    """The record of what the probe answered."""
    told = diagnosis.fields(answer["error"])
    return TraceOutcome(
        entry=request.entry,
        arch=request.arch,
        patch_level=request.patch_level,
        process_state=request.process_state,
        blamed=diagnosis.blamed(told["frames"], request.entry) if answer["error"] else None,
        output_shapes=answer["output_shapes"],
        seconds=answer["seconds"],
        versions=answer["versions"],
        declared=answer["declared"],
        stand_ins=answer["stand_ins"],
        applied=answer["applied"],
        **told,
    )


def trace_all(
    node: NodeConnection,
    stack: Stack,
    requests: Iterable[TraceRequest],
    raw_dir: Path | None = None,
    on_done: Callable[[TraceOutcome], None] = lambda outcome: None,
) -> list[TraceOutcome]:
    """Several traces, each in a fresh process, as many at once as there are cores; in the order asked for."""

    def one(request: TraceRequest) -> TraceOutcome:
        done = trace(node, stack, request, raw_dir)
        on_done(done)
        return done

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(one, requests))
