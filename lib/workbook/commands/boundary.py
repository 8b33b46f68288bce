"""`workbook trace` and `workbook blockers`: what Dynamo makes of a call."""

import json
from pathlib import Path
from typing import Annotated

import typer

from workbook import catalog
from workbook.boundary.blockers import blockers as find_blockers
from workbook.boundary.entries import ALL, ENTRIES, paths
from workbook.boundary.trace import TraceRequest
from workbook.boundary.trace import trace as trace_call
from workbook.boundary.values import compare_values
from workbook.commands.console import (
    ArchOption,
    JsonOption,
    LevelOption,
    NodeOption,
    StackOption,
    chain_lines,
    err,
    out,
)
from workbook.node.connect import connect
from workbook.types import ProcessState, Stack, Status, TraceOutcome, ValueOutcome


def trace(
    entry: Annotated[str, typer.Argument(help=f"An entry point, such as {ENTRIES[0].path}.")],
    arch: ArchOption = "sm120",
    patch_level: LevelOption = 0,
    process: Annotated[
        ProcessState, typer.Option(help="Fresh, or after an eager call as a server makes.")
    ] = ProcessState.COLD,
    stack: StackOption = "embedded",
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """What Dynamo makes of one call under fullgraph, in a process of its own."""
    request = TraceRequest(entry, arch, patch_level, process)
    found = trace_call(connect(node), catalog.load(Stack, stack), request)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _print_trace(found)


def blockers(
    entry: Annotated[str, typer.Argument(help="An entry point, or with --inputs any MODULE:FUNCTION.")],
    arch: ArchOption = "sm120",
    inputs: Annotated[
        Path | None, typer.Option(help="A Python file whose inputs() gives the arguments.")
    ] = None,
    stack: StackOption = "embedded",
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Every operation that cannot be traced, in order, from one command."""
    connection, versions = connect(node), catalog.load(Stack, stack)
    found = find_blockers(connection, versions, entry, arch=arch, inputs=inputs, on_layer=err.print)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
        return
    for one in found:
        stopped = f"{one.operation} in {one.blamed} ({one.break_id})" if one.status is not Status.OK else "ok"
        out.print(f"{one.order:2}  {stopped}\n    {one.passed}: {one.how}")
    for stood_in in found[-1].stand_ins:
        out.print(f"stood in for: {stood_in}")


def values(
    entry: Annotated[str, typer.Argument(help="An entry point, or all.")] = ALL,
    stack: StackOption = "embedded",
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Level 4 against the bare call on the node's GPU: values bit for bit on poisoned outputs, and the cost."""
    tell = (lambda one: None) if as_json else _print_values
    found = compare_values(connect(node), catalog.load(Stack, stack), paths(entry), on_done=tell)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=1))


def _print_values(one: ValueOutcome) -> None:
    cost = (
        f", {one.overhead_us_p50:+.1f} µs on {one.bare_us_p50:.1f}" if one.overhead_us_p50 is not None else ""
    )
    out.print(f"{one.entry}: {one.status}{cost}{': ' if one.message else ''}{one.message}")


def _print_trace(found: TraceOutcome) -> None:
    told = found.declared
    out.print(f"{found.entry} at patch level {found.patch_level}, {found.process_state}: {found.status}")
    for line in chain_lines(found.frames):
        out.print(f"  {line}")
    if found.operation:
        out.print(f"stops at {found.operation} ({found.break_id or 'no break id'}), in {found.blamed}")
    out.print(
        f"{told.inputs}; compute capability {told.compute_capability[0]}.{told.compute_capability[1]} declared, "
        f"CUDA {told.cuda_version} {told.cuda_version_source}; "
        + ", ".join(f"{name} {version}" for name, version in found.versions.items())
    )
