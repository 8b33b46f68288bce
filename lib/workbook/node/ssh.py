"""A node that the user's own OpenSSH client reaches. Nothing but Python need be there."""

import atexit
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import Completed
from workbook.node.channel import Channel, ConnectionLostError, own_lines, own_text, skip_greeting
from workbook.node.local import TAG, node_env, wait_telling
from workbook.node.openssh import Master
from workbook.node.remote import Stream, pack, unpack
from workbook.node.ssh_process import SILENCE_S, SshProcess
from workbook.paths import OVERLAY, PROBES
from workbook.types import Node

WORK = "~/.cache/workbook"
SESSIONS = 8  # at once on one connection; sshd's own limit, MaxSessions, is 10 by default
SESSION_S = 600  # until one of them is free
ENDING_S = 2.0  # a connection takes as long to end
ANSWER_S = 90  # the node itself gives up before
REMOTE = Path(__file__).with_name("remote.py")


class NodeRefusedError(WorkbookError):
    """The node was asked for something and could not do it; `reason` is in its own words."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class SshConnection:
    """A node behind `ssh`. It is connected to on first use, and anew where that was lost; all ends with this process.

    Everything raises WorkbookError where the node cannot be reached or the connection is lost, and UsageError where its
    description does not fit: no such host, no Python 3.10 or later there, a work folder that will not do.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._master: Master | None = None
        self._lock = threading.RLock()
        self._sessions = threading.BoundedSemaphore(SESSIONS)

    @property
    def python(self) -> str:
        given = self._given_python
        return given.replace("~", self._facts["home"], 1) if given.startswith("~/") else given

    @property
    def _given_python(self) -> str:
        return f"{self.node.venv}/bin/python" if self.node.venv else self.node.python or "python3"

    @property
    def pythonpath(self) -> str:
        return self.node.env.get("PYTHONPATH", self._facts["pythonpath"])

    @property
    def probes(self) -> Path:
        return self._code / "probes"

    @property
    def overlay(self) -> Path:
        return self._code / "overlay"

    @property
    def stacks(self) -> Path:
        return self._work / "stacks"

    def place(self, local: Path) -> Path:
        inside = os.path.abspath(local).lstrip("/")  # noqa: PTH100  # `..` must not lead out of the work folder
        return self._work / "files" / (platform.node() or "unnamed") / inside

    def exists(self, path: Path) -> bool:
        return bool(self._ask("exists", str(path)))

    def free_port(self) -> int:
        return int(self._ask("free_port"))

    @contextmanager
    def reach(self, port: int) -> Iterator[str]:
        with self._connected().forwarded(port) as here:
            yield f"http://127.0.0.1:{here}"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        folder = self._ask("make_scratch", str(self._work / "tmp"))
        try:
            yield Path(folder)
        finally:
            with suppress(WorkbookError):  # a lost connection has its own sentence
                self._ask("remove_scratch", folder)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Completed:
        with tempfile.TemporaryFile("w+", errors="replace") as stdout:
            started = time.monotonic()
            process = self._supervised(argv, env, stdout, grace_s=5.0, begin=(2, 1))
            mark, stderr = process.channel.mark, process.channel.errors
            try:
                on_line = own_lines(mark, on_stderr) if on_stderr else None
                status = wait_telling(process, timeout_s, stderr, on_line)
            finally:
                final = process.stop()
            stdout.seek(0)
            stderr.seek(0)
            return Completed(
                argv=tuple(argv),
                returncode=final if status is None else status,
                stdout=own_text(mark, stdout.read()),
                stderr=own_text(mark, stderr.read()).partition(mark)[0],
                seconds=time.monotonic() - started,
                timed_out=status is None,
            )

    def start(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        grace_s: float = 10.0,
        stamped: bool = False,
    ) -> SshProcess:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            return self._supervised(argv, env, out, grace_s, ["--stamp" if stamped else "--merge"])

    def put(self, local: Path, remote: Path) -> None:
        self._put(local, remote, "replace")

    def get(self, remote: Path, local: Path) -> None:
        with self._operation("pack", str(remote), stdout=subprocess.PIPE, begin=(2, 1)) as channel:
            assert channel.client.stdout is not None
            stream = Stream(channel.client.stdout.fileno())
            skip_greeting(stream, channel.mark)
            try:
                unpack(stream, str(local))
            except (EOFError, tarfile.TarError) as error:
                self._answer(channel, f"cannot give {remote}")
                raise WorkbookError(f"{remote} of node {self.node.name} cannot be read: {error}.") from error

    def close(self) -> None:
        """End the connection, and with it everything that runs through it."""
        with self._lock:
            atexit.unregister(self.close)
            if self._master is not None:
                self._master.close()
                self._master = None

    def _connected(self) -> Master:
        with self._lock:
            if self._master is None or not self._master.alive:
                self.close()
                self._master = Master(self.node)
                atexit.register(self.close)
            return self._master

    @cached_property
    def _facts(self) -> dict[str, str]:
        """The node's home and work folders and its own PYTHONPATH; the work folder is made."""
        work = self.node.work or WORK
        try:
            return dict(self._ask("prepare", work))
        except NodeRefusedError as error:
            raise UsageError(
                f"The work folder {work} of node {self.node.name} will not do: {error.reason}.",
                f"Name a folder there that is yours alone with `work` in data/nodes/{self.node.name}.yaml.",
            ) from error

    @property
    def _work(self) -> Path:
        return Path(self._facts["work"])

    @cached_property
    def _code(self) -> Path:
        """The folder of probes and overlay on the node, named by their content, so that each is sent once."""
        with tempfile.TemporaryDirectory(prefix="workbook-") as folder:
            for source, name in ((PROBES, "probes"), (OVERLAY, "overlay")):
                shutil.copytree(source, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
            there = self._work / "code" / content_hash(Path(folder))
            if not self.exists(there):
                self._put(Path(folder), there, "keep")
        return there

    def _put(self, local: Path, target: Path, how: str) -> None:
        local.stat()  # before anything is sent
        with self._operation("unpack", str(target), how) as channel:
            assert channel.client.stdin is not None
            with suppress(BrokenPipeError):  # the answer says why
                pack(str(local), Stream(channel.client.stdin.fileno()))
            channel.close_input()
            self._answer(channel, f"cannot take {target}")

    def _supervised(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        stdout: IO[Any],
        grace_s: float,
        options: Sequence[str] = (),
        begin: Sequence[int] = (2,),
    ) -> SshProcess:
        mark, tag = uuid.uuid4().hex, uuid.uuid4().hex
        options = ["--report", mark, "--grace", str(grace_s), "--heartbeat", str(SILENCE_S), *options]
        script = (PROBES / "supervise.py").read_text()
        tagged = {**node_env(self.node), **(env or {}), TAG: tag, "SPT_NOENV": "1"}
        channel = self._channel(script, [*options, "--", *argv], mark, env=tagged, stdout=stdout, begin=begin)
        return SshProcess(
            channel,
            stdout.name,
            grace_s=grace_s,
            end_the_rest=lambda: self._end_tagged(tag, channel.master, argv[0]),
            on_end=self._sessions.release,
        )

    def _end_tagged(self, tag: str, through: Master, program: str) -> None:
        if through.alive:
            with suppress(WorkbookError):
                self._ask("end_tagged", tag)
                if through is self._master:
                    return
        raise ConnectionLostError(self.node, f"while {Path(program).name} ran")

    def _channel(self, script: str, argv: Sequence[str], mark: str, **options: Any) -> Channel:
        """A channel, which holds a session of the connection until that is released."""
        if not self._sessions.acquire(timeout=SESSION_S):
            raise WorkbookError(
                f"{SESSIONS} commands run on node {self.node.name}, and none ended in {SESSION_S} s.",
                "Run fewer at once.",
            )
        try:
            master = self._connected()
            try:
                return Channel(master, self._given_python, script, argv, mark, **options)
            except ConnectionLostError:  # nothing ran, so a connection that was just found dead is made anew
                if not master.ended_within(ENDING_S):
                    raise
                return Channel(self._connected(), self._given_python, script, argv, mark, **options)
        except BaseException:
            self._sessions.release()
            raise

    @contextmanager
    def _operation(self, name: str, *args: str, **options: Any) -> Iterator[Channel]:
        mark = uuid.uuid4().hex
        channel = self._channel(REMOTE.read_text(), [mark, name, *args], mark, **options)
        try:
            yield channel
        finally:
            channel.kill()
            self._sessions.release()

    def _ask(self, name: str, *args: str) -> Any:
        with self._operation(name, *args) as channel:
            return self._answer(channel, f"cannot do {name.replace('_', ' ')} {' '.join(args)}".rstrip())

    def _answer(self, channel: Channel, what: str) -> Any:
        with suppress(subprocess.TimeoutExpired):
            channel.client.wait(ANSWER_S)
        word = channel.last_word()
        if word is None:
            raise ConnectionLostError(self.node, "before it answered")
        answer = json.loads(word)
        if "error" in answer:
            raise NodeRefusedError(f"Node {self.node.name} {what}: {answer['error']}.", answer["error"])
        return answer["value"]


def content_hash(folder: Path) -> str:
    """A name for what is in a folder: names and bytes."""
    found = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]
