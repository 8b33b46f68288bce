"""pip on a node: its progress a package at a time, its failure a sentence."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection

# No cache: wheels of several GB would stay in a folder whose disk nobody checked.
INSTALL = ("install", "--no-cache-dir", "--no-input", "--progress-bar=off")
NOT_FOUND = "No matching distribution found for "
Say = Callable[[str], None]


def pip_install(
    node: NodeConnection,
    what: Sequence[str],
    scratch: Path,
    log: Path,
    on_package: Say,
    into: str | None = None,
) -> None:
    """Install with the pip of the node's Python.

    Args:
        what: options and requirements.
        scratch: where wheels are unpacked before they are installed.
        log: where pip's output goes.
        on_package: called with a line for each package that pip turns to.
        into: the Python whose environment is installed into, which needs no pip; the node's own by default.

    Raises:
        UsageError: pip finds no such version.
        WorkbookError: pip failed.
    """
    scratch.mkdir(exist_ok=True)
    env = {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    target = ["--python", into] if into else []
    run_logged(node, [node.python, "-I", "-m", "pip", *target, *INSTALL, *what], log, env, on_package)


def run_logged(
    node: NodeConnection,
    argv: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    on_package: Say = lambda line: None,
) -> None:
    """Run to the end. Whatever ends this process ends that one with all its descendants."""
    log.unlink(missing_ok=True)
    errors = []
    process = node.start(argv, log=log, env=env)
    try:
        for line in process.follow():
            line = line.lstrip()
            if line.startswith(("Collecting ", "Downloading ", "Installing collected packages")):
                on_package(line.partition(" (from")[0].partition(": ")[0])
            elif line.startswith("ERROR: "):
                errors.append(line.removeprefix("ERROR: "))
    finally:
        status = process.stop()
    if status != 0:
        raise _failure(errors, status, log)


def _failure(errors: Sequence[str], status: int, log: Path) -> WorkbookError:
    missing = next((line for line in errors if line.startswith(NOT_FOUND)), "")
    if missing:
        requirement = missing.removeprefix(NOT_FOUND).partition(" ")[0]
        none_at_all = any("(from versions: none)" in line for line in errors)
        hint = (
            "It found no version at all: see that it reaches its index."
            if none_at_all
            else f"`pip index versions {requirement.partition('==')[0]}` lists what there is."
        )
        return UsageError(f"pip finds no {requirement} for this Python.", hint)
    last = errors[-1].rstrip(".") if errors else f"exit status {status}"
    return WorkbookError(f"pip failed: {last}.", f"Its output is in {log}.")
