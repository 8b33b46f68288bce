"""Run a server's command and watch its processes, from beside them.

    python -I -S watch.py -- COMMAND [ARG...]

What it sees is written to the log, in lines that begin with `workbook: `. A rank that ends while the launcher goes on
is an error: the command is given up, with exit status 70. Compilers at work are named every few seconds, since kernels
are built in silence. At the end it tells the peak of the resident memory, in which shared pages count for each process.
Otherwise the exit status is the command's, 128 + N for signal N. Standard library only; Linux.
"""

import collections
import ctypes
import functools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
POLL_S = 0.25
WALK_S = 1.0  # seconds between two looks at all processes
GONE_S = 0.5  # that the launcher has to end after one of its ranks
COMPILING_S = 2.0
GAVE_UP = 70
RANK = "sglang::"  # how SGLang titles its processes
COMPILERS = {"nvcc", "cicc", "ptxas", "ninja", "cc1plus", "fatbinary", "tilelang"}
PAGE = os.sysconf("SC_PAGE_SIZE")


def say(text: str) -> None:
    os.write(1, f"\nworkbook: {text}\n".encode(errors="replace"))


def die_with(parent: int) -> None:
    """Have this process killed as soon as its parent has ended, however that comes about."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def look(pid: int) -> "tuple[str, str, int, str, int] | None":
    """Name, state, parent, start time and resident bytes of a process; None for one that is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, fields[0], int(fields[1]), fields[19], int(fields[21]) * PAGE


def title(pid: int, name: str) -> str:
    """A rank's whole title, of which its name has the first 15 characters only."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return name
    return line.strip() if line.startswith(RANK) else name


class Watched:
    """The processes below one, as they were seen last."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.ranks: dict[int, tuple[str, str]] = {}  # start time, which tells a reused id, and title
        self.peak = 0
        self.compilers: collections.Counter[str] = collections.Counter()

    def walk(self) -> None:
        """Find ranks and compilers, and add up the memory."""
        seen = {int(one.name): look(int(one.name)) for one in Path("/proc").iterdir() if one.name.isdigit()}
        children = collections.defaultdict(list)
        for pid, found in seen.items():
            if found:
                children[found[2]].append(pid)
        tree = [self.root]
        for pid in tree:
            tree += children[pid]
        alive = {pid: found for pid in tree if (found := seen.get(pid)) and found[1] != "Z"}
        self.peak = max(self.peak, sum(found[4] for found in alive.values()))
        self.compilers = collections.Counter(found[0] for found in alive.values() if found[0] in COMPILERS)
        for pid, found in alive.items():
            if found[0].startswith(RANK) and pid not in self.ranks:
                self.ranks[pid] = (found[3], title(pid, found[0]))

    def gone(self) -> "str | None":
        """A rank that was there and has ended."""
        for pid, (start, name) in self.ranks.items():
            found = look(pid)
            if not found or found[1] in "ZX" or found[3] != start:
                return f"{name} (process {pid})"
        return None


def watch(child: "subprocess.Popen[bytes]", watched: Watched, asked_to_stop: "list[int]") -> "int | None":
    """Wait for the end of the command; None when it was given up."""
    walked = told = 0.0
    gone_since = None
    while True:
        try:
            return child.wait(POLL_S)
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        if now - walked >= WALK_S:
            watched.walk()
            walked = now
        if watched.compilers and now - told >= COMPILING_S:
            say("compiling: " + ", ".join(f"{n} {name}" for name, n in sorted(watched.compilers.items())))
            told = now
        gone = None if asked_to_stop else watched.gone()
        gone_since = (gone_since or now) if gone else None
        if gone_since and now - gone_since >= GONE_S:
            say(f"error: {gone} ended, and the server went on without it; it is given up")
            return None


def main(argv: list[str]) -> int:
    if argv[:1] != ["--"] or len(argv) < 2:
        print("usage: watch.py -- COMMAND [ARG...]", file=sys.stderr)
        return 2
    asked_to_stop: list[int] = []
    try:
        child = subprocess.Popen(argv[1:], preexec_fn=functools.partial(die_with, os.getpid()))
    except OSError as error:
        say(f"error: cannot start {argv[1]}: {error.strerror}")
        return 127
    watched = Watched(child.pid)

    def stop(number: int, _frame: object) -> None:
        asked_to_stop.append(number)
        child.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    status = watch(child, watched, asked_to_stop)
    # of a short life no look was taken; the kernel knows the largest of the ended processes
    peak = max(watched.peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    say(f"peak resident memory {peak / 1e9:.6f} GB")
    if status is None:
        return GAVE_UP
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
