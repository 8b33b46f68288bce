"""How the report looks: colours with their contrast, markers, and one word and glyph for each status.

Colour never stands alone: every series has a marker and a dash, every status a glyph and a word.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.style

from workbook.types import Lane, Status

WHITE = "#ffffff"
INK = "#1c2126"
MUTED = "#5a6570"
RULE = "#d5dae0"
STOP = "#b3261e"
PASS = "#1a6b3c"

FONT = "DejaVu Sans"
"""Comes with matplotlib, so that a figure is the same everywhere."""
WIDTH_IN = 9.375
"""Inches: 900 CSS pixels, so that a point in a figure is a point on the page."""
SMALLEST_PT = 9.0

RC: dict[str, Any] = {
    "font.family": FONT,
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "workbook",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the report's style, whatever the reader's own matplotlib settings are."""
    with matplotlib.style.context(["default", RC]):
        yield


@dataclass(frozen=True)
class Series:
    """How one label is drawn in every chart of a figure."""

    colour: str
    marker: str
    dash: str


SERIES = (
    Series("#0b5fa5", "o", "-"),
    Series("#b8450b", "s", "--"),
    Series("#00734f", "D", "-."),
    Series("#8a3fa0", "^", ":"),
    Series("#7a5a00", "v", (0, (5, 1, 1, 1, 1, 1))),  # type: ignore[arg-type]
    Series("#4a5560", "P", (0, (8, 2))),  # type: ignore[arg-type]
)


def series(labels: Iterable[str]) -> dict[str, Series]:
    """A style for each label, in order. From the seventh on, colours come back with another marker.

    Args:
        labels: the labels of one figure, each once.
    """
    count = len(SERIES)
    styles = {}
    for index, label in enumerate(labels):
        turn = index // count
        colour, shape = SERIES[index % count], SERIES[(index + turn) % count]
        styles[label] = Series(colour.colour, shape.marker, shape.dash)
    return styles


@dataclass(frozen=True)
class Tone:
    """A tint and the ink on it."""

    background: str
    ink: str

    @property
    def css(self) -> str:
        """The tone as an inline style, which also holds where the report's sheet is absent."""
        return f"background-color:{self.background};color:{self.ink}"


GOOD = Tone("#e2f3e6", "#14532d")
BAD = Tone("#fbe3e0", "#8c1d18")
WARN = Tone("#fff0c7", "#634800")
QUIET = Tone("#eef1f4", "#47525d")


@dataclass(frozen=True)
class Look:
    """How one status is shown."""

    glyph: str
    word: str
    tone: Tone


LOOKS = {
    Status.OK: Look("✓", "ok", GOOD),
    Status.DYNAMO_UNSUPPORTED: Look("✗", "not traceable", BAD),
    Status.GRAPH_BREAK: Look("✗", "graph break", BAD),
    Status.JIT_FAILED: Look("✗", "JIT failed", BAD),
    Status.CAPTURE_FAILED: Look("✗", "capture failed", BAD),
    Status.OOM: Look("✗", "out of memory", BAD),
    Status.CRASHED: Look("✗", "crashed", BAD),
    Status.TIMEOUT: Look("✗", "timed out", BAD),
    Status.WRONG_OUTPUT: Look("≠", "wrong output", BAD),
    Status.NOT_SUPPORTED_HERE: Look("○", "not possible here", QUIET),
    Status.ALREADY_FIXED_UPSTREAM: Look("◆", "fixed upstream", GOOD),
}

LANES = {
    Lane.MODEL: Series("#3d4c5c", "o", "-"),
    Lane.SGLANG: Series("#0b5fa5", "s", "-"),
    Lane.FLASHINFER: Series("#3a6f00", "D", "-"),
    Lane.TORCH: Series("#b8450b", "^", "-"),
    Lane.OTHER: Series("#5a6570", "P", "-"),
    Lane.STDLIB: Series("#8a3fa0", "v", "-"),
}

LANE_NAMES = {
    Lane.MODEL: "model",
    Lane.SGLANG: "SGLang",
    Lane.FLASHINFER: "FlashInfer",
    Lane.TORCH: "torch",
    Lane.STDLIB: "standard library",
    Lane.OTHER: "other",
}
