"""What notebooks 01 and 02 show: outcomes of traces, their call chains, the patches."""

from collections.abc import Sequence

from workbook.boundary.levels import LEVELS
from workbook.report.chain import chain_chart
from workbook.report.figure import Figure
from workbook.report.group import Group
from workbook.report.tables import Cell, Table, diff_block, key_value_table, outcome_table, status_cell
from workbook.types import Blocker, Declared, PatchDiff, ProcessState, Status, TraceOutcome


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
    """How each trace ended."""
    return outcome_table(found, LEVELS)


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
