"""Offline bundles of tiny wheels, made by the command and installed into an empty environment without an index."""

import hashlib
import io
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest
import yaml

from tests.processes import wait_for
from tests.tiny_stacks import description
from tests.tiny_wheels import make_wheel

pytestmark = pytest.mark.slow
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# The command, with the descriptions and locks of this test in place of the checkout's.
COMMAND = """
import sys
from pathlib import Path
from workbook import catalog
from workbook.wheelhouse import bundle
world = Path(sys.argv[1])
catalog.DATA, bundle.LOCKS, bundle.ROOT = world / "data", world / "locks", world
sys.argv = ["workbook", "wheelhouse", *sys.argv[2:]]
from workbook.cli import main
main()
"""
RULES = {
    "name": "tiny",
    "roots": ["stone"],
    "left_out": {"boulder": "nobody lifts it"},
    "left_out_on": {"sm90": {"slate": "it is for roofs"}},
    "files": [
        {"wheel": "stone", "drop": ["stone/sm100/*"], "arch": ["sm90"], "reason": "another architecture"},
        {"wheel": "stone", "drop": ["stone/big.bin"], "reason": "big", "env": {"STONE_BIG": "no, it's not"}},
    ],
    "env": {"OFFLINE": "1"},
    "disk_gb": 0.1,
    "disk_reduced_gb": 0.1,
}
STONE = {
    "stone/__init__.py": b"import pebble, gravel\nPATTERN = '\\d'\n",  # compiled with a warning
    "stone/sm90/ops.so": b"90",
    "stone/sm100/ops.so": b"100",
    "stone/big.bin": random.Random(0).randbytes(1000),
}


def make_world(folder):
    """A stack `tiny` of four packages, whose wheels lie in a folder, so that pip asks no index."""
    for name in ("wheels", "locks", "data/stacks", "data/nodes", "data/wheelhouse"):
        (folder / name).mkdir(parents=True)
    wheels = folder / "wheels"
    make_wheel(wheels, "stone", "1.0", requires=["pebble>=2", "gravel", "boulder", "slate"], files=STONE)
    make_wheel(wheels, "pebble", "2.0", files={"pebble.py": b"version = 2\n"})
    make_wheel(wheels, "gravel", "1.0")
    make_wheel(wheels, "slate", "1.0")
    make_wheel(wheels, "sand", "1.0", requires=["pebble"])
    (folder / "data" / "nodes" / "local.yaml").write_text("name: local")
    (folder / "data" / "stacks" / "tiny.yaml").write_text(description("tiny", "1.0"))
    (folder / "data" / "stacks" / "other.yaml").write_text(description("other", "1.0"))
    (folder / "data" / "wheelhouse" / "tiny.yaml").write_text(yaml.safe_dump(RULES))
    (folder / "locks" / "tiny.txt").write_text(
        "stone==1.0\npebble==2.0\ngravel==1.0\nboulder==1.0\nslate==1.0\nsand==1.0\n"
    )
    (folder / "pyproject.toml").write_text('[project]\ndependencies = ["sand"]\n')
    (folder / "freeze.txt").write_text("pebble==1.0\ngravel==1.0\n")
    return folder


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path / "world")


def command(world, *args):
    """The command's argv and environment."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(world / "wheels")}
    argv = [sys.executable, "-c", COMMAND, str(world), *args, "--python", PYTHON]
    return argv, {**os.environ, **pip, "WORKBOOK_STACKS": str(world / "stacks")}


def wheelhouse(world, *args):
    argv, env = command(world, *args)
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd=world)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A world with a bundle in it for a node that has gravel, and pebble too old, with the workbook's own set."""
    world = make_world(tmp_path_factory.mktemp("made") / "world")
    done = wheelhouse(
        world, "tiny", "--out", "bundle", "--arch", "sm90", "--workbook", "--have", str(world / "freeze.txt")
    )
    assert done.returncode == 0, done.stderr
    return world


@pytest.fixture
def bundle(made, tmp_path):
    """That bundle, for this test alone."""
    return shutil.copytree(made / "bundle", tmp_path / "bundle")


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The Python of an environment that has pip and, of its own, gravel: the node's."""
    folder = tmp_path_factory.mktemp("node") / "empty"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    (site / "gravel.py").write_text("version = 'the node'")
    return folder / "bin" / "python"


def install(bundle, python, *args):
    """With its own pip and no way to an index."""
    argv = [python, bundle / "install.py", *args]
    env = {"PATH": os.environ["PATH"]}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd=bundle.parent)


def test_a_bundle_installs_without_an_index_and_sees_what_the_node_has(bundle, empty, tmp_path):
    done = install(bundle, empty, "here")
    assert (done.returncode, done.stderr) == (0, "")
    python = tmp_path / "here" / "bin" / "python"
    assert str(python) in done.stdout
    code = "import stone, sand; print(stone.pebble.version, stone.gravel.version, stone.__file__)"
    answer = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.startswith("2 the node ")
    stone = next((tmp_path / "here" / "lib").glob("python*/site-packages/stone"))
    assert sorted(path.name for path in stone.glob("s*")) == ["sm90"]
    assert not (stone / "big.bin").exists()
    told = subprocess.run(
        ["sh", "-c", ". here/env.sh; printf '%s|%s' \"$OFFLINE\" \"$STONE_BIG\""],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "1|no, it's not"
    path = next(line.split("=", 1)[1] for line in done.stdout.splitlines() if "PYTHONPATH=" in line)
    alone = subprocess.run(
        [empty, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert alone.stdout == answer


def test_what_was_left_out_is_told_with_its_reason(bundle):
    text = (bundle / "LEFT_OUT.md").read_text()
    assert "| boulder 1.0 | stone | nobody lifts it |" in text
    assert "| slate 1.0 | stone | it is for roofs |" in text
    assert "| gravel | 1.0 | 1.0 | stone |" in text
    assert "| stone 1.0 | `stone/sm100/*` |  | 1 | 0.00 | 0.00 | another architecture |" in text
    manifest = json.loads((bundle / "manifest.json").read_text())
    wheels = {name: [one["file"] for one in each["wheels"]] for name, each in manifest["sets"].items()}
    assert wheels == {
        "server": ["pebble-2.0-py3-none-any.whl", "stone-1.0-py3-none-any.whl"],
        "workbook": ["sand-1.0-py3-none-any.whl"],
    }


def test_one_set_alone(bundle, empty, tmp_path):
    assert (
        "no set 'sever'; it has server, workbook" in install(bundle, empty, "here", "--only", "sever").stderr
    )
    (bundle / "server.tar.xz.000").unlink()
    assert install(bundle, empty, "here", "--only", "workbook").returncode == 0
    assert list((tmp_path / "here").rglob("sand.py"))


def test_the_kernels_of_all_architectures_stay_where_none_is_named(world):
    assert wheelhouse(world, "tiny", "--out", "all").returncode == 0
    text = (world / "all" / "LEFT_OUT.md").read_text()
    assert "sm100" not in text and "big.bin" in text
    names = [one["file"].split("-")[0] for one in manifest_of(world / "all")["server"]["wheels"]]
    assert names == ["gravel", "pebble", "slate", "stone"]


def manifest_of(bundle):
    return json.loads((bundle / "manifest.json").read_text())["sets"]


def damage(part):
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)


def lacks_a_wheel(bundle):
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["sets"]["server"]["wheels"].append(
        {"file": "chalk-1.0-py3-none-any.whl", "size": 1, "sha256": "0"}
    )
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def names_no_wheel(bundle):
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["sets"]["workbook"]["wheels"].clear()
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def is_no_wheel_for_pip(bundle):
    """A bundle whose hashes fit, with a wheel that pip refuses in it, after those that it takes."""
    data = io.BytesIO()
    with lzma.open(data, "wb") as xz, tarfile.open(fileobj=xz, mode="w") as tar:
        info = tarfile.TarInfo("sand-1.0-py3-none-any.whl")
        info.size = 7
        tar.addfile(info, io.BytesIO(b"no zip."))
    part = bundle / "workbook.tar.xz.000"
    part.write_bytes(data.getvalue())
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["sets"]["workbook"]["parts"] = [
        {
            "file": part.name,
            "size": part.stat().st_size,
            "sha256": hashlib.sha256(data.getvalue()).hexdigest(),
        }
    ]
    manifest["sets"]["workbook"]["wheels"][0]["sha256"] = hashlib.sha256(b"no zip.").hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda bundle: damage(bundle / "server.tar.xz.000"), "server.tar.xz.000 is not what was made"),
        (lambda bundle: (bundle / "workbook.tar.xz.000").unlink(), "workbook.tar.xz.000 is missing"),
        (lambda bundle: (bundle / "manifest.json").write_text("{"), "manifest.json is not what was made"),
        (lambda bundle: (bundle / "manifest.json").unlink(), "manifest.json: No such file"),
        (lacks_a_wheel, "lacks chalk-1.0-py3-none-any.whl"),
        (names_no_wheel, "holds 'sand-1.0-py3-none-any.whl', which its manifest does not name"),
        (is_no_wheel_for_pip, "pip failed: "),
    ],
)
def test_a_damaged_bundle_is_refused_and_nothing_is_left_of_it(bundle, empty, tmp_path, harm, said):
    harm(bundle)
    done = install(bundle, empty, "here")
    assert done.returncode == 1
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "here").exists()


def test_another_python_or_a_folder_that_exists_is_refused(bundle, empty, tmp_path):
    (tmp_path / "here").mkdir()
    assert "here exists" in install(bundle, empty, "here").stderr
    assert not list((tmp_path / "here").iterdir())
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "python": "3.7"}))
    assert "the bundle is for Python 3.7" in install(bundle, empty, "there").stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_install_leaves_nothing(bundle, empty, tmp_path, number):
    process = subprocess.Popen(
        [empty, bundle / "install.py", "here"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (tmp_path / "here" / "wheels").exists(), 60)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr == "install.py: interrupted; nothing was installed.\n"
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["tinny"], "No stack named 'tinny' in data/stacks; did you mean tiny?"),
        (["other"], "No wheelhouse named 'other' in data/wheelhouse;"),
        (["tiny", "--arch", "sm91"], "No rules reduce stack tiny to 'sm91'; did you mean sm90?"),
        (["tiny", "--part-size", "60"], "--part-size '60' is no size"),
        (["tiny", "--have", "none.txt"], "none.txt cannot be read"),
        (["tiny", "--out", "data"], "data exists; remove it"),
    ],
)
def test_a_mistake_is_said_before_anything_is_fetched(world, args, said):
    done = wheelhouse(world, *args)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not list(world.glob("wheelhouse-*")) and not list((world / "stacks").rglob("*.whl"))


def test_too_little_disk_is_said_before_anything_is_fetched(world):
    rules = {**RULES, "disk_gb": 1e9}
    (world / "data" / "wheelhouse" / "tiny.yaml").write_text(yaml.safe_dump(rules))
    done = wheelhouse(world, "tiny", "--out", "bundle")
    assert done.returncode == 2
    assert "this needs about 1000000000.0 GB" in done.stderr
    assert not list(world.glob("bundle*")) and not list((world / "stacks").rglob("*.whl"))


def test_what_was_fetched_is_not_fetched_again_and_an_index_out_of_reach_is_said(world):
    have = ["--have", "freeze.txt"]
    assert wheelhouse(world, "tiny", "--out", "bundle", *have).returncode == 0
    shutil.rmtree(world / "wheels")
    (world / "wheels").mkdir()
    assert wheelhouse(world, "tiny", "--out", "again", *have).returncode == 0
    done = wheelhouse(world, "tiny", "--out", "more")  # gravel, which was never fetched
    assert done.returncode == 2
    assert "pip finds no gravel==1.0" in done.stderr and "reaches its index" in done.stderr
    assert not list(world.glob("more*"))
    assert not list((world / "stacks").rglob("*.partial"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bundle_leaves_nothing_of_it(world, number):
    rubble = {**STONE, "stone/rubble.bin": random.Random(2).randbytes(60_000_000)}  # half a minute for xz
    make_wheel(world / "wheels", "stone", "1.0", requires=["pebble>=2", "gravel", "boulder"], files=rubble)
    argv, env = command(world, "tiny", "--out", "bundle")
    process = subprocess.Popen(
        argv, env=env, cwd=world, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: bool(list(world.glob("bundle.partial/*.tar.xz.000"))), 90)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert not list(world.glob("bundle*"))
    assert len(list((world / "stacks").rglob("*.whl"))) == 3


def test_a_bundle_in_many_parts(world, empty):
    rubble = {**STONE, "stone/rubble.bin": random.Random(3).randbytes(2_500_000)}
    make_wheel(world / "wheels", "stone", "1.0", requires=["pebble>=2"], files=rubble)
    assert wheelhouse(world, "tiny", "--out", "bundle", "--part-size", "1M").returncode == 0
    sizes = [part["size"] for part in manifest_of(world / "bundle")["server"]["parts"]]
    assert len(sizes) == 3 and sizes[:2] == [1_000_000, 1_000_000]
    assert install(world / "bundle", empty, "here").returncode == 0
    installed = next((world / "here").rglob("rubble.bin"))
    assert installed.read_bytes() == rubble["stone/rubble.bin"]
