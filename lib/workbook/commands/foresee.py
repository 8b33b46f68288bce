"""`workbook foresee`: will a model's piecewise capture trace? The whole model, no GPU."""

from typing import Annotated

import typer

from workbook import catalog
from workbook.boundary.foresee import foresee as ask
from workbook.boundary.model_files import profile_for
from workbook.commands.console import ArchOption, JsonOption, LevelOption, NodeOption, StackOption, err, out
from workbook.node.connect import connect
from workbook.types import Forecast, Foretold, Stack


def foresee(
    profile: Annotated[
        str, typer.Argument(help="A launch profile, a model of data/models, or a folder with a config.json.")
    ],
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor-parallel size; the profile's own if left out.")] = None,
    rank: Annotated[int, typer.Option(min=0, help="Whose part of the model is built.")] = 0,
    arch: ArchOption = "sm120",
    stack: StackOption = "seed",
    patch_level: LevelOption = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Only a few layers of each kind.")] = False,
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Will its piecewise capture trace? The whole model, as one rank, on a machine without a GPU."""
    with err.status("") as status:
        found = ask(
            connect(node),
            catalog.load(Stack, stack),
            profile_for(profile),
            arch=arch,
            patch_level=patch_level,
            tp=tp,
            rank=rank,
            quick=quick,
            on_phase=status.update,
        )
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _print(found)


def _print(found: Forecast) -> None:
    out.print(found.outcome, found.reason)
