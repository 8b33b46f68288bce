"""The YAML descriptions under data/: nodes, launch profiles, stacks."""

from typing import TypeVar

import yaml
from pydantic import ValidationError

from workbook.errors import UsageError, nearest
from workbook.paths import DATA
from workbook.types import LaunchProfile, Node, Record, Stack

R = TypeVar("R", bound=Record)

FOLDERS: dict[type[Record], str] = {Node: "nodes", LaunchProfile: "profiles", Stack: "stacks"}


def names(kind: type[Record]) -> list[str]:
    """What data/ has of this kind, by name."""
    return sorted(path.stem for path in (DATA / FOLDERS[kind]).glob("*.yaml"))


def load(kind: type[R], name: str) -> R:
    """Read one description.

    Raises:
        UsageError: no such name (the nearest is offered), no YAML, or a field that is wrong.
    """
    folder = FOLDERS[kind]
    known = names(kind)
    if name not in known:
        hint = nearest(name, known, f"known: {', '.join(known)}.")
        raise UsageError(f"No {folder.removesuffix('s')} named {name!r} in data/{folder};", hint)
    path = DATA / folder / f"{name}.yaml"
    try:
        return kind.model_validate(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: {field}: {first['msg']}.", "Mend that line and run again.") from error
