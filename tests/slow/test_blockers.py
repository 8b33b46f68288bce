"""Every blocker in one go: of FlashInfer's quantizer, and of functions of anybody's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.boundary.blockers import blockers
from workbook.errors import UsageError
from workbook.types import Status

pytestmark = pytest.mark.slow
WORKBOOK = str(Path(sys.executable).with_name("workbook"))


def test_the_quantizers_whole_list_in_order_from_one_command(embedded):
    done = subprocess.run(
        [WORKBOOK, "blockers", "flashinfer.fp4_quantize", "--arch", "sm120", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert [one["order"] for one in found] == list(range(1, len(found) + 1))
    operations = [one["operation"] for one in found]
    functions = [one["blamed"] and one["blamed"].split(":")[1] for one in found]
    met = list(zip(operations, functions, strict=True))
    # The chain of the original case; what lies between depends on the versions of FlashInfer and filelock.
    chain = [
        ("_thread.allocate_lock", "get_cuda_path"),
        ("_thread.allocate_lock", "get_cuda_version"),
        ("posix.stat", "is_aot"),
        ("posix.stat", "get_tmpdir"),
        ("posix.getpid", "build_and_load"),
        ("posix.stat", "is_ninja_generated"),
        ("Function.__call__", "load"),
        ("types.SimpleNamespace", "get_fp4_quantization_module"),
        ("Function.__call__", "fp4_quantize_sm100"),
        ("Tensor.data_ptr", "fp4_quantize_sm100"),
    ]
    places = [met.index(one) for one in chain]
    assert places == sorted(places)
    assert found[-1]["status"] == "ok" and found[-1]["passed"] == "end"
    assert all(one["blamed"].split(":")[2].isdigit() for one in found[:-1])
    assert "nothing was built" in found[0]["stand_ins"][0]
    assert len(done.stderr.splitlines()) >= len(found) - 1


OWN = """
import os, time
import orjson, psutil, torch, xxhash

def load_scale():
    return xxhash.xxh64(b"scale").intdigest() % 7

def stamp():
    return time.time() * 0 + 2.0

def hashes(x):
    return x * load_scale()

def counts_cores(x):
    return x + psutil.cpu_count()

def two_in_a_row(x):
    return x * stamp() + os.getpid() * 0 + load_scale()

def branches(x):
    return x if x.sum() > 0 else -x

def serialises(x):
    return helper(x) + 1

def helper(x):
    return x * len(orjson.dumps([1, 2]))

def traces(x):
    return x + 1

def fails(x):
    raise ValueError("not today")

def leaves(x):
    raise SystemExit(3)

class Layer(torch.nn.Module):
    def forward(self, x):
        return x

layer = Layer()
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "inputs.py").write_text("import torch\n\ndef inputs():\n    return (torch.ones(4),)\n")
    return tmp_path / "inputs.py"


@pytest.mark.parametrize(
    ("function", "ways", "ends"),
    [
        ("hashes", ["constant"], Status.OK),
        ("counts_cores", ["constant"], Status.OK),
        ("serialises", ["opaque"], Status.OK),
        ("branches", ["not passed"], Status.DYNAMO_UNSUPPORTED),
        ("traces", [], Status.OK),
    ],
)
def test_a_function_of_ones_own(node, embedded, own, function, ways, ends):
    found = blockers(node, embedded, f"mine:{function}", inputs=own)
    assert [one.passed for one in found if one.passed != "end"] == ways
    assert found[-1].status is ends
    assert found[0].declared is None
    if ways:
        assert found[0].blamed.startswith("mine:")


def test_one_blocker_after_the_other(node, embedded, own):
    found = blockers(node, embedded, "mine:two_in_a_row", inputs=own)
    assert found[0].operation == "time.time" and found[0].passed == "constant"
    assert found[-1].passed == "not passed" and "the traced function itself" in found[-1].how


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("mine:fails", "mine:fails fails before any tracing: ValueError: not today"),
        ("mine:nothing", "mine:nothing fails before any tracing: AttributeError"),
        ("nowhere:f", "nowhere:f fails before any tracing: ModuleNotFoundError"),
        ("mine.f", "'mine.f' is not MODULE:FUNCTION."),
        ("mine:leaves", "mine:leaves fails before any tracing: SystemExit: 3"),
        (
            "mine:layer",
            "mine:layer fails before any tracing: TypeError: it is no Python function but a Layer",
        ),
        (
            "math:sqrt",
            "math:sqrt fails before any tracing: TypeError: it is no Python function but a builtin",
        ),
    ],
)
def test_what_cannot_be_traced_at_all_is_one_sentence(node, embedded, own, path, sentence):
    with pytest.raises(UsageError) as caught:
        blockers(node, embedded, path, inputs=own)
    assert str(caught.value).startswith(sentence)


def test_a_missing_inputs_file(node, embedded, tmp_path):
    with pytest.raises(UsageError, match="No file"):
        blockers(node, embedded, "mine:traces", inputs=tmp_path / "none.py")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("", "TypeError: inputs.py defines no function inputs()."),
        ("inputs = 3", "TypeError: inputs.py defines no function inputs()."),
        ("def inputs(): raise OSError('no data')", "OSError: no data."),
        ("import sys; sys.exit()", "SystemExit: ."),
        ("def inputs(:", "SyntaxError: invalid syntax (inputs.py, line 1)."),
        (
            "import torch\ndef inputs(): return torch.ones(4)",
            "TypeError: inputs() in inputs.py has to give a tuple of arguments, not a Tensor.",
        ),
        ("def inputs(): pass", "has to give a tuple of arguments, not a NoneType."),
    ],
)
def test_inputs_that_will_not_do_are_one_sentence(node, embedded, own, code, sentence):
    own.write_text(code)
    with pytest.raises(UsageError) as caught:
        blockers(node, embedded, "mine:traces", inputs=own)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(sentence)


def test_other_rows_of_the_table_have_a_list_of_their_own(node, embedded):
    norm = blockers(node, embedded, "flashinfer.rmsnorm")
    assert norm[-1].status is Status.OK and len(norm) > 5
    assert {one.operation for one in norm} >= {"posix.stat", "Function.__call__", "Tensor.data_ptr"}
    attention = blockers(node, embedded, "flashinfer.BatchDecodeWithPagedKVCacheWrapper.run")
    assert attention[0].operation == "Function.__call__" and "run_batch_decode" in attention[0].blamed
    assert any("planned on CPU tensors" in one for one in attention[-1].stand_ins)
    assert all("Passed.opaque" not in (one.operation or "") for one in attention)
