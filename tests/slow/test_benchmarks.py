"""The benchmarks run; what they measure is for reading, not for asserting."""

import subprocess
import sys

import pytest

from workbook.paths import ROOT

pytestmark = pytest.mark.slow

RIVALS = {
    "operator_boundary.py": "of the bare call",
    "capture_log.py": "times grep",
    "bench_client.py": "called for each",
    "foresee.py": "times the import",
}
CAMPAIGNS = {"forecasts.py"}  # hours, and no rival


@pytest.mark.timeout(1800)  # a forecast at full depth takes minutes where others are at work
@pytest.mark.parametrize(
    "script", sorted({path.name for path in (ROOT / "benchmarks").glob("*.py")} - CAMPAIGNS)
)
def test_a_benchmark_ends_with_a_ratio_to_its_rival(script, embedded):
    if script == "foresee.py" and not (ROOT / ".stacks" / "sglang-0.5.9").is_dir():
        pytest.skip("no SGLang 0.5.9 here (workbook stack create seed --sources)")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert RIVALS[script] in done.stdout.splitlines()[-1]
