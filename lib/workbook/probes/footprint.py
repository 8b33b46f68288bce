"""Print what a server takes of this node, as one JSON object: its port, its processes, GPU memory in use.

    python -I -S footprint.py PORT NAME=VALUE

Processes are those of this user that have the variable in their environment. GPU memory is MiB by nvidia-smi's index,
empty where it does not answer. Standard library only; no process is touched.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

QUERY = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
LIMIT_S = 20


def port_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended do not count
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            return False
    return True


def processes(variable: bytes) -> list[str]:
    """Process id and name of each process that has the variable."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if variable in folder.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(f"{folder.name} {folder.joinpath('comm').read_text().strip()}")
            except OSError:  # it ended, or is someone else's
                continue
    return found


def gpu_memory() -> dict[str, int]:
    """MiB in use on each GPU."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(",") for line in done.stdout.splitlines())
    return {row[0].strip(): int(row[1]) for row in rows if len(row) == 2 and row[1].strip().isdigit()}


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "port_free": port_free(int(sys.argv[1])),
                "processes": processes(sys.argv[2].encode()),
                "gpu_mib": gpu_memory(),
            }
        )
    )
