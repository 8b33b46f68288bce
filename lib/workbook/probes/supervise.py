"""Run a command so that nothing of it outlives whoever asked for it.

    python -I supervise.py [--grace SECONDS] [--stamp] -- COMMAND [ARG...]

Standard input is the lifeline: when it closes (the asker ended, was killed, or its connection dropped), or on
SIGTERM or SIGINT, the command gets SIGTERM, then after the grace period SIGKILL, with every descendant,
also those that left its process group or whose parent died. The exit status is the command's, 128 + N for signal N.
A supervisor that is itself killed takes the command along; what is below that, its asker has to end.
With --stamp each line of the command's output, one that ends in a carriage return as well, begins with its UTC time of
arrival and ends in a newline: `2026-11-30T16:40:01.123Z Capturing batches ...`.
Standard library only: it runs on the node, by whatever Python is there.
"""

import ctypes
import functools
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
ENDS = re.compile(rb"\r?\n|\r")
LONGEST_LINE = 1 << 20  # bytes
CHUNK = 65536


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


def stamp(source: int, target: int) -> None:
    """Copy lines from one file descriptor to another until its end, each with the time of its first byte before it.

    What follows a carriage return is a progress bar, written whole: it is not held back until it is overwritten.
    """
    pending, began = b"", time.time()
    while chunk := os.read(source, CHUNK):
        now = time.time()
        data = pending + chunk
        *lines, rest = ENDS.split(data)
        is_bar = len(chunk) < CHUNK and data[: len(data) - len(rest)].endswith(b"\r")
        if is_bar or len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        if lines:
            write_all(target, stamp_lines(lines[:1], began if pending else now) + stamp_lines(lines[1:], now))
        if lines or not pending:
            began = now
        pending = rest
    write_all(target, stamp_lines([pending], began))


def stamp_lines(lines: list[bytes], at: float) -> bytes:
    """The lines that are not blank, with a time before each."""
    prefix = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03d}Z "
    return b"".join(prefix.encode() + line + b"\n" for line in lines if line.strip())


def write_all(target: int, data: bytes) -> None:
    """Write to the end; what a full disk cannot take is lost, the command goes on."""
    while data:
        try:
            data = data[os.write(target, data) :]
        except OSError:
            return


def main(argv: list[str]) -> int:
    grace_s, stamped = 10.0, False
    if argv[:1] == ["--grace"]:
        grace_s, argv = float(argv[1]), argv[2:]
    if argv[:1] == ["--stamp"]:
        stamped, argv = True, argv[1:]
    if argv[:1] != ["--"] or len(argv) < 2:
        print("usage: supervise.py [--grace SECONDS] [--stamp] -- COMMAND [ARG...]", file=sys.stderr)
        return 2
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned descendants become its children, and so stay findable
    asked_to_stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: asked_to_stop.append(got))
    try:
        child = subprocess.Popen(
            argv[1:],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stamped else None,
            stderr=subprocess.STDOUT if stamped else None,
            start_new_session=True,
            preexec_fn=functools.partial(die_with, os.getpid()),
        )
    except OSError as error:
        print(f"cannot start {argv[1]}: {error.strerror}", file=sys.stderr)
        return 127
    stamping = None
    if child.stdout is not None:
        stamping = threading.Thread(target=stamp, args=(child.stdout.fileno(), 1), daemon=True)
        stamping.start()
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
    if stamping is not None:
        stamping.join(5.0)  # every writer is gone, so the pipe is at its end
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
