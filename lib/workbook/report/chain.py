"""The call chain of a trace as a figure: what it found, in words, picture and data."""

from collections.abc import Sequence

import pandas as pd

from workbook.errors import WorkbookError
from workbook.report.chain_picture import PASSED, columns, is_blamed, lanes, steps, stop
from workbook.report.figure import Figure, to_svg
from workbook.report.style import LANE_NAMES
from workbook.types import PatchLevel, TraceOutcome


def chain_chart(
    outcomes: Sequence[TraceOutcome], *, levels: Sequence[PatchLevel] = (), caption: str = ""
) -> Figure:
    """One outcome as frames in lanes; several as one column each, so that one sees how far each gets.

    Args:
        outcomes: traces of one call on one set of versions.
        levels: the patch table, for the names of the levels.
        caption: what to say beyond the call, the versions and how to read the chart.

    Raises:
        WorkbookError: there is no outcome, or they do not belong on one chart.
    """
    if not outcomes:
        raise WorkbookError("There is no trace to draw.", "Run `workbook trace` or notebook 01 first.")
    first = outcomes[0]
    if any((o.entry, o.arch, o.versions) != (first.entry, first.arch, first.versions) for o in outcomes):
        raise WorkbookError(
            "These traces are of different calls, architectures or versions, so one chart would mislead.",
            "Draw a chart for each, or compare them in `outcome_table`.",
        )
    names = {level.level: level.name for level in levels}
    picture = lanes(first) if len(outcomes) == 1 else columns(outcomes, names)
    title = _title(outcomes, names)
    return Figure(title, to_svg(picture), _alt(title, outcomes), _caption(outcomes, caption), _data(outcomes))


def _title(outcomes: Sequence[TraceOutcome], names: dict[int, str]) -> str:
    """The finding: what gets through, and where the rest stops."""
    first = outcomes[0]
    if len(outcomes) == 1:
        name = _name(first.patch_level, names).capitalize()
        if first.status in PASSED:
            return f"{name}: the call traces to its end"
        origin = f", reached from {first.blamed}" if first.blamed else ""
        return f"{name} stops at {stop(first)}{origin}"
    tried = sorted({outcome.patch_level for outcome in outcomes})
    through = [n for n in tried if all(o.status in PASSED for o in outcomes if o.patch_level == n)]
    stopped = [outcome for outcome in outcomes if outcome.status not in PASSED]
    if not stopped:
        return "The call traces to its end at every level tried"
    where = f"{_name(stopped[0].patch_level, names)} stops at {stop(stopped[0])}"
    if not through:
        return f"No level tried gets the call through: {where}"
    return f"{_name(through[0], names).capitalize()} is the first to get the call through; {where}"


def _name(level: int, names: dict[int, str]) -> str:
    return f"level {level} ({names[level]})" if level in names else f"level {level}"


def _caption(outcomes: Sequence[TraceOutcome], caption: str) -> str:
    first = outcomes[0]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(first.versions.items()))
    said = [caption, f"{first.entry} for {first.arch} on {first.declared.inputs}; {versions}."]
    if any(is_blamed(frame, outcome) for outcome in outcomes for frame in outcome.frames):
        said.append("◀ marks the frame that is to blame.")
    if any(step.frame is None for outcome in outcomes for step in steps(outcome)):
        said.append("A short bar stands for frames of Dynamo's own.")
    if len(outcomes) > 1:
        said.append("A marker without a name is the same frame as in the column to its left.")
    return " ".join(filter(None, said))


def _alt(title: str, outcomes: Sequence[TraceOutcome]) -> str:
    told = []
    for outcome in outcomes:
        names = " → ".join([*(step.frame.function for step in steps(outcome) if step.frame), stop(outcome)])
        told.append(f"level {outcome.patch_level}, {outcome.process_state.value}: {names}")
    return f"{title}. The calls: {'; '.join(told)}."


def _data(outcomes: Sequence[TraceOutcome]) -> pd.DataFrame:
    """Every frame, the collapsed ones too. An outcome without frames keeps one row."""
    return pd.DataFrame(
        {
            "level": outcome.patch_level,
            "process": outcome.process_state.value,
            "step": step,
            "lane": LANE_NAMES[frame.lane] if frame else None,
            "function": frame.function if frame else None,
            "place": f"{frame.file}:{frame.line}" if frame else None,
            "code": frame.code if frame else None,
        }
        for outcome in outcomes
        for step, frame in enumerate(outcome.frames or (None,), start=1)
    )
