"""What may be averaged, how sure it is, and what is said about it."""

import math

import pandas as pd
import pytest

from tests.unit.report_samples import bench
from workbook.errors import WorkbookError
from workbook.report.bench import finding, labels_of, ratios, summarise, usable


@pytest.mark.parametrize("change", [{"failed": 1}, {"short": 1}, {"completed": 99}, {"output_tok_s": 0.0}])
def test_a_repeat_that_lost_something_is_not_averaged(change: dict[str, float]) -> None:
    good, bad = bench({4: [100.0, 102.0]}), bench({4: [900.0]}, **change)
    summary = summarise(pd.concat([good, bad], ignore_index=True))["base"][0]
    assert summary.median == 101.0
    assert summary.failed == (change.get("output_tok_s", 900.0),)


def test_rows_are_told_apart_whatever_their_index_says() -> None:
    points = pd.concat([bench({4: [100.0]}), bench({8: [200.0]}, failed=1)])
    assert list(usable(points)) == [True, False]
    summaries = summarise(points)["base"]
    assert [(s.values, s.failed) for s in summaries] == [((100.0,), ()), ((), (200.0,))]


def test_there_is_an_interval_from_five_repeats_on() -> None:
    values = [10.0, 11.0, 12.0, 13.0, 14.0]
    assert summarise(bench({1: values[:4]}))["base"][0].interval is None
    low, high = summarise(bench({1: values}))["base"][0].interval or (0, 0)
    assert (low + high) / 2 == pytest.approx(12)
    assert (high - low) / 2 == pytest.approx(2.7764 * math.sqrt(2.5) / math.sqrt(5), rel=0.003)


def test_what_was_planned_or_measured_elsewhere_is_a_gap() -> None:
    points = pd.concat([bench({1: [10.0], 4: [40.0]}), bench({1: [20.0]}, "other")])
    summaries = summarise(points, planned=[16])
    assert [s.concurrency for s in summaries["other"]] == [1, 4, 16]
    assert [s.median for s in summaries["other"]] == [20.0, None, None]
    assert ratios(summaries["base"], summaries["other"]) == [(1, 2.0), (4, None), (16, None)]


def test_the_baseline_comes_first_and_must_exist() -> None:
    points = pd.concat([bench({1: [1.0]}, "a"), bench({1: [1.0]}, "b")])
    assert labels_of(points) == ["a", "b"]
    assert labels_of(points, "b") == ["b", "a"]
    with pytest.raises(WorkbookError, match=r"labelled 'c'\. There is: a, b"):
        labels_of(points, "c")
    with pytest.raises(WorkbookError, match="no benchmark point"):
        labels_of(points[:0])


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({1: [100], 4: [1500], 16: [1510]}, "Throughput stops growing at concurrency 4: 1,500 tok/s"),
        (
            {1: [100], 4: [1500], 16: [3000]},
            "Throughput still grows at concurrency 16, the highest measured: 3,000 tok/s",
        ),
        (
            {1: [100], 4: [1500], 16: [900]},
            "Throughput peaks at concurrency 4: 1,500 tok/s, and falls to 900 at 16",
        ),
        ({8: [100, 300, 200]}, "200 tok/s at concurrency 8"),
    ],
)
def test_the_finding_about_one_label(speeds: dict[int, list[float]], said: str) -> None:
    assert finding(summarise(bench(speeds))) == said


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        (
            {1: [100], 4: [600]},
            "fast runs at 1.00 to 1.50 times the throughput of base, most at concurrency 4",
        ),
        ({1: [50], 4: [200]}, "fast runs at 0.50 times the throughput of base"),
        (
            {1: [98, 103], 4: [396, 408]},
            "fast and base cannot be told apart: 1.00 times, within the spread of the repeats",
        ),
        ({2: [100]}, "fast and base have no measured concurrency in common"),
    ],
)
def test_the_finding_about_two_labels(speeds: dict[int, list[float]], said: str) -> None:
    base = bench({1: [99, 101], 4: [398, 402]})
    assert finding(summarise(pd.concat([base, bench(speeds, "fast")]))) == said


def test_the_finding_about_three_labels_names_the_best() -> None:
    points = [bench({1: [100]}), bench({1: [120]}, "good"), bench({1: [150]}, "better")]
    assert finding(summarise(pd.concat(points))).startswith("Best of 2: better runs at 1.50 times")


def test_no_usable_repeat_is_said() -> None:
    assert finding(summarise(bench({1: [100]}, failed=1))).startswith("No throughput to report")
