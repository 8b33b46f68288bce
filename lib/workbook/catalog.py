"""The YAML descriptions under data/: nodes, launch profiles, stacks, model configurations."""

import json
import re
import reprlib
from typing import TypeVar, get_args

import yaml
from pydantic import ValidationError

from workbook.errors import UsageError, nearest
from workbook.paths import DATA
from workbook.types import LaunchProfile, ModelFamily, Node, Record, Stack
from workbook.types.wheelhouse import WheelhouseRules

R = TypeVar("R", bound=Record)

FOLDERS: dict[type[Record], str] = {
    Node: "nodes",
    LaunchProfile: "profiles",
    Stack: "stacks",
    ModelFamily: "models",
    WheelhouseRules: "wheelhouse",
}


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
        # by way of JSON, where `tp: "8"` and `tp: true` are no numbers, but a list is a tuple and a word an enum
        found = kind.model_validate_json(
            json.dumps(yaml.safe_load(path.read_text()), default=str), strict=True
        )
    except ValidationError as error:
        raise UsageError(f"{path}: {_sentence(kind, error)}") from None
    # ValueError: bytes that are no UTF-8, a date in month 13, a number of 5,000 digits, an alias of itself
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.", "Mend it.") from None
    if (said := getattr(found, "name", name)) != name:
        raise UsageError(f"{path}: name: {said!r} will not do;", f"it is the file's own, {name}.")
    return found


def _sentence(kind: type[Record], error: ValidationError) -> str:
    """The first problem in a description; a misspelt key before the one that is missing for it."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    keys = [str(part) for part in first["loc"] if part != "[key]"]
    where = ".".join(keys)
    message = re.sub(
        r"^(Input|String|Tuple|Dictionary|Object) ", "it ", first["msg"].removeprefix("Value error, ")
    )
    if first["type"] == "extra_forbidden":
        known = _fields(kind, keys[:-1])
        return f"{where} is no key; {nearest(keys[-1], known, 'known: ' + ', '.join(known) + '.')}"
    if first["type"] == "missing":
        return f"{where} is missing; add it."
    if not where:
        return f"{message}; mend it."
    quotes = ", in quotes" if first["type"] == "string_type" else ""
    return f"{where}: {reprlib.repr(first['input'])} will not do; {message}{quotes}."


def _fields(kind: type[Record], keys: list[str]) -> list[str]:
    """The keys of the description at this place, which may be one within another."""
    for key in keys:
        if key in kind.model_fields:
            inner = kind.model_fields[key].annotation
            kind = next((one for one in (inner, *get_args(inner)) if isinstance(one, type(Record))), kind)
    return list(kind.model_fields)
