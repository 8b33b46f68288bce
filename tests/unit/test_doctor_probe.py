"""What the doctor's probes find on this machine and among stub tools, and the command itself."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.test_cli import workbook
from workbook import catalog
from workbook.doctor.examine import compare_clocks, examine
from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.paths import PROBES
from workbook.types import Node, Stack

MACHINE = runpy.run_path(str(PROBES / "doctor.py"))
GPUS = runpy.run_path(str(PROBES / "doctor_gpus.py"))
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")


def probe(script, *args, **env):
    done = subprocess.run(
        [sys.executable, "-P", PROBES / script, *map(str, args)],
        env=os.environ | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


# mounts

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /people rw,relatime shared:9 - nfs4 filer:/people rw,vers=4.2
41 40 8:2 / /people/eve/local rw,nosuid,noexec - xfs /dev/sdb1 rw
42 22 0:50 / /mnt/two\040words rw - fuse.sshfs eve@far:/ rw
43 22 0:60 / /data rw - ext4 /dev/sdc1 rw
44 43 0:61 / /data rw,noexec shared:3 master:1 - tmpfs tmpfs rw
no mount at all
"""


@pytest.mark.parametrize(
    ("path", "kind", "noexec"),
    [
        ("/", "ext4", False),
        ("/usr/lib", "ext4", False),
        ("/people", "nfs4", False),
        ("/people/eve/.cache/flashinfer", "nfs4", False),
        ("/peoples", "ext4", False),
        ("/people/eve/local/x", "xfs", True),
        ("/mnt/two words/x", "fuse.sshfs", False),
        ("/data/x", "tmpfs", True),
    ],
)
def test_the_mount_of_a_path(path, kind, noexec):
    found, options = MACHINE["mount_of"](path, MOUNTS)
    assert (found, "noexec" in options) == (kind, noexec)


def test_no_mountinfo_is_no_answer():
    assert MACHINE["mount_of"]("/x", "") == (None, [])


def test_this_machine_agrees_with_its_own_stat(tmp_path):
    found = MACHINE["folder"]("work", str(tmp_path / "not" / "there"))
    said = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    assert found["writable"] and not (tmp_path / "not").exists()
    assert found["file_system"].startswith(said.stdout.split("/")[0].strip()[:3])
    assert found["free_gb"] == pytest.approx(shutil.disk_usage(tmp_path).free / 1e9, rel=0.05)


def test_caches_lie_where_their_variables_say(tmp_path):
    env = {
        "FLASHINFER_WORKSPACE_BASE": "fi",
        "TRITON_CACHE_DIR": "tr",
        "TORCHINDUCTOR_CACHE_DIR": "ind",
        "SGLANG_CACHE_DIR": "sg",
    }
    found = probe("doctor.py", tmp_path, **{name: str(tmp_path / part) for name, part in env.items()})
    paths = {one["purpose"]: one["path"].removeprefix(f"{tmp_path}/") for one in found["folders"]}
    assert paths == {
        "work": str(tmp_path), "FlashInfer": "fi/.cache/flashinfer", "Triton": "tr", "Inductor": "ind", "SGLang": "sg"
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


# tools


@needs_compiler
def test_a_toolkit_is_found_and_linked_with(tmp_path):
    home = tmp_path / "cuda"
    program(home / "bin" / "nvcc", "echo 'Cuda compilation tools, release 12.8, V12.8.93'")  # a stub
    header = home / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#error -- unsupported GNU version! gcc versions later than 14 are not supported!\n")
    found = probe("doctor.py", tmp_path, CUDA_HOME=str(home), LIBRARY_PATH="")
    assert (found["nvcc"]["version"], found["nvcc_named_by"], found["newest_gcc"]) == (
        "12.8",
        "CUDA_HOME",
        14,
    )
    assert "-lcudart" in found["link_error"] and "-lcuda" in found["link_error"]
    for library in ("lib64/libcudart.so", "lib64/stubs/libcuda.so"):  # stubs, by the real linker
        (home / library).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["c++", "-shared", "-x", "c++", "/dev/null", "-o", home / library], check=True)
    assert probe("doctor.py", tmp_path, CUDA_HOME=str(home))["link_error"] is None


def test_what_is_missing_is_said(tmp_path):
    (tmp_path / "bin").mkdir()
    found = probe(
        "doctor.py", tmp_path, PATH=str(tmp_path / "bin"), CUDA_HOME=str(tmp_path), CXX="no-such-c++ -O2"
    )
    for name in ("nvcc", "ninja", "cxx"):
        assert found[name]["version"] is None and found[name]["error"], name
    assert found["cxx"]["path"] == "no-such-c++" and found["link_error"]


def test_versions_as_tools_print_them(tmp_path):
    program(tmp_path / "ninja", "echo 1.13.2.git.kitware.jobserver-pipe-1")  # stubs
    program(tmp_path / "g++", "echo 'g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0'")
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = probe("doctor.py", tmp_path, PATH=path, CXX="g++")
    assert (found["ninja"]["version"], found["cxx"]["version"]) == ("1.13.2", "13.3.0")


def test_packages_of_this_environment_and_flashinfer_of_a_folder(tmp_path):
    info = tmp_path / "flashinfer_python-0.6.9.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.9\n")
    found = probe("doctor.py", tmp_path, f"--flashinfer={tmp_path}")
    assert found["flashinfer_folder"] == "0.6.9"
    assert found["packages"]["pytest"] == pytest.__version__


# models


def test_a_model_by_its_folder_and_by_its_name(tmp_path):
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc"
    refs = snapshot.parents[1] / "refs"
    for folder in (snapshot, refs):
        folder.mkdir(parents=True)
    (refs / "main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    (snapshot / "a.safetensors").write_bytes(bytes(2**20))
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    env = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "1"}
    for name in ("org/name", str(snapshot)):
        found = probe("doctor.py", tmp_path, f"--model={name}", **env)["model"]
        assert found == {"path": str(snapshot), "weights_gib": 2**-10, "missing": 1, "offline": True}
    assert probe("doctor.py", tmp_path, "--model=-no", HF_HOME=str(tmp_path))["model"]["path"] is None


# GPUs


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [(None, {0, 1}), ("", set()), ("1", {1}), ("1,0", {0, 1}), ("0,7,1", {0}), ("-1", set()), ("GPU-b", {1}),
     ("x", set())],
)  # fmt: skip
def test_cuda_visible_devices_as_cuda_reads_it(chosen, seen):
    gpus = [{"index": 0, "uuid": "GPU-a0"}, {"index": 1, "uuid": "GPU-b1"}]
    assert GPUS["visible"](gpus, chosen) == seen


SMI = """case "$*" in
*query-gpu*) echo "0, GPU-a, 9.0, 143771, 20000, 580.159.04, NVIDIA H200, odd name";;
*query-compute-apps*) echo "GPU-a, $$, 120000"; echo "GPU-a, 1, [N/A]"; echo "no table";;
*) echo "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0 |";;
esac"""


def by_smi(folder):
    """The probe in a Python without pynvml, with nothing but a stub nvidia-smi on PATH."""
    no_nvml = (
        "import sys, runpy; sys.modules['pynvml'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", no_nvml, PROBES / "doctor_gpus.py"],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_gpus_by_nvidia_smi(tmp_path):
    program(tmp_path / "nvidia-smi", SMI)  # a stub, with figures that are made up
    found = by_smi(tmp_path)
    assert (found["driver"], found["driver_cuda"], found["gpu_error"]) == ("580.159.04", "13.0", None)
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["compute_capability"]) == ("NVIDIA H200, odd name", [9, 0])
    assert (gpu["memory_gib"], gpu["free_gib"]) == (143771 / 1024, 20000 / 1024)
    assert [one["memory_gib"] for one in gpu["holders"]] == [120000 / 1024, None]


def test_an_nvidia_smi_that_fails_is_quoted(tmp_path):
    program(tmp_path / "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")  # a stub
    assert by_smi(tmp_path)["gpu_error"] == "NVIDIA-SMI has failed"
    (tmp_path / "nvidia-smi").unlink()
    assert "there is no nvidia-smi" in by_smi(tmp_path)["gpu_error"]


# the node and its clock


def test_this_machines_clock_is_its_own(node):
    found = compare_clocks(node, node.python)
    assert abs(found.ahead_s) <= found.uncertainty_s < 30


def test_a_clock_that_is_ahead_is_seen(tmp_path, node):
    late = tmp_path / "python"
    program(late, f"exec {sys.executable} -c 'import time; print(time.time() + 1000)'")  # a stub
    found = compare_clocks(node, str(late))
    assert abs(found.ahead_s - 1000) <= found.uncertainty_s


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        ("exit 3", UsageError, "does not start: 3. Name another at python: or venv: in data/nodes/odd.yaml."),
        ("case $1 in -P) echo hello;; *) echo 1;; esac", WorkbookError, "printed no JSON."),
        ("case $1 in -P) echo 7;; *) echo 1;; esac", WorkbookError, "printed no JSON object."),
        (
            "case $1 in -P) echo '{\"gpus\": 3}';; *) echo 1;; esac",
            WorkbookError,
            "says of gpus what cannot be",
        ),
        (
            "case $1 in -P) echo oh dear >&2; exit 1;; *) echo 1;; esac",
            WorkbookError,
            "(exit status 1): oh dear",
        ),
        ("echo not a time", WorkbookError, "told no time"),
        ("echo inf", WorkbookError, "told no time"),
    ],
)
def test_a_node_that_talks_nonsense_is_a_sentence(tmp_path, answer, kind, sentence):
    program(tmp_path / "python", answer)  # a stub
    node = LocalConnection(Node(name="odd", python=str(tmp_path / "python")))
    with pytest.raises(kind) as raised:
        examine(node, catalog.load(Stack, "embedded"))
    assert sentence in str(raised.value)


def test_a_python_that_is_not_there():
    node = LocalConnection(Node(name="odd", python="/no/such/python"))
    with pytest.raises(UsageError, match="/no/such/python of node odd does not start"):
        examine(node, catalog.load(Stack, "embedded"))


# the command


def test_the_command_on_this_machine():
    started = time.monotonic()
    done = workbook("doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert set(checks["torch"]) == {"name", "verdict", "found", "needed", "remedy"}
    assert (
        checks["torch"]["verdict"]
        == checks["sglang"]["verdict"]
        == checks["other packages"]["verdict"]
        == "ok"
    )
    assert checks["clock"]["verdict"] == "ok"


def test_what_fails_is_an_answer_with_what_to_do():
    done = workbook("doctor", "--profile", "glm5-nvfp4-tp8", COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert "profile: model: Let model: in data/profiles/glm5-nvfp4-tp8.yaml name its folder" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Node local: ")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--node", "nowhere"], "No node named 'nowhere'"),
        (["--stack", "embeded"], "did you mean embedded?"),
        (["--profile", "tiny-gpu"], "did you mean tiny-cpu?"),
    ],
)
def test_bad_arguments(args, sentence):
    done = workbook("doctor", *args)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


def test_a_stack_that_was_not_created(tmp_path):
    done = workbook("doctor", "--stack", "seed", WORKBOOK_STACKS=str(tmp_path))
    assert done.returncode == 2 and "Run: workbook stack create seed" in done.stderr
    assert not list(Path(tmp_path).iterdir())
