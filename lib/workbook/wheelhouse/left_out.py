"""LEFT_OUT.md: what a bundle lacks of its stack, and why."""

from collections.abc import Iterable

from workbook.types import Stack
from workbook.wheelhouse.pins import Pins
from workbook.wheelhouse.reduce import Reduction
from workbook.wheelhouse.resolve import Selection

MB = 1e6


def report(stack: Stack, lock: Pins, selection: Selection, reductions: Iterable[Reduction]) -> str:
    """The text of that file."""
    decided = {**selection.wheels, **selection.on_node, **selection.left_out}
    unreached = sorted(set(lock) - set(decided))
    lines = [
        f"# What this bundle leaves out of stack {stack.name}",
        "",
        f"{len(selection.wheels)} packages are in it.",
        "",
        "## Packages that server and benchmark do without",
        "",
        "| package | required by | why it is left out |",
        "| --- | --- | --- |",
        *(
            f"| {_pinned(name, lock)} | {_by(selection, name)} | {selection.left_out[name]} |"
            for name in sorted(selection.left_out)
        ),
        "",
        "## Packages that the node has in a version that will do",
        "",
        "| package | on the node | pinned | required by |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {version} | {lock.get(name, 'not at all')} | {_by(selection, name)} |"
            for name, version in sorted(selection.on_node.items())
        ),
        "",
        "## Files of wheels that are in it",
        "",
        "A wheel's RECORD names what is left, so pip takes it for a whole one.",
        "",
        "| package | dropped | stripped | files | MB before | MB after | why |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {_pinned(one.rule.wheel, lock)} | {_code(one.rule.drop)} | {_code(one.rule.strip)} | {one.files} "
            f"| {one.before / MB:.2f} | {one.after / MB:.2f} | {one.rule.reason} |"
            for one in reductions
        ),
        "",
        "## Packages of the lock that nothing in it requires",
        "",
        ", ".join(_pinned(name, lock) for name in unreached) or "None.",
        "",
    ]
    return "\n".join(lines)


def _pinned(name: str, lock: Pins) -> str:
    return f"{name} {lock[name]}" if name in lock else name


def _code(patterns: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in patterns)


def _by(selection: Selection, name: str) -> str:
    return ", ".join(sorted(selection.by[name]))
