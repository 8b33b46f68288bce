"""Print the GPUs that this node has and who holds their memory, as one JSON object. Imports no torch.

    python doctor_gpus.py

By NVML where this Python has pynvml (FlashInfer and SGLang both require it), else by nvidia-smi. Memory is GiB. What
cannot be found out is null. No process is touched.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

GIB = 1 << 30
COMMAND_LIMIT_S = 10
P2P_READ, P2P_NVLINK = 0, 2  # pynvml's own name for the first is a tuple, by a stray comma
SMI_GPU = "index,uuid,compute_cap,memory.total,memory.free,driver_version,name"


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


def holder(pid: int, memory_bytes: int | None) -> dict:
    """A process that holds GPU memory; one of another container has no name here."""
    try:
        user = pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        user = None
    memory = None if memory_bytes is None else memory_bytes / GIB
    return {"pid": pid, "name": read(f"/proc/{pid}/comm").strip() or None, "user": user, "memory_gib": memory}


def by_nvml(nvml) -> dict:
    """GPUs and driver as NVML has them."""
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    found = []
    for index, handle in enumerate(handles):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            running = []
        found.append(
            {
                "index": index,
                "uuid": nvml.nvmlDeviceGetUUID(handle),
                "name": nvml.nvmlDeviceGetName(handle),
                "compute_capability": nvml.nvmlDeviceGetCudaComputeCapability(handle),
                "memory_gib": memory.total / GIB,
                "free_gib": memory.free / GIB,
                "holders": [holder(one.pid, one.usedGpuMemory) for one in running],
            }
        )

    def able(pair: tuple[int, int], capability: int) -> bool | None:
        try:
            return nvml.nvmlDeviceGetP2PStatus(handles[pair[0]], handles[pair[1]], capability) == 0
        except nvml.NVMLError:
            return None

    return {
        "gpus": found,
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "driver_cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "peers": [
            {"gpus": pair, "read": able(pair, P2P_READ), "nvlink": able(pair, P2P_NVLINK)}
            for pair in combinations(range(len(handles)), 2)
        ],
    }


def by_smi() -> dict:
    """The same by nvidia-smi, which tells nothing of peers in a form to rely on."""
    if shutil.which("nvidia-smi") is None:
        return {"gpus": [], "gpu_error": "there is no nvidia-smi, and this Python has no pynvml"}
    status, text = run(["nvidia-smi", f"--query-gpu={SMI_GPU}", "--format=csv,noheader,nounits"])
    rows = [row for line in text.splitlines() if len(row := line.split(", ", 6)) == 7]
    if status != 0 or not rows:
        return {"gpus": [], "gpu_error": text.strip() or f"nvidia-smi ended with exit status {status}"}
    _, apps = run(
        ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"]
    )
    running = [app for line in apps.splitlines() if len(app := line.split(", ")) == 3 and app[1].isdigit()]
    cuda = re.search(r"CUDA (?:\w+ )?Version:\s*(\d+\.\d+)", run(["nvidia-smi"])[1])
    found = [
        {
            "index": int(index),
            "uuid": uuid,
            "name": name,
            "compute_capability": [int(part) for part in capability.split(".")],
            "memory_gib": float(total) / 1024,
            "free_gib": float(free) / 1024,
            "holders": [
                holder(int(pid), int(used) << 20 if used.isdigit() else None)
                for owner, pid, used in running
                if owner == uuid
            ],
        }
        for index, uuid, capability, total, free, _, name in rows
    ]
    return {"gpus": found, "driver": rows[0][5], "driver_cuda": cuda and cuda[1]}


def visible(gpus: list[dict], chosen: str | None) -> set[int]:
    """Which of them a CUDA program sees, as it reads CUDA_VISIBLE_DEVICES: up to the first word that names none."""
    if chosen is None:
        return {gpu["index"] for gpu in gpus}
    seen = set()
    for word in (word.strip() for word in chosen.split(",")):
        named = [
            gpu["index"]
            for gpu in gpus
            if word and (word == str(gpu["index"]) or gpu["uuid"].startswith(word))
        ]
        if not named:
            break
        seen.add(named[0])
    return seen


def graphics() -> dict:
    try:
        import pynvml
    except ImportError:
        found = by_smi()
    else:
        try:
            found = by_nvml(pynvml)
        except pynvml.NVMLError as error:  # no driver, one that was replaced under way, a GPU that is lost
            found = {"gpus": [], "gpu_error": str(error)}
    seen = visible(found["gpus"], os.environ.get("CUDA_VISIBLE_DEVICES"))
    for gpu in found["gpus"]:
        gpu["visible"] = gpu["index"] in seen
    on_bus = [
        device
        for device in Path("/sys/bus/pci/devices").glob("*")
        if read(device / "vendor").startswith("0x10de") and read(device / "class").startswith("0x03")
    ]
    return {
        "driver": None,
        "driver_cuda": None,
        "gpu_error": None,
        "peers": [],
        **found,
        "gpus_on_bus": len(on_bus),
    }


if __name__ == "__main__":
    print("\n" + json.dumps(graphics()))
