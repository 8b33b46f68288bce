"""Level 4 on the real FlashInfer, without a GPU: every call of the table traces, and each operator's fake is right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BIN
from workbook.boundary.entries import ENTRIES
from workbook.boundary.matrix import Group, trace_group
from workbook.node.connect import connect
from workbook.node.probe import flashinfer_dir, overlay_env
from workbook.types import ProcessState, Status

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
PATHS = [one.path for one in ENTRIES]
CALLS_CUDA = {"flashinfer.nvfp4_quantize", "flashinfer.mxfp4_quantize"}  # a CPU torch cannot even try
EDITED = "flashinfer.fp4_quantization.block_scale_interleave"


def run(script, stack, folder, level=4, **env):
    """The JSON that a script printed under the overlay; its own words where it failed."""
    done = subprocess.run(
        [sys.executable, "-P", script],
        env=os.environ
        | overlay_env(connect("local"), stack, level)
        | {"FLASHINFER_WORKSPACE_BASE": str(folder)}
        | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cells(node, embedded):
    """How each call of the table ends at levels 0 and 4, cold and warm: one process a level, a fork of it a call."""
    asked, found = tuple((path, state) for path in PATHS for state in ProcessState), {}
    for level in (0, 4):

        def keep(cell, level=level):
            found[level, cell.entry, cell.process_state] = cell

        trace_group(node, Group(embedded, level, asked), "sm120", keep)
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("state", ProcessState)
def test_a_call_that_stops_dynamo_traces_at_level_4(cells, path, state):
    before, after = cells[0, path, state], cells[4, path, state]
    assert before.status in (Status.DYNAMO_UNSUPPORTED, Status.NOT_SUPPORTED_HERE)
    assert before.status is Status.DYNAMO_UNSUPPORTED or path in CALLS_CUDA
    assert before.blamed.startswith("flashinfer.")
    assert after.status is Status.OK, after.message


@pytest.fixture(scope="module")
def fakes(embedded, tmp_path_factory):
    return run(HERE / "fake_shapes.py", embedded, tmp_path_factory.mktemp("flashinfer"))


def test_a_quantizers_fake_is_the_installed_shape_arithmetic_and_refuses_what_it_does(fakes):
    """The script fails at the first difference; here is shown that it compared what it says."""
    assert {
        "fp4_quantize, row-major",
        "fp4_quantize, column-major",
        "nvfp4_batched_quantize, row-major",
    } <= set(fakes["succeeded"])
    assert set(fakes["refused"]) == {"AssertionError", "NotImplementedError", "RuntimeError", "ValueError"}
    assert sum(fakes["succeeded"].values()) > 100 < sum(fakes["refused"].values())


def test_one_graph_holds_for_any_number_of_tokens(fakes):
    assert set(fakes["symbolic"]) == {one.path for one in ENTRIES if not one.planned}
    assert {path: found for path, found in fakes["symbolic"].items() if found["graphs"] != 1} == {}
    assert {path: found for path, found in fakes["symbolic"].items() if found["different"]} == {}


def test_a_fake_leaves_no_trace_in_flashinfers_autotuner(fakes):
    assert fakes["tuned"] == []


@pytest.fixture(scope="module")
def checks(embedded, tmp_path_factory):
    return run(HERE / "operator_checks.py", embedded, tmp_path_factory.mktemp("flashinfer"))


@pytest.mark.parametrize(
    "operator",
    [
        "fp4_quantize",
        "fp4_quantize, linear",
        "fp4_quantize, column-major",
        "fused_add_rmsnorm",
        "rmsnorm",
        "rmsnorm.out",
        "silu_and_mul",
        "silu_and_mul.out",
    ],
)
def test_pytorchs_own_check_of_an_operator_passes(checks, operator):
    assert checks[operator] == dict.fromkeys(
        ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"), "SUCCESS"
    )


def test_pytorchs_own_check_finds_a_wrong_operator(checks):
    assert checks["wrong fake"]["test_faketensor"] != "SUCCESS"
    assert checks["hidden mutation"]["test_schema"] != "SUCCESS"


@pytest.fixture(scope="module")
def edited(node, embedded, tmp_path_factory):
    """A folder of stacks whose FlashInfer is the installed one with a comment more in one function."""
    stacks, installed = tmp_path_factory.mktemp("stacks"), flashinfer_dir(node, embedded) / "flashinfer"
    package = stacks / flashinfer_dir(node, embedded).name / "flashinfer"
    package.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name not in ("__pycache__", "fp4_quantization.py"):
            (package / entry.name).symlink_to(entry)
    source = (installed / "fp4_quantization.py").read_text()
    changed = source.replace("def block_scale_interleave(", "def block_scale_interleave(  # edited\n    ", 1)
    assert changed != source
    (package / "fp4_quantization.py").write_text(changed)
    return stacks


APPLIED_TO_AN_EDITED_MODULE = """
import json
from workbook_overlay.declare import declare_gpu
declare_gpu("sm120")
import flashinfer.fp4_quantization as module
import torch
from workbook_overlay import patches
before, refusal = dict(vars(module)), ""
try:
    patches.apply("custom_op", module)
except patches.PatchRefused as error:
    refusal = str(error)
after = vars(module)
rebound = [name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)]
print(json.dumps([refusal, rebound, patches.APPLIED, hasattr(torch.ops.workbook, "fp4_quantize")]))
"""


def test_one_unknown_function_of_a_module_and_nothing_in_it_is_rebound(
    embedded, edited, tmp_path, monkeypatch
):
    monkeypatch.setenv("WORKBOOK_STACKS", str(edited))
    (tmp_path / "apply.py").write_text(APPLIED_TO_AN_EDITED_MODULE)
    refusal, rebound, applied, operator = run(tmp_path / "apply.py", embedded, tmp_path, level=0)
    assert EDITED in refusal and refusal.endswith("nothing was patched")
    assert (rebound, applied, operator) == ([], [], False)


def workbook(*arguments, **env):
    return subprocess.run(
        [BIN / "workbook", *arguments], env=os.environ | env, capture_output=True, text=True, check=False
    )


def test_verify_names_each_target_and_the_versions_that_have_its_source(embedded):
    done = workbook("patch", "verify", "4")
    assert done.returncode == 0, done.stderr
    targets = [line.split(": ") for line in done.stdout.splitlines() if line.startswith("custom-op: ")]
    assert len(targets) == len(PATHS)
    assert {target.rpartition(".")[2] for _, target, _ in targets} == {
        path.rpartition(".")[2] for path in PATHS
    }
    assert all(known.startswith("as in FlashInfer ") and "0.6.3" in known for _, _, known in targets)


def test_verify_refuses_an_unknown_source_by_file_and_function(node, embedded, edited):
    done = workbook("patch", "verify", "4", WORKBOOK_STACKS=str(edited))
    assert done.returncode == 2
    file = edited / flashinfer_dir(node, embedded).name / "flashinfer" / "fp4_quantization.py"
    assert f"{EDITED} in {file} is not a version this patch knows" in done.stderr
    assert "Traceback" not in done.stderr and "refused" in done.stdout


def test_a_trace_at_level_4_with_an_unknown_source_ends_with_the_same_sentence(embedded, edited):
    done = workbook("trace", "flashinfer.rmsnorm", "--patch-level", "4", WORKBOOK_STACKS=str(edited))
    assert done.returncode == 2
    assert EDITED in done.stderr and "nothing was patched" in done.stderr and "Traceback" not in done.stderr
