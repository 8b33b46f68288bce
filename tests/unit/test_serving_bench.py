"""A sweep, with a stand-in for SGLang's benchmark client that takes the same options."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.bench import read_progress, run_bench
from workbook.types import BenchPoint, LaunchProfile, Node

FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"


def sweep(folder: Path, mode: str = "", sglang: Path = FAKE, **changes: Any) -> list[BenchPoint]:
    profile = LaunchProfile(
        name="fake", description="", model="org/model", concurrencies=(1,), input_tokens=128,
        output_tokens=32, requests_per_slot=3, env={"FAKE_CLIENT": mode},
    )  # fmt: skip
    asked: dict[str, Any] = {
        "concurrencies": (1, 8), "repeats": 2, "raw_dir": folder / "raw", "label": "Patched, level 4",
        "run_id": "run", "seed": 40,
    }  # fmt: skip
    node = LocalConnection(Node(name="here", env={"PYTHONPATH": str(sglang)}))
    return run_bench(node, "http://127.0.0.1:1", profile, "org/model", **(asked | changes))


def test_repeats_are_interleaved_and_every_record_is_kept(tmp_path: Path) -> None:
    told: list[BenchPoint] = []
    points = sweep(tmp_path, on_point=told.append)
    assert [(point.concurrency, point.repeat, point.seed) for point in points] == [
        (1, 0, 40), (8, 0, 40), (1, 1, 41), (8, 1, 41),
    ]  # fmt: skip
    assert told == points
    assert {point.label for point in points} == {"Patched, level 4"}
    assert [point.requested for point in points] == [16, 24, 16, 24]  # at least 16, else 3 a slot
    assert points[1].ttft_ms_p90 == 16.0 and points[1].failed == 0
    raw = sorted(path.name for path in (tmp_path / "raw").glob("*.jsonl"))
    assert raw == [f"patched-level-4-c{c}-r{r}.jsonl" for c in (1, 8) for r in (0, 1)]


def test_the_client_is_asked_for_what_the_profile_says(tmp_path: Path) -> None:
    sweep(tmp_path, concurrencies=[8], repeats=1)
    record = json.loads((tmp_path / "raw" / "patched-level-4-c8-r0.jsonl").read_text())
    asked = record["argv"]
    for option, value in {
        "--backend": "sglang", "--base-url": "http://127.0.0.1:1", "--dataset-name": "random-ids",
        "--random-input-len": "128", "--random-output-len": "32", "--random-range-ratio": "1.0",
        "--num-prompts": "24", "--max-concurrency": "8", "--seed": "40",
    }.items():  # fmt: skip
        assert asked[asked.index(option) + 1] == value
    assert {"--flush-cache", "--tokenize-prompt", "--output-details"} <= set(asked)
    assert record["offline"] == "1"


def test_an_older_sglang_has_its_benchmark_elsewhere(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "sglang").mkdir(parents=True)
    (old / "sglang" / "__init__.py").touch()
    shutil.copy(FAKE / "sglang" / "benchmark" / "serving.py", old / "sglang" / "bench_serving.py")
    assert len(sweep(tmp_path, sglang=old)) == 4


def test_a_lost_request_is_a_failed_one(tmp_path: Path) -> None:
    points = sweep(tmp_path, "loses one")
    assert {(point.requested - point.completed, point.failed) for point in points} == {(1, 1)}


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raises", r"could not measure \S+-c1-r0: ValueError: Warmup failed - connection refused"),
        ("exits", "c1-r0: the client stopped: 1"),
        ("writes nothing", "c1-r0: the client wrote no record"),
        ("dies", "ended early, with exit status 7"),
    ],
)
def test_a_client_that_fails_is_quoted(tmp_path: Path, mode: str, said: str) -> None:
    with pytest.raises(WorkbookError, match=said) as caught:
        sweep(tmp_path, mode)
    assert "\x1b" not in str(caught.value)
    assert str(tmp_path / "raw" / "patched-level-4-client.log") in str(caught.value)


def test_a_point_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(WorkbookError, match="c1-r0: the client stopped: out of time"):
        sweep(tmp_path, "hangs", point_limit_s=0.5)


def test_a_server_that_dies_ends_the_sweep_at_once(tmp_path: Path) -> None:
    started = time.monotonic()

    def death() -> str | None:
        return "was ended by SIGKILL" if time.monotonic() > started + 1 else None

    with pytest.raises(
        WorkbookError, match=r"The server died during the benchmark: it was ended by SIGKILL\."
    ):
        sweep(tmp_path, "hangs", server_death=death)
    assert time.monotonic() < started + 15


def test_a_client_that_fails_as_its_server_dies_is_not_blamed(tmp_path: Path) -> None:
    answers = iter([None])
    with pytest.raises(WorkbookError, match="The server died during the benchmark: it ended"):
        sweep(tmp_path, "dies", server_death=lambda: next(answers, "ended"))


def test_a_label_is_measured_once_into_a_folder(tmp_path: Path) -> None:
    sweep(tmp_path, concurrencies=[1], repeats=1)
    before = (tmp_path / "raw" / "patched-level-4-c1-r0.jsonl").read_text()
    with pytest.raises(UsageError, match="never overwritten"):
        sweep(tmp_path, concurrencies=[1], repeats=1)
    assert (tmp_path / "raw" / "patched-level-4-c1-r0.jsonl").read_text() == before
    assert len(sweep(tmp_path, label="another", concurrencies=[1], repeats=1)) == 1


@pytest.mark.parametrize("nothing", [{"concurrencies": []}, {"concurrencies": [0, 4]}, {"repeats": 0}])
def test_a_sweep_of_nothing_is_refused(tmp_path: Path, nothing: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        sweep(tmp_path, **nothing)
    assert not (tmp_path / "raw").exists()


def test_only_progress_lines_are_read_as_progress() -> None:
    assert read_progress('{"point": "a-c1-r0"}') == {"point": "a-c1-r0"}
    assert read_progress('{"point": not JSON') is None
    assert read_progress("Serving Benchmark Result") is None
