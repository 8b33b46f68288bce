"""`workbook wheelhouse`: the offline bundle of a stack, for a node without a network."""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from workbook import catalog
from workbook.commands.console import err, out
from workbook.errors import UsageError
from workbook.node.connect import connect
from workbook.types import Stack
from workbook.wheelhouse.bundle import Asked, make

NODE = "local"
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
PYTHON = re.compile(r"3\.[0-9]{1,2}")


def wheelhouse(
    stack: Annotated[str, typer.Argument(help="A stack of data/wheelhouse.")],
    python: Annotated[str, typer.Option(help="The node's Python.")] = "3.12",
    part_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The most that a part has, such as 60M (M: 10^6 bytes).")
    ] = "1G",
    have: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The node's `pip freeze`: what it has is left out.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Reduce kernel libraries to this GPU architecture, such as sm90.")
    ] = None,
    workbook: Annotated[
        bool, typer.Option("--workbook", help="Also what the workbook's own notebooks need there.")
    ] = False,
    out_folder: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The bundle; must not exist.")
    ] = None,
) -> None:
    """Make the offline bundle of a stack, in parts, for a node without a network."""
    size = part_bytes(part_size)
    if not PYTHON.fullmatch(python):
        raise UsageError(f"--python {python!r} is no version of Python.", "For example: --python 3.12")
    chosen = catalog.load(Stack, stack)
    short = f"wheelhouse-{stack}-py{python.replace('.', '')}" + (f"-{arch}" if arch else "")
    folder = out_folder or Path(short)
    asked = Asked(python=python, part_size=size, have=have, arch=arch, workbook=workbook)
    try:
        with out.status("") as status:
            make(
                connect(NODE),
                chosen,
                asked,
                folder,
                say=out.print,
                on_step=lambda line: status.update(Text(line)),
            )
    except KeyboardInterrupt:
        err.print("workbook: interrupted; the wheels fetched so far are kept, of the bundle nothing.")
        raise typer.Exit(130) from None
    out.print(f"The bundle is {folder}; LEFT_OUT.md in it says what it lacks, and why.")
    out.print(f"Copy the folder to the node, and run there: python3 {folder.name}/install.py FOLDER")


def part_bytes(text: str) -> int:
    """A size such as 60M in bytes: K, M and G are powers of 1,000.

    Raises:
        UsageError: it is none, or less than 1M.
    """
    match = re.fullmatch(r"([0-9]{1,6})([KMG])", text.strip().upper())
    size = int(match[1]) * UNITS[match[2]] if match else 0
    if size < UNITS["M"]:
        raise UsageError(f"--part-size {text!r} is no size of at least 1M.", "For example: --part-size 60M")
    return size
