"""A candidate against its baseline, in pairs."""

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.report.ratio import paired, ratio_table, worth
from workbook.types import BenchPoint


def point(label: str, repeat: int, speed: float, concurrency: int = 8, **changes: object) -> BenchPoint:
    base = {
        "run_id": "r", "label": label, "concurrency": concurrency, "repeat": repeat, "requested": 32,
        "completed": 32, "failed": 0, "duration_s": 1.0, "output_tok_s": speed, "ttft_ms_p50": 1e4 / speed,
        "itl_ms_p50": 1e3 / speed, "seed": repeat,
    }  # fmt: skip
    return BenchPoint.model_validate(base | changes)


def both(pairs: list[tuple[float, float]]) -> list[BenchPoint]:
    return [
        one for repeat, (a, b) in enumerate(pairs) for one in (point("A", repeat, a), point("B", repeat, b))
    ]


def test_a_drift_that_both_share_cancels_in_the_pairs() -> None:
    found = paired(both([(100 * drift, 110 * drift) for drift in (1, 2, 0.5, 3, 0.8)]), "A", "B")[0]
    assert found.ratio == pytest.approx(1.1)
    assert found.interval == pytest.approx((1.1, 1.1))
    assert found.seen and found.better and found.words == "better"


def test_less_is_better_in_latency() -> None:
    speed, ttft, _ = paired(both([(100, 110 + n / 10) for n in range(5)]), "A", "B")
    assert speed.better and ttft.ratio < 1 and ttft.better


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    points = both([(100, 150)] * 4)
    assert paired(points, "A", "B")[0].words == "4 pairs: too few to tell"
    assert "too few repeats" in worth(points, "A", "B")


@pytest.mark.parametrize("changes", [{"failed": 1, "completed": 31}, {"short": 1}, {"output_tok_s": 0.0}])
def test_a_repeat_with_failed_or_short_requests_is_no_pair(changes: dict[str, object]) -> None:
    points = [*both([(100, 120)] * 5), point("A", 5, 100), point("B", 5, 1, **changes)]
    assert paired(points, "A", "B")[0].n == 5


def test_what_was_measured_on_one_side_only_is_not_compared() -> None:
    points = [point("A", 0, 100), point("B", 1, 100), point("A", 0, 50, concurrency=1)]
    assert {one.words for one in paired(points, "A", "B")} == {"not measured"}
    assert "no repeat in common" in worth(points, "A", "B")
    assert "not measured" in ratio_table(points, "A", "B")._repr_html_()


@given(st.floats(0.2, 5), st.integers(5, 30), st.integers(0, 2**32))
def test_the_interval_holds_the_ratio_and_does_not_depend_on_the_unit(
    ratio: float, n: int, seed: int
) -> None:
    random = Random(seed)
    pairs = [(base := random.uniform(50, 200), base * ratio * exp(random.gauss(0, 0.1))) for _ in range(n)]
    found = paired(both(pairs), "A", "B")[0]
    scaled = paired(both([(1000 * a, 1000 * b) for a, b in pairs]), "A", "B")[0]
    assert found.interval[0] <= found.ratio <= found.interval[1]
    assert scaled.interval == pytest.approx(found.interval)


def test_equal_arms_are_called_different_about_one_time_in_twenty() -> None:
    random = Random(7)
    said = [
        paired(both([(random.gauss(100, 5), random.gauss(100, 5)) for _ in range(6)]), "A", "B")[0].seen
        for _ in range(600)
    ]
    assert 0.02 <= sum(said) / len(said) <= 0.09
