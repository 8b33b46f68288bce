"""Which packages a bundle needs: a walk over what wheels require, pinned by the lock, less what the node has."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbook.errors import WorkbookError
from workbook.wheelhouse.pins import Pins


@dataclass
class Selection:
    """What was decided on each package that something in the bundle requires; `by` is who requires it."""

    wheels: dict[str, Path] = field(default_factory=dict)
    on_node: dict[str, Version] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    by: dict[str, set[str]] = field(default_factory=dict)


def select(
    roots: Iterable[Requirement],
    selection: Selection,
    *,
    lock: Pins,
    have: Pins,
    left_out: Mapping[str, str],
    environment: Mapping[str, str],
    fetch: Callable[[str, Version], Path],
    requires: Callable[[Path], list[Requirement]],
) -> dict[str, Path]:
    """Add to a selection what these requirements need.

    The node's own version of a package will do where each requirement in the bundle allows it.

    Args:
        selection: what was decided before; changed in place.
        lock: the version of each package.
        have: what the node has.
        left_out: package -> why the node does without it.
        environment: the node's values of the markers of a requirement.
        fetch: gives the wheel of a package and version.
        requires: what a wheel requires.

    Returns:
        Name -> wheel of what was added.

    Raises:
        WorkbookError: the lock does not name a package that is needed.
    """
    added: dict[str, Path] = {}
    todo = deque((one, "the bundle") for one in roots)
    seen: set[str] = set()
    while todo:
        requirement, by = todo.popleft()
        name = canonicalize_name(requirement.name)
        selection.by.setdefault(name, set()).add(by)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        if reason := left_out.get(name):
            selection.left_out[name] = reason
            continue
        if name not in selection.wheels:
            there = have.get(name)
            if there is not None and requirement.specifier.contains(there, prereleases=True):
                selection.on_node[name] = there
                continue
            if name not in lock:
                raise WorkbookError(f"{by} requires {name}, and the lock does not name it.")
            selection.on_node.pop(name, None)
            selection.wheels[name] = added[name] = fetch(name, lock[name])
        extras = requirement.extras or {""}
        for one in requires(selection.wheels[name]):
            if one.marker is None or any(one.marker.evaluate({**environment, "extra": e}) for e in extras):
                todo.append((one, name))
    return added
