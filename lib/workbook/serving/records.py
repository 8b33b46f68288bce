"""How the raw records of SGLang's serving benchmark become points.

The benchmark's own summary is not used: a point may be spread over several of its processes, whose percentiles cannot
be averaged. It is made anew from the requests, by the benchmark's definitions: TTFT and the gaps between tokens (ITL)
of the requests that came back, output tokens over the time from the first process's start to the last one's end.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from workbook.errors import WorkbookError
from workbook.types import BenchPoint

PERCENTILES = (50, 90, 99)
SATURATED = 0.9  # CPU time over wall time from which on a client's process may be what is measured
SAME_WITHIN = 0.05  # how far the client's and the server's counts of tokens may be apart
BURST = 0.25  # a median gap below this share of the median time per token is the gap within a burst


@dataclass(frozen=True)
class Answer:
    """What came back of one request; of a failed one nothing, and zero tokens.

    Args:
        tokens: output tokens, as the benchmark counts them.
        ttft_s: seconds to the first one; zero where no text came.
        gaps_s: seconds between tokens after that.
    """

    tokens: int
    ttft_s: float
    gaps_s: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """What the client saw of one point beside the requests.

    Args:
        clients: processes that sent them.
        seconds: from the first one's start to the last one's end.
        client_cpu: CPU time of the busiest over its wall time.
        server_tokens: output tokens by the server's own counter in that time; None where it has none.
    """

    clients: int
    seconds: float
    client_cpu: float
    server_tokens: float | None = None


def read_raw(path: Path) -> dict[str, Any]:
    """The one record in a raw file.

    Raises:
        WorkbookError: there is not exactly one, or it is not a JSON object.
    """
    try:
        records = [json.loads(line) for line in path.read_text(errors="replace").splitlines()]
    except json.JSONDecodeError as error:
        raise WorkbookError(f"{path} is not JSON: {error}.", "Measure that point again.") from error
    if len(records) != 1 or not isinstance(records[0], dict):
        raise WorkbookError(f"{path} has {len(records)} records, not one.", "Measure that point again.")
    return records[0]


def answers(raw: Mapping[str, Any]) -> list[Answer]:
    """The requests of one record, failed ones too.

    Raises:
        WorkbookError: its details are missing or cannot be, with the name of the first.
    """
    counts, ttfts = _numbers(raw, "output_lens"), _numbers(raw, "ttfts")
    gaps = raw.get("itls")
    if not isinstance(gaps, list) or not len(gaps) == len(counts) == len(ttfts):
        raise _wrong("itls", "a list, as long as output_lens and ttfts, belongs there")
    found = [
        Answer(int(tokens), ttft, tuple(_numbers({"itls": one}, "itls")))
        for tokens, ttft, one in zip(counts, ttfts, gaps, strict=True)
    ]
    completed = sum(1 for one in found if one.tokens)
    if raw.get("completed") != completed:
        raise _wrong("completed", f"{raw.get('completed')!r} stands where {completed} requests came back")
    return found


def parse_point(
    found: Sequence[Answer],
    measured: Measured,
    *,
    run_id: str,
    label: str,
    concurrency: int,
    repeat: int,
    requested: int,
    output_tokens: int,
    seed: int,
    counts_told: bool = True,
) -> BenchPoint:
    """The answers of all client processes as one point.

    Args:
        found: in any order.
        measured: the time they took, and what the client's processes did.
        requested: requests that were sent.
        output_tokens: that each was asked for.
        counts_told: the server tells how many tokens an answer has; else the client takes them to be as many as asked.

    Raises:
        WorkbookError: there are more answers than requests, or no time passed.
    """
    if len(found) > requested or measured.seconds <= 0:
        raise WorkbookError(
            f"A benchmark record has {len(found)} requests of {requested}, in {measured.seconds:g} s.",
            "It does not belong to this point; measure the point again.",
        )
    back = [one for one in found if one.tokens]
    tokens = sum(one.tokens for one in back)
    short = sum(1 for one in back if one.tokens < output_tokens or not one.ttft_s)
    counted = measured.server_tokens
    if not counts_told and counted is not None and counted < (1 - SAME_WITHIN) * tokens:
        short = max(short, math.ceil((tokens - counted) / output_tokens))
    point = BenchPoint(
        run_id=run_id,
        label=label,
        concurrency=concurrency,
        repeat=repeat,
        requested=requested,
        completed=len(back),
        failed=requested - len(back),
        short=short,
        duration_s=measured.seconds,
        output_tok_s=tokens / measured.seconds,
        **_percentiles("ttft", [one.ttft_s for one in back if one.ttft_s]),
        **_percentiles("itl", [gap for one in back for gap in one.gaps_s]),
        seed=seed,
        clients=measured.clients,
        client_cpu=measured.client_cpu,
        server_tok_s=None if counted is None else counted / measured.seconds,
    )
    words = _caveats(point, median_tpot_ms(back), output_tokens, counts_told)
    return point.model_copy(update={"caveat": "; ".join(words)})


def median_tpot_ms(back: Iterable[Answer]) -> float | None:
    """The median over requests of the mean time per output token after the first, in milliseconds."""
    means = [1000 * sum(one.gaps_s) / (one.tokens - 1) for one in back if one.tokens > 1 and one.gaps_s]
    return median(means) if means else None


def _caveats(
    point: BenchPoint, tpot_ms: float | None, output_tokens: int, counts_told: bool
) -> Iterable[str]:
    if point.failed:
        yield f"{point.failed} of {point.requested} requests failed, so it is not averaged"
    if point.short:
        yield (
            f"{'' if counts_told else 'at least '}{point.short} of {point.completed} answers were shorter than the "
            f"{output_tokens} tokens asked for, so it is not averaged"
        )
    if not counts_told and point.server_tok_s is None:
        yield "the server tells no token counts, so each answer is taken to be as long as was asked for"
    if point.client_cpu is not None and point.client_cpu > SATURATED:
        yield (
            f"the busiest of {point.clients} client processes took {point.client_cpu:.0%} of a core: "
            "the client may be what was measured, not the server"
        )
    if point.server_tok_s is not None and point.output_tok_s < (1 - SAME_WITHIN) * point.server_tok_s:
        yield (
            f"the server generated {point.server_tok_s:,.0f} tok/s by its own counter, the client received "
            f"{point.output_tok_s:,.0f}: someone else used it too, or answers were lost"
        )
    if tpot_ms is not None and point.itl_ms_p50 is not None and point.itl_ms_p50 < BURST * tpot_ms:
        yield (
            f"tokens came in bursts: the median gap is {point.itl_ms_p50:.3g} ms, but a token took "
            f"{tpot_ms:.3g} ms, so ITL is no latency here"
        )


def _percentiles(metric: str, seconds: Sequence[float]) -> dict[str, Any]:
    """The percentiles in milliseconds; none without a sample."""
    if not seconds:
        return {}
    import numpy as np  # commands that measure nothing need not wait for it

    found = np.percentile(seconds, PERCENTILES)
    return {f"{metric}_ms_p{q}": 1000 * float(one) for q, one in zip(PERCENTILES, found, strict=True)}


def _numbers(raw: Mapping[str, Any], name: str) -> list[float]:
    values = raw.get(name)
    if not isinstance(values, list):
        raise _wrong(name, f"{values!r} stands where a list of numbers belongs")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise _wrong(name, f"it has {value!r}, where a number from 0 up belongs")
    return values


def _wrong(name: str, what: str) -> WorkbookError:
    return WorkbookError(
        f"A benchmark record has a wrong {name}: {what}.",
        "It is damaged, or of an SGLang whose benchmark the workbook does not know.",
    )
