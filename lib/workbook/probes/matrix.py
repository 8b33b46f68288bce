"""Trace many calls, each in a fresh process, and print each answer as it comes: a line `cell {...}` on standard error.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python -P matrix.py '{"arch": "sm120", "cells": [[ENTRY, STATE], ...]}'

Without a GPU this process imports torch, Dynamo and FlashInfer once and calls nothing of FlashInfer; each cell is a
fork of it, as fresh as a process that has just imported them, at a fraction of the time. With a GPU each cell is a new
process (`start`: spawn), since Dynamo initialises CUDA, which does not survive a fork.
"""

import json
import multiprocessing
import os
import sys
import time
from contextlib import suppress
from multiprocessing.connection import wait

from workbook_overlay.answer import answer, spec

CELL_TIMEOUT_S = 240


def trace_into(connection, entry: str, state: str, arch: str, declared: dict | None) -> None:
    """In the child: trace one cell and send the answer, or why the call cannot even be made.

    Args:
        declared: what was declared before the fork; None in a new process, which has to declare it.
    """
    from workbook_overlay.call import resolve
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.tracing import trace_entry

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the parent alone writes lines
    declared = declared or declare_gpu(arch)
    try:
        resolve(entry)
    except (ImportError, AttributeError) as error:  # not in this FlashInfer
        connection.send(without_answer("not_supported_here", f"{type(error).__name__}: {error}"))
        return
    try:
        found = {"ended": None, **trace_entry(entry, state, declared)}
    except Exception as error:
        found = without_answer("crashed", f"{type(error).__name__}: {error}")
    connection.send(found)


def without_answer(status: str, message: str) -> dict:
    """A cell that ended in another way than by a trace."""
    return {"ended": status, "message": message}


class Cells:
    """The cells that run now, at most one a core."""

    def __init__(self, cells: list, arch: str, declared: dict | None) -> None:
        self.waiting, self.running = list(cells), {}
        self.arch, self.declared = arch, declared
        self.context = multiprocessing.get_context("fork" if declared else "spawn")

    def start(self) -> None:
        entry, state = self.waiting.pop(0)
        ours, theirs = self.context.Pipe(duplex=False)
        child = self.context.Process(target=trace_into, args=(theirs, entry, state, self.arch, self.declared))
        child.start()
        theirs.close()
        self.running[ours] = (child, entry, state, time.monotonic() + CELL_TIMEOUT_S)

    def ended(self) -> list[dict]:
        """The answers of the cells that have ended, or ran out of time; waits for the first."""
        ready = wait(list(self.running), timeout=1)
        late = [one for one, (_, _, _, deadline) in self.running.items() if time.monotonic() > deadline]
        return [self.collect(one, one not in ready) for one in {*ready, *late}]

    def collect(self, connection, late: bool) -> dict:
        child, entry, state, _ = self.running.pop(connection)
        found = None
        if late:
            child.kill()
            found = without_answer("timeout", f"ran longer than {CELL_TIMEOUT_S} s")
        else:
            with suppress(EOFError, OSError):  # it died before its answer, or in the middle of it
                found = connection.recv()
        child.join()
        connection.close()
        found = found or without_answer("crashed", f"exit status {child.exitcode}")
        return {"entry": entry, "process_state": state, **found}


def imported_once(arch: str) -> dict:
    """Import what every fork needs; what was declared."""
    from workbook_overlay.declare import declare_gpu

    declared = declare_gpu(arch)
    import flashinfer  # noqa: F401
    import torch

    # What Dynamo imports at its first trace is imported once, here, rather than in every child.
    torch.compile(torch.sin, backend="eager")(torch.zeros(1))
    torch._dynamo.reset()
    return declared


def matrix(asked: dict) -> dict:
    import torch

    start = asked.get("start") or ("spawn" if torch.cuda.is_available() else "fork")
    declared = imported_once(asked["arch"]) if start == "fork" else None
    cells = Cells(asked["cells"], asked["arch"], declared)
    while cells.waiting or cells.running:
        while cells.waiting and len(cells.running) < (os.cpu_count() or 1):
            cells.start()
        for found in cells.ended():
            print(f"cell {json.dumps(found)}", file=sys.stderr, flush=True)
    return {"cells": len(asked["cells"])}


if __name__ == "__main__":
    sys.exit(answer(lambda: matrix(spec())))
