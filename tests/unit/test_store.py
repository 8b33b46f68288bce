"""A run is sealed or visibly partial, whatever happens while it is made."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbook import store
from workbook.errors import UsageError, WorkbookError
from workbook.paths import ROOT
from workbook.types import BenchPoint, EnvSnapshot, Gpu, Status

ENV = EnvSnapshot(
    node="local", hostname="h", cpu="c", cores=2, memory_gb=1.0, os="o", python="3.11", gpus=(), driver=None,
    cuda=None, packages={}, git_commit=None, git_dirty=None, argv=(),
)  # fmt: skip


def point(**changes):
    return BenchPoint(
        run_id="r", label="l", concurrency=1, repeat=0, requested=8, completed=8, failed=0, duration_s=1.0,
        output_tok_s=2.0, seed=1, **changes,
    )  # fmt: skip


def make(campaign="c", notebook="00_baseline"):
    return store.create(campaign, notebook, "label", {"x": 1})


def test_a_sealed_run_loads_as_it_was(runs):
    run = make()
    run.add_table("points", [point(), point(ttft_ms_p50=3.5)])
    sealed = run.seal(Status.OK, ENV, verdict="v", parents=["p"])
    again = store.find("c")[0]
    assert again.record == sealed.record and again.record.parents == ("p",) and again.env == ENV
    assert again.records("points", BenchPoint) == [point(), point(ttft_ms_p50=3.5)]
    assert again.table("points")["ttft_ms_p50"].isna().tolist() == [True, False]
    assert again.path.name == again.id and not run.path.exists()


def test_an_unsealed_run_is_visible_and_does_not_load(runs):
    run = make()
    run.add_table("points", [point()])
    assert store.find("c") == []
    assert store.partials("c") == [f"{run.id}.partial"]
    with pytest.raises(UsageError, match="never finished"):
        store.load(run.path)


@pytest.mark.parametrize("stage", ["created", "records", "env", "record"])
def test_a_run_killed_at_any_stage_never_loads(runs, stage):
    code = f"""
import os, signal
from workbook import store
from tests.unit.test_store import ENV, point
run = store.create("c", "n", "l", {{}})
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if {stage!r} == "created": kill()
run.add_records("points", [point()])
if {stage!r} == "records": kill()
written = store.write_text
def write_text(path, text):
    written(path, text)
    if path.name == {{"env": "env.json", "record": "run.json"}}[{stage!r}]: kill()
store.write_text = write_text
run.seal(store.Status.OK, ENV, verdict="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == -9, done.stderr
    assert store.find("c") == [] and len(store.partials("c")) == 1


def test_a_disk_that_fills_up_is_one_sentence_and_leaves_the_run_partial(runs):
    code = """
import resource, signal
from workbook import store
from tests.unit.test_store import ENV, point
run = store.create("c", "n", "l", {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    run.add_records("points", [point()] * 50)
except store.WorkbookError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Cannot write" in done.stdout and "Nothing half-written was left" in done.stdout
    (partial,) = (runs / "c").iterdir()
    assert sorted(path.name for path in partial.iterdir()) == ["raw"]


def test_a_folder_that_cannot_be_made_is_one_sentence(runs):
    runs.write_text("a file where the folder should be")
    with pytest.raises(WorkbookError, match=r"Cannot make the folder .* Set WORKBOOK_RUNS"):
        make()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema_version": 1}', '{"id": "x"}'])
def test_a_damaged_record_is_named(runs, damage):
    sealed = make().seal(Status.OK, ENV, verdict="")
    (sealed.path / "run.json").write_text(damage)
    with pytest.raises(WorkbookError, match=r"run\.json is missing or damaged"):
        store.find("c")


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
@pytest.mark.parametrize("name", ["points.json", "points.parquet", "env.json"])
def test_a_file_that_is_not_as_it_was_sealed_is_named(runs, name, damage):
    run = make()
    run.add_table("points", [point()])
    file = run.seal(Status.OK, ENV, verdict="").path / name
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:10] if damage == "cut" else b"null")
    with pytest.raises(WorkbookError, match=f"{name} is missing or damaged"):
        store.find("c")


def test_a_campaign_is_run_by_one_process_at_a_time(runs):
    with (
        store.locked("c"),
        pytest.raises(WorkbookError, match="being run by another process"),
        store.locked("c"),
    ):
        pass
    with store.locked("c"):
        pass


def test_no_figure_is_nan():
    with pytest.raises(ValueError, match="finite"):
        point(ttft_ms_p50=float("nan"))


def test_a_newer_schema_is_refused_by_its_version(runs):
    sealed = make().seal(Status.OK, ENV, verdict="")
    record = json.loads((sealed.path / "run.json").read_text()) | {"schema_version": 7}
    (sealed.path / "run.json").write_text(json.dumps(record))
    with pytest.raises(WorkbookError, match="schema version 7; this workbook reads 1"):
        store.find("c")


def test_runs_are_found_oldest_first_and_by_notebook(runs):
    ids = [
        make(notebook=name).seal(Status.OK, ENV, verdict="").id for name in ("02_a", "01_b", "01_c", "01_d")
    ]
    assert [run.id for run in store.find("c")] == ids
    assert [run.record.notebook for run in store.find("c", "01_b")] == ["01_b"]
    assert store.campaigns() == ["c"]


GPUS = st.builds(
    Gpu, index=st.integers(0, 7), name=st.text(), compute_capability=st.text(), memory_gb=st.floats(0, 1e4)
)


@given(st.lists(GPUS, max_size=3), st.dictionaries(st.text(), st.text(), max_size=3), st.text(), st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
def test_records_survive_the_round_trip(runs, gpus, packages, verdict, error):
    env = ENV.model_copy(update={"gpus": tuple(gpus), "packages": packages})
    sealed = make().seal(Status.CRASHED, env, verdict=verdict, error=error)
    again = store.load(sealed.path)
    assert (again.env, again.record) == (env, sealed.record)
