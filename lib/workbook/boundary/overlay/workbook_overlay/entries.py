"""The entry table: which calls can be traced, and how each is called.

`entries.json` holds the rows. A row has
`path`, `modules` (the one that defines it goes by FlashInfer's version), `meaning`, `archs` on which its kernel exists,
`args` and `kwargs` of an example call; where the signature does not tell, `types` and `returns` in the words of an
operator's schema; `planned` for a method: what its object plans;
`mutates`, `out` and `random` for what a call does to its arguments and to the generator.
"""

import functools
import json
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def rows() -> list[dict]:
    """Every entry point of the table."""
    return json.loads((_HERE / "entries.json").read_text())


def row(path: str) -> dict | None:
    """The row of a dotted path."""
    return next((one for one in rows() if one["path"] == path), None)


def function_name(row: dict) -> str:
    """The function's name in its module: the last part of its path, with the class before it for a method."""
    owner, _, name = row["path"].rpartition(".")
    return f"{owner.rpartition('.')[2]}.{name}" if "planned" in row else name


def functions_by_module() -> dict[str, tuple[str, ...]]:
    """The functions of the table that a module may define."""
    modules = {module for row in rows() for module in row["modules"]}
    return {
        module: tuple(function_name(row) for row in rows() if module in row["modules"])
        for module in sorted(modules)
    }
