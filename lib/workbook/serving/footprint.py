"""What a server takes of its node, before its start and after its stop: the proof that nothing is left."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass

from workbook.errors import WorkbookError
from workbook.node.base import NodeConnection

TAG = "WORKBOOK_SERVER"  # in the environment of all processes of one server
SETTLE_S = 10.0  # the driver gives memory back a moment after a process has ended
POLL_S = 0.5
TOLERANCE_GB = 0.2  # less than the context of any process on a GPU


@dataclass(frozen=True)
class Footprint:
    """One look at the node. `gpu_gb` is the memory in use by GPU (GB of 10^9 bytes), empty without a GPU."""

    port_free: bool
    processes: tuple[str, ...]
    gpu_gb: dict[int, float]


def take(node: NodeConnection, port: int, tag: str) -> Footprint:
    """Look at a port, the processes with a tag, and the GPUs.

    Raises:
        WorkbookError: the node did not answer.
    """
    script = str(node.probes / "footprint.py")
    done = node.run([node.python, "-I", "-S", script, str(port), f"{TAG}={tag}"], timeout_s=60)
    try:
        found = json.loads(done.stdout)
        return Footprint(
            found["port_free"],
            tuple(found["processes"]),
            {int(index): mib * 1.048576e-3 for index, mib in found["gpu_mib"].items()},
        )
    except (ValueError, KeyError) as error:
        said = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise WorkbookError(f"Node {node.node.name} does not tell its ports and GPUs: {said}.") from error


def left_behind(
    node: NodeConnection, port: int, tag: str, before: Footprint, gpus: Iterable[int]
) -> tuple[str, ...]:
    """What of a stopped server is still there, a phrase each; empty when nothing is.

    Args:
        before: the look before its start; a port that was not free then does not count.
        gpus: those that it ran on; they have a few seconds to give their memory back.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            now = take(node, port, tag)
        except WorkbookError as error:
            return (f"it could not be found out what: {error}",)
        left = [f"process {one}" for one in now.processes]
        left += [f"port {port} is in use"] if before.port_free and not now.port_free else []
        more = {gpu: now.gpu_gb.get(gpu, 0.0) - before.gpu_gb.get(gpu, 0.0) for gpu in gpus}
        held = [
            f"GPU {gpu} has {gb:.1f} GB more in use than before, by this or another process"
            for gpu, gb in more.items()
            if gb > TOLERANCE_GB
        ]
        if not held or time.monotonic() > deadline:
            return (*left, *held)
        time.sleep(POLL_S)
