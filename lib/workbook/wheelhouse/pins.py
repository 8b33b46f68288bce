"""Versions as files name them: a stack's lock, and a `pip freeze` of the node."""

from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbook.errors import UsageError

Pins = dict[str, Version]


def read_lock(path: Path, environment: Mapping[str, str]) -> Pins:
    """The versions that a lock pins for this environment, by normal name.

    Args:
        environment: values of the markers of a requirement, such as `python_version`.

    Raises:
        UsageError: there is no such file, or a line pins nothing.
    """
    pins: Pins = {}
    for number, line in _lines(path):
        requirement = _requirement(path, number, line)
        version = _pinned(requirement)
        if version is None:
            raise UsageError(f"{path}, line {number}: {line!r} pins no version;", "write NAME==VERSION.")
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            pins[canonicalize_name(requirement.name)] = version
    return pins


def read_freeze(path: Path) -> Pins:
    """What a node has, by normal name, from the output of its `pip freeze`.

    What names no version (a package from a folder, or from an address) does not count as there.

    Raises:
        UsageError: there is no such file, or a line is none that pip writes.
    """
    pins: Pins = {}
    for number, line in _lines(path):
        if line.startswith("-"):  # an editable package
            continue
        requirement = _requirement(path, number, line)
        if version := _pinned(requirement):
            pins[canonicalize_name(requirement.name)] = version
    return pins


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.",
            "It is what `python3 -m pip freeze` printed on the node.",
        ) from error
    stripped = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _requirement(path: Path, number: int, line: str) -> Requirement:
    try:
        return Requirement(line)
    except InvalidRequirement:
        raise UsageError(
            f"{path}, line {number}: {line!r} is not a line of `pip freeze`;", "write NAME==VERSION."
        ) from None


def _pinned(requirement: Requirement) -> Version | None:
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "==="):
        return None
    try:
        return Version(specifiers[0].version)
    except InvalidVersion:  # ==1.2.*
        return None
