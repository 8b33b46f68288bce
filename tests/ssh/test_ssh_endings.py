"""A connection that is cut or goes silent, and an asker that is killed, leave no process on the node or here."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from tests.unit.test_node_local import FAMILY, family
from workbook.errors import WorkbookError
from workbook.node import ssh, ssh_process
from workbook.node.openssh import sockets_folder

pytestmark = pytest.mark.ssh

ASKER = """
import sys, time
from pathlib import Path
from workbook.node.ssh import SshConnection
from workbook.types import Node
far = SshConnection(Node.model_validate_json(sys.argv[1]))
argv = [sys.executable, "-c", sys.argv[2], sys.argv[2], "child"]
process = far.start(argv, log=Path(sys.argv[3]), grace_s=0.5)
print("started", flush=True)
if sys.argv[4] == "run":
    far.run(["sleep", "6006"], timeout_s=600)
time.sleep(600)
"""


@pytest.fixture
def log(tmp_path):
    yield (path := tmp_path / "family")
    for pid in running(int(pid) for pid in path.read_text().split()):
        os.kill(pid, signal.SIGKILL)


def begin(far, log):
    process = far.start([sys.executable, "-c", FAMILY, FAMILY, "child"], log=log, grace_s=0.5)
    return process, family(log, 60)


def test_a_cut_connection_ends_what_ran_is_said_and_can_be_made_anew(far, sshd, log):
    process, pids = begin(far, log)
    assert process.poll() is None
    for one in sshd.sessions():
        one.kill()
    wait_for(lambda: not running([*pids, process.pid]), 60)
    with pytest.raises(WorkbookError) as said:
        process.wait(60)
    name = Path(sys.executable).name
    assert str(said.value) == (
        f"The connection to node far (ssh://node) was lost while {name} ran. "
        "What ran there through it ends by itself; see that the node is up, and run this again."
    )
    with pytest.raises(WorkbookError, match="was lost"):
        list(process.follow())
    assert process.stop() == 255
    assert far.run(["echo", "again"], timeout_s=60).stdout == "again\n"


def test_a_command_whose_connection_is_cut_does_not_pass_for_an_ended_one(far, sshd):
    def cut(_line):
        for one in sshd.sessions():
            one.kill()

    code = "import sys, time; print('x', file=sys.stderr, flush=True); time.sleep(600)"
    with pytest.raises(WorkbookError, match="was lost while"):
        far.run([sys.executable, "-c", code], timeout_s=120, on_stderr=cut)


def test_a_silent_connection_ends_what_ran_on_both_sides(far, sshd, log, monkeypatch):
    monkeypatch.setattr(ssh, "SILENCE_S", 3.0)
    monkeypatch.setattr(ssh_process, "HEARTBEAT_S", 0.5)
    process, pids = begin(far, log)
    time.sleep(6)
    assert running(pids) == pids and process.poll() is None  # the heartbeat arrives
    silent = sshd.sessions()
    for one in silent:
        one.send_signal(signal.SIGSTOP)  # no byte passes, and no end of file either
    try:
        wait_for(lambda: not running([*pids, process.pid]), 60)
        with pytest.raises(WorkbookError, match="was lost"):  # ssh's own keepalive notices, here
            process.wait(120)
        assert process.stop() == 255
    finally:
        for one in silent:
            one.kill()


@pytest.mark.parametrize("doing", ["nothing", "run"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_asker_that_is_ended_leaves_nothing_there_and_no_ssh_here(
    described, sshd, log, tmp_path, number, doing
):
    argv = [sys.executable, "-c", ASKER, described.model_dump_json(), FAMILY, str(log), doing]
    asker = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert asker.stdout.readline() == "started\n"
    pids = family(log, 60)
    here = [one.pid for one in psutil.Process(asker.pid).children(recursive=True)]
    if doing == "run":
        wait_for(lambda: any("sleep 6006" in command_line(one.pid) for one in sshd.below()), 60)
    there = [one.pid for one in sshd.below()]
    assert any(" -M " in command_line(pid) for pid in here)
    sockets = set(sockets_folder().iterdir())
    asker.send_signal(number)
    asker.wait(60)
    wait_for(lambda: not running([*pids, *here, *there]), 90)
    assert sockets - set(sockets_folder().iterdir())


def test_close_ends_the_connection_and_what_runs_through_it(far, sshd, log):
    _, pids = begin(far, log)
    far.close()
    wait_for(lambda: not running(pids) and not sshd.below(), 60)
