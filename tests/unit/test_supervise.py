"""A command and all its descendants end with whoever asked for it."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.processes import is_running, running, wait_for
from workbook.paths import PROBES

SUPERVISE = [sys.executable, "-I", "-S", str(PROBES / "supervise.py"), "--grace", "0.5", "--"]

# A child that ignores SIGTERM and leaves a grandchild in a session of its own; both write their process ids.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
print(os.getpid(), flush=True)
time.sleep(600)
"""  # noqa: E501


@pytest.fixture
def stubborn(tmp_path):
    """A supervised stubborn family: the supervisor and the ids of child and grandchild."""
    out = tmp_path / "pids"
    with out.open("w") as sink:
        supervisor = subprocess.Popen(
            [*SUPERVISE, sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=sink
        )
    wait_for(lambda: len(out.read_text().split()) == 2)
    family = [int(pid) for pid in out.read_text().split()]
    yield supervisor, family
    for pid in running(family):
        os.kill(pid, signal.SIGKILL)


def test_closing_the_lifeline_ends_the_whole_family(stubborn):
    supervisor, family = stubborn
    supervisor.stdin.close()
    assert supervisor.wait(15) == 128 + signal.SIGKILL
    assert running(family) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_whole_family(stubborn, number):
    supervisor, family = stubborn
    supervisor.send_signal(number)
    supervisor.wait(15)
    assert running(family) == []


def test_a_supervisor_that_is_killed_takes_the_command_along(stubborn):
    supervisor, (child, _) = stubborn
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: not is_running(child))


def test_an_asker_that_is_killed_takes_the_family_along(tmp_path):
    out = tmp_path / "pids"
    asker = tmp_path / "asker.py"
    asker.write_text(
        "import sys, time\nfrom pathlib import Path\nfrom workbook.node.connect import connect\n"
        f"process = connect('local').start([sys.executable, '-c', {STUBBORN!r}], log=Path({str(out)!r}))\n"
        "time.sleep(600)\n"
    )
    killed = subprocess.Popen([sys.executable, str(asker)])
    wait_for(lambda: out.exists() and len(out.read_text().split()) == 2)
    family = [int(pid) for pid in out.read_text().split()]
    killed.kill()
    killed.wait()
    wait_for(lambda: not running(family), seconds=30)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_status_is_the_commands(code, status):
    supervisor = subprocess.Popen([*SUPERVISE, sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert supervisor.wait(15) == status


def test_a_command_that_is_not_there(tmp_path):
    done = subprocess.run(
        [*SUPERVISE, str(tmp_path / "nothing")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "cannot start" in done.stderr


def test_an_orphan_of_an_ended_command_is_ended_too(tmp_path):
    out = tmp_path / "pid"
    code = (
        "import subprocess, sys; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True).pid)"
    )
    with out.open("w") as sink:
        supervisor = subprocess.Popen(
            [*SUPERVISE, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=sink
        )
    assert supervisor.wait(15) == 0
    assert not is_running(int(Path(out).read_text()))


def test_each_line_is_stamped_with_its_arrival_also_one_that_a_carriage_return_ends() -> None:
    script = (
        "import time\nfor n in range(3): print(n, end='\\r', flush=True); time.sleep(0.2)\n"
        "print('no end', end='')"
    )
    lifeline, held = os.pipe()
    done = subprocess.run(
        [*SUPERVISE[:-1], "--stamp", "--", sys.executable, "-c", script],
        stdin=lifeline, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(lifeline), os.close(held)
    stamps, words = zip(*(line.split(" ", 1) for line in done.stdout.splitlines()), strict=True)
    times = [datetime.fromisoformat(one) for one in stamps]
    assert words == ("0", "1", "2", "no end")
    assert all(b - a >= timedelta(seconds=0.15) for a, b in pairwise(times[:3]))


def test_a_progress_bar_is_stamped_when_it_appears_and_does_not_wait_to_be_overwritten() -> None:
    script = (
        "import sys, time\ndef show(text): sys.stderr.write(text); sys.stderr.flush(); time.sleep(0.5)\n"
        "show('\\r 0/2'); show('\\r 1/2'); show('\\r 2/2\\n'); show('a line'); show(' in two\\n')"
    )
    lifeline, held = os.pipe()
    running = subprocess.Popen(
        [*SUPERVISE[:-1], "--stamp", "--", sys.executable, "-c", script],
        stdin=lifeline, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    seen = [(datetime.now(UTC), *line.rstrip().split(" ", 1)) for line in running.stdout]
    os.close(lifeline), os.close(held)
    running.wait(30)
    assert [words.strip() for _, _, words in seen] == ["0/2", "1/2", "2/2", "a line in two"]
    times = [datetime.fromisoformat(stamp) for _, stamp, _ in seen]
    assert all(b - a >= timedelta(seconds=0.4) for a, b in pairwise(times))
    assert all(read - at < timedelta(seconds=0.4) for (read, *_), at in zip(seen[:3], times, strict=False))
