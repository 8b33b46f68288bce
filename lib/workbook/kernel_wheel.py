"""What of SGLang's kernel wheel runs without a GPU: its Python, and its operators' schemas, read from its libraries."""

import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from workbook.errors import WorkbookError

PACKAGE = "sgl_kernel"
PYTHON = (PACKAGE, "triton_kernels")
# 1 GB of attention kernels; attention is where a piece ends, so no forecast looks into it
UNREAD = "flash_ops"
CHUNK = 1 << 20
# Bytes. Schemas have up to 528, spaces made single; source code in a library is one long string.
LONGEST = 1 << 12

# As much of the grammar of torch's own parser as kernels use; what this matches, that one accepts.
_NAME = r"[A-Za-z_]\w*"
_KIND = "(?:Tensor|int|SymInt|float|bool|str|Scalar|ScalarType|Generator|Device|Layout|MemoryFormat)"
_TYPE = rf"{_KIND}!? ?\??(?:\[\])?"
_PLAIN = rf"{_TYPE} {_NAME}"
_DEFAULTED = "|".join((
    rf"{_KIND}!? ?\? {_NAME} ?= ?None",
    rf"(?:int|SymInt) {_NAME} ?= ?-?\d{{1,9}}",
    rf"float {_NAME} ?= ?-?\d{{1,9}}(?:\.\d{{1,20}})?(?:e-?\d\d?)?",
    rf"bool {_NAME} ?= ?(?:True|False)",
))  # fmt: skip
_SEVERAL = "(?:{0})(?: ?, ?(?:{0}))*"
_PLAINS, _DEFAULTS, _TYPES = (_SEVERAL.format(one) for one in (_PLAIN, _DEFAULTED, _TYPE))
_ARGUMENTS = rf"{_PLAINS}(?: ?, ?{_DEFAULTS})?|{_DEFAULTS}"
_RETURNS = rf"{_TYPE}|\( ?(?:{_TYPES})? ?\)"
SCHEMA = re.compile(rf"{_NAME}(?:\.[a-z]\w*)?\( ?(?:{_ARGUMENTS})? ?\) ?-> ?(?:{_RETURNS})", re.ASCII)
_ARROW = re.compile(rb"\) ?-> ?")


def unpack_python(wheel: Path, into: Path) -> None:
    """Put the Python files of the wheel's packages there, without what is only compiled."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and name.partition("/")[0] in PYTHON:
                archive.extract(name, into)


def operator_schemas(wheel: Path, on_library: Callable[[str], None] = lambda name: None) -> list[str]:
    """The schemas of the operators that the wheel's libraries register, sorted.

    Args:
        on_library: called with the name of each library that is read.

    Raises:
        WorkbookError: there is none in it.
    """
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(f"{PACKAGE}/") and name.endswith(".so") and UNREAD not in name:
                on_library(name)
                with archive.open(name) as library:
                    found.update(read_schemas(library))
    if not found:
        raise WorkbookError(f"{wheel.name} has no operator schemas in its libraries.")
    return sorted(found)


def read_schemas(library: IO[bytes]) -> Iterator[str]:
    """Every C string of a library that is an operator's schema, spaces made single; its bytes may be anything."""
    rest = b""
    while chunk := library.read(CHUNK):
        strings, _end, rest = (rest + chunk).rpartition(b"\0")
        for arrow in _ARROW.finditer(strings):
            start, stop = strings.rfind(b"\0", 0, arrow.start()) + 1, strings.find(b"\0", arrow.end())
            text = strings[start : stop if stop >= 0 else None]
            if len(text) > LONGEST:
                continue
            schema = " ".join(text.decode("ascii", "replace").split())
            if SCHEMA.fullmatch(schema):
                yield schema
