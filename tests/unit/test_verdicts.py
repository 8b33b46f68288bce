"""The answers in words follow from the records, and say what is not known."""

import pytest

from tests.unit.report_samples import forecast
from tests.unit.test_diagnosis import recorded
from tests.unit.test_store import ENV, point
from workbook import verdicts
from workbook.capture.split import capture_reason, judge
from workbook.report.evidence import Evidence
from workbook.types import (
    AccuracyOutcome,
    CaptureMode,
    CaptureStep,
    Measurement,
    ServeOutcome,
    SplitOutcome,
    Stage,
    Status,
)

ALL = [recorded(level, state) for level in range(5) for state in ("cold", "warm")]


SERVE = ServeOutcome(profile="tiny-cpu", status=Status.OK, command="x")


def measured(points, serve=SERVE):
    return Measurement(serves=(serve,), points=tuple(points))


def evidence(**records):
    empty = {
        "runs": [],
        "outcomes": [],
        "blockers": [],
        "remedies": [],
        "forecasts": [],
        "splits": [],
        "diffs": [],
    }
    return Here(**(empty | {"baselines": [], "comparisons": []} | records))


class Here(Evidence):
    """Evidence without runs, on the machine of the other tests."""

    env = ENV


def bench(concurrency, speed, failed=0):
    return point().model_copy(update={"concurrency": concurrency, "output_tok_s": speed, "failed": failed})


def test_baseline_takes_medians_and_names_the_best():
    points = [bench(1, 10.0), bench(1, 30.0), bench(1, 20.0), bench(4, 500.0)]
    status, told = verdicts.baseline(measured(points), ENV)
    assert status is Status.OK
    assert told.startswith(
        "20 output tokens/s at concurrency 1, at most 500 at concurrency 4; 4 points, 0 failed"
    )
    assert "no figure here speaks for a GPU" in told


def test_a_point_with_failed_requests_is_counted_and_not_averaged():
    _, told = verdicts.baseline(measured([bench(1, 10.0), bench(1, 9000.0, failed=3)]), ENV)
    assert "10 output tokens/s" in told and "3 failed or short requests" in told


def test_no_good_point_is_said():
    status, told = verdicts.baseline(measured([bench(1, 10.0, failed=1)]), ENV)
    assert status is Status.CRASHED and "No benchmark point" in told


def test_the_figures_of_a_server_that_died_do_not_count():
    died = SERVE.model_copy(update={"status": Status.CRASHED, "reason": "was ended by SIGKILL"})
    status, told = verdicts.baseline(measured([bench(1, 10.0)], died), ENV)
    assert status is Status.CRASHED and "was ended by SIGKILL: its figures do not count" in told
    assert "tokens/s" not in told


def test_a_reproduced_crash_is_a_success():
    status, told = verdicts.crash(recorded(0, "cold"))
    assert status is Status.OK
    assert "stops at _thread.allocate_lock in flashinfer.jit.cpp_ext:get_cuda_path" in told


def test_a_call_that_traces_unpatched_is_fixed_upstream():
    status, told = verdicts.crash(recorded(4, "cold").model_copy(update={"patch_level": 0}))
    assert status is Status.ALREADY_FIXED_UPSTREAM and "no crash" in told


def test_what_fails_outside_of_dynamo_is_not_the_crash():
    update = {"status": Status.CRASHED, "operation": None, "message": "RuntimeError: nothing was traced"}
    status, told = verdicts.crash(recorded(0, "cold").model_copy(update=update))
    assert status is Status.CRASHED
    assert told.startswith("Not reproduced") and "nothing was traced" in told and "None" not in told


def test_the_patches_name_both_crash_sites_of_a_level():
    told = verdicts.patches(ALL)
    assert told.startswith("Level 4 (custom-op) passes; level 0 stops at _thread.allocate_lock")
    assert "datetime.now in flashinfer.jit.core:register (cold) and stops at posix.stat" in told
    assert "level 3 is refused: fp4_quantize is a graph break" in told


def test_a_level_passes_only_cold_and_warm():
    assert verdicts.patches([recorded(4, "cold"), recorded(1, "warm")]).startswith("Level 4")
    half = [recorded(4, "cold"), recorded(1, "warm").model_copy(update={"patch_level": 4})]
    assert verdicts.patches(half).startswith("No level passes")


def test_a_campaign_without_records_says_so():
    told = verdicts.campaign(evidence())
    assert told[:3] == [
        "The unpatched call was not traced.",
        "No patch was tried.",
        "No throughput was measured.",
    ]
    assert "takes a GPU: not measured here" in told[-1]


def test_a_campaign_without_a_passing_level_says_so():
    told = verdicts.campaign(evidence(outcomes=[one for one in ALL if one.patch_level < 4]))
    assert "Of patch levels 1 to 3 none passes fullgraph." in told


@pytest.mark.parametrize(
    ("gpus", "tp", "mode", "words"),
    [
        (0, 1, CaptureMode.PIECEWISE, "needs 1 CUDA device, and this node has none"),
        (2, 8, CaptureMode.PIECEWISE, "needs 8 CUDA devices, and this node has 2"),
        (1, 1, CaptureMode.BREAKABLE, "capturing on a GPU is not written yet"),
        (0, 1, CaptureMode.EAGER, "captures nothing"),
    ],
)
def test_why_nothing_was_captured(gpus, tp, mode, words):
    assert words in capture_reason(gpus, tp, mode)


def test_a_stage_that_was_not_reached_is_absent_and_capture_is_never_passed():
    error = {"type": "torch._dynamo.exc.Unsupported", "gb_type": "", "message": "", "stack": []}
    kind = {"tp": 1, "capture_mode": CaptureMode.PIECEWISE}
    stopped, _ = judge({"import_error": None, "error": error, "num_gpus": 8}, **kind)
    assert Stage.COMPILE not in stopped and Stage.CAPTURE not in stopped
    traced, reasons = judge({"import_error": None, "error": None, "num_gpus": 8}, **kind)
    assert traced[Stage.CAPTURE] is Status.NOT_SUPPORTED_HERE and reasons[Stage.CAPTURE]
    absent, reasons = judge({"import_error": "ImportError: x", "error": None, "num_gpus": 0}, **kind)
    assert absent == {Stage.IMPORT: Status.NOT_SUPPORTED_HERE} and "ImportError: x" in reasons[Stage.IMPORT]


def pair(*, status=Status.OK, points=(), candidate=Status.OK, **changes):
    serves = [SERVE.model_copy(update={"label": label}) for label in ("eager", "piecewise")]
    serves[1] = serves[1].model_copy(update={"status": candidate} | changes)
    gate = AccuracyOutcome(
        baseline="eager", candidate="piecewise", status=status, reason="the reason", noise=(), compared=()
    )
    return Measurement(serves=tuple(serves), points=tuple(points), accuracy=(gate,))


def turns(speeds):
    return [
        bench(8, speed).model_copy(update={"label": label, "repeat": repeat})
        for repeat, pair in enumerate(speeds)
        for label, speed in zip(("eager", "piecewise"), pair, strict=True)
    ]


def test_wrong_answers_come_before_any_speed():
    found = pair(status=Status.WRONG_OUTPUT, points=turns([(100.0, 200.0 + n) for n in range(5)]))
    status, told = verdicts.comparison(found)
    assert status is Status.WRONG_OUTPUT
    assert told.index("are wrong: the reason") < told.index("times at concurrency 8")


def test_what_a_candidate_is_worth_is_said_with_its_interval():
    status, told = verdicts.comparison(pair(points=turns([(100.0, 149.0 + n / 2) for n in range(5)])))
    assert status is Status.OK
    assert "piecewise reached 1.50 times at concurrency 8 (1.49 to 1.51) the throughput of eager" in told


def test_no_difference_is_said_to_be_none():
    _, told = verdicts.comparison(pair(points=turns([(100.0, 99.0), (100.0, 101.0)] * 3)))
    assert "No difference seen at concurrency 8." in told


def test_a_candidate_that_died_is_named_with_its_decisive_line():
    found = pair(
        candidate=Status.DYNAMO_UNSUPPORTED,
        reason="ended before it was ready",
        decisive_line="Unsupported: x",
    )
    status, told = verdicts.comparison(found)
    assert status is Status.DYNAMO_UNSUPPORTED
    assert told == "The server piecewise ended before it was ready (Unsupported: x)."


def test_without_servers_nothing_is_claimed():
    assert verdicts.comparison(Measurement())[0] is Status.NOT_SUPPORTED_HERE


def rehearsed(stages):
    return SplitOutcome(
        arch="sm90", patch_level=0, tp=1, capture_mode=CaptureMode.PIECEWISE, num_layers=3, num_tokens=64,
        capture_sizes=(64,), split_ops=("a",), stages=stages, reasons=dict.fromkeys(stages, "the reason"), seconds=1.0,
        versions={"sglang": "0.5.12"}, declared=recorded(0, "cold").declared,
    )  # fmt: skip


def test_what_really_was_captured_decides_over_the_rehearsal():
    split = rehearsed({Stage.IMPORT: Status.OK, Stage.TRACE: Status.DYNAMO_UNSUPPORTED})
    step = CaptureStep(label="piecewise", rank=0, phase="prefill", num_tokens=4, start_s=0, duration_s=1)
    found = pair(points=turns([(100.0, 120.0)] * 5)).model_copy(update={"steps": (step,)})
    assert verdicts.piecewise(split, found, forecast())[0] is Status.OK
    assert (
        verdicts.piecewise(split, found.model_copy(update={"steps": ()}), forecast())[0]
        is Status.DYNAMO_UNSUPPORTED
    )
