"""What notebook 00 shows: where it ran, the server, throughput and latency."""

from collections.abc import Sequence

import pandas as pd

from workbook.report.charts import bench_table, throughput_chart
from workbook.report.figure import Figure
from workbook.report.tables import Table, environment_table, key_value_table, status_cell
from workbook.types import BenchPoint, EnvSnapshot, ServeOutcome

PACKAGES = ("torch", "sglang", "flashinfer-python", "triton", "transformers", "workbook")


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


def throughput(points: Sequence[BenchPoint], env: EnvSnapshot) -> Figure:
    """Output tokens/s against concurrency, every repeat drawn."""
    return throughput_chart(frame(points), caption=circumstances(env))


def latency(points: Sequence[BenchPoint]) -> Table:
    """TTFT and ITL in milliseconds, where the sample carries the percentile."""
    return bench_table(frame(points))


def circumstances(env: EnvSnapshot) -> str:
    """What a caption has to say of the circumstances: hardware and versions."""
    versions = ", ".join(
        f"{name} {env.packages[name]}" for name in ("sglang", "torch") if name in env.packages
    )
    return f"{env.hardware}; {versions}."
