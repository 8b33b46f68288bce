"""Run a command so that nothing of it outlives whoever asked for it.

    python -I supervise.py [OPTION...] -- COMMAND [ARG...]

Standard input is the lifeline: when it closes (the asker ended, was killed, or its connection dropped), or on
SIGTERM or SIGINT, the command gets SIGTERM, then after the grace period SIGKILL, with every descendant,
also those that left its process group or whose parent died. The exit status is the command's, 128 + N for signal N.
A supervisor that is itself killed takes the command along; what is below that, its asker has to end.
With --stamp each line of the command's output, one that ends in a carriage return as well, begins with its UTC time of
arrival and ends in a newline: `2026-11-30T16:40:01.123Z Capturing batches ...`.
Over a network a lifeline may stay open though nobody holds it: --heartbeat wants a byte of it every so often.
Standard library only: it runs on the node, by whatever Python is there.
"""

import argparse
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
REPORT_S = 5.0


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


def report(word: str, status: int) -> None:
    """Write the word and the status to standard error, unless nobody reads it: a dead connection takes nothing."""
    if select.select([], [2], [], REPORT_S)[1]:
        write_all(2, f"{word} {status}\n".encode())


def options(argv: list[str]) -> argparse.Namespace:
    """The options before `--`."""
    parser = argparse.ArgumentParser(prog="supervise.py", usage="%(prog)s [OPTION...] -- COMMAND [ARG...]")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--merge", action="store_true", help="standard error goes to standard output")
    parser.add_argument("--stamp", action="store_true", help="merge, and give each line its time of arrival")
    parser.add_argument(
        "--heartbeat", type=float, help="seconds without a byte that count as a lost lifeline"
    )
    parser.add_argument(
        "--report", help="a word to write to standard error at the end, before the exit status"
    )
    if "--" not in argv[:-1]:
        parser.error("no command was given")
    return parser.parse_args(argv[: argv.index("--")])


def main(argv: list[str]) -> int:
    chosen = options(argv)
    status = supervise(argv[argv.index("--") + 1 :], chosen)
    if chosen.report:
        report(chosen.report, status)
    return status


def supervise(command: list[str], chosen: argparse.Namespace) -> int:
    """Run the command to its end, or end it; its exit status in the shell's form."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned descendants become its children, and so stay findable
    asked_to_stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: asked_to_stop.append(got))
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if chosen.stamp else None,
            stderr=subprocess.STDOUT if chosen.stamp or chosen.merge else None,
            start_new_session=True,
            preexec_fn=functools.partial(die_with, os.getpid()),
        )
    except (OSError, ValueError) as error:  # ValueError: a null character
        why = f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}\n"
        write_all(1 if chosen.stamp or chosen.merge else 2, why.encode(errors="replace"))
        return 127
    stamping = None
    if child.stdout is not None:
        stamping = threading.Thread(target=stamp, args=(child.stdout.fileno(), 1), daemon=True)
        stamping.start()
    lifeline, heard = True, time.monotonic()
    while lifeline and child.poll() is None and not asked_to_stop:
        if select.select([0], [], [], POLL_S)[0]:
            lifeline, heard = bool(os.read(0, 4096)), time.monotonic()
        elif chosen.heartbeat and time.monotonic() - heard > chosen.heartbeat:
            lifeline = False
    status = child.poll()
    if status is None:
        child.send_signal(signal.SIGTERM)  # the command first: it may end its own children in order
        try:
            status = child.wait(chosen.grace)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
    end_all(1.0)
    if stamping is not None:
        stamping.join(5.0)  # every writer is gone, so the pipe is at its end
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
