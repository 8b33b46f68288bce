"""How the raw records of SGLang's serving benchmark are read."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbook.errors import WorkbookError
from workbook.types import BenchPoint

METRICS = ("ttft", "itl")
PERCENTILES = (50, 90, 99)


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


def parse_point(
    raw: Mapping[str, Any],
    *,
    run_id: str,
    label: str,
    concurrency: int,
    repeat: int,
    requested: int,
    seed: int,
) -> BenchPoint:
    """One record as a point.

    The client knows completed requests only: those of `requested` that it does not count have failed. A
    percentile is the client's own, else taken from its per-request details (before 0.5.14 it gives no p90).

    Raises:
        WorkbookError: a number is missing or cannot be, with its name.
    """
    completed = int(_number(raw, "completed"))
    if completed > requested:
        raise WorkbookError(
            f"A benchmark record says that {completed} of {requested} requests were completed.",
            "It does not belong to this point; measure the point again.",
        )
    samples = latencies_ms(raw)
    percentiles: dict[str, Any] = {
        f"{metric}_ms_p{quantile}": _percentile(raw, metric, quantile, samples.get(metric))
        for metric in METRICS
        for quantile in PERCENTILES
        if completed
    }
    return BenchPoint(
        run_id=run_id,
        label=label,
        concurrency=concurrency,
        repeat=repeat,
        requested=requested,
        completed=completed,
        failed=requested - completed,
        duration_s=_number(raw, "duration"),
        output_tok_s=_number(raw, "output_throughput"),
        seed=seed,
        **percentiles,
    )


def latencies_ms(raw: Mapping[str, Any]) -> dict[str, list[float]]:
    """TTFT and ITL of the completed requests in ms; without those metrics of which the record has no details.

    A failed request stands in the details as well, with a TTFT of zero and no output.
    """
    lengths, found = raw.get("output_lens"), {}
    if lengths is not None and "ttfts" in raw:
        found["ttft"] = [1000 * ttft for ttft, n in zip(raw["ttfts"], lengths, strict=True) if n]
    if lengths is not None and "itls" in raw:
        found["itl"] = [1000 * itl for itls, n in zip(raw["itls"], lengths, strict=True) if n for itl in itls]
    return found


def _percentile(
    raw: Mapping[str, Any], metric: str, quantile: int, samples: Sequence[float] | None
) -> float | None:
    if samples is not None and not samples:
        return None  # the client's summary says 0 then
    name = f"median_{metric}_ms" if quantile == 50 else f"p{quantile}_{metric}_ms"
    if name in raw:
        return _number(raw, name)
    return None if samples is None else float(np.percentile(samples, quantile))


def _number(raw: Mapping[str, Any], name: str) -> float:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise WorkbookError(
            f"A benchmark record has {name} = {value!r}, where a number from 0 up belongs.",
            "It is damaged, or of an SGLang whose benchmark the workbook does not know.",
        )
    return float(value)
