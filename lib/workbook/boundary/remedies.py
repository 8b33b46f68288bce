"""The usual remedies for a call that Dynamo cannot trace, each tried on FlashInfer's FP4 quantizer."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch
from workbook.boundary.remedy_table import REMEDIES, one_line
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import ProcessState, Remedy, RemedyOutcome, Stack, Status

QUANTIZER = "flashinfer.fp4_quantize"
TIMEOUT_S = 300


def compare(
    node: NodeConnection,
    stack: Stack,
    *,
    arch: str = "sm120",
    raw_dir: Path | None = None,
    on_done: Callable[[RemedyOutcome], None] = lambda outcome: None,
) -> list[RemedyOutcome]:
    """Every remedy of the table on the unpatched quantizer, each in a fresh warm process; in the table's order.

    The traces run as many at once as there are cores. What a call costs is measured after them, with nothing beside it,
    in one process for all that passed: the calls take turns with the bare one.

    Args:
        raw_dir: where the probe's own output is kept.
        on_done: called with each outcome as it is known, before its cost is.

    Raises:
        UsageError: unknown architecture, FlashInfer or torch missing.
        WorkbookError: the probe itself failed.
    """
    spec = {"entry": QUANTIZER, "arch": check_arch(arch)}

    def probe(asked: dict[str, Any], name: str) -> Any:
        raw = raw_dir / f"remedy-{name}-{arch}" if raw_dir else None
        return run_probe(node, stack, "remedies.py", [json.dumps(spec | asked)], timeout_s=TIMEOUT_S, raw=raw)

    def one(remedy: Remedy) -> RemedyOutcome:
        done = outcome(remedy.name, arch, probe({"remedy": remedy.name}, remedy.name))
        on_done(done)
        return done

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        traced = list(pool.map(one, REMEDIES))
    passed = [one.remedy for one in traced if one.status is Status.OK]
    return with_costs(traced, probe({"costs": passed}, "costs") if passed else {})


def outcome(name: str, arch: str, answer: dict[str, Any]) -> RemedyOutcome:
    """The record of what the probe answered; a remedy that cannot be applied is not supported here."""
    told = diagnosis.fields(answer.get("error"))
    if answer["refused"]:
        told |= {"status": Status.NOT_SUPPORTED_HERE, "message": answer["refused"]}
    return RemedyOutcome(
        remedy=name,
        entry=QUANTIZER,
        arch=arch,
        process_state=ProcessState.WARM,
        blamed=diagnosis.blamed(told["frames"], QUANTIZER) if answer.get("error") else None,
        output_shapes=answer.get("output_shapes", ()),
        seconds=answer.get("seconds", 0.0),
        versions=answer["versions"],
        declared=answer["declared"],
        stand_ins=answer["stand_ins"],
        observed=tuple(map(observation, answer["observed"])),
        **told,
    )


def observation(seen: dict[str, Any]) -> str:
    """What was observed, in words; of a further trace also how it ended."""
    if not seen["traced"]:
        return str(seen["what"])
    if seen["error"] is None:
        return f"{seen['what']} passes"
    message = seen["error"]["message"]
    return f"{seen['what']} stops at {diagnosis.operation(message) or one_line(message)}"


def with_costs(traced: Sequence[RemedyOutcome], costs: dict[str, Any]) -> list[RemedyOutcome]:
    """The outcomes with what a call costs, or why that is not known.

    Args:
        costs: what the probe measured of those that passed: microseconds.
    """
    return [RemedyOutcome.model_validate(one.model_dump() | _cost(one, costs)) for one in traced]


def _cost(traced: RemedyOutcome, costs: dict[str, Any]) -> dict[str, Any]:
    if traced.status is not Status.OK:
        return {"cost_note": "not measured: it does not pass"}
    if "failed" in costs:
        return {"cost_note": f"not measured: {costs['failed']}"}
    return {
        **costs["overheads"][traced.remedy],
        "bare_us_p50": costs["bare_us_p50"],
        "cost_calls": costs["calls"],
        "cost_note": "CPU tensors, a kernel that does nothing, compute capability declared",
    }
