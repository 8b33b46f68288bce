"""Telemetry against a stub of NVML, and what its samples are made to say."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.processes import is_running, wait_for
from workbook.errors import WorkbookError
from workbook.node.local import LocalConnection
from workbook.report.telemetry import telemetry_table
from workbook.serving.gpu_samples import between, read_samples, summaries, throttled_spans
from workbook.serving.telemetry import Telemetry
from workbook.types import GpuSample, Node

STUB = Path(__file__).parents[1] / "data" / "stub_pynvml"


def node(**env: str) -> LocalConnection:
    return LocalConnection(Node(name="here", env={"PYTHONPATH": str(STUB), **env}))


def sampled(folder: Path, count: int, **env: str) -> Telemetry:
    with Telemetry(node(**env), folder / "telemetry.log", period_s=0.1) as telemetry:
        wait_for(lambda: len(telemetry.samples()) >= count)
        assert telemetry._process is not None and is_running(telemetry._process.pid)
    assert not is_running(telemetry._process.pid)
    return telemetry


def test_every_gpu_is_sampled_and_what_it_does_not_tell_is_missing(tmp_path: Path) -> None:
    before = time.time()
    telemetry = sampled(tmp_path, 6)
    samples = telemetry.samples()
    assert {one.gpu for one in samples} == {0, 1} and telemetry.missing == ""
    assert all(before <= one.time_s <= time.time() for one in samples)
    first, second = samples[:2]
    assert first.model_dump(exclude={"time_s"}) == {
        "gpu": 0, "utilization_percent": 97, "memory_gb": 80.0, "power_w": 699.5, "sm_clock_mhz": 1755,
        "temperature_c": 61, "throttled": ("power cap", "thermal, hardware"),
    }  # fmt: skip
    assert (second.power_w, second.sm_clock_mhz) == (None, None)
    assert second.throttled == ()  # idle, set and tied clocks are no throttling
    times = [one.time_s for one in samples if one.gpu == 0]
    assert all(later - earlier > 0.05 for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("visible", "gpus"), [("1", {1}), ("GPU-aaaa", {0}), ("0,1", {0, 1}), ("1,-1,0", {1})]
)
def test_visible_gpus_alone_are_sampled(tmp_path: Path, visible: str, gpus: set[int]) -> None:
    assert {one.gpu for one in sampled(tmp_path, 4, CUDA_VISIBLE_DEVICES=visible).samples()} == gpus


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"STUB_NVML": "no driver"}, "NVML: Driver Not Loaded"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "no GPU is visible"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, "NVML: Invalid Argument"),
    ],
)
def test_a_node_without_a_gpu_says_so_once_and_yields_nothing(
    tmp_path: Path, env: dict[str, str], why: str
) -> None:
    told: list[str] = []
    with Telemetry(node(**env), tmp_path / "telemetry.log", say=told.append) as telemetry:
        wait_for(lambda: telemetry.missing == why)
    assert telemetry.samples() == [] and told == [f"No telemetry of here: {why}."]


def test_a_log_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "telemetry.log").touch()
    with pytest.raises(WorkbookError, match="there already"):
        Telemetry(node(), tmp_path / "telemetry.log")


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "telemetry.log"
    log.write_text('a warning\n{"time_s": 1.0, "gpu": 0}\n[1]\n{"time_s": 2.0, "gpu"')
    assert read_samples(log) == ([GpuSample(time_s=1.0, gpu=0)], "")
    assert read_samples(tmp_path / "none.log") == ([], "")


def at(time_s: float, *throttled: str, gpu: int = 0, **figures: Any) -> GpuSample:
    return GpuSample(time_s=time_s, gpu=gpu, throttled=throttled, **figures)


def test_spans_end_where_the_clock_is_free_or_samples_are_missing() -> None:
    samples = [
        at(0), at(1, "power cap"), at(2, "power cap", "thermal, hardware"), at(3), at(4, "power cap"),
        at(20, "power cap"), at(2, "thermal, software", gpu=1),
    ]  # fmt: skip
    found = [(span.gpu, span.start_s, span.end_s, span.reasons) for span in throttled_spans(samples)]
    assert found == [
        (0, 1, 2, ("power cap", "thermal, hardware")),
        (0, 4, 4, ("power cap",)),
        (0, 20, 20, ("power cap",)),
        (1, 2, 2, ("thermal, software",)),
    ]


def test_a_summary_has_the_lowest_clock_under_load_and_the_share_of_each_reason() -> None:
    samples = [
        at(10, utilization_percent=0, sm_clock_mhz=345, power_w=80, memory_gb=1),
        at(11, "power cap", utilization_percent=100, sm_clock_mhz=1500, power_w=700, memory_gb=90),
        at(12, "power cap", "thermal, hardware", utilization_percent=98, sm_clock_mhz=1200, power_w=690),
        at(13, utilization_percent=2, sm_clock_mhz=345, temperature_c=70),
    ]
    (one,) = summaries(samples)
    assert (one.samples, one.seconds, one.clock_mhz, one.throttled) == (4, 3, 1200, 0.5)
    assert one.reasons == {"power cap": 0.5, "thermal, hardware": 0.25}
    assert (one.utilization_mean, one.utilization_max, one.power_max, one.memory_gb) == (50, 100, 700, 90)
    (calm,) = summaries(between(samples, 12.5, 20))
    assert (calm.samples, calm.throttled, calm.clock_mhz, calm.power_mean) == (1, 0, None, None)


def test_the_table_marks_a_throttled_gpu_and_no_other() -> None:
    samples = [at(1, "power cap", utilization_percent=100), at(2, utilization_percent=100), at(1, gpu=1)]
    table = telemetry_table(samples)
    page = table._repr_html_()
    assert "50% of the time: power cap 50%" in page and page.count("never") == 1
    assert [row[0] for row in table.rows] == ["GPU 0", "GPU 1"]
