"""Files and folders go to a node and come back whole, whatever their names, or not at all."""

import os
import threading

import pytest

from tests.processes import wait_for
from workbook.errors import WorkbookError
from workbook.node.ssh import content_hash
from workbook.paths import OVERLAY, PROBES

pytestmark = pytest.mark.ssh

NAMES = ["a b", "-rf", "$(touch x)", "new\nline", "quote'\"", "`x`", "*", "\\", "é 漢", "\udcff", "x" * 200]


@pytest.fixture
def folder(tmp_path):
    """A folder of files and folders with odd names, one of them to be executed, one empty."""
    root = tmp_path / "it's $HOME"
    for name in NAMES:
        inside = root / name
        inside.mkdir(parents=True)
        (inside / name).write_bytes(os.fsencode(name) * 1000)
    (root / "empty").mkdir()
    (root / "program").write_text("#!/bin/sh\n")
    (root / "program").chmod(0o755)
    (root / "link").symlink_to(root / "program")
    return root


def content(root):
    """Every path below a folder, with the bytes of a file."""
    return {one.relative_to(root): one.is_file() and one.read_bytes() for one in root.rglob("*")}


def test_a_folder_with_odd_names_there_and_back(far, folder, tmp_path):
    there = tmp_path / "node" / "-x $(touch y)\n'"
    far.put(folder, there)
    assert content(there) == content(folder)
    assert not (there / "link").is_symlink()  # what it leads to was copied
    assert os.access(there / "program", os.X_OK)
    far.get(there, tmp_path / "back" / "again")
    assert content(tmp_path / "back" / "again") == content(folder)


def test_a_file_is_replaced_as_a_whole_and_a_folder_too(far, folder, tmp_path):
    there = tmp_path / "there"
    for source in (folder, folder / "program", folder / "a b", folder / "a b" / "a b", folder):
        far.put(source, there)
        assert there.is_dir() == source.is_dir()
        assert content(there) == content(source)
    assert [one for one in tmp_path.iterdir() if one.name.startswith(".workbook-")] == []


def test_a_large_file(far, tmp_path):
    (tmp_path / "large").write_bytes(os.urandom(1 << 20) * 40)
    far.put(tmp_path / "large", tmp_path / "there")
    far.get(tmp_path / "there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "large").read_bytes()


def cut_once(sshd, there):
    """End the connection as soon as something arrives beside the target."""
    wait_for(lambda: any(one.is_file() for one in there.parent.glob(".workbook-*/*")), 60)
    for one in sshd.sessions():
        one.kill()


def test_a_transfer_that_is_cut_off_changes_nothing(far, sshd, tmp_path):
    there = tmp_path / "node" / "there"
    there.parent.mkdir()
    there.write_text("before")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(1 << 40)  # takes no disk here; nor there, since it is cut off
    far.exists(there)
    cutter = threading.Thread(target=cut_once, args=(sshd, there))
    cutter.start()
    with pytest.raises(WorkbookError, match=r"^The connection to node far \(ssh://node\) was lost"):
        far.put(tmp_path / "huge", there)
    cutter.join()
    wait_for(lambda: list(there.parent.iterdir()) == [there], 60)
    assert there.read_text() == "before"
    here = tmp_path / "here" / "back"
    cutter = threading.Thread(target=cut_once, args=(sshd, here))
    cutter.start()
    with pytest.raises(WorkbookError, match=r"^The connection to node far \(ssh://node\) was lost"):
        far.get(tmp_path / "huge", here)
    cutter.join()
    assert list(here.parent.iterdir()) == []


def test_what_cannot_be_copied_is_said_in_the_nodes_words(far, tmp_path):
    with pytest.raises(WorkbookError, match=r"Node far cannot give /no where: No such file or directory\."):
        far.get(tmp_path.__class__("/no where"), tmp_path / "back")
    assert not (tmp_path / "back").exists()
    (tmp_path / "file").write_text("x" * 1_000_000)
    with pytest.raises(WorkbookError, match=r"Node far cannot take /proc/x/y: No such file or directory\."):
        far.put(tmp_path / "file", tmp_path.__class__("/proc/x/y"))
    with pytest.raises(FileNotFoundError):
        far.put(tmp_path / "none", tmp_path / "there")


def test_probes_and_overlay_are_sent_once_for_each_content(far, sshd, tmp_path):
    assert far.probes.parent == far.overlay.parent
    for source, sent in ((PROBES, far.probes), (OVERLAY, far.overlay)):
        names = [one.relative_to(source) for one in source.rglob("*.py")]
        assert names and all((sent / one).read_bytes() == (source / one).read_bytes() for one in names)
    assert far.stacks.parent.stat().st_mode & 0o777 == 0o700
    before = far.probes.stat()
    again = far.__class__(far.node)
    assert again.probes == far.probes and again.probes.stat() == before
    again.close()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a").write_text("1")
    first = content_hash(tmp_path / "code")
    (tmp_path / "code" / "a").write_text("2")
    assert content_hash(tmp_path / "code") != first


def test_a_file_has_one_place_on_the_node_inside_the_work_folder(far, tmp_path):
    place = far.place(tmp_path / "a" / ".." / ".." / "b")
    assert place.is_relative_to(far.stacks.parent / "files") and ".." not in place.parts
    assert far.place(tmp_path / "a" / "b") == far.place(tmp_path / "a") / "b"
    (tmp_path / "a").write_text("content")
    far.put(tmp_path / "a", far.place(tmp_path / "a"))
    done = far.run(["cat", str(far.place(tmp_path / "a"))], timeout_s=60)
    assert done.stdout == "content"
