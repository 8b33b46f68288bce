"""Colours can be told from the ground they stand on, and never stand alone."""

import pytest

from workbook.report.style import (
    BAD,
    GOOD,
    INK,
    LANE_NAMES,
    LANES,
    LOOKS,
    MUTED,
    QUIET,
    SERIES,
    WARN,
    WHITE,
    Tone,
    series,
)
from workbook.types import Lane, Status


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_itself() -> None:
    assert contrast("#000000", WHITE) == pytest.approx(21)


@pytest.mark.parametrize("colour", [INK, MUTED, *(s.colour for s in (*SERIES, *LANES.values()))])
def test_what_is_written_on_white_can_be_read(colour: str) -> None:
    assert contrast(colour, WHITE) >= 4.5


@pytest.mark.parametrize("tone", [GOOD, BAD, WARN, QUIET])
def test_what_is_written_on_a_tint_can_be_read(tone: Tone) -> None:
    assert contrast(tone.ink, tone.background) >= 4.5


def test_every_status_has_a_glyph_and_a_word_of_its_own() -> None:
    assert set(LOOKS) == set(Status)
    assert all(look.glyph for look in LOOKS.values())
    assert len({look.word for look in LOOKS.values()}) == len(Status)


def test_every_lane_has_a_marker_of_its_own() -> None:
    assert set(LANES) == set(LANE_NAMES) == set(Lane)
    assert len({style.marker for style in LANES.values()}) == len(Lane)


def test_series_differ_in_more_than_colour() -> None:
    styles = series([f"label {n}" for n in range(12)])
    assert len(set(styles.values())) == 12
    assert len({(style.marker, style.dash) for style in list(styles.values())[:6]}) == 6
