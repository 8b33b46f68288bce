"""The watcher beside a server's processes: it changes nothing of a command that ends by itself."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import is_running, wait_for
from workbook.paths import PROBES

WATCH = [sys.executable, "-I", "-S", str(PROBES / "watch.py")]


def watch(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WATCH, "--", *command], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("end", "status"), [("raise SystemExit(3)", 3), ("os.kill(os.getpid(), 9)", 137), ("", 0)]
)
def test_the_exit_status_and_the_output_are_the_commands(end: str, status: int) -> None:
    done = watch(sys.executable, "-c", f"import os; print('said', flush=True); {end}")
    assert done.returncode == status
    assert re.fullmatch(r"said\n\nworkbook: peak resident memory \d+\.\d{6} GB\n", done.stdout)


def test_a_command_that_cannot_start_is_named() -> None:
    done = watch("/no/such/command")
    assert done.returncode == 127
    assert "workbook: error: cannot start /no/such/command: No such file or directory" in done.stdout


def test_without_a_command_it_says_how_it_is_used() -> None:
    done = subprocess.run(WATCH, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("usage: watch.py -- COMMAND")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_ends_with_its_watcher(number: int) -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    watcher = subprocess.Popen(
        [*WATCH, "--", sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    pid = int(watcher.stdout.readline())
    os.kill(watcher.pid, number)
    wait_for(lambda: not is_running(pid))
    assert watcher.wait(10) == (128 + number if number == signal.SIGTERM else -number)
    watcher.stdout.close()


def test_a_rank_that_ends_in_order_is_no_error() -> None:
    """One that ends because the launcher is asked to stop."""
    script = (
        "import ctypes, os, signal, subprocess, sys, time\n"
        "rank = subprocess.Popen([sys.executable, '-c', "
        "'import ctypes, time; ctypes.CDLL(None).prctl(15, b\"sglang::x\", 0, 0, 0); time.sleep(600)'])\n"
        "def stop(*_): rank.kill(); rank.wait(); time.sleep(2); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    watcher = subprocess.Popen(
        [*WATCH, "--", sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None and watcher.stdout.readline() == "ready\n"
    time.sleep(2.5)  # until it has seen the rank
    watcher.terminate()
    rest, _ = watcher.communicate(timeout=30)
    assert watcher.returncode == 0 and "error" not in rest
