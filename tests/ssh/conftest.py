"""A real sshd on the loopback interface, with keys, configuration and port of its own."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.processes import wait_for
from workbook.node.ssh import SshConnection
from workbook.types import Node

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
"""
CLIENT = """
Host node
  HostName 127.0.0.1
  Port {port}
  User {user}
Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


@dataclass
class Sshd:
    """The server, what a client needs to reach it, and its processes."""

    folder: Path
    port: int
    process: subprocess.Popen

    @property
    def config(self) -> Path:
        return self.folder / "client_config"

    def below(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def sessions(self) -> list[psutil.Process]:
        """The processes of sshd that serve a connection, without what runs in it."""
        return [one for one in self.below() if one.name().startswith("sshd")]


def make_key(path: Path) -> str:
    """A key pair without a passphrase; the public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


@contextmanager
def serve(folder: Path, more: str = "") -> Iterator[Sshd]:
    """An sshd that runs inside the block.

    Args:
        folder: where its files go.
        more: further lines of its configuration.
    """
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd here (tests/system_packages.sh brings openssh-server where it may)")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    host_key = make_key(folder / "host_key")
    (folder / "authorized_keys").write_text(make_key(folder / "user_key"))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "sshd_config").write_text(SERVER.format(folder=folder, port=port) + more)
    (folder / "client_config").write_text(CLIENT.format(folder=folder, port=port, user=getpass.getuser()))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # a server that root starts wants it
    with (folder / "sshd.log").open("w") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    server = Sshd(folder, port, process)
    try:
        wait_for(lambda: greets(port), 60)
        yield server
    finally:
        for one in [*server.below(), process]:
            one.kill()
        process.wait()


def greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
            return one.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def described(sshd, tmp_path, monkeypatch):
    """The description of a node behind that server, with a work folder of the test's own."""
    monkeypatch.setenv("WORKBOOK_SSH", f"ssh -F {sshd.config}")
    return Node(
        name="far", kind="ssh", host="ssh://node", python=sys.executable, work=str(tmp_path / "node's work")
    )


@pytest.fixture
def far(described):
    """A connection to that node."""
    connection = SshConnection(described)
    yield connection
    connection.close()
