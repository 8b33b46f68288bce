"""How the raw records of SGLang's benchmark become points."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.errors import WorkbookError
from workbook.serving.records import Answer, Measured, answers, parse_point, read_raw
from workbook.types import BenchPoint

RECORDED = (
    Path(__file__).parents[1] / "data" / "bench_raw.jsonl"
)  # SGLang 0.5.23 on a CPU, without server_info
FIELDS = [f"{metric}_ms_p{quantile}" for metric in ("ttft", "itl") for quantile in (50, 90, 99)]


def parse(found: list[Answer], seconds: float = 2.0, **changes: Any) -> BenchPoint:
    asked: dict[str, Any] = {
        "run_id": "run", "label": "eager", "concurrency": 4, "repeat": 1, "requested": len(found),
        "output_tokens": 32, "seed": 7,
    }  # fmt: skip
    measured = Measured(
        changes.pop("clients", 1), seconds, changes.pop("cpu", 0.1), changes.pop("server_tokens", None)
    )
    return parse_point(found, measured, **(asked | changes))


def whole(count: int = 4, tokens: int = 32, gap: float = 0.004) -> list[Answer]:
    return [Answer(tokens, 0.01, (gap,) * (tokens - 1)) for _ in range(count)]


def test_a_recorded_line_becomes_the_point_that_the_benchmark_itself_summed_up() -> None:
    raw = read_raw(RECORDED)
    point = parse(answers(raw), raw["duration"])
    assert (point.run_id, point.label, point.concurrency, point.repeat, point.seed) == (
        "run", "eager", 4, 1, 7,
    )  # fmt: skip
    assert (point.requested, point.completed, point.failed, point.short) == (16, 16, 0, 0)
    assert point.output_tok_s == pytest.approx(raw["output_throughput"])
    assert point.duration_s == raw["duration"]
    summary = {50: "median", 90: "p90", 99: "p99"}
    for metric in ("ttft", "itl"):
        for quantile, name in summary.items():
            found = getattr(point, f"{metric}_ms_p{quantile}")
            assert found == pytest.approx(raw[f"{name}_{metric}_ms"], rel=1e-9)
    assert point.usable and point.caveat == ""


seconds = st.floats(0.0001, 100)
failed = st.just(Answer(0, 0.0, ()))
outcomes = st.lists(
    st.one_of(
        failed,
        st.builds(
            lambda ttft, gaps: Answer(1 + len(gaps), ttft, tuple(gaps)),
            seconds,
            st.lists(seconds, max_size=5),
        ),
    ),
    min_size=1,
    max_size=30,
)


def as_raw(found: list[Answer]) -> dict[str, Any]:
    return {
        "completed": sum(1 for one in found if one.tokens),
        "output_lens": [one.tokens for one in found],
        "ttfts": [one.ttft_s for one in found],
        "itls": [list(one.gaps_s) for one in found],
    }


@given(outcomes, st.data())
def test_a_record_that_was_split_over_clients_gives_the_point_of_the_whole(
    found: list[Answer], data: st.DataObject
) -> None:
    of = data.draw(st.lists(st.integers(0, 3), min_size=len(found), max_size=len(found)))
    shards = [as_raw([one for one, k in zip(found, of, strict=True) if k == shard]) for shard in range(4)]
    merged = [one for shard in shards for one in answers(json.loads(json.dumps(shard)))]
    kept, split = parse(found), parse(merged)
    exact = {"output_tok_s", "caveat", *FIELDS}  # sums and percentiles may differ in the last bit
    assert split.model_dump(exclude=exact) == kept.model_dump(exclude=exact)
    figures = exact - {"caveat"}
    assert split.model_dump(include=figures, exclude_none=True) == pytest.approx(
        kept.model_dump(include=figures, exclude_none=True), rel=1e-9
    )


@given(outcomes)
def test_percentiles_are_those_of_the_completed_requests_only(found: list[Answer]) -> None:
    done = [one for one in found if one.tokens]
    point = parse(answers(as_raw(found)))
    assert point.failed == len(found) - len(done)
    assert point.output_tok_s == pytest.approx(sum(one.tokens for one in done) / 2.0)
    gaps = [gap for one in done for gap in one.gaps_s]
    for metric, samples in (("ttft", [one.ttft_s for one in done]), ("itl", gaps)):
        for quantile in (50, 90, 99):
            value = getattr(point, f"{metric}_ms_p{quantile}")
            assert (value is None) == (not samples)
            if samples:
                assert value == pytest.approx(1000 * np.percentile(samples, quantile))


def test_a_failed_request_is_counted_and_spoils_the_point() -> None:
    point = parse([*whole(3), Answer(0, 0.0, ())])
    assert (point.failed, point.usable) == (1, False)
    assert "1 of 4 requests failed, so it is not averaged" in point.caveat


def test_a_request_without_a_record_has_failed() -> None:
    assert parse(whole(3), requested=5).failed == 2


@pytest.mark.parametrize(
    "cut", [Answer(31, 0.01, (0.004,) * 30), Answer(32, 0.0, ())], ids=["a token less", "no text at all"]
)
def test_a_short_answer_is_counted_and_spoils_the_point(cut: Answer) -> None:
    point = parse([*whole(3), cut])
    assert (point.failed, point.short, point.usable) == (0, 1, False)
    assert "1 of 4 answers were shorter than the 32 tokens asked for, so it is not averaged" in point.caveat
    assert point.ttft_ms_p50 == pytest.approx(10.0)  # no text has no first token


def test_a_client_that_takes_a_whole_core_is_named() -> None:
    assert parse(whole(), cpu=0.9).caveat == ""
    point = parse(whole(), cpu=0.97, clients=8)
    assert "the busiest of 8 client processes took 97% of a core" in point.caveat
    assert (point.clients, point.client_cpu, point.usable) == (8, 0.97, True)


def test_the_servers_own_count_is_compared() -> None:
    same = parse(whole(), server_tokens=128.0)
    assert (same.server_tok_s, same.caveat) == (64.0, "")
    more = parse(whole(), server_tokens=1280.0)
    assert more.server_tok_s == 640.0
    assert "the server generated 640 tok/s by its own counter, the client received 64" in more.caveat


def test_where_the_server_tells_no_counts_its_own_counter_finds_the_short_answers() -> None:
    untold = parse(whole(), counts_told=False)
    assert untold.usable and "the server tells no token counts" in untold.caveat
    assert parse(whole(), counts_told=False, server_tokens=128.0).caveat == ""
    cut = parse(whole(), counts_told=False, server_tokens=90.0)
    assert (cut.short, cut.usable) == (2, False)
    assert "at least 2 of 4 answers were shorter" in cut.caveat


def test_tokens_in_bursts_have_no_inter_token_latency_that_means_anything() -> None:
    bursts = [Answer(32, 0.01, (0.00004,) * 30 + (0.124,)) for _ in range(4)]
    point = parse(bursts)
    assert point.itl_ms_p50 == pytest.approx(0.04)
    assert "the median gap is 0.04 ms, but a token took 4.04 ms, so ITL is no latency here" in point.caveat
    stalls = [Answer(32, 0.01, (0.004,) * 30 + (0.1,)) for _ in range(4)]  # a prefill in between is no burst
    assert parse(stalls).caveat == ""


def test_a_point_that_completed_nothing_has_no_percentiles() -> None:
    point = parse([Answer(0, 0.0, ())] * 16)
    assert (point.failed, point.output_tok_s, point.usable) == (16, 0.0, False)
    assert [getattr(point, field) for field in FIELDS] == [None] * 6


def test_one_token_answers_have_no_inter_token_latency() -> None:
    point = parse(whole(tokens=1), output_tokens=1)
    assert (point.itl_ms_p50, point.itl_ms_p90, point.itl_ms_p99) == (None, None, None)
    assert point.ttft_ms_p50 == pytest.approx(10.0)


@pytest.mark.parametrize("value", [None, "many", [-1.0], [float("nan")], [float("inf")], [True], [1.0]])
@pytest.mark.parametrize("field", ["output_lens", "ttfts", "itls"])
def test_a_detail_that_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(WorkbookError, match=r"wrong (output_lens|ttfts|itls)") as caught:
        answers(as_raw(whole(2)) | {field: value})
    assert field in str(caught.value) or "as long as" in str(caught.value)


def test_a_summary_that_does_not_fit_its_details_is_named() -> None:
    with pytest.raises(WorkbookError, match="wrong completed: 3 stands where 2 requests came back"):
        answers(as_raw(whole(2)) | {"completed": 3})


def test_more_requests_than_were_sent_are_another_points_record() -> None:
    with pytest.raises(WorkbookError, match="16 requests of 8"):
        parse(whole(16), requested=8)


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
