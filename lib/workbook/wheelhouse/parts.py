"""Files packed into one tar.xz that lies in parts of a given size; `cat NAME.* | tar xJ` unpacks it too."""

import hashlib
import io
import lzma
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The dictionary holds 64 MiB, so that libraries which are alike are found to be; it is what unpacking takes in memory.
FILTERS: list[dict[str, Any]] = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 9}]
CHUNK = 1 << 20


@dataclass(frozen=True)
class Part:
    """A file of a bundle and its hash; size in bytes."""

    file: str
    size: int
    sha256: str


def digest(path: Path) -> Part:
    """A file with its hash."""
    with path.open("rb") as stream:
        return Part(path.name, path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def pack(
    files: Iterable[Path], into: Path, name: str, part_size: int, on_file: Callable[[str], None]
) -> list[Part]:
    """Write `NAME.tar.xz.000` and so on.

    Args:
        files: what to pack, in this order; a folder in it is not kept.
        into: the folder to write the parts to.
        part_size: the most bytes that one has.
        on_file: called with each file's name when it is packed.
    """
    splitter = Splitter(into / f"{name}.tar.xz", part_size)
    with (
        io.BufferedWriter(splitter) as out,
        lzma.open(out, "wb", filters=FILTERS) as xz,
        tarfile.open(fileobj=xz, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in files:
            info = tar.gettarinfo(path, arcname=path.name)
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            with path.open("rb") as stream:
                tar.addfile(info, stream)
            on_file(path.name)
    return [digest(path) for path in splitter.paths]


class Splitter(io.RawIOBase):
    """A stream that goes on in the next file once one is full.

    Args:
        path: what a number is appended to.
        size: the most bytes that a file takes; positive.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._room = 0
        self._out: io.BufferedWriter | None = None
        self.paths: list[Path] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for piece in self._pieces(view):
            assert self._out is not None
            self._out.write(piece)
        return len(view)

    def _pieces(self, view: memoryview) -> Iterator[memoryview]:
        while view:
            if not self._room:
                self._next()
            taken = min(self._room, len(view))
            yield view[:taken]
            self._room -= taken
            view = view[taken:]

    def _next(self) -> None:
        if self._out:
            self._out.close()
        self.paths.append(self._path.with_name(f"{self._path.name}.{len(self.paths):03}"))
        self._out, self._room = self.paths[-1].open("wb"), self._size

    def close(self) -> None:
        if self._out:
            self._out.close()
        super().close()
