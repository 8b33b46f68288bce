"""The notebooks in order on a machine without a GPU, on the real libraries, and the report they end in."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import BIN
from workbook import campaign as campaign_module
from workbook import measurements, store
from workbook.boundary.remedy_table import REMEDIES
from workbook.paths import NOTEBOOKS, stacks_dir
from workbook.types import (
    BenchPoint,
    Blocker,
    Forecast,
    Foretold,
    RemedyOutcome,
    ServeOutcome,
    SplitOutcome,
    Stage,
    Status,
    TraceOutcome,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def sealed(campaign, monkeypatch):
    """The campaign's run of a notebook."""
    monkeypatch.setenv("WORKBOOK_RUNS", str(campaign.runs.parent))
    return lambda notebook: store.find("test", notebook)[-1]


def test_it_ends_with_the_verdict_and_the_file_to_open(campaign):
    said, opened = campaign.stdout.strip().partition("Verdict:\n")[2].split("\n\n")
    assert said.startswith("Unpatched, flashinfer.fp4_quantize stops at _thread.allocate_lock")
    assert "level 4 (custom-op) passes fullgraph, cold and warm" in said
    assert opened == f"Open {campaign.report}"
    assert campaign.report.is_file()


def test_every_notebook_left_one_sealed_run_and_no_partial_one(campaign):
    folders = sorted(path.name for path in campaign.runs.iterdir() if path.is_dir())
    files = {path.name for path in campaign.runs.iterdir() if path.is_file()}
    assert files == {".lock", "request.json"}
    assert [name.split("-")[1] for name in folders] == [
        "00_baseline", "01_dynamo_crash", "02_flashinfer_patches", "03_piecewise", "04_report",
    ]  # fmt: skip
    for path in filter(Path.is_dir, campaign.runs.iterdir()):
        assert {"run.json", "env.json", "raw", "notebook.ipynb", "notebook.html"} <= {
            one.name for one in path.iterdir()
        }


def test_the_baseline_was_really_measured(sealed):
    run = sealed("00_baseline")
    points = run.records("points", BenchPoint)
    assert {point.concurrency for point in points} == {1, 4, 16}
    assert all(point.completed == point.requested and point.output_tok_s > 0 for point in points)
    assert len({point.output_tok_s for point in points}) == len(points)
    assert sum(point.output_tok_s for point in points if point.concurrency == 16) > sum(
        point.output_tok_s for point in points if point.concurrency == 1
    )
    assert any((run.path / "raw" / "bench").rglob("*.jsonl"))
    (serve,) = run.records("serve", ServeOutcome)
    assert serve.status is Status.OK and "sglang.launch_server" in serve.command
    assert "speaks for a GPU" in run.record.verdict


def test_the_crash_was_reproduced(sealed):
    (found,) = sealed("01_dynamo_crash").records("outcomes", TraceOutcome)
    assert (found.break_id, found.operation) == ("gb0007", "_thread.allocate_lock")


def test_ten_traces_and_only_level_4_passes(sealed):
    found = sealed("02_flashinfer_patches").records("outcomes", TraceOutcome)
    assert len(found) == 10
    assert {one.patch_level for one in found if one.status is Status.OK} == {4}
    blockers = sealed("02_flashinfer_patches").records("blockers", Blocker)
    assert len(blockers) >= 10 and blockers[-1].passed == "end"


def test_the_remedies_are_compared_and_the_report_shows_them(sealed, campaign):
    found = sealed("02_flashinfer_patches").records("remedies", RemedyOutcome)
    assert [one.remedy for one in found] == [one.name for one in REMEDIES]
    assert all(one.overhead_us_p50 is not None for one in found if one.status is Status.OK)
    page = campaign.report.read_text()
    assert all(one.remedy in page for one in found)


def test_every_trace_has_its_raw_output(sealed):
    raw = {path.name for path in (sealed("02_flashinfer_patches").path / "raw").iterdir()}
    assert len([name for name in raw if name.endswith(".json") and "-level" in name]) == 10


def test_capture_is_never_shown_as_passed(sealed):
    run = sealed("03_piecewise")
    (found,) = run.records("splits", SplitOutcome)
    assert found.stages[Stage.COMPILE] is Status.OK
    assert found.stages[Stage.CAPTURE] is Status.NOT_SUPPORTED_HERE
    assert run.record.status is Status.NOT_SUPPORTED_HERE


def test_the_case_was_foretold_first(sealed, campaign):
    run = sealed("03_piecewise")
    (found,) = run.records("forecasts", Forecast)
    assert (found.profile, found.stack, found.patch_level) == ("glm5-nvfp4-tp8", "seed", 4)
    assert found.outcome is Foretold.TRACES and found.graphs and 0 < found.layers < found.model_layers
    assert run.record.verdict.startswith("Forecast: glm5-nvfp4-tp8 at patch level 4 (custom-op)")
    assert "GlmMoeDsaForCausalLM" in campaign.report.read_text()


def test_the_control_compares_a_server_with_itself(sealed, campaign):
    run = sealed("03_piecewise")
    found = measurements.read(run.path)
    assert [one.label for one in found.serves] == ["eager", "eager again (control)"]
    assert all(one.status is Status.OK and one.left_behind == () for one in found.serves)
    (gate,) = found.accuracy
    assert gate.status is Status.OK and {one.equal_share for one in gate.compared} == {1.0}
    assert {(one.label, one.repeat) for one in found.points} == {
        (label, repeat) for label in ("eager", "eager again (control)") for repeat in (0, 1)
    }
    assert "too few repeats to call that a difference" in run.record.verdict
    assert "eager again (control)" in campaign.report.read_text()


def test_what_a_gpu_said_is_shown_as_recorded(sealed):
    page = (sealed("03_piecewise").path / "notebook.html").read_text()
    assert "Recorded on 2026-11-30, one NVIDIA H200" in page and "58 shapes" in page


def test_the_report_names_its_parents(sealed):
    parents = sealed("04_report").record.parents
    assert [parent.split("-")[1][:2] for parent in parents] == ["00", "01", "02", "03"]


def test_the_snapshot_names_patched_sources_and_versions(sealed):
    env = sealed("02_flashinfer_patches").env
    assert env.packages["flashinfer-python"] == "0.6.3" and env.packages["torch"].startswith("2.13")
    assert "flashinfer.fp4_quantization.fp4_quantize" in env.patched_sources


def test_a_campaign_goes_on_where_it_stopped(campaign):
    done = subprocess.run(
        [BIN / "workbook", "run", "--resume", "test"],
        env=campaign.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("done before") == 4


def papermill(notebook, folder, *parameters):
    """A notebook by itself, from another working directory."""
    return subprocess.run(
        [BIN / "papermill", NOTEBOOKS / f"{notebook}.ipynb", "out.ipynb", *parameters],
        env=os.environ | {"WORKBOOK_RUNS": str(folder / "runs")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (["-p", "patch_lvl", "2"], "patch_lvl is not a parameter of 03_piecewise; did you mean patch_level?"),
        (["-p", "patch_level", "two"], "patch_level = 'two' will not do: an integer from 0 to 5 is allowed."),
        (["-p", "patch_level", "9"], "patch_level = 9 will not do: an integer from 0 to 5 is allowed."),
        (["-p", "tp", "-1"], "tp = -1 will not do: an integer from 0 to 1024 is allowed."),
        (
            ["-p", "baseline_mode", "egaer"],
            "baseline_mode = 'egaer' will not do: did you mean eager? Allowed: ",
        ),
    ],
)
def test_a_parameter_that_will_not_do_is_named(tmp_path, parameters, sentence):
    done = papermill("03_piecewise", tmp_path, *parameters)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(f"ParameterError: {sentence}")
    assert not (tmp_path / "runs").exists()


def test_the_piecewise_notebook_by_itself_at_level_2_without_sglangs_sources(tmp_path, embedded, monkeypatch):
    stacks, flashinfer = tmp_path / "stacks", f"flashinfer-python-{embedded.flashinfer}"
    stacks.mkdir()
    (stacks / flashinfer).symlink_to(stacks_dir() / flashinfer)
    monkeypatch.setenv("WORKBOOK_STACKS", str(stacks))
    done = papermill("03_piecewise", tmp_path, "-p", "patch_level", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = (tmp_path / "runs" / "scratch").iterdir()
    assert json.loads((run / "run.json").read_text())["status"] == "dynamo_unsupported"
    (found,) = json.loads((run / "splits.json").read_text())
    assert found["stopped"]["operation"] == "Function.__call__"
    assert "capture" not in found["stages"]
    (foretold,) = json.loads((run / "forecasts.json").read_text())
    assert foretold["outcome"] == "cannot_tell"
    assert foretold["reason"].endswith("Run: workbook stack create seed --sources")


def ours(folder):
    """Living processes whose environment names the test's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in "".join(
                process.environ().values()
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_campaign_leaves_no_process_and_no_run_that_loads(tmp_path, number, monkeypatch):
    """Killed while the server is being started: the worst moment."""
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path / "runs"))
    process = subprocess.Popen(
        [BIN / "workbook", "run", "--campaign", "killed", "--only", "00"], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/killed/*.partial/raw/server.log")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while ours(tmp_path):
        assert time.monotonic() < deadline, ours(tmp_path)
        time.sleep(0.5)
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "To go on: workbook run --resume killed" in said
    assert store.find("killed") == [] and len(store.partials("killed")) == 1
    assert campaign_module.kept_request("killed") == (["00"], {"node": "local"})
