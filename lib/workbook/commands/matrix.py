"""`workbook matrix`: the same call over versions, levels and process states."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from workbook.boundary.entries import ENTRIES, paths
from workbook.boundary.levels import CALL_LEVELS
from workbook.commands.console import ArchOption, JsonOption, NodeOption, columns, err, out
from workbook.errors import UsageError, WorkbookError
from workbook.node.connect import connect
from workbook.stacks import checked_version
from workbook.types import MatrixCell, MatrixRequest

GO_ON = "To go on: workbook matrix --resume"
ALL_LEVELS = ",".join(str(each.level) for each in CALL_LEVELS)


def matrix(
    context: typer.Context,
    stacks: Annotated[str, typer.Option(help="Stacks of data/stacks, such as embedded,seed.")] = "embedded",
    flashinfer: Annotated[
        str, typer.Option(help="FlashInfer versions to swap in, such as 0.6.3,0.7.4.")
    ] = "",
    entries: Annotated[str, typer.Option(help="Entry points, or all.")] = ENTRIES[0].path,
    levels: Annotated[str, typer.Option(help="Patch levels; to one call, 5 is 4.")] = ALL_LEVELS,
    arch: ArchOption = "sm120",
    node: NodeOption = "local",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest interrupted matrix.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Stacks x FlashInfer versions x entry points x levels x process states, each cell in a fresh process."""
    from workbook import matrices  # pandas takes a second that other commands need not wait for

    if resume:
        _refuse_others(context)
        run, request = matrices.reopen()
        connection = connect(request.node)
    else:
        request = _request(stacks, flashinfer, entries, levels, arch, node)
        connection = connect(node)
        run = matrices.begin(connection, request)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=err) as bar:
            task = bar.add_task("Cells", total=None)
            sealed = matrices.fill(
                connection,
                run,
                request,
                lambda cell, done, total: bar.update(
                    task, completed=done, total=total, description=_word(cell)
                ),
            )
    except KeyboardInterrupt:
        err.print(f"workbook: interrupted; what was traced is kept. {GO_ON}")
        raise typer.Exit(130) from None
    except WorkbookError as error:
        if error.hint or isinstance(error, UsageError):
            raise
        raise WorkbookError(error.message, f"What was traced is kept. {GO_ON}") from error
    cells = sealed.records("cells", MatrixCell)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in cells], indent=1))
        return
    for line in lines(cells):
        out.print(line)
    out.print(f"{sealed.record.verdict} Kept in {sealed.path}")


def _refuse_others(context: typer.Context) -> None:
    kept = ("stacks", "flashinfer", "entries", "levels", "arch", "node")
    sources = {name: context.get_parameter_source(name) for name in kept}
    given = [name for name, source in sources.items() if source and source.name != "DEFAULT"]
    if given:
        raise UsageError(
            "--resume goes on with what the matrix was asked for;", f"leave out --{', --'.join(given)}."
        )


def _request(stacks: str, flashinfer: str, entries: str, levels: str, arch: str, node: str) -> MatrixRequest:
    try:
        return MatrixRequest(
            stacks=_words(stacks),
            flashinfer=tuple(map(checked_version, _words(flashinfer))),
            entries=tuple(paths(*_words(entries))),
            levels=_words(levels),  # type: ignore[arg-type]  # pydantic reads the numbers
            arch=arch,
            node=node,
        )
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{first['input']!r} will not do" if first["input"] else "nothing was named"
        raise UsageError(f"--{first['loc'][0]}: {problem}.", "See workbook matrix --help.") from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def _word(cell: MatrixCell) -> str:
    return f"torch {cell.torch}, FlashInfer {cell.flashinfer}, level {cell.patch_level}"


def lines(cells: list[MatrixCell]) -> Iterator[str]:
    """A line a cell, in columns as wide as their widest word: a table that grep and awk can read."""
    rows = [("torch", "flashinfer", "entry", "level", "process", "status", "seconds", "operation", "blamed")]
    rows += [
        (
            one.torch,
            one.flashinfer,
            one.entry.removeprefix("flashinfer."),
            str(one.patch_level),
            one.process_state,
            one.status,
            f"{one.seconds:.1f}",
            one.operation or one.message,
            one.blamed or "",
        )
        for one in cells
    ]
    return columns(rows)
