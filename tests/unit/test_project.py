"""What the project's files promise each other."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from workbook import catalog, recorded
from workbook.boundary.entries import ENTRIES
from workbook.errors import UsageError, WorkbookError
from workbook.paths import DATA, LOCKS, NOTEBOOKS, ROOT
from workbook.types import LaunchProfile, Node, Stack, Status, TraceOutcome

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ONE_PYTHON = r"; python_version (>=|<) \"3\.12\""
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def pins(path):
    """Name -> version of a lock file for Python 3.12; every line must be a pin, a name may have one a Python."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(rf"[A-Za-z0-9._-]+==[^\s=;]+({ONE_PYTHON})?", line) for line in lines)
    for_312 = [line.partition(";")[0] for line in lines if not line.endswith('< "3.12"')]
    assert len({normal(line.partition("==")[0]) for line in for_312}) == len(for_312)
    return {normal(line.partition("==")[0]): line.partition("==")[2] for line in for_312}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement):
    return normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0])


def test_environment_yml_is_python_312_with_the_node_extra_and_its_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert "python=3.12" in environment["dependencies"] and "pip" in environment["dependencies"]
    (pip,) = [one["pip"] for one in environment["dependencies"] if isinstance(one, dict)]
    assert pip == ["--requirement locks/hopper.txt", "--editable .[node]"]


def test_the_node_extra_is_what_its_lock_pins():
    lock = pins(LOCKS / "hopper.txt")
    for requirement in PROJECT["optional-dependencies"]["node"]:
        name, _, version = requirement.partition("==")
        assert lock[normal(name)] == version


@pytest.mark.parametrize("lock", ["hopper", "embedded"])
def test_a_lock_holds_everything_the_workbook_needs(lock):
    missing = {name_of(one) for one in PROJECT["dependencies"]} - pins(LOCKS / f"{lock}.txt").keys()
    assert not missing


def test_the_embedded_lock_holds_what_the_tests_need():
    missing = {name_of(one) for one in PROJECT["optional-dependencies"]["dev"]} - pins(
        LOCKS / "embedded.txt"
    ).keys()
    assert not missing


@pytest.mark.parametrize("name", catalog.names(Stack))
def test_a_stack_is_what_its_lock_pins(name):
    stack = catalog.load(Stack, name)
    lock = pins(LOCKS / f"{name}.txt")
    flashinfer = LOCKS / f"{name}-flashinfer.txt"
    lock |= pins(flashinfer) if flashinfer.exists() else {}
    assert (lock["torch"], lock["sglang"], lock["flashinfer-python"]) == (
        stack.torch,
        stack.sglang,
        stack.flashinfer,
    )


@pytest.mark.parametrize("kind", [Node, LaunchProfile, Stack])
def test_every_description_in_data_is_valid_and_named_as_its_file(kind):
    for name in catalog.names(kind):
        assert catalog.load(kind, name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stripped_thin_and_run_on_the_kernel_of_any_environment(name):
    notebook = json.loads((NOTEBOOKS / name).read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    assert max(len("".join(cell["source"]).splitlines()) for cell in cells) <= 10
    assert [cell["metadata"].get("tags") for cell in cells].count(["parameters"]) == 1
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_there_are_the_five_notebooks():
    assert [name.partition("_")[0] for name in NAMES] == ["00", "01", "02", "03", "04"]


def test_nbstripout_finds_nothing_to_strip():
    paths = [str(NOTEBOOKS / name) for name in NAMES]
    subprocess.run([Path(sys.executable).with_name("nbstripout"), "--verify", *paths], check=True)


def test_data_and_code_name_no_folder_of_one_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        pytest.skip("not a git checkout")
    personal = re.compile(r"(?<![\w.-])/(?:home/\w|root/|Users/\w)")
    found = [
        path
        for path in listed
        if (ROOT / path).suffix
        in (".py", ".ipynb", ".yaml", ".yml", ".toml", ".md", ".json", ".html", ".txt")
        and (ROOT / path).is_file()
        and path != "tests/unit/test_project.py"
        and personal.search((ROOT / path).read_text())
    ]
    assert not found
    assert DATA.is_dir()


def test_every_recording_loads_and_carries_its_provenance():
    folders = sorted(path.name for path in (DATA / "recorded").iterdir())
    assert {"20261130-h200-boundary", recorded.MATRIX, recorded.VALUES} <= set(folders)
    assert all((DATA / "recorded" / name / "README.md").is_file() for name in folders)

    folder = DATA / "recorded" / "20261130-h200-boundary"
    assert (folder / "snapshot.json").is_file()
    outcomes = [
        TraceOutcome.model_validate(one) for one in json.loads((folder / "outcomes.json").read_text())
    ]
    assert {one.patch_level for one in outcomes if one.status is Status.OK} == {4}
    assert all(one.versions["torch"] for one in outcomes)

    told, cells = recorded.matrix()
    assert told.date and told.hardware and told.commit
    assert {one.status for one in cells if one.patch_level == 4} == {Status.OK}
    assert len({one.torch for one in cells}) == 4 and len({one.flashinfer for one in cells}) == 8
    assert {one.entry for one in cells} == {one.path for one in ENTRIES}

    told, values = recorded.values()
    assert told.date and "H200" in told.hardware
    untouched = {one.entry for one in values if one.unwritten and max(one.unwritten) == 1.0}
    assert untouched == {one.entry for one in values if one.status is Status.WRONG_OUTPUT}
    assert "flashinfer.fp4_quantize" in untouched


def test_a_recording_that_is_not_there_or_damaged_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"No recording 'nothing'; known: "):
        recorded.matrix("nothing")
    (tmp_path / "recorded" / "broken").mkdir(parents=True)
    monkeypatch.setattr(recorded, "DATA", tmp_path)
    with pytest.raises(WorkbookError, match=r"data/recorded/broken is damaged\. Get it anew"):
        recorded.provenance("broken")


def test_parsers_analysis_and_charts_never_import_a_node():
    """Data flows one way: what judges and draws records cannot ask a machine for more."""
    modules = (
        "report.summary report.compare recorded verdicts serving.capture_log serving.gate serving.agreement "
        "serving.records serving.gpu_samples serving.options doctor.facts params"
    )
    code = "import importlib, sys\n" + "\n".join(
        f"importlib.import_module('workbook.{name}')" for name in modules.split()
    )
    code += "\nprint([name for name in sys.modules if name.startswith('workbook.node')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
