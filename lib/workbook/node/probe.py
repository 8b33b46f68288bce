"""Run one of the probes: a self-contained script, by the node's Python, under the overlay, that prints JSON."""

import json
import os
import shlex
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbook.errors import PatchRefusedError, UsageError, WorkbookError
from workbook.node.base import Completed, NodeConnection
from workbook.paths import stacks_dir
from workbook.types import Stack

READY = ".ready"  # written into a stack's folder last; without it the stack was never finished
PART = "cell "  # begins a line of a probe's standard error that is a part of its answer
_HAS_FLASHINFER = (
    "import sys; from importlib.util import find_spec; sys.exit(find_spec('flashinfer') is None)"
)


def flashinfer_dir(node: NodeConnection, stack: Stack) -> Path:
    """The folder on the node of this stack's FlashInfer, which lies beside the environment, not in it.

    SGLang's server does not start on a CPU where FlashInfer can be imported, and a folder a version makes a
    change of versions a matter of one path.
    """
    return node.stacks / f"flashinfer-python-{stack.flashinfer}"


def sglang_dir(node: NodeConnection, stack: Stack) -> Path:
    """The folder on the node of this stack's SGLang as sources, without its dependencies and its kernels."""
    return node.stacks / f"sglang-{stack.sglang}"


def sources_env(node: NodeConnection, stack: Stack, patch_level: int = 0) -> dict[str, str]:
    """`overlay_env` with this stack's SGLang as sources, ahead of the SGLang that the Python has."""
    env = overlay_env(node, stack, patch_level)
    overlay, *others = env["PYTHONPATH"].split(os.pathsep)
    return env | {"PYTHONPATH": os.pathsep.join([overlay, str(sglang_dir(node, stack)), *others])}


def sources_python(node: NodeConnection, stack: Stack) -> str:
    """What runs a stack's sources: the Python with the stack's own torch where that was made whole, else the node's."""
    marker = stack_dir(node, stack) / READY
    if stack.name != node.node.stack and node.exists(marker):
        whole = node.run(["grep", "-qx", "minimal", str(marker)], timeout_s=30).returncode != 0
        if whole:
            return stack_python(node, stack)
    return node.python


def check_sglang(node: NodeConnection, stack: Stack) -> None:
    """Nothing, if this stack's SGLang lies on the node as sources.

    Raises:
        UsageError: it does not.
    """
    folder = sglang_dir(node, stack)
    if node.exists(folder):
        return
    make = f"workbook stack create {stack.name} --sources"
    if node.node.kind == "local":
        remedy = f"Run: {make}"
    else:  # they are text, so the ones made here will do
        remedy = f"Run here: {make}; then copy {stacks_dir() / folder.name} to {folder} there."
    raise UsageError(
        f"SGLang {stack.sglang}'s sources are not on node {node.node.name} (looked in {folder}).", remedy
    )


def how_to_get(node: NodeConnection, stack: Stack) -> str:
    """What puts this stack's FlashInfer in its folder."""
    if node.node.kind == "local":
        return f"Run: workbook stack create {stack.name} --flashinfer {stack.flashinfer}"
    target, wanted = str(flashinfer_dir(node, stack)), f"flashinfer-python=={stack.flashinfer}"
    return f"Run there: {shlex.join([node.python, '-m', 'pip', 'install', '--no-deps', '--target', target, wanted])}"


def stack_dir(node: NodeConnection, stack: Stack) -> Path:
    """The folder on the node of this stack's own environment."""
    return node.stacks / stack.name


def stack_python(node: NodeConnection, stack: Stack) -> str:
    """The Python that has this stack: the node's own where that is the stack, else that of the stack's environment.

    Raises:
        UsageError: the stack was not created, or not to its end.
    """
    if stack.name == node.node.stack:
        return node.python
    folder = stack_dir(node, stack)
    if not node.exists(folder / READY):
        if node.node.kind == "local":
            raise UsageError(
                f"Stack {stack.name} is not set up here (looked in {folder}).",
                f"Run: workbook stack create {stack.name}",
            )
        raise UsageError(
            f"Stack {stack.name} is not on node {node.node.name} (looked in {folder}).",
            f"If its own Python has it, say `stack: {stack.name}` in data/nodes/{node.node.name}.yaml; else make a "
            f"virtual environment there, install locks/{stack.name}.txt and create the empty file {READY} in it.",
        )
    return str(folder / "bin" / "python")


def check_flashinfer(node: NodeConnection, stack: Stack, *, folder_only: bool = False) -> None:
    """Nothing, if this stack's FlashInfer has a folder, or its Python has a FlashInfer of its own.

    Args:
        folder_only: a version that was swapped in has to have a folder.

    Raises:
        UsageError: there is none, or the stack was not created.
    """
    python = stack_python(node, stack)
    if node.exists(flashinfer_dir(node, stack)):
        return
    if not folder_only:
        asked = node.run([python, "-P", "-c", _HAS_FLASHINFER], timeout_s=60, env=overlay_env(node, stack))
        if asked.returncode == 0:
            return
    raise _no_flashinfer(node, stack)


def _no_flashinfer(node: NodeConnection, stack: Stack) -> UsageError:
    return UsageError(
        f"FlashInfer {stack.flashinfer} is not on node {node.node.name} "
        f"(looked in {flashinfer_dir(node, stack)}).",
        how_to_get(node, stack),
    )


def overlay_env(node: NodeConnection, stack: Stack | None = None, patch_level: int = 0) -> dict[str, str]:
    """The environment that puts the overlay, and the stack's FlashInfer if it has a folder, on PYTHONPATH."""
    folders = [str(node.overlay)]
    if stack is not None and node.exists(flashinfer_dir(node, stack)):
        folders.append(str(flashinfer_dir(node, stack)))
    if node.pythonpath:
        folders += [one for one in node.pythonpath.split(os.pathsep) if one not in folders]
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
    spec: Mapping[str, Any] | None = None,
    python: str | None = None,
) -> Any:
    """The JSON that a probe printed.

    Args:
        script: file name under probes/.
        args: its arguments, given as they are.
        timeout_s: seconds after which it is stopped.
        raw: where its standard output (`.json`) and error (`.log`) are kept; the suffix is added.
        on_stderr: called with each line of its standard error as it is written.
        spec: put in a file whose path is its first argument, where it is too long for an argument.
        python: what runs it, where it is not the stack's own.

    Raises:
        UsageError: the stack or its FlashInfer is missing, or its torch is too old.
        PatchRefusedError: a patch refused the installed code.
        WorkbookError: it failed, ran out of time or printed no JSON.
    """
    python = python or stack_python(node, stack)
    with node.scratch() as scratch:
        if spec is not None:
            args = [_put_spec(node, scratch, spec), *args]
        # FlashInfer makes its cache folder when imported; a probe leaves none behind.
        environment = {
            **overlay_env(node, stack, patch_level),
            "FLASHINFER_WORKSPACE_BASE": str(scratch),
            "SGLANG_CACHE_DIR": str(scratch),
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
    answer = done.stdout.strip().rpartition("\n")[2].replace(str(scratch), "SCRATCH")
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


def _put_spec(node: NodeConnection, scratch: Path, spec: Mapping[str, Any]) -> str:
    there = scratch / "spec.json"
    with tempfile.TemporaryDirectory() as here:
        file = Path(here) / there.name
        file.write_text(json.dumps(spec))
        node.put(file, there)
    return str(there)


def _failure(done: Completed, node: NodeConnection, stack: Stack, script: str) -> WorkbookError:
    if done.returncode - 128 in signal.valid_signals():  # what it wrote last has nothing to do with it
        name = signal.Signals(done.returncode - 128).name
        return WorkbookError(f"{script} on {node.node.name} was ended by {name}.")
    said = (line for line in reversed(done.stderr.splitlines()) if line.strip() and not line.startswith(PART))
    last = next(said, "it said nothing")
    if "No module named 'flashinfer'" in last:
        return _no_flashinfer(node, stack)
    if "No module named 'torch'" in last:
        name_it = f"Name the Python that has it in data/nodes/{node.node.name}.yaml."
        remedy = "Run `make setup`." if node.node.kind == "local" else name_it
        return UsageError(f"torch is not in {done.argv[0]} on node {node.node.name}.", remedy)
    for refusal, kind in (("PatchRefused: ", PatchRefusedError), ("TorchTooOld: ", UsageError)):
        if refusal in last:
            return kind(last.partition(refusal)[2])
    return WorkbookError(
        f"{script} failed on {node.node.name} (exit status {done.returncode}): {last.strip()}"
    )
