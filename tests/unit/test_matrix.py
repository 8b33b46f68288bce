"""A matrix: what it spans is checked before anything runs, and what was kept of it is whole or refused."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from workbook import catalog, matrices, store
from workbook.boundary.matrix import keys, plan, without
from workbook.cli import app
from workbook.commands.console import WORD_WIDTH
from workbook.commands.matrix import lines
from workbook.errors import UsageError, WorkbookError
from workbook.node.probe import check_flashinfer
from workbook.paths import OVERLAY, PROBES, ROOT
from workbook.types import MatrixCell, MatrixRequest, ProcessState, Stack, Status

FP4, MM = "flashinfer.fp4_quantize", "flashinfer.mm_fp4"
COLD, WARM = ProcessState.COLD, ProcessState.WARM


def request(**changes):
    return MatrixRequest(
        **{"stacks": ("embedded",), "entries": (FP4,), "levels": (0,), "arch": "sm120"} | changes
    )


def cell(**changes):
    fields = {
        "stack": "embedded", "torch": "2.13.0", "python": "3.11.7", "flashinfer": "0.6.3", "entry": FP4,
        "arch": "sm120", "patch_level": 0, "process_state": COLD, "status": Status.OK, "seconds": 1.0,
    }  # fmt: skip
    return MatrixCell(**fields | changes)


@pytest.fixture
def stacks(tmp_path, monkeypatch):
    """A stacks folder of the test's own, with folders that stand for three versions of FlashInfer."""
    folder = tmp_path / "stacks"
    monkeypatch.setenv("WORKBOOK_STACKS", str(folder))
    for version in ("0.6.3", "0.7.4", "0.10.0"):
        (folder / f"flashinfer-python-{version}").mkdir(parents=True)
    return folder


def planned(node, **changes):
    asked = request(**changes)
    groups = plan(node, [catalog.load(Stack, name) for name in asked.stacks], asked)
    return [(group.stack.flashinfer, group.patch_level, group.cells) for group in groups]


def test_a_process_for_each_version_and_level_in_the_order_of_the_request(node, stacks):
    cells = ((MM, COLD), (MM, WARM), (FP4, COLD), (FP4, WARM))
    found = planned(node, flashinfer=("0.10.0", "0.7.4"), levels=(4, 0), entries=(MM, FP4))
    assert found == [("0.10.0", 4, cells), ("0.10.0", 0, cells), ("0.7.4", 4, cells), ("0.7.4", 0, cells)]


def test_what_is_named_twice_is_traced_once(node, stacks):
    once = planned(node, flashinfer=("0.6.3",), levels=(0,))
    twice = planned(
        node, stacks=("embedded",) * 2, flashinfer=("0.6.3",) * 2, levels=(0, 0), entries=(FP4, FP4)
    )
    assert twice == once and len(once) == 1


def test_what_is_done_is_left_out(node, stacks):
    groups = plan(node, [catalog.load(Stack, "embedded")], request(levels=(0, 4)))
    left = without(groups, [cell(), cell(process_state=WARM), cell(patch_level=4, process_state=WARM)])
    assert [keys(group) for group in left] == [[("embedded", "0.6.3", FP4, 4, COLD)]]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--stacks", "embeded"], "did you mean embedded?"),
        (["--stacks", "seed"], "Stack seed is not set up here"),
        (["--stacks", ""], "--stacks: nothing was named."),
        (["--flashinfer", "9.9.9"], "FlashInfer 9.9.9 is not on node local"),
        (["--flashinfer", "0.6.3/"], "'0.6.3/' is not a version of FlashInfer."),
        (["--flashinfer", "0.6.3/.."], "is not a version of FlashInfer."),
        (["--entries", "flashinfer.fp4_quantise"], "did you mean flashinfer.fp4_quantize?"),
        (["--entries", ""], "--entries: nothing was named."),
        (["--entries", ","], "--entries: nothing was named."),
        (["--levels", "x"], "--levels: 'x' will not do."),
        (["--levels", "0,1.5"], "--levels: '1.5' will not do."),
        (["--levels", "-1"], "No patch level -1; allowed: 0 to 5."),
        (["--levels", "6"], "No patch level 6; allowed: 0 to 5."),
        (["--levels", ""], "--levels: nothing was named."),
        (["--arch", "sm99"], "No architecture 'sm99'"),
        (["--node", "nowhere"], "No node named 'nowhere'"),
        (["--resume"], "Nothing to resume; no matrix was interrupted."),
        (["--resume", "--levels", "0"], "leave out --levels."),
        (["--resume", "--stacks", "embedded", "--node", "local"], "leave out --stacks, --node."),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_anything_runs(runs, stacks, args, sentence):
    refused = CliRunner().invoke(app, ["matrix", *args]).exception
    assert isinstance(refused, UsageError) and refused.exit_status == 2
    assert sentence in str(refused)
    assert not runs.exists()


def test_a_flashinfer_of_the_pythons_own_counts_unless_it_was_to_be_swapped(node, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "none"))
    stack = catalog.load(Stack, "embedded")
    with pytest.raises(UsageError, match="is not on node local"):
        check_flashinfer(node, stack)
    (tmp_path / "stub" / "flashinfer").mkdir(parents=True)
    (tmp_path / "stub" / "flashinfer" / "__init__.py").write_text("'A stub.'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    check_flashinfer(node, stack)
    with pytest.raises(UsageError, match="is not on node local"):
        check_flashinfer(node, stack, folder_only=True)


TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)
CELLS = st.lists(
    st.builds(
        MatrixCell, stack=TEXT, torch=TEXT, python=TEXT, flashinfer=TEXT, entry=TEXT, arch=TEXT,
        patch_level=st.integers(0, 4), process_state=st.sampled_from(ProcessState),
        status=st.sampled_from(Status), break_id=st.none() | TEXT, operation=st.none() | TEXT,
        blamed=st.none() | TEXT, message=TEXT, seconds=st.floats(0, 1e6),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@given(CELLS, st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_cells_survive_a_cut_at_any_byte(tmp_path, cells, data):
    path = tmp_path / "cells.jsonl"
    path.unlink(missing_ok=True)
    ends = [0]
    for one in cells:
        matrices._append(path, one)
        ends.append(path.stat().st_size)
    cut = data.draw(st.integers(0, ends[-1]))
    path.write_bytes(path.read_bytes()[:cut])
    whole = cells[: sum(end <= cut for end in ends) - 1]
    assert matrices.kept_cells(path) == whole
    matrices._append(path, cells[0])  # it goes on after the last whole line
    assert matrices.kept_cells(path) == [*whole, cells[0]]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"stack": "embedded"}'])
def test_a_damaged_line_that_is_not_the_last_is_refused(tmp_path, damage):
    path = tmp_path / "cells.jsonl"
    whole = cell().model_dump_json().encode()
    path.write_bytes(whole + b"\n" + damage + b"\n" + whole + b"\n")
    with pytest.raises(WorkbookError, match=r"cells\.jsonl is damaged"):
        matrices.kept_cells(path)


def test_the_newest_that_was_begun_is_reopened(node, runs, stacks):
    matrices.begin(node, request(levels=(1,)))
    newest = matrices.begin(node, request(levels=(3,)))
    # a name has whole seconds only
    newest.path.rename(newest.path.with_name(f"9-{newest.path.name}"))
    never_asked = store.create(store.MATRIX, store.MATRIX, "x", {})  # killed before it kept its request
    never_asked.path.rename(never_asked.path.with_name(f"99-x{store.PARTIAL}"))
    run, asked = matrices.reopen()
    assert run.id == f"9-{newest.id}" and asked == request(levels=(3,))


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"request": {}, "label": "", "started": ""}'])
def test_a_damaged_request_is_named(node, runs, stacks, damage):
    run = matrices.begin(node, request())
    (run.raw / "request.json").write_text(damage)
    with pytest.raises(WorkbookError, match=r"request\.json is damaged"):
        matrices.reopen()


def test_cells_of_versions_that_are_no_longer_asked_for_are_refused(node, runs, stacks):
    run = matrices.begin(node, request())
    matrices._append(run.raw / "cells.jsonl", cell(flashinfer="0.6.2"))
    with pytest.raises(WorkbookError, match="cells of other versions than data/stacks names now"):
        matrices.fill(node, run, request())
    assert store.partials(store.MATRIX) == [run.path.name]


def test_a_matrix_is_made_by_one_process_at_a_time(node, runs, stacks):
    run = matrices.begin(node, request())
    code = "import sys; from workbook.cli import main; sys.argv = ['workbook', 'matrix', '--resume']; main()"
    with store.held(run.raw / "request.json", "busy", ""):
        other = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
        )
    assert other.returncode == 1
    assert f"Matrix {run.id} is being made by another process. Wait for it." in other.stderr
    assert json.loads((run.raw / "request.json").read_text())["request"]["levels"] == [0]


HOSTILE = "[red]bold[/red] \x1b[2J\x1b]0;title\x07 one\ntwo\r\n\u2028three\x85 \u202egnihton " + "x" * 400


@pytest.mark.parametrize("field", ["operation", "message", "blamed"])
def test_a_hostile_text_stays_one_line_of_the_table(field):
    table = list(lines([cell(**{field: HOSTILE}), cell()]))
    assert len(table) == 3
    assert all(line.isprintable() and len(line.splitlines()) == 1 for line in table)
    assert "[red]bold[/red]" in table[1] and "two" in table[1]
    assert len(table[1]) < 3 * WORD_WIDTH


@given(CELLS)
@settings(deadline=None, max_examples=60)
def test_a_cell_is_a_line_whatever_is_in_it(cells):
    table = list(lines(cells))
    assert [len(line.splitlines()) for line in table] == [1] * (len(cells) + 1)
    assert "\x1b" not in "".join(table)


# The probe's cells, with one of these functions in place of the trace.
CELLS_THAT_END = """
import json, os, signal, struct, sys, time
import matrix

def hangs(connection, *cell):
    time.sleep(600)

def dies(connection, *cell):
    os.kill(os.getpid(), signal.SIGKILL)

def dies_half_way(connection, *cell):
    os.write(connection.fileno(), struct.pack("!i", 1000) + b"the first words")
    os.kill(os.getpid(), signal.SIGKILL)

def answers(connection, *cell):
    connection.send({"ended": None, "seconds": 1.0})

matrix.CELL_TIMEOUT_S = 1
found = []
for function in (hangs, dies, dies_half_way, answers):
    matrix.trace_into = function
    cells = matrix.Cells([[function.__name__, "cold"]], "sm120", {"declared": "before the fork"})
    cells.start()
    while cells.running:
        found += cells.ended()
print(json.dumps(found))
"""


def test_a_cell_that_hangs_or_dies_is_one_answer_like_any_other():
    done = subprocess.run(
        [sys.executable, "-c", CELLS_THAT_END],
        env=os.environ | {"PYTHONPATH": f"{OVERLAY}{os.pathsep}{PROBES}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    dead = {"process_state": "cold", "ended": "crashed", "message": "exit status -9"}
    assert json.loads(done.stdout) == [
        {"entry": "hangs", "process_state": "cold", "ended": "timeout", "message": "ran longer than 1 s"},
        {"entry": "dies"} | dead,
        {"entry": "dies_half_way"} | dead,
        {"entry": "answers", "process_state": "cold", "ended": None, "seconds": 1.0},
    ]
