"""Stacks that are interrupted by real signals, and traces in real ones."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.processes import running, wait_for
from tests.tiny_stacks import COMMAND, lies_in, made, stack, workbook
from workbook import catalog, stacks
from workbook.boundary.trace import TraceRequest, trace
from workbook.errors import UsageError, WorkbookError
from workbook.node.probe import run_probe, stack_python
from workbook.types import Stack, Status

pytestmark = pytest.mark.slow
SLOW_BACKEND = """
import os, pathlib, subprocess, time
def build_wheel(*args, **options):
    child = subprocess.Popen(["sleep", "300"])
    pathlib.Path({pids!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(300)
get_requires_for_build_wheel = lambda *args: []
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_create_leaves_no_process_and_nothing_that_looks_whole(world, node, number):
    pids = world / "pids"
    source = world / "slow-1.0"
    source.mkdir()
    (source / "backend.py").write_text(SLOW_BACKEND.format(pids=str(pids)))
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1.0"\n'
    )
    lock = world / "locks" / "tiny.txt"
    lock.write_text(f"slow @ {source.as_uri()}\n")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(world), "stack", "create", "tiny"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, 60)
    started = [int(pid) for pid in pids.read_text().split()]
    started += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    with pytest.raises(WorkbookError, match="Another `workbook stack` is at work"):
        made(node, "other")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (-9 if number is signal.SIGKILL else 130)
    assert number is signal.SIGKILL or ("interrupted" in stderr and "Traceback" not in stderr)
    wait_for(lambda: not running(started))
    assert "tiny" not in lies_in(world) or number is signal.SIGKILL
    assert stacks.created(node, stack("tiny")) is None
    lock.write_text("pebble==2.0\n")
    made(node, "tiny")  # starts clean
    assert stacks.created(node, stack("tiny")) == "full"
    assert not list((world / "stacks" / "tiny").rglob("*slow*"))


def test_a_probe_runs_with_the_python_of_its_stack(world, node):
    with pytest.raises(UsageError, match=r"not set up here .* Run: workbook stack create tiny"):
        run_probe(node, stack("tiny"), "snapshot.py", [], timeout_s=60)
    made(node, "tiny")
    told = run_probe(node, stack("tiny"), "snapshot.py", [], timeout_s=60)
    assert "torch" not in told["packages"]
    assert stack_python(node, stack("tiny")) == str(world / "stacks" / "tiny" / "bin" / "python")
    assert stack_python(node, stack("embedded")) == node.python == sys.executable
    code = "import sys; print(sys.prefix)"
    done = workbook(world, "exec", "--stack", "tiny", "--", "python", "-c", code)
    assert done.stdout.strip() == str(world / "stacks" / "tiny"), done.stderr


@pytest.mark.parametrize("name", [name for name in catalog.names(Stack) if name != "embedded"])
def test_a_trace_runs_on_the_torch_of_its_stack(node, name):
    """For the stacks that were created here: each takes several GB."""
    versions = catalog.load(Stack, name)
    if stacks.created(node, versions) is None:
        pytest.skip(f"stack {name} is not created (workbook stack create {name} --minimal)")
    found = trace(node, versions, TraceRequest())
    assert found.status is Status.DYNAMO_UNSUPPORTED
    assert found.versions["torch"].partition("+")[0] == versions.torch
    assert found.versions["flashinfer-python"] == versions.flashinfer


def test_another_flashinfer_is_one_command_away(node, tmp_path, monkeypatch):
    """From the index that pip is set up with."""
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    embedded = catalog.load(Stack, "embedded")
    try:
        stacks.create(node, embedded, flashinfer=["0.6.1"])
    except UsageError as refusal:
        if "no version at all" not in str(refusal):
            raise
        pytest.skip(f"no package index answers: {refusal}")
    found = trace(node, embedded.model_copy(update={"flashinfer": "0.6.1"}), TraceRequest())
    assert found.versions["flashinfer-python"] == "0.6.1"
