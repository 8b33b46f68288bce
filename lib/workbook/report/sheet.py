"""A drawing measured in points, origin at the top left, as wide as the page: sizes here are sizes there."""

from collections.abc import Sequence
from functools import lru_cache

from matplotlib.figure import Figure as Picture
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from workbook.report.style import FONT, INK, SMALLEST_PT, WHITE, WIDTH_IN, Series
from workbook.report.text import elide, plain

WIDTH = WIDTH_IN * 72
"""Points."""


def text_width(text: str, *, size: float = SMALLEST_PT, bold: bool = False) -> float:
    """How wide a line of text is, in points; `size` in points too."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


@lru_cache
def _characters() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family=FONT))).get_charmap())


def drawable(text: object) -> str:
    """The text as one line, with a replacement mark for what the font has no glyph for."""
    line = " ".join(plain(text).split())
    return "".join(letter if ord(letter) in _characters() else "\ufffd" for letter in line)


def fit(text: str, room: float, *, size: float = SMALLEST_PT, bold: bool = False) -> tuple[str, float]:
    """One line of text, elided in the middle until it fits (perhaps to nothing), and its width in points."""
    whole = line = drawable(text)
    width = text_width(line, size=size, bold=bold)
    # Start from a guess a little too long: a measurement for each character of a long line is slow.
    limit = int(len(whole) * room / width) + 4 if width > room else 0
    while width > room and line:
        limit -= 1
        line = elide(whole, limit) if limit > 0 else ""
        width = text_width(line, size=size, bold=bold)
    return line, width


class Sheet:
    """An empty sheet, to draw on inside `style.drawing()`.

    Args:
        height: in points.
    """

    def __init__(self, height: float) -> None:
        self.picture = Picture(figsize=(WIDTH_IN, height / 72), dpi=72)
        self._axes = self.picture.add_axes((0, 0, 1, 1))
        self._axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self._axes.set_axis_off()

    def text(
        self,
        x: float,
        y: float,
        text: str,
        room: float,
        *,
        size: float = SMALLEST_PT,
        colour: str = INK,
        bold: bool = False,
        ground: str | None = None,
    ) -> float:
        """Write one line, elided in the middle until it fits.

        Args:
            x: left end, points.
            y: vertical centre, points.
            text: what to write.
            room: the width there is, points.
            size: of the type, points.
            colour: of the type.
            bold: whether it is bold.
            ground: a colour that keeps lines behind from running through the letters.

        Returns:
            Where the text ends, in points from the left.
        """
        line, width = fit(text, room, size=size, bold=bold)
        weight = "bold" if bold else "normal"
        box = {"facecolor": ground, "linewidth": 0, "pad": 1} if ground else None
        self._axes.text(
            x, y, line, fontsize=size, color=colour, fontweight=weight, va="center_baseline", bbox=box
        )
        return x + width

    def mark(self, x: float, y: float, style: Series, *, size: float = 8) -> None:
        """A marker of a lane."""
        self._axes.plot(
            [x],
            [y],
            marker=style.marker,
            markersize=size,
            color=style.colour,
            markeredgecolor=WHITE,
            zorder=3,
        )

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float = 1.2) -> None:
        """A line through points."""
        self._axes.plot(xs, ys, color=colour, linewidth=width, zorder=1, solid_capstyle="butt")

    def band(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A tinted rectangle with soft corners, behind everything; x and y are its left and its centre."""
        style = "round,pad=0,rounding_size=3"
        self._axes.add_patch(
            FancyBboxPatch(
                (x, y - height / 2), width, height, boxstyle=style, color=colour, linewidth=0, zorder=0
            )
        )
