"""A matrix on disk: a run of the campaign `matrix`, kept cell by cell, so that an interrupted one goes on."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from workbook import catalog, store
from workbook.boundary.matrix import Group, key, plan, trace_group, without
from workbook.errors import UsageError, WorkbookError
from workbook.node import snapshot
from workbook.node.base import NodeConnection
from workbook.paths import runs_dir
from workbook.types import MatrixCell, MatrixRequest, Stack, Status

_REQUEST = "request.json"
_CELLS = "cells.jsonl"


def begin(node: NodeConnection, request: MatrixRequest) -> store.Run:
    """A new matrix; nothing is traced yet.

    Raises:
        UsageError: the request names what is not there.
    """
    _plan(node, request)
    label = "-".join(dict.fromkeys(request.stacks))[:40]
    run = store.create(store.MATRIX, store.MATRIX, label, request.model_dump(mode="json"))
    kept = {"request": run.params, "label": label, "started": run.started.isoformat()}
    store.write_text(run.raw / _REQUEST, json.dumps(kept, indent=1))
    return run


def reopen(name: str = "") -> tuple[store.Run, MatrixRequest]:
    """An interrupted matrix, by the name of its folder; the newest by default.

    Raises:
        UsageError: there is none.
        WorkbookError: what it was asked for is damaged.
    """
    partials = [one.removesuffix(store.PARTIAL) for one in store.partials(store.MATRIX)]
    wanted = name.removesuffix(store.PARTIAL) or (partials[-1] if partials else "")
    if wanted not in partials:
        there = f"interrupted: {', '.join(partials)}." if partials else "none was interrupted."
        raise UsageError(f"No interrupted matrix {name!r};" if name else "Nothing to resume;", there)
    path = runs_dir() / store.MATRIX / f"{wanted}{store.PARTIAL}"
    try:
        kept = json.loads((path / "raw" / _REQUEST).read_text())
        request = MatrixRequest.model_validate(kept["request"])
        started, label = datetime.fromisoformat(kept["started"]), str(kept["label"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkbookError(
            f"{path / 'raw' / _REQUEST} is missing or damaged.", "Begin a new matrix."
        ) from error
    params = request.model_dump(mode="json")
    return store.Run(wanted, store.MATRIX, store.MATRIX, label, params, started, path), request


def fill(
    node: NodeConnection,
    run: store.Run,
    request: MatrixRequest,
    on_cell: Callable[[MatrixCell, int, int], None] = lambda cell, done, total: None,
) -> store.SealedRun:
    """Trace every cell that is missing, keeping each as it ends, then seal the run.

    Args:
        on_cell: called with a cell, how many are done and how many there are.

    Raises:
        WorkbookError: a probe failed, or the disk is full; what was kept stays, and `reopen` goes on from there.
    """
    groups = _plan(node, request)
    total = sum(len(group.cells) for group in groups)
    cells = kept_cells(run.raw / _CELLS)

    def keep(cell: MatrixCell) -> None:
        cells.append(cell)
        _append(run.raw / _CELLS, cell)
        on_cell(cell, len(cells), total)

    for group in without(groups, cells):
        trace_group(node, group, request.arch, keep)
    return _seal(node, run, request, groups, cells)


def kept_cells(path: Path) -> list[MatrixCell]:
    """The cells that were kept; a last line that was cut off by a kill or a full disk is left out.

    Raises:
        WorkbookError: another line is damaged.
    """
    lines = path.read_text().split("\n") if path.exists() else [""]
    try:
        whole = [MatrixCell.model_validate_json(line) for line in lines[:-1]]
    except ValidationError as error:
        raise WorkbookError(f"{path} is damaged.", "Delete its folder and begin a new matrix.") from error
    if lines[-1]:
        store.write_text(path, "".join(f"{line}\n" for line in lines[:-1]))
    return whole


def _plan(node: NodeConnection, request: MatrixRequest) -> list[Group]:
    return plan(node, [catalog.load(Stack, name) for name in request.stacks], request)


def _append(path: Path, cell: MatrixCell) -> None:
    try:
        with path.open("a") as out:
            out.write(cell.model_dump_json() + "\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise WorkbookError(
            f"Cannot write {path}: {error.strerror}.", "Make room, then: workbook matrix --resume"
        ) from error


def _seal(
    node: NodeConnection,
    run: store.Run,
    request: MatrixRequest,
    groups: Sequence[Group],
    cells: Sequence[MatrixCell],
) -> store.SealedRun:
    order = {
        (group.stack.name, group.stack.flashinfer, path, group.patch_level, state): number
        for number, (group, path, state) in enumerate(
            (group, path, state) for group in groups for path, state in group.cells
        )
    }
    in_order = sorted(cells, key=lambda cell: order[key(cell)])
    run.add_table("cells", in_order)
    counts = Counter(cell.status for cell in cells)
    verdict = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    env = snapshot.take(node, catalog.load(Stack, request.stacks[0]))
    return run.seal(Status.OK, env, verdict=f"{len(cells)} cells: {verdict}.")
