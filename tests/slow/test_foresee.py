"""Whole models foretold through the command, on the sources that the set-up brings: SGLang 0.5.9, FlashInfer 0.6.3."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import running, wait_for
from workbook import catalog
from workbook.node.probe import flashinfer_dir, sglang_dir
from workbook.types import Forecast, Foretold, Lane, Stack

pytestmark = pytest.mark.slow
WORKBOOK = str(Path(sys.executable).with_name("workbook"))
ATTENTION = "sglang.unified_attention_with_output"
INDEXER, SPARSE = "workbook.nsa_indexer", "workbook.nsa_attention"


@pytest.fixture(scope="module")
def seed(node):
    stack = catalog.load(Stack, "seed")
    missing = [one for one in (sglang_dir(node, stack), flashinfer_dir(node, stack)) if not node.exists(one)]
    if missing:
        pytest.skip(f"no {missing[0].name} here (workbook stack create seed --sources)")
    return stack


def foretold(*args):
    done = subprocess.run(
        [WORKBOOK, "foresee", *args, "--quick", "--json"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stderr.splitlines()) > 3  # its phases, as they end
    return Forecast.model_validate_json(done.stdout)


@pytest.fixture(scope="module")
def case(seed):
    return foretold("glm5-nvfp4-tp8")


@pytest.fixture(scope="module")
def case_at_4(seed):
    return foretold("glm5-nvfp4-tp8", "--patch-level", "4")


@pytest.fixture(scope="module")
def sparse_at_4(seed):
    return foretold("glm5-nvfp4-tp8-nsa", "--patch-level", "4")


@pytest.fixture(scope="module")
def sparse_at_5(seed):
    return foretold("glm5-nvfp4-tp8-nsa", "--patch-level", "5")


def test_the_case_dies_of_the_quantizers_lock_with_its_chain(case):
    assert case.outcome is Foretold.STOPS and case.graphs == () and case.memory is None
    stop, *rest = case.blockers
    assert stop.operation == "_thread.allocate_lock" and stop.status == "dynamo_unsupported"
    assert stop.blamed.startswith("flashinfer.jit.cpp_ext:get_cuda_path:")
    lanes = [frame.lane for frame in stop.frames if frame.lane is not Lane.TORCH]
    assert list(dict.fromkeys(lanes)) == [Lane.SGLANG, Lane.FLASHINFER, Lane.STDLIB]
    assert lanes == sorted(lanes, key=[Lane.SGLANG, Lane.FLASHINFER, Lane.STDLIB].index)
    functions = [f"{frame.module.rpartition('.')[2]}.{frame.function}" for frame in stop.frames]
    chain = [
        "modelopt_quant.apply",
        "fp4_quantization.fp4_quantize",
        "cpp_ext.get_cuda_path",
        "subprocess.run",
    ]
    assert [one for one in functions if one in chain] == chain
    assert re.fullmatch(r"model\.layers\.0\.mlp(\.\w+)?", stop.layer)
    assert (stop.past_level, stop.passed) == (4, "opaque")
    assert [(one.status, one.passed) for one in rest] == [("ok", "end")]  # nothing is behind it


def test_the_case_is_asked_as_one_rank_of_eight_without_its_weights(case):
    assert (case.architecture, case.tp, case.rank, case.layers, case.model_layers) == (
        "GlmMoeDsaForCausalLM", 8, 0, 4, 78
    )  # fmt: skip
    assert case.versions["sglang"] == "0.5.9" and case.versions["flashinfer-python"] == "0.6.3"
    assert case.declared.compute_capability == (12, 0)
    assert case.applied == ()  # at level 0, whatever was tried to see what comes after
    assert case.capture_sizes[0] < case.capture_sizes[-1] and 1 < case.weights_gib < 10
    assert case.chosen["quantization"] == "modelopt_fp4" and case.chosen["attention_backend"] == "flashinfer"
    assert any("weights: none" in one for one in case.stand_ins)
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|usr|Users)/", case.model_dump_json())
    assert sum(case.seconds.values()) < 400 and case.seconds["import torch"] > 0.2


def test_level_4_gets_the_case_past_it_to_its_end(case_at_4):
    layers = case_at_4.layers
    assert case_at_4.outcome is Foretold.TRACES and case_at_4.blockers == ()
    assert {graph.pieces for graph in case_at_4.graphs} == {2 * layers + 1}
    assert {graph.compiled for graph in case_at_4.graphs} == {layers + 1}
    assert all(graph.split_ops == {ATTENTION: layers} for graph in case_at_4.graphs)
    assert any(name.startswith("workbook.fp4_quantize") for name in case_at_4.graphs[0].operations)
    assert any(one.startswith("custom-op: flashinfer") for one in case_at_4.applied)
    assert case_at_4.compiled_sizes == (case_at_4.capture_sizes[-1], case_at_4.capture_sizes[0])
    memory = case_at_4.memory
    assert memory.graphs == (layers + 1) * len(case_at_4.capture_sizes)
    hidden, tokens = 6144, case_at_4.capture_sizes[-1]
    assert tokens * hidden * 2 < memory.pool_gib * 2**30 < 40 * tokens * hidden * 2  # bf16, a few at once


def test_level_4_leaves_sparse_attention_at_its_indexer(sparse_at_4):
    assert sparse_at_4.outcome is Foretold.STOPS
    stop, *rest = sparse_at_4.blockers
    assert "nsa_indexer" in stop.blamed and stop.layer.endswith("self_attn.indexer")
    assert stop.past_level == 5 and "(nsa-indexer)" in stop.past
    assert [(one.status, one.passed) for one in rest] == [("ok", "end")]


def test_level_5_gets_sparse_attention_past_it_to_its_end(sparse_at_5):
    layers = sparse_at_5.layers
    assert sparse_at_5.outcome is Foretold.TRACES and sparse_at_5.blockers == ()
    assert {graph.pieces for graph in sparse_at_5.graphs} == {4 * layers + 1}
    assert all(graph.split_ops == {INDEXER: layers, SPARSE: layers} for graph in sparse_at_5.graphs)
    assert any(one.startswith("nsa-indexer: sglang") for one in sparse_at_5.applied)


def test_a_model_without_fp4_traces_as_it_is(seed):
    found = foretold("Qwen3-30B-A3B")
    assert found.outcome is Foretold.TRACES and found.applied == ()
    assert (found.architecture, found.layers, found.model_layers) == ("Qwen3MoeForCausalLM", 2, 48)
    assert {graph.pieces for graph in found.graphs} == {5}
    assert not any("fp4" in name for name in found.graphs[0].operations)


def test_weights_that_do_not_divide_leave_nothing_to_foretell_and_it_says_so(seed):
    found = foretold("Qwen3-235B-A22B-FP8", "--tp", "8")
    assert found.outcome is Foretold.CANNOT_TELL and found.blockers == found.graphs == ()
    assert "(load)" in found.reason and "192" in found.reason and "128" in found.reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_forecast_that_is_interrupted_leaves_no_process_and_no_folder(seed, tmp_path, number):
    process = subprocess.Popen(
        [WORKBOOK, "foresee", "glm5-nvfp4-tp8", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    for line in process.stderr:
        if "import torch" in line:
            break
    started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert len(started) >= 2 and list(tmp_path.iterdir())  # the supervisor and the probe, at work
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and stdout == "" and "Traceback" not in stderr
    wait_for(lambda: not running(started))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_ones_own_in_a_few_words(seed, tmp_path):
    """Only its config.json; what SGLang itself refuses of it is told in SGLang's words."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Nobody"], "num_hidden_layers": 3}))
    done = subprocess.run(
        [WORKBOOK, "foresee", str(tmp_path)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr
    assert "annot tell" in done.stdout.splitlines()[0] and "SGLang fails (import)" in done.stdout
