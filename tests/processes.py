"""Which processes still run. A process may end between any two looks at it, so each look expects that."""

import time
from collections.abc import Callable, Iterable

import psutil


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only its exit status, which someone has yet to collect."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def running(pids: Iterable[int]) -> list[int]:
    """Those of the processes that still run."""
    return [pid for pid in pids if is_running(pid)]


def command_line(pid: int) -> str:
    """What a process was started with; empty when it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Return as soon as the condition holds; fail the test when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
