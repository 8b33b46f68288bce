"""`workbook stack`: named, locked sets of versions."""

import typer

from workbook import catalog
from workbook.commands.console import out
from workbook.types import Stack

app = typer.Typer(no_args_is_help=True, help="Named, locked sets of versions.")


@app.command("list")
def stack_list() -> None:
    """The stacks, their versions and what each is for."""
    for name in catalog.names(Stack):
        one = catalog.load(Stack, name)
        out.print(
            f"{name:9} torch {one.torch}, flashinfer-python {one.flashinfer}, sglang {one.sglang}: {one.purpose}"
        )
