"""The gate's tables."""

from workbook.report.accuracy import accuracy_tables
from workbook.types import AccuracyOutcome, Agreement, Status

NOISE = Agreement(
    name="eager, pass 1 / eager, pass 2",
    prompts=4,
    tokens=64,
    equal_share=0.78125,
    first_divergence=(None, 2, 7, 12),
    max_logprob_diff=0.0625,
    max_flip=0.125,
)
COMPARED = Agreement(
    name="eager, pass 1 / <b>piecewise</b>, pass 1",
    prompts=4,
    tokens=64,
    equal_share=1.0,
    first_divergence=(None,) * 4,
)


def outcome(**changes: object) -> AccuracyOutcome:
    told = {
        "baseline": "eager", "candidate": "<b>piecewise</b>", "status": Status.WRONG_OUTPUT,
        "reason": "prompt 3 is 8 nats away", "noise": (NOISE,), "compared": (COMPARED,),
    }  # fmt: skip
    return AccuracyOutcome.model_validate(told | changes)


def test_the_verdict_stands_first_with_its_reason() -> None:
    verdict, agreements = accuracy_tables(outcome())
    page = verdict._repr_html_()
    assert "wrong output" in page and "prompt 3 is 8 nats away" in page
    assert "<b>" not in page + agreements._repr_html_()


def test_a_row_tells_where_answers_part_and_a_gap_where_none_does() -> None:
    _, table = accuracy_tables(outcome())
    noise, compared = table.rows
    assert [getattr(value, "text", value) for value in noise] == [
        "eager, pass 1 / eager, pass 2", "baseline with itself", 4, 64, "78.12%", 3, "2 (7)", 0.0625, 0.125,
    ]  # fmt: skip
    assert [getattr(value, "text", value) for value in compared][4:] == ["100.00%", 0, "–", None, None]


def test_a_client_that_failed_has_a_verdict_alone() -> None:
    tables = accuracy_tables(outcome(status=Status.CRASHED, noise=(), compared=(), reason="it broke off"))
    assert len(tables) == 1 and "crashed" in tables[0]._repr_html_()
