"""What a comparison is shown by: the two servers, their captures, the accuracy gate, what the candidate is worth."""

from workbook.report import baseline
from workbook.report.accuracy import accuracy_tables
from workbook.report.group import Displayed, Group, Markup
from workbook.report.ratio import ratio_table
from workbook.report.text import escape
from workbook.types import Measurement, Provenance

NOTHING = "<p>Nothing was measured.</p>"


def accuracy(found: Measurement) -> Displayed:
    """The gate: the candidate's answers against the baseline's, with the baseline's own noise as the yardstick."""
    parts = [part for one in found.accuracy for part in accuracy_tables(one)]
    return Group(parts) if parts else Markup("<p>No answers were compared.</p>")


def ratios(found: Measurement) -> Displayed:
    """Throughput and latency of the candidate over the baseline, with intervals."""
    labels = list(dict.fromkeys(point.label for point in found.points))
    if len(labels) < 2:
        return Markup("<p>There is no candidate that was measured.</p>")
    return Group([ratio_table(found.points, labels[0], other) for other in labels[1:]])


def throughput(found: Measurement, caption: str) -> Displayed:
    """Throughput against concurrency, of both."""
    return baseline.throughput(found, caption) if found.points else Markup(NOTHING)


def latency(found: Measurement) -> Displayed:
    """TTFT and ITL of both."""
    return baseline.latency(found) if found.points else Markup(NOTHING)


def repeats(found: Measurement) -> Displayed:
    """How sure each point is."""
    return baseline.repeats(found) if found.ends else Markup(NOTHING)


def everything(found: Measurement, caption: str) -> list[Displayed]:
    """All of it, for the report."""
    parts = [baseline.servers(found), baseline.capture(found, caption), accuracy(found)]
    if found.points:
        parts += [throughput(found, caption), ratios(found), latency(found), repeats(found)]
    return [*parts, baseline.telemetry(found)]


def recorded(provenance: Provenance, found: Measurement) -> Group:
    """A comparison that was measured elsewhere or earlier, with its provenance before everything else."""
    where = f"<p><strong>{escape(provenance.sentence)}.</strong> {escape(provenance.note)}</p>"
    return Group([Markup(where), *everything(found, f"{provenance.sentence}.")])
