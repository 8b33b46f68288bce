"""The protocol of a node. Whatever touches torch, sglang or flashinfer runs behind it, as a process of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A started command. It ends with its asker: nothing is left running when this process dies."""

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
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, grace_s: float = 10.0
    ) -> Process:
        """Start it with standard output and error going to `log`."""
        ...

    def put(self, local: Path, remote: Path) -> None:
        """Copy a file or a folder to the node."""
        ...

    def get(self, remote: Path, local: Path) -> None:
        """Copy a file or a folder from the node."""
        ...
