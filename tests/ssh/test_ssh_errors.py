"""What goes wrong on the way to a node is one sentence that names the node, and one that says what to do."""

import os
import socket
import subprocess
import sys

import pytest

from tests.ssh.conftest import make_key, serve
from workbook.errors import UsageError, WorkbookError
from workbook.node import openssh
from workbook.node.ssh import SshConnection

pytestmark = pytest.mark.ssh


def failure(node, kind=WorkbookError):
    """How the first use of a node fails."""
    connection = SshConnection(node)
    with pytest.raises(WorkbookError) as said:
        connection.run(["true"], timeout_s=60)
    connection.close()
    assert type(said.value) is kind
    return said.value


def at(node, **fields):
    return node.model_copy(update=fields)


def with_config(monkeypatch, sshd, folder, **changes):
    """The client's configuration with other values."""
    text = sshd.config.read_text()
    for old, new in changes.items():
        text = "\n".join(
            f"  {old} {new}" if line.split()[:1] == [old] else line for line in text.splitlines()
        )
    (folder / "config").write_text(text + "\n")
    monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {folder / 'config'}")


def test_nobody_listens(described):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"ssh://127.0.0.1:{closed.getsockname()[1]}"
        said = failure(at(described, host=host))
    assert said.message == f"Node far ({host}) refuses the connection."
    assert said.hint == "See that its sshd runs, and that `host` in data/nodes/far.yaml has its port."


def test_no_such_host(described):
    said = failure(at(described, host="ssh://no-such-host.invalid"), UsageError)
    assert (
        said.message == "Node far (ssh://no-such-host.invalid) has no address: its name cannot be resolved."
    )
    assert "`host` in data/nodes/far.yaml" in said.hint


def test_a_host_that_never_answers(described):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = f"ssh://127.0.0.1:{silent.getsockname()[1]}"
        said = failure(at(described, host=host))
    assert said.message == f"Node far ({host}) did not answer within 15 s."


def test_a_host_that_never_lets_anyone_in(described, monkeypatch):
    monkeypatch.setattr(openssh, "LOGIN_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = f"ssh://127.0.0.1:{silent.getsockname()[1]}"
        said = failure(at(described, host=host))
    assert said.message == f"Node far ({host}) did not let us in within 1 s."


def test_another_host_key_than_the_known_one(described, sshd, tmp_path, monkeypatch):
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {make_key(tmp_path / 'other')}")
    with_config(monkeypatch, sshd, tmp_path, UserKnownHostsFile=known)
    said = failure(described)
    assert (
        said.message
        == f"Node far (ssh://node) shows another host key than the one that is known here ({known}:1)."
    )
    assert said.hint == "Ask its administrator whether that is right; if so, remove that line."


def test_a_host_key_that_is_not_known(described, sshd, tmp_path, monkeypatch):
    with_config(monkeypatch, sshd, tmp_path, UserKnownHostsFile=tmp_path / "none")
    said = failure(described)
    assert said.message == "Node far (ssh://node) has a host key that is not known here."
    assert said.hint == "Connect once by hand, compare the key, and accept it: ssh ssh://node"


def test_no_key_that_is_let_in(described, sshd, tmp_path, monkeypatch):
    make_key(tmp_path / "stranger")
    with_config(monkeypatch, sshd, tmp_path, IdentityFile=tmp_path / "stranger")
    said = failure(described)
    assert said.message == "Node far (ssh://node) lets none of your keys in, and no password is asked for."
    assert said.hint.endswith("until this works: ssh -o BatchMode=yes ssh://node true")


def test_a_client_that_cannot_read_its_configuration(described, tmp_path, monkeypatch):
    (tmp_path / "config").write_text("Nonsense yes\n")
    monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {tmp_path / 'config'}")
    said = failure(described)
    assert (
        said.message.startswith("Node far (ssh://node) cannot be reached: ")
        and "bad configuration" in said.message
    )


def test_no_openssh_client(described, monkeypatch):
    monkeypatch.setenv("WORKBOOK_SSH", "/nowhere/ssh -v")
    said = failure(described, UsageError)
    assert said.message == "There is no /nowhere/ssh on this machine."
    assert said.hint == "Install OpenSSH's client, or let WORKBOOK_SSH name the command."


@pytest.mark.parametrize(
    "python", ["/nowhere/bin/python", "no-such-python", "~/no/such/python", "/etc/passwd"]
)
def test_no_python(described, python):
    said = failure(at(described, python=python), UsageError)
    assert said.message.startswith(f"Node far has no Python at {python}: ")
    assert said.hint == "Name one with `python` or `venv` in data/nodes/far.yaml."


def test_a_python_that_is_too_old(described, tmp_path):
    """A stub that is the real Python, but for the version that it gives itself."""
    old = tmp_path / "python"
    pretend = "import sys; sys.version_info = (3, 8, 10); exec(sys.argv[1])"
    old.write_text(
        f'#!/bin/sh\nexec {sys.executable} -I -S -c "{pretend}" "$6"\n'
    )  # -I -S -X utf8 -c BOOTSTRAP
    old.chmod(0o755)
    said = failure(at(described, python=str(old)), UsageError)
    assert said.message == f"{old} on node far is Python 3.8, and 3.10 or later is needed."


def test_a_login_shell_that_lets_no_command_run(described, tmp_path, monkeypatch):
    with serve(
        tmp_path, "ForceCommand echo 'This account is \x1b[31mnot available.' >&2; exit 1\n"
    ) as server:
        monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {server.config}")
        said = failure(described)
    assert said.message == (
        f"Node far did not start {sys.executable} (exit status 1): This account is [31mnot available."
    )


def test_fewer_sessions_than_are_needed(described, tmp_path, monkeypatch):
    with serve(tmp_path, "MaxSessions 1\n") as server:
        monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {server.config}")
        far = SshConnection(described)
        far.start(["sleep", "600"], log=tmp_path / "log")
        with pytest.raises(WorkbookError) as said:
            far.run(["true"], timeout_s=60)
        far.close()
    assert said.value.message == "Node far allows no further session on the connection."
    assert said.value.hint == "Its sshd's MaxSessions has to be 10, the default, or more."


def test_a_port_behind_a_connection_that_has_ended(far):
    far.exists(far.stacks)
    master = far._connected()
    far.close()
    with (
        pytest.raises(WorkbookError, match=r"^Port 9 of node far cannot be reached over ssh: "),
        master.forwarded(9),
    ):
        pass


def test_a_work_folder_that_others_can_write_to_or_that_cannot_be_made(described, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for work, reason in (
        (shared, "others can write to it (drwxrwxrwx)"),
        ("/proc/none/work", "No such file or directory"),
    ):
        far = SshConnection(at(described, work=str(work)))
        with pytest.raises(UsageError) as said:
            far.probes  # noqa: B018
        far.close()
        assert said.value.message == f"The work folder {work} of node far will not do: {reason}."
        assert (
            said.value.hint == "Name a folder there that is yours alone with `work` in data/nodes/far.yaml."
        )


COMMAND = """
import sys
from pathlib import Path
from workbook import catalog
catalog.DATA = Path(sys.argv.pop(1))
from workbook.cli import main
main()
"""


@pytest.fixture
def workbook(described, tmp_path):
    """`workbook`, where data/nodes describes that node."""
    from workbook.paths import DATA

    data = tmp_path / "data"
    (data / "nodes").mkdir(parents=True)
    (data / "nodes" / "far.yaml").write_text(described.model_dump_json(exclude_none=True))
    for name in ("stacks", "profiles"):
        (data / name).symlink_to(DATA / name)

    def run(*argv, **env):
        return subprocess.run(
            [sys.executable, "-c", COMMAND, data, *argv],
            env=os.environ | env, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


def test_a_command_says_it_in_one_line(workbook):
    done = workbook("trace", "flashinfer.fp4_quantize", "--node", "far", WORKBOOK_SSH="/nowhere/ssh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "workbook: There is no /nowhere/ssh on this machine. "
        "Install OpenSSH's client, or let WORKBOOK_SSH name the command.\n"
    )
