"""The capture of CUDA graphs as a waterfall: the shapes in the order of their capture, against time."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from workbook.report.figure import Figure, to_svg
from workbook.report.sheet import drawable
from workbook.report.style import SMALLEST_PT, STOP, WHITE, WIDTH_IN, Series, drawing, series
from workbook.report.text import elide
from workbook.types import CaptureStep, ServeOutcome, Status

MOST_TICKS = 24
READING = (
    "A bar a shape, in order; the first one also carries what is compiled or loaded at first use. "
    "Memory left as the log tells it."
)
Panel = tuple[str, str, int]  # label, phase, rank


def waterfall_chart(
    steps: Sequence[CaptureStep], serves: Sequence[ServeOutcome], *, caption: str = ""
) -> Figure:
    """One panel a server, phase and rank.

    Args:
        steps: in the order of their logs; at least one.
        serves: the servers; one that failed marks the last shape of its capture as the one that failed.
        caption: model, hardware, versions, date.
    """
    panels = {panel: list(found) for panel, found in groupby(steps, key=_panel)}
    never_ready = {
        serve.label: serve for serve in serves if serve.status is not Status.OK and not serve.ready_s
    }
    last = {panel[0]: panel for panel in panels}  # what came before its last capture had ended well
    failed = {last[label]: serve for label, serve in never_ready.items() if label in last}
    title = _finding(panels, failed)
    with drawing():
        picture = _picture(panels, failed)
        svg = to_svg(picture)
    alt = f"{title}. {'; '.join(_told(panel, found) for panel, found in panels.items())}."
    return Figure(title, svg, alt, f"{caption} {READING}".strip(), _data(steps))


def _panel(step: CaptureStep) -> Panel:
    return step.label, step.phase, step.rank


def _seconds(found: Sequence[CaptureStep]) -> float:
    return max(step.start_s + step.duration_s for step in found) - found[0].start_s


def _name(panel: Panel, several_ranks: bool) -> str:
    label, phase, rank = panel
    return " · ".join(part for part in (label, phase, f"rank {rank}" if several_ranks else "") if part)


def _told(panel: Panel, found: Sequence[CaptureStep]) -> str:
    return f"{_name(panel, True)}: {len(found)} shapes in {_seconds(found):.1f} s"


def _finding(panels: dict[Panel, list[CaptureStep]], failed: dict[Panel, ServeOutcome]) -> str:
    for panel, serve in failed.items():
        (label, phase, _), found = panel, panels[panel]
        reason = serve.status.value.replace("_", " ")
        where = f"{found[-1].num_tokens:,} tokens, shape {len(found)} in order"
        return f"{label}: {phase} capture ended at {where} ({reason})"
    (slow, found) = max(panels.items(), key=lambda one: _seconds(one[1]))
    longest = max(found, key=lambda step: step.duration_s)
    share = longest.duration_s / (_seconds(found) or 1)
    tail = (
        f"; {longest.num_tokens:,} tokens took {share:.0%} of it"
        if len(found) > 1 and share > 2 / len(found)
        else ""
    )
    return f"{_name(slow, False)}: {len(found)} shapes in {_seconds(found):.1f} s{tail}"


def _picture(panels: dict[Panel, list[CaptureStep]], failed: dict[Panel, ServeOutcome]) -> Picture:
    styles = series(dict.fromkeys(label for label, _, _ in panels))
    heights = [max(1.1, min(3.4, 0.14 * len(found) + 0.6)) for found in panels.values()]
    picture = Picture(figsize=(WIDTH_IN, sum(heights) + 0.5 * len(panels) + 0.3), layout="constrained")
    axes = picture.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    several_ranks = len({rank for _, _, rank in panels}) > 1
    for one, (panel, found) in zip(axes, panels.items(), strict=True):
        _bars(one, found, styles[panel[0]], failed.get(panel))
        one.set_title(
            elide(drawable(_name(panel, several_ranks)), 90), loc="left", fontsize=10, fontweight="bold"
        )
    axes[-1].set_xlim(0, max(map(_seconds, panels.values())) * 1.25 or 1)
    axes[-1].set_xlabel("seconds since the capture began")
    return picture


def _bars(axes: Axes, found: Sequence[CaptureStep], style: Series, broken: ServeOutcome | None) -> None:
    begin, rows = found[0].start_s, range(len(found))
    least = _seconds(found) / 400  # a bar that is too short to see is drawn as a line
    axes.barh(
        rows,
        [max(step.duration_s, least) for step in found],
        left=[step.start_s - begin for step in found],
        height=0.8,
        color=[STOP if broken and step is found[-1] else style.colour for step in found],
        edgecolor=WHITE,
        linewidth=0.3,
    )
    every = -(-len(found) // MOST_TICKS)
    ticks = sorted({*range(0, len(found), every), len(found) - 1})
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda row, _: f"{found[int(row)].num_tokens:,}"))
    axes.tick_params(axis="y", labelsize=SMALLEST_PT)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_ylabel("tokens")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="y", visible=False)
    for row in {0, len(found) - 1}:
        _note(axes, found[row], row, begin, broken if row == len(found) - 1 else None)


def _note(axes: Axes, step: CaptureStep, row: int, begin: float, broken: ServeOutcome | None) -> None:
    """Beside the first and the last bar: the memory left, and why the last one failed."""
    words = f"{step.avail_mem_gb:.1f} GB left" if step.avail_mem_gb is not None else ""
    if broken:
        words = "; ".join(part for part in (f"✗ {broken.status.value.replace('_', ' ')}", words) if part)
    if words:
        axes.annotate(
            words,
            (step.start_s + step.duration_s - begin, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALLEST_PT,
            color=STOP if broken else None,
        )


def capture_table_rows(steps: Sequence[CaptureStep]) -> list[tuple[object, ...]]:
    """For each server, phase and rank: shapes, seconds, the median and the longest step, memory at the end."""
    rows: list[tuple[object, ...]] = []
    for (label, phase, rank), grouped in groupby(steps, key=_panel):
        found = list(grouped)
        longest = max(found, key=lambda step: step.duration_s)
        rows.append(
            (
                label,
                phase,
                rank,
                len(found),
                _seconds(found),
                median(step.duration_s for step in found),
                f"{longest.duration_s:.2f} s at {longest.num_tokens:,} tokens",
                found[-1].avail_mem_gb,
            )
        )
    return rows


def _data(steps: Sequence[CaptureStep]) -> pd.DataFrame:
    return pd.DataFrame([step.model_dump(mode="json") for step in steps])
