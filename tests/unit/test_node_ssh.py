"""What a node behind ssh is made of, as far as it needs no sshd."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest
import yaml
from pydantic import ValidationError

from workbook import catalog
from workbook.errors import UsageError, WorkbookError
from workbook.node import remote
from workbook.node.channel import own_lines, own_text, remote_command, skip_greeting, why_not_begun
from workbook.node.openssh import LONGEST_SOCKET, last_line, sockets_folder, why_unreachable
from workbook.node.remote import Stream, end_tagged, pack, prepare, unpack
from workbook.paths import DATA
from workbook.types import Node

NODE = Node(name="far", kind="ssh", host="ssh://me@node:2222")
SHELLS = [one for one in ("sh", "dash", "bash", "zsh", "csh", "tcsh", "fish") if shutil.which(one)]


@pytest.mark.parametrize(
    "host",
    [
        "ssh://node",
        "ssh://me@node.example.org:22",
        "ssh://a-b_c.d",
        "ssh://[::1]:2222",
        "ssh://a.b+c@10.0.0.1",
    ],
)
def test_hosts(host):
    assert Node(name="far", kind="ssh", host=host).host == host


@pytest.mark.parametrize(
    "host",
    [
        "node", "ssh://", "ssh://-oProxyCommand=x", "ssh://-x@node", "ssh://me@-node", "ssh://a b", "ssh://a;b", "ssh://a$(b)",
        "ssh://a\nb", "ssh://node:0", "ssh://node:x", "ssh://me:secret@node", "ssh://node/path", "http://node", "ssh://%h",
    ],
)  # fmt: skip
def test_a_host_that_is_none_is_refused(host):
    with pytest.raises(ValidationError, match=r"is not ssh://\[user@\]host\[:port\]"):
        Node(name="far", kind="ssh", host=host)


def test_a_work_folder_has_to_be_absolute():
    with pytest.raises(ValidationError, match="it has to begin with / or ~/"):
        Node(name="far", kind="ssh", host="ssh://node", work="cache")


def test_the_example_of_a_node_is_one_and_what_is_listed_can_be_loaded():
    (example,) = re.findall(r"```yaml\n(.*?)```", (DATA / "nodes" / "README.md").read_text(), re.DOTALL)
    assert Node.model_validate(yaml.safe_load(example)).kind == "ssh"
    assert [catalog.load(Node, name).name for name in catalog.names(Node)] == catalog.names(Node)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("path", ["a b", "'q'", '"d"', "$HOME", "a\\b"])
def test_a_shell_starts_the_python_that_is_meant_and_reads_nothing_else(tmp_path, shell, path):
    python = tmp_path / path
    python.symlink_to(sys.executable)
    spec = {
        "script": "import os, sys; os.write(1, (sys.argv[1] + os.environ['X'] + sys.stdin.read()).encode())",
        "argv": ["$(x) '"], "env": {"X": "`y`\n"}, "mark": "mark", "begin": [1],
    }  # fmt: skip
    asked = json.dumps(spec).encode() + b"\nlifeline"
    done = subprocess.run(
        [shell, "-c", remote_command(str(python))], input=asked, capture_output=True, check=False
    )
    assert re.fullmatch(rb"mark begins \d+\n\$\(x\) '`y`\nlifeline", done.stdout), done


def test_a_python_in_the_home_folder(tmp_path):
    (tmp_path / "a b").symlink_to(sys.executable)
    spec = {"script": "", "argv": [], "env": {}, "mark": "mark", "begin": [1]}
    done = subprocess.run(
        ["sh", "-c", remote_command("~/a b")],
        input=json.dumps(spec).encode() + b"\n", env={"HOME": str(tmp_path)}, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(b"mark begins ")


@pytest.mark.parametrize(
    ("said", "message", "kind"),
    [
        ("ssh: connect to host node port 2222: Connection refused", "refuses the connection", WorkbookError),
        (
            "ssh: Could not resolve hostname node: Name or service not known",
            "has no address: its name cannot be resolved",
            UsageError,
        ),
        (
            "ssh: connect to host node port 22: Connection timed out",
            "did not answer within 15 s",
            WorkbookError,
        ),
        ("Connection timed out during banner exchange", "did not answer within 15 s", WorkbookError),
        (
            "ssh: connect to host node port 22: No route to host",
            "cannot be reached from this network",
            WorkbookError,
        ),
        (
            "me@node: Permission denied (publickey,password).",
            "lets none of your keys in, and no password is asked for",
            WorkbookError,
        ),
        ("Host key verification failed.", "has a host key that is not known here", WorkbookError),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
            "Offending ED25519 key in /etc/ssh/known_hosts:7\nHost key verification failed.",
            "shows another host key than the one that is known here (/etc/ssh/known_hosts:7)",
            WorkbookError,
        ),
        ("kex: \x1b[31mno match\n\n", "cannot be reached: kex: [31mno match", WorkbookError),
    ],
)
def test_what_openssh_says_becomes_a_sentence_and_a_remedy(said, message, kind):
    error = why_unreachable(NODE, said)
    assert error.message == f"Node far (ssh://me@node:2222) {message}."
    assert type(error) is kind and error.hint.endswith(("true", ".", "ssh ssh://me@node:2222"))


@pytest.mark.parametrize(
    ("status", "said", "message"),
    [
        (
            127,
            "sh: 1: exec: python3: not found\n",
            "Node far has no Python at py: sh: 1: exec: python3: not found.",
        ),
        (1, "py: Command not found.\n", "Node far has no Python at py: py: Command not found."),
        (1, "too old: 3.8\n", "py on node far is Python 3.8, and 3.10 or later is needed."),
        (2, "Unknown option: -I\nusage: ...", "py on node far is Python 2, and 3.10 or later is needed."),
        (255, "", "The connection to node far (ssh://me@node:2222) was lost before anything ran."),
        (1, "go away\n", "Node far did not start py (exit status 1): go away."),
    ],
)
def test_why_no_python_ran(status, said, message):
    assert why_not_begun(NODE, "py", status, said).message == message


def test_what_others_say_is_kept_to_a_line_and_steers_no_terminal():
    assert last_line("first\n\x1b]0;title\x07last.\n \n") == "]0;titlelast"
    assert last_line("\n") == "it gave no reason"
    assert len(last_line("x" * 9999)) == 300


def test_only_what_comes_after_the_beginning_is_the_commands():
    assert own_text("mark", "welcome\nmark begins 7\nown\n") == "own\n"
    assert own_text("mark", "no command began\n") == ""
    lines = []
    tell = own_lines("mark", lines.append)
    for line in ("welcome", "mark begins 7", "own", "also", "cutmark 0"):
        tell(line)
    assert lines == ["own", "also"]
    end, begin = os.pipe()
    os.write(begin, b"welcome\nmark begins 7\nrest")
    stream = Stream(end)
    skip_greeting(stream, "mark")
    assert stream.read() == b"rest"


def piped(source, target, *, cut=None, keep=False):
    """Pack and unpack through a pipe, of which only the first `cut` bytes arrive."""
    with open(source.parent / "archive", "wb") as out:  # noqa: PTH123
        pack(str(source), Stream(out.fileno()))
    archive = (source.parent / "archive").read_bytes()
    end, begin = os.pipe()

    def write():
        with open(begin, "wb") as sink:  # noqa: PTH123
            sink.write(archive[:cut])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        unpack(Stream(end), str(target), keep)
    finally:
        os.close(end)
        writer.join()
    return len(archive)


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.9])
def test_an_archive_that_is_cut_off_anywhere_leaves_the_target_as_it_was(tmp_path, share):
    (tmp_path / "from" / "folder").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "from" / "folder" / str(number)).write_bytes(b"x" * 512)
    size = piped(tmp_path / "from" / "folder", tmp_path / "to" / "there")
    (tmp_path / "to" / "there" / "0").write_bytes(b"before")
    used = 512 * (1 + 3 * 2 + 1)  # bytes: the folder, a header and a block for each file, the last entry
    assert size > used
    for cut in {int(share * used), int(share * used) // 512 * 512, used - 512}:
        with pytest.raises((EOFError, remote.tarfile.TarError)):
            piped(tmp_path / "from" / "folder", tmp_path / "to" / "there", cut=cut)
        assert (tmp_path / "to" / "there" / "0").read_bytes() == b"before"
        assert [one.name for one in (tmp_path / "to").iterdir()] == ["there"]


def test_a_target_is_kept_where_that_is_asked_for(tmp_path):
    (tmp_path / "new").write_text("new")
    (tmp_path / "there").write_text("before")
    piped(tmp_path / "new", tmp_path / "there", keep=True)
    assert (tmp_path / "there").read_text() == "before"
    piped(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "new"


def test_an_archive_of_a_hostile_node_writes_nowhere_else(tmp_path):
    archive = tmp_path / "archive"
    with remote.tarfile.open(archive, "w") as out:
        (tmp_path / "file").write_text("x")
        out.add(tmp_path / "file", "../escaped")
        out.addfile(remote.tarfile.TarInfo(remote.END))
    with archive.open("rb") as stream, pytest.raises(remote.tarfile.TarError):
        unpack(Stream(os.dup(stream.fileno())), str(tmp_path / "to" / "there"))
    assert not (tmp_path / "to" / "escaped").exists() and list((tmp_path / "to").iterdir()) == []


def test_nobody_at_the_other_end(monkeypatch):
    monkeypatch.setattr(remote, "IDLE_S", 0.1)
    end, begin = os.pipe()
    with pytest.raises(TimeoutError, match=r"nothing came for 0\.1 s"):
        Stream(end).read()
    with pytest.raises(TimeoutError, match=r"nothing was taken for 0\.1 s"):
        Stream(begin).write(b"x" * (1 << 20))
    os.close(end), os.close(begin)


def test_a_work_folder_is_made_private_and_a_shared_one_is_refused(tmp_path):
    told = prepare(str(tmp_path / "a" / "b"))
    assert told["work"] == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a" / "b").chmod(0o770)
    with pytest.raises(PermissionError, match=r"others can write to it \(drwxrwx---\)"):
        prepare(str(tmp_path / "a" / "b"))


def test_only_what_has_the_tag_is_ended():
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    tagged = subprocess.Popen(argv, env={"SOME_TAG": "a-tag-of-this-test"})
    other = subprocess.Popen(argv, env={"SOME_TAG": "another"})
    reaper = threading.Thread(target=tagged.wait)
    reaper.start()
    end_tagged("a-tag-of-this-test")
    reaper.join(30)
    assert tagged.returncode == -9 and other.poll() is None
    other.kill()
    other.wait()


def test_sockets_lie_in_a_short_folder_of_ones_own(tmp_path, monkeypatch):
    for base in (tmp_path, tmp_path / ("x" * 90)):
        base.mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(base))
        folder = sockets_folder()
        assert len(os.fsencode(folder / "12345678")) <= LONGEST_SOCKET
        assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.getuid()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"workbook-{os.getuid()}").chmod(0o755)
    with pytest.raises(WorkbookError, match=r"is not a folder of yours alone\. Remove it"):
        sockets_folder()
