"""A wheel made smaller: files dropped, libraries stripped, its RECORD written anew, nothing compressed in it."""

import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from workbook.errors import WorkbookError
from workbook.types.wheelhouse import FileRule

CHUNK = 1 << 20


@dataclass
class Reduction:
    """What one rule took out of a wheel: how many files it met, and their bytes before and after."""

    wheel: str
    rule: FileRule
    files: int = 0
    before: int = 0
    after: int = 0


def repack(wheel: Path, into: Path, rules: Iterable[FileRule]) -> list[Reduction]:
    """Write a wheel of the same name, without what the rules take out of it.

    Its files are stored as they are: a bundle is compressed as a whole, which makes it much smaller.

    Args:
        into: the folder to write it to.
        rules: those of this wheel.

    Raises:
        WorkbookError: a pattern meets no file, so it was written for another version; or `strip` is missing or failed.
    """
    made = [Reduction(wheel.name, rule) for rule in rules]
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(into / wheel.name, "w") as target:
        files = [one for one in source.infolist() if not one.is_dir()]
        _check_rules(wheel.name, made, [one.filename for one in files])
        is_record = re.compile(r"[^/]+\.dist-info/RECORD").fullmatch
        record = next(one for one in files if is_record(one.filename))
        lines = []
        for one in files:
            if one is record:
                continue
            met = next((each for each in made if _meets(one.filename, each.rule)), None)
            if met and _any(one.filename, met.rule.drop):
                size = 0
            else:
                size, digest = _copy(source, target, one, strip=met is not None)
                lines.append((one.filename, digest, size))
            if met:
                met.files, met.before, met.after = met.files + 1, met.before + one.file_size, met.after + size
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*lines, (record.filename, "", "")])
        target.writestr(_entry(record), text.getvalue())
    return made


def _copy(
    source: zipfile.ZipFile, target: zipfile.ZipFile, one: zipfile.ZipInfo, strip: bool
) -> tuple[int, str]:
    """Its size in bytes and its hash, as RECORD has them."""
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(source.open(one))
        if strip:
            library = Path(scratch) / "library"
            with library.open("wb") as out:
                shutil.copyfileobj(stream, out, CHUNK)
            _strip(library, one.filename)
            stream = stack.enter_context(library.open("rb"))
        with target.open(_entry(one), "w", force_zip64=True) as out:
            while chunk := stream.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
    return size, f"sha256={base64.urlsafe_b64encode(digest.digest()).rstrip(b'=').decode()}"


def _entry(one: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Its name, time and permissions: the same wheel and rules give the same bytes."""
    info = zipfile.ZipInfo(one.filename, one.date_time)
    info.external_attr = one.external_attr
    return info


def _strip(library: Path, name: str) -> None:
    try:
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True, capture_output=True)
    except FileNotFoundError:
        raise WorkbookError("There is no `strip` here.", "Install binutils, and run this again.") from None
    except subprocess.CalledProcessError as error:
        raise WorkbookError(f"strip failed on {name}: {error.stderr.decode().strip()}.") from error


def _meets(name: str, rule: FileRule) -> bool:
    return _any(name, (*rule.drop, *rule.strip))


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_rules(wheel: str, made: Iterable[Reduction], names: list[str]) -> None:
    for pattern in (one for each in made for one in (*each.rule.drop, *each.rule.strip)):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise WorkbookError(
                f"{wheel} has no file {pattern}, which a rule of data/wheelhouse names.",
                "See what this version has in its place, and mend the rule.",
            )
