"""Print where a run takes place, as one JSON object. Standard library only; imports no torch.

python snapshot.py
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

GPU_QUERY = "index,name,compute_cap,memory.total,driver_version"


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def output(argv: list[str]) -> str:
    """What a command prints; nothing if it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def gpus() -> tuple[list[dict], str | None]:
    """The GPUs and the driver's version, by nvidia-smi; none where there is none."""
    rows = [
        line.split(", ")
        for line in output(
            ["nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits"]
        ).splitlines()
    ]
    rows = [row for row in rows if len(row) == 5]
    found = [
        {
            "index": int(index),
            "name": name,
            "compute_capability": capability,
            "memory_gb": float(memory) / 1024,
        }
        for index, name, capability, memory, _driver in rows
    ]
    return found, rows[0][4] if rows else None


def cpu_name() -> str:
    named = re.search(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo"), re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def memory_gb() -> float:
    total = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    if total:
        return int(total[1]) / 1024**2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3


def cuda_version() -> str | None:
    release = re.search(r"release (\d+\.\d+)", output(["nvcc", "--version"]))
    return release[1] if release else None


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def snapshot() -> dict:
    found, driver = gpus()
    return {
        "hostname": platform.node(),
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_gb": memory_gb(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "gpus": found,
        "driver": driver,
        "cuda": cuda_version(),
        "packages": {
            dist.metadata["Name"].lower(): dist.version
            for dist in importlib.metadata.distributions()
            if dist.metadata and dist.metadata["Name"]
        },
    }


if __name__ == "__main__":
    print("\n" + json.dumps(snapshot()))
