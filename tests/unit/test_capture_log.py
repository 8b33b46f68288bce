"""The capture as a server's log tells it. The lines are those of SGLang's own format strings and of the real tqdm."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from workbook.serving.capture_log import CaptureLog, parse_capture, read_bars, read_capture
from workbook.serving.progress import Progress

BEGAN = datetime(2026, 11, 30, 16, 40, 1, tzinfo=UTC)
# version, how a bar names its shape (0.5.9 etc. have no free memory where they compile), and the phase that it is
BARS = {
    "decode": "Capturing batches (bs={} avail_mem={:.2f} GB)",
    "compile": "Compiling num tokens (num_tokens={})",
    "prefill": "Capturing num tokens (num_tokens={} avail_mem={:.2f} GB)",
    "breakable": "[BCG] Capturing (num_tokens={} avail_mem={:.2f} GB)",
    "prefill shape": "Capturing prefill shape (num_tokens={} avail_mem={:.2f} GB)",
}
OLD_BEGIN = "Capture {} begin. This can take up to several minutes. avail mem={:.2f} GB"
OLD_END = "Capture {} end. Time elapsed: {:.2f} s. mem usage={:.2f} GB. avail mem={:.2f} GB."
NEW_BEGIN = "Capture {} CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2], avail mem={:.2f} GB"
NEW_END = "Capture {} CUDA graph end. elapsed={:.2f} s, mem usage={:.2f} GB, avail mem={:.2f} GB."
NEWEST_END = (
    "Capture {} CUDA graph end. bs=[1, 2], elapsed={:.2f} s, mem usage={:.2f} GB, avail mem={:.2f} GB."
)


def stamped(at_s: float, text: str) -> str:
    when = BEGAN + timedelta(seconds=at_s)
    return f"{when.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z {text}\n"


def told(at_s: float, text: str, place: str = "") -> str:
    """A line as SGLang's logger writes it."""
    return stamped(at_s, f"[{(BEGAN + timedelta(seconds=at_s)):%Y-%m-%d %H:%M:%S}{place}] {text}")


def bar(done: int, total: int, elapsed_s: float, name: str) -> str:
    return str(tqdm.format_meter(done, total, elapsed_s, prefix=name))


def phase_log(wording: str, sizes: list[int], at_s: float, each_s: float, memory: float = 9.0) -> list[str]:
    """A bar over shapes that take `each_s` seconds each, as tqdm shows it when every state is written."""
    lines, total = [stamped(at_s, bar(0, len(sizes), 0, ""))], len(sizes)
    for number, size in enumerate(sizes):
        name = BARS[wording].format(size, memory - number)
        since = number * each_s
        lines.append(stamped(at_s + since, bar(number, total, since, name)))
        lines.append(stamped(at_s + since + each_s, bar(number + 1, total, since + each_s, name)))
    return lines


def shapes(found: CaptureLog, phase: str) -> list[tuple[int, float, float, float | None]]:
    return [
        (step.num_tokens, step.start_s, step.duration_s, step.avail_mem_gb)
        for step in found.steps
        if step.phase == phase
    ]


@pytest.mark.parametrize(
    ("wording", "begin", "end", "name", "phase"),
    [
        ("decode", OLD_BEGIN, OLD_END, "cuda graph", "decode"),  # 0.5.9 to 0.5.12
        ("prefill", OLD_BEGIN, OLD_END, "piecewise CUDA graph", "prefill"),
        ("breakable", OLD_BEGIN, OLD_END, "piecewise CUDA graph", "prefill"),  # 0.5.12
        ("decode", NEW_BEGIN, NEW_END, "target decode", "decode"),  # 0.5.16, 0.5.20
        ("prefill", NEW_BEGIN, NEW_END, "target prefill", "prefill"),
        ("decode", NEW_BEGIN, NEWEST_END, "target decode", "decode"),  # 0.5.23
        ("prefill shape", NEW_BEGIN, NEW_END, "target prefill", "prefill"),
        ("decode", NEW_BEGIN, NEW_END, "target verify", "verify"),  # where it speculates
        ("decode", OLD_BEGIN, OLD_END, "draft extend cuda graph", "draft extend"),
    ],
)
def test_every_wording_of_a_phase(wording: str, begin: str, end: str, name: str, phase: str) -> None:
    log = [
        stamped(0, "first line"),
        told(5, begin.format(name, 9.5), " TP0"),
        *phase_log(wording, [8, 4, 1], at_s=6, each_s=2),
        told(12.5, end.format(name, 7.5, 1.25, 6.0), " TP0"),
    ]
    found = parse_capture(log, "label")
    assert shapes(found, phase) == [(8, 6, 2, 9.0), (4, 8, 2, 8.0), (1, 10, 2, 7.0)]
    assert len(found.steps) == 3 and {step.label for step in found.steps} == {"label"}
    [one] = found.phases
    assert (one.phase, one.rank, one.seconds, one.graph_memory_gb) == (phase, 0, 7.5, 1.25)
    assert found.seconds == 6 and found.graph_memory_gb == 1.25 and found.unfinished == ()


def test_compiling_is_a_phase_of_its_own_without_memory() -> None:
    log = [
        told(0, OLD_BEGIN.format("piecewise CUDA graph", 9.5)),
        *phase_log("compile", [64, 32], at_s=1, each_s=3),
        *phase_log("prefill", [64, 32], at_s=8, each_s=0.5),
    ]
    found = parse_capture(log)
    assert shapes(found, "compile") == [(64, 1, 3, None), (32, 4, 3, None)]
    assert shapes(found, "prefill") == [(64, 8, 0.5, 9.0), (32, 8.5, 0.5, 8.0)]


def test_ranks_tell_their_graph_memory_and_phases_add_up_on_each() -> None:
    log = []
    for rank, (decode, prefill) in enumerate([(1.0, 0.5), (1.25, 0.75)]):
        log += [
            told(1, OLD_BEGIN.format("cuda graph", 9.0), f" TP{rank}"),
            told(2, OLD_END.format("cuda graph", 1.0, decode, 8.0), f" TP{rank}"),
            told(3, OLD_END.format("piecewise CUDA graph", 1.0, prefill, 7.0), f" TP{rank}"),
        ]
    found = parse_capture(log)
    assert found.graph_memory_gb == 2.0 and found.steps == () and found.seconds is None
    assert [(one.rank, one.phase) for one in found.phases] == [
        (0, "decode"), (0, "prefill"), (1, "decode"), (1, "prefill"),
    ]  # fmt: skip


def test_a_bar_with_a_rank_before_it_is_that_ranks() -> None:
    log = [
        stamped(0, "[2026-11-30 16:40:01 DP0 TP3 EP3] " + bar(0, 1, 0, BARS["decode"].format(8, 9.0))),
        stamped(1, "[rank5]: " + bar(0, 1, 0, BARS["decode"].format(8, 9.0))),
        stamped(2, "[2026-11-30 16:40:03 TP3] " + bar(1, 1, 2, BARS["decode"].format(8, 9.0))),
        stamped(3, "[rank5]: " + bar(1, 1, 2, BARS["decode"].format(8, 9.0))),
    ]
    found = parse_capture(log)
    assert [(step.rank, step.start_s, step.duration_s) for step in found.steps] == [(3, 0, 2), (5, 1, 2)]


def test_an_interrupted_capture_keeps_the_shape_in_which_it_ended() -> None:
    log = [
        told(0, OLD_BEGIN.format("piecewise CUDA graph", 9.5), " TP0"),
        *phase_log("compile", [64, 32, 16], at_s=1, each_s=1)[:4],
        told(3.5, "Registering 12 cuda graph addresses", " TP1"),
        told(4, "Scheduler hit an exception: Traceback (most recent call last):", " TP0"),
        stamped(4.25, "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped"),
        stamped(60, "the launcher takes its time"),
    ]
    found = parse_capture(log)
    assert shapes(found, "compile") == [(64, 1, 1, None), (32, 2, 2.25, None)]
    assert found.unfinished == found.steps[-1:]
    assert found.phases[0].seconds is None


def test_a_message_on_the_line_of_a_bar_is_read_as_well() -> None:
    last = bar(1, 1, 2, BARS["decode"].format(8, 9.0))
    log = [
        stamped(0, bar(0, 1, 0, BARS["decode"].format(8, 9.0))),
        stamped(2, last + "[2026-11-30 16:40:03 TP1] " + OLD_END.format("cuda graph", 2.0, 1.5, 7.0)),
    ]
    found = parse_capture(log)
    assert [step.duration_s for step in found.steps] == [2]
    assert found.phases[0].rank == 1 and found.graph_memory_gb == 1.5


def test_a_raw_log_with_carriage_returns_and_no_stamps_is_read_by_the_second(tmp_path: Path) -> None:
    log = tmp_path / "log"
    states = "".join(
        "\r" + line.split(" ", 1)[1].removesuffix("\n") for line in phase_log("decode", [8, 4], 0, 3.0)
    )
    log.write_text(
        f"[2026-11-30 16:40:01 TP0] {OLD_BEGIN.format('cuda graph', 9.0)}\n{states}\n"
        f"[2026-11-30 16:40:09 TP0] {OLD_END.format('cuda graph', 8.0, 1.0, 8.0)}\n",
        newline="",
    )
    found = read_capture(log)
    assert shapes(found, "decode") == [(8, 0, 3, 9.0), (4, 3, 3, 8.0)]
    assert found.phases[0].seconds == 8.0


def test_a_log_without_a_capture_has_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\x00 Capture\nCapturing batches (bs=\nCompiling the kernels\n")
    assert read_capture(log) == CaptureLog()


@dataclass
class Shape:
    size: int
    takes_ms: int
    memory: float
    counted: bool  # tqdm leaves out a state that comes within 0.1 s of the last
    noise: str


shape_lists = st.lists(
    st.builds(
        Shape,
        size=st.integers(1, 16384),
        takes_ms=st.integers(0, 90_000),
        memory=st.integers(-100, 20_000).map(lambda cents: cents / 100),
        counted=st.booleans(),
        noise=st.sampled_from(
            ["", "Registering 5 cuda graph addresses", "Capturing the mood", "UserWarning: Error 7"]
        ),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda shape: shape.size,
)


@given(shape_lists, st.sampled_from(sorted(BARS)), st.integers(0, 10**6))
def test_what_a_log_was_written_from_is_read_back(shapes: list[Shape], wording: str, at_ms: int) -> None:
    log, expected, began = [stamped(0, "first")], [], at_ms
    for number, shape in enumerate(shapes):
        name = BARS[wording].format(shape.size, shape.memory)
        since, until = (at_ms - began) / 1000, (at_ms + shape.takes_ms - began) / 1000
        log.append(stamped(at_ms / 1000, bar(number, len(shapes), since, name)))
        if shape.noise:
            log.append(told(at_ms / 1000, shape.noise, " TP1"))
        expected.append((shape.size, at_ms, shape.takes_ms))
        at_ms += shape.takes_ms
        if shape.counted or number == len(shapes) - 1:  # its close shows the last state
            log.append(stamped(at_ms / 1000, bar(number + 1, len(shapes), until, name)))
    found = parse_capture(log)
    read = [
        (step.num_tokens, round(1000 * step.start_s), round(1000 * step.duration_s)) for step in found.steps
    ]
    assert read == expected and found.unfinished == ()
    if wording != "compile":
        assert [step.avail_mem_gb for step in found.steps] == [shape.memory for shape in shapes]


@given(shape_lists, st.data())
def test_a_log_that_is_cut_anywhere_ends_in_the_shape_at_work(
    shapes: list[Shape], data: st.DataObject
) -> None:
    sizes = [shape.size for shape in shapes]
    whole = phase_log("prefill", sizes, at_s=1, each_s=1)
    cut = data.draw(st.integers(1, len(whole)))
    found = parse_capture(whole[:cut])
    assert [step.num_tokens for step in found.steps] == sizes[: cut // 2]
    at_work = sizes[cut // 2 - 1 : cut // 2] if cut % 2 == 0 else []
    assert [step.num_tokens for step in found.unfinished] == at_work


@given(st.lists(st.text(max_size=80) | st.sampled_from(phase_log("decode", [4, 2, 1], 0, 1)), max_size=30))
def test_no_text_is_too_odd_to_be_read(lines: list[str]) -> None:
    found = parse_capture(lines)
    assert all(step.duration_s >= 0 and step.start_s >= 0 for step in found.steps)


@pytest.mark.parametrize(
    "line",
    [
        "9999-99-99T99:99:99.999Z Capture cuda graph begin.",
        "[2026-99-99 16:40:01 TP0] Capture cuda graph begin.",
        f"[2026-11-30 16:40:01 TP{'9' * 5000}] Capture cuda graph begin.",
        "Capturing batches (bs=1 avail_mem=1.2.3 GB):   0%|  | 0/3 [::<?, ?it/s]",
        f"Capturing batches (bs={'1' * 5000}):   0%|  | 0/3 [00:00<?, ?it/s]",
        "Capture cuda graph end. Time elapsed: . s. mem usage=- GB",
    ],
)
def test_digits_that_are_no_number_or_time_are_not_taken_for_one(line: str) -> None:
    assert parse_capture([line]).steps == ()


@pytest.mark.parametrize("words", ["Capture ", "loading shards: 1%", "Capturing (bs=1): 1%|", "Capture a"])
def test_a_hostile_line_takes_no_longer_than_its_length_asks_for(words: str) -> None:
    line = words * (24_000 // len(words)) + "a" * 24_000
    began = time.process_time()
    parse_capture([line])
    Progress().read(line)
    assert time.process_time() - began < 2


def test_the_state_of_a_bar_is_read_for_the_progress_line() -> None:
    [(_, state)] = read_bars(bar(3, 52, 7, BARS["decode"].format(496, 5.25)))
    assert (state.phase, state.size, state.done, state.total, state.avail_mem_gb) == (
        "decode",
        496,
        3,
        52,
        5.25,
    )


def test_a_real_log_whose_bar_skips_counts_has_every_shape_once() -> None:
    """SGLang 0.5.12 on one H200: tqdm shows a shape again, with a higher count, before it names the next one."""
    found = read_capture(Path(__file__).parents[1] / "data" / "h200_piecewise_capture.log")
    sizes = {
        phase: [step.num_tokens for step in found.steps if step.phase == phase]
        for phase in ("decode", "compile", "prefill")
    }
    assert [len(one) for one in sizes.values()] == [36, 58, 58]
    assert all(one == sorted(set(one), reverse=True) for one in sizes.values())
    assert found.graph_memory_gb == 1.0 and not found.unfinished
    waits = sum(step.duration_s for step in found.steps if step.phase == "decode")
    assert 71 < waits < 72.64  # the log's own word for the phase, which has more in it than its shapes
