"""The witness of SGLang's compile step: what it says of a graph, and that nothing it meets stops a server.

The SGLang here is a stub with its layout and its split; the real one is in tests/slow.
"""

import json
import os
import subprocess
import sys

import pytest

from workbook.paths import OVERLAY

BACKEND = """
from types import SimpleNamespace

class SGLangBackend:
    def __init__(self, split_ops):
        self.compile_config = SimpleNamespace(split_ops=split_ops)

    def __call__(self, graph, example_inputs):
        self.piecewise_graphs = [SimpleNamespace(is_splitting_graph=split) for split in (False, True, False)]
        return "compiled"
"""
COMPILE = """
import sys, torch
from sglang.srt.compilation.backend import SGLangBackend

def forward(x):
    return torch.ops.aten.relu.default(torch.ops.aten.neg(torch.ops.aten.relu.default(x))) + 1

for _ in range(int(sys.argv[1])):
    print(SGLangBackend(["aten.neg", "aten.absent"])(torch.fx.symbolic_trace(forward), []))
"""
RANK = "def get_tensor_model_parallel_rank():\n    return {}\n"


@pytest.fixture
def stub(tmp_path):
    """A folder with the stub; its ranks are as RANK names them."""
    for package in ("sglang", "sglang/srt", "sglang/srt/compilation", "sglang/srt/distributed"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "sglang/srt/compilation/backend.py").write_text(BACKEND)
    (tmp_path / "sglang/srt/distributed/parallel_state.py").write_text(RANK.format("3"))
    return tmp_path


def start(stub, pieces, graphs=1):
    path = os.pathsep.join([str(OVERLAY), str(stub)])
    environment = os.environ | {"PYTHONPATH": path, "WORKBOOK_PIECES": str(pieces)}
    return subprocess.Popen(
        [sys.executable, "-c", COMPILE, str(graphs)],
        env=environment,
        cwd=stub,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(stub, pieces, graphs=1):
    """Standard error of a process that compiled so many graphs to its end."""
    process = start(stub, pieces, graphs)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout.split()) == (0, ["compiled"] * graphs), stderr
    return stderr


def told(pieces):
    return [json.loads(line) for line in pieces.read_text().splitlines()]


def test_each_graph_is_a_line(stub):
    compiled(stub, "pieces.jsonl", graphs=2)  # a relative path is one of the folder it starts in
    first, second = told(stub / "pieces.jsonl")
    pid = first.pop("pid")
    assert first == {
        "rank": 3,
        "num_graphs": 1,
        "pieces": 3,
        "split": 1,
        "compiled": 2,
        "split_ops": {"aten.neg": 1},
        "nodes": 6,  # the input, three operations, an addition and the output
        "operations": {"aten.neg": 1, "aten.relu.default": 2},
    }
    assert (second["num_graphs"], second["pid"]) == (2, pid)


def test_without_the_variable_nothing_is_hooked(stub):
    assert compiled(stub, "") == ""
    code = "import sys, sglang.srt.compilation.backend as b; print('workbook_overlay.hook' in sys.modules)"
    path = os.pathsep.join([str(OVERLAY), str(stub)])
    environment = {k: v for k, v in os.environ.items() if k != "WORKBOOK_PIECES"} | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_process_outside_a_tensor_parallel_group_has_no_rank(stub):
    (stub / "sglang/srt/distributed/parallel_state.py").write_text(RANK.format("[][0]"))
    compiled(stub, stub / "pieces.jsonl")
    assert told(stub / "pieces.jsonl")[0]["rank"] is None


def test_eight_ranks_write_one_file(stub):
    ranks = [start(stub, stub / "pieces.jsonl", graphs=20) for _ in range(8)]
    assert [rank.communicate()[1] for rank in ranks] == [""] * 8
    lines = told(stub / "pieces.jsonl")
    seen = {(line["pid"], line["num_graphs"]) for line in lines}
    assert len(lines) == len(seen) == 160


@pytest.mark.parametrize("place", ["absent/pieces.jsonl", "."])
def test_a_file_that_cannot_be_written_is_a_warning(stub, place):
    (warning,) = compiled(stub, stub / place).splitlines()
    assert warning.startswith(f"workbook: {(stub / place).resolve()} has nothing of a graph: ")


@pytest.mark.parametrize(
    "backend", ["", BACKEND.replace("self.piecewise_graphs", "self.parts")], ids=["gone", "renamed"]
)
def test_a_backend_of_another_shape_is_a_warning(stub, backend):
    (stub / "sglang/srt/compilation/backend.py").write_text(backend or "SGLangBackend = None\n")
    process = start(stub, stub / "pieces.jsonl")
    stdout, stderr = process.communicate()
    assert not (stub / "pieces.jsonl").exists()
    assert "workbook: " in stderr and "has nothing of a graph" in stderr
    assert stdout == ("compiled\n" if backend else "")
