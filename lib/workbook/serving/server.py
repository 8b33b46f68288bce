"""One SGLang server's life: started on a node, watched until it is ready, stopped with all its processes."""

import re
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self
from urllib.request import ProxyHandler, build_opener

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection, Process
from workbook.node.probe import stack_python
from workbook.serving import footprint
from workbook.serving.capture_log import read_capture
from workbook.serving.checks import check_model, installed_sglang, usable_gpus
from workbook.serving.command import Command, server_command
from workbook.serving.log import decisive_line, failure_status, new_lines, printable, unstamped, where
from workbook.serving.progress import Progress
from workbook.serving.tiny_model import resolve_model
from workbook.types import CaptureStep, LaunchProfile, ServeOutcome, Stack, Status

POLL_S = 0.25
PORT_TAKEN = re.compile(r"(?i)address already in use|EADDRINUSE")
QUIET = re.compile(r"--log-level[= ](warning|error|critical)")  # it does not say that it is ready
PEAK = re.compile(r"workbook: peak resident memory ([\d.]{1,12}) GB$")


class PortTakenError(WorkbookError):
    """Another process took the port after it was chosen, and before the server listened."""


class Server:
    """A context manager: inside it the server answers at `url`, after it no process is left.

    Args:
        node: where it runs.
        profile: what it is launched with.
        log: a new file for its output, each line with its time of arrival.
        patch_level: the patch level it runs under.
        tp: tensor-parallel size, where it is not the profile's.
        label: what the records call it.
        stack: whose Python runs it; the node's own where left out.
        port: of the node's loopback interface; a free one where left out.
        ready_timeout_s: seconds until it has to answer.
        silence_s: seconds without a word, while it is not ready, that count as a hang.
        on_progress: called with a few words on how far it is, whenever they change, until it is ready.

    `url` is the server's address from here and `node_url` from the node, `outcome` tells at any time how it went so
    far, also after a failed start; what it captured, its memory and what it left behind, at the end.

    Raises:
        UsageError: the node's SGLang cannot do what the profile asks; the model, the GPUs or the port are not there.
        WorkbookError: there is no SGLang on the node, or `log` is there already; on entry: the server died, said
            nothing for too long, or was not ready in time.
    """

    def __init__(
        self,
        node: NodeConnection,
        profile: LaunchProfile,
        *,
        log: Path,
        patch_level: int = 0,
        tp: int | None = None,
        label: str = "",
        stack: Stack | None = None,
        port: int | None = None,
        ready_timeout_s: float = 3600.0,
        silence_s: float = 600.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        if log.exists():
            raise WorkbookError(f"{log} is there already.", "Give every server a log of its own.")
        self.node, self.profile, self.log = node, profile, log
        self.ready_timeout_s, self.silence_s = ready_timeout_s, silence_s
        self.on_progress = on_progress or (lambda words: None)
        self._stack, self._patch_level, self._tp = stack, patch_level, tp
        self._port_is_given = port is not None
        self._tag = uuid.uuid4().hex
        self._python = stack_python(node, stack) if stack else node.python
        self.sglang_version = installed_sglang(node, self._python)
        self.model_path = resolve_model(node, profile)
        self.outcome = ServeOutcome(
            profile=profile.name,
            status=Status.OK,
            command="",
            label=label,
            patch_level=patch_level,
            capture_mode=profile.capture_mode,
            sglang=self.sglang_version,
        )
        self._choose_port(port)
        check_model(node, self._python, self.model_path, self._command.env)
        self._before = footprint.take(node, self.port, self._tag)
        if not self._before.port_free:
            raise UsageError(f"Port {self.port} of node {node.node.name} is in use.", "Choose another one.")
        self.gpus = usable_gpus(node, profile, tp or profile.tp, [*self._before.gpu_gb], self._command.env)
        self._process: Process | None = None
        self._open = ExitStack()
        self.stopped = (
            False  # with all that belongs to it, as far as `outcome.left_behind` does not say otherwise
        )

    @property
    def command(self) -> str:
        """What runs, ready to paste into a shell of the node."""
        return self._command.pasteable

    @property
    def caches(self) -> Path:
        """The folder on the node of what it compiles, which the next server of this level finds."""
        return self._command.caches

    @property
    def capture_steps(self) -> tuple[CaptureStep, ...]:
        """The shapes that it captured, as far as its log has them."""
        return read_capture(self.log, self.outcome.label).steps if self.log.exists() else ()

    def __enter__(self) -> Self:
        try:
            self._start()
        except PortTakenError:
            self._stop()
            if self._port_is_given:
                raise
            self.log.rename(self.log.with_name(f"{self.log.stem}-port-{self.port}{self.log.suffix}"))
            self._choose_port(None)
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.death()
        self._stop()

    def death(self) -> str | None:
        """How the server came to its end after it was ready, with its decisive line; None while it lives."""
        try:
            status = self._process.poll() if self._process else None
        except WorkbookError as error:
            return self._note_failure(Status.CRASHED, f"was lost after it was ready ({error})", None)
        if status is None:
            return None
        return self._note_failure(
            failure_status(self.log), f"{how_it_ended(status)} after it was ready", status
        )

    def _choose_port(self, port: int | None) -> None:
        self.port = port or self.node.free_port()
        self.node_url = self.url = f"http://127.0.0.1:{self.port}"
        self._command: Command = server_command(
            self.node,
            self.profile,
            sglang_version=self.sglang_version,
            python=self._python,
            model_path=self.model_path,
            port=self.port,
            patch_level=self._patch_level,
            tp=self._tp,
            stack=self._stack,
        )
        self._note(command=self._command.pasteable)

    def _start(self) -> None:
        started = time.monotonic()
        watch = [self.node.python, "-I", "-S", str(self.node.probes / "watch.py"), "--"]
        env = self._command.env | {footprint.TAG: self._tag}
        try:
            self._process = self.node.start(
                [*watch, *self._command.argv], log=self.log, env=env, stamped=True
            )
            self.url = self._open.enter_context(self.node.reach(self.port))
            self._wait_until_ready(self._process, started + self.ready_timeout_s)
        except PortTakenError:
            raise
        except BaseException:
            self._stop()
            raise
        self._note(ready_s=time.monotonic() - started)

    def _wait_until_ready(self, process: Process, deadline: float) -> None:
        lines, progress, heard = new_lines(self.log), Progress(), time.monotonic()
        words = progress.words
        self.on_progress(words)
        quiet = bool(QUIET.search(" ".join(self._command.argv)))
        while True:
            status = process.poll()  # before the lines: what it wrote last is among them then
            for line in iter(lines.__next__, None):
                text, heard = unstamped(line), time.monotonic()
                if PORT_TAKEN.search(text):
                    self._before = replace(self._before, port_free=False)
                    raise PortTakenError(
                        f"Port {self.port} was taken by another process before the server listened there: "
                        f"{printable(text)}.",
                        f"Choose another one; the server's own words are in {self.log}.",
                    )
                if progress.read(text) != words:
                    words = progress.words
                    self.on_progress(words)
            if status is not None:
                self._fail(failure_status(self.log), f"{how_it_ended(status)} before it was ready", status)
            # without its own word, who answers may be another server that took the port
            if (progress.ready or quiet) and is_healthy(self.url):
                return
            if time.monotonic() > deadline:
                self._fail(
                    Status.TIMEOUT, f"was not ready after {self.ready_timeout_s:g} s ({progress.words})"
                )
            if time.monotonic() > heard + self.silence_s:
                self._fail(Status.TIMEOUT, f"said nothing for {self.silence_s:g} s ({progress.words})")
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
        if self._process is None:
            return
        process, self._process = self._process, None
        process.stop()
        self._open.close()
        capture = read_capture(self.log)
        self._note(
            capture_s=capture.seconds,
            graph_memory_gb=capture.graph_memory_gb,
            peak_rss_gb=peak_memory(self.log),
            left_behind=footprint.left_behind(self.node, self.port, self._tag, self._before, self.gpus),
        )
        self.stopped = True

    def _note(self, **changes: object) -> None:
        self.outcome = self.outcome.model_copy(update=changes)


def peak_memory(log: Path) -> float | None:
    """The peak of the resident memory of all processes in GB (10^9 bytes), as the watcher told at the end."""
    with log.open(errors="replace", newline="\n") as lines:
        told = [found for line in lines if (found := PEAK.match(unstamped(line).rstrip()))]
    return float(told[-1][1]) if told else None


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


def is_healthy(url: str) -> bool:
    """Whether SGLang answers its health check, for which it generates a token."""
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False
