"""The capture of CUDA graphs as a waterfall."""

from workbook.report.waterfall import capture_table_rows, waterfall_chart
from workbook.types import CaptureStep, ServeOutcome


def steps(label: str, phase: str, sizes: list[int], rank: int = 0, longest: float = 1.0) -> list[CaptureStep]:
    return [
        CaptureStep(
            label=label, rank=rank, phase=phase, num_tokens=size, start_s=5 + at,
            duration_s=longest if at == 0 else 1.0, avail_mem_gb=40 - at,
        )
        for at, size in enumerate(sizes)
    ]  # fmt: skip


def server(label: str, status: str = "ok", **changes: object) -> ServeOutcome:
    return ServeOutcome.model_validate(
        {"profile": "p", "command": "", "label": label, "status": status} | changes
    )


def test_the_failing_shape_of_a_server_that_never_was_ready_is_marked_with_its_reason() -> None:
    found = [*steps("A", "decode", [8, 4]), *steps("A", "piecewise", [64, 32, 16])]
    chart = waterfall_chart(found, [server("A", "dynamo_unsupported")])
    assert chart.title == "A: piecewise capture ended at 16 tokens, shape 3 in order (dynamo unsupported)"
    assert len(chart.data) == 5


def test_a_server_that_died_after_it_was_ready_had_captured_everything() -> None:
    chart = waterfall_chart(steps("A", "decode", [8, 4]), [server("A", "crashed", ready_s=30.0)])
    assert chart.title == "A · decode: 2 shapes in 2.0 s"


def test_one_shape_that_took_most_of_the_time_is_named() -> None:
    chart = waterfall_chart(steps("A", "decode", [64, 8, 4], longest=9.0), [server("A")])
    assert "64 tokens took" in chart.title


def test_ranks_have_rows_of_their_own() -> None:
    found = [*steps("A", "decode", [8, 4], rank=0), *steps("A", "decode", [8, 4], rank=1)]
    rows = capture_table_rows(found)
    assert [row[2] for row in rows] == [0, 1]
    assert [row[4] for row in rows] == [2.0, 2.0]
    assert "rank 1" in waterfall_chart(found, [server("A")]).alt


def test_hostile_labels_are_words() -> None:
    chart = waterfall_chart(steps("<script>$x$", "decode", [8]), [])
    assert "<script>" not in chart._repr_html_()
