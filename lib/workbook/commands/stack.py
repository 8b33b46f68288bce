"""`workbook stack`: named, locked sets of versions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.text import Text

from workbook import catalog, stacks
from workbook.commands.console import err, out
from workbook.disk import size_gb
from workbook.node.connect import connect
from workbook.node.probe import stack_dir
from workbook.paths import stacks_dir
from workbook.types import Stack

app = typer.Typer(no_args_is_help=True, help="Named, locked sets of versions.")
NODE = "local"
NameArgument = Annotated[str, typer.Argument(help="A stack of data/stacks.")]


@app.command("list")
def stack_list() -> None:
    """The stacks, their versions, what each is for, and what of them is here."""
    node = connect(NODE)
    for name in catalog.names(Stack):
        one = catalog.load(Stack, name)
        out.print(
            f"{name:9} torch {one.torch}, flashinfer-python {one.flashinfer}, sglang {one.sglang}: {one.purpose}"
        )
        if kind := stacks.created(node, one):
            folder = stack_dir(node, one)
            out.print(f"{'':9} created here, {kind}, {size_gb(folder):.2f} GB in {folder}")
    for version, folder in stacks.version_folders("flashinfer-python").items():
        out.print(f"FlashInfer {version}: {size_gb(folder):.2f} GB in {folder}")
    for version, folder in stacks.version_folders("sglang").items():
        out.print(f"SGLang {version}, sources: {size_gb(folder):.2f} GB in {folder}")


@app.command("create")
def stack_create(
    name: NameArgument,
    minimal: Annotated[bool, typer.Option("--minimal", help="Only what a trace needs, no server.")] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Only what a forecast needs, SGLang's sources; no environment.")
    ] = False,
    flashinfer: Annotated[
        list[str] | None, typer.Option(metavar="VERSION", help="Put this FlashInfer there too; repeatable.")
    ] = None,
) -> None:
    """Make a stack's environment from its lock, with its FlashInfer in a folder beside it."""
    stack = catalog.load(Stack, name)
    with _interruptible(), out.status("") as status:
        stacks.create(
            connect(NODE),
            stack,
            minimal=minimal,
            sources=sources,
            flashinfer=flashinfer or [],
            say=out.print,
            on_package=lambda line: status.update(Text(line)),
        )


@app.command("remove")
def stack_remove(
    name: NameArgument,
    flashinfer: Annotated[
        list[str] | None,
        typer.Option(metavar="VERSION", help="Remove this FlashInfer's folder, not the stack; repeatable."),
    ] = None,
) -> None:
    """Remove a stack's environment, and its SGLang's sources and FlashInfer if no other stack has the same."""
    stack = catalog.load(Stack, name)
    with _interruptible():
        if flashinfer:
            stacks.remove_flashinfer(connect(NODE), stack, flashinfer, say=out.print)
        else:
            stacks.remove(connect(NODE), stack, say=out.print)


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"workbook: interrupted; nothing half-made counts as a stack in {stacks_dir()}.")
        raise typer.Exit(130) from None
