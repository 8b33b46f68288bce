"""What notebook 03 and the report show of a forecast."""

from workbook.boundary.levels import LEVELS
from workbook.report import forecast_words as words
from workbook.report.chain import chain_chart
from workbook.report.forecast_check import check
from workbook.report.group import Displayed, Group, Markup
from workbook.report.style import BAD, GOOD, QUIET, WARN
from workbook.report.tables import Cell, Table, key_value_table
from workbook.report.text import escape
from workbook.types import Forecast, Foretold, Measurement, ModelBlocker, TraceOutcome

_LOOKS = {
    Foretold.TRACES: ("✓", GOOD),
    Foretold.STOPS: ("✗", BAD),
    Foretold.SWITCHED_OFF: ("○", QUIET),
    Foretold.CANNOT_TELL: ("?", WARN),
}
_HITS = {True: ("✓", GOOD), False: ("✗", BAD), None: ("·", QUIET)}


def summary(found: Forecast) -> Table:
    """The answer, and what it is about and rests on."""
    glyph, tone = _LOOKS[found.outcome]
    answer = Cell(found.outcome.replace("_", " "), glyph=glyph, tone=tone, hint=found.reason)
    return key_value_table({"forecast": answer, **words.facts(found)}, words.sentence(found))


def blockers(found: Forecast) -> Displayed:
    """Every stop in order with what gets past it, then the call chain of each."""
    there = words.stops(found)
    if not there:
        return Markup(
            "<p>Nothing that was traced is in the way.</p>" if found.graphs else "<p>Nothing was traced.</p>"
        )
    rows = tuple(
        (
            stop.order,
            Cell(words.stopped_at(stop), code=True, hint=stop.message),
            Cell(stop.layer or "–", code=True),
            Cell(stop.blamed or "–", code=True),
            stop.past,
        )
        for stop in there
    )
    table = Table(("", "operation", "layer", "blamed", "what gets past it"), rows, f"In the way: {len(rows)}")
    return Group(
        [table, *(chain_chart([_traced(found, stop)], levels=LEVELS) for stop in there if stop.frames)]
    )


def _traced(found: Forecast, stop: ModelBlocker) -> TraceOutcome:
    """A stop as the trace that ended there, which is what a chain is drawn of."""
    shared = stop.model_dump(include=set(TraceOutcome.model_fields))
    # The lines are in the frames; the chart knows the blamed one by its function.
    shared["blamed"] = stop.blamed and stop.blamed.rpartition(":")[0]
    return TraceOutcome.model_validate(
        shared | {"patch_level": found.patch_level, "declared": found.declared, "applied": found.applied}
    )


def beside(found: Forecast, measured: Measurement) -> Displayed:
    """The forecast beside what the real server did, where there was one of the same launch."""
    checked = check(found, measured)
    if checked is None:
        return Markup(
            f"<p>No server of {escape(found.profile)} was asked here to capture piecewise at level "
            f"{found.patch_level}: the forecast stands alone.</p>"
        )
    glyph, tone = _HITS[checked.hit]
    rows = {
        "foretold": words.sentence(found),
        checked.server: checked.real,
        "the forecast": Cell(checked.word, glyph=glyph, tone=tone),
    }
    return key_value_table(rows, "Forecast and outcome")


def stood_in(found: Forecast) -> Table:
    """What was declared or stood in for: on these the answer rests."""
    rows = tuple((number, one) for number, one in enumerate(found.stand_ins, start=1)) or (("", "nothing"),)
    return Table(("", "stood in for"), rows, "No weights, no kernels, no GPU: what stood in for them")
