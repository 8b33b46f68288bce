"""`workbook bench` on a server that runs: a stub, measured by the stand-in for SGLang's client."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import command_line, wait_for
from tests.unit.test_serving_endpoint import serves, stub
from workbook import store
from workbook.cli import app
from workbook.commands.bench import lines
from workbook.errors import UsageError
from workbook.types import BenchPoint, SweepEnd

FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"
WORKBOOK = str(Path(sys.executable).with_name("workbook"))
SMALL = ("--concurrency", "1,4", "--input-tokens", "16", "--output-tokens", "32", "--repeats", "2")


def environment(folder: Path, mode: str) -> dict[str, str]:
    return os.environ | {
        "WORKBOOK_RUNS": str(folder), "PYTHONPATH": str(FAKE), "FAKE_CLIENT": mode,
    }  # fmt: skip


def bench(folder: Path, *args: str, mode: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WORKBOOK, "bench", *args], env=environment(folder, mode), capture_output=True, text=True, check=False
    )


def only_run(folder: Path) -> store.SealedRun:
    [path] = (folder / "bench").iterdir()
    return store.load(path)


def test_a_server_that_runs_is_measured_and_kept(tmp_path: Path) -> None:
    with stub(serves("org/model")) as url:
        done = bench(tmp_path, "--url", f"{url}/v1", *SMALL, "--seed", "5", "--budget", "600", "--json")
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    assert json.loads(done.stdout) == [
        one.model_dump(mode="json") for one in run.records("points", BenchPoint)
    ]
    points = run.records("points", BenchPoint)
    assert [(one.concurrency, one.repeat, one.seed) for one in points] == [
        (1, 0, 5),
        (4, 0, 5),
        (1, 1, 6),
        (4, 1, 6),
    ]
    assert {one.label for one in points} == {"model"} and all(one.usable for one in points)
    assert [one.ended_by for one in run.records("sweep_ends", SweepEnd)] == ["repeats spent"] * 2
    assert run.record.params["url"] == url and run.record.params["input_tokens"] == 16
    assert len(list((run.path / "raw" / "bench").glob("*/*.jsonl"))) == 4
    told = [line for line in done.stderr.splitlines() if line.startswith("Concurrency ")]
    assert len(told) == 4
    assert "after 1 of at most 2 repeats" in told[0] and "s of the budget left" in told[0]


def test_without_a_seed_every_measurement_has_prompts_of_its_own(tmp_path: Path) -> None:
    with stub(serves("m")) as url:
        done = [
            bench(tmp_path / name, "--url", url, *SMALL[:-2], "--repeats", "1", "--json")
            for name in ("a", "b")
        ]
    seeds = {json.loads(one.stdout)[0]["seed"] for one in done}
    assert len(seeds) == 2


def test_the_table_can_be_read_by_awk(tmp_path: Path) -> None:
    with stub(serves("m")) as url:
        done = bench(tmp_path, "--url", url, *SMALL, "--label", "mine", mode="bursts")
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header.split() == [
        "concurrency", "tok/s", "+-95%", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "repeats",
        "not_counted", "clients", "client_cpu", "ended_by",
    ]  # fmt: skip
    assert rows[0].split()[0] == "1" and rows[1].split()[0] == "4"
    assert "tokens came in bursts" in rows[2] and "Concurrency 1, 2 of its repeats" in rows[2]
    assert "Kept in" in rows[-1]


def test_a_label_that_is_not_text_is_kept_as_one_line(tmp_path: Path) -> None:
    with stub(serves("m")) as url:
        done = bench(tmp_path, "--url", url, *SMALL, "--label", "\x1b[31mred\n\udcff")
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    assert {one.label for one in run.records("points", BenchPoint)} == {"red \ufffd"}
    assert "red" in " ".join(run.env.argv)


@pytest.mark.parametrize("mode", ["loses one", "cuts one"])
def test_points_that_all_lost_something_are_no_answer(tmp_path: Path, mode: str) -> None:
    with stub(serves("m")) as url:
        done = bench(tmp_path, "--url", url, *SMALL, mode=mode)
    assert done.returncode == 1
    assert "No point came back whole." in done.stderr and "not averaged" in done.stdout
    assert only_run(tmp_path).record.status == "crashed"


def test_a_client_that_fails_at_once_is_one_sentence(tmp_path: Path) -> None:
    with stub(serves("m")) as url:
        done = bench(tmp_path, "--url", url, *SMALL, mode="raises")
    assert done.returncode == 1
    assert "could not measure m-c1-r0: ValueError: Warmup failed" in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_what_was_measured_before_an_interrupt_is_kept_and_nothing_runs_on(tmp_path: Path) -> None:
    with stub(serves("m")) as url:
        asked = [WORKBOOK, "bench", "--url", url, *SMALL[:-2], "--repeats", "1000"]
        process = subprocess.Popen(asked, env=environment(tmp_path, ""), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Concurrency 4"):
                break
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(30) == 130
    assert "interrupted. What was measured is kept in" in said
    run = only_run(tmp_path)
    assert len(run.records("points", BenchPoint)) >= 2 and run.record.error == "interrupted"
    assert {one.ended_by for one in run.records("sweep_ends", SweepEnd)} == {"broken off"}
    wait_for(lambda: not [pid for pid in psutil.pids() if str(tmp_path) in command_line(pid)])


def test_a_server_that_dies_between_points_leaves_a_run_and_the_log_is_where_it_is_told(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    env = environment(runs, "") | {"FAKE_SERVER": "dies later", "FAKE_PIDS": str(tmp_path / "pids")}
    asked = [WORKBOOK, "bench", "tiny-cpu", *SMALL[:-2], "--repeats", "1000"]
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "died during the benchmark" in done.stderr
    run = only_run(runs)
    log = run.path / "raw" / "server.log"
    assert log.is_file() and str(log) in done.stderr and ".partial" not in done.stderr + run.record.error


NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "give a PROFILE to start or the --url of one that runs"),
        (["tiny-cpu", "--url", NOWHERE], "give a PROFILE to start or the --url of one that runs"),
        (["tiny-cp"], "No profile named 'tiny-cp' in data/profiles; did you mean tiny-cpu?"),
        (["--url", "ftp://host"], "is not the http(s) address of a server"),
        (["--url", NOWHERE], "gives node local no answer: [Errno 111] Connection refused"),
        (["--url", NOWHERE, "--node", "nowhere"], "No node named 'nowhere'"),
        (["--url", NOWHERE, "--patch-level", "2"], "--patch-level belongs to a PROFILE"),
        (["tiny-cpu", "--patch-level", "9"], "No patch level 9"),
        (["tiny-cpu", "--model", "m"], "--model and --tokenizer belong to --url"),
        (["tiny-cpu", "--tokenizer", "m"], "--model and --tokenizer belong to --url"),
        (["tiny-cpu", "--concurrency", "0,4"], "--concurrency '0,4' will not do"),
        (["tiny-cpu", "--concurrency=-4"], "--concurrency '-4' will not do"),
        (["tiny-cpu", "--concurrency", "4,x"], "--concurrency '4,x' will not do"),
        (["tiny-cpu", "--concurrency", ","], "--concurrency ',' will not do"),
        (["tiny-cpu", "--concurrency", "9" * 30], "will not do"),
        (["tiny-cpu", "--concurrency", "0100000"], "will not do"),
        (["tiny-cpu", "--repeats", "0"], "nothing to measure with repeats of 0"),
        (["tiny-cpu", "--input-tokens", "0"], "nothing to measure with input tokens of 0"),
        (["tiny-cpu", "--output-tokens", "-1"], "nothing to measure with output tokens of -1"),
        (["tiny-cpu", "--clients", "0"], "nothing to measure with clients of 0"),
        (["tiny-cpu", "--budget", "0"], "no time to measure in a budget of 0 s"),
        (["tiny-cpu", "--budget", "nan"], "no time to measure in a budget of nan s"),
        (["tiny-cpu", "--seed", "-1"], "--seed -1 is out of range"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, args: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        app(["bench", *args], standalone_mode=False)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_one_line_and_status_two(tmp_path: Path) -> None:
    done = bench(tmp_path, "--url", NOWHERE)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"workbook: {NOWHERE} gives node local no answer")
    assert len(done.stderr.splitlines()) == 1 and list(tmp_path.iterdir()) == []


def point(**changes: Any) -> BenchPoint:
    known: dict[str, Any] = {
        "run_id": "run", "label": "a", "concurrency": 4, "repeat": 0, "requested": 16, "completed": 16, "failed": 0,
        "duration_s": 1.0, "output_tok_s": 100.0, "seed": 1,
    }  # fmt: skip
    return BenchPoint(**(known | changes))


def test_hostile_text_in_a_caveat_stays_on_its_line() -> None:
    end = SweepEnd(label="a", concurrency=4, repeats=1, half_width=None, ended_by="precise")
    told = list(lines([point(caveat="\x1b[2Jdone\nrm -rf")], [end]))
    assert len(told) == 3 and all(line.isprintable() for line in told)


def test_what_does_not_count_is_not_in_the_medians() -> None:
    end = SweepEnd(label="a", concurrency=4, repeats=2, half_width=None, ended_by="repeats spent")
    _, row = lines([point(), point(repeat=1, failed=1, output_tok_s=900.0)], [end])
    assert row.split()[1] == "100" and row.split()[8] == "1"
