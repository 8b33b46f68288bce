"""What the GPUs did meanwhile, as a table: a GPU a row."""

from collections.abc import Sequence

from workbook.report.style import GOOD, WARN
from workbook.report.tables import MISSING, Cell, Table
from workbook.serving.gpu_samples import LOADED_PERCENT, GpuSummary, summaries, throttled_spans
from workbook.types import GpuSample


def telemetry_table(samples: Sequence[GpuSample]) -> Table:
    """Load, memory, power, clock and throttling of each GPU over all samples."""
    spans = throttled_spans(samples)
    rows = tuple(
        (
            f"GPU {one.gpu}",
            round(one.seconds),
            _pair(one.utilization_mean, one.utilization_max),
            one.memory_gb,
            _pair(one.power_mean, one.power_max),
            one.temperature_max,
            None if one.clock_mhz is None else round(one.clock_mhz),
            _throttled(one, sum(span.gpu == one.gpu for span in spans)),
        )
        for one in summaries(samples)
    )
    columns = (
        "",
        "seconds",
        "utilisation %, mean (most)",
        "memory GB, most",
        "power W, mean (most)",
        "°C, most",
        "lowest SM clock, MHz",
        "throttled",
    )
    caption = (
        f"Sampled about once a second; the lowest clock is that from {LOADED_PERCENT:.0f} % utilisation on"
    )
    return Table(columns, rows, caption)


def _pair(mean: float | None, most: float | None) -> Cell:
    return Cell(MISSING if mean is None or most is None else f"{mean:.0f} ({most:.0f})", number=True)


def _throttled(one: GpuSummary, times: int) -> Cell:
    if not times:
        return Cell("never", glyph="✓", tone=GOOD)
    reasons = ", ".join(f"{reason} {share:.0%}" for reason, share in one.reasons.items())
    return Cell(
        f"{one.throttled:.0%} of the time: {reasons}",
        glyph="!",
        tone=WARN,
        hint=f"{times} span{'s' * (times != 1)}; figures of that time compare with none of another",
    )
