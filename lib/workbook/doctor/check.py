"""What the checks share: what was asked, and how a verdict is written down."""

from collections.abc import Mapping
from dataclasses import dataclass

from workbook.types import DoctorCheck, LaunchProfile, Node, Stack

CONCURRENCY = 1024  # requests in flight, the largest point of the case


@dataclass(frozen=True)
class Asked:
    """What the node is checked for.

    Args:
        node: its description.
        stack: the versions that its Python should have.
        locked: package -> version of that stack's lock, names in their normal form.
        how_to_get: what puts the stack's FlashInfer in a folder of its own there.
        profile: the server that is to run there, if one was named.
    """

    node: Node
    stack: Stack
    locked: Mapping[str, str]
    how_to_get: str
    profile: LaunchProfile | None = None

    @property
    def needs_gpu(self) -> bool:
        """Whether the server that is to run there needs one."""
        return self.profile is not None and self.profile.device == "cuda"

    @property
    def concurrency(self) -> int:
        """The most requests that will be in flight."""
        return max(self.profile.concurrencies, default=1) if self.profile else CONCURRENCY

    @property
    def env_hint(self) -> str:
        """Where a variable is set for all that runs on the node."""
        return f"under env: in {self.description}"

    @property
    def description(self) -> str:
        """The file that describes the node."""
        return f"data/nodes/{self.node.name}.yaml"

    @property
    def install(self) -> str:
        """How the locked versions come to the node, or the node to the stack that it has."""
        own = f"name the stack that it has at stack: in {self.description}"
        if self.stack.name == "embedded":
            return f"Run make setup, or {own}."
        if self.node.kind == "local":
            return f"Run workbook stack create {self.stack.name}, or {own}."
        return f"Install locks/{self.stack.name}.txt into the node's Python, or {own}."


def ok(name: str, found: str, needed: str = "") -> DoctorCheck:
    return DoctorCheck(name=name, verdict="ok", found=found, needed=needed)


def warning(name: str, found: str, needed: str, remedy: str) -> DoctorCheck:
    return DoctorCheck(name=name, verdict="warning", found=found, needed=needed, remedy=remedy)


def failed(name: str, found: str, needed: str, remedy: str) -> DoctorCheck:
    return DoctorCheck(name=name, verdict="failed", found=found, needed=needed, remedy=remedy)


def not_applicable(name: str, why: str) -> DoctorCheck:
    return DoctorCheck(name=name, verdict="not applicable", found=why)
