"""Telemetry of a real GPU under a real load."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from workbook.report.telemetry import telemetry_table
from workbook.serving.gpu_samples import summaries
from workbook.serving.telemetry import Telemetry

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no GPU on this machine"),
    pytest.mark.skipif(find_spec("torch") is None, reason="no torch in this environment"),
]

LOAD = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 8
while time.monotonic() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def test_a_load_is_seen_in_every_figure(node, tmp_path: Path):
    with Telemetry(node, tmp_path / "telemetry.log") as telemetry:
        subprocess.run([sys.executable, "-c", LOAD], check=True, timeout=300)
    assert telemetry.missing == ""
    busiest = max(summaries(telemetry.samples()), key=lambda one: one.utilization_max or 0)
    print(busiest)
    print("\n".join(map(str, telemetry_table(telemetry.samples()).rows)))
    assert busiest.samples >= 8
    assert busiest.utilization_max is not None and busiest.utilization_max > 90
    assert busiest.power_max is not None and busiest.power_max > 150
    assert busiest.clock_mhz is not None and busiest.clock_mhz > 500
    assert busiest.memory_gb is not None and busiest.memory_gb > 0.3
    assert busiest.temperature_max is not None and 15 < busiest.temperature_max < 100
