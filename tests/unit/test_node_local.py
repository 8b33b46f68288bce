"""The local node: what is run is run as given, bounded in time, and its log can be followed."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbook.errors import UsageError
from workbook.node.connect import connect

ECHO = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
ARGUMENT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)))


@given(st.lists(ARGUMENT, max_size=4))
@settings(max_examples=15, deadline=None)
def test_arguments_arrive_as_they_are(arguments):
    done = connect("local").run([sys.executable, "-X", "utf8", "-c", ECHO, *arguments], timeout_s=30)
    assert done.stdout.split("\0") == (arguments or [""]) or "\r" in "".join(arguments)


@pytest.mark.parametrize("hostile", ["$(touch x)", "; touch x", "a b", "'\"", "`touch x`", "two\nlines"])
def test_no_shell_reads_an_argument(node, tmp_path, monkeypatch, hostile):
    monkeypatch.chdir(tmp_path)
    assert node.run([sys.executable, "-c", ECHO, hostile], timeout_s=30).stdout == hostile
    assert not (tmp_path / "x").exists()


def test_environment_is_added_to(node, monkeypatch):
    monkeypatch.setenv("FROM_ME", "1")
    code = "import os; print(os.environ['FROM_ME'], os.environ['FROM_CALL'])"
    assert node.run([sys.executable, "-c", code], timeout_s=30, env={"FROM_CALL": "2"}).stdout.split() == [
        "1",
        "2",
    ]


def test_time_runs_out(node):
    done = node.run(
        [sys.executable, "-c", "print('before', flush=True); import time; time.sleep(600)"], timeout_s=2
    )
    assert done.timed_out and done.returncode != 0
    assert done.stdout == "before\n"


def test_a_log_is_followed_to_its_unfinished_last_line(node, tmp_path):
    code = (
        "import sys, time; print('one', flush=True); time.sleep(0.3); print('two'); sys.stdout.write('cut')"
    )
    process = node.start([sys.executable, "-c", code], log=tmp_path / "log")
    assert list(process.follow()) == ["one", "two", "cut"]
    assert process.stop() == 0


def test_put_and_get_copy_files_and_folders(node, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("c")
    node.put(tmp_path / "a", tmp_path / "there/a")
    node.get(tmp_path / "there/a/b", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "c"


def test_an_unknown_node_offers_the_nearest():
    with pytest.raises(UsageError, match=r"No node named 'locl' in data/nodes; did you mean local\?"):
        connect("locl")
