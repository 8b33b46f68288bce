"""Run a command so that nothing of it outlives whoever asked for it.

    python -I supervise.py [--grace SECONDS] -- COMMAND [ARG...]

Standard input is the lifeline: when it closes (the asker ended, was killed, or its connection dropped), or on
SIGTERM or SIGINT, the command gets SIGTERM, then after the grace period SIGKILL, with every descendant,
also those that left its process group or whose parent died. The exit status is the command's, 128 + N for signal N.
A supervisor that is itself killed takes the command along; what is below that, its asker has to end.
Standard library only: it runs on the node, by whatever Python is there.
"""

import ctypes
import functools
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have this process killed as soon as its parent has ended, however that comes about."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it was asked for
        os.kill(os.getpid(), signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, by /proc; zombies are left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, ppid = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            children.setdefault(int(ppid), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def reap() -> None:
    """Collect every ended child, adopted ones too."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def signal_all(number: int) -> bool:
    """Send `number` to every descendant; False when there is none left."""
    living = descendants(os.getpid())
    for pid in living:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return bool(living)


def end_all(grace_s: float) -> None:
    """SIGTERM to all descendants, SIGKILL to those still there after `grace_s` seconds, then wait for them."""
    deadline = time.monotonic() + grace_s
    signal_all(signal.SIGTERM)
    while descendants(os.getpid()) and time.monotonic() < deadline:
        reap()
        time.sleep(POLL_S)
    while signal_all(signal.SIGKILL):
        reap()
        time.sleep(POLL_S)
    reap()


def main(argv: list[str]) -> int:
    grace_s = 10.0
    if argv[:1] == ["--grace"]:
        grace_s, argv = float(argv[1]), argv[2:]
    if argv[:1] != ["--"] or len(argv) < 2:
        print("usage: supervise.py [--grace SECONDS] -- COMMAND [ARG...]", file=sys.stderr)
        return 2
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned descendants become its children, and so stay findable
    asked_to_stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: asked_to_stop.append(got))
    try:
        child = subprocess.Popen(
            argv[1:],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=functools.partial(die_with, os.getpid()),
        )
    except OSError as error:
        print(f"cannot start {argv[1]}: {error.strerror}", file=sys.stderr)
        return 127
    lifeline = True
    while child.poll() is None and not asked_to_stop:
        if not lifeline:
            break
        ready, _, _ = select.select([0], [], [], POLL_S)
        lifeline = not ready or bool(os.read(0, 4096))
    status = child.poll()
    if status is None:
        child.send_signal(signal.SIGTERM)  # the command first: it may end its own children in order
        try:
            status = child.wait(grace_s)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
    end_all(1.0)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
