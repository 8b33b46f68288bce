"""What notebooks 01 and 02 show: outcomes of traces, their call chains, the patches."""

from collections.abc import Sequence
from dataclasses import replace

from workbook.boundary.levels import CALL_LEVELS, LEVELS
from workbook.boundary.remedy_table import REMEDIES, one_line
from workbook.report.chain import chain_chart
from workbook.report.figure import Figure
from workbook.report.group import Group
from workbook.report.style import QUIET
from workbook.report.tables import Cell, Table, diff_block, key_value_table, outcome_table, status_cell
from workbook.types import (
    Blocker,
    Declared,
    PatchDiff,
    ProcessState,
    RemedyOutcome,
    Status,
    TraceOutcome,
)

_SAME = Cell(
    f"as level {CALL_LEVELS[-1].level}: what it patches besides is SGLang's sparse attention",
    glyph="·",
    tone=QUIET,
)


def declared(found: TraceOutcome) -> Table:
    """What the trace was told in the GPU's place; everything else was the installed code."""
    return declared_table(found.declared, found.versions, found.stand_ins)


def declared_table(told: Declared, versions: dict[str, str], stood_in: Sequence[str]) -> Table:
    """The inputs, what was declared, what was stood in for, and the versions that were really there."""
    rows = {
        "inputs": f"{told.inputs}: {', '.join(told.input_shapes)}",
        "compute capability (declared)": ".".join(map(str, told.compute_capability)),
        f"CUDA version ({told.cuda_version_source})": told.cuda_version,
        "FLASHINFER_CUDA_ARCH_LIST": told.arch_list,
        "CUDA_HOME": told.cuda_home or "not set",
        "stood in for": "; ".join(stood_in) or "nothing",
        **{f"installed {name}": version for name, version in versions.items()},
    }
    return key_value_table(rows, "Declared in the GPU's place, and what is installed")


def outcomes(found: Sequence[TraceOutcome]) -> Table:
    """How each trace ended, and which levels are the same to such a call."""
    table = outcome_table(found, LEVELS)
    traced = {one.patch_level for one in found}
    same = tuple(
        (str(one.level), one.name, "–", _SAME, *["–"] * (len(table.columns) - 4))
        for one in LEVELS
        if one not in CALL_LEVELS and CALL_LEVELS[-1].level in traced and one.level not in traced
    )
    return replace(table, rows=table.rows + same)


def chain(found: Sequence[TraceOutcome]) -> Figure:
    """The call chain: of one trace in lanes; of several a column a level, in the state that a server is in."""
    if len(found) > 1:
        found = [one for one in found if one.process_state is ProcessState.WARM] or found
    return chain_chart(found, levels=LEVELS)


def blockers(found: Sequence[Blocker]) -> Table:
    """Everything in the way, in the order in which a trace meets it, and how each was passed to see the next."""
    rows = tuple(
        (
            one.order,
            Cell(one.operation or "–", code=bool(one.operation)),
            Cell(one.blamed or "–", code=bool(one.blamed)),
            status_cell(one.status, hint=one.message),
            f"{one.passed}: {one.how}",
        )
        for one in found
    )
    stops = sum(one.status is not Status.OK for one in found)
    return Table(("", "operation", "blamed", "status", "passed by"), rows, f"{stops} stops, one process")


def remedies(found: Sequence[RemedyOutcome]) -> Table:
    """The remedies side by side: does fullgraph pass, what does it cost, what does it risk."""
    table = {one.name: one for one in REMEDIES}
    rows = []
    for one in found:
        remedy = table.get(one.remedy)  # a record may be older than the table
        seen = [f"Seen: {'; '.join(one.observed)}."] if one.observed else []
        rows.append(
            (
                Cell(one.remedy, hint=remedy.applied if remedy else ""),
                status_cell(one.status, hint=one.message),
                _stop(one),
                _overhead(one),
                one.seconds,
                " ".join([f"{remedy.risk}.", *seen] if remedy else seen),
            )
        )
    columns = ("remedy", "fullgraph", "stops at", "cost, µs a call", "trace, s", "risk")
    return Table(columns, tuple(rows), _costs_caption(found))


def _stop(found: RemedyOutcome) -> Cell:
    if found.operation:
        return Cell(found.operation, code=True)
    return Cell("–" if found.status is Status.OK else one_line(found.message))


def _overhead(found: RemedyOutcome) -> Cell:
    """The median, and the range of eight tenths of the rounds."""
    if found.overhead_us_p50 is None:
        return Cell("–", hint=found.cost_note, number=True)
    spread = f"{found.overhead_us_p10:.1f} to {found.overhead_us_p90:.1f}"
    return Cell(f"{found.overhead_us_p50:.1f} ({spread})", hint=found.cost_note, number=True)


def _costs_caption(found: Sequence[RemedyOutcome]) -> str:
    what = "The remedies, each in a warm process of its own"
    measured = next((one for one in found if one.bare_us_p50 is not None), None)
    if measured is None:
        return f"{what}; no call was timed"
    return (
        f"{what}. Cost of an eager call over the bare one ({measured.bare_us_p50:.1f} µs): median and p10 to p90 of "
        f"{measured.cost_calls:,} calls in turn, {measured.cost_note}: no figure speaks for a GPU"
    )


def diffs(found: Sequence[PatchDiff]) -> Group:
    """What each patch changes, folded, or the sentence with which it refuses."""
    return Group([refusal(one) if one.refused else diff_block(one, expanded=False) for one in found])


def refusal(diff: PatchDiff) -> Table:
    """A patch that does not know the installed code."""
    return key_value_table({diff.target: diff.refused}, f"{diff.patch} refuses")


def stand_ins(found: Sequence[TraceOutcome], listed: Sequence[Blocker]) -> Table:
    """What each trace, and the list of blockers, had to stand in for: no kernel is built or run."""
    rows = {
        f"level {one.patch_level}, {one.process_state}": "; ".join(one.stand_ins) or "nothing"
        for one in found
    }
    rows["everything in the way"] = "; ".join(listed[-1].stand_ins) if listed else "nothing"
    return key_value_table(rows, "Stood in for")
