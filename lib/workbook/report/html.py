"""An executed notebook as one HTML file that loads nothing and runs nothing."""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import markdown2html
from traitlets.config import Config

from workbook.errors import WorkbookError
from workbook.report.sanitize import clean
from workbook.report.text import escape, one_line, plain

TEMPLATES = Path(__file__).resolve().parent / "templates"
SHOWN = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]
"""What an output may be shown as, best first. Scripts and widgets are not among them."""


class Heading(NamedTuple):
    """A heading of the page: the cell it is in, counted from 0, and its place."""

    cell: int
    level: int
    anchor: str
    text: str


def render(notebook_path: Path, out: Path, *, title: str) -> Path:
    """Write a notebook as a self-contained HTML page, complete or not at all.

    Args:
        notebook_path: the executed notebook.
        out: the HTML file to write.
        title: of the page; also its heading, if the notebook has none.

    Returns:
        `out`.

    Raises:
        WorkbookError: the notebook is missing or is none.
    """
    try:
        notebook = nbformat.read(notebook_path, as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        raise WorkbookError(f"No notebook at {notebook_path}.", "Run it first.") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError) as error:
        raise WorkbookError(f"{notebook_path} is no notebook: {plain(error).splitlines()[0]}") from error
    found = headings(notebook)
    page = {
        "title": title,
        "title_cell": next((heading.cell for heading in found if heading.level == 1), None),
        "contents": [heading for heading in found if heading.level == 2 and heading.anchor],
    }
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="workbook",
        extra_template_basedirs=[str(TEMPLATES)],
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": SHOWN},
                "CoalesceStreamsPreprocessor": {"enabled": True},
            }
        ),
        embed_images=True,
        filters={"plain": plain, "escape": escape, "clean_html": clean, "first_line": first_line},
    )
    resources = {"metadata": {"path": str(notebook_path.parent)}, "page": page}
    text, _ = exporter.from_notebook_node(notebook, resources=resources)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return out


def first_line(source: str) -> str:
    """What a code cell is about: its first line that says something, without the comment sign."""
    lines = (line.strip().lstrip("#").strip() for line in source.splitlines())
    return one_line(next((line for line in lines if line), ""), 90)


def headings(notebook: nbformat.NotebookNode) -> list[Heading]:
    """The headings of a notebook's text, in order."""
    found = []
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            collector = _Headings(index)
            collector.feed(markdown2html(plain(cell.source)))
            found += collector.found
    return found


class _Headings(HTMLParser):
    def __init__(self, cell: int) -> None:
        super().__init__()
        self.found: list[Heading] = []
        self._cell, self._open = cell, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h1", "h2"):
            self._open = True
            self.found.append(Heading(self._cell, int(tag[1]), dict(attrs).get("id") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h1", "h2"):
            self._open = False

    def handle_data(self, data: str) -> None:
        # The pilcrow is nbconvert's link to the heading itself.
        if self._open and data != "¶":
            self.found[-1] = self.found[-1]._replace(text=self.found[-1].text + data)
