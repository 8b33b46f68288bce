"""The rules by which a stack becomes an offline bundle: data/wheelhouse."""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from workbook.types.base import Record

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]  # a package's normal form


class FileRule(Record):
    """What becomes of some files of one wheel.

    Args:
        wheel: the package.
        drop: patterns of files that are left out.
        strip: patterns of libraries whose debug symbols are left out.
        arch: GPU architectures for which it holds; all of them where left out.
        reason: why the node does without them.
        env: what must then stand in the environment of the server.
    """

    wheel: Name
    drop: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    reason: str
    env: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not (self.drop or self.strip):
            raise ValueError("a rule drops or strips something")
        return self


class WheelhouseRules(Record):
    """What a node without a network needs of one stack.

    Args:
        roots: the packages that are asked for; what these require, and so on, comes along.
        undeclared: what they import without requiring it.
        left_out: package -> why the import chain of server and benchmark does without it.
        left_out_on: GPU architecture that the bundle can be reduced to -> the same for nodes of that one.
        files: what of the wheels is left out.
        env: what must stand in the environment on a node without a network.
        disk_gb: disk that wheels and bundle take while it is made, at most.
        disk_reduced_gb: the same where it is reduced to an architecture and the node has torch.
    """

    name: str
    roots: tuple[Name, ...]
    undeclared: tuple[Name, ...] = ()
    left_out: dict[Name, str]
    left_out_on: dict[str, dict[Name, str]]
    files: tuple[FileRule, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    disk_gb: float = Field(gt=0)
    disk_reduced_gb: float = Field(gt=0)
