"""The crash and the patches on the real Dynamo and the real FlashInfer, each trace in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbook import catalog
from workbook.boundary.diffs import patch_diffs
from workbook.boundary.trace import TraceRequest, trace
from workbook.capture.split import split
from workbook.errors import UsageError
from workbook.node.probe import flashinfer_dir, overlay_env, sglang_dir
from workbook.types import ProcessState, Stack, Stage, Status

pytestmark = pytest.mark.slow
WORKBOOK = str(Path(sys.executable).with_name("workbook"))


def test_the_command_reproduces_the_crash(embedded):
    command = [
        WORKBOOK,
        "trace",
        "flashinfer.fp4_quantize",
        "--arch",
        "sm120",
        "--patch-level",
        "0",
        "--json",
    ]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")
    }
    found = json.loads(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    )
    assert found["status"] == "dynamo_unsupported"
    assert found["break_id"] == "gb0007"
    assert found["operation"] == "_thread.allocate_lock"
    assert found["blamed"] == "flashinfer.jit.cpp_ext:get_cuda_path"
    functions = [frame["function"] for frame in found["frames"]]
    assert functions[:2] == ["forward", "fp4_quantize"] and "get_cuda_version" in functions
    assert [frame["lane"] for frame in found["frames"]][:2] == ["model", "flashinfer"]
    assert found["declared"]["inputs"] == "fake CUDA tensors"
    assert found["declared"]["compute_capability"] == [12, 0]
    assert found["stand_ins"] == [] and found["applied"] == []


def test_every_trace_keeps_a_raw_file_of_its_own(node, embedded, tmp_path):
    for state in ProcessState:
        trace(node, embedded, TraceRequest(process_state=state), tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == len(list(tmp_path.glob("*.log"))) == 2


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "FLASHINFER_LOGLEVEL"])
def test_a_variable_that_would_change_the_question_is_left_out(node, embedded, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    found = trace(node, embedded, TraceRequest())
    assert (found.status, found.operation) == (Status.DYNAMO_UNSUPPORTED, "_thread.allocate_lock")


def test_a_sitecustomize_that_prints_does_no_harm(node, embedded, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('{good morning')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert trace(node, embedded, TraceRequest(patch_level=4)).status is Status.OK


def test_with_cuda_home_the_version_lookup_is_blamed(node, embedded, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    found = trace(node, embedded, TraceRequest())
    assert (found.operation, found.blamed) == (
        "_thread.allocate_lock",
        "flashinfer.jit.cpp_ext:get_cuda_version",
    )


@pytest.mark.parametrize(
    ("level", "state", "status", "operation"),
    [
        (1, "cold", Status.DYNAMO_UNSUPPORTED, "datetime.now"),
        (1, "warm", Status.DYNAMO_UNSUPPORTED, "posix.stat"),
        (2, "warm", Status.DYNAMO_UNSUPPORTED, "Function.__call__"),
        (3, "cold", Status.GRAPH_BREAK, "fp4_quantize"),
        (4, "cold", Status.OK, None),
        (4, "warm", Status.OK, None),
    ],
)
def test_how_far_each_level_gets(node, embedded, level, state, status, operation):
    found = trace(node, embedded, TraceRequest(patch_level=level, process_state=ProcessState(state)))
    assert (found.status, found.operation) == (status, operation)
    if status is Status.OK:
        # K/2 bytes of values a row; a scale every 16 elements, rows padded to 128.
        assert found.output_shapes == ("uint8 (128, 128)", "uint8 (128, 16)")


FROM_IMPORT = """
import subprocess, sys
from workbook_overlay.declare import declare_gpu
declare_gpu("sm120")
from flashinfer import fp4_quantize
print(fp4_quantize.__code__.co_filename, flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "as a child"], check=True)
"""


def test_a_child_process_and_a_from_import_see_the_patch(embedded, tmp_path):
    (tmp_path / "script.py").write_text(FROM_IMPORT)
    command = [WORKBOOK, "exec", "--patch-level", "4", "--", "python", str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("operator around flashinfer.fp4_quantize") == 2


def test_nothing_installed_is_written(node, embedded):
    def state():
        folder = flashinfer_dir(node, embedded)
        return {
            path: path.stat().st_mtime_ns for path in folder.rglob("*") if "__pycache__" not in path.parts
        }

    before = state()
    trace(node, embedded, TraceRequest(patch_level=4))
    assert state() == before


def test_diffs_are_made_against_the_installed_source(node, embedded):
    first, second = patch_diffs(node, embedded, 1)
    assert (
        first.target == "flashinfer.jit.cpp_ext.get_cuda_path"
        and "-    nvcc_path = subprocess.run" in first.diff
    )
    assert second.target == "flashinfer.jit.cpp_ext.get_cuda_version"
    diffs = {one.target: one.diff for one in patch_diffs(node, embedded, 4)}
    assert "-def fp4_quantize(" in diffs["flashinfer.fp4_quantization.fp4_quantize"]
    method = diffs["flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.run"]
    assert "-    def run(" in method and "+BatchDecodeWithPagedKVCacheWrapper.run = boundary." in method


def test_level_5_is_shown_against_sglangs_sources(node):
    seed = catalog.load(Stack, "seed")
    if not node.exists(sglang_dir(node, seed)):
        pytest.skip("SGLang's sources are not set up (make setup)")
    diffs = {one.target: one for one in patch_diffs(node, seed, 5) if one.patch == "nsa-indexer"}
    indexer = diffs["sglang.srt.layers.attention.nsa.nsa_indexer.Indexer.forward_cuda"]
    assert "-    def forward_cuda(" in indexer.diff and indexer.known_in == f"SGLang {seed.sglang}"
    assert "sglang.srt.layers.radix_attention.RadixAttention.forward" in diffs


@pytest.mark.parametrize(("level", "traced"), [(0, Status.DYNAMO_UNSUPPORTED), (4, Status.OK)])
def test_sglangs_own_machinery_splits_what_traces(node, embedded, level, traced):
    found = split(node, embedded, arch="sm120", patch_level=level)
    assert found.stages[Stage.TRACE] is traced
    if traced is not Status.OK:
        assert not found.pieces and Stage.CAPTURE not in found.stages
        return
    # Three layers, each cut at its attention: what lies between, before and after is compiled.
    assert [piece.split for piece in found.pieces] == [False, True] * 3 + [False]
    assert found.num_graphs == 1
    assert found.stages[Stage.CAPTURE] is Status.NOT_SUPPORTED_HERE
    assert "fp4_quantize.default" in found.pieces[0].operations


def test_a_missing_flashinfer_is_one_sentence(node):
    stack = catalog.load(Stack, "embedded").model_copy(update={"flashinfer": "9.9.9"})
    with pytest.raises(
        UsageError, match=r"FlashInfer 9\.9\.9 is not on node local .* Run: workbook stack create"
    ):
        trace(node, stack, TraceRequest())


def test_the_overlay_alone_changes_no_output(node):
    code = "import json; print(json.dumps([1]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | overlay_env(node),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[1]\n", "")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU here")
def test_level_2_outside_a_trace_says_that_it_needs_a_gpu(embedded):
    command = [WORKBOOK, "exec", "--patch-level", "2", "--", "python", "-c", "import flashinfer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "patch jit-loading: needs a GPU" in done.stderr.splitlines()[-1]
