"""Every remedy on the real Dynamo and FlashInfer: how it ends, what was seen of its risk, what a call costs."""

import json
import os
import subprocess
import sys

import pytest

from workbook.boundary.remedies import compare
from workbook.boundary.remedy_table import REMEDIES
from workbook.node.probe import overlay_env
from workbook.types import ProcessState, Status

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return tmp_path_factory.mktemp("raw")


@pytest.fixture(scope="module")
def found(node, embedded, raw):
    return {one.remedy: one for one in compare(node, embedded, raw_dir=raw)}


def test_each_remedy_of_the_table_has_its_outcome_and_its_raw_output(found, raw):
    assert list(found) == [one.name for one in REMEDIES]
    assert {one.process_state for one in found.values()} == {ProcessState.WARM}
    assert all("did nothing in the eager call" in one.stand_ins[0] for one in found.values())
    names = {f"remedy-{name}-sm120" for name in [*found, "costs"]}
    assert {path.stem for path in raw.glob("*.json")} == {path.stem for path in raw.glob("*.log")} == names


@pytest.mark.parametrize(
    ("remedy", "status", "operation", "blamed"),
    [
        (
            "pre-warm",
            Status.DYNAMO_UNSUPPORTED,
            "_thread.allocate_lock",
            "flashinfer.jit.cpp_ext:get_cuda_path",
        ),
        ("compiler-disable", Status.GRAPH_BREAK, "fp4_quantize", "flashinfer:fp4_quantize"),
        ("assume-constant-result", Status.DYNAMO_UNSUPPORTED, None, "flashinfer:fp4_quantize"),
        ("allow-in-graph", Status.DYNAMO_UNSUPPORTED, "Tensor.data_ptr", "flashinfer:fp4_quantize"),
        ("nonstrict-trace", Status.DYNAMO_UNSUPPORTED, "fp4_quantize", "flashinfer:fp4_quantize"),
        ("substitute-in-graph", Status.OK, None, None),
        ("is-compiling", Status.OK, None, None),
        ("custom-op-decorator", Status.OK, None, None),
        ("custom-op-define", Status.OK, None, None),
    ],
)
def test_how_each_remedy_ends(found, remedy, status, operation, blamed):
    one = found[remedy]
    assert (one.status, one.operation, one.blamed) == (status, operation, blamed)
    if status is Status.OK:
        assert one.output_shapes == ("uint8 (128, 128)", "uint8 (128, 16)")


@pytest.mark.parametrize(
    ("remedy", "observed"),
    [
        ("pre-warm", "the loader's cache held 1 module; the trace used it 0 times"),
        ("compiler-disable", "falls into 2 graphs"),
        ("assume-constant-result", "on the cached loader itself, as one would write it, the trace stops at _thread"),
        ("assume-constant-result", "returned 1 and then returns 2: the compiled call uses 1"),
        ("allow-in-graph", "own Python while tracing: 1, on FakeTensor"),
        ("nonstrict-trace", "over a kernel that takes fake tensors and does nothing, the trace passes"),
        ("substitute-in-graph", "after torch._dynamo.reset() the same call passes"),
        ("substitute-in-graph", "a second substitute: refused, ValueError"),
        ("is-compiling", "a call without the branch stops at _thread.allocate_lock"),
        ("custom-op-decorator", "(uint8 (64, 128), really uint8 (128, 128)) the trace passes"),
        ("custom-op-decorator", "a kernel that returns its input: refused"),
        ("custom-op-define", "a kernel that returns its input: not refused"),
    ],
)  # fmt: skip
def test_the_risks_were_really_seen(found, remedy, observed):
    assert any(observed in one for one in found[remedy].observed), found[remedy].observed


def test_what_passes_was_timed_and_an_operator_costs_more_than_none(found):
    for one in found.values():
        assert (one.overhead_us_p50 is not None) == (one.status is Status.OK)
        if one.status is Status.OK:
            assert one.overhead_us_p10 <= one.overhead_us_p50 <= one.overhead_us_p90
            assert one.cost_calls >= 1000 and one.bare_us_p50 > 0
    cost = {name: one.overhead_us_p50 for name, one in found.items()}
    # Eager code runs the quantizer itself under a substitute; an operator is dispatched, the decorator's in Python.
    assert cost["substitute-in-graph"] < cost["custom-op-define"] < cost["custom-op-decorator"]


LIKE_FLASHINFER = """
import sys
sys.path.insert(0, sys.argv[1])
import timing, time
def bare(seconds): time.sleep(seconds)
def twice(seconds): bare(seconds); bare(seconds)
timing.ROUNDS, timing.CALLS = 20, 2
import json; print(json.dumps(timing.overheads(bare, [bare, twice], [0.001])))
"""


def test_the_clock_tells_a_call_from_two(node):
    folder = overlay_env(node)["PYTHONPATH"].split(os.pathsep)[0]
    done = subprocess.run(
        [sys.executable, "-c", LIKE_FLASHINFER, f"{folder}/workbook_overlay"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    same, twice = (one["overhead_us_p50"] for one in found["overheads"])
    assert found["bare_us_p50"] > 1000 and found["calls"] == 40
    assert abs(same) < 300 and 900 < twice < 2000
