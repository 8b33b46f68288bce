"""`workbook serve`, with a stand-in for SGLang that starts in a moment."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.processes import running, wait_for

BIN = Path(sys.executable).parent
FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"
needs_tokenizers = pytest.mark.skipif(find_spec("tokenizers") is None, reason="no tokenizers here")


class Command:
    """`workbook serve tiny-cpu` in a process of its own, with the stand-in on its path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pids = folder, folder / "pids.json"

    def start(self, mode: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [BIN / "workbook", "serve", "tiny-cpu", "--log", "server.log", *options],
            cwd=self.folder,
            env=os.environ
            | {
                "PYTHONPATH": str(FAKE),
                "FAKE_SERVER": mode,
                "FAKE_PIDS": str(self.pids),
                "WORKBOOK_STACKS": str(self.folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def started(self) -> list[int]:
        """The processes of the server, as soon as there are some."""
        wait_for(lambda: self.pids.exists() and self.pids.read_text().endswith("]"), seconds=60)
        pids: list[int] = json.loads(self.pids.read_text())
        return pids


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    yield (command := Command(tmp_path))
    assert running(json.loads(command.pids.read_text())) == []  # whatever the test was about


@needs_tokenizers
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_is_stopped_on_request_and_nothing_is_left(command: Command, number: int) -> None:
    command.start("captures", "--patch-level", "4")
    assert command.process.stdout is not None
    ready = command.process.stdout.readline()
    url = re.search(r"^Ready after \d+ s: (http://127\.0\.0\.1:(\d+))\. Ctrl-C stops it\.$", ready)
    assert url, ready
    assert urlopen(f"{url[1]}/health").status == 200
    command.process.send_signal(number)
    status, out, err = command.end()
    assert (status, out) == (0, f"Nothing is left: its processes are gone, port {url[2]} is free.\n")
    assert f"--port {url[2]}" in err and "WORKBOOK_PATCH_LEVEL=4" in err
    assert f"Log: {command.folder / 'server.log'}" in err and "level-4" in err
    assert re.search(r"\d+ s: capturing decode graphs, 2 of 2 sizes, 4 requests, 9\.1 GB left", err)


@needs_tokenizers
def test_an_interrupt_before_it_is_ready_leaves_nothing_either(command: Command) -> None:
    command.start("hangs")
    assert running(command.started())
    command.process.send_signal(signal.SIGINT)
    status, out, err = command.end()
    assert status == 130 and "Nothing is left" in out
    assert "workbook: interrupted before the server was ready." in err and "Traceback" not in err


@needs_tokenizers
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies in capture", "before it was ready: torch._dynamo.exc.Unsupported: Attempted to call (line 13 of"),
        ("dies later", "after it was ready: OutOfMemoryError: CUDA out of memory (line 3 of"),
    ],
)  # fmt: skip
def test_a_death_is_an_answer(command: Command, mode: str, said: str) -> None:
    command.start(mode)
    status, out, err = command.end()
    assert status == 0 and said in out and "Nothing is left" in out and "Traceback" not in err


def refused(*args: str) -> str:
    done = subprocess.run([BIN / "workbook", "serve", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    return done.stderr


def test_a_dry_run_translates_for_any_version_without_it() -> None:
    done = subprocess.run(
        [BIN / "workbook", "serve", "glm5-nvfp4-tp8", "--dry-run", "--sglang", "0.5.9", "--tp", "4", "--port", "1234"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    words = shlex.split(done.stdout)
    assert words[0] == "env" and "--enable-piecewise-cuda-graph" in words
    assert words[words.index("--tp-size") + 1] == "4" and words[words.index("--port") + 1] == "1234"
    assert any(re.fullmatch(r"TORCHINDUCTOR_CACHE_DIR=.*-sglang-0\.5\.9/level-0/.*", word) for word in words)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("glm5-nvfp4-tp8", "--dry-run", "--sglang", "0.5.23"), "removed in 0.5.22; use capture_mode: breakable"),
        (("tiny-cpu", "--sglang", "0.5.9"), "--sglang belongs to --dry-run"),
        (("tiny-cpu", "--patch-level", "9", "--dry-run", "--sglang", "0.5.9"), "No patch level 9"),
        (("tiny-cup",), "did you mean tiny-cpu?"),
        (("tiny-cpu", "--stack", "sed"), "did you mean seed?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(args: tuple[str, ...], reason: str) -> None:
    assert reason in refused(*args)
