"""Commands on a node behind ssh are run as given, bounded in time, and end as the local node's do."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from urllib.request import ProxyHandler, build_opener

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from tests.ssh.conftest import serve
from tests.unit.test_node_local import FAMILY, family
from workbook.node.ssh import SESSIONS, SshConnection

pytestmark = pytest.mark.ssh

HOSTILE = [
    "a b", "$(touch x)", "; touch x", "`touch x`", "'\"", "two\nlines", "\\", "!!", "*", "-n", "", "~", "é 漢",
    "\udcff",
]  # fmt: skip
SHELLS = [one for one in ("sh", "dash", "bash", "zsh", "csh", "tcsh", "fish") if shutil.which(one)]


@pytest.fixture
def log(tmp_path):
    """A log for the ids of a family, none of which outlives the test."""
    yield (path := tmp_path / "family")
    for pid in running(int(pid) for pid in path.read_text().split()):
        os.kill(pid, signal.SIGKILL)


def test_arguments_and_environment_arrive_as_they_are(far, tmp_path):
    written = tmp_path / "arguments"
    code = "import os, sys; open(sys.argv[1], 'wb').write(os.fsencode('\\0'.join([os.environ['X'], *sys.argv[2:]])))"
    for value in HOSTILE:
        far.run([sys.executable, "-c", code, str(written), *HOSTILE], timeout_s=60, env={"X": value})
        assert written.read_bytes() == os.fsencode("\0".join([value, *HOSTILE]))


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_starts_a_python_whose_path_is_odd(described, tmp_path, monkeypatch, shell):
    folder = tmp_path / "sshd"
    folder.mkdir()
    odd = tmp_path / "a 'b' \"c\" $d"
    odd.symlink_to(os.path.dirname(sys.executable))  # noqa: PTH120
    greeting = f'ForceCommand echo welcome; echo welcome >&2; exec {shell} -c "$SSH_ORIGINAL_COMMAND"\n'
    with serve(folder, greeting) as server:
        monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {server.config}")
        far = SshConnection(described.model_copy(update={"python": str(odd / "python")}))
        told = []
        code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
        done = far.run([far.python, "-c", code], timeout_s=60, on_stderr=told.append)
        assert (done.returncode, done.stdout, done.stderr, told) == (3, "out\n", "err\n", ["err"])
        (tmp_path / "file").write_text("content")
        far.put(tmp_path / "file", tmp_path / "there")
        far.get(tmp_path / "there", tmp_path / "back")
        assert (tmp_path / "back").read_text() == "content"
        far.close()


@pytest.mark.parametrize("status", [0, 1, 127, 255])
def test_the_status_is_the_commands_also_one_that_ssh_has_too(far, status):
    done = far.run([sys.executable, "-c", f"raise SystemExit({status})"], timeout_s=60)
    assert (done.returncode, done.timed_out) == (status, False)


def test_a_signal_and_a_command_that_is_not_there(far):
    code = "import os; os.kill(os.getpid(), 9)"
    assert far.run([sys.executable, "-c", code], timeout_s=60).returncode == 137
    done = far.run(["/nowhere/at all"], timeout_s=60)
    assert (
        done.returncode == 127 and done.stderr == "cannot start /nowhere/at all: No such file or directory\n"
    )


def test_output_is_separated_and_lines_of_standard_error_come_as_they_are_written(far):
    told = []
    code = (
        "import sys, time; print('out')\n"
        "for word in ('one', 'tw', 'o\\n', 'cut'):\n"
        "    print(word, end='\\n' if word == 'one' else '', file=sys.stderr, flush=True); time.sleep(0.3)"
    )
    done = far.run([sys.executable, "-c", code], timeout_s=60, on_stderr=told.append)
    assert told == ["one", "two"]
    assert (done.stdout, done.stderr) == ("out\n", "one\ntwo\ncut")


def test_time_runs_out(far, log):
    done = far.run([sys.executable, "-c", FAMILY, FAMILY, "child"], timeout_s=3)
    assert done.timed_out and done.returncode == 137
    log.write_text(done.stdout)
    assert len(done.stdout.split()) == 2 and running(map(int, done.stdout.split())) == []


def test_what_is_secret_is_in_no_command_line(far, tmp_path):
    secret = "token-for-nobody-else"
    process = far.start(["sleep", "6007"], log=tmp_path / "log", env={"TOKEN": secret})
    seen = []
    wait_for(lambda: seen.append(" ".join(map(command_line, psutil.pids()))) or "sleep 6007" in seen[-1], 30)
    process.stop()
    assert secret not in "".join(seen)


def test_a_log_is_followed_and_its_lines_are_stamped_on_the_node(far, tmp_path):
    code = "import sys, time; print('one', flush=True); time.sleep(0.3); print('two', end='\\r'); print('cut', end='')"
    process = far.start([sys.executable, "-c", code], log=tmp_path / "plain")
    assert list(process.follow()) == ["one", "two", "cut"]
    assert process.stop() == 0
    process = far.start([sys.executable, "-c", code], log=tmp_path / "deep" / "stamped", stamped=True)
    stamps, words = zip(*(line.split(" ", 1) for line in process.follow()), strict=True)
    assert words == ("one", "two", "cut")
    assert (datetime.fromisoformat(stamps[1]) - datetime.fromisoformat(stamps[0])).total_seconds() >= 0.25


def test_stop_ends_the_whole_family(far, log):
    process = far.start([sys.executable, "-c", FAMILY, FAMILY, "child"], log=log, grace_s=0.5)
    pids = family(log)
    assert process.poll() is None and process.wait(0.1) is None
    assert process.stop() == 137
    assert running(pids) == []
    assert process.poll() == process.stop() == 137


def test_nothing_is_left_of_a_command_whose_supervisor_was_killed(far, log):
    process = far.start([sys.executable, "-c", FAMILY, FAMILY, "child"], log=log, grace_s=0.5)
    pids = family(log)
    os.kill(process.pid, signal.SIGKILL)
    assert process.stop() == 137
    assert running(pids) == []


def test_more_commands_than_sessions_take_turns_on_one_connection(far, sshd):
    connections = len(sshd.sessions())
    with ThreadPoolExecutor(SESSIONS + 4) as pool:
        code = "import sys, time; time.sleep(1); print(sys.argv[1])"
        runs = pool.map(
            lambda n: far.run([sys.executable, "-c", code, n], timeout_s=60), map(str, range(SESSIONS + 4))
        )
        assert [done.stdout.strip() for done in runs] == [str(n) for n in range(SESSIONS + 4)]
    assert len(sshd.sessions()) - connections <= 2  # one connection: sshd's process for it, and its child's


def test_a_server_of_the_node_is_reached_inside_the_block(far, tmp_path):
    (tmp_path / "file").write_text("served")
    port = far.free_port()
    argv = [
        sys.executable,
        "-m",
        "http.server",
        str(port),
        "--bind",
        "127.0.0.1",
        "--directory",
        str(tmp_path),
    ]
    server = far.start(argv, log=tmp_path / "log")
    wait_for(lambda: (tmp_path / "log").exists() and not server.poll(), 30)
    ask = build_opener(ProxyHandler({})).open
    with far.reach(port) as url:
        assert str(port) not in url
        deadline = time.monotonic() + 60
        while True:
            try:
                assert ask(f"{url}/file", timeout=30).read() == b"served"
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    with pytest.raises(OSError):
        ask(f"{url}/file", timeout=5)
    server.stop()


def test_a_scratch_folder_is_private_and_gone_after_the_block(far):
    with far.scratch() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("")
    assert not folder.exists()


def test_a_home_folder_is_the_nodes(far):
    assert far.exists(far.stacks.parent) and not far.exists(far.stacks / "none")
    home = subprocess.check_output(
        [sys.executable, "-c", "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)"]
    )
    relative = far.node.model_copy(update={"python": "~/bin/python"})
    other = SshConnection(relative)
    other.__dict__["_facts"] = far._facts
    assert other.python == f"{home.decode().strip()}/bin/python"


# What people have in ~/.ssh/config for their own sessions.
OWN_SETTINGS = """
Host *
  ControlMaster auto
  ControlPath {folder}/%C
  ControlPersist 10m
  RemoteCommand tmux attach
  RequestTTY force
  LocalForward {port} 127.0.0.1:80
  ExitOnForwardFailure yes
  LogLevel QUIET
  ForwardX11 yes
  BatchMode no
  ServerAliveInterval 0
"""


def test_settings_for_a_terminal_do_not_get_in_the_way(described, sshd, tmp_path, monkeypatch):
    config = tmp_path / "config"
    settings = OWN_SETTINGS.format(folder=tmp_path, port=sshd.port)  # a port that is taken
    config.write_text(settings + sshd.config.read_text())
    monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {config}")
    far = SshConnection(described)
    assert far.run(["echo", "x"], timeout_s=60).stdout == "x\n"
    far.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["config"]


def test_a_node_behind_a_jump_host(described, sshd, tmp_path, monkeypatch):
    config = tmp_path / "config"
    behind = f"Host behind\n  ProxyJump node\n  HostName 127.0.0.1\n  Port {sshd.port}\n"
    config.write_text(behind + sshd.config.read_text())
    monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {config}")
    far = SshConnection(described.model_copy(update={"host": "ssh://behind"}))
    assert far.run(["echo", "x"], timeout_s=60).stdout == "x\n"
    jump = [one for one in psutil.Process().children(recursive=True) if "-W" in one.cmdline()]
    assert jump
    far.close()
    assert running(one.pid for one in jump) == []
