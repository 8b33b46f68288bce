"""A server's life, with a stand-in for SGLang that starts in a moment."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
import typer

from tests.processes import running
from workbook import serving
from workbook.cli import app
from workbook.errors import WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.log import decisive_line, new_lines, printable
from workbook.serving.server import Server, how_it_ended, installed_sglang, is_healthy
from workbook.types import LaunchProfile, Node, Status

FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"


@pytest.fixture
def node() -> LocalConnection:
    return LocalConnection(Node(name="here", env={"PYTHONPATH": str(FAKE)}))


class Started:
    """Which processes a stand-in server consisted of."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pids.json"

    def alive(self) -> list[int]:
        return running(json.loads(self.file.read_text()))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    yield (started := Started(tmp_path))
    assert started.alive() == []  # whatever the test was about


def profile(started: Started, mode: str = "") -> LaunchProfile:
    return LaunchProfile(
        name="fake", description="", model="org/model", concurrencies=(1,), input_tokens=8, output_tokens=8,
        env={"FAKE_SERVER": mode, "FAKE_PIDS": str(started.file)},
    )  # fmt: skip


def test_a_server_answers_inside_and_is_gone_after(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    told: list[str] = []
    with Server(node, profile(started), log=tmp_path / "log", on_line=told.append) as server:
        assert urlopen(f"{server.url}/health").status == 200
        assert len(started.alive()) == 2
        assert server.outcome.status is Status.OK and 0 < (server.outcome.ready_s or 0) < 30
    assert not is_healthy(server.url)
    assert "loading weights" in told  # without its colour codes
    assert 0.005 < (server.outcome.peak_rss_gb or 0) < 1
    assert server.outcome.command == server.command and f"--port {server.port}" in server.command


def test_the_peak_memory_is_that_of_the_whole_tree(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started), log=tmp_path / "log") as server:
        seen = sum(psutil.Process(pid).memory_info().rss for pid in started.alive())
        time.sleep(1)
    assert (server.outcome.peak_rss_gb or 0) * 1e9 >= seen


def test_a_server_that_dies_at_start_gives_the_line_that_decides(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started, "dies"), log=tmp_path / "log")
    with pytest.raises(WorkbookError) as caught, server:
        pytest.fail("a dead server was taken for ready")
    said = str(caught.value)
    assert "profile fake ended with exit status 3 before it was ready" in said
    assert f"RuntimeError: no kernel image is available (line 3 of {tmp_path / 'log'})" in said
    assert server.outcome.status is Status.CRASHED
    assert server.outcome.decisive_line == "RuntimeError: no kernel image is available"
    assert server.outcome.line_number == 3 and server.outcome.ready_s is None


def test_a_killed_server_names_the_signal_and_blames_no_line(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started, "is killed"), log=tmp_path / "log")
    with (
        pytest.raises(WorkbookError, match="was ended by SIGKILL before it was ready: no error is named"),
        server,
    ):
        pytest.fail("a dead server was taken for ready")
    assert server.outcome.decisive_line == "" and server.outcome.line_number is None


def test_a_server_that_is_not_ready_in_time_is_stopped(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started, "never ready"), log=tmp_path / "log", ready_timeout_s=1.5)
    with pytest.raises(WorkbookError, match=r"was not ready after 1.5 s: loading weights"), server:
        pytest.fail("a starting server was taken for ready")
    assert server.outcome.status is Status.TIMEOUT


def test_a_server_that_dies_later_is_on_record(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started, "dies later"), log=tmp_path / "log") as server:
        assert server.death() is None
        time.sleep(3)
        assert "ended with exit status 1 after it was ready: OutOfMemoryError" in (server.death() or "")
    assert server.outcome.status is Status.CRASHED
    assert server.outcome.decisive_line == "OutOfMemoryError: CUDA out of memory"
    assert "after it was ready" in server.outcome.reason and server.outcome.ready_s is not None


def test_a_server_whose_supervisor_is_killed_is_gone_and_on_record(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started), log=tmp_path / "log") as server:
        root = psutil.Process(started.alive()[0])
        os.kill(root.ppid(), signal.SIGKILL)
        time.sleep(0.5)
    assert server.outcome.status is Status.CRASHED
    assert server.outcome.reason == "was ended by SIGKILL after it was ready"


def test_an_error_inside_stops_the_server_and_comes_through(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), Server(node, profile(started), log=tmp_path / "log"):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_server_that_does_not_heed_sigterm_is_gone_as_well(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started, "deaf"), log=tmp_path / "log"):
        assert len(started.alive()) == 2


ASKER = """
import sys, time
from pathlib import Path
from workbook.node.local import LocalConnection
from workbook.serving.server import Server
from workbook.types import LaunchProfile, Node
node = LocalConnection(Node(name="here", env={"PYTHONPATH": sys.argv[1]}))
profile = LaunchProfile.model_validate_json(sys.argv[2])
with Server(node, profile, log=Path(sys.argv[3])):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_when_whoever_asked_is_killed(started: Started, tmp_path: Path) -> None:
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(FAKE), profile(started).model_dump_json(), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asker.stdout is not None and asker.stdout.readline() == "ready\n"
    assert len(started.alive()) == 2
    asker.kill()
    asker.wait()
    asker.stdout.close()
    deadline = time.monotonic() + 20
    while started.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert started.alive() == []


def test_a_log_is_never_written_over(node: LocalConnection, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an earlier server's\n")
    asked = LaunchProfile(
        name="fake", description="", model="m", concurrencies=(1,), input_tokens=8, output_tokens=8
    )
    with pytest.raises(WorkbookError, match="there already"):
        Server(node, asked, log=log)
    assert log.read_text() == "an earlier server's\n"


def test_the_installed_version_is_asked_of_the_nodes_python(node: LocalConnection, tmp_path: Path) -> None:
    assert installed_sglang(node, node.python) == "0.5.23"
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    script.chmod(0o755)
    bare = LocalConnection(Node(name="bare", python=str(script)))
    with pytest.raises(WorkbookError, match=r"node bare has no sglang"):
        installed_sglang(bare, bare.python)


def test_hints_name_only_commands_that_exist() -> None:
    words = [
        word
        for source in Path(next(iter(serving.__path__))).glob("*.py")
        for word in re.findall(r"`workbook (\w+)", source.read_text())
    ]
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup) and set(words) <= set(group.commands)


def test_an_exit_status_above_128_or_below_0_is_a_signal() -> None:
    assert how_it_ended(-9) == "was ended by SIGKILL"
    assert how_it_ended(0) == "ended with exit status 0"
    assert how_it_ended(1) == "ended with exit status 1"
    assert how_it_ended(128 + 9) == "was ended by SIGKILL"
    assert how_it_ended(255) == "ended with exit status 255"


def test_a_port_that_speaks_something_else_is_not_healthy() -> None:
    assert not is_healthy("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("log", "decisive"),
    [
        ("", ("", None)),
        ("\n\n", ("", None)),
        ("loading\nstill loading\n\n", ("still loading", 2)),
        ("a\nValueError: x\nb\ntorch.OutOfMemoryError: y\nc\n", ("torch.OutOfMemoryError: y", 4)),
        ("usage: x\nx: error: invalid choice", ("x: error: invalid choice", 2)),
        ("a\n[2026-01-01 TP0] RuntimeError: y\n[rank0]: ValueError: x\nb", ("[rank0]: ValueError: x", 3)),
        ("API disabled (ModuleNotFoundError: No module named 'openai_harmony')\nready", ("ready", 2)),
        ("Subprocess s crashed with exit code -9.\nb", ("Subprocess s crashed with exit code -9.", 1)),
        ("Fatal Python error: Segmentation fault\nb", ("Fatal Python error: Segmentation fault", 1)),
        ("\rError\x1b]0;owned\x07: \x1b[31mred\x1b[0m\n", ("Error]0;owned: red", 1)),
    ],
)  # fmt: skip
def test_the_decisive_line_is_the_last_that_names_an_error(
    tmp_path: Path, log: str, decisive: tuple[str, int | None]
) -> None:
    path = tmp_path / "log"
    path.write_text(log, newline="")
    assert decisive_line(path) == decisive


def test_without_an_error_the_last_line_decides_only_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("API disabled (ModuleNotFoundError: No module named 'openai_harmony')\nready\n")
    assert decisive_line(path, or_last=False) == ("", None)
    path.write_text("ValueError: x\nready\n")
    assert decisive_line(path, or_last=False) == ("ValueError: x", 1)


def test_a_log_that_is_not_text_still_has_a_decisive_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\x00\nRuntimeError: \xff\n")
    line, number = decisive_line(path)
    assert line.startswith("RuntimeError:") and number == 2


def test_an_endless_line_is_cut() -> None:
    assert len(printable("x" * 10**6)) < 400


def test_new_lines_come_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    lines = new_lines(path)
    assert next(lines) == "one" and next(lines) is None
    with path.open("a") as log:
        log.write("o\n")
    assert next(lines) == "two" and next(lines) is None
