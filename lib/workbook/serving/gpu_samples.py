"""What samples of GPUs say: how busy each was, and when its clock was held down. No node is asked."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from statistics import mean, median

from pydantic import ValidationError

from workbook.types import GpuSample

LOADED_PERCENT = 50.0
"""Utilisation from which on a GPU counts as under load."""
GAP_PERIODS = 3
"""A pause of so many sampling periods ends a span: what was in it is not known."""


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over some time. A figure is None where no sample tells it.

    Args:
        samples: how many there are.
        seconds: from the first to the last.
        memory_gb: the most, in GB of 10^9 bytes.
        clock_mhz: the lowest SM clock under load.
        throttled: the share of samples at which the clock was held down.
        reasons: for each reason the share of samples, the most frequent first.
    """

    gpu: int
    samples: int
    seconds: float
    utilization_mean: float | None
    utilization_max: float | None
    power_mean: float | None
    power_max: float | None
    memory_gb: float | None
    temperature_max: float | None
    clock_mhz: float | None
    throttled: float
    reasons: dict[str, float]


@dataclass(frozen=True)
class Span:
    """A time over which a GPU's clock was held down, from its first sample to its last, and all reasons for it."""

    gpu: int
    start_s: float
    end_s: float
    reasons: tuple[str, ...]


def read_samples(log: Path) -> tuple[list[GpuSample], str]:
    """The samples in what probes/telemetry.py wrote, and why there are no more; a last line cut short is left out."""
    samples, none = [], ""
    for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
        try:
            record = json.loads(line)
            if isinstance(record, dict) and "none" in record:
                none = str(record["none"])
            else:
                samples.append(GpuSample.model_validate(record))
        except (ValueError, ValidationError):
            continue
    return samples, none


def between(samples: Iterable[GpuSample], start_s: float, end_s: float) -> list[GpuSample]:
    """The samples of a time, in seconds since the epoch, such as that of one benchmark point."""
    return [one for one in samples if start_s <= one.time_s <= end_s]


def summaries(samples: Iterable[GpuSample]) -> list[GpuSummary]:
    """A summary for each GPU, by index."""
    return [_summary(gpu, own) for gpu, own in _by_gpu(samples)]


def throttled_spans(samples: Iterable[GpuSample]) -> list[Span]:
    """When each GPU's clock was held down, by GPU and time."""
    return [span for gpu, own in _by_gpu(samples) for span in _spans(gpu, own)]


def _by_gpu(samples: Iterable[GpuSample]) -> list[tuple[int, list[GpuSample]]]:
    ordered = sorted(samples, key=lambda one: (one.gpu, one.time_s))
    return [(gpu, list(own)) for gpu, own in groupby(ordered, key=lambda one: one.gpu)]


def _summary(gpu: int, own: Sequence[GpuSample]) -> GpuSummary:
    def told(name: str, among: Sequence[GpuSample] = own) -> list[float]:
        return [value for one in among if (value := getattr(one, name)) is not None]

    loaded = [one for one in own if (one.utilization_percent or 0) >= LOADED_PERCENT]
    counts = Counter(reason for one in own for reason in one.throttled)
    utilization, power = told("utilization_percent"), told("power_w")
    return GpuSummary(
        gpu=gpu,
        samples=len(own),
        seconds=own[-1].time_s - own[0].time_s,
        utilization_mean=mean(utilization) if utilization else None,
        utilization_max=max(utilization, default=None),
        power_mean=mean(power) if power else None,
        power_max=max(power, default=None),
        memory_gb=max(told("memory_gb"), default=None),
        temperature_max=max(told("temperature_c"), default=None),
        clock_mhz=min(told("sm_clock_mhz", loaded), default=None),
        throttled=sum(bool(one.throttled) for one in own) / len(own),
        reasons={reason: count / len(own) for reason, count in counts.most_common()},
    )


def _spans(gpu: int, own: Sequence[GpuSample]) -> list[Span]:
    steps = [later.time_s - earlier.time_s for earlier, later in pairwise(own)]
    longest = GAP_PERIODS * median(steps) if steps else 0.0
    spans: list[list[GpuSample]] = []
    before: GpuSample | None = None
    for one in own:
        if one.throttled:
            if before is not None and before.throttled and one.time_s - before.time_s <= longest:
                spans[-1].append(one)
            else:
                spans.append([one])
        before = one
    return [
        Span(
            gpu,
            span[0].time_s,
            span[-1].time_s,
            tuple(dict.fromkeys(r for one in span for r in one.throttled)),
        )
        for span in spans
    ]
