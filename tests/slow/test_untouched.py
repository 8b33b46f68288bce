"""Nothing installed is written: the packages are hashed before and after, also when a process is killed half-way."""

import hashlib
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.processes import command_line, running, wait_for
from workbook.node.connect import connect
from workbook.node.probe import flashinfer_dir

pytestmark = pytest.mark.slow
WORKBOOK = str(Path(sys.executable).with_name("workbook"))
PACKAGES = ("torch", "sglang", "tvm_ffi")
TRACE = ("trace", "flashinfer.fp4_quantize", "--patch-level", "4")


def hashes(folder, pattern="*"):
    """Path -> SHA-256 of the content of every file; what Python compiles on its own is left out."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob(pattern)
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def installed(stack):
    """All of FlashInfer, and the Python source of what it and Dynamo stand on."""
    found = hashes(flashinfer_dir(connect("local"), stack))
    for name in PACKAGES:
        found |= hashes(Path(sysconfig.get_path("purelib")) / name, "*.py")
    return found


@pytest.fixture(scope="module")
def before(embedded):
    return installed(embedded)


@contextmanager
def untouched(stack, before):
    yield
    after = installed(stack)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()


def test_the_hashes_cover_the_packages_and_see_every_change(node, embedded, before, tmp_path):
    folder = flashinfer_dir(node, embedded)
    assert sum(path.startswith(str(folder)) for path in before) > 1000
    for name in PACKAGES:
        assert sum(f"/site-packages/{name}/" in path for path in before) > 10
    assert str(folder / "flashinfer" / "__init__.py") in before
    copy = tmp_path / "jit"
    shutil.copytree(folder / "flashinfer" / "jit", copy, ignore=shutil.ignore_patterns("__pycache__"))
    as_it_was = hashes(copy)
    assert sorted(as_it_was.values()) == sorted(
        sha for path, sha in before.items() if path.startswith(f"{folder}/flashinfer/jit/")
    )
    (copy / "core.py").write_bytes((copy / "core.py").read_bytes() + b"\n")
    (copy / "new.py").write_text("")
    assert {path for path, sha in hashes(copy).items() if as_it_was.get(path) != sha} == {
        str(copy / "core.py"),
        str(copy / "new.py"),
    }


IMPORT = "from workbook_overlay.declare import declare_gpu; declare_gpu('sm120'); import flashinfer"


@pytest.mark.parametrize(
    "args",
    [
        TRACE,
        ("exec", "--patch-level", "2", "--", "python", "-c", IMPORT),
        ("blockers", "flashinfer.fp4_quantize"),  # it exchanges functions while it traces
    ],
    ids=lambda args: args[0],
)
def test_a_whole_command_writes_nothing(embedded, before, monkeypatch, tmp_path, args):
    # Level 2 loads its kernels at import, which would build them.
    monkeypatch.setenv("WORKBOOK_STAND_IN_KERNELS", "1")
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    with untouched(embedded, before):
        subprocess.run([WORKBOOK, *args], capture_output=True, check=True)


def probe_of(process):
    """The probe of a trace, once FlashInfer's own dependencies are mapped into it: it is being imported and patched."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if "probes/trace.py" in command_line(child.pid) and "supervise" not in command_line(child.pid):
            maps = Path(f"/proc/{child.pid}/maps")
            if maps.exists() and "tvm_ffi" in maps.read_text():
                return child.pid
    return None


@pytest.mark.parametrize("whom", ["probe", "asker"])
def test_a_trace_that_is_killed_half_way_writes_nothing(embedded, before, whom):
    with untouched(embedded, before):
        process = subprocess.Popen(
            [WORKBOOK, *TRACE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: probe_of(process) is not None, 120)
        started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        psutil.Process(process.pid if whom == "asker" else probe_of(process)).send_signal(signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=60)
        wait_for(lambda: not running(started))
    assert stdout == "" and len(started) >= 2
    if whom == "probe":
        assert process.returncode == 1
        assert stderr == "workbook: trace.py on local was ended by SIGKILL.\n"
