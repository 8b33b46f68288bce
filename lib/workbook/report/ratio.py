"""A candidate against its baseline: the ratio at each concurrency, its interval, and whether that is a difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean, median

from workbook.intervals import half_width
from workbook.report.style import GOOD, QUIET, WARN
from workbook.report.tables import Cell, Table
from workbook.types import BenchPoint

# what is compared, and whether more of it is better
METRICS = {
    "output_tok_s": ("output tok/s", True),
    "ttft_ms_p50": ("TTFT p50 ms", False),
    "itl_ms_p50": ("ITL p50 ms", False),
}


@dataclass(frozen=True)
class Ratio:
    """Candidate over baseline for one metric at one concurrency, over the repeats that both have.

    Args:
        n: repeats in pairs: the same prompts, measured in turns.
        ratio: the geometric mean of the pairs' ratios; None without a pair.
        interval: its 95 % Student t interval, on the logarithm; None from too few pairs.
    """

    metric: str
    concurrency: int
    baseline: float | None
    candidate: float | None
    n: int
    ratio: float | None
    interval: tuple[float, float] | None

    @property
    def seen(self) -> bool | None:
        """Whether there is a difference: the interval leaves out 1. None where there is no interval."""
        return None if self.interval is None else not self.interval[0] <= 1 <= self.interval[1]

    @property
    def better(self) -> bool:
        """Whether the candidate's side of 1 is the good one."""
        return self.ratio is not None and (self.ratio > 1) == METRICS[self.metric][1]

    @property
    def words(self) -> str:
        """The comparison as a few words."""
        if self.ratio is None:
            return "not measured"
        if self.interval is None:
            return f"{self.n} pair{'s' * (self.n != 1)}: too few to tell"
        return ("better" if self.better else "worse") if self.seen else "no difference seen"


def paired(points: Sequence[BenchPoint], baseline: str, candidate: str) -> list[Ratio]:
    """The ratios of every metric at every concurrency that either label was measured at.

    Repeats count in pairs, since repeat r of both has the same prompts and ran in the same minutes: what drifts
    in the machine cancels, and the interval is that of the pairs' ratio, not of two means.
    """
    return [
        _ratio(
            metric,
            concurrency,
            _values(points, baseline, concurrency, metric),
            _values(points, candidate, concurrency, metric),
        )
        for metric in METRICS
        for concurrency in sorted({point.concurrency for point in points})
    ]


def _values(points: Sequence[BenchPoint], label: str, concurrency: int, metric: str) -> dict[int, float]:
    """By repeat, without those that may not be averaged."""
    return {
        point.repeat: value
        for point in points
        if point.label == label and point.concurrency == concurrency and point.usable
        if (value := getattr(point, metric))
    }


def _ratio(metric: str, concurrency: int, base: dict[int, float], other: dict[int, float]) -> Ratio:
    logs = [log(other[repeat] / base[repeat]) for repeat in sorted(base.keys() & other.keys())]
    half = half_width(logs)
    interval = None if half is None else (exp(mean(logs) - half), exp(mean(logs) + half))
    return Ratio(
        metric,
        concurrency,
        median(base.values()) if base else None,
        median(other.values()) if other else None,
        len(logs),
        exp(mean(logs)) if logs else None,
        interval,
    )


def ratio_table(points: Sequence[BenchPoint], baseline: str, candidate: str) -> Table:
    """Every ratio with its interval and what it says."""
    rows = tuple(
        (
            METRICS[one.metric][0],
            one.concurrency,
            one.baseline,
            one.candidate,
            Cell(f"{one.ratio:.3f}", number=True) if one.ratio is not None else None,
            Cell("{:.3f} to {:.3f}".format(*one.interval), number=True) if one.interval else None,
            one.n,
            _verdict(one),
        )
        for one in paired(points, baseline, candidate)
    )
    columns = ("", "concurrency", baseline, candidate, "ratio", "95 % interval", "pairs", "")
    return Table(columns, rows, f"{candidate} against {baseline}: medians, and the ratio of repeats in pairs")


def _verdict(one: Ratio) -> Cell:
    if not one.seen:
        return Cell(one.words, glyph="○", tone=QUIET)
    return Cell(one.words, glyph="▲" if one.better else "▼", tone=GOOD if one.better else WARN)


def worth(points: Sequence[BenchPoint], baseline: str, candidate: str) -> str:
    """What the candidate is worth in output throughput, in a sentence."""
    found = [one for one in paired(points, baseline, candidate) if one.metric == "output_tok_s" and one.ratio]
    if not found:
        return f"{candidate} and {baseline} have no repeat in common that may be compared."
    told = [one for one in found if one.interval]
    if not told:
        reached = [one.ratio for one in found if one.ratio]
        span = f"{min(reached):.2f} to {max(reached):.2f} times the throughput of {baseline}"
        return f"{candidate} reached {span}; too few repeats to call that a difference."
    parts = [
        f"{one.ratio:.2f} times at concurrency {one.concurrency:,} ({one.interval[0]:.2f} to {one.interval[1]:.2f})"
        for one in told
        if one.seen and one.interval
    ]
    same = [f"{one.concurrency:,}" for one in told if not one.seen]
    sentences = [f"{candidate} reached {', '.join(parts)} the throughput of {baseline}."] if parts else []
    sentences += [f"No difference seen at concurrency {', '.join(same)}."] if same else []
    return " ".join(sentences)
