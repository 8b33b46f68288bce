"""How the raw records of SGLang's benchmark become points."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.errors import WorkbookError
from workbook.serving.records import parse_point, read_raw
from workbook.types import BenchPoint

RECORDED = (
    Path(__file__).parents[1] / "data" / "bench_raw.jsonl"
)  # SGLang 0.5.23 on a CPU, without server_info
FIELDS = [f"{metric}_ms_p{quantile}" for metric in ("ttft", "itl") for quantile in (50, 90, 99)]


def parse(raw: dict[str, Any], requested: int = 16) -> BenchPoint:
    return parse_point(raw, run_id="run", label="eager", concurrency=4, repeat=1, requested=requested, seed=7)


def test_a_recorded_line_becomes_a_point() -> None:
    raw = read_raw(RECORDED)
    point = parse(raw)
    assert (point.run_id, point.label, point.concurrency, point.repeat, point.seed) == (
        "run",
        "eager",
        4,
        1,
        7,
    )
    assert (point.requested, point.completed, point.failed) == (16, 16, 0)
    assert point.output_tok_s == pytest.approx(sum(raw["output_lens"]) / raw["duration"])
    assert point.duration_s == raw["duration"]
    assert point.ttft_ms_p50 == pytest.approx(1000 * np.median(raw["ttfts"]))
    assert point.itl_ms_p99 == pytest.approx(
        1000 * np.percentile([gap for itls in raw["itls"] for gap in itls], 99)
    )


def test_an_older_record_without_p90_gives_the_same_point_from_its_details() -> None:
    raw = read_raw(RECORDED)
    old = {name: value for name, value in raw.items() if not name.startswith(("p90_", "p95_"))}
    whole, rebuilt = parse(raw), parse(old)
    assert rebuilt.ttft_ms_p90 == pytest.approx(whole.ttft_ms_p90)
    assert rebuilt.itl_ms_p90 == pytest.approx(whole.itl_ms_p90)
    assert rebuilt.model_dump(exclude={"ttft_ms_p90", "itl_ms_p90"}) == whole.model_dump(
        exclude={"ttft_ms_p90", "itl_ms_p90"}
    )


def test_without_summary_and_details_a_percentile_is_missing_not_zero() -> None:
    raw = read_raw(RECORDED)
    for name in ("p90_ttft_ms", "p90_itl_ms", "ttfts", "itls"):
        del raw[name]
    point = parse(raw)
    assert point.ttft_ms_p90 is None and point.itl_ms_p90 is None
    assert point.ttft_ms_p50 is not None


seconds = st.floats(0.0001, 100)
requests = st.lists(
    st.one_of(st.none(), st.tuples(seconds, st.lists(seconds, max_size=5))), min_size=1, max_size=30
)


@given(requests)
def test_percentiles_are_those_of_the_completed_requests_only(outcomes: list[Any]) -> None:
    done = [outcome for outcome in outcomes if outcome is not None]
    raw = {
        "completed": len(done),
        "duration": 3.0,
        "output_throughput": 1.0,
        "output_lens": [0 if outcome is None else 1 + len(outcome[1]) for outcome in outcomes],
        "ttfts": [0.0 if outcome is None else outcome[0] for outcome in outcomes],
        "itls": [[] if outcome is None else outcome[1] for outcome in outcomes],
    }
    point = parse(raw, requested=len(outcomes))
    assert point.failed == outcomes.count(None)
    gaps = [gap for _, itls in done for gap in itls]
    for metric, samples in (("ttft", [ttft for ttft, _ in done]), ("itl", gaps)):
        for quantile in (50, 90, 99):
            found = getattr(point, f"{metric}_ms_p{quantile}")
            assert (found is None) == (not samples)
            if samples:
                assert found == pytest.approx(1000 * np.percentile(samples, quantile))


def test_a_point_that_completed_nothing_has_no_percentiles() -> None:
    raw = read_raw(RECORDED) | {"completed": 0, "output_throughput": 0.0}
    del raw["ttfts"], raw["itls"]
    point = parse(raw | {name: 0.0 for name in raw if name.endswith("_ms")})
    assert point.failed == 16
    assert [getattr(point, field) for field in FIELDS] == [None] * 6


def test_one_token_answers_have_no_inter_token_latency_although_the_client_says_zero() -> None:
    raw = read_raw(RECORDED)
    raw |= {"itls": [[] for _ in raw["itls"]], "median_itl_ms": 0.0, "p90_itl_ms": 0.0, "p99_itl_ms": 0.0}
    point = parse(raw)
    assert (point.itl_ms_p50, point.itl_ms_p90, point.itl_ms_p99) == (None, None, None)
    assert point.ttft_ms_p50 is not None


@pytest.mark.parametrize("value", [None, "many", -1, float("nan"), float("inf"), True])
@pytest.mark.parametrize("field", ["completed", "duration", "output_throughput", "p99_ttft_ms"])
def test_a_number_that_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(WorkbookError, match=f"{field} = "):
        parse(read_raw(RECORDED) | {field: value})


def test_more_completed_than_requested_is_another_points_record() -> None:
    with pytest.raises(WorkbookError, match="16 of 8 requests"):
        parse(read_raw(RECORDED), requested=8)


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "0 records"), ("{}\n{}\n", "2 records"), ("[1]\n", "not one"), ("{", "not JSON")],
)
def test_a_raw_file_holds_exactly_one_record(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "raw.jsonl"
    path.write_text(content)
    with pytest.raises(WorkbookError, match=said):
        read_raw(path)


def test_the_recorded_line_is_one_line_of_json() -> None:
    assert json.loads(RECORDED.read_text())["dataset_name"] == "random-ids"
