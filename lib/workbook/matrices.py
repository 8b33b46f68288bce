"""A matrix on disk: a run of the campaign `matrix`, kept cell by cell, so that an interrupted one goes on."""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from workbook import catalog, store
from workbook.boundary.matrix import Group, key, keys, plan, trace_group, without
from workbook.errors import UsageError, WorkbookError
from workbook.exclusive import held
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


def reopen() -> tuple[store.Run, MatrixRequest]:
    """The newest interrupted matrix.

    Raises:
        UsageError: there is none.
        WorkbookError: what it was asked for is damaged.
    """
    folder = runs_dir() / store.MATRIX
    # One that was killed before it knew what it was asked for has nothing to go on with.
    begun = [one for one in store.partials(store.MATRIX) if (folder / one / "raw" / _REQUEST).exists()]
    if not begun:
        raise UsageError("Nothing to resume;", "no matrix was interrupted.")
    path = folder / begun[-1]
    try:
        kept = json.loads((path / "raw" / _REQUEST).read_text())
        request = MatrixRequest.model_validate(kept["request"])
        started, label = datetime.fromisoformat(kept["started"]), str(kept["label"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkbookError(
            f"{path / 'raw' / _REQUEST} is damaged.", "Delete that matrix's folder or begin a new matrix."
        ) from error
    params = request.model_dump(mode="json")
    run_id = path.name.removesuffix(store.PARTIAL)
    return store.Run(run_id, store.MATRIX, store.MATRIX, label, params, started, path), request


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
        WorkbookError: a probe failed, the disk is full, or another process makes this matrix; what was kept
            stays, and `reopen` goes on from there.
    """
    groups = _plan(node, request)
    order = {one: number for number, one in enumerate(one for group in groups for one in keys(group))}
    with held(run.raw / _REQUEST, f"Matrix {run.id} is being made by another process.", "Wait for it."):
        cells = kept_cells(run.raw / _CELLS)
        if any(key(cell) not in order for cell in cells):
            raise WorkbookError(
                f"{run.path} has cells of other versions than data/stacks names now.", "Begin a new matrix."
            )

        def keep(cell: MatrixCell) -> None:
            _append(run.raw / _CELLS, cell)
            cells.append(cell)
            on_cell(cell, len(cells), len(order))

        for group in without(groups, cells):
            trace_group(node, group, request.arch, keep)
        if len(cells) < len(order):
            raise WorkbookError(f"{len(order) - len(cells)} of {len(order)} cells gave no answer.")
        return _seal(node, run, request, sorted(cells, key=lambda cell: order[key(cell)]))


def kept_cells(path: Path) -> list[MatrixCell]:
    """The cells that were kept; a last line that was cut off by a kill or a full disk is left out.

    Raises:
        WorkbookError: another line is damaged.
    """
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    try:
        whole = [MatrixCell.model_validate_json(line) for line in lines[:-1]]
    except ValidationError as error:
        raise WorkbookError(f"{path} is damaged.", "Delete its folder and begin a new matrix.") from error
    if lines[-1]:
        os.truncate(path, path.stat().st_size - len(lines[-1]))  # needs no room on a disk that is full
    return whole


def _plan(node: NodeConnection, request: MatrixRequest) -> list[Group]:
    return plan(node, [catalog.load(Stack, name) for name in request.stacks], request)


def _append(path: Path, cell: MatrixCell) -> None:
    try:
        with path.open("ab") as out:
            out.write(cell.model_dump_json().encode() + b"\n")
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
    cells: Sequence[MatrixCell],
) -> store.SealedRun:
    run.add_table("cells", cells)
    counts = Counter(cell.status for cell in cells)
    verdict = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    env = snapshot.take(node, catalog.load(Stack, request.stacks[0]))
    return run.seal(Status.OK, env, verdict=f"{len(cells)} cells: {verdict}.")
