"""A report is made of one campaign's newest runs, of one kind of hardware."""

import pytest

from tests.unit.report_samples import forecast, model_stop
from tests.unit.test_diagnosis import recorded
from tests.unit.test_store import ENV, point
from workbook import store
from workbook.errors import UsageError, WorkbookError
from workbook.report import summary
from workbook.report.evidence import anchor, gather, stage_outcomes
from workbook.types import Foretold, Gpu, ServeOutcome, Stage, Status

ALL = [recorded(level, state) for level in range(5) for state in ("cold", "warm")]
POINTS = (point(),)
GPU = Gpu(index=0, name="NVIDIA H200", compute_capability="9.0", memory_gb=140.0)


def baseline(env=ENV, label="baseline", points=POINTS, status=Status.OK):
    run = store.create("c", "00_baseline", label, {})
    run.add_table("points", list(points))
    run.add_records("serve", [ServeOutcome(profile="tiny-cpu", status=status, command="x", ready_s=20.0)])
    return run.seal(Status.OK, env, verdict="v")


def patches():
    run = store.create("c", "02_flashinfer_patches", "patches", {})
    run.add_records("outcomes", ALL)
    return run.seal(Status.OK, ENV, verdict="v")


def test_the_newest_run_of_each_notebook_and_label_counts(runs, monkeypatch):
    baseline()
    newer, other = baseline(points=[point(), point()]), baseline(label="other")
    found = gather("c")
    assert set(found.ids) == {newer.id, other.id}
    assert sorted(len(one.found.points) for one in found.baselines) == [1, 2]


def test_named_runs_alone_are_taken_and_must_exist(runs):
    first, _ = baseline(), baseline()
    assert gather("c", first.id).ids == [first.id]
    with pytest.raises(UsageError, match="No finished run 'x' in this campaign; it has"):
        gather("c", "x")


def test_runs_of_different_versions_do_not_meet(runs):
    baseline(ENV.model_copy(update={"packages": {"torch": "2.13.0"}}))
    baseline(ENV.model_copy(update={"packages": {"torch": "2.11.0"}}), label="other")
    with pytest.raises(WorkbookError, match=r"different hardware or versions .*2\.13\.0.*2\.11\.0"):
        gather("c")


def test_two_labels_in_one_campaign_have_rows_of_their_own(runs):
    baseline()
    baseline(label="other")
    patches()
    labels = {cell.label for cell in stage_outcomes(gather("c"))}
    assert {"server · tiny-cpu · baseline", "server · tiny-cpu · other"} <= labels
    summary.matrix(gather("c"))


def test_the_environment_is_that_of_the_newest_run(runs):
    patches()
    baseline(ENV.model_copy(update={"hostname": "newest"}))
    assert gather("c").env.hostname == "newest"


def test_an_empty_campaign_is_refused(runs):
    with pytest.raises(UsageError, match="Campaign c has no finished run"):
        gather("c")


def test_runs_of_different_hardware_do_not_meet(runs):
    baseline()
    baseline(ENV.model_copy(update={"gpus": (GPU,)}), label="other")
    with pytest.raises(WorkbookError, match=r"different hardware .* 1 x NVIDIA H200"):
        gather("c")


def test_the_matrix_has_a_cell_for_what_ran_and_none_for_what_did_not(runs):
    patches()
    baseline()
    cells = {(cell.label, cell.stage): cell for cell in stage_outcomes(gather("c"))}
    level1 = cells["level 1 · cuda-version", Stage.TRACE]
    assert level1.status is Status.DYNAMO_UNSUPPORTED
    assert level1.detail == "cold: datetime.now; warm: posix.stat"
    assert cells["level 4 · custom-op", Stage.TRACE].status is Status.OK
    assert ("level 4 · custom-op", Stage.CAPTURE) not in cells
    assert cells["server · tiny-cpu", Stage.BENCH].status is Status.OK


def test_a_forecast_has_a_row_of_its_own_and_says_nothing_beyond_the_trace(runs):
    run = store.create("c", "03_piecewise", "piecewise", {})
    off = forecast(outcome=Foretold.SWITCHED_OFF, reason="r", profile="other")
    run.add_records("forecasts", [forecast(), forecast(model_stop(), patch_level=4), off])
    run.seal(Status.OK, ENV, verdict="v")
    cells = {cell.label: cell for cell in stage_outcomes(gather("c"))}
    assert {label: (cell.stage, cell.status) for label, cell in cells.items()} == {
        "forecast · glm5-nvfp4-tp8 · level 0": (Stage.TRACE, Status.OK),
        "forecast · glm5-nvfp4-tp8 · level 4": (Stage.TRACE, Status.DYNAMO_UNSUPPORTED),
        "forecast · other · level 0": (Stage.TRACE, Status.NOT_SUPPORTED_HERE),
    }
    assert "GlmMoeDsaForCausalLM" in summary.forecast(gather("c"))._repr_html_()


def test_failed_requests_show_in_the_matrix(runs):
    baseline(points=[point().model_copy(update={"completed": 5, "failed": 3})])
    (cell,) = [cell for cell in stage_outcomes(gather("c")) if cell.stage is Stage.BENCH]
    assert cell.status is not Status.OK and "3 failed or short requests" in cell.detail


def test_every_link_of_the_matrix_leads_somewhere(runs):
    patches()
    found = gather("c")
    page = summary.stops(found)._repr_html_()
    for cell in stage_outcomes(found):
        if cell.evidence:
            assert f'id="{cell.evidence[1:]}"' in page
    assert anchor(ALL[3]) == "level-1-warm"


def test_a_part_without_records_says_so(runs):
    patches()
    found = gather("c")
    assert "Not run in this campaign: 00_baseline" in summary.throughput(found)._repr_html_()
    assert "Not run in this campaign: 03_piecewise" in summary.pieces(found)._repr_html_()


def test_hostile_words_of_a_trace_are_escaped(runs):
    hostile = ALL[0].model_copy(update={"message": "<script>alert(1)</script>", "operation": "<b>"})
    assert "<script>" not in summary.stop(hostile)._repr_html_()
    assert "<b>" not in summary.stop(hostile)._repr_html_()
