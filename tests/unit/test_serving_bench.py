"""A sweep, with a stand-in for SGLang's benchmark client that takes the same options."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import command_line
from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.bench import Plan, SoFar, Sweep, Target, ends, half_width, run_bench, turns
from workbook.serving.client import read_progress
from workbook.types import BenchPoint, Node

FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"
A = Target("Patched, level 4", "http://127.0.0.1:1", "org/model")
B = Target("eager", "http://127.0.0.1:2", "org/model")
STEM = "patched-level-4"


def sweep(
    folder: Path,
    mode: str = "",
    *,
    targets: Sequence[Target] = (A,),
    sglang: Path = FAKE,
    on_point: Any = lambda point, so_far: None,
    **changes: Any,
) -> Sweep:
    plan: dict[str, Any] = {
        "concurrencies": (1, 8), "input_tokens": 128, "output_tokens": 32, "requests_per_slot": 3,
        "repeats": 2, "seed": 40,
    }  # fmt: skip
    node = LocalConnection(Node(name="here", env={"PYTHONPATH": str(sglang)}))
    return run_bench(
        node, targets, Plan(**(plan | changes)), raw_dir=folder / "raw", run_id="run",
        env={"FAKE_CLIENT": mode}, on_point=on_point,
    )  # fmt: skip


def raw(folder: Path, name: str, session: str = f"{STEM}-r0") -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((folder / "raw" / session / f"{name}.jsonl").read_text())
    return kept


def test_repeats_are_interleaved_and_every_record_is_kept(tmp_path: Path) -> None:
    told: list[BenchPoint] = []
    standings: list[SoFar] = []

    def keep(point: BenchPoint, so_far: SoFar) -> None:
        told.append(point)
        standings.append(so_far)

    found = sweep(tmp_path, on_point=keep, budget_s=600)
    assert [(one.concurrency, one.repeat, one.seed) for one in found.points] == [
        (1, 0, 40), (8, 0, 40), (1, 1, 41), (8, 1, 41),
    ]  # fmt: skip
    assert told == found.points
    assert {one.label for one in found.points} == {"Patched, level 4"}
    assert [one.requested for one in found.points] == [16, 24, 16, 24]  # at least 16, else 3 a slot
    assert all(one.usable and one.caveat == "" for one in found.points)
    assert found.points[1].ttft_ms_p90 == pytest.approx(8.0)
    assert found.points[1].output_tok_s == pytest.approx(24 * 32 / found.points[1].duration_s)
    kept = sorted(path.name for path in (tmp_path / "raw").glob("*/*.jsonl"))
    assert kept == [f"{STEM}-c{c}-r{r}-s0.jsonl" for c in (1, 8) for r in (0, 1)]
    assert [one.repeats for one in standings] == [1, 1, 2, 2] and standings[0].most == 2
    assert all(0 < (one.seconds_left or 0) < 600 for one in standings)


def test_the_client_is_asked_for_what_the_plan_says(tmp_path: Path) -> None:
    sweep(tmp_path, concurrencies=[8], repeats=1)
    record = raw(tmp_path, f"{STEM}-c8-r0-s0")
    asked = record["argv"]
    for option, value in {
        "--backend": "sglang", "--base-url": "http://127.0.0.1:1", "--dataset-name": "random-ids",
        "--random-input-len": "128", "--random-output-len": "32", "--random-range-ratio": "1.0",
        "--num-prompts": "24", "--max-concurrency": "8", "--seed": "40",
    }.items():  # fmt: skip
        assert asked[asked.index(option) + 1] == value
    assert {"--flush-cache", "--tokenize-prompt", "--output-details"} <= set(asked)
    assert record["offline"] == "1"


def test_the_load_is_dealt_out_to_several_clients(tmp_path: Path) -> None:
    [point] = sweep(tmp_path, concurrencies=[8], repeats=1, clients=3).points
    assert (point.clients, point.requested, point.completed, point.usable) == (3, 24, 24, True)
    shards = [raw(tmp_path, f"{STEM}-c8-r0-s{k}") for k in range(3)]
    of = {
        option: [int(one["argv"][one["argv"].index(option) + 1]) for one in shards]
        for option in ("--max-concurrency", "--num-prompts", "--warmup-requests")
    }
    assert of == {"--max-concurrency": [3, 3, 2], "--num-prompts": [8, 8, 8], "--warmup-requests": [8, 0, 0]}
    assert ["--flush-cache" in one["argv"] for one in shards] == [True, False, False]
    prompts = [tuple(prompt) for one in shards for prompt in one["prompts"]]
    assert len(set(prompts)) == 24  # no two clients send the same
    # together, not one after the other: the whole takes little longer than the longest
    assert point.duration_s < sum(one["duration"] for one in shards)


def test_there_are_no_more_clients_than_requests_in_flight(tmp_path: Path) -> None:
    assert [one.clients for one in sweep(tmp_path, repeats=1, clients=3).points] == [1, 3]


def test_two_servers_take_turns_with_the_same_prompts(tmp_path: Path) -> None:
    found = sweep(tmp_path, targets=(A, B), concurrencies=[4], repeats=3)
    assert [(one.label, one.repeat) for one in found.points] == [
        (A.label, 0), (B.label, 0), (B.label, 1), (A.label, 1), (A.label, 2), (B.label, 2),
    ]  # fmt: skip
    for repeat in range(3):
        records = [raw(tmp_path, f"{one.stem}-c4-r{repeat}-s0", f"{STEM}-eager-r0") for one in (A, B)]
        assert records[0]["prompts"] == records[1]["prompts"]
        ports = [one["argv"][one["argv"].index("--base-url") + 1][-1] for one in records]
        assert ports == ["1", "2"]


def test_an_openai_server_gets_token_ids_where_there_is_no_tokenizer(tmp_path: Path) -> None:
    target = Target("vllm", "http://127.0.0.1:1", "org/model", engine="openai")
    [point] = sweep(tmp_path, targets=[target], concurrencies=[1], repeats=1).points
    assert "the server tells no token counts" in point.caveat
    record = raw(tmp_path, "vllm-c1-r0-s0", "vllm-r0")
    assert record["argv"][record["argv"].index("--backend") + 1] == "vllm"
    assert not {"--tokenize-prompt", "--flush-cache", "--tokenizer"} & set(record["argv"])
    assert {len(prompt) for prompt in record["prompts"]} == {128}
    assert {type(one) for prompt in record["prompts"] for one in prompt} == {int}
    assert {min(map(min, record["prompts"])) >= 128, max(map(max, record["prompts"])) < 256} == {True}


def test_an_openai_server_gets_text_where_there_is_a_tokenizer(tmp_path: Path) -> None:
    target = Target("vllm", "http://127.0.0.1:1", "org/model", engine="openai", tokenizer="folder")
    sweep(tmp_path, targets=[target], concurrencies=[1], repeats=1)
    record = raw(tmp_path, "vllm-c1-r0-s0", "vllm-r0")
    assert record["argv"][record["argv"].index("--tokenizer") + 1] == "folder"
    assert {type(prompt) for prompt in record["prompts"]} == {str}


@pytest.mark.parametrize(
    "entry", ["cli_main()", "parser"], ids=["one name", "before it had a function for it"]
)
def test_an_older_sglang_has_its_benchmark_elsewhere(tmp_path: Path, entry: str) -> None:
    old = tmp_path / "old"
    (old / "sglang").mkdir(parents=True)
    (old / "sglang" / "__init__.py").touch()
    source = (FAKE / "sglang" / "benchmark" / "serving.py").read_text()
    if entry == "parser":
        head, body = source.split("def cli_main():\n")
        body = body.partition("\n\nif __name__")[0]
        source = f'{head}if __name__ == "__main__":\n{body.replace("return", "sys.exit()")}\n'
    (old / "sglang" / "bench_serving.py").write_text(source)
    assert len(sweep(tmp_path, sglang=old).points) == 4


@pytest.mark.parametrize(
    ("mode", "failed", "short"), [("loses one", 1, 0), ("cuts one", 0, 1)], ids=["failed", "short"]
)
def test_a_point_that_lost_something_is_kept_but_does_not_count(
    tmp_path: Path, mode: str, failed: int, short: int
) -> None:
    found = sweep(tmp_path, mode, concurrencies=[1], repeats=6, precision=1e9)
    assert {(one.failed, one.short, one.usable) for one in found.points} == {(failed, short, False)}
    assert {one.caveat.endswith("so it is not averaged") for one in found.points} == {True}
    [end] = found.ends
    assert (end.repeats, end.half_width, end.ended_by) == (6, None, "repeats spent")


def test_bursts_and_a_busy_client_are_told_on_the_point(tmp_path: Path) -> None:
    [point] = sweep(tmp_path, "bursts", concurrencies=[1], repeats=1).points
    assert "tokens came in bursts" in point.caveat


def test_a_sweep_ends_when_it_is_precise(tmp_path: Path) -> None:
    found = sweep(tmp_path, concurrencies=[1], repeats=9, precision=1e9)
    assert len(found.points) == 5
    [end] = found.ends
    assert (end.repeats, end.ended_by) == (5, "precise") and end.half_width is not None


def test_a_sweep_ends_when_its_time_is_spent(tmp_path: Path) -> None:
    found = sweep(tmp_path, targets=(A, B), concurrencies=[1], repeats=1000, budget_s=1.0)
    of = [sum(1 for one in found.points if one.label == target.label) for target in (A, B)]
    assert of[0] == of[1] and 1 <= of[0] < 1000  # both had their turn in every round that was begun
    assert {one.ended_by for one in found.ends} == {"time spent"}


def point(label: str, concurrency: int, repeat: int, tok_s: float) -> BenchPoint:
    return BenchPoint(
        run_id="run", label=label, concurrency=concurrency, repeat=repeat, requested=16, completed=16, failed=0,
        duration_s=1.0, output_tok_s=tok_s, seed=1,
    )  # fmt: skip


def test_a_server_that_is_precise_goes_on_while_its_rival_is_not() -> None:
    """A is steady; B scatters at concurrency 8 until its ninth repeat would make it precise, and never at 1."""
    plan = Plan((1, 8), 1, 1, repeats=7)
    points: list[BenchPoint] = []
    for target, concurrency, repeat in turns((A, B), plan, points, lambda: None):
        scatter = 30.0 if target is B and concurrency == 1 else 0.1
        points.append(point(target.label, concurrency, repeat, 100 + scatter * (-1) ** repeat))
    assert [sum(1 for one in points if one.concurrency == c) for c in (1, 8)] == [14, 10]
    found = ends(points, (A.label, B.label), plan)
    assert [(one.label, one.concurrency, one.repeats, one.ended_by) for one in found] == [
        (A.label, 1, 7, "precise"), (B.label, 1, 7, "repeats spent"),
        (A.label, 8, 5, "precise"), (B.label, 8, 5, "precise"),
    ]  # fmt: skip


def test_no_round_is_begun_after_the_budget() -> None:
    points: list[BenchPoint] = []
    left = iter([2.0, 1.0, 0.0])
    for target, concurrency, repeat in turns((A, B), Plan((1, 8), 1, 1), points, lambda: next(left)):
        points.append(point(target.label, concurrency, repeat, 100.0))
    assert [(one.label, one.concurrency) for one in points] == [
        (A.label, 1), (B.label, 1), (A.label, 8), (B.label, 8),
    ]  # fmt: skip
    plan = Plan((1, 8), 1, 1)
    assert {one.ended_by for one in ends(points, (A.label, B.label), plan)} == {"time spent"}
    assert {one.ended_by for one in ends(points, (A.label, B.label), plan, "broken off")} == {"broken off"}


def test_what_lost_something_is_left_out_of_the_interval() -> None:
    good = [point("a", 1, repeat, 100.0 + repeat) for repeat in range(5)]
    bad = point("a", 1, 5, 900.0).model_copy(update={"failed": 1})
    assert half_width([*good, bad]) == half_width(good)
    assert half_width(good[:4]) is None


def test_later_repeats_have_numbers_seeds_and_a_folder_of_their_own(tmp_path: Path) -> None:
    sweep(tmp_path, concurrencies=[1], repeats=1)
    [later] = sweep(tmp_path, concurrencies=[1], repeats=1, first_repeat=1).points
    assert (later.repeat, later.seed) == (1, 41)
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == [f"{STEM}-r0", f"{STEM}-r1"]


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raises", r"could not measure \S+-c8-r0: ValueError: Warmup failed - connection refused"),
        ("exits", "c8-r0: the client stopped: 1"),
        ("writes nothing", "c8-r0: the client wrote no record"),
        ("dies", "c8-r0: the client ended with exit status 7"),
    ],
)
def test_a_client_that_fails_is_quoted(tmp_path: Path, mode: str, said: str, clients: int) -> None:
    with pytest.raises(WorkbookError, match=said) as caught:
        sweep(tmp_path, mode, concurrencies=[8], clients=clients)
    assert "\x1b" not in str(caught.value)
    assert str(tmp_path / "raw" / f"{STEM}-r0" / "client.log") in str(caught.value)


def test_a_python_without_sglang_is_named(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()  # hides an installed one
    with pytest.raises(WorkbookError, match="no SGLang benchmark is installed"):
        sweep(tmp_path, sglang=tmp_path)


def test_a_point_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(WorkbookError, match="c1-r0: the client stopped: out of time"):
        sweep(tmp_path, "hangs", point_limit_s=0.5)


def test_a_server_that_dies_ends_the_sweep_at_once(tmp_path: Path) -> None:
    started = time.monotonic()

    def death() -> str | None:
        return "was ended by SIGKILL" if time.monotonic() > started + 2 else None

    target = Target(A.label, A.url, A.model, death)
    with pytest.raises(
        WorkbookError, match=r"The server died during the benchmark: it was ended by SIGKILL\."
    ):
        sweep(tmp_path, "hangs", targets=[target])
    assert time.monotonic() < started + 15
    with pytest.raises(WorkbookError, match=r"The server of 'Patched, level 4' died"):
        sweep(tmp_path, "hangs", targets=[B, target])
    assert client_processes(tmp_path) == []


def client_processes(folder: Path) -> list[int]:
    return [pid for pid in psutil.pids() if str(folder) in command_line(pid)]


def test_a_client_that_fails_as_its_server_dies_is_not_blamed(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    answers = iter([None])
    target = Target(A.label, A.url, A.model, lambda: next(answers, "ended"))
    with pytest.raises(WorkbookError, match="The server died during the benchmark: it ended"):
        sweep(tmp_path, targets=[target], sglang=tmp_path)


def test_a_label_is_measured_once_into_a_folder(tmp_path: Path) -> None:
    sweep(tmp_path, concurrencies=[1], repeats=1)
    before = raw(tmp_path, f"{STEM}-c1-r0-s0")
    with pytest.raises(UsageError, match="never overwritten"):
        sweep(tmp_path, concurrencies=[1], repeats=1)
    assert raw(tmp_path, f"{STEM}-c1-r0-s0") == before
    assert len(sweep(tmp_path, targets=[B], concurrencies=[1], repeats=1).points) == 1


@pytest.mark.parametrize(
    "nothing",
    [
        {"concurrencies": []},
        {"concurrencies": [0, 4]},
        {"repeats": 0},
        {"input_tokens": 0},
        {"output_tokens": -1},
        {"clients": 0},
        {"budget_s": 0.0},
    ],
)
def test_a_sweep_of_nothing_is_refused(tmp_path: Path, nothing: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="There is no"):
        sweep(tmp_path, **nothing)
    assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize("targets", [[], [A, A], [A, Target("patched level 4!", B.url, "m")]])
def test_servers_that_cannot_be_told_apart_are_refused(tmp_path: Path, targets: list[Target]) -> None:
    with pytest.raises(UsageError, match="do not tell servers apart"):
        sweep(tmp_path, targets=targets)


def test_only_progress_lines_are_read_as_progress() -> None:
    assert read_progress('{"point": "a-c1-r0"}') == {"point": "a-c1-r0"}
    assert read_progress('{"ready": true}') == {"ready": True}
    assert read_progress('{"point": not JSON') is None
    assert read_progress("Serving Benchmark Result") is None
