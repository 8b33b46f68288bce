"""Level 4 on a real GPU: does the operator give what the bare call gives, and what does it cost?"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbook.boundary.entries import entry
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import Stack, Status, ValueOutcome

TIMEOUT_S = 1800  # FlashInfer builds the kernel on first use
CUSTOM_OP = 4
_BUILD = ("Ninja build failed", "ninja: build stopped", "nvcc")


def compare_values(
    node: NodeConnection,
    stack: Stack,
    paths: Sequence[str],
    raw_dir: Path | None = None,
    on_done: Callable[[ValueOutcome], None] = lambda outcome: None,
) -> list[ValueOutcome]:
    """Each entry point in a process of its own, one after another: their costs are timed.

    Raises:
        UsageError: an unknown entry, or a stack that is not set up.
        WorkbookError: a probe failed.
    """
    for path in paths:
        entry(path)
    found = []
    for path in paths:
        answer = run_probe(
            node,
            stack,
            "values.py",
            [json.dumps({"entry": path, "timing": True})],
            timeout_s=TIMEOUT_S,
            patch_level=CUSTOM_OP,
            raw=raw_dir / f"values-{path}" if raw_dir else None,
        )
        found.append(outcome(path, answer))
        on_done(found[-1])
    return found


def outcome(path: str, answer: dict[str, Any]) -> ValueOutcome:
    """The record of what the probe answered."""
    kept = {name: value for name, value in answer.items() if name in ValueOutcome.model_fields}
    status, message = judge(answer)
    return ValueOutcome(entry=path, status=status, message=message, **kept)


def judge(answer: dict[str, Any]) -> tuple[Status, str]:
    """How the comparison ended, and why.

    An output that keeps its poison is wrong, whatever else is equal: on an architecture for which a kernel's body was
    not compiled it is launched, writes nothing, and reports nothing.
    """
    if failed := answer["failed"]:
        built = any(word in failed for word in _BUILD)
        return (Status.JIT_FAILED if built else Status.NOT_SUPPORTED_HERE), failed
    untouched = [number for number, share in enumerate(answer["unwritten"]) if share == 1.0]
    if untouched:
        which = " and ".join(str(number) for number in untouched)
        return Status.WRONG_OUTPUT, f"the kernel wrote nothing to output {which}, and reported no error"
    if not answer["fake_equal"]:
        return Status.WRONG_OUTPUT, "the fake's shapes, strides or dtypes are not the real call's"
    if not answer["equal"]:
        why = (
            "the operator's values differ" if answer["repeatable"] else "the bare call does not repeat itself"
        )
        return Status.WRONG_OUTPUT, why
    return Status.OK, ""
