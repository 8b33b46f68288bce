"""Outcomes over versions: stacks x FlashInfer versions x entry points x levels x process states."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch, entry
from workbook.boundary.levels import level
from workbook.errors import PatchRefusedError
from workbook.node.base import NodeConnection
from workbook.node.probe import PART, check_flashinfer, run_probe
from workbook.types import MatrixCell, MatrixRequest, ProcessState, Stack, Status

GROUP_TIMEOUT_S = 3600
MESSAGE_LIMIT = 400  # characters
Key = tuple[str, str, str, int, ProcessState]
T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Cells of one process that imports once: one stack with one FlashInfer, at one level."""

    stack: Stack
    patch_level: int
    cells: tuple[tuple[str, ProcessState], ...]


def key(cell: MatrixCell) -> Key:
    """What tells one cell from another."""
    return cell.stack, cell.flashinfer, cell.entry, cell.patch_level, cell.process_state


def plan(node: NodeConnection, stacks: Sequence[Stack], request: MatrixRequest) -> list[Group]:
    """The cells, each once, grouped by the process that they share, in the order of the request.

    Args:
        stacks: the request's stacks, each with its own FlashInfer.

    Raises:
        UsageError: an unknown entry, level or architecture, or a stack or FlashInfer that is not set up.
    """
    check_arch(request.arch)
    cells = _once((entry(path).path, state) for path in request.entries for state in request.process_states)
    levels = _once(level(number).level for number in request.levels)
    swapped = _once(
        (stack, version) for stack in stacks for version in request.flashinfer or (stack.flashinfer,)
    )
    groups = [
        Group(stack.model_copy(update={"flashinfer": version}), number, cells)
        for stack, version in swapped
        for number in levels
    ]
    for stack in _once(group.stack for group in groups):
        check_flashinfer(node, stack, folder_only=bool(request.flashinfer))
    return groups


def keys(group: Group) -> list[Key]:
    """The keys of a group's cells."""
    name, version = group.stack.name, group.stack.flashinfer
    return [(name, version, path, group.patch_level, state) for path, state in group.cells]


def _once(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def without(groups: Sequence[Group], done: Sequence[MatrixCell]) -> list[Group]:
    """The groups with the cells that are not done yet; none of them empty."""
    found = {key(cell) for cell in done}
    left = [
        replace(
            group,
            cells=tuple(cell for cell, one in zip(group.cells, keys(group), strict=True) if one not in found),
        )
        for group in groups
    ]
    return [group for group in left if group.cells]


def trace_group(node: NodeConnection, group: Group, arch: str, on_cell: Callable[[MatrixCell], None]) -> None:
    """Trace a group's cells, as many at once as the node has cores; `on_cell` gets each as it ends.

    Where a patch refuses the installed FlashInfer, that is what each cell says.

    Raises:
        UsageError: the stack's torch is too old.
        WorkbookError: the probe failed.
    """

    def line(text: str) -> None:
        if text.startswith(PART):
            on_cell(_cell(group, arch, json.loads(text.removeprefix(PART))))

    asked = {"arch": arch, "cells": group.cells}
    env = {"WORKBOOK_STAND_IN_KERNELS": "1"}
    try:
        run_probe(
            node,
            group.stack,
            "matrix.py",
            [json.dumps(asked)],
            timeout_s=GROUP_TIMEOUT_S,
            patch_level=group.patch_level,
            env=env,
            on_stderr=line,
        )
    except PatchRefusedError as refusal:
        for path, state in group.cells:
            on_cell(_ended(group, arch, path, state, Status.NOT_SUPPORTED_HERE, str(refusal)))


def _cell(group: Group, arch: str, answer: dict[str, Any]) -> MatrixCell:
    path, state = answer["entry"], ProcessState(answer["process_state"])
    if answer["ended"]:
        return _ended(group, arch, path, state, Status(answer["ended"]), answer["message"])
    told = diagnosis.fields(answer["error"])
    return MatrixCell(
        stack=group.stack.name,
        torch=answer["versions"]["torch"],
        python=answer["versions"]["python"],
        flashinfer=group.stack.flashinfer,
        entry=path,
        arch=arch,
        patch_level=group.patch_level,
        process_state=state,
        status=told["status"],
        break_id=told["break_id"],
        operation=told["operation"],
        blamed=diagnosis.located(told["frames"], path) if answer["error"] else None,
        message="" if told["operation"] else told["message"][:MESSAGE_LIMIT],
        seconds=answer["seconds"],
    )


def _ended(
    group: Group, arch: str, path: str, state: ProcessState, status: Status, message: str
) -> MatrixCell:
    return MatrixCell(
        stack=group.stack.name,
        torch=group.stack.torch,
        python="",
        flashinfer=group.stack.flashinfer,
        entry=path,
        arch=arch,
        patch_level=group.patch_level,
        process_state=state,
        status=status,
        message=message[:MESSAGE_LIMIT],
        seconds=0.0,
    )
