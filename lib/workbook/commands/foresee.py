"""`workbook foresee`: will a model's piecewise capture trace? The whole model, no GPU."""

from collections.abc import Iterator
from typing import Annotated

import typer

from workbook import catalog
from workbook.boundary.foresee import foresee as ask
from workbook.boundary.model_files import profile_for
from workbook.commands.console import (
    WORD_WIDTH,
    ArchOption,
    JsonOption,
    LevelOption,
    NodeOption,
    StackOption,
    chain_lines,
    out,
    progress,
)
from workbook.node.connect import connect
from workbook.report import forecast_words as words
from workbook.report.text import one_line
from workbook.types import Forecast, Stack

STOOD_IN = "stood in for"


def foresee(
    profile: Annotated[
        str, typer.Argument(help="A launch profile, a model of data/models, or a folder with a config.json.")
    ],
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor-parallel size; the profile's own if left out.")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Whose part of the model is built.")] = 0,
    arch: ArchOption = "sm120",
    stack: StackOption = "seed",
    patch_level: LevelOption = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Only a few layers of each kind.")] = False,
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Will its piecewise capture trace? The whole model, as one rank, on a machine without a GPU."""
    with progress() as say:
        say("starting")
        found = ask(
            connect(node),
            catalog.load(Stack, stack),
            profile_for(profile),
            arch=arch,
            patch_level=patch_level,
            tp=tp,
            rank=rank,
            quick=quick,
            on_phase=lambda line: say(f"{one_line(line.removeprefix('phase '), WORD_WIDTH)}; going on"),
        )
    if as_json:
        print(found.model_dump_json(indent=2))
        return
    for line in lines(found):
        out.print(line)


def lines(found: Forecast) -> Iterator[str]:
    """The answer first, then what is in the way, then what it rests on."""
    yield one_line(words.sentence(found), 4 * WORD_WIDTH)
    for stop in words.stops(found):
        yield ""
        kind = f" ({stop.break_id})" if stop.break_id else ""
        blamed = stop.blamed or "nothing named"
        yield one_line(f"{stop.order}. {words.stopped_at(stop)}{kind}, in {blamed}", 2 * WORD_WIDTH)
        yield f"   layer {one_line(stop.layer, WORD_WIDTH) or 'not known'}, after this chain:"
        yield from (f"     {line}" for line in chain_lines(words.chain(stop)))
        yield f"   past it: {one_line(stop.past, 3 * WORD_WIDTH)}"
    yield ""
    told = words.facts(found)
    width = max(map(len, [*told, STOOD_IN]))
    for name, value in told.items():
        yield f"{name:{width}}  {one_line(value, 6 * WORD_WIDTH)}"
    for number, stand_in in enumerate(found.stand_ins):
        yield f"{'' if number else STOOD_IN:{width}}  {one_line(stand_in, 2 * WORD_WIDTH)}"
