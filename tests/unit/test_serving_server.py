"""A server's life, with a stand-in for SGLang that starts in a moment."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
import typer

from tests.processes import running
from workbook import serving
from workbook.cli import app
from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.caches import FOLDERS
from workbook.serving.log import decisive_line, new_lines, printable
from workbook.serving.server import PortTakenError, Server, how_it_ended, installed_sglang, is_healthy
from workbook.types import CaptureMode, LaunchProfile, Node, Status

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


def profile(started: Started, mode: str = "", **env: str) -> LaunchProfile:
    return LaunchProfile(
        name="fake", description="", model="org/model", concurrencies=(1,), input_tokens=8, output_tokens=8,
        device="cpu", capture_mode=CaptureMode.EAGER,
        env={"FAKE_SERVER": mode, "FAKE_PIDS": str(started.file), "HF_HUB_OFFLINE": "0"} | env,
    )  # fmt: skip


def test_a_server_answers_inside_and_is_gone_after(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    told: list[str] = []
    with Server(node, profile(started), log=tmp_path / "log", on_progress=told.append) as server:
        assert urlopen(f"{server.url}/health").status == 200
        assert len(started.alive()) == 2
        assert server.outcome.status is Status.OK and 0 < (server.outcome.ready_s or 0) < 30
    assert not is_healthy(server.url)
    assert told == ["importing SGLang", "ready"]
    assert 0.005 < (server.outcome.peak_rss_gb or 0) < 1
    assert server.outcome.command == server.command and f"--port {server.port}" in server.command


def test_the_peak_memory_is_that_of_the_whole_tree(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started), log=tmp_path / "log") as server:
        seen = sum(psutil.Process(pid).memory_info().rss for pid in started.alive())
        time.sleep(2)
    # the kernel counts pages in batches, so that two looks differ by a little
    assert (server.outcome.peak_rss_gb or 0) * 1e9 >= 0.95 * seen


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
    with (
        pytest.raises(WorkbookError, match=r"was not ready after 1.5 s \(ready\): .*The server is fired up"),
        server,
    ):
        pytest.fail("a starting server was taken for ready")
    assert server.outcome.status is Status.TIMEOUT


def test_a_server_that_dies_later_is_on_record(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    with Server(node, profile(started, "dies later"), log=tmp_path / "log") as server:
        assert server.death() is None
        time.sleep(3)
        assert "ended with exit status 1 after it was ready: OutOfMemoryError" in (server.death() or "")
    assert server.outcome.status is Status.OOM
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


def test_the_way_to_readiness_is_told_in_words(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    told: list[str] = []
    asked = profile(started, "captures")
    with Server(node, asked, log=tmp_path / "log", label="here", on_progress=told.append) as server:
        pass
    assert told == [
        "importing SGLang",
        "starting its processes",
        "joining its ranks",
        "loading weights, 94.10 GB left",
        "loading weights, 1 of 2 shards, 94.10 GB left",
        "weights loaded, 50.00 GB left",
        "allocating the KV cache, 50.00 GB left",
        "capturing decode graphs, 9.50 GB left",
        "capturing decode graphs, 1 of 2 sizes, 8 requests, 9.4 GB left",
        "capturing decode graphs, 2 of 2 sizes, 4 requests, 9.1 GB left",
        "decode graphs captured, 8.25 GB left",
        "warming up, 8.25 GB left",
        "ready, 8.25 GB left",
    ]
    assert [(step.label, step.num_tokens) for step in server.capture_steps] == [("here", 8), ("here", 4)]
    assert server.outcome.graph_memory_gb == 1.25 and 0.05 < (server.outcome.capture_s or 0) < 5
    assert all(
        re.match(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z ", line) for line in server.log.read_text().splitlines()
    )


def test_a_capture_that_dies_is_on_record_with_its_cause(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started, "dies in capture"), log=tmp_path / "log", patch_level=0, label="x")
    with pytest.raises(WorkbookError, match=r"before it was ready: torch\._dynamo\.exc\.Unsupported"), server:
        pytest.fail("a dead server was taken for ready")
    assert server.outcome.status is Status.DYNAMO_UNSUPPORTED
    assert [step.num_tokens for step in server.capture_steps] == [8, 4]
    assert (server.outcome.label, server.outcome.sglang, server.outcome.patch_level) == ("x", "0.5.23", 0)


def test_a_server_that_says_nothing_hangs(node: LocalConnection, started: Started, tmp_path: Path) -> None:
    server = Server(node, profile(started, "hangs"), log=tmp_path / "log", silence_s=1.5)
    with (
        pytest.raises(WorkbookError, match=r"said nothing for 1\.5 s \(importing SGLang\): loading weights"),
        server,
    ):
        pytest.fail("a hanging server was taken for ready")
    assert server.outcome.status is Status.TIMEOUT and server.outcome.ready_s is None


def test_a_compiler_at_work_is_no_silence(node: LocalConnection, started: Started, tmp_path: Path) -> None:
    """Kernels are built in silence; the watcher names the compilers that it sees."""
    compiler = tmp_path / "cicc"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", compiler)
    told: list[str] = []
    asked = profile(started, "compiles", FAKE_COMPILER=str(compiler))
    with Server(node, asked, log=tmp_path / "log", silence_s=4, on_progress=told.append):
        pass
    assert "importing SGLang: building kernels (1 cicc)" in told


def crash(node: LocalConnection, asked: LaunchProfile, log: Path, kill: Callable[[], None]) -> float:
    """Seconds from a kill until `death` tells of it."""
    with Server(node, asked, log=log) as server:
        time.sleep(1.5)  # until the watcher has seen the processes
        kill()
        began = time.monotonic()
        while server.death() is None:
            assert time.monotonic() < began + 20, "the death was not noticed"
            time.sleep(0.05)
        return time.monotonic() - began


def test_a_crash_is_noticed_within_two_seconds(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    def kill() -> None:
        os.kill(started.alive()[0], signal.SIGKILL)

    assert crash(node, profile(started), tmp_path / "log", kill) < 2


def test_a_rank_that_dies_while_the_launcher_hangs_is_noticed_within_two_seconds(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    def kill() -> None:
        os.kill(started.alive()[1], signal.SIGKILL)

    log = tmp_path / "log"
    assert crash(node, profile(started), log, kill) < 2
    line, _ = decisive_line(log)
    assert re.search(r"error: .* \(process \d+\) ended, and the server went on without it", line)


def test_a_rank_that_dies_before_the_server_is_ready_ends_the_wait(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started, "never listens, rank dies"), log=tmp_path / "log")
    with (
        pytest.raises(WorkbookError, match="ended with exit status 70 before it was ready: workbook: error"),
        server,
    ):
        pytest.fail("a dead server was taken for ready")
    assert server.outcome.status is Status.CRASHED


def test_a_port_that_was_taken_meanwhile_is_changed_once(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    server = Server(node, profile(started), log=tmp_path / "server.log")
    taken = server.port
    with socket.create_server(("127.0.0.1", taken)), server:
        assert server.port != taken and server.url.endswith(f":{server.port}")
        assert f"--port {server.port}" in server.command == server.outcome.command
        assert urlopen(f"{server.url}/health").status == 200
    assert "in use" in (tmp_path / f"server-port-{taken}.log").read_text()
    assert server.outcome.status is Status.OK and server.outcome.left_behind == ()


def test_another_server_at_the_port_is_not_taken_for_this_one(
    node: LocalConnection, started: Started, tmp_path: Path
) -> None:
    other = Started(tmp_path / "other")
    other.file.parent.mkdir()
    port = node.free_port()
    with Server(node, profile(started), log=tmp_path / "log", port=port) as server:
        late = Server(node, profile(other), log=tmp_path / "other" / "log")
        late._choose_port(port)  # as if it had been free a moment ago
        late._port_is_given = True
        with pytest.raises(PortTakenError, match=f"Port {port} was taken by another process"), late:
            pytest.fail("the other server was taken for this one")
        assert server.death() is None and is_healthy(server.url)
        assert late.outcome.left_behind == ()
    assert other.alive() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "/models/none"}, r"Node here has no model folder /models/none\. Name one"),
        ({"model": "./none"}, "has no model folder ./none"),
        ({"model": "~/none"}, r"has no model folder ~/none\. No shell expands ~"),
        (
            {"model": "org/none", "env": {"HF_HUB_OFFLINE": "1"}},
            "has no model 'org/none'.*HF_HUB_OFFLINE is set",
        ),
        ({"device": "cuda"}, "Profile fake wants 1 GPU .*and node here has no GPU"),
        ({"device": "cuda", "tp": 4}, "Profile fake wants 4 GPUs .*and node here has no GPU"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    node: LocalConnection, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    asked = profile(Started(tmp_path)).model_copy(update=changes)
    with pytest.raises(UsageError, match=said):
        Server(node, asked, log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_port_that_is_in_use_is_refused(node: LocalConnection, started: Started, tmp_path: Path) -> None:
    started.file.write_text("[]")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} of node here is in use"):
            Server(node, profile(started), log=tmp_path / "log", port=port)


def test_every_level_and_stack_has_caches_of_its_own_that_a_profile_may_change(
    node: LocalConnection, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "stacks"))
    seen = []
    for level in (0, 4):
        told = tmp_path / f"env-{level}"
        asked = profile(started, FAKE_ENV=str(told), TRITON_CACHE_DIR="/elsewhere")
        with Server(node, asked, log=tmp_path / f"log-{level}", patch_level=level):
            seen.append(json.loads(told.read_text()))
    for name in FOLDERS.keys() - {"TRITON_CACHE_DIR"}:
        folders = [Path(env[name]) for env in seen]
        assert [folder.parent for folder in folders] == [
            tmp_path / "stacks" / "caches" / "embedded-sglang-0.5.23" / f"level-{level}" for level in (0, 4)
        ]
    assert {env["TRITON_CACHE_DIR"] for env in seen} == {"/elsewhere"}
    assert [env.get("WORKBOOK_PATCH_LEVEL") for env in seen] == [None, "4"]


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
    assert printable(" " * 10**6 + "\x1b[31mx" * 10**6).startswith("xxx")


def test_new_lines_come_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    lines = new_lines(path)
    assert next(lines) == "one" and next(lines) is None
    with path.open("a") as log:
        log.write("o\n")
    assert next(lines) == "two" and next(lines) is None
