"""`workbook bench` with SGLang's own benchmark on a real SGLang server on the CPU. Takes some minutes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import command_line, running
from workbook import store
from workbook.catalog import load
from workbook.node.local import LocalConnection
from workbook.serving.bench import Plan, Target, run_bench
from workbook.serving.server import Server
from workbook.types import BenchPoint, LaunchProfile, Node, ServeOutcome, SweepEnd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sglang") is None, reason="no sglang in this environment"),
]

NODE = LocalConnection(Node(name="here"))
PROFILE = "tiny-cpu"


def bench(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], store.SealedRun]:
    command = [str(Path(sys.executable).with_name("workbook")), "bench", *args]
    env = os.environ | {"WORKBOOK_RUNS": str(folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [path] = (folder / "bench").iterdir()
    return done, store.load(path)


def check(points: list[BenchPoint], output_tokens: int) -> None:
    """What holds for every point, however fast the machine is."""
    for point in points:
        assert point.usable and point.completed == point.requested >= 16
        # the server's own counter and the client have the same answers in the same time
        assert point.server_tok_s == pytest.approx(point.output_tok_s)
        assert point.output_tok_s * point.duration_s == pytest.approx(point.completed * output_tokens)
        assert 0 < (point.ttft_ms_p50 or 0) <= (point.ttft_ms_p90 or 0) <= (point.ttft_ms_p99 or 0)
        assert 0 < (point.itl_ms_p50 or 0) <= (point.itl_ms_p90 or 0) <= (point.itl_ms_p99 or 0)
        assert 0 < (point.client_cpu or 0) < 0.9


def test_a_profile_is_started_measured_and_stopped(tmp_path: Path) -> None:
    done, run = bench(tmp_path, PROFILE, "--concurrency", "1,8", "--repeats", "2")
    points = run.records("points", BenchPoint)
    assert [(one.concurrency, one.repeat) for one in points] == [(1, 0), (8, 0), (1, 1), (8, 1)]
    check(points, load(LaunchProfile, PROFILE).output_tokens)
    assert [one.ended_by for one in run.records("sweep_ends", SweepEnd)] == ["repeats spent"] * 2
    [serve] = run.records("serve", ServeOutcome)
    assert serve.status == "ok" and serve.left_behind == ()
    port = serve.command.split("--port ")[1].split()[0]
    assert not [pid for pid in running_servers() if port in command_line(pid)]
    command = done.stderr.index("sglang.launch_server")
    assert command < done.stderr.index("Concurrency 1")  # it is told before anything is measured
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["1", "8"]


def running_servers() -> list[int]:
    pids = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    return [pid for pid in running(pids) if "sglang" in command_line(pid)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    with Server(NODE, load(LaunchProfile, PROFILE), log=log) as server:
        yield server


def test_a_server_that_runs_is_measured_by_its_address(tmp_path: Path, server: Server) -> None:
    done, run = bench(
        tmp_path, "--url", f"{server.url}/v1", "--concurrency", "1,8", "--repeats", "1",
        "--input-tokens", "64", "--output-tokens", "32", "--json",
    )  # fmt: skip
    points = run.records("points", BenchPoint)
    assert [one["concurrency"] for one in json.loads(done.stdout)] == [1, 8]
    check(points, 32)
    assert run.records("serve", ServeOutcome) == []
    raw = json.loads(next((run.path / "raw" / "bench").glob("*/*-c8-r0-s0.jsonl")).read_text())
    assert raw["backend"] == "vllm" and set(raw["input_lens"]) == {64}  # the ids arrived as they are


def test_several_clients_give_one_point(tmp_path: Path, server: Server) -> None:
    target = Target("shards", server.node_url, server.model_path, server.death)
    plan = Plan((8,), 64, 32, repeats=1, clients=3)
    [point] = run_bench(NODE, [target], plan, raw_dir=tmp_path, run_id="run").points
    check([point], 32)
    raws = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/*.jsonl"))]
    assert point.clients == len(raws) == 3
    assert sum(one["completed"] for one in raws) == point.completed == 32
    # each knows its own time only; the point's is that of all, who ran together
    assert point.duration_s < sum(one["duration"] for one in raws)
