"""The local node: what is run is run as given, bounded in time, and its log can be followed."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes import running, wait_for
from workbook.errors import UsageError
from workbook.node.connect import connect

ECHO = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
ARGUMENT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)))


@given(st.lists(ARGUMENT, max_size=4))
@settings(max_examples=15, deadline=None)
def test_arguments_arrive_as_they_are(arguments):
    done = connect("local").run([sys.executable, "-X", "utf8", "-c", ECHO, *arguments], timeout_s=30)
    assert done.stdout.split("\0") == (arguments or [""]) or "\r" in "".join(arguments)


@pytest.mark.parametrize("hostile", ["$(touch x)", "; touch x", "a b", "'\"", "`touch x`", "two\nlines"])
def test_no_shell_reads_an_argument(node, tmp_path, monkeypatch, hostile):
    monkeypatch.chdir(tmp_path)
    assert node.run([sys.executable, "-c", ECHO, hostile], timeout_s=30).stdout == hostile
    assert not (tmp_path / "x").exists()


def test_environment_is_added_to(node, monkeypatch):
    monkeypatch.setenv("FROM_ME", "1")
    code = "import os; print(os.environ['FROM_ME'], os.environ['FROM_CALL'])"
    assert node.run([sys.executable, "-c", code], timeout_s=30, env={"FROM_CALL": "2"}).stdout.split() == [
        "1",
        "2",
    ]


def test_time_runs_out(node):
    done = node.run(
        [sys.executable, "-c", "print('before', flush=True); import time; time.sleep(600)"], timeout_s=2
    )
    assert done.timed_out and done.returncode != 0
    assert done.stdout == "before\n"


def test_a_log_is_followed_to_its_unfinished_last_line(node, tmp_path):
    code = (
        "import sys, time; print('one', flush=True); time.sleep(0.3); print('two'); sys.stdout.write('cut')"
    )
    process = node.start([sys.executable, "-c", code], log=tmp_path / "log")
    assert list(process.follow()) == ["one", "two", "cut"]
    assert process.stop() == 0


# A child with a grandchild in a session of its own; both write their process ids, and neither heeds SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "setproctitle" in sys.argv:
    from setproctitle import setproctitle
    setproctitle("renamed")
print(os.getpid(), flush=True)
if "child" in sys.argv:
    subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[1:-1]], start_new_session=True)
time.sleep(600)
"""
# One that has such a family under a supervisor of its own.
ASKER = f"""
import sys, time
from pathlib import Path
from workbook.node.connect import connect
connect("local").start([sys.executable, "-c", {FAMILY!r}, {FAMILY!r}, "child"], log=Path(sys.argv[1]))
time.sleep(600)
"""


def family(log, seconds=15.0):
    """The two process ids, as soon as they are written."""
    wait_for(lambda: log.exists() and len(log.read_text().split()) == 2, seconds)
    return [int(pid) for pid in log.read_text().split()]


@pytest.fixture
def log(tmp_path):
    """A log for the ids of a family, none of which outlives the test."""
    yield (path := tmp_path / "family")
    for pid in running(int(pid) for pid in path.read_text().split()):
        os.kill(pid, signal.SIGKILL)


def end_by_poll(process):
    while process.poll() is None:
        time.sleep(0.01)
    return process.poll()


@pytest.mark.parametrize("see_the_end", [lambda one: one.stop(), lambda one: one.wait(10), end_by_poll])
@pytest.mark.parametrize("title", ["as it is", "setproctitle"])
def test_nothing_is_left_of_a_command_whose_supervisor_was_killed(node, log, see_the_end, title):
    if title == "setproctitle":  # it can overwrite the environment by which the processes are found
        pytest.importorskip("setproctitle")
    process = node.start([sys.executable, "-c", FAMILY, FAMILY, title, "child"], log=log)
    pids = family(log)
    os.kill(process.pid, signal.SIGKILL)
    assert see_the_end(process) == 128 + signal.SIGKILL
    assert running(pids) == []


def test_nothing_is_left_of_a_supervisor_that_cannot_act(node, log, monkeypatch):
    process = node.start([sys.executable, "-c", FAMILY, FAMILY, "child"], log=log, grace_s=0)
    pids = family(log)
    os.kill(process.pid, signal.SIGSTOP)
    assert process.stop() == 128 + signal.SIGKILL
    assert running(pids) == []


def test_nothing_is_left_of_what_a_command_asked_for_itself(node, log, tmp_path):
    process = node.start([sys.executable, "-c", ASKER, str(log)], log=tmp_path / "log")
    pids = family(log)
    os.kill(process.pid, signal.SIGKILL)
    process.stop()
    assert running(pids) == []


def test_another_command_is_left_alone(node, log, tmp_path):
    other = node.start([sys.executable, "-c", FAMILY, FAMILY, "child"], log=log, grace_s=0.2)
    pids = family(log)
    process = node.start([sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log")
    os.kill(process.pid, signal.SIGKILL)
    process.stop()
    assert running(pids) == pids
    other.stop()
    assert running(pids) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_asker_that_is_ended_leaves_no_file_and_no_process(log, tmp_path, number):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import sys; from workbook.node.connect import connect; from pathlib import Path\n"
        "connect('local').run([sys.executable, '-c', sys.argv[1], sys.argv[2]], timeout_s=600)"
    )
    inner = (
        "import os, sys, time; from pathlib import Path\n"
        "Path(sys.argv[1]).write_text(f'{os.getpid()} {os.getppid()}'); time.sleep(600)"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", code, inner, str(log)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
    )
    pids = family(log)
    asker.send_signal(number)
    assert asker.wait(30) != 0
    wait_for(lambda: not running(pids))
    assert list(scratch.iterdir()) == []


def test_lines_of_standard_error_are_handed_over_as_they_are_written(node):
    told = []
    code = (
        "import sys, time\n"
        "for word in ('one', 'tw', 'o\\n', 'cut'):\n"
        "    print(word, end='\\n' if word == 'one' else '', file=sys.stderr, flush=True); time.sleep(0.3)"
    )
    done = node.run([sys.executable, "-c", code], timeout_s=30, on_stderr=told.append)
    assert told == ["one", "two"]
    assert done.stderr == "one\ntwo\ncut"


def test_put_and_get_copy_files_and_folders(node, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("c")
    node.put(tmp_path / "a", tmp_path / "there/a")
    node.get(tmp_path / "there/a/b", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "c"


def test_an_unknown_node_offers_the_nearest():
    with pytest.raises(UsageError, match=r"No node named 'locl' in data/nodes; did you mean local\?"):
        connect("locl")


def test_a_free_port_leaves_room_for_what_sglang_derives_from_it(node):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port := node.free_port()))
        listener.listen()
        assert 20000 <= port < 32000  # its gRPC port is 10,000 higher, and has to be one
        assert node.free_port() != port
