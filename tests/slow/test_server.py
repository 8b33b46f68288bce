"""A real SGLang server on the CPU, with SGLang's own benchmark. Takes some minutes."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from workbook.catalog import load
from workbook.errors import WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.bench import run_bench
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
    with Server(NODE, profile, log=tmp_path / "server.log") as server:
        points = run_bench(
            NODE,
            server.url,
            profile,
            server.model_path,
            concurrencies=[1, 4],
            repeats=1,
            raw_dir=tmp_path / "raw",
            label="eager",
            run_id="run",
            seed=3,
            on_point=told.append,
        )
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
    assert server.outcome.status is Status.OK
    assert (server.outcome.ready_s or 0) > 1 and (server.outcome.peak_rss_gb or 0) > 0.5


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

    def kill(pid: int) -> None:
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    with (
        pytest.raises(WorkbookError, match="The server died during the benchmark: it was ended by SIGKILL"),
        server,
    ):
        processes = of_server(server.port)
        [pid] = [one for one in processes if victim in command_line(one)]
        run_bench(
            NODE,
            server.url,
            profile,
            server.model_path,
            concurrencies=[1],
            repeats=50,
            raw_dir=tmp_path / "raw",
            label="eager",
            run_id="run",
            seed=3,
            on_point=lambda point: killed or threading.Timer(1, kill, [pid]).start(),
            server_death=server.death,
        )
    assert time.monotonic() - killed[0] < 20
    assert running(processes) == []
    assert server.outcome.status is Status.CRASHED
    if victim == "sglang::scheduler":
        assert "crashed with exit code -9" in server.outcome.decisive_line
    else:
        assert server.outcome.decisive_line == ""


def test_a_server_that_dies_at_start_says_why(tmp_path: Path) -> None:
    profile = load(LaunchProfile, "tiny-cpu").model_copy(update={"attention_backend": "no-such-backend"})
    server = Server(NODE, profile, log=tmp_path / "server.log")
    with pytest.raises(WorkbookError, match=r"exit status 2 .* invalid choice: 'no-such-backend'"), server:
        pytest.fail("a dead server was taken for ready")
    assert server.outcome.status is Status.CRASHED
    lines = (tmp_path / "server.log").read_text().split("\n")
    assert "no-such-backend" in lines[(server.outcome.line_number or 0) - 1]
