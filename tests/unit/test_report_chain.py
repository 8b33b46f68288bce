"""The call chain is drawn whole, can be read, and says where it broke."""

import warnings

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Picture
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.unit.report_samples import CHAIN, HOSTILE, LEVELS, frame, passed, trace
from tests.unit.test_report_text import Seen
from workbook.errors import WorkbookError
from workbook.report.chain import chain_chart
from workbook.report.chain_picture import columns, lanes, share, steps
from workbook.report.sheet import WIDTH, fit, text_width
from workbook.report.style import BAD, SMALLEST_PT
from workbook.types import Lane, ProcessState, Status, TraceOutcome

NAMES = {level.level: level.name for level in LEVELS}


def every_level() -> list[TraceOutcome]:
    long = frame(Lane.OTHER, "somewhere/else.py", "a_function_with_quite_a_long_name_" * 3, 1)
    return [
        trace(0),
        trace(1, 6, operation="posix.stat"),
        trace(2, frames=(*trace(0, 4).frames, long), blamed=f"somewhere.else:{long.function}"),
        trace(3, 2, status=Status.GRAPH_BREAK, operation="torch.compiler.disable(flashinfer.fp4_quantize)"),
        passed(4),
    ]


def words(picture: Picture) -> list[Text]:
    return [text for axes in picture.axes for text in axes.texts if text.get_text()]


def texts(picture: Picture) -> list[str]:
    return [text.get_text() for text in words(picture)]


def boxes(picture: Picture) -> list[tuple[str, Bbox]]:
    """Where each text lies, by the width that the SVG gives it."""
    found = []
    for text in words(picture):
        x, y = text.get_position()
        size = float(text.get_fontsize())
        width = text_width(text.get_text(), size=size, bold=text.get_fontweight() == "bold")
        found.append((text.get_text(), Bbox([[x, y - size * 0.45], [x + width, y + size * 0.45]])))
    return found


PICTURES = {
    "one": lambda: lanes(trace()),
    "one that passed": lambda: lanes(passed()),
    "one with other code": lambda: lanes(every_level()[2]),
    "five": lambda: columns(every_level(), NAMES),
    "ten": lambda: columns([*every_level(), *every_level()], NAMES),
    "two": lambda: columns(every_level()[3:], {}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_text_is_large_enough_inside_the_page_and_clear_of_the_others(name: str) -> None:
    picture = PICTURES[name]()
    placed = boxes(picture)
    assert all(float(text.get_fontsize()) >= SMALLEST_PT for text in words(picture))
    height = picture.get_figheight() * 72
    for text, box in placed:
        assert box.x0 >= 0 and box.x1 <= WIDTH and box.y0 >= 0 and box.y1 <= height, text
    for index, (text, box) in enumerate(placed):
        for other, beside in placed[index + 1 :]:
            assert not box.overlaps(beside), (text, other)


def test_one_chain_names_every_frame_its_place_and_the_end() -> None:
    said = texts(lanes(trace()))
    for _, file, function, line in CHAIN:
        if function != "getattr_and_trace":
            assert function in said
            assert f"{file}:{line}" in said
    assert "getattr_and_trace" not in said
    assert said.count("✗ breaks here") == 1
    assert said.count("◀ blamed") == 1
    assert "✗ _thread.allocate_lock" in said
    assert "not traceable · gb0007 · Attempted to call function marked as skipped" in said


def test_a_long_name_leaves_room_for_its_place() -> None:
    said = texts(lanes(every_level()[2]))
    assert "somewhere/else.py:1" in said
    assert any(text.startswith("a_f") and "…" in text for text in said)
    assert "◀ blamed ✗ breaks here" in said


def test_frames_stand_in_call_order_in_the_lane_of_their_code() -> None:
    picture = lanes(trace())
    at = {text.get_text(): text.get_position() for text in words(picture)}
    order = [at[function][1] for _, _, function, _ in CHAIN if function in at]
    assert order == sorted(order)
    assert at["fp4_quantize"][0] == at["get_cuda_path"][0]
    assert at["forward"][0] < at["fp4_quantize"][0] < at["run"][0]


def test_what_passed_breaks_nowhere() -> None:
    said = texts(lanes(trace(status=Status.OK, operation=None, blamed=None)))
    assert "✗ breaks here" not in said
    assert "✓ traced to its end" in said


def test_polyfills_collapse_but_never_the_last_frame() -> None:
    drawn = steps(trace())
    assert [step.frame is None for step in drawn].count(True) == 2
    assert [step.frame.function for step in drawn if step.frame] == [
        f for lane, _, f, _ in CHAIN if lane is not Lane.TORCH
    ]
    ending = steps(trace(0, 3))[-1]
    assert ending.frame is not None
    assert ending.frame.function == "getattr_and_trace"


def test_columns_name_a_shared_frame_once() -> None:
    said = texts(columns([trace(0), trace(1, 6, operation="posix.stat")], NAMES))
    assert said.count("forward") == 1
    assert said.count("fp4_quantize") == 1
    assert "posix.stat" in said
    assert {"level 0 · warm", "level 1 · warm", "unpatched", "cuda-version"} <= set(said)


def test_columns_name_again_what_comes_after_they_parted() -> None:
    other = [frame(*step) for step in CHAIN]
    other[1] = frame(Lane.SGLANG, "sglang/quant.py", "apply", 1)
    said = texts(columns([trace(0), trace(1, frames=tuple(other))], NAMES))
    assert said.count("forward") == 1
    assert said.count("get_cuda_version" if "get_cuda_version" in said else "run") == 2


def test_the_marks_of_a_break_have_its_colour() -> None:
    said = {text.get_text(): text.get_color() for text in words(lanes(trace()))}
    assert said["✗ breaks here"] == said["✗ _thread.allocate_lock"] == BAD.ink


@pytest.mark.parametrize(
    ("outcomes", "title"),
    [
        (
            [trace(0)],
            "Level 0 stops at _thread.allocate_lock, reached from flashinfer.jit.cpp_ext:get_cuda_path",
        ),
        ([passed(4)], "Level 4: the call traces to its end"),
        (
            [trace(0), passed(4)],
            "Level 4 is the first to get the call through; level 0 stops at _thread.allocate_lock",
        ),
        (
            [trace(0), trace(1)],
            "No level tried gets the call through: level 0 stops at _thread.allocate_lock",
        ),
        ([passed(4), passed(5)], "The call traces to its end at every level tried"),
        (
            [passed(1, process_state=ProcessState.COLD), trace(1, operation="posix.stat")],
            "No level tried gets the call through: level 1 stops at posix.stat",
        ),
    ],
)
def test_the_title_states_the_finding(outcomes: list[TraceOutcome], title: str) -> None:
    assert chain_chart(outcomes).title == title


def test_names_of_levels_stand_in_the_title() -> None:
    assert chain_chart([passed(4)], levels=LEVELS).title.startswith("Level 4 (custom-op)")


def test_words_and_data() -> None:
    figure = chain_chart([trace(0), passed(4)], caption="2026-01-01.")
    assert figure.caption.startswith("2026-01-01. flashinfer.fp4_quantize for sm120 on fake CUDA tensors; ")
    assert "torch 2.9.1" in figure.caption
    assert "forward → fp4_quantize → get_fp4_quantization_module" in figure.alt
    assert len(figure.data) == len(CHAIN) + 1
    assert list(figure.data["place"][:2]) == ["model.py:4", "flashinfer/fp4_quantization.py:677"]
    assert pd.isna(figure.data["function"].iloc[-1])


@pytest.mark.parametrize("change", [{"entry": "other"}, {"arch": "sm90"}, {"versions": {"torch": "2.13.0"}}])
def test_what_cannot_be_compared_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(WorkbookError, match="different calls, architectures or versions"):
        chain_chart([trace(0), trace(1, **change)])
    with pytest.raises(WorkbookError, match="no trace"):
        chain_chart([])


def test_the_same_outcomes_give_the_same_picture() -> None:
    assert chain_chart(every_level()).svg == chain_chart(every_level()).svg
    assert chain_chart([trace(0)]).svg != chain_chart([trace(0, operation="posix.stat")]).svg


def test_hostile_names_are_text() -> None:
    bad = frame(Lane.MODEL, f"{HOSTILE}.py", f"$\\frac{HOSTILE}", 1)
    figure = chain_chart([trace(0, frames=(bad,), operation=HOSTILE, blamed=HOSTILE, message=HOSTILE)])
    assert b"<script" not in figure.svg
    assert "script" not in {tag for tag, _ in Seen(figure._repr_html_()).tags}


@given(st.text(max_size=120), st.floats(min_value=0, max_value=300))
def test_fitted_text_fits_and_every_letter_of_it_can_be_drawn(text: str, room: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a glyph that its font lacks
        line, width = fit(text, room)
    assert width <= room
    assert width == pytest.approx(text_width(line))


@given(
    st.lists(st.floats(min_value=10, max_value=300), min_size=1, max_size=5),
    st.floats(min_value=100, max_value=900),
)
def test_shared_widths_fill_the_room_and_cut_the_widest(needs: list[float], room: float) -> None:
    widths = share(needs, room)
    assert sum(widths) == pytest.approx(room)
    cut = [width for width, need in zip(widths, needs, strict=True) if width < need - 1e-6]
    assert all(width == pytest.approx(max(widths)) for width in cut)
