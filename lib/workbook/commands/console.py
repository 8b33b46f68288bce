"""What every command shares: where it prints, and the options that several take."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from workbook.errors import UsageError
from workbook.report.text import one_line

WORD_WIDTH = 100  # characters in a table; the records have the whole text
out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

NodeOption = Annotated[str, typer.Option("--node", help="A node of data/nodes.")]
StackOption = Annotated[str, typer.Option("--stack", help="A stack of data/stacks.")]
ArchOption = Annotated[str, typer.Option("--arch", help="The declared GPU architecture.")]
LevelOption = Annotated[int, typer.Option("--patch-level", help="0 (unpatched) to 5.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line a row, in columns as wide as their widest word: a table that grep and awk can read."""
    words = [[one_line(word, WORD_WIDTH) or "-" for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    for row in words:
        yield "  ".join(word.ljust(most) for word, most in zip(row, widths, strict=True)).rstrip()


def name_value(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML: 2 is a number, "two" a word, [1, 4] a list."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"-p {text!r} is not NAME=VALUE.", "For example: -p patch_level=2")
    try:
        return name, yaml.safe_load(value) if value else ""
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"-p {name}: {value!r} cannot be read as a value.") from error
