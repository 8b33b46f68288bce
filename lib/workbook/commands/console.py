"""What every command shares: where it prints, and the options that several take."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

from workbook.boundary.levels import LEVELS
from workbook.errors import UsageError
from workbook.progress import live_line
from workbook.report.text import one_line
from workbook.types import Frame

WORD_WIDTH = 100  # characters in a table; the records have the whole text
out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

NodeOption = Annotated[str, typer.Option("--node", help="A node of data/nodes.")]
StackOption = Annotated[str, typer.Option("--stack", help="A stack of data/stacks.")]
ArchOption = Annotated[str, typer.Option("--arch", help="The declared GPU architecture.")]
LevelOption = Annotated[int, typer.Option("--patch-level", help=f"0 (unpatched) to {len(LEVELS) - 1}.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line a row, in columns as wide as their widest word: a table that grep and awk can read."""
    words = [[one_line(word, WORD_WIDTH) or "-" for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    for row in words:
        yield "  ".join(word.ljust(most) for word, most in zip(row, widths, strict=True)).rstrip()


def chain_lines(frames: Sequence[Frame]) -> Iterator[str]:
    """A call chain in lanes, a line a frame."""
    for frame in frames:
        yield f"{frame.lane:16} {one_line(f'{frame.file}:{frame.line} {frame.function}', 2 * WORD_WIDTH)}"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line in place on a terminal, else a line for each change; on standard error."""
    if not err.is_terminal:
        yield live_line()
        return
    began = time.monotonic()
    with err.status("") as status:
        yield lambda words: status.update(Text(f"{time.monotonic() - began:.0f} s: {words}"))


def name_value(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML: 2 is a number, "two" a word, [1, 4] a list."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"-p {text!r} is not NAME=VALUE.", "For example: -p patch_level=2")
    try:
        return name, yaml.safe_load(value) if value else ""
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"-p {name}: {value!r} cannot be read as a value.") from error
