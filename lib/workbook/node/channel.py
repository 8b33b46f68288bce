"""A script that the node's Python runs at the other end of an ssh connection."""

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from workbook.errors import UsageError, WorkbookError
from workbook.node.openssh import Master, last_line
from workbook.node.remote import Stream
from workbook.types import Node

BEGIN_S = 60  # until the node's Python runs
POLL_S = 0.02
# All that a shell of the node gets to see. Arguments, environment and script follow as a line of standard input; what
# comes after that line is the script's own. One line without ' \ or !, so that csh and fish take it as sh does.
BOOTSTRAP = (
    'import json,os,sys;sys.version_info<(3,10)and sys.exit("too old: %d.%d"%sys.version_info[:2]);'
    's=json.loads(open(0,"rb",0,closefd=False).readline());os.environ.update(s["env"]);sys.argv[1:]=s["argv"];'
    '[os.write(n,("%s begins %d%s"%(s["mark"],os.getpid(),os.linesep)).encode())for n in s["begin"]];'
    'exec(compile(s["script"],"<workbook>","exec"))'
)


def remote_command(python: str) -> str:
    """The command line that the node's login shell reads.

    Args:
        python: a name or a path; one that begins with `~/` lies in the home folder there.
    """
    home, path = ("~/", python[2:]) if python.startswith("~/") else ("", python)
    return f"exec {home}{shlex.quote(path)} -I -S -X utf8 -c '{BOOTSTRAP}'"


class Channel:
    """The script's standard input, and what it says; a mark tells its own words from those of ssh or a login script.

    Args:
        master: the connection.
        python: the node's Python, as `remote_command` takes it.
        script: its text.
        argv: its arguments.
        mark: a word that nothing else says; the script writes its last word after it, to standard error.
        env: added to the environment of what it starts.
        stdout: where its standard output goes.
        begin: the descriptors on which the mark says that it begins; what comes before that is not the script's.

    Raises:
        UsageError: the node has no Python there, or one that is too old.
        WorkbookError: it does not begin, for another reason.
    """

    def __init__(
        self,
        master: Master,
        python: str,
        script: str,
        argv: Sequence[str],
        mark: str,
        *,
        env: Mapping[str, str] | None = None,
        stdout: IO[Any] | int = subprocess.DEVNULL,
        begin: Sequence[int] = (2,),
    ) -> None:
        self.master, self.python, self.mark = master, python, mark
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # it has no name to be left
        self.client = subprocess.Popen(
            master.argv(remote_command(python)), stdin=subprocess.PIPE, stdout=stdout, stderr=self.errors,
            start_new_session=True,
        )  # fmt: skip
        spec = {
            "script": script,
            "argv": list(argv),
            "env": dict(env or {}),
            "mark": mark,
            "begin": list(begin),
        }
        try:
            self.write(json.dumps(spec).encode() + b"\n")
            self.pid = self._wait_until_begun()
        except BaseException:
            self.kill()
            raise

    def write(self, data: bytes) -> None:
        """Give the script's standard input something; nothing happens where it has ended."""
        assert self.client.stdin is not None
        try:
            self.client.stdin.write(data)
            self.client.stdin.flush()
        except (BrokenPipeError, ValueError):  # ValueError: closed meanwhile
            return

    def close_input(self) -> None:
        """End the script's standard input."""
        assert self.client.stdin is not None
        try:
            self.client.stdin.close()
        except BrokenPipeError:
            return

    def kill(self) -> None:
        """End this side of it; the script sees its standard input end."""
        self.client.kill()
        self.client.wait()
        self.close_input()

    def said(self) -> str:
        """The standard error of both, so far."""
        file = self.errors.fileno()  # ssh shares the position, so it must stay
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def last_word(self) -> str | None:
        """What the script said last, after its mark; None where it has not, or its words were lost."""
        _, marked, word = self.said().rpartition(self.mark)
        return word.strip() if marked and not word.startswith(" begins ") else None

    def _wait_until_begun(self) -> int:
        deadline = time.monotonic() + BEGIN_S
        while True:
            ended = self.client.poll() is not None
            first, began, rest = self.said().partition(f"{self.mark} begins ")
            if began and "\n" in rest:
                return int(rest.partition("\n")[0])
            if ended:
                raise why_not_begun(self.master.node, self.python, self.client.returncode, first)
            if time.monotonic() > deadline:
                raise WorkbookError(
                    f"Node {self.master.node.name} did not start {self.python} within {BEGIN_S} s.",
                    f"See what its login shell waits for: ssh {self.master.host} {self.python} --version",
                )
            time.sleep(POLL_S)


def own_text(mark: str, text: str) -> str:
    """What comes after the line with which the script begins: the rest is ssh's, or a login script's."""
    return text.partition(f"{mark} begins ")[2].partition("\n")[2]


def own_lines(mark: str, on_line: Callable[[str], None]) -> Callable[[str], None]:
    """The same for lines as they come, without the script's last word."""
    begun = False

    def line(text: str) -> None:
        nonlocal begun
        if begun and mark not in text:
            on_line(text)
        begun = begun or mark in text

    return line


def skip_greeting(stream: Stream, mark: str) -> None:
    """Read up to the end of the line with which the script begins."""
    seen = b""
    while byte := stream.read(1):
        seen += byte
        if byte == b"\n" and mark.encode() in seen:
            return


def why_not_begun(node: Node, python: str, status: int, said: str) -> WorkbookError:
    """Why the node's Python did not run, from ssh's exit status and what was said."""
    name_one = f"Name one with `python` or `venv` in data/nodes/{node.name}.yaml."
    if "too old: " in said or "Unknown option: -I" in said:
        version = said.rpartition("too old: ")[2].split()[0] if "too old: " in said else "2"
        return UsageError(
            f"{python} on node {node.name} is Python {version}, and 3.10 or later is needed.", name_one
        )
    if "open refused by peer" in said:
        return WorkbookError(
            f"Node {node.name} allows no further session on the connection.",
            "Its sshd's MaxSessions has to be 10, the default, or more.",
        )
    if status in (126, 127) or "not found" in said:
        return UsageError(f"Node {node.name} has no Python at {python}: {last_line(said)}.", name_one)
    if status == 255:
        return ConnectionLostError(node, "before anything ran")
    return WorkbookError(
        f"Node {node.name} did not start {python} (exit status {status}): {last_line(said)}.",
        f"This has to work first: ssh {node.host} {python} --version",
    )


class ConnectionLostError(WorkbookError):
    """The connection to a node ended unasked."""

    def __init__(self, node: Node, when: str) -> None:
        super().__init__(
            f"The connection to node {node.name} ({node.host}) was lost {when}.",
            "What ran there through it ends by itself; see that the node is up, and run this again.",
        )
