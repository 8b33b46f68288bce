"""The protocol of a node. Whatever touches torch, sglang or flashinfer runs behind it, as a process of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workbook.types import Node


@dataclass(frozen=True)
class Completed:
    """An ended command: its exit status (128 + N for signal N), its output, and whether time ran out."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


class Process(Protocol):
    """A started command. It ends with its asker: nothing is left running when this process dies.

    Where the connection to its node was lost, `poll`, `wait` and `follow` raise WorkbookError, and `stop` gives 255.
    """

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit status (128 + N for signal N), or None while it runs."""
        ...

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None when it still runs after `timeout_s` seconds."""
        ...

    def stop(self) -> int:
        """End it with all its descendants, and return its exit status once none of them is left."""
        ...

    def follow(self) -> Iterator[str]:
        """The lines of its log as they are written, until it ends."""
        ...


class NodeConnection(Protocol):
    """How the workbook reaches a node. An argv is never given to a shell."""

    node: Node

    @property
    def python(self) -> str:
        """The Python that has the node's torch and sglang."""
        ...

    @property
    def probes(self) -> Path:
        """The folder of the probes, on the node."""
        ...

    @property
    def overlay(self) -> Path:
        """The folder of the overlay, on the node."""
        ...

    @property
    def stacks(self) -> Path:
        """Where the node keeps stacks, FlashInfer folders, tiny models and caches."""
        ...

    def place(self, local: Path) -> Path:
        """Where a file of this machine has its counterpart on the node; the same path on a local one."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether the node has such a file or folder."""
        ...

    def free_port(self) -> int:
        """A TCP port of the node's loopback interface that nothing listens on at the moment."""
        ...

    def reach(self, port: int) -> AbstractContextManager[str]:
        """A URL by which this machine reaches a port of the node's loopback interface, inside the block."""
        ...

    @property
    def pythonpath(self) -> str:
        """The PYTHONPATH that what runs on the node has of its own; empty where it has none."""
        ...

    def scratch(self) -> AbstractContextManager[Path]:
        """A private folder on the node, which is gone after the block."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run to the end, or stop it (whole group) after `timeout_s` seconds.

        Args:
            on_stderr: called with each line of standard error as it is written.
        """
        ...

    def start(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        grace_s: float = 10.0,
        stamped: bool = False,
    ) -> Process:
        """Start it with standard output and error going to `log`, a file of this machine.

        Args:
            grace_s: seconds between SIGTERM and SIGKILL when it is stopped.
            stamped: every line, also one that ends in a carriage return, begins with its UTC time of arrival on the
                node: `2026-11-30T16:40:01.123Z `.
        """
        ...

    def put(self, local: Path, remote: Path) -> None:
        """Copy a file or a folder to the node. What links lead to is copied."""
        ...

    def get(self, remote: Path, local: Path) -> None:
        """Copy a file or a folder from the node."""
        ...
