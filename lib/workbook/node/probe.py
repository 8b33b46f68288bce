"""Run one of the probes: a self-contained script, by the node's Python, under the overlay, that prints JSON."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbook.errors import PatchRefusedError, UsageError, WorkbookError
from workbook.node.base import Completed, NodeConnection
from workbook.paths import OVERLAY, stacks_dir
from workbook.types import Stack

READY = ".ready"  # written into a stack's folder last; without it the stack was never finished
PART = "cell "  # begins a line of a probe's standard error that is a part of its answer
_HAS_FLASHINFER = (
    "import sys; from importlib.util import find_spec; sys.exit(find_spec('flashinfer') is None)"
)


def flashinfer_dir(stack: Stack) -> Path:
    """The folder of this stack's FlashInfer, which lies beside the environment, not in it.

    SGLang's server does not start on a CPU where FlashInfer can be imported, and a folder a version makes a
    change of versions a matter of one path.
    """
    return stacks_dir() / f"flashinfer-python-{stack.flashinfer}"


def how_to_get(stack: Stack) -> str:
    """What puts this stack's FlashInfer in its folder."""
    return f"Run: workbook stack create {stack.name} --flashinfer {stack.flashinfer}"


def stack_dir(stack: Stack) -> Path:
    """The folder of this stack's own environment."""
    return stacks_dir() / stack.name


def stack_python(node: NodeConnection, stack: Stack) -> str:
    """The Python that has this stack: the node's own where that is the stack, else that of the stack's environment.

    Raises:
        UsageError: the stack was not created, or not to its end.
    """
    if stack.name == node.node.stack:
        return node.python
    if not (stack_dir(stack) / READY).is_file():
        raise UsageError(
            f"Stack {stack.name} is not set up here (looked in {stack_dir(stack)}).",
            f"Run: workbook stack create {stack.name}",
        )
    return str(stack_dir(stack) / "bin" / "python")


def check_flashinfer(node: NodeConnection, stack: Stack, *, folder_only: bool = False) -> None:
    """Nothing, if this stack's FlashInfer has a folder, or its Python has a FlashInfer of its own.

    Args:
        folder_only: a version that was swapped in has to have a folder.

    Raises:
        UsageError: there is none, or the stack was not created.
    """
    python = stack_python(node, stack)
    if flashinfer_dir(stack).is_dir():
        return
    if not folder_only:
        asked = node.run([python, "-P", "-c", _HAS_FLASHINFER], timeout_s=60, env=overlay_env(stack))
        if asked.returncode == 0:
            return
    raise _no_flashinfer(node, stack)


def _no_flashinfer(node: NodeConnection, stack: Stack) -> UsageError:
    return UsageError(
        f"FlashInfer {stack.flashinfer} is not on node {node.node.name} (looked in {flashinfer_dir(stack)}).",
        how_to_get(stack),
    )


def overlay_env(stack: Stack | None = None, patch_level: int = 0) -> dict[str, str]:
    """The environment that puts the overlay, and the stack's FlashInfer if it has a folder, on PYTHONPATH."""
    folders = [str(OVERLAY)]
    if stack is not None and flashinfer_dir(stack).is_dir():
        folders.append(str(flashinfer_dir(stack)))
    if inherited := os.environ.get("PYTHONPATH"):
        folders += [one for one in inherited.split(os.pathsep) if one not in folders]
    return {"PYTHONPATH": os.pathsep.join(folders), "WORKBOOK_PATCH_LEVEL": str(patch_level)}


def run_probe(
    node: NodeConnection,
    stack: Stack,
    script: str,
    args: Sequence[str],
    *,
    timeout_s: float,
    patch_level: int = 0,
    env: Mapping[str, str] | None = None,
    raw: Path | None = None,
    on_stderr: Callable[[str], None] | None = None,
) -> Any:
    """The JSON that a probe printed.

    Args:
        script: file name under probes/.
        args: its arguments, given as they are.
        timeout_s: seconds after which it is stopped.
        raw: where its standard output (`.json`) and error (`.log`) are kept; the suffix is added.
        on_stderr: called with each line of its standard error as it is written.

    Raises:
        UsageError: the stack or its FlashInfer is missing, or its torch is too old.
        PatchRefusedError: a patch refused the installed code.
        WorkbookError: it failed, ran out of time or printed no JSON.
    """
    python = stack_python(node, stack)
    with tempfile.TemporaryDirectory(prefix="workbook-") as scratch:
        # FlashInfer makes its cache folder when imported; a probe leaves none behind.
        environment = {
            **overlay_env(stack, patch_level),
            "FLASHINFER_WORKSPACE_BASE": scratch,
            "SGLANG_CACHE_DIR": scratch,
            **(env or {}),
        }
        # -P: a probe named trace.py must not stand in the way of the standard library's own
        done = node.run(
            [python, "-P", str(node.probes / script), *args],
            timeout_s=timeout_s,
            env=environment,
            on_stderr=on_stderr,
        )
    # A sitecustomize of the user's may print before; the scratch folder means nothing to a reader.
    answer = done.stdout.strip().rpartition("\n")[2].replace(scratch, "SCRATCH")
    if raw is not None:
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.with_name(f"{raw.name}.json").write_text(answer)  # the name may have dots of its own
        raw.with_name(f"{raw.name}.log").write_text(done.stderr)
    if done.timed_out:
        raise WorkbookError(
            f"{script} ran longer than {timeout_s:.0f} s on {node.node.name} and was stopped."
        )
    if done.returncode != 0:
        raise _failure(done, node, stack, script)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise WorkbookError(f"{script} on {node.node.name} printed no JSON.") from error


def _failure(done: Completed, node: NodeConnection, stack: Stack, script: str) -> WorkbookError:
    if done.returncode > 128:  # what it wrote last has nothing to do with it
        name = signal.Signals(done.returncode - 128).name
        return WorkbookError(f"{script} on {node.node.name} was ended by {name}.")
    said = (line for line in reversed(done.stderr.splitlines()) if line.strip() and not line.startswith(PART))
    last = next(said, "it said nothing")
    if "No module named 'flashinfer'" in last:
        return _no_flashinfer(node, stack)
    if "No module named 'torch'" in last:
        return UsageError(f"torch is not in {done.argv[0]} on node {node.node.name}.", "Run `make setup`.")
    for refusal, kind in (("PatchRefused: ", PatchRefusedError), ("TorchTooOld: ", UsageError)):
        if refusal in last:
            return kind(last.partition(refusal)[2])
    return WorkbookError(
        f"{script} failed on {node.node.name} (exit status {done.returncode}): {last.strip()}"
    )
