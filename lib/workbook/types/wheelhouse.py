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
        architectures: GPU architectures that the bundle can be reduced to.
        left_out: package -> why the import chain of server and benchmark does without it.
        files: what of the wheels is left out.
        env: what must stand in the environment on a node without a network.
        disk_gb: disk that wheels and bundle take while it is made for a node that has torch.
        disk_with_torch_gb: the same for a node that has nothing.
    """

    name: str
    roots: tuple[Name, ...]
    undeclared: tuple[Name, ...] = ()
    architectures: tuple[str, ...]
    left_out: dict[Name, str]
    files: tuple[FileRule, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    disk_gb: float = Field(gt=0)
    disk_with_torch_gb: float = Field(gt=0)
