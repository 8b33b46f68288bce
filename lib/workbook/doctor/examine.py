"""From a node to its verdicts: the facts in two probes, the clock by a round trip, then every check."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from workbook.doctor import gpus, machine, server, toolkit, versions
from workbook.doctor.check import Asked
from workbook.doctor.facts import Clock, NodeFacts
from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.node.probe import flashinfer_dir, how_to_get, stack_python
from workbook.report.text import one_line
from workbook.types import DoctorCheck, LaunchProfile, Stack

LIMIT_S = 60.0
ROUND_TRIPS = 3
SHOWN_CHARS = 200
TELL_TIME = "import time; print(time.time())"


def examine(
    node: NodeConnection, stack: Stack, profile: LaunchProfile | None = None
) -> tuple[DoctorCheck, ...]:
    """Check all that a run needs of a node. Nothing on it is changed.

    Args:
        stack: the versions that it should have.
        profile: a server that is to run there.

    Raises:
        UsageError: the stack was not created, or its Python does not start.
        WorkbookError: a probe failed, or said what cannot be read.
    """
    facts = gather(node, stack, profile)
    locked = versions.read_lock(stack, facts.python)
    return judge(facts, Asked(node.node, stack, locked, how_to_get(node, stack), profile))


def judge(facts: NodeFacts, asked: Asked) -> tuple[DoctorCheck, ...]:
    """Every check, in the order in which they are shown; a pure function of the facts."""
    return (
        *(check(facts, asked) for check in (*gpus.CHECKS, *toolkit.CHECKS, *versions.CHECKS)),
        *(machine.folder(one, asked) for one in facts.folders),
        *(check(facts, asked) for check in machine.CHECKS),
        *(server.checks(facts, asked, asked.profile) if asked.profile else ()),
    )


def gather(node: NodeConnection, stack: Stack, profile: LaunchProfile | None) -> NodeFacts:
    """Ask the node."""
    python = stack_python(node, stack)
    clock = compare_clocks(node, python)
    args = [str(node.stacks), f"--flashinfer={flashinfer_dir(node, stack)}"]
    if profile is not None and profile.model.partition(":")[0] != "tiny":
        args.append(f"--model={profile.model}")
    env = profile.env if profile else {}
    said = _ask(node, python, "doctor_gpus.py", [], env) | _ask(node, python, "doctor.py", args, env)
    try:
        return NodeFacts.model_validate({**said, "clock": clock})
    except ValidationError as error:
        first = error.errors()[0]
        field = one_line(".".join(map(str, first["loc"])), SHOWN_CHARS)
        raise WorkbookError(
            f"Node {node.node.name} says of {field} what cannot be: {first['msg']}."
        ) from error


def compare_clocks(node: NodeConnection, python: str) -> Clock:
    """How far the node's clock is ahead of this machine's, by the quickest of a few round trips.

    The node read its clock somewhere between asking and answer, so half of the round trip is the uncertainty.

    Raises:
        UsageError: that Python does not start.
        WorkbookError: it says something else than the time.
    """
    found = []
    for _ in range(ROUND_TRIPS):
        asked = time.time()
        done = node.run([python, "-I", "-S", "-c", TELL_TIME], timeout_s=LIMIT_S)
        answered = time.time()
        if done.returncode != 0:
            last = one_line(done.stderr.strip().rpartition("\n")[2], SHOWN_CHARS)
            raise UsageError(
                f"The Python {python} of node {node.node.name} does not start: {last or done.returncode}.",
                f"Name another at python: or venv: in data/nodes/{node.node.name}.yaml.",
            )
        try:
            there = float(done.stdout.strip().rpartition("\n")[2])
            unsure = max(answered - asked, 0.0) / 2
            found.append(Clock(ahead_s=there - asked - unsure, uncertainty_s=unsure))
        except ValueError as error:  # also pydantic's, of what is no finite number
            raise WorkbookError(f"The Python {python} of node {node.node.name} told no time.") from error
    return min(found, key=lambda clock: clock.uncertainty_s)


def _ask(
    node: NodeConnection, python: str, script: str, args: Sequence[str], env: Mapping[str, str]
) -> dict[str, Any]:
    """What one of the probes says. Its environment is the server's, since that is what is asked about."""
    done = node.run([python, "-P", str(node.probes / script), *args], timeout_s=LIMIT_S, env=env)
    if done.timed_out:
        raise WorkbookError(f"{script} ran longer than {LIMIT_S:.0f} s on {node.node.name} and was stopped.")
    last = one_line(done.stderr.strip().rpartition("\n")[2], SHOWN_CHARS)
    if done.returncode != 0:
        raise WorkbookError(f"{script} failed on {node.node.name} (exit status {done.returncode}): {last}")
    try:
        said = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError as error:
        raise WorkbookError(f"{script} on {node.node.name} printed no JSON.") from error
    if not isinstance(said, dict):
        raise WorkbookError(f"{script} on {node.node.name} printed no JSON object.")
    return said
