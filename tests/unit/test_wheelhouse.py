"""The offline bundle: what goes in, what stays out, and that every byte is accounted for."""

import hashlib
import io
import lzma
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from tests.tiny_wheels import make_wheel, record_of
from workbook import catalog
from workbook.commands.wheelhouse import part_bytes
from workbook.errors import UsageError, WorkbookError
from workbook.paths import LOCKS
from workbook.types import Stack
from workbook.types.wheelhouse import FileRule, WheelhouseRules
from workbook.wheelhouse.parts import Splitter, pack
from workbook.wheelhouse.pins import read_freeze, read_lock
from workbook.wheelhouse.reduce import repack
from workbook.wheelhouse.resolve import Selection, select
from workbook.wheelhouse.wheels import Target, requires

PY312 = Target("3.12")
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
VERSIONS = st.builds("{}.{}.{}".format, *[st.integers(0, 3000)] * 3)


# The rules in data/


@pytest.mark.parametrize("name", catalog.names(WheelhouseRules))
def test_the_rules_name_packages_of_the_lock(name):
    rules = catalog.load(WheelhouseRules, name)
    lock = read_lock(LOCKS / f"{name}.txt", PY312.environment)
    named = {*rules.roots, *rules.undeclared, *rules.left_out, *(rule.wheel for rule in rules.files)}
    assert named.union(*rules.left_out_on.values()) <= set(lock)
    assert {arch for rule in rules.files for arch in rule.arch} <= set(rules.left_out_on)
    assert lock["sglang"] == Version(catalog.load(Stack, name).sglang)


def test_a_rule_does_something():
    with pytest.raises(ValueError, match="drops or strips"):
        FileRule(wheel="pebble", reason="none")


# Versions: the lock, and a pip freeze of the node


def test_a_lock_pins_by_the_markers_of_the_node(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text('# a\n\nA_b==2; python_version >= "3.12"\na-b==1; python_version < "3.12"\nc==3+cu130\n')
    assert read_lock(lock, PY312.environment) == {"a-b": Version("2"), "c": Version("3+cu130")}
    assert read_lock(lock, Target("3.11").environment)["a-b"] == Version("1")


def test_a_lock_line_without_a_version_is_named(tmp_path):
    (tmp_path / "lock.txt").write_text("a==1\nb>=2\n")
    with pytest.raises(UsageError, match=r"line 2: 'b>=2' pins no version"):
        read_lock(tmp_path / "lock.txt", PY312.environment)


@given(st.dictionaries(NAMES, VERSIONS, max_size=8), st.sampled_from(["\n", "\r\n", "\n\n# note\n"]))
def test_a_freeze_is_read_whatever_its_line_ends(tmp_path_factory, versions, end):
    path = tmp_path_factory.mktemp("have") / "freeze.txt"
    lines = [f"{name.upper().replace('-', '_')}=={version}" for name, version in versions.items()]
    path.write_text(end.join(lines), newline="")
    assert read_freeze(path) == {name: Version(version) for name, version in versions.items()}


def test_what_names_no_version_does_not_count_as_there(tmp_path):
    lines = ["-e git+https://example.org/a.git@0#egg=a", "b @ file:///tmp/b.whl", "c==1.*", "d==4"]
    (tmp_path / "f.txt").write_text("\n".join(lines))
    assert read_freeze(tmp_path / "f.txt") == {"d": Version("4")}


@given(st.binary(max_size=60))
def test_any_other_file_is_refused_in_a_sentence_or_read(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("have") / "freeze.txt"
    path.write_bytes(data)
    try:
        read_freeze(path)
    except UsageError as error:
        assert str(path) in str(error)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.txt cannot be read: No such file"):
        read_freeze(tmp_path / "none.txt")


# The walk

LOCK = {name: Version("1") for name in ("server", "kernels", "json", "torch", "grammar", "deep", "extra")}
METADATA = {
    "server": [
        "kernels==1",
        "json>=1",
        "torch==1",
        "grammar",
        'never; sys_platform == "win32"',
        "json[fast]",
    ],
    "kernels": ["torch", "server"],  # in a circle
    "json": ['extra; extra == "fast"'],
    "torch": ["deep"],
    "extra": [],
    "deep": [],
}


def choose(have=(), left_out=(), roots=("server",), selection=None):
    selection = selection or Selection()
    added = select(
        [Requirement(root) for root in roots],
        selection,
        lock=LOCK,
        have={name: Version(version) for name, version in dict(have).items()},
        left_out=dict(left_out),
        environment=PY312.environment,
        fetch=lambda name, _version: Path(name),
        requires=lambda wheel: [Requirement(line) for line in METADATA[wheel.name]],
    )
    return selection, set(added)


def test_what_the_node_has_in_a_fitting_version_stays_out_with_all_that_only_it_needs():
    selection, added = choose({"torch": "1+cu130", "json": "0.9"}, {"grammar": "not asked for"})
    assert added == {"server", "kernels", "json", "extra"}
    assert selection.on_node == {"torch": Version("1+cu130")}
    assert selection.left_out == {"grammar": "not asked for"}
    assert selection.by["torch"] == {"server", "kernels"}


def test_a_version_that_one_of_two_refuses_comes_along():
    selection, added = choose({"torch": "2"}, {"grammar": "x"}, roots=("kernels",))
    assert {"torch", "deep"} <= added
    assert "torch" not in selection.on_node


def test_a_second_set_holds_only_what_the_first_lacks():
    selection, _ = choose({"torch": "1"}, {"grammar": "x"})
    _, added = choose({}, {}, roots=("json", "deep"), selection=selection)
    assert added == {"deep"}


def test_a_package_that_no_lock_names_is_said_with_who_needs_it():
    with pytest.raises(WorkbookError, match="deep requires nothing-known"):
        METADATA["deep"].append("nothing-known")
        try:
            choose(left_out={"grammar": "x"})
        finally:
            METADATA["deep"].pop()


def test_requirements_are_read_from_the_wheel(tmp_path):
    wheel = make_wheel(tmp_path, "pebble", "1.0", requires=["a>=1", 'b; extra == "x"'])
    assert [str(one) for one in requires(wheel)] == ["a>=1", 'b; extra == "x"']


# A reduced wheel

FILES = {
    "pebble/__init__.py": b"x = 1\n",
    "pebble/sm90/ops.so": b"a" * 999,
    "pebble/sm100/ops.so": b"b" * 500,
}


def test_a_reduced_wheel_has_an_honest_record(tmp_path):
    (tmp_path / "out").mkdir()
    rule = FileRule(wheel="pebble", drop=("pebble/sm100/*",), reason="another architecture")
    (reduction,) = repack(make_wheel(tmp_path, "pebble", "1.0", files=FILES), tmp_path / "out", [rule])
    assert (reduction.files, reduction.before, reduction.after) == (1, 500, 0)
    said, there = record_of(tmp_path / "out" / "pebble-1.0-py3-none-any.whl")
    assert said == there
    assert {name for name in there if not name.startswith("pebble-1.0")} == set(FILES) - {
        "pebble/sm100/ops.so"
    }


def test_the_same_wheel_gives_the_same_bytes_whenever_it_is_packed(tmp_path):
    wheel = make_wheel(tmp_path, "pebble", "1.0", files=FILES)
    (tmp_path / "out").mkdir()
    repack(wheel, tmp_path / "out", [])
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(tmp_path / "out" / wheel.name) as after:
        told = [
            {one.filename: (one.date_time, one.external_attr) for one in z.infolist()}
            for z in (before, after)
        ]
        assert told[0] == told[1]
        assert {one.compress_type for one in after.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("strip")), reason="needs cc and strip")
def test_a_stripped_library_is_smaller_and_named_by_its_new_hash(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "a.c").write_text(
        "static int inner(int x) { return x + 1; }\nint outer(int x) { return inner(x); }"
    )
    library = tmp_path / "a.so"
    subprocess.run(["cc", "-g3", "-shared", "-fPIC", "-o", library, tmp_path / "a.c"], check=True)
    wheel = make_wheel(tmp_path, "pebble", "1.0", files={"pebble/a.so": library.read_bytes()})
    rule = FileRule(wheel="pebble", strip=("pebble/*.so",), reason="symbols")
    (reduction,) = repack(wheel, tmp_path / "out", [rule])
    assert 0 < reduction.after < reduction.before == library.stat().st_size
    said, there = record_of(tmp_path / "out" / wheel.name)
    assert said == there
    assert there["pebble/a.so"][1] == str(reduction.after)


@pytest.mark.skipif(not shutil.which("strip"), reason="needs strip")
def test_what_cannot_be_stripped_is_named(tmp_path):
    (tmp_path / "out").mkdir()
    wheel = make_wheel(tmp_path, "pebble", "1.0", files=FILES)
    rule = FileRule(wheel="pebble", strip=("pebble/sm90/*.so",), reason="symbols")
    with pytest.raises(WorkbookError, match=r"strip failed on pebble/sm90/ops\.so"):
        repack(wheel, tmp_path / "out", [rule])


def test_a_rule_for_another_version_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    rule = FileRule(wheel="pebble", drop=("pebble/sm100/*", "pebble/sm80/*"), reason="gone")
    with pytest.raises(WorkbookError, match=r"has no file pebble/sm80/\*"):
        repack(make_wheel(tmp_path, "pebble", "1.0", files=FILES), tmp_path / "out", [rule])


# Parts


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50))
def test_parts_are_full_but_for_the_last_and_join_to_the_whole(tmp_path_factory, pieces, size):
    splitter = Splitter(tmp_path_factory.mktemp("parts") / "x", size)
    with io.BufferedWriter(splitter) as out:
        for piece in pieces:
            out.write(piece)
    parts = [path.read_bytes() for path in splitter.paths]
    assert b"".join(parts) == b"".join(pieces)
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts[-1:])


def test_a_pack_is_a_plain_tar_xz_in_parts_with_their_hashes(tmp_path):
    files = [tmp_path / name for name in ("a.whl", "b.whl")]
    for number, path in enumerate(files):
        path.write_bytes(hashlib.shake_128(bytes([number])).digest(5000))
    (tmp_path / "out").mkdir()
    parts = pack(files, tmp_path / "out", "server", 3000, on_file=lambda name: None)
    assert [part.file for part in parts] == [f"server.tar.xz.{number:03}" for number in range(len(parts))]
    data = [(tmp_path / "out" / part.file).read_bytes() for part in parts]
    assert [(len(one), hashlib.sha256(one).hexdigest()) for one in data] == [
        (p.size, p.sha256) for p in parts
    ]
    assert len(parts) > 1 and max(len(one) for one in data) <= 3000
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(b"".join(data)))) as tar:
        assert {one.name: tar.extractfile(one).read() for one in tar} == {
            p.name: p.read_bytes() for p in files
        }


@pytest.mark.parametrize(("text", "size"), [("60M", 60_000_000), ("2g", 2_000_000_000), ("1000K", 1_000_000)])
def test_a_part_size_is_in_powers_of_a_thousand(text, size):
    assert part_bytes(text) == size


@pytest.mark.parametrize("text", ["", "60", "0M", "-1M", "1.5G", "999K", "60MB", "M", "٦M"])
def test_any_other_part_size_is_refused(text):
    with pytest.raises(UsageError, match="--part-size"):
        part_bytes(text)
