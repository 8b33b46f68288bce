"""What was found about servers, kept in a run and read back."""

import pytest

from tests.unit.test_report_ratio import both
from tests.unit.test_report_waterfall import server, steps
from tests.unit.test_store import ENV
from workbook import measurements, recorded, store
from workbook.errors import WorkbookError
from workbook.report import compare
from workbook.types import GpuSample, Measurement, Status, SweepEnd

FOUND = Measurement(
    serves=(server("A"), server("B")),
    steps=tuple(steps("A", "decode", [8, 4])),
    points=tuple(both([(100.0, 120.0)] * 2)),
    ends=(SweepEnd(label="A", concurrency=8, repeats=2, half_width=None, ended_by="repeats spent"),),
    samples=(GpuSample(time_s=1.0, gpu=0, power_w=80.0),),
)


@pytest.mark.parametrize("found", [FOUND, Measurement()])
def test_what_is_kept_is_read_back(runs, found):
    run = store.create("c", "03_piecewise", "l", {})
    measurements.keep(run, found)
    sealed = run.seal(Status.OK, ENV, verdict="v")
    assert measurements.read(sealed.path) == found
    assert len(sealed.table("points")) == len(found.points)


def test_a_damaged_file_is_a_sentence(runs):
    run = store.create("c", "03_piecewise", "l", {})
    measurements.keep(run, FOUND)
    (run.path / "points.json").write_text('[{"label": 1}]')
    with pytest.raises(WorkbookError, match="damaged") as caught:
        measurements.read(run.path)
    assert "\n" not in str(caught.value)


def test_the_recorded_comparison_is_shown_with_its_provenance_first():
    provenance, found = recorded.serving()
    page = compare.recorded(provenance, found)._repr_html_()
    assert page.startswith("<p><strong>Recorded on 2026-11-30, one NVIDIA H200")
    assert "no difference seen" in page and "baseline with itself" in page
    assert [serve.left_behind for serve in found.serves] == [(), ()]
