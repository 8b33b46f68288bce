"""What notebook 00 shows: where it ran, the server, throughput and latency."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd

from workbook.report.charts import bench_table, throughput_chart
from workbook.report.figure import Figure
from workbook.report.tables import Table, environment_table, key_value_table, status_cell
from workbook.types import BenchPoint, EnvSnapshot, ServeOutcome

PACKAGES = ("torch", "sglang", "flashinfer-python", "triton", "transformers", "workbook")
VERSIONS = ("sglang", "torch")


def environment(env: EnvSnapshot) -> Table:
    """Where it runs, with the packages that matter here."""
    return environment_table(env, PACKAGES)


def server(serve: ServeOutcome) -> Table:
    """How the server started and what it took."""
    rows = {
        "profile": serve.profile,
        "status": status_cell(serve.status, hint=serve.reason),
        "ready after": f"{serve.ready_s:.0f} s" if serve.ready_s else None,
        "peak memory of its processes": f"{serve.peak_rss_gb:.1f} GB" if serve.peak_rss_gb else None,
    }
    return key_value_table(rows, "The server")


def frame(points: Sequence[BenchPoint]) -> pd.DataFrame:
    """Benchmark points as a table, one row each."""
    return pd.DataFrame([point.model_dump(mode="json") for point in points])


def throughput(points: Sequence[BenchPoint], serve: ServeOutcome, env: EnvSnapshot, when: datetime) -> Figure:
    """Output tokens/s against concurrency, every repeat drawn.

    Args:
        serve: the server that was measured.
        when: the start of the measurement.
    """
    versions = ", ".join(f"{name} {env.packages[name]}" for name in VERSIONS if name in env.packages)
    caption = f"Profile {serve.profile}; {env.hardware}; {versions}; measured on {when:%Y-%m-%d %H:%M} UTC."
    return throughput_chart(frame(points), caption=caption)


def latency(points: Sequence[BenchPoint]) -> Table:
    """TTFT and ITL in milliseconds, where the sample carries the percentile."""
    return bench_table(frame(points))
