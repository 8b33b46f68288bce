"""A started command of a node behind ssh."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from workbook.errors import WorkbookError
from workbook.node.channel import Channel
from workbook.node.local import follow_log

HEARTBEAT_S = 5.0
SILENCE_S = 30.0  # without a heartbeat the node ends the command
NETWORK_S = 15.0  # a stop takes its grace period, and this for the way there and back
LOST_STATUS = 255  # ssh's own


class SshProcess:
    """A command under `probes/supervise.py` on the node, whose lifeline is ssh's standard input.

    When the connection is lost the node ends the command, at once where it notices, else after `SILENCE_S` seconds
    without a heartbeat.

    Args:
        channel: the running supervisor.
        log: where the command's output goes.
        grace_s: seconds between SIGTERM and SIGKILL when it is stopped.
        end_the_rest: ends what a killed supervisor left, or raises WorkbookError where the connection is lost.
        on_end: called once, when ssh's client has ended.
    """

    def __init__(
        self,
        channel: Channel,
        log: str,
        *,
        grace_s: float,
        end_the_rest: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self.channel, self.log, self.grace_s = channel, log, grace_s
        self._end_the_rest = end_the_rest
        self._status: int | None = None
        threading.Thread(target=self._beat, args=(on_end,), daemon=True).start()

    def _beat(self, on_end: Callable[[], None]) -> None:
        while True:
            with suppress(subprocess.TimeoutExpired):
                self.channel.client.wait(HEARTBEAT_S)
                return on_end()
            self.channel.write(b"\n")

    @property
    def pid(self) -> int:
        """The supervisor's, on the node."""
        return self.channel.pid

    def poll(self) -> int | None:
        return None if self.channel.client.poll() is None else self._ended()

    def wait(self, timeout_s: float) -> int | None:
        try:
            self.channel.client.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return self._ended()

    def _ended(self) -> int:
        if self._status is None:
            word = self.channel.last_word()
            if word is None:
                self._end_the_rest()
                word = str(128 + signal.SIGKILL)
            self._status = int(word)
        return self._status

    def stop(self) -> int:
        self.channel.close_input()
        try:
            status = self.wait(self.grace_s + NETWORK_S)
            if status is None:
                self.channel.kill()
                status = self._ended()
        except WorkbookError:
            status = LOST_STATUS
        return status

    def follow(self) -> Iterator[str]:
        return follow_log(Path(self.log), lambda: self.poll() is not None)
