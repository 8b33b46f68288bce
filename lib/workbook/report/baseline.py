"""What a measured server is shown by: where it ran, its life, throughput, latency, capture, telemetry."""

from collections.abc import Sequence
from datetime import datetime
from statistics import mean

import pandas as pd

from workbook.report.charts import bench_table, throughput_chart
from workbook.report.figure import Figure
from workbook.report.group import Displayed, Markup
from workbook.report.tables import Table, environment_table, status_cell
from workbook.report.telemetry import telemetry_table
from workbook.report.text import escape
from workbook.report.waterfall import waterfall_chart
from workbook.types import BenchPoint, EnvSnapshot, Measurement, SweepEnd

PACKAGES = ("torch", "sglang", "flashinfer-python", "triton", "transformers", "workbook")
VERSIONS = ("sglang", "torch")


def environment(env: EnvSnapshot) -> Table:
    """Where it runs, with the packages that matter here."""
    return environment_table(env, PACKAGES)


def servers(found: Measurement) -> Displayed:
    """How each server started, what it took, and what it left behind."""
    if not found.serves:
        return Markup("<p>No server was started.</p>")
    rows = tuple(
        (
            serve.label or serve.profile,
            status_cell(serve.status, hint=serve.reason),
            serve.patch_level,
            _unit(serve.ready_s, "s"),
            _unit(serve.capture_s, "s", digits=1),
            _unit(serve.graph_memory_gb, "GB", digits=2),
            _unit(serve.peak_rss_gb, "GB", digits=1),
            ", ".join(serve.left_behind) or "nothing",
            serve.reason,
        )
        for serve in found.serves
    )
    columns = (
        "server", "status", "patch level", "ready after", "capture took", "graphs take", "peak host memory",
        "left behind", "why it ended",
    )  # fmt: skip
    profiles = ", ".join(dict.fromkeys(serve.profile for serve in found.serves))
    return Table(columns, rows, f"The servers of profile {profiles}")


def commands(found: Measurement) -> Markup:
    """What was run, ready to paste; a server that was refused has none."""
    parts = [
        f"<p>{escape(serve.label)}:</p><pre>{escape(serve.command)}</pre>"
        for serve in {serve.label: serve for serve in found.serves}.values()
        if serve.command
    ]
    return Markup("".join(parts) or "<p>No server was started.</p>")


def _unit(value: float | None, unit: str, digits: int = 0) -> str | None:
    return None if value is None else f"{value:.{digits}f} {unit}"


def frame(points: Sequence[BenchPoint]) -> pd.DataFrame:
    """Benchmark points as a table, one row each."""
    return pd.DataFrame([point.model_dump(mode="json") for point in points])


def caption(found: Measurement, env: EnvSnapshot, when: datetime) -> str:
    """Model, hardware, versions and date, for a figure.

    Args:
        when: the start of the measurement.
    """
    if not found.serves:
        return ""
    versions = ", ".join(f"{name} {env.packages[name]}" for name in VERSIONS if name in env.packages)
    return f"Profile {found.serves[0].profile}; {env.hardware}; {versions}; measured on {when:%Y-%m-%d %H:%M} UTC."


def throughput(found: Measurement, caption: str) -> Figure:
    """Output tokens/s against concurrency, every repeat drawn; with two labels also the ratio."""
    return throughput_chart(frame(found.points), caption=caption)


def latency(found: Measurement) -> Table:
    """TTFT and ITL in milliseconds, where the sample carries the percentile."""
    return bench_table(frame(found.points))


def repeats(found: Measurement) -> Table:
    """Why the repeats of each point ended, and what is to be known of it."""
    rows = tuple(
        (
            end.label,
            end.concurrency,
            end.repeats,
            None if end.half_width is None else f"± {end.half_width:.1%}",
            end.ended_by,
            _share(found, end, "prefill_in_graph"),
            _share(found, end, "decode_in_graph"),
            " ".join(dict.fromkeys(_caveats(found, end))) or "none",
        )
        for end in found.ends
    )
    columns = (
        "label", "concurrency", "repeats", "95 % interval of the mean", "ended by", "prefill in a graph",
        "decode in a graph", "caveats",
    )  # fmt: skip
    return Table(
        columns, rows, "How sure each point is (an interval takes five repeats), and what ran in a graph"
    )


def _share(found: Measurement, end: SweepEnd, name: str) -> str | None:
    """The share of batches over all repeats of a point, as the servers' logs told."""
    told = [value for point in _of(found, end) if (value := getattr(point, name)) is not None]
    return f"{mean(told):.0%}" if told else None


def _of(found: Measurement, end: SweepEnd) -> list[BenchPoint]:
    return [one for one in found.points if (one.label, one.concurrency) == (end.label, end.concurrency)]


def _caveats(found: Measurement, end: SweepEnd) -> list[str]:
    return [point.caveat for point in _of(found, end) if point.caveat]


def capture(found: Measurement, caption: str) -> Displayed:
    """The captured shapes in order against time."""
    if not found.steps:
        return Markup("<p>No server captured a CUDA graph.</p>")
    chart = waterfall_chart(found.steps, found.serves, caption=caption)
    return chart


def telemetry(found: Measurement) -> Displayed:
    """What the GPUs did meanwhile: load, memory, power, clocks, throttling."""
    return telemetry_table(found.samples) if found.samples else Markup("<p>No GPU here, so no telemetry.</p>")
