"""The doctor examines a node behind ssh as it does a local one."""

import pytest

from workbook import catalog
from workbook.doctor.examine import compare_clocks, examine
from workbook.types import Stack

pytestmark = pytest.mark.ssh


def test_a_node_behind_ssh_is_examined(far, described):
    found = {check.name: check for check in examine(far, catalog.load(Stack, "embedded"))}
    assert found["torch"].verdict == found["sglang"].verdict == "ok"
    assert found["work folder"].verdict == "ok" and found["work folder"].found.startswith(described.work)
    assert found["clock"].verdict == "ok"
    flashinfer = found["flashinfer-python"]
    assert flashinfer.verdict == "failed" and flashinfer.remedy.startswith("Run there: ")


def test_its_clock_is_told_by_the_round_trip(far):
    found = compare_clocks(far, far.python)
    assert abs(found.ahead_s) <= found.uncertainty_s < 30
