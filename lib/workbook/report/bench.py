"""Benchmark points to numbers: what may be averaged, how sure it is, and what it says in one sentence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

import pandas as pd

from workbook.errors import WorkbookError
from workbook.intervals import half_width

SAME_WITHIN = 0.05
"""Throughputs within this share of each other count as the same in a title."""


@dataclass(frozen=True)
class Summary:
    """The repeats of one label at one concurrency; both tuples are empty where nothing was measured.

    Args:
        values: output tokens/s of the repeats that may be averaged, ascending.
        failed: output tokens/s of those that may not, since requests failed.
    """

    label: str
    concurrency: int
    values: tuple[float, ...]
    failed: tuple[float, ...]

    @property
    def median(self) -> float | None:
        """Output tokens/s, or None without a usable repeat."""
        return median(self.values) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Student t interval of the mean in output tokens/s, or None from too few repeats."""
        half = half_width(self.values)
        return None if half is None else (mean(self.values) - half, mean(self.values) + half)


def usable(points: pd.DataFrame) -> "pd.Series[bool]":
    """Which repeats may be averaged: every request came back whole, and something was generated."""
    whole = (points["failed"] == 0) & (points["completed"] == points["requested"])
    if "short" in points:  # not in what was recorded before it was counted
        whole &= points["short"] == 0
    return whole & (points["output_tok_s"] > 0)


def labels_of(points: pd.DataFrame, baseline: str | None = None) -> list[str]:
    """The labels, in order of first appearance, the baseline first.

    Raises:
        WorkbookError: there is nothing to show, or nothing to compare with.
    """
    if points.empty:
        raise WorkbookError("There is no benchmark point to show.", "Run a notebook that measures first.")
    labels = [str(label) for label in points["label"].unique()]
    if baseline is not None and baseline not in labels:
        raise WorkbookError(
            f"No benchmark point is labelled {baseline!r}.", f"There is: {', '.join(labels)}."
        )
    return sorted(labels, key=lambda label: label != baseline) if baseline else labels


def summarise(
    points: pd.DataFrame, baseline: str | None = None, planned: Iterable[int] = ()
) -> dict[str, list[Summary]]:
    """A summary for each label and each concurrency that was measured with any label, or planned.

    Args:
        points: one row per BenchPoint.
        baseline: the label that comes first; by default the first to appear.
        planned: concurrencies that should be there.
    """
    good = usable(points)
    concurrencies = sorted({int(c) for c in points["concurrency"]} | set(planned))
    return {
        label: [
            Summary(
                label,
                concurrency,
                tuple(sorted(float(v) for v in points[here & good]["output_tok_s"])),
                tuple(float(v) for v in points[here & ~good]["output_tok_s"]),
            )
            for concurrency in concurrencies
            for here in [(points["label"] == label) & (points["concurrency"] == concurrency)]
        ]
        for label in labels_of(points, baseline)
    }


def ratios(base: Sequence[Summary], other: Sequence[Summary]) -> list[tuple[int, float | None]]:
    """Median over median at each concurrency; None where either is missing."""
    return [
        (a.concurrency, b.median / a.median if a.median and b.median else None)
        for a, b in zip(base, other, strict=True)
    ]


def finding(summaries: dict[str, list[Summary]]) -> str:
    """What the points say, in one sentence."""
    base, *others = summaries.values()
    if not any(row.values for rows in summaries.values() for row in rows):
        return "No throughput to report: requests failed in every repeat"
    if not others:
        return _growth([row for row in base if row.values])
    best = max(others, key=lambda rows: max((ratio or 0 for _, ratio in ratios(base, rows)), default=0))
    return f"{f'Best of {len(others)}: ' if len(others) > 1 else ''}{_comparison(base, best)}"


def _growth(rows: Sequence[Summary]) -> str:
    speed = {row.concurrency: row.median or 0 for row in rows}
    last, peak = rows[-1].concurrency, max(speed, key=lambda c: speed[c])
    enough = (1 - SAME_WITHIN) * speed[peak]
    if len(rows) == 1:
        return f"{speed[last]:,.0f} tok/s at concurrency {last:,}"
    if speed[last] < enough:
        return (
            f"Throughput peaks at concurrency {peak:,}: {speed[peak]:,.0f} tok/s, "
            f"and falls to {speed[last]:,.0f} at {last:,}"
        )
    level = next(c for c in speed if speed[c] >= enough)
    if level == last:
        return (
            f"Throughput still grows at concurrency {last:,}, the highest measured: {speed[last]:,.0f} tok/s"
        )
    return f"Throughput stops growing at concurrency {level:,}: {speed[level]:,.0f} tok/s"


def _comparison(base: Sequence[Summary], other: Sequence[Summary]) -> str:
    names = f"{other[0].label} and {base[0].label}"
    found = {c: ratio for c, ratio in ratios(base, other) if ratio is not None}
    if not found:
        return f"{names} have no measured concurrency in common"
    low, high = min(found.values()), max(found.values())
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    if all(_overlap(a, b) for a, b in zip(base, other, strict=True) if a.concurrency in found):
        return f"{names} cannot be told apart: {span} times, within the spread of the repeats"
    where = "" if span == f"{low:.2f}" else f", most at concurrency {max(found, key=lambda c: found[c]):,}"
    return f"{other[0].label} runs at {span} times the throughput of {base[0].label}{where}"


def _overlap(a: Summary, b: Summary) -> bool:
    """Whether the ranges of the repeats meet. One repeat has no range, so it never does."""
    if min(len(a.values), len(b.values)) < 2:
        return False
    return a.values[0] <= b.values[-1] and b.values[0] <= a.values[-1]
