"""What a call costs over another, in microseconds: both timed in turn, so that what else goes on meets both."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence

ROUNDS, CALLS = 300, 20  # each round times every call in turn, so many times each


def overheads(
    bare: Callable, others: Sequence[Callable], inputs: Sequence, settle: Callable[[], object] = lambda: None
) -> dict:
    """The bare call, and what each other costs over it.

    Args:
        settle: called before each round of a call, untimed: on a GPU, a wait for what was launched.

    Returns:
        `bare_us_p50`; `calls`, how many there were of each; `overheads`, for each of the others the median and the
        range that holds eight tenths of the rounds.
    """
    every = [bare, *others]
    took: list[list[float]] = [[] for _ in every]
    for call in every:
        _timed(call, inputs)  # what only the first calls do
    gc.disable()
    try:
        for number in range(ROUNDS):
            for place in range(len(every)):  # none is always the first
                which = (number + place) % len(every)
                settle()
                took[which].append(_timed(every[which], inputs))
    finally:
        gc.enable()
    return {
        "bare_us_p50": statistics.median(took[0]),
        "calls": ROUNDS * CALLS,
        "overheads": [
            _spread([one - base for one, base in zip(each, took[0], strict=True)]) for each in took[1:]
        ],
    }


def _timed(call: Callable, inputs: Sequence) -> float:
    """Microseconds a call."""
    started = time.perf_counter_ns()
    for _ in range(CALLS):
        call(*inputs)
    return (time.perf_counter_ns() - started) / CALLS / 1000


def _spread(values: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(values, n=10)
    return {
        "overhead_us_p10": tenths[0],
        "overhead_us_p50": statistics.median(values),
        "overhead_us_p90": tenths[-1],
    }
