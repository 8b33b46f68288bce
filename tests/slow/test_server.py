"""A real SGLang server on the CPU, with SGLang's own benchmark. Takes some minutes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from workbook.catalog import load
from workbook.errors import WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.bench import Plan, Target, run_bench
from workbook.serving.server import Server, is_healthy
from workbook.types import BenchPoint, LaunchProfile, Node, Status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sglang") is None, reason="no sglang in this environment"),
]

NODE = LocalConnection(Node(name="here"))


def of_server(port: int) -> list[int]:
    """The processes of the server at this port: what has it on its command line, and all below that."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if str(port) in command and "sglang.launch_server" in command:
            with suppress(psutil.NoSuchProcess):
                found |= {process.pid, *(child.pid for child in process.children(recursive=True))}
    return sorted(found)


def test_a_baseline_from_start_to_stop(tmp_path: Path) -> None:
    profile = load(LaunchProfile, "tiny-cpu")
    told: list[BenchPoint] = []
    words: list[str] = []
    with Server(
        NODE, profile, log=tmp_path / "server.log", label="eager", on_progress=words.append
    ) as server:
        target = Target("eager", server.node_url, server.model_path, server.death)
        plan = Plan((1, 4), profile.input_tokens, profile.output_tokens, repeats=1, seed=3)
        points = run_bench(
            NODE, [target], plan, raw_dir=tmp_path / "raw", run_id="run", env=profile.env,
            on_point=lambda point, so_far: told.append(point),
        ).points  # fmt: skip
        processes = of_server(server.port)
        assert len(processes) >= 4  # the supervisor, the server, its scheduler, its detokenizer
    assert running(processes) == []
    assert not is_healthy(server.url)

    assert told == points and [point.concurrency for point in points] == [1, 4]
    for point in points:
        assert point.completed == point.requested >= 16 and point.failed == 0
        assert point.output_tok_s == pytest.approx(
            point.completed * profile.output_tokens / point.duration_s, rel=0.01
        )
        assert 0 < (point.ttft_ms_p50 or 0) <= (point.ttft_ms_p90 or 0) <= (point.ttft_ms_p99 or 0)
        assert 0 < (point.itl_ms_p50 or 0) <= (point.itl_ms_p90 or 0) <= (point.itl_ms_p99 or 0)
    assert server.outcome.status is Status.OK and server.outcome.left_behind == ()
    assert (server.outcome.ready_s or 0) > 1 and (server.outcome.peak_rss_gb or 0) > 0.5
    assert server.outcome.capture_s is None and server.capture_steps == ()  # a CPU captures nothing
    assert words[0] == "importing SGLang" and words[-1].startswith("ready, ")
    assert any(one.startswith("loading weights") for one in words)
    stamps = [line.split(" ", 1)[0] for line in server.log.read_text().splitlines()]
    assert stamps == sorted(stamps) and all(map(datetime.fromisoformat, stamps))


ASKER = """
import sys, time
from pathlib import Path
from workbook.catalog import load
from workbook.node.local import LocalConnection
from workbook.serving.server import Server
from workbook.types import LaunchProfile, Node
server = Server(LocalConnection(Node(name="here")), load(LaunchProfile, "tiny-cpu"), log=Path(sys.argv[1]))
print(server.port, flush=True)
with server:
    print("ready", flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_when_whoever_asked_is_killed(tmp_path: Path) -> None:
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(tmp_path / "server.log")], stdout=subprocess.PIPE, text=True
    )
    assert asker.stdout is not None
    port = int(asker.stdout.readline())
    assert asker.stdout.readline() == "ready\n"
    processes = of_server(port)
    assert len(processes) >= 4
    asker.kill()
    asker.wait()
    asker.stdout.close()
    wait_for(lambda: not running(processes), seconds=30)


@pytest.mark.parametrize("victim", ["sglang::scheduler", "supervise.py"])
def test_a_server_that_dies_in_a_benchmark_ends_it_and_leaves_nothing(tmp_path: Path, victim: str) -> None:
    profile = load(LaunchProfile, "tiny-cpu")
    server = Server(NODE, profile, log=tmp_path / "server.log")
    killed: list[float] = []
    noticed: list[float] = []

    def kill(pid: int) -> None:
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    def death() -> str | None:
        if (died := server.death()) and not noticed:
            noticed.append(time.monotonic())
        return died

    with pytest.raises(WorkbookError, match=r"The server died during the benchmark: it (was|ended) "), server:
        processes = of_server(server.port)
        [pid] = [one for one in processes if victim in command_line(one)]
        run_bench(
            NODE,
            [Target("eager", server.node_url, server.model_path, death)],
            Plan((1,), profile.input_tokens, profile.output_tokens, repeats=50, precision=1e-9),
            raw_dir=tmp_path / "raw",
            run_id="run",
            env=profile.env,
            on_point=lambda point, so_far: killed or threading.Timer(1, kill, [pid]).start(),
        )
    assert noticed[0] - killed[0] < 5  # two seconds on a machine that has time
    assert running(processes) == []
    assert server.outcome.status is Status.CRASHED and server.outcome.left_behind == ()
    if victim == "sglang::scheduler":  # SGLang's own watchdog and ours look at the same time
        said = "crashed with exit code -9|ended, and the server went on without it"
        assert re.search(said, server.outcome.decisive_line)
    else:
        assert server.outcome.decisive_line == ""


def test_a_server_that_dies_at_start_says_why(tmp_path: Path) -> None:
    (model := tmp_path / "no-model").mkdir()
    profile = load(LaunchProfile, "tiny-cpu").model_copy(update={"model": str(model)})
    server = Server(NODE, profile, log=tmp_path / "server.log")
    with pytest.raises(WorkbookError, match=r"before it was ready: \w*Error: .*no-model"), server:
        pytest.fail("a dead server was taken for ready")
    assert server.outcome.status is Status.CRASHED
    lines = (tmp_path / "server.log").read_text().split("\n")
    assert "no-model" in lines[(server.outcome.line_number or 0) - 1]


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [Path(sys.executable).parent / "workbook", "serve", "tiny-cpu"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert command.stdout is not None
    ready = re.match(r"Ready after \d+ s: (\S+:(\d+))\. ", command.stdout.readline())
    assert ready and is_healthy(ready[1])
    processes = of_server(int(ready[2]))
    assert len(processes) >= 4
    command.send_signal(signal.SIGINT)
    out, _ = command.communicate(timeout=120)
    assert command.returncode == 0
    assert out == f"Nothing is left: its processes are gone, port {ready[2]} is free.\n"
    assert running(processes) == []
    [log] = tmp_path.glob("serve-tiny-cpu-*.log")
    assert "fired up and ready to roll" in log.read_text()
