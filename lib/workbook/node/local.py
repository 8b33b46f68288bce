"""The machine that the workbook runs on."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from workbook.node.base import Completed
from workbook.paths import PROBES
from workbook.types import Node

POLL_S = 0.1


class LocalProcess:
    """A command under `probes/supervise.py`, whose lifeline is a pipe that closes when this process ends."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], stdout: Path, stderr: Path | None, grace_s: float
    ) -> None:
        supervised = [sys.executable, "-I", "-S", str(PROBES / "supervise.py"), "--grace", str(grace_s), "--"]
        self.log = stdout
        self.grace_s = grace_s
        with stdout.open("ab") as out, (stderr or stdout).open("ab") as err:
            self._supervisor = subprocess.Popen(
                [*supervised, *argv], stdin=subprocess.PIPE, stdout=out, stderr=err, env=dict(env),
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._supervisor.pid

    def poll(self) -> int | None:
        return self._supervisor.poll()

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int:
        if self._supervisor.stdin is not None and not self._supervisor.stdin.closed:
            self._supervisor.stdin.close()
        status = self.wait(self.grace_s + 5)
        if status is None:
            self._supervisor.send_signal(signal.SIGKILL)
            status = self._supervisor.wait()
        return status

    def follow(self) -> Iterator[str]:
        with self.log.open(errors="replace") as lines:
            pending = ""
            while True:
                ended = self.poll() is not None
                pending += lines.read()
                *whole, pending = pending.split("\n")
                yield from whole
                if ended:
                    if pending:
                        yield pending
                    return
                time.sleep(POLL_S)


class LocalConnection:
    """A node that needs no connection. `put` and `get` copy files."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def python(self) -> str:
        return self.node.python or sys.executable

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, **self.node.env, **(env or {})}

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Completed:
        with tempfile.TemporaryDirectory(prefix="workbook-") as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            started = time.monotonic()
            process = LocalProcess(argv, self._env(env), stdout, stderr, grace_s=5.0)
            try:
                status = (
                    _wait(process, timeout_s, stderr, on_stderr) if on_stderr else process.wait(timeout_s)
                )
            finally:
                final = process.stop()
            return Completed(
                argv=tuple(argv),
                returncode=final if status is None else status,
                stdout=stdout.read_text(errors="replace"),
                stderr=stderr.read_text(errors="replace"),
                seconds=time.monotonic() - started,
                timed_out=status is None,
            )

    def start(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, grace_s: float = 10.0
    ) -> LocalProcess:
        log.parent.mkdir(parents=True, exist_ok=True)
        return LocalProcess(argv, self._env(env), log, None, grace_s)

    def put(self, local: Path, remote: Path) -> None:
        _copy(local, remote)

    def get(self, remote: Path, local: Path) -> None:
        _copy(remote, local)


def _wait(
    process: LocalProcess, timeout_s: float, written: Path, on_line: Callable[[str], None]
) -> int | None:
    """Wait as `LocalProcess.wait` does, and hand over the whole lines of a file meanwhile."""
    deadline = time.monotonic() + timeout_s
    with written.open(errors="replace") as lines:
        pending, status = "", None
        while status is None and time.monotonic() < deadline:
            status = process.wait(POLL_S)
            *whole, pending = (pending + lines.read()).split("\n")
            for line in whole:
                on_line(line)
    return status


def _copy(source: Path, target: Path) -> None:
    if source == target:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
