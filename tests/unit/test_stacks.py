"""Stacks made for real, by pip, from small wheels that lie in a folder: no index is asked."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tests.tiny_stacks import lies_in, made, stack, workbook
from workbook import catalog, disk, stacks
from workbook.campaign import plan
from workbook.cli import app
from workbook.errors import UsageError
from workbook.node.probe import stack_dir, stack_python
from workbook.params import CrashParams
from workbook.paths import LOCKS
from workbook.types import DiskUse, Stack


def test_a_stack_is_its_lock_and_its_flashinfer_lies_beside_it(world, node):
    packages = []
    said = made(node, "tiny", on_package=packages.append)
    assert "Stack tiny is ready" in said and "was not measured yet" in said
    assert packages == ["Installing collected packages"] * 2
    assert lies_in(world) == ["flashinfer-python-1.0", "tiny"]
    python = stack_python(node, stack("tiny"))
    code = "import pebble, sys; print(pebble.version, sys.prefix); import flashinfer_python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1.0", str(world / "stacks" / "tiny")]
    assert "No module named 'flashinfer_python'" in done.stderr  # it never shares the environment
    assert not (stack_dir(node, stack("tiny")) / "tmp").exists()


def test_a_second_create_does_nothing_and_remove_keeps_what_another_stack_names(world, node):
    made(node, "tiny")
    before = {path: path.lstat().st_mtime_ns for path in (world / "stacks" / "tiny").rglob("*")}
    done = workbook(world, "stack", "create", "tiny")
    assert done.returncode == 0, done.stderr
    assert (
        "Stack tiny is here already, full" in done.stdout and "FlashInfer 1.0 is here already" in done.stdout
    )
    assert before == {path: path.lstat().st_mtime_ns for path in (world / "stacks" / "tiny").rglob("*")}
    listed = workbook(world, "stack", "list").stdout
    assert "created here, full, 0.0" in listed and "FlashInfer 1.0: 0.00 GB" in listed
    done = workbook(world, "stack", "remove", "tiny")
    assert "Stack tiny is removed: 0.0" in done.stdout and "since stack embedded has it too" in done.stdout
    assert lies_in(world) == ["flashinfer-python-1.0"]
    again = workbook(world, "stack", "remove", "tiny")
    assert again.returncode == 2 and "Stack tiny is not here" in again.stderr
    assert "created here" not in workbook(world, "stack", "list").stdout


def test_what_an_interrupted_removal_left_is_no_stack_and_can_be_removed(world, node):
    made(node, "tiny")
    (world / "stacks" / "tiny").rename(world / "stacks" / "tiny.partial")  # as `remove` begins
    assert stacks.created(node, stack("tiny")) is None
    stacks.remove(node, stack("tiny"))
    assert lies_in(world) == ["flashinfer-python-1.0"]


def test_remove_takes_a_flashinfer_along_that_no_other_stack_names(world, node):
    made(node, "third", flashinfer=["1.0"])
    assert lies_in(world) == ["flashinfer-python-1.0", "flashinfer-python-2.0", "third"]
    stacks.remove(node, stack("third"))
    assert lies_in(world) == ["flashinfer-python-1.0"]


def test_versions_of_flashinfer_are_folders_and_the_embedded_stack_makes_no_other(world, node):
    said = made(node, "embedded", flashinfer=["2.0", "v2.0"])
    assert "own environment; none is made" in said
    assert lies_in(world) == ["flashinfer-python-1.0", "flashinfer-python-2.0"]
    assert list(stacks.version_folders("flashinfer-python")) == ["1.0", "2.0"]
    stacks.remove_flashinfer(node, stack("embedded"), ["2.0"])
    assert lies_in(world) == ["flashinfer-python-1.0"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["create", "tiney"], "did you mean tiny?"),
        (["create", "../tiny"], "No stack named '../tiny'"),
        (["remove", ".."], "No stack named '..'"),
        (["remove", "tiny"], "Stack tiny is not here"),
        (["remove", "embedded"], "`make clean` removes it"),
        (["remove", "tiny", "--flashinfer", "7.0"], "flashinfer-python-7.0 is not here"),
        (["remove", "tiny", "--flashinfer", "../../x"], "'../../x' is not a version of FlashInfer"),
        (["create", "tiny", "--flashinfer", "1.0; rm"], "'1.0; rm' is not a version of FlashInfer"),
        (["create", "embedded", "--minimal"], "leave out --minimal"),
        (["create", "embedded", "--flashinfer", "7.0"], "pip finds no flashinfer-python==7.0"),
    ],
)
def test_bad_arguments_end_with_2_and_a_sentence(world, args, sentence):
    with pytest.raises(UsageError) as refusal:
        app(["stack", *args], standalone_mode=False)
    assert sentence in str(refusal.value) and refusal.value.exit_status == 2
    assert lies_in(world) in ([], ["flashinfer-python-1.0"])


@given(st.text())
def test_a_version_never_leads_out_of_the_stacks_folder(text):
    try:
        version = stacks.checked_version(text)
    except UsageError:
        return
    assert Version(version) == Version(text) and "/" not in version and not version.startswith(".")


def test_a_disk_too_small_stops_before_anything_is_fetched(world, node, monkeypatch):
    use = DiskUse(installed_gb=7.0, peak_gb=9.5, measured="a test")
    big = stack("tiny").model_copy(update={"full": use})
    usage = shutil.disk_usage(world)._replace(free=int(9.4e9))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    said = []
    with pytest.raises(UsageError, match=r"has 9\.40 GB free, and this needs about \d+\.\d\d GB") as refusal:
        stacks.create(node, big, say=said.append)
    assert refusal.value.exit_status == 2
    flashinfer = disk.FLASHINFER_DISK[max(disk.FLASHINFER_DISK)].installed_gb
    assert f"about {7 + flashinfer:.2f} GB" in said[-1] and f"at most {9.5 + flashinfer:.2f} GB" in said[-1]
    assert "a test" in said[-1]
    assert lies_in(world) == []


def test_the_nearest_older_measured_flashinfer_is_the_estimate():
    figures = disk.FLASHINFER_DISK
    assert disk._nearest(figures, "0.6.4") is figures[Version("0.6.3")]
    assert disk._nearest(figures, "0.6.1") is figures[Version("0.6.3")]
    assert disk._nearest(figures, "9.0") is figures[max(figures)]


def test_a_lock_that_pip_cannot_install_leaves_no_stack(world, node):
    (world / "locks" / "tiny.txt").write_text("pebble==1.0\ngravel==3.0\n")
    with pytest.raises(UsageError, match=r"pip finds no gravel==3\.0 .* It found no version at all"):
        made(node, "tiny")
    assert lies_in(world) == ["flashinfer-python-1.0"]
    with pytest.raises(UsageError, match="Stack tiny is not set up here"):
        stack_python(node, stack("tiny"))


def test_a_minimal_stack_is_constrained_by_its_lock_and_does_not_pass_for_a_full_one(
    world, node, monkeypatch
):
    monkeypatch.setattr(stacks, "MINIMAL", ("pebble",))
    made(node, "tiny", minimal=True)
    python = stack_python(node, stack("tiny"))
    code = "import pebble; print(pebble.version)"
    assert subprocess.check_output([python, "-c", code], text=True) == "1.0\n"  # 2.0 is the newest
    assert stacks.created(node, stack("tiny")) == "minimal"
    with pytest.raises(UsageError, match="Stack tiny is here, but minimal"):
        made(node, "tiny")
    assert "here already, minimal" in made(node, "tiny", minimal=True)


@pytest.mark.parametrize("name", [name for name in catalog.names(Stack) if name != "embedded"])
def test_every_lock_pins_all_that_a_minimal_stack_names(name):
    lines = (LOCKS / f"{name}.txt").read_text().splitlines()
    assert set(stacks.MINIMAL) <= {line.partition("==")[0] for line in lines}


def test_a_link_is_not_followed(world, node):
    elsewhere = world / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "keep").write_text("mine")
    (world / "stacks").mkdir()
    for name in ("tiny", "flashinfer-python-1.0"):
        (world / "stacks" / name).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link to somewhere else"):
        stacks.remove(node, stack("tiny"))
    with pytest.raises(UsageError, match="is a link to somewhere else"):
        stacks.remove_flashinfer(node, stack("tiny"), ["1.0"])
    with pytest.raises(UsageError, match="is a link to somewhere else"):
        made(node, "tiny")
    assert (elsewhere / "keep").read_text() == "mine" and len(list(elsewhere.iterdir())) == 1


def test_a_campaign_with_a_stack_that_is_not_set_up_stops_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    with pytest.raises(UsageError, match="Stack seed is not set up here"):
        plan([CrashParams], {"stack": "seed", "campaign": "c"})
