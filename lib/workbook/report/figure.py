"""A figure as a notebook cell shows it: finding, picture, caption, and the data behind it."""

import base64
import io
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure as Picture

from workbook.report.style import drawing
from workbook.report.tables import frame_table
from workbook.report.text import escape


def to_svg(picture: Picture) -> bytes:
    """The picture as SVG; the same picture gives the same bytes, on any day and any machine."""
    buffer = io.BytesIO()
    with drawing():
        picture.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class Figure:
    """What a notebook cell displays.

    Args:
        title: the finding, as a sentence.
        svg: the picture.
        alt: the picture in words, for who cannot see it.
        caption: what was measured: n, model, hardware, versions, date.
        data: every number in the picture.
    """

    title: str
    svg: bytes
    alt: str
    caption: str
    data: pd.DataFrame

    def __repr__(self) -> str:
        return f"<Figure: {self.title}>"

    def _repr_html_(self) -> str:
        image = f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode('ascii')}"
        data = frame_table(self.data)
        rows = f"{len(data.rows)} row{'' if len(data.rows) == 1 else 's'}"
        return (
            f'<figure class="wb-figure"><figcaption><strong>{escape(self.title)}</strong></figcaption>'
            f'<div class="wb-scroll"><img src="{image}" alt="{escape(self.alt)}"></div>'
            f'<p class="wb-caption">{escape(self.caption)}</p>'
            f"<details><summary>Data ({rows})</summary>{data._repr_html_()}</details></figure>"
        )
