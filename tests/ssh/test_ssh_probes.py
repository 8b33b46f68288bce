"""The real probes and the real FlashInfer on a node behind ssh, where nothing of the workbook is installed."""

import json
import os
import subprocess
import sys

import pytest

from workbook import catalog
from workbook.boundary.trace import TraceRequest, trace
from workbook.errors import UsageError
from workbook.node import snapshot
from workbook.node.connect import connect
from workbook.node.probe import check_flashinfer, flashinfer_dir, overlay_env, stack_dir, stack_python
from workbook.paths import DATA
from workbook.types import Stack, Status

pytestmark = pytest.mark.ssh

# `workbook`, where data/ is another folder.
COMMAND = """
import sys
from pathlib import Path
from workbook import catalog
catalog.DATA = Path(sys.argv.pop(1))
from workbook.cli import main
main()
"""


@pytest.fixture
def stocked(far, node, embedded):
    """That node, with FlashInfer in its stacks folder."""
    far.stacks.mkdir()
    flashinfer_dir(far, embedded).symlink_to(flashinfer_dir(node, embedded))
    return far


def test_a_snapshot_is_the_nodes_own(far, node, embedded):
    there, here = snapshot.take(far, embedded), snapshot.take(node, embedded)
    assert there.node == "far" and there.hostname == here.hostname
    assert there.packages["torch"] == here.packages["torch"]
    assert list((far.stacks.parent / "tmp").iterdir()) == []


def test_a_trace_there_ends_as_it_does_here(stocked, node, embedded, tmp_path):
    request = TraceRequest()
    there = trace(stocked, embedded, request, tmp_path)
    here = trace(node, embedded, request)
    assert there.status is Status.DYNAMO_UNSUPPORTED
    unlike = {"seconds"}
    assert there.model_dump(exclude=unlike) == here.model_dump(exclude=unlike)
    assert str(stocked.stacks.parent) not in there.model_dump_json()
    patched = trace(stocked, embedded, TraceRequest(patch_level=4))
    assert patched.status is Status.OK and patched.applied


def test_a_command_traces_on_the_node_that_is_named(stocked, described, tmp_path):
    (tmp_path / "data" / "nodes").mkdir(parents=True)
    (tmp_path / "data" / "nodes" / "far.yaml").write_text(described.model_dump_json(exclude_none=True))
    (tmp_path / "data" / "stacks").symlink_to(DATA / "stacks")
    argv = ["trace", "flashinfer.fp4_quantize", "--patch-level", "1", "--node", "far", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, tmp_path / "data", *argv],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"WORKBOOK_STACKS": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == "dynamo_unsupported" and found["operation"] == "datetime.now"
    again = subprocess.run(
        [sys.executable, "-c", COMMAND, tmp_path / "data", *argv, "--stack", "seed"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("workbook: Stack seed is not on node far (looked in ")


def test_what_is_missing_there_is_said_with_what_to_do_there(far, embedded):
    missing = far.stacks / "flashinfer-python-0.0.1"
    other = embedded.model_copy(update={"flashinfer": "0.0.1"})
    with pytest.raises(UsageError) as said:
        check_flashinfer(far, other)
    assert said.value.message == f"FlashInfer 0.0.1 is not on node far (looked in {missing})."
    assert said.value.hint == (
        f"Run there: {sys.executable} -m pip install --no-deps --target "
        f"'{str(missing).replace(chr(39), chr(39) + chr(34) + chr(39) + chr(34) + chr(39))}' flashinfer-python==0.0.1"
    )
    seed = catalog.load(Stack, "seed")
    with pytest.raises(UsageError) as said:
        stack_python(far, seed)
    assert said.value.message == f"Stack seed is not on node far (looked in {stack_dir(far, seed)})."
    assert "`stack: seed` in data/nodes/far.yaml" in said.value.hint and "locks/seed.txt" in said.value.hint


def test_the_path_is_the_nodes_not_this_machines(far, described, embedded, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/here")
    assert overlay_env(far)["PYTHONPATH"] == str(far.overlay)
    there = far.__class__(described.model_copy(update={"env": {"PYTHONPATH": "/there"}}))
    assert overlay_env(there)["PYTHONPATH"] == f"{there.overlay}{os.pathsep}/there"
    there.close()


def test_a_node_is_connected_to_once(tmp_path, described, monkeypatch):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "far.yaml").write_text(described.model_dump_json(exclude_none=True))
    monkeypatch.setattr(catalog, "DATA", tmp_path)
    assert connect("far") is connect("far")
