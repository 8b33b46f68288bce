"""What the command line of each SGLang takes, from a record that was made by asking the parsers themselves."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from workbook.errors import UsageError, nearest
from workbook.types import Record

RECORD = Path(__file__).with_name("sglang_options.json")


class Option(Record):
    """One option of one version's parser.

    Args:
        sets: the name under which the parser keeps the value; options that set the same are aliases.
        kind: what a value must be.
        fewest: number of values at least.
        most: number of values at most, None for no limit; 0 for a switch.
        choices: the values that it takes; empty where it takes any.
    """

    sets: str
    kind: Literal["text", "int", "float"] = "text"
    fewest: int = 1
    most: int | None = 1
    choices: tuple[str, ...] = ()


def raw() -> dict[str, dict[str, Any]]:
    """The record, oldest version first: for each version its options by flag, as JSON has them."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    del record["about"]
    versions, options = {}, dict[str, Any]()
    for version, changes in record.items():
        options = {flag: told for flag, told in (options | changes).items() if told is not None}
        versions[version] = options
    return versions


@cache
def recorded() -> Mapping[Version, Mapping[str, Option]]:
    """For each version on record, oldest first, its options by flag."""
    return {
        Version(version): {flag: Option(**told) for flag, told in options.items()}
        for version, options in raw().items()
    }


def known_version(text: str) -> Version:
    """The version, if its command line is on record; what follows a plus sign names a build and does not count.

    Raises:
        UsageError: it is not a version, or not one on record.
    """
    try:
        version = Version(Version(text).public)
    except InvalidVersion:
        raise UsageError(f"{text!r} is not an SGLang version;", "write it as 0.5.12.") from None
    known = list(recorded())
    if version not in known:
        raise UsageError(
            f"The launch flags of SGLang {text} are not known (on record: {known[0]} to {known[-1]}).",
            f"Use a stack with one of those, or enter it: python -m tests.sglang_wheels {version}.",
        )
    return version


def in_full(version: Version, flag: str) -> str:
    """The option that this parser takes a shortened one for (`--tp` for `--tp-size`), else the flag as it is."""
    options = recorded()[version]
    meant = [one for one in options if one.startswith(flag)]
    return meant[0] if flag not in options and len({options[one].sets for one in meant}) == 1 else flag


def misfit(version: Version, flag: str, values: Sequence[str]) -> str:
    """Why this SGLang would not take it, with the nearest that it would; empty where it does take it."""
    options = recorded()[version]
    option = options.get(flag)
    if option is None:
        return f"SGLang {version} has no {flag}; {nearest(flag, options, 'leave it out.')}"
    if option.most == 0 and values:
        return f"{flag} is a switch and takes no value, so not {values[0]!r}."
    if len(values) < option.fewest:
        return f"{flag} needs a value."
    if option.most is not None and len(values) > option.most:
        return f"{flag} takes {option.most} value, not {len(values)} ({' '.join(values)})."
    for value in values:
        if option.choices and value not in option.choices:
            otherwise = f"it takes {', '.join(option.choices)}."
            return (
                f"SGLang {version} does not take {flag} {value}; {nearest(value, option.choices, otherwise)}"
            )
        if not _is(option.kind, value):
            return f"{flag} takes {'a whole number' if option.kind == 'int' else 'a number'}, not {value!r}."
    return ""


def _is(kind: str, value: str) -> bool:
    try:
        {"text": str, "int": int, "float": float}[kind](value)
    except ValueError:
        return False
    return True
