"""The machine that the workbook runs on."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from workbook.node import remote
from workbook.node.base import Completed, Process
from workbook.paths import OVERLAY, PROBES, stacks_dir
from workbook.types import Node

POLL_S = 0.1
TAG = "WORKBOOK_PROCESS_TAG"


class LocalProcess:
    """A command under `probes/supervise.py`, whose lifeline is a pipe that closes when this process ends.

    A tag in the environment of all its processes finds what is left of it should the supervisor be killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdout: IO[Any],
        stderr: IO[Any],
        grace_s: float,
        stamped: bool = False,
    ) -> None:
        supervised = [sys.executable, "-I", "-S", str(PROBES / "supervise.py"), "--grace", str(grace_s)]
        supervised += ["--stamp", "--"] if stamped else ["--"]
        self.log = stdout.name
        self.grace_s = grace_s
        self._tag: str | None = uuid.uuid4().hex
        tags = f"{env.get(TAG, '')} {self._tag}".strip()  # whoever started this process finds it as well
        # SPT_NOENV: else setproctitle, which SGLang uses, overwrites the environment that others see.
        self._supervisor = subprocess.Popen(
            [*supervised, *argv], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr,
            env={**env, TAG: tags, "SPT_NOENV": "1"}, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._supervisor.pid

    def poll(self) -> int | None:
        status = self._supervisor.poll()
        return None if status is None else self._ended(status)

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._ended(self._supervisor.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def _ended(self, status: int) -> int:
        """The status in the shell's form; what a killed supervisor could not end is ended first."""
        if self._tag is not None:
            end_tagged(self._tag)
            self._tag = None
        return status if status >= 0 else 128 - status

    def stop(self) -> int:
        if self._supervisor.stdin is not None and not self._supervisor.stdin.closed:
            self._supervisor.stdin.close()
        status = self.wait(self.grace_s + 5)
        if status is None:
            self._supervisor.send_signal(signal.SIGKILL)
            status = self._ended(self._supervisor.wait())
        return status

    def follow(self) -> Iterator[str]:
        return follow_log(Path(self.log), lambda: self.poll() is not None)


class LocalConnection:
    """A node that needs no connection. `put` and `get` copy files."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def python(self) -> str:
        if self.node.venv:
            return str(Path(self.node.venv) / "bin" / "python")
        return self.node.python or sys.executable

    @property
    def probes(self) -> Path:
        return PROBES

    @property
    def overlay(self) -> Path:
        return OVERLAY

    @property
    def stacks(self) -> Path:
        return stacks_dir()

    def place(self, local: Path) -> Path:
        return local.absolute()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def free_port(self) -> int:
        return remote.free_port()

    @contextmanager
    def reach(self, port: int) -> Iterator[str]:
        yield f"http://127.0.0.1:{port}"

    @property
    def pythonpath(self) -> str:
        return self.node.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="workbook-") as folder:
            yield Path(folder)

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, **node_env(self.node), **(env or {})}

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Completed:
        # Temporary files without a name: nothing is left of them, whatever ends this process.
        with (
            tempfile.TemporaryFile("w+", errors="replace") as stdout,
            tempfile.TemporaryFile("w+", errors="replace") as stderr,
        ):
            started = time.monotonic()
            process = LocalProcess(argv, self._env(env), stdout, stderr, grace_s=5.0)
            try:
                status = wait_telling(process, timeout_s, stderr, on_stderr)
            finally:
                final = process.stop()
            stdout.seek(0)
            stderr.seek(0)
            return Completed(
                argv=tuple(argv),
                returncode=final if status is None else status,
                stdout=stdout.read(),
                stderr=stderr.read(),
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
    ) -> LocalProcess:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            return LocalProcess(argv, self._env(env), out, out, grace_s, stamped)

    def put(self, local: Path, remote: Path) -> None:
        _copy(local, remote)

    def get(self, remote: Path, local: Path) -> None:
        _copy(remote, local)


def end_tagged(tag: str) -> None:
    """Kill every process that has `tag` in its environment, and return when none of them is left."""
    while left := [process for process in psutil.process_iter() if _has_tag(process, tag)]:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while any(map(_lives, left)):
            time.sleep(0.01)


def _has_tag(process: psutil.Process, tag: str) -> bool:
    try:
        return tag in process.environ().get(TAG, "")
    except (psutil.Error, OSError):  # it ended, or is someone else's
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def node_env(node: Node) -> dict[str, str]:
    """What a node's description adds to the environment there."""
    gpus = {} if node.gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, node.gpus))}
    return gpus | node.env


def follow_log(log: Path, has_ended: Callable[[], bool]) -> Iterator[str]:
    """The lines of a log as they are written, until its writer has ended."""
    with log.open(errors="replace") as lines:
        pending = ""
        while True:
            ended = has_ended()
            pending += lines.read()
            *whole, pending = pending.split("\n")
            yield from whole
            if ended:
                if pending:
                    yield pending
                return
            time.sleep(POLL_S)


def wait_telling(
    process: Process, timeout_s: float, written: IO[str], on_line: Callable[[str], None] | None
) -> int | None:
    """Wait as `Process.wait` does, and hand over the whole lines of a file meanwhile."""
    if on_line is None:
        return process.wait(timeout_s)
    deadline = time.monotonic() + timeout_s
    file, read, pending, status = written.fileno(), 0, b"", None
    while status is None and time.monotonic() < deadline:
        status = process.wait(POLL_S)
        new = os.pread(file, os.fstat(file).st_size - read, read)  # the position is shared with the writer
        read += len(new)
        *whole, pending = (pending + new).split(b"\n")
        for line in whole:
            on_line(line.decode(errors="replace"))
    return status


def _copy(source: Path, target: Path) -> None:
    if source == target:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
