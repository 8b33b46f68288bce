"""The order of a comparison, and what of it stays when a server dies. Servers, client and answers are stand-ins."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.unit.test_report_ratio import point
from workbook.errors import UsageError, WorkbookError
from workbook.serving import compare
from workbook.serving.agreement import Answer, Answers
from workbook.serving.bench import Plan, SoFar, Sweep
from workbook.serving.compare import Comparison, Questions, arms
from workbook.types import CaptureMode, GpuSample, LaunchProfile, ServeOutcome, Status, SweepEnd

EAGER, GRAPHS, PIECEWISE = CaptureMode.EAGER, CaptureMode.DECODE_GRAPHS, CaptureMode.PIECEWISE


def profile(**changes: object) -> LaunchProfile:
    base = {
        "name": "p", "description": "", "model": "org/model", "concurrencies": (8,), "input_tokens": 8,
        "output_tokens": 8,
    }  # fmt: skip
    return LaunchProfile.model_validate(base | changes)


def test_a_cpu_compares_a_server_with_itself_and_says_so() -> None:
    baseline, candidate = arms(profile(device="cpu"), GRAPHS, PIECEWISE, 4)
    assert baseline.profile == candidate.profile and candidate.patch_level == 0
    assert candidate.label == "eager again (control)"


def test_the_candidate_has_the_mode_and_the_level_and_the_baseline_is_unpatched() -> None:
    baseline, candidate = arms(profile(), GRAPHS, PIECEWISE, 4)
    assert (baseline.label, baseline.patch_level, baseline.profile.capture_mode) == (
        "decode-graphs",
        0,
        GRAPHS,
    )
    assert (candidate.label, candidate.patch_level) == ("piecewise · level 4", 4)


def test_labels_differ_also_where_both_sides_are_the_same() -> None:
    assert len({arm.label for arm in arms(profile(), EAGER, EAGER, 0)}) == 2


@pytest.fixture
def story(monkeypatch):
    """What happens, in order; `dies` names the label whose server dies, and when."""
    told = SimpleNamespace(events=[], dies={}, refused="")

    class StandInServer:
        def __init__(self, node, profile, *, log, label, patch_level, **_):
            self.log = log
            if label == told.refused:
                raise UsageError("there is no such capture.")
            self.label, self.node_url, self.model_path, self.sglang_version = (
                label,
                f"http://{label}",
                "m",
                "0.5.12",
            )
            self.outcome = ServeOutcome(
                profile=profile.name, status=Status.OK, command="c", label=label, ready_s=1.0
            )
            self.capture_steps = ()

        def __enter__(self):
            told.events.append(f"start {self.label}")
            if told.dies.get(self.label) == "start":
                self.outcome = self.outcome.model_copy(
                    update={"status": Status.DYNAMO_UNSUPPORTED, "ready_s": None}
                )
                raise WorkbookError("it died")
            return self

        def __exit__(self, *_):
            told.events.append(f"stop {self.label}")
            if told.dies.get(self.label) == "bench":
                self.outcome = self.outcome.model_copy(update={"status": Status.CRASHED})

        def death(self):
            return None

    def answer(node, url, *, name, **_):
        told.events.append(f"ask {name}")
        one = Answer((1, 2, 3), (-1.0, -2.0, -3.0))
        return Answers(name, 3, (one, one))

    def measure(node, targets, plan, *, on_point, **_):
        labels = [target.label for target in targets]
        told.events.append(f"measure {' and '.join(labels)} from {plan.first_repeat}")
        if "bench" in (told.dies.get(label) for label in labels):
            raise WorkbookError("The server died during the benchmark.")
        points = [point(label, plan.first_repeat + n, 100) for n in range(plan.repeats) for label in labels]
        for one in points:
            on_point(one, SoFar(1, plan.repeats, None, None))
        ends = [
            SweepEnd(
                label=label, concurrency=8, repeats=plan.repeats, half_width=None, ended_by="repeats spent"
            )
            for label in labels
        ]
        return Sweep(points, ends)

    @contextmanager
    def watch(node, log) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(samples=lambda: [GpuSample(time_s=0.0, gpu=0)])

    for name, stand_in in (
        ("Server", StandInServer), ("ask", answer), ("run_bench", measure), ("Telemetry", watch)
    ):  # fmt: skip
        monkeypatch.setattr(compare, name, stand_in)
    return told


def comparison(tmp_path, **changes: object) -> Comparison:
    sides = arms(profile(**changes), GRAPHS, PIECEWISE, 4)
    plan = Plan((8,), 8, 8, repeats=6)
    return Comparison(None, sides, plan, Questions(2, 8, 3, 1), tmp_path, "run")


def test_side_by_side_both_are_up_before_anything_is_measured_and_take_turns(tmp_path, story) -> None:
    asked = comparison(tmp_path, side_by_side=True)
    asked.run()
    starts = [event for event in story.events if event.startswith("start")]
    assert starts == ["start piecewise · level 4", "start decode-graphs"]
    assert story.events[-3:] == [
        "measure decode-graphs and piecewise · level 4 from 0", "stop decode-graphs", "stop piecewise · level 4"
    ]  # fmt: skip
    assert [serve.label for serve in asked.found.serves] == ["decode-graphs", "piecewise · level 4"]
    assert len(asked.found.points) == 12 and asked.found.samples and asked.found.accuracy


def test_servers_that_do_not_fit_together_are_started_in_turns(tmp_path, story) -> None:
    asked = comparison(tmp_path)
    asked.run()
    measured = [event for event in story.events if event.startswith("measure")]
    assert measured == [
        "measure piecewise · level 4 from 0", "measure decode-graphs from 0",
        "measure piecewise · level 4 from 3", "measure decode-graphs from 3",
    ]  # fmt: skip
    assert story.events.count("stop decode-graphs") == 2
    assert {(end.label, end.repeats, end.ended_by) for end in asked.found.ends} == {
        ("decode-graphs", 6, "precise"), ("piecewise · level 4", 6, "precise")
    }  # fmt: skip


def test_a_candidate_that_dies_at_its_start_is_an_answer_and_the_baseline_is_spared(tmp_path, story) -> None:
    story.dies["piecewise · level 4"] = "start"
    asked = comparison(tmp_path, side_by_side=True)
    asked.run()
    assert story.events == ["start piecewise · level 4"]
    assert [serve.status for serve in asked.found.serves] == [Status.DYNAMO_UNSUPPORTED]


def test_a_candidate_that_dies_while_it_is_measured_is_an_answer(tmp_path, story) -> None:
    story.dies["piecewise · level 4"] = "bench"
    asked = comparison(tmp_path, side_by_side=True)
    asked.run()
    assert {serve.status for serve in asked.found.serves} == {Status.OK, Status.CRASHED}


def test_what_this_sglang_refuses_is_an_answer_before_anything_starts(tmp_path, story) -> None:
    story.refused = "piecewise · level 4"
    asked = comparison(tmp_path)
    asked.run()
    assert story.events == []
    (refused,) = asked.found.serves
    assert refused.status is Status.NOT_SUPPORTED_HERE and "no such capture" in refused.reason


def test_a_client_that_fails_while_both_servers_live_is_an_error(tmp_path, story, monkeypatch) -> None:
    def fails(*_, **__):
        raise WorkbookError("The benchmark ended early.")

    monkeypatch.setattr(compare, "run_bench", fails)
    asked = comparison(tmp_path, side_by_side=True)
    with pytest.raises(WorkbookError, match="ended early"):
        asked.run()
    assert len(asked.found.serves) == 2
