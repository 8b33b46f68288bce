"""The accuracy gate as tables: its verdict, and how alike any two passes were."""

from collections.abc import Sequence
from statistics import median

from workbook.report.tables import MISSING, Cell, Table, key_value_table, status_cell
from workbook.types import AccuracyOutcome, Agreement


def accuracy_tables(outcome: AccuracyOutcome) -> list[Table]:
    """The verdict, then the comparisons that it rests on, where there were any."""
    tables = [verdict_table(outcome)]
    if outcome.noise or outcome.compared:
        tables.append(agreement_table(outcome))
    return tables


def verdict_table(outcome: AccuracyOutcome) -> Table:
    """What the gate says, and why."""
    return key_value_table(
        {
            "candidate": outcome.candidate,
            "baseline": outcome.baseline,
            "verdict": status_cell(outcome.status),
            "why": outcome.reason,
        },
        "Accuracy gate: the same prompts at temperature 0",
    )


def agreement_table(outcome: AccuracyOutcome) -> Table:
    """A row for each two passes that were compared: first the baseline with itself, then with the candidate."""
    rows = [
        *_rows("baseline with itself", outcome.noise),
        *_rows("baseline with candidate", outcome.compared),
    ]
    columns = (
        "passes",
        "compared",
        "prompts",
        "tokens",
        "equal tokens",
        "prompts that part",
        "first position (median)",
        "log-prob. difference, nats",
        "change at parting, nats",
    )
    caption = (
        "How alike two passes are. Positions count from 0; from where two answers part, their tokens have nothing in "
        "common; both differences are the largest of all prompts"
    )
    return Table(columns, tuple(rows), caption)


def _rows(kind: str, found: Sequence[Agreement]) -> list[tuple[object, ...]]:
    return [
        (
            one.name,
            kind,
            one.prompts,
            one.tokens,
            Cell(f"{one.equal_share:.2%}", number=True),
            sum(position is not None for position in one.first_divergence),
            _first(one.first_divergence),
            one.max_logprob_diff,
            one.max_flip,
        )
        for one in found
    ]


def _first(positions: Sequence[int | None]) -> Cell:
    parted = [position for position in positions if position is not None]
    return Cell(f"{min(parted)} ({median(parted):g})" if parted else MISSING, number=True)
