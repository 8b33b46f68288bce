"""Print what a run needs to know of this node beside its GPUs, as one JSON object. Imports no torch and no sglang.

    python doctor.py WORK [--flashinfer FOLDER] [--model NAME]

WORK is the folder that the workbook works in, FOLDER one that has a FlashInfer of its own, NAME a model as SGLang takes
it. Nothing is judged here and nothing is left behind. Memory is GiB, disk GB of 10^9 bytes; what cannot be found out is
null.
"""

import argparse
import getpass
import importlib.metadata
import json
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

GIB = 1 << 30
COMMAND_LIMIT_S = 10
DEFAULT_PORT = 30000  # SGLang's


def read(path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def run(argv: list[str]) -> tuple[int, str]:
    """Exit status, and what it printed on both channels; 127 where it cannot be started."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout


# What compiles at run time


def cuda_home() -> tuple[str, str]:
    """Where FlashInfer looks for the toolkit (its jit/cpp_ext.py), and what named that place."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            return os.environ[name], name
    if nvcc := shutil.which("nvcc"):
        return str(Path(nvcc).parent.parent), "PATH"
    return "/usr/local/cuda", "the default place"


def tool(argv: list[str], version: str) -> dict:
    """A program's path and the version that it prints, found by a pattern."""
    path = shutil.which(argv[0])
    status, text = run(argv) if path else (127, "not found")
    found = re.search(version, text) if status == 0 else None
    error = None if found else text.strip()[-300:] or f"exit status {status}"
    return {"path": path or argv[0], "version": found and found[1], "error": error}


def compilers() -> dict:
    home, named_by = cuda_home()
    newest = re.search(r"gcc versions later than (\d+)", read(f"{home}/include/crt/host_config.h"))
    cxx = shlex.split(os.environ.get("CXX", "c++")) or ["c++"]
    _, named = run([*cxx, "--version"])
    with tempfile.TemporaryDirectory(prefix="workbook-") as scratch:
        # What FlashInfer links with, without a kernel.
        libraries = [f"-L{home}/lib64", f"-L{home}/lib64/stubs", "-lcudart", "-lcuda"]
        out = str(Path(scratch, "probe.so"))
        status, said = run([*cxx, "-shared", "-x", "c++", "/dev/null", "-o", out, *libraries])
    return {
        "nvcc": tool([f"{home}/bin/nvcc", "--version"], r"release (\d+\.\d+)"),
        "nvcc_named_by": named_by,
        "newest_gcc": int(newest[1]) if newest and "clang" not in named else None,
        "ninja": tool(["ninja", "--version"], r"(\d+(?:\.\d+)+)"),
        "cxx": tool([*cxx, "--version"], r"(\d+(?:\.\d+)+)"),
        "link_error": said.strip()[-300:] if status else None,
    }


# What is installed


def packages() -> dict[str, str]:
    """Name -> version; of two with one name, that which is imported."""
    found: dict[str, str] = {}
    for dist in importlib.metadata.distributions():
        if dist.metadata and dist.metadata["Name"]:
            found.setdefault(dist.metadata["Name"], dist.version)
    return found


def torch_cuda() -> str | None:
    """The CUDA that torch was built for, read from its source."""
    spec = find_spec("torch")
    text = read(Path(spec.origin).with_name("version.py")) if spec and spec.origin else ""
    built_for = re.search(r"^cuda\b.*= '([\d.]+)'", text, re.MULTILINE)
    return built_for and built_for[1]


def flashinfer_in(folder: str | None) -> str | None:
    found = importlib.metadata.distributions(path=[folder]) if folder else ()
    return next((dist.version for dist in found if dist.metadata["Name"] == "flashinfer-python"), None)


def model(name: str | None) -> dict | None:
    """Where a model is (a folder, or a name in the hub's cache), what its weights take, and which are missing."""
    if name is None:
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or f"{cache}/huggingface", "hub")
    kept = Path(os.path.expanduser(hub), f"models--{name.replace('/', '--')}")  # noqa: PTH111, it never raises
    places = (Path(name), kept / "snapshots" / read(kept / "refs" / "main").strip())
    folder = next((place for place in places if read(place / "config.json")), None)
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if folder is None:
        return {"path": None, "weights_gib": None, "missing": 0, "offline": offline}
    weights = [path.stat().st_size for path in folder.glob("*.safetensors") if path.exists()]
    try:
        index = json.loads(read(folder / "model.safetensors.index.json") or "{}")
        named = index.get("weight_map", {}).values()
    except (ValueError, AttributeError):
        named = ()
    missing = [part for part in set(named) if not (folder / str(part)).exists()]
    return {
        "path": str(folder),
        "weights_gib": sum(weights) / GIB if weights else None,
        "missing": len(missing),
        "offline": offline,
    }


# The machine


def host_memory_gib() -> tuple[float, float]:
    """Total and available, both no more than what the control group allows."""
    total, available = (
        int(re.search(rf"^{name}:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)[1]) << 10
        for name in ("MemTotal", "MemAvailable")
    )
    version2, version1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
    for limit, used, cache in (
        (version2 / "memory.max", version2 / "memory.current", version2 / "memory.stat"),
        (version1 / "memory.limit_in_bytes", version1 / "memory.usage_in_bytes", version1 / "memory.stat"),
    ):
        if (most := read(limit).strip()).isdigit() and int(most) < total:
            freeable = re.search(r"^(?:total_)?inactive_file (\d+)", read(cache), re.MULTILINE)
            total = int(most)
            available = min(available, total - int(read(used) or 0) + int(freeable[1] if freeable else 0))
    return total / GIB, available / GIB


def mount_of(path: str, mountinfo: str) -> tuple[str | None, list[str]]:
    """File system type and mount options of the mount that a real path lies on; the last of several in one place."""
    best, kind, options = -1, None, []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 6 or not after:
            continue
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:
            best, kind, options = len(place), after.split()[0], fields[5].split(",")
    return kind, options


def folder(purpose: str, path: str) -> dict:
    """A folder that is there, or would be made on first use: its file system, and whether it takes a file."""
    place = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111, it never raises
    there = next(one for one in (place, *place.parents) if os.path.isdir(one))  # noqa: PTH112, it never raises
    try:
        with tempfile.TemporaryFile(dir=there):
            writable = True
    except OSError:
        writable = False
    kind, options = mount_of(os.path.realpath(there), read("/proc/self/mountinfo"))
    return {
        "purpose": purpose,
        "path": str(place),
        "writable": writable,
        "file_system": kind,
        "noexec": "noexec" in options,
        "free_gb": shutil.disk_usage(there).free / 1e9,
    }


def folders(work: str) -> list[dict]:
    """The work folder, and the caches at the places that their owners choose."""
    env = os.environ.get
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    inductor = f"{tempfile.gettempdir()}/torchinductor_{re.sub(r'[^A-Za-z0-9_]', '_', user)}"
    return [
        folder("work", work),
        folder("FlashInfer", f"{env('FLASHINFER_WORKSPACE_BASE') or '~'}/.cache/flashinfer"),
        folder("Triton", env("TRITON_CACHE_DIR") or f"{env('TRITON_HOME') or '~'}/.triton/cache"),
        folder("Inductor", env("TORCHINDUCTOR_CACHE_DIR") or inductor),
        folder("SGLang", env("SGLANG_CACHE_DIR") or "~/.cache/sglang"),
    ]


def binds(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that only lingers is free
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            return False
    return True


def machine(work: str) -> dict:
    total, available = host_memory_gib()
    shm = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return {
        "memory_gib": total,
        "available_gib": available,
        "shm_gib": shm and shm.total / GIB,
        "shm_free_gib": shm and shm.free / GIB,
        "files_soft": soft,
        "files_hard": hard,
        "free_port": binds(0),
        "default_port_free": binds(DEFAULT_PORT),
        "folders": folders(work),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--flashinfer")
    parser.add_argument("--model")
    asked = parser.parse_args(argv)
    facts = {
        **compilers(),
        "python": platform.python_version(),
        "packages": packages(),
        "flashinfer_folder": flashinfer_in(asked.flashinfer),
        "torch_cuda": torch_cuda(),
        "model": model(asked.model),
        **machine(asked.work),
    }
    print("\n" + json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
