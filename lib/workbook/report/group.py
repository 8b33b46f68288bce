"""Several displayed things as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Displayed(Protocol):
    """What a notebook cell can show as HTML."""

    def _repr_html_(self) -> str: ...


@dataclass(frozen=True)
class Markup:
    """HTML made by the workbook, escaped where it was made."""

    html: str

    def __repr__(self) -> str:
        return "<HTML>"

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True)
class Group:
    """One below the other."""

    parts: Sequence[Displayed]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.parts))

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts)
