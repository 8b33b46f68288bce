"""One SGLang server's life: started on a node, watched until it is ready, stopped with all its processes."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self
from urllib.request import ProxyHandler, build_opener

import psutil

from workbook.errors import WorkbookError
from workbook.node.base import NodeConnection, Process
from workbook.serving.launch import pasteable, server_argv, server_env
from workbook.serving.log import decisive_line, new_lines, printable, where
from workbook.serving.tiny_model import resolve_model
from workbook.types import LaunchProfile, ServeOutcome, Status

POLL_S = 0.25
SAMPLE_S = 0.5


class Server:
    """A context manager: inside it the server answers at `url`, after it no process is left.

    Args:
        node: where it runs.
        profile: what it is launched with.
        log: a new file for its output.
        patch_level: the patch level it runs under.
        tp: tensor-parallel size, where it is not the profile's.
        ready_timeout_s: seconds until it has to answer.
        on_line: called with each line of its log until it is ready.

    `outcome` tells at any time how it went so far, also after a failed start; the peak memory, at the end.

    Raises:
        UsageError: the node's SGLang cannot do what the profile asks.
        WorkbookError: there is no SGLang on the node, or `log` is there already; on entry: the server died,
            or was not ready in time.
    """

    def __init__(
        self,
        node: NodeConnection,
        profile: LaunchProfile,
        *,
        log: Path,
        patch_level: int = 0,
        tp: int | None = None,
        ready_timeout_s: float = 600.0,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        if log.exists():
            raise WorkbookError(f"{log} is there already.", "Give every server a log of its own.")
        self.node, self.log, self.ready_timeout_s = node, log, ready_timeout_s
        self._on_line = on_line or (lambda line: None)
        self.sglang_version = installed_sglang(node, node.python)
        self.model_path = resolve_model(node, profile)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._argv = server_argv(
            profile,
            self.sglang_version,
            python=node.python,
            model_path=self.model_path,
            port=self.port,
            tp=tp,
        )
        self._env = server_env(profile, patch_level=patch_level, pythonpath=node.node.env.get("PYTHONPATH"))
        self.command = pasteable(self._argv, self._env)
        self.outcome = ServeOutcome(profile=profile.name, status=Status.OK, command=self.command)
        self._process: Process | None = None
        self._memory: PeakMemory | None = None

    def __enter__(self) -> Self:
        started = time.monotonic()
        try:
            self._process = self.node.start(self._argv, log=self.log, env=self._env)
            if self.node.node.kind == "local":
                self._memory = PeakMemory(self._process.pid)
            self._wait_until_ready(self._process, started + self.ready_timeout_s)
        except BaseException:
            self._stop()
            raise
        self._note(ready_s=time.monotonic() - started)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.death()
        self._stop()

    def death(self) -> str | None:
        """How the server came to its end after it was ready, with its decisive line; None while it lives."""
        status = self._process.poll() if self._process else None
        if status is None:
            return None
        return self._note_failure(Status.CRASHED, f"{how_it_ended(status)} after it was ready", status)

    def _wait_until_ready(self, process: Process, deadline: float) -> None:
        lines = new_lines(self.log)
        while True:
            ready, status = is_healthy(self.url), process.poll()
            for line in iter(lines.__next__, None):
                self._on_line(printable(line))
            if status is not None:
                self._fail(Status.CRASHED, f"{how_it_ended(status)} before it was ready", status)
            if ready:
                return
            if time.monotonic() > deadline:
                self._fail(Status.TIMEOUT, f"was not ready after {self.ready_timeout_s:g} s")
            time.sleep(POLL_S)

    def _fail(self, status: Status, reason: str, exit_status: int | None = None) -> NoReturn:
        said = self._note_failure(status, reason, exit_status)
        raise WorkbookError(
            f"The server of profile {self.outcome.profile} {said}.",
            f"Read that log, or run the command by hand: {self.command}",
        )

    def _note_failure(self, status: Status, reason: str, exit_status: int | None) -> str:
        """Keep it in the outcome; the same as the end of a sentence."""
        killed = exit_status is not None and signal_of(exit_status) is not None
        line, number = decisive_line(self.log, or_last=not killed)  # a signal leaves no last words
        self._note(status=status, reason=reason, decisive_line=line, line_number=number)
        return f"{reason}: {where(self.log, or_last=not killed)}"

    def _stop(self) -> None:
        if self._memory is not None:
            self._note(peak_rss_gb=self._memory.stop())
        if self._process is not None:
            self._process.stop()

    def _note(self, **changes: object) -> None:
        self.outcome = self.outcome.model_copy(update=changes)


class PeakMemory:
    """The peak of a process tree's resident memory, sampled from a thread.

    Pages that processes share are counted once for each of them.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.is_set():
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self._peak = max(self._peak, sum(map(resident_bytes, tree)))
            self._ended.wait(SAMPLE_S)

    def stop(self) -> float:
        """End the sampling; the peak in GB (10^9 bytes)."""
        self._ended.set()
        self._thread.join()
        return self._peak / 1e9


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory in bytes; 0 for a process that ended meanwhile."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def installed_sglang(node: NodeConnection, python: str) -> str:
    """The version of SGLang that a Python of the node has.

    Raises:
        WorkbookError: it has none.
    """
    ask = "from importlib.metadata import version; print(version('sglang'))"
    done = node.run([python, "-P", "-c", ask], timeout_s=60)
    if done.returncode != 0:
        raise WorkbookError(
            f"The Python {python} of node {node.node.name} has no sglang.",
            f"Install it there, or name another Python in data/nodes/{node.node.name}.yaml.",
        )
    return done.stdout.strip().rpartition("\n")[2]


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    name = signal_of(status)
    return f"was ended by {name}" if name else f"ended with exit status {status}"


def signal_of(status: int) -> str | None:
    """The signal N that an exit status of -N or 128 + N stands for; None for any other status."""
    try:
        return signal.Signals(-status if status < 0 else status - 128).name
    except ValueError:
        return None


def free_port() -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def is_healthy(url: str) -> bool:
    """Whether SGLang answers its health check, for which it generates a token."""
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False
