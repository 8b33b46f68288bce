"""What notebook 04 shows: a campaign's records side by side. A part without records says so."""

from collections.abc import Sequence

from workbook.report import baseline, boundary, capture, compare
from workbook.report import forecast as forecasts
from workbook.report.evidence import TRACES, Evidence, Served, anchor, outcomes_of, stage_outcomes
from workbook.report.group import Displayed, Group, Markup
from workbook.report.tables import Table, outcome_matrix
from workbook.report.text import escape
from workbook.types import Status, TraceOutcome

LAST_FRAMES = 4


def verdict(sentences: Sequence[str]) -> Markup:
    """The answer, first of all."""
    return Markup(
        f'<blockquote class="wb-verdict">{"".join(f"<p>{escape(one)}</p>" for one in sentences)}</blockquote>'
    )


def missing(what: str) -> Markup:
    """A gap, marked."""
    return Markup(f"<p><em>Not run in this campaign: {escape(what)}.</em></p>")


def matrix(found: Evidence) -> Table:
    """Level by stage; a cell links to the lines that decided it."""
    return outcome_matrix(stage_outcomes(found))


def outcomes(found: Evidence) -> Displayed:
    """Every trace, cold and warm."""
    return boundary.outcomes(found.outcomes) if found.outcomes else missing("the patch levels")


def stops(found: Evidence) -> Group | Markup:
    """The deciding lines of every trace that did not pass."""
    failed = [one for one in found.outcomes if one.status is not Status.OK]
    return Group([stop(one) for one in failed]) if failed else missing("a trace that stopped")


def stop(outcome: TraceOutcome) -> Markup:
    """One trace's last frames and Dynamo's words, folded, under the place that the matrix links to."""
    frames = "\n".join(
        f"{frame.file}:{frame.line} in {frame.function}\n    {frame.code}"
        for frame in outcome.frames[-LAST_FRAMES:]
    )
    kind = outcome.break_id or outcome.status
    title = f"level {outcome.patch_level}, {outcome.process_state}: {outcome.operation} ({kind})"
    return Markup(
        # A browser opens a closed <details> only for a place inside it.
        f"<details><summary>{escape(title)}</summary>"
        f'<pre id="{escape(anchor(outcome))}">{escape(frames)}\n\n{escape(outcome.message)}</pre></details>'
    )


def chain(found: Evidence) -> Displayed:
    """How far each level gets, as its warm process shows it; a figure a run."""
    traced = [
        outcomes for run in found.runs if run.record.notebook == TRACES and (outcomes := outcomes_of(run))
    ]
    return Group([boundary.chain(one) for one in traced]) if traced else missing("the patch levels")


def blockers(found: Evidence) -> Displayed:
    """Everything that is in the way of the unpatched call."""
    return boundary.blockers(found.blockers) if found.blockers else missing("the list of blockers")


def remedies(found: Evidence) -> Displayed:
    """The usual remedies on the quantizer, side by side."""
    return boundary.remedies(found.remedies) if found.remedies else missing("the comparison of the remedies")


def forecast(found: Evidence) -> Displayed:
    """What was foretold of the whole model's capture, and what is in its way."""
    parts = [part for one in found.forecasts for part in (forecasts.summary(one), forecasts.blockers(one))]
    return Group(parts) if parts else missing("03_piecewise")


def pieces(found: Evidence) -> Displayed:
    """What SGLang's compile step made of the small module."""
    return Group([capture.summary(one) for one in found.splits]) if found.splits else missing("03_piecewise")


def throughput(found: Evidence) -> Displayed:
    """The baseline's throughput against concurrency, and its latencies; a figure a run."""
    parts: list[Displayed] = []
    for one in found.baselines:
        if one.found.points:
            parts.append(baseline.throughput(one.found, _caption(one)))
            parts.append(baseline.latency(one.found))
    return Group(parts) if parts else missing("00_baseline")


def _caption(one: Served) -> str:
    return baseline.caption(one.found, one.run.env, one.run.record.started)


def comparison(found: Evidence) -> Displayed:
    """Candidate against baseline: capture, accuracy, what it is worth; a group a run."""
    parts: list[Displayed] = []
    for one in found.comparisons:
        parts += compare.everything(one.found, _caption(one))
    return Group(parts) if parts else missing("03_piecewise with its servers")


def diffs(found: Evidence) -> Displayed:
    """What each patch changes in the installed FlashInfer."""
    return boundary.diffs(found.diffs) if found.diffs else missing("the diffs of the patches")


def environment(found: Evidence) -> Table:
    """Where the campaign ran."""
    return baseline.environment(found.env)


def runs(found: Evidence) -> Table:
    """The runs that the report was made from."""
    rows = tuple(
        (
            run.id,
            run.record.status.value,
            f"{(run.record.ended - run.record.started).total_seconds():.0f} s",
            run.record.verdict,
        )
        for run in found.runs
    )
    return Table(
        ("run", "status", "took", "verdict"),
        rows,
        "Runs; each keeps its raw output in its folder",
    )
