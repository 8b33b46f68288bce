"""The throughput chart draws what was measured, at the places where it was measured."""

import math
import re
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes

from tests.unit.report_samples import HOSTILE, bench
from tests.unit.test_report_text import Seen
from workbook.report.bench import summarise
from workbook.report.charts import bench_table, log_ticks, spread, throughput_chart, throughput_picture


def axes_of(points: pd.DataFrame, planned: tuple[int, ...] = ()) -> list[Axes]:
    return throughput_picture(summarise(points, planned=planned)).axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def line_of(axes: Axes) -> tuple[list[float], list[float]]:
    """The first line through medians: it has no marker."""
    line = next(line for line in axes.lines if line.get_marker() == "None" and line.get_linestyle() != "None")
    return list(line.get_xdata()), list(line.get_ydata())


@settings(deadline=None, max_examples=15)
@given(st.sets(st.integers(min_value=1, max_value=4096), min_size=1, max_size=8))
def test_ticks_stand_exactly_at_the_measured_concurrencies(concurrencies: set[int]) -> None:
    (axes,) = axes_of(bench({c: [100.0 * c] for c in concurrencies}))
    assert list(axes.get_xticks()) == sorted(concurrencies)
    assert list(axes.get_xticks(minor=True)) == []
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{c:,}" for c in sorted(concurrencies)]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_the_line_goes_through_medians_and_every_repeat_is_a_dot() -> None:
    (axes,) = axes_of(bench({1: [10.0, 30.0, 20.0], 4: [80.0]}))
    assert line_of(axes) == ([1, 4], [20.0, 80.0])
    dots = [tuple(line.get_ydata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [(10.0, 20.0, 30.0), (80.0,)]
    assert texts(axes) == ["base"]


def test_a_gap_is_a_gap_and_is_named() -> None:
    (axes,) = axes_of(bench({1: [10.0], 16: [90.0]}), planned=(4,))
    xs, ys = line_of(axes)
    assert xs == [1, 4, 16]
    assert math.isnan(ys[1])
    assert "not measured" in texts(axes)
    assert axes.get_ylim()[0] > 1


def test_a_repeat_with_failed_requests_is_crossed_out_and_not_averaged() -> None:
    points = pd.concat([bench({1: [10.0], 4: [40.0]}), bench({4: [8.0], 16: [0.0]}, failed=3)])
    (axes,) = axes_of(points)
    assert line_of(axes)[1][1] == 40.0
    crosses = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [(4, 8.0), (16, axes.get_ylim()[0])]
    assert "all failed" in texts(axes)
    caption = throughput_chart(points).caption
    assert "Crossed out and not averaged: 2 repeats with failed requests." in caption


def test_an_interval_is_drawn_from_five_repeats_on_and_its_absence_said() -> None:
    few, enough = bench({1: [10.0, 11.0, 12.0, 13.0]}), bench({1: [10.0, 11.0, 12.0, 13.0, 14.0]})
    assert len(axes_of(few)[0].collections) == 0
    assert len(axes_of(enough)[0].collections) == 1
    assert "Too few repeats for an interval: it takes 5." in throughput_chart(few).caption
    assert "Student t interval" in throughput_chart(enough).caption
    assert "Too few" not in throughput_chart(enough).caption


def test_several_labels_get_a_ratio_panel_with_the_same_gap() -> None:
    points = pd.concat([bench({1: [10.0], 4: [40.0], 16: [50.0]}), bench({1: [12.0], 16: [75.0]}, "patched")])
    above, below = axes_of(points)
    assert texts(below) == ["1.20×", "1.50×"]
    ratio = next(line for line in below.lines if line.get_marker() == "s").get_ydata()
    assert (ratio[0], ratio[2]) == pytest.approx((1.2, 1.5))
    assert math.isnan(ratio[1])
    assert {"base", "patched", "not measured"} == set(texts(above))
    assert list(below.get_xticks()) == [1, 4, 16]


def test_the_title_the_words_and_the_data_come_from_the_points() -> None:
    flat, growing = (
        throughput_chart(bench({1: [100.0], 4: [101.0]})),
        throughput_chart(bench({1: [100.0], 4: [400.0]})),
    )
    assert flat.title != growing.title
    assert "400 at 4" in growing.alt
    assert list(growing.data["median tok/s"]) == [100.0, 400.0]


def test_the_same_points_give_the_same_picture() -> None:
    points = bench({1: [100.0], 4: [400.0]})
    first, second = throughput_chart(points), throughput_chart(points)
    assert first.svg == second.svg
    assert throughput_chart(bench({1: [100.0], 4: [401.0]})).svg != first.svg
    assert b"<dc:date>" not in first.svg


def test_hostile_labels_are_text_everywhere() -> None:
    figure = throughput_chart(bench({1: [100.0]}, label=f"$x_{{ {HOSTILE}"))
    seen = Seen(figure._repr_html_())
    tags = [tag for tag, _ in seen.tags]
    assert "script" not in tags
    assert tags[:4] == ["figure", "figcaption", "strong", "div"]
    image = next(attributes for tag, attributes in seen.tags if tag == "img")
    assert set(image) == {"src", "alt"}
    assert (image["src"] or "").startswith("data:image/svg+xml;base64,")
    assert b"<script" not in figure.svg
    assert repr(figure).startswith("<Figure: ")


@given(st.floats(min_value=1e-3, max_value=1e6), st.floats(min_value=1.7, max_value=1e5))
def test_there_are_at_least_two_round_ticks_inside(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) >= 2
    assert all(low <= tick <= low * factor for tick in ticks)
    assert all(re.fullmatch(r"\d{1,2}(\.0+)?e[+-]\d+|\d{1,2}", f"{t:.1e}"[0] + f"{t:.1e}"[3:]) for t in ticks)


@given(st.lists(st.floats(min_value=0, max_value=500), max_size=8), st.floats(min_value=1, max_value=30))
def test_labels_pushed_apart_keep_their_order(places: list[float], gap: float) -> None:
    moved = sorted(zip(places, spread(places, gap), strict=True), key=lambda pair: pair[1])
    assert [place for place, _ in moved] == sorted(places)
    assert all(after - before >= gap * 0.999 for (_, before), (_, after) in pairwise(moved))


def test_the_bench_table_gives_medians_and_only_percentiles_that_the_sample_carries() -> None:
    points = pd.concat(
        [
            bench({1: [10.0, 12.0]}, requested=99, completed=99),
            bench({4: [40.0]}, requested=100, completed=100),
            bench({16: [90.0]}, requested=1000, completed=1000),
            bench({16: [50.0]}, requested=1000, completed=998, failed=2),
        ]
    )
    table = bench_table(points)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["tok/s"] for row in rows] == [11.0, 40.0, 90.0]
    assert [row["n"] for row in rows] == [2, 1, 1]
    assert [row["TTFT p50 ms"] for row in rows] == [40.0] * 3
    shown = [
        [getattr(row[f"TTFT {p} ms"], "text", row[f"TTFT {p} ms"]) for row in rows] for p in ("p90", "p99")
    ]
    assert shown == [["n too small", 80.0, 80.0], ["n too small", "n too small", 120.0]]
    assert [row["ITL p50 ms"] for row in rows] == [None] * 3
    assert rows[0]["failed"] == 0
    assert rows[2]["failed"].text == "2"
