"""The environment of a run: what the node says of itself, and which state of the workbook asked."""

import os
import subprocess
import sys
from pathlib import Path

from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.paths import ROOT
from workbook.types import EnvSnapshot, Stack


def take(node: NodeConnection, stack: Stack) -> EnvSnapshot:
    """Ask the node for its hardware and packages, and git for the workbook's commit.

    Raises:
        WorkbookError: the node did not answer.
    """
    answer = run_probe(node, stack, "snapshot.py", [], timeout_s=60)
    commit = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain", "--untracked-files=no")
    return EnvSnapshot(
        node=node.node.name,
        git_commit=commit,
        git_dirty=None if status is None else bool(status),
        argv=_argv(),
        **answer,
    )


def _argv() -> tuple[str, ...]:
    """The command that asked; a notebook's kernel has only a connection file to tell, which says nothing."""
    program = Path(sys.argv[0]).name
    words = (program,) if program.startswith("ipykernel") else (program, *sys.argv[1:])
    return tuple(os.fsencode(word).decode(errors="replace") for word in words)  # a record is UTF-8


def _git(*args: str) -> str | None:
    """What git prints; None outside a checkout or without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
