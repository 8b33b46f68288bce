"""Benchmark points to charts and tables."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from math import log2, log10
from statistics import median

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from workbook.intervals import INTERVAL_FROM, NEEDED
from workbook.report.bench import Summary, finding, labels_of, ratios, summarise, usable
from workbook.report.figure import Figure, to_svg
from workbook.report.sheet import WIDTH, drawable, text_width
from workbook.report.style import SMALLEST_PT, WARN, WHITE, WIDTH_IN, Series, drawing, series
from workbook.report.tables import Cell, Table
from workbook.report.text import elide

LABEL_LIMIT = 32


def throughput_chart(
    points: pd.DataFrame, *, caption: str = "", baseline: str | None = None, planned: Sequence[int] = ()
) -> Figure:
    """Output tokens/s against concurrency, and the ratio to the baseline when there are several labels.

    Args:
        points: one row per BenchPoint.
        caption: model, hardware, versions, date; how to read the chart is added.
        baseline: the label that the others are compared with; by default the first.
        planned: concurrencies that were meant to be measured; one without a point is a marked gap.

    Raises:
        WorkbookError: there is no point, or none of the baseline.
    """
    summaries = summarise(points, baseline, planned)
    title, reading = finding(summaries), f"{caption} {_reading(summaries)}".strip()
    return Figure(
        title, to_svg(throughput_picture(summaries)), _alt(title, summaries), reading, _data(summaries)
    )


def throughput_picture(summaries: dict[str, list[Summary]]) -> Picture:
    """The chart without its words; with several labels the second axes hold the ratio to the first."""
    styles, several = series(summaries), len(summaries) > 1
    beside = max(text_width(elide(drawable(label), LABEL_LIMIT), size=10, bold=True) for label in summaries)
    with drawing():
        picture = Picture(figsize=(WIDTH_IN, 6.4 if several else 4.2))
        if several:
            above, below = picture.subplots(2, 1, sharex=True, height_ratios=(5, 2))
            _ratio_panel(below, summaries, styles)
        else:
            above = below = picture.subplots()
        bottom = 0.085 if several else 0.125
        picture.subplots_adjust(0.09, bottom, 1 - (beside + 18) / WIDTH, 0.975, hspace=0.1)
        _speed_panel(above, summaries, styles)
        _concurrency_axis(below, [row.concurrency for row in next(iter(summaries.values()))])
    return picture


def _speed_panel(axes: Axes, summaries: dict[str, list[Summary]], styles: dict[str, Series]) -> None:
    rows = [row for found in summaries.values() for row in found]
    seen = [v for row in rows for v in (*row.values, *row.failed, *(row.interval or ())) if v > 0] or [1.0]
    low, high = min(seen) / 1.3, max(seen) * 1.3
    axes.set(yscale="log", ylim=(low, high), ylabel="output tokens/s")
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    for turn, (label, found) in enumerate(summaries.items()):
        style = styles[label]
        axes.plot(
            [row.concurrency for row in found],
            [float("nan") if row.median is None else row.median for row in found],
            color=style.colour,
            linestyle=style.dash,
            linewidth=1.8,
        )
        for row in found:
            _repeats(axes, row, style, low, turn)
    _name_lines(axes, summaries, styles)


def _repeats(axes: Axes, row: Summary, style: Series, low: float, turn: int) -> None:
    """Every repeat of one point; a failed one crossed out, and a gap named as one."""
    x = row.concurrency
    if row.interval:
        axes.vlines(x, max(row.interval[0], low), row.interval[1], color=style.colour, linewidth=5, alpha=0.3)
    dots = partial(axes.plot, color=style.colour, linestyle="none", zorder=3, clip_on=False)
    dots([x] * len(row.values), row.values, marker=style.marker, markersize=6, markeredgecolor=WHITE)
    for value in row.failed:
        at = max(value, low)
        dots([x], [at], marker=style.marker, markersize=10, markerfacecolor=WHITE, markeredgewidth=1.2)
        dots([x], [at], marker="x", markersize=5, markeredgewidth=1.6)
    if row.median is None:
        axes.annotate(
            "all failed" if row.failed else "not measured",
            (x, 0.03),
            xycoords=axes.get_xaxis_transform(),
            xytext=(12 * turn, 0),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="bottom",
            color=style.colour,
            fontsize=SMALLEST_PT,
        )


def _name_lines(axes: Axes, summaries: dict[str, list[Summary]], styles: dict[str, Series]) -> None:
    """The label of each line beside its last point, pushed apart where they would overlap."""
    ends = {
        label: next(((r.concurrency, r.median) for r in reversed(found) if r.median), None)
        for label, found in summaries.items()
    }
    low, high = (log10(limit) for limit in axes.get_ylim())
    points = axes.bbox.height * 72 / axes.figure.dpi
    named = {label: end for label, end in ends.items() if end}
    heights = [(log10(y) - low) / (high - low) * points for _, y in named.values()]
    for (label, (x, y)), height, place in zip(named.items(), heights, spread(heights, 13), strict=True):
        axes.annotate(
            elide(drawable(label), LABEL_LIMIT),
            (x, y),
            xytext=(10, place - height),
            textcoords="offset points",
            va="center",
            color=styles[label].colour,
            fontweight="bold",
            annotation_clip=False,
        )


def _ratio_panel(axes: Axes, summaries: dict[str, list[Summary]], styles: dict[str, Series]) -> None:
    (name, base), *others = summaries.items()
    axes.axhline(1, color=styles[name].colour, linewidth=1.2)
    axes.set_ylabel(f"ratio to\n{elide(drawable(name), 24)}")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for label, found in others:
        style, values = styles[label], ratios(base, found)
        axes.plot(
            [c for c, _ in values],
            [float("nan") if ratio is None else ratio for _, ratio in values],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markeredgecolor=WHITE,
            clip_on=False,
        )
        if len(others) == 1:
            for concurrency, ratio in values:
                if ratio is not None:
                    axes.annotate(
                        f"{ratio:.2f}×",
                        (concurrency, ratio),
                        xytext=(0, 7),
                        textcoords="offset points",
                        ha="center",
                        fontsize=SMALLEST_PT,
                        color=style.colour,
                    )
    axes.margins(y=0.3)


def _concurrency_axis(axes: Axes, concurrencies: Sequence[int]) -> None:
    """Log2, with a tick at each measured concurrency and nowhere else."""
    axes.set_xscale("log", base=2)
    octaves = log2(concurrencies[-1] / concurrencies[0]) or 4
    beside = 2 ** (octaves * 0.06)
    axes.set_xlim(concurrencies[0] / beside, concurrencies[-1] * beside)
    axes.xaxis.set_major_locator(FixedLocator([float(c) for c in concurrencies]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("concurrency (requests in flight)")
    if any(log2(b / a) / octaves < 0.05 for a, b in pairwise(concurrencies)):
        axes.tick_params(axis="x", labelrotation=60)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones: by 1, 2, 5, or evenly where those lie too far apart."""
    steps = [m * 10.0**e for e in range(int(log10(low)) - 1, int(log10(high)) + 2) for m in (1, 2, 5)]
    ticks = [step for step in steps if low <= step <= high]
    if len(ticks) >= 3:
        return ticks
    return [float(t) for t in MaxNLocator(5).tick_values(low, high) if low <= t <= high]


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved up where needed so that each two are `gap` apart; their order stays."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda index: places[index])
    for below, here in pairwise(order):
        moved[here] = max(moved[here], moved[below] + gap)
    return moved


def _reading(summaries: dict[str, list[Summary]]) -> str:
    """How to read the chart, and how far to trust it."""
    rows = [row for found in summaries.values() for row in found]
    counts = sorted({len(row.values) for row in rows if row.values}) or [0]
    n = f"n = {counts[0]}" if counts[0] == counts[-1] else f"n = {counts[0]} to {counts[-1]}"
    said = [f"Line: median over repeats ({n}); every repeat is a dot."]
    if counts[-1] >= INTERVAL_FROM:
        said.append("Bar: 95 % Student t interval of the mean over the repeats.")
    if counts[0] < INTERVAL_FROM:
        where = " at some points" if counts[-1] >= INTERVAL_FROM else ""
        said.append(f"Too few repeats for an interval{where}: it takes {INTERVAL_FROM}.")
    failed = sum(len(row.failed) for row in rows)
    if failed:
        said.append(
            f"Crossed out and not averaged: {failed} repeat{'s' * (failed > 1)} with failed requests."
        )
    gaps = sum(row.median is None and not row.failed for row in rows)
    if gaps:
        said.append(f"Not measured: {gaps} point{'s' * (gaps > 1)}, left as a gap.")
    return " ".join(said)


def _alt(title: str, summaries: dict[str, list[Summary]]) -> str:
    lines = [
        f"{label}: "
        + ", ".join(
            f"{r.median:,.0f} at {r.concurrency:,}" if r.median else f"none at {r.concurrency:,}"
            for r in found
        )
        for label, found in summaries.items()
    ]
    return f"{title}. Median output tokens per second by concurrency. {'; '.join(lines)}."


def _data(summaries: dict[str, list[Summary]]) -> pd.DataFrame:
    base = next(iter(summaries.values()))
    return pd.DataFrame(
        {
            "label": row.label,
            "concurrency": row.concurrency,
            "n": len(row.values),
            "median tok/s": row.median,
            "every repeat": ", ".join(f"{v:,.1f}" for v in row.values) or None,
            "95 % interval": "{:,.1f} to {:,.1f}".format(*row.interval) if row.interval else None,
            "failed repeats": len(row.failed),
            "ratio": ratio,
        }
        for found in summaries.values()
        for row, (_, ratio) in zip(found, ratios(base, found), strict=True)
    )


def bench_table(points: pd.DataFrame) -> Table:
    """Throughput and latency by label and concurrency: the median over repeats, and their range.

    A percentile stands only where every repeat has requests enough to carry it.

    Args:
        points: one row per BenchPoint; latencies in milliseconds.

    Raises:
        WorkbookError: there is no point.
    """
    rows = []
    for label in labels_of(points):
        of_label = points[points["label"] == label]
        for concurrency in sorted({int(c) for c in of_label["concurrency"]}):
            here = of_label[of_label["concurrency"] == concurrency]
            good = here[usable(here)]
            lost = int(max(here["failed"].sum(), (here["requested"] - here["completed"]).sum()))
            failed = Cell(
                f"{lost:,}", glyph="!", tone=WARN, hint="Repeats with failed requests are not averaged."
            )
            speeds = good["output_tok_s"].tolist()
            rows.append(
                (
                    label,
                    concurrency,
                    len(good),
                    int(here["completed"].sum()),
                    failed if lost else 0,
                    median(speeds) if speeds else None,
                    Cell(f"{min(speeds):,.0f}\u00a0to\u00a0{max(speeds):,.0f}", number=True)
                    if speeds
                    else None,
                    *(
                        _percentile(good, f"{kind}_ms_{p}", n)
                        for kind in ("ttft", "itl")
                        for p, n in NEEDED.items()
                    ),
                )
            )
    latencies = (f"{kind} {p} ms" for kind in ("TTFT", "ITL") for p in NEEDED)
    columns = ("label", "concurrency", "n", "requests", "failed", "tok/s", "range", *latencies)
    return Table(columns, tuple(rows), "Output throughput and latency: median over n repeats")


def _percentile(good: pd.DataFrame, column: str, needed: int) -> object:
    values: Iterable[float] = good[column].dropna().tolist()
    if not values:
        return None
    if good["completed"].min() < needed:
        return Cell("n too small", hint=f"It takes {needed:,} requests in each repeat.")
    return float(median(values))
