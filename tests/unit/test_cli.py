"""The command line: one sentence and the right exit status, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKBOOK = str(Path(sys.executable).with_name("workbook"))


def workbook(*args, **env):
    return subprocess.run(
        [WORKBOOK, *args], env=os.environ | env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["trace", "flashinfer.fp4_quantise"], "did you mean flashinfer.fp4_quantize?"),
        (["trace", "flashinfer.fp4_quantize", "--arch", "sm99"], "No architecture 'sm99'"),
        (["trace", "flashinfer.fp4_quantize", "--patch-level", "9"], "No patch level 9; allowed: 0 to 5."),
        (["trace", "flashinfer.fp4_quantize", "--stack", "embeded"], "did you mean embedded?"),
        (["trace", "flashinfer.fp4_quantize", "--node", "nowhere"], "No node named 'nowhere'"),
        (["trace", "flashinfer.fp4_quantize", "--process", "tepid"], "tepid"),
        (["trace"], "Missing argument"),
        (["nonsense"], "No such command"),
        (["exec", "--patch-level", "2"], "No command was given."),
        (["exec", "--patch-level", "7", "--", "true"], "No patch level 7"),
        (["exec", "--", "/no/such/command"], "Cannot run '/no/such/command'"),
        (["patch", "show", "8"], "No patch level 8"),
        (["run", "--only", "07"], "No notebook '07'"),
        (["run", "-p", "patch_lvl=2"], "did you mean patch_level?"),
        (["run", "-p", "patch_level=two"], "patch_level = 'two' will not do"),
        (["run", "-p", "patch_level"], "is not NAME=VALUE"),
        (["run", "--campaign", "../x"], "campaign = '../x' will not do"),
        (["run", "--resume", "nothing"], "Campaign 'nothing' cannot be resumed"),
        (["report", "nothing"], "No campaign 'nothing'"),
        (["report"], "No campaign yet"),
        (["run", "--resume", "x", "-p", "repeats=1"], "leave out --node, --only, --campaign and -p"),
        (["run", "-p", "campaign=x"], "give --campaign NAME"),
        (["run", "--only", ","], "No notebook ''"),
        (["run", "-p", "repeats=2020-99-99"], "cannot be read as a value"),
        (["run", "-p", f"seed={2**40}"], "an integer from 0 to 2147483648 is allowed"),
        (["exec", "--", ""], "Cannot run ''"),
        (["exec", "--stack", "embeded", "--", "true"], "did you mean embedded?"),
        (["exec", "--patch-level", "x", "--", "true"], "Invalid value for '--patch-level'"),
        (["patch", "show", "--", "-1"], "No patch level -1"),
        (["patch", "show", "x"], "Invalid value for 'N'"),
        (["patch", "verify", "2", "--stack", "embeded"], "did you mean embedded?"),
        (["blockers", "flashinfer.fp4_quantise"], "did you mean flashinfer.fp4_quantize?"),
        (["blockers", "flashinfer.fp4_quantize", "--arch", "sm99"], "No architecture 'sm99'"),
        (["blockers", "flashinfer.fp4_quantize", "--stack", "embeded"], "did you mean embedded?"),
        (["blockers", "mine:quantize"], "Give its arguments: --inputs FILE"),
        (["blockers", "mine.quantize", "--inputs", __file__], "is not MODULE:FUNCTION."),
        (["blockers", "mine:quantize", "--inputs", str(Path(__file__).parent)], "No file "),
        (["matrix", "--stacks", "embeded"], "did you mean embedded?"),
        (["run", "--campaign", "matrix"], "are kept there; take another name"),
    ],
)
def test_bad_arguments_end_with_2_and_a_sentence(tmp_path, args, sentence):
    done = workbook(*args, WORKBOOK_RUNS=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


ASKS_A_PROBE = [
    ("trace", "flashinfer.fp4_quantize"),
    ("blockers", "flashinfer.fp4_quantize"),
    ("matrix",),
    ("patch", "show", "2"),
    ("patch", "verify", "4"),
]


@pytest.mark.parametrize("args", [*ASKS_A_PROBE, ("exec", "--", "true")], ids=" ".join)
def test_a_flashinfer_that_is_not_there_is_named_with_the_way_to_get_it(tmp_path, args):
    done = workbook(*args, WORKBOOK_STACKS=str(tmp_path / "none"), WORKBOOK_RUNS=str(tmp_path / "runs"))
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("workbook: FlashInfer 0.6.3 is not on node local (looked in ")
    assert sentence.endswith("Run: workbook stack create embedded --flashinfer 0.6.3")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["2.8.1", "1.13.0a0+git5af1"])
@pytest.mark.parametrize("args", ASKS_A_PROBE, ids=" ".join)
def test_a_torch_that_is_too_old_is_named(embedded, tmp_path, args, version):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"'A stub of torch.'\n__version__ = {version!r}\n")
    done = workbook(*args, PYTHONPATH=str(tmp_path), WORKBOOK_RUNS=str(tmp_path / "runs"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"workbook: torch {version} is too old: the workbook knows torch 2.9 and newer."
    )


def test_a_probe_that_starts_where_nothing_can_be_written_and_nothing_can_be_read(embedded):
    """A working directory that is not ours, standard input closed, and a PYTHONPATH with spaces."""
    folder = Path("/sys")
    command = 'exec "$0" patch verify 2 <&-'
    done = subprocess.run(
        ["sh", "-c", command, WORKBOOK],
        cwd=folder if folder.is_dir() else "/",
        env=os.environ | {"PYTHONPATH": "/no such/folder of mine:"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "get_fp4_quantization_module: as in FlashInfer" in done.stdout


@pytest.mark.parametrize("close", ["| head -1", ">&-"])
def test_a_reader_that_leaves_is_no_failure_to_tell(close):
    done = subprocess.run(
        ["sh", "-c", f'"$0" patch list {close}', WORKBOOK], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_exec_hands_on_status_arguments_and_level(tmp_path):
    code = "import os, sys; print(os.environ['WORKBOOK_PATCH_LEVEL'], sys.argv[1:]); sys.exit(5)"
    done = workbook("exec", "--patch-level", "3", "--", "python", "-c", code, "$(touch x)", "--json")
    assert (done.returncode, done.stdout.strip()) == (5, "3 ['$(touch x)', '--json']")


def test_exec_gives_the_command_the_signals_of_a_fresh_process():
    done = workbook("exec", "--", "sh", "-c", "yes | head -1")
    assert (done.stdout, done.stderr) == ("y\n", "")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    done = workbook("run", "--only", "01", WORKBOOK_RUNS=str(tmp_path / "file"))
    assert done.returncode == 1
    assert "Cannot make the folder" in done.stderr and "Traceback" not in done.stderr


def test_patch_list_names_the_five_levels():
    done = workbook("patch", "list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("unpatched", "cuda-version", "jit-loading", "custom-op"))


def test_stack_list_names_versions():
    assert "flashinfer-python 0.6.3" in workbook("stack", "list").stdout
