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
}


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "benchmarks").glob("*.py")))
def test_a_benchmark_ends_with_a_ratio_to_its_rival(script, embedded):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert RIVALS[script] in done.stdout.splitlines()[-1]
