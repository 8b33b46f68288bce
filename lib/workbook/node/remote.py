"""Files, folders and ports of a node, and the packing of files, which both ends share.

The text of this file is sent to the node and run by its Python, as `remote.py MARK OPERATION [ARG...]`: standard
library only, Python 3.10 or later. The answer is a line of standard error: the mark and a JSON object.
"""

import io
import json
import os
import random
import select
import shutil
import signal
import socket
import stat
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

IDLE_S = 60  # without a byte, either way, a transfer is given up
LIMIT_S = 60
CHUNK = 1 << 18  # bytes
PORTS = range(20000, 32000)
CONTENT, END = "content", "end"  # the entries of an archive; without the second it was cut off


class Stream(io.RawIOBase):
    """A file descriptor as tarfile reads or writes it, that waits no longer than `IDLE_S` for the other end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)

    def read(self, size: int = CHUNK) -> bytes:
        if not select.select([self.descriptor], [], [], IDLE_S)[0]:
            raise TimeoutError(f"nothing came for {IDLE_S} s")
        return os.read(self.descriptor, size)

    def write(self, data: Any) -> int:
        left = memoryview(data)
        while left:
            if not select.select([], [self.descriptor], [], IDLE_S)[1]:
                raise TimeoutError(f"nothing was taken for {IDLE_S} s")
            left = left[os.write(self.descriptor, left) :]
        return len(data)


def pack(source: str, stream: Stream) -> None:
    """Write a file or a folder as an archive; what links lead to is copied, as `shutil.copytree` does."""
    with tarfile.open(
        mode="w|", fileobj=stream, bufsize=CHUNK, dereference=True, encoding="utf-8"
    ) as archive:
        archive.add(source, CONTENT)
        archive.addfile(tarfile.TarInfo(END))


def unpack(stream: Stream, target: str, keep: bool = False) -> None:
    """Read an archive to its end beside the target, then rename: the target is whole, or as it was.

    Args:
        keep: a target that is there already stays.

    Raises:
        OSError, tarfile.TarError, EOFError: it cannot be written, or was cut off.
    """
    there = Path(target)
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".workbook-", dir=there.parent, ignore_cleanup_errors=True
    ) as folder:
        beside = Path(folder)
        with tarfile.open(mode="r|", fileobj=stream, bufsize=CHUNK, encoding="utf-8") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in archive:
                archive.extract(member, beside)
        if not (beside / END).exists():
            raise EOFError("it was cut off")
        if keep and there.exists():
            return
        if there.exists() and (there.is_dir() or (beside / CONTENT).is_dir()):
            there.rename(beside / "before")  # nothing is renamed over a folder
        (beside / CONTENT).rename(there)


def prepare(work: str) -> dict[str, str]:
    """Make the work folder, for this user alone; where it lies, and what the node's environment says.

    Raises:
        OSError: it cannot be made or written to, or others can write to it.
    """
    folder = Path(work).expanduser()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(f"others can write to it ({stat.filemode(found.st_mode)})")
    tempfile.TemporaryFile(dir=folder).close()
    return {
        "home": str(Path.home()),
        "work": str(folder),
        "pythonpath": os.environ.get("PYTHONPATH", ""),
    }


def exists(path: str) -> bool:
    return Path(path).exists()


def free_port() -> int:
    """A port that nothing listens on.

    Below the ports that Linux gives to outgoing connections, and with room above: SGLang 0.5.12 takes the port 10,000
    higher for gRPC.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as listener, suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def make_scratch(parent: str) -> str:
    """A new folder that only this user can read."""
    Path(parent).mkdir(exist_ok=True)
    return tempfile.mkdtemp(dir=parent)


def remove_scratch(folder: str) -> None:
    shutil.rmtree(folder)


def end_tagged(tag: str) -> None:
    """Kill every process that has the tag in its environment, and return when none of them is left."""
    while left := [one for one in Path("/proc").iterdir() if one.name.isdigit() and _has(one, tag)]:
        for pid in (int(one.name) for one in left):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _has(process: Path, tag: str) -> bool:
    try:
        return tag.encode() in (process / "environ").read_bytes()  # empty for a zombie
    except OSError:  # it ended, or is someone else's
        return False


OPERATIONS: dict[str, Any] = {
    "prepare": prepare,
    "exists": exists,
    "free_port": free_port,
    "make_scratch": make_scratch,
    "remove_scratch": remove_scratch,
    "end_tagged": end_tagged,
    "pack": lambda source: pack(source, Stream(1)),
    "unpack": lambda target, keep: unpack(Stream(0), target, keep == "keep"),
}


def main(mark: str, operation: str, *args: str) -> None:
    if operation not in ("pack", "unpack"):
        signal.alarm(LIMIT_S)  # a file system that hangs
    try:
        answer = {"value": OPERATIONS[operation](*args)}
    except (OSError, tarfile.TarError, EOFError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        answer = {"error": f"{said or error}"}
    os.write(2, f"{mark} {json.dumps(answer)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
