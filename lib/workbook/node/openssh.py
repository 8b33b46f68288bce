"""One connection of the user's own OpenSSH client, through which commands and forwarded ports go."""

import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalProcess
from workbook.types import Node

CONNECT_S = 15  # until a host answers
LOGIN_S = 60  # until it has let us in, jump hosts included
FORWARD_S = 15
ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
# Nothing may ask, and nothing of a user's configuration that is meant for a terminal may get in the way.
MASTER = (
    "-M", "-N", "-T", "-a", "-x", "-o", "ControlPersist=no", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}",
    *ALIVE, "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "LogLevel=ERROR",
)  # fmt: skip
# A client that only speaks to the master: the configuration has done its part, and nothing else is connected to.
CLIENT = ("-F", "none", "-T", "-a", "-x", "-o", "ProxyCommand=false", "-o", "LogLevel=ERROR")
LONGEST_SOCKET = 84  # bytes: a socket's path may have 104, of which ssh takes some for a name of its own


def command() -> list[str]:
    """The words that start OpenSSH's client: `ssh`, or what WORKBOOK_SSH says, such as `ssh -F other_config`.

    Raises:
        UsageError: it is not here.
    """
    words = shlex.split(os.environ.get("WORKBOOK_SSH", "")) or ["ssh"]
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"There is no {words[0]} on this machine.",
            "Install OpenSSH's client, or let WORKBOOK_SSH name the command.",
        )
    return words


class Master:
    """An open connection to a node; it ends with this process, even if that is killed.

    Raises:
        UsageError: there is no OpenSSH client here, or the node's host has no address.
        WorkbookError: the node cannot be reached or does not let us in; the sentence says why.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._ssh = command()
        self._socket = sockets_folder() / uuid.uuid4().hex[:8]
        with (
            tempfile.TemporaryFile() as nothing,
            tempfile.TemporaryFile("w+", errors="replace") as said,
        ):
            env = os.environ | {"SSH_ASKPASS_REQUIRE": "never"}
            argv = [*self._ssh, *MASTER, "-S", str(self._socket), "--", self.host]
            self._process = LocalProcess(argv, env, nothing, said, grace_s=2.0)
            try:
                status = self._wait_until_open()
            except BaseException:
                self.close()
                raise
            if status is not None:
                said.seek(0)
                raise why_unreachable(node, said.read())

    @property
    def host(self) -> str:
        return str(self.node.host)

    def _wait_until_open(self) -> int | None:
        deadline = time.monotonic() + LOGIN_S
        while not self._socket.exists():
            if (status := self._process.poll()) is not None:
                return status
            if time.monotonic() > deadline:
                raise WorkbookError(
                    f"Node {self.node.name} ({self.host}) did not let us in within {LOGIN_S} s.",
                    f"See what this waits for: ssh -v -o BatchMode=yes {self.host} true",
                )
            time.sleep(0.02)
        return None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ended_within(self, seconds: float) -> bool:
        return self._process.wait(seconds) is not None

    def argv(self, remote_command: str) -> list[str]:
        """What runs a command on the node, which its login shell reads."""
        return [*self._ssh, *CLIENT, "-S", str(self._socket), "--", self.host, remote_command]

    @contextmanager
    def forwarded(self, port: int) -> Iterator[int]:
        """A port of this machine's loopback interface that leads to one of the node's, inside the block."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            here = int(listener.getsockname()[1])
        self._control("forward", here, port)
        try:
            yield here
        finally:
            with suppress(WorkbookError):  # it went with the connection
                self._control("cancel", here, port)

    def _control(self, what: str, here: int, there: int) -> None:
        forward = f"127.0.0.1:{here}:127.0.0.1:{there}"
        argv = [*self._ssh, *CLIENT, "-S", str(self._socket), "-O", what, "-L", forward, "--", self.host]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=FORWARD_S, check=False,
            )  # fmt: skip
            reason = last_line(done.stderr) if done.returncode else ""
        except subprocess.TimeoutExpired:
            reason = f"no answer within {FORWARD_S} s"
        if reason:
            raise WorkbookError(
                f"Port {there} of node {self.node.name} cannot be reached over ssh: {reason}.",
                "See that the node is up, and run this again.",
            )

    def close(self) -> None:
        """End the connection, and with it all that runs through it."""
        self._process.stop()
        self._socket.unlink(missing_ok=True)  # there where it was killed


def sockets_folder() -> Path:
    """A folder of short path that belongs to this user alone, as tmux has one.

    Raises:
        WorkbookError: it is someone else's.
    """
    places = (Path(base) / f"workbook-{os.getuid()}" for base in (tempfile.gettempdir(), "/tmp"))
    folder = next((one for one in places if len(os.fsencode(one)) + 9 <= LONGEST_SOCKET), Path("/tmp"))
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise WorkbookError(f"{folder} is not a folder of yours alone.", "Remove it, and run this again.")
    return folder


def last_line(said: str) -> str:
    """The last line that says something, without what would steer a terminal: it comes from elsewhere."""
    lines = ["".join(filter(str.isprintable, line)).strip() for line in said.splitlines()]
    return next((line.rstrip(".")[:300] for line in reversed(lines) if line), "it gave no reason")


# What OpenSSH says: what that means, what to do, and whether it is the description that is wrong.
REASONS: tuple[tuple[str, str, str, type[WorkbookError]], ...] = (
    (
        r"IDENTIFICATION HAS CHANGED",
        "shows another host key than the one that is known here{key}",
        "Ask its administrator whether that is right; if so, remove that line.",
        WorkbookError,
    ),
    (
        r"Host key verification failed|host key is known for",
        "has a host key that is not known here",
        "Connect once by hand, compare the key, and accept it: ssh {host}",
        WorkbookError,
    ),
    (
        r"Could not resolve hostname",
        "has no address: its name cannot be resolved",
        "Mend `host` in data/nodes/{name}.yaml, or give the alias a HostName in ~/.ssh/config.",
        UsageError,
    ),
    (
        r"Connection refused",
        "refuses the connection",
        "See that its sshd runs, and that `host` in data/nodes/{name}.yaml has its port.",
        WorkbookError,
    ),
    (
        r"timed out|Timeout",
        f"did not answer within {CONNECT_S} s",
        "See that it is up, and that a VPN or jump host which it needs is in place.",
        WorkbookError,
    ),
    (
        r"No route to host|Network is unreachable",
        "cannot be reached from this network",
        "See that a VPN or jump host which it needs is in place.",
        WorkbookError,
    ),
    (
        r"Permission denied|Too many authentication failures",
        "lets none of your keys in, and no password is asked for",
        "Load the key with ssh-add or name it in ~/.ssh/config, until this works: "
        "ssh -o BatchMode=yes {host} true",
        WorkbookError,
    ),
)


def why_unreachable(node: Node, said: str) -> WorkbookError:
    """What the client said when no connection came about, as a sentence and a remedy."""
    for pattern, what, remedy, kind in REASONS:
        if re.search(pattern, said):
            offending = re.search(r"Offending .*key in (\S+:\d+)", said)
            key = f" ({offending[1]})" if offending else ""
            return kind(
                f"Node {node.name} ({node.host}) {what.format(key=key)}.",
                remedy.format(host=node.host, name=node.name),
            )
    return WorkbookError(
        f"Node {node.name} ({node.host}) cannot be reached: {last_line(said)}.",
        f"This has to work first: ssh -o BatchMode=yes {node.host} true",
    )
