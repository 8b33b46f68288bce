"""`workbook matrix` on the real Dynamo and FlashInfer: a fork answers as a fresh process, and can be interrupted."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from workbook import matrices, store
from workbook.boundary import diagnosis
from workbook.boundary.matrix import key
from workbook.boundary.trace import TraceRequest, trace_all
from workbook.node.probe import run_probe
from workbook.types import MatrixCell, MatrixRequest, ProcessState, Status

pytestmark = pytest.mark.slow
WORKBOOK = str(Path(sys.executable).with_name("workbook"))
FP4 = "flashinfer.fp4_quantize"
PROBE = "probes/matrix.py"


def parsed(stdout):
    return [MatrixCell.model_validate(one) for one in json.loads(stdout)]


def timeless(cells):
    return [one.model_copy(update={"seconds": 0.0}) for one in cells]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, embedded):
    """A whole matrix: what it printed, and the folder of its runs."""
    folder = tmp_path_factory.mktemp("matrix")
    done = subprocess.run(
        [WORKBOOK, "matrix", "--levels", "0,1,4", "--json"],
        env=os.environ | {"WORKBOOK_RUNS": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout, folder


def test_a_fork_answers_as_a_fresh_process_does(node, embedded, uninterrupted):
    cells = {(one.patch_level, one.process_state): one for one in parsed(uninterrupted[0])}
    asked = [TraceRequest(patch_level=number, process_state=state) for number, state in cells]
    assert len(asked) == 6
    for fresh in trace_all(node, embedded, asked):
        forked = cells[fresh.patch_level, fresh.process_state]
        blamed = diagnosis.located(fresh.frames, FP4) if fresh.frames else None
        assert (forked.status, forked.break_id, forked.operation, forked.blamed) == (
            fresh.status, fresh.break_id, fresh.operation, blamed,
        )  # fmt: skip
        assert (forked.torch, forked.python) == (fresh.versions["torch"], fresh.versions["python"])
    assert {one.status for one in cells.values()} == {Status.DYNAMO_UNSUPPORTED, Status.OK}


def test_json_is_an_array_of_cells_and_the_sealed_run_has_the_same(uninterrupted, monkeypatch):
    stdout, folder = uninterrupted
    monkeypatch.setenv("WORKBOOK_RUNS", str(folder))
    assert all(set(one) == set(MatrixCell.model_fields) for one in json.loads(stdout))
    (sealed,) = store.find(store.MATRIX)
    cells = parsed(stdout)
    assert sealed.records("cells", MatrixCell) == cells
    table = sealed.table("cells")
    assert list(table.columns) == list(MatrixCell.model_fields)
    assert table["seconds"].tolist() == [one.seconds for one in cells]
    assert table["operation"].isna().tolist() == [one.status is Status.OK for one in cells]
    assert [(one.patch_level, one.process_state) for one in cells] == [
        (number, state) for number in (0, 1, 4) for state in ProcessState
    ]
    assert sealed.record.verdict == "6 cells: 4 dynamo_unsupported, 2 ok."
    assert store.campaigns() == []  # it is not one of the notebooks'


def start(*args, **options):
    return subprocess.Popen(
        [WORKBOOK, "matrix", *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def below(process):
    """Every process that it has started."""
    try:
        return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def probes(process):
    """Its probe, then the probe's forks, one a cell."""
    matching = [pid for pid in below(process) if PROBE in command_line(pid)]
    return [pid for pid in matching if "supervise" not in command_line(pid)]


def kept(runs):
    partials = list((runs / store.MATRIX).glob(f"*{store.PARTIAL}"))
    paths = [path for partial in partials if (path := partial / "raw" / "cells.jsonl").exists()]
    return sum(path.read_text().count("\n") for path in paths)


def resumed():
    done = subprocess.run(
        [WORKBOOK, "matrix", "--resume", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return parsed(done.stdout)


@pytest.mark.parametrize(
    ("number", "whom", "status"),
    [
        (signal.SIGINT, "asker", 130),
        (signal.SIGTERM, "asker", 130),
        (signal.SIGKILL, "asker", -9),
        (signal.SIGKILL, "probe", 1),
    ],
)
def test_an_interrupted_matrix_leaves_no_process_and_goes_on(
    embedded, runs, uninterrupted, number, whom, status
):
    process = start("--levels", "0,1,4")
    # the first level is done and forks of another run; a third is still to come, so this state cannot be missed
    wait_for(lambda: kept(runs) >= 2 and len(probes(process)) > 1, 240)
    started = below(process)
    os.kill(process.pid if whom == "asker" else probes(process)[0], number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    if whom == "probe":
        assert "workbook: matrix.py on local was ended by SIGKILL. What was traced is kept." in stderr
    elif number is not signal.SIGKILL:
        assert "interrupted; what was traced is kept. To go on: workbook matrix --resume" in stderr
    assert "Traceback" not in stderr
    wait_for(lambda: not running(started))
    assert len(started) > 2 and store.find(store.MATRIX) == [] and kept(runs) >= 2
    assert timeless(resumed()) == timeless(parsed(uninterrupted[0]))
    assert store.partials(store.MATRIX) == []


def test_a_cell_that_is_killed_is_one_crashed_cell(embedded, runs, uninterrupted):
    process = start("--levels", "0", "--json")
    forks: list[int] = []
    wait_for(lambda: forks.extend(probes(process)[1:]) or forks, 120)
    os.kill(forks[0], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    (crashed,) = [one for one in parsed(stdout) if one.status is Status.CRASHED]
    assert crashed.message == "exit status -9"
    (other,) = timeless([one for one in parsed(stdout) if one != crashed])
    assert other in timeless(parsed(uninterrupted[0]))


# As `workbook matrix`, on a disk that has no more room after the first cell.
FULL = """
import resource
from pathlib import Path
from workbook import matrices
from workbook.node.connect import connect
run, request = matrices.reopen()
def fill_up(cell, done, total):
    size = (run.raw / "cells.jsonl").stat().st_size + 50
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    matrices.fill(connect("local"), run, request, fill_up)
except matrices.WorkbookError as error:
    print(error)
"""


def begun(node, *levels):
    return matrices.begin(
        node, MatrixRequest(stacks=("embedded",), entries=(FP4,), levels=levels, arch="sm120")
    )


def test_a_disk_that_fills_up_costs_the_cell_that_was_being_written(node, embedded, runs, uninterrupted):
    run = begun(node, 0)
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True)
    path = run.raw / "cells.jsonl"
    assert done.stdout == f"Cannot write {path}: File too large. Make room, then: workbook matrix --resume\n"
    assert kept(runs) == 1 and not path.read_bytes().endswith(b"\n")
    assert timeless(resumed()) == timeless(parsed(uninterrupted[0])[:2])


@pytest.mark.parametrize("size", [1, 300, 5000])
def test_no_room_at_all_is_one_sentence(embedded, runs, size):
    process = start(
        "--levels", "0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    )
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    sentences = [line for line in stderr.splitlines() if line.startswith("workbook: ")]
    assert len(sentences) == 1 and "Traceback" not in stderr and len(sentences[0]) < 500
    assert store.find(store.MATRIX) == []


def test_two_that_resume_the_same_matrix_do_not_both_write(node, embedded, runs, uninterrupted):
    run = begun(node, 0)
    both = [start("--resume", "--json") for _ in range(2)]
    ends = [(process.communicate(timeout=120), process.returncode) for process in both]
    ((stdout, _), _), ((_, refused), status) = sorted(ends, key=lambda end: end[1])
    assert status == 1 and f"Matrix {run.id} is being made by another process. Wait for it." in refused
    cells = parsed(stdout)
    assert timeless(cells) == timeless(parsed(uninterrupted[0])[:2])
    (sealed,) = store.find(store.MATRIX)
    assert sorted(map(key, matrices.kept_cells(sealed.path / "raw" / "cells.jsonl"))) == sorted(
        map(key, cells)
    )


def test_an_entry_that_this_flashinfer_lacks_is_not_supported_here(
    node, embedded, runs, monkeypatch, tmp_path
):
    stub = tmp_path / "stacks" / f"flashinfer-python-{embedded.flashinfer}" / "flashinfer"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("'A stub without a function.'\n__version__ = '0'\n")
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "stacks"))
    done = subprocess.run(
        [WORKBOOK, "matrix", "--levels", "0", "--json"], capture_output=True, text=True, check=True
    )
    for one in parsed(done.stdout):
        assert one.status is Status.NOT_SUPPORTED_HERE
        assert one.message == "AttributeError: module 'flashinfer' has no attribute 'fp4_quantize'"


def test_a_new_process_for_each_cell_as_with_a_gpu_answers_the_same(node, embedded, uninterrupted):
    answers = []
    asked = {"arch": "sm120", "start": "spawn", "cells": [[FP4, "cold"], [FP4, "warm"]]}
    run_probe(
        node, embedded, "matrix.py", [json.dumps(asked)], timeout_s=300, patch_level=1,
        on_stderr=lambda line: answers.append(json.loads(line[5:])) if line.startswith("cell ") else None,
    )  # fmt: skip
    forked = {one.process_state: one for one in parsed(uninterrupted[0]) if one.patch_level == 1}
    assert len(answers) == len(forked) == 2
    for one in answers:
        told = diagnosis.fields(one["error"])
        assert told["operation"] == forked[one["process_state"]].operation
