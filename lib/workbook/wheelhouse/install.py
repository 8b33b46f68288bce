"""Install this offline bundle: `python3 install.py FOLDER`, with the Python that has torch, on the node.

Checks every part, makes FOLDER an environment that sees what this Python has and puts the bundle's packages before it,
with pip but without an index. Nothing is left of FOLDER where that fails. Needs the standard library and pip only.
"""

import argparse
import compileall
import hashlib
import io
import json
import lzma
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHUNK = 1 << 20


class Refused(Exception):
    """What is wrong, and what to do, in a sentence."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("folder", type=Path, metavar="FOLDER", help="made here; must not exist")
    options.add_argument("--only", metavar="SET", help="one set of the bundle; all of them by default")
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        manifest = read_manifest()
        sets = chosen(manifest, asked.only)
        check_python(manifest)
        for name in sets:
            check_parts(name, manifest["sets"][name]["parts"])
        folder = asked.folder.absolute()
        check_room(folder, sum(manifest["sets"][name]["bytes"] for name in sets))
        install(folder, manifest, sets)
    except Refused as refused:
        sys.exit(f"install.py: {refused}")
    except OSError as error:
        sys.exit(f"install.py: {error.filename or HERE}: {error.strerror or error}. Nothing was installed.")
    except KeyboardInterrupt:
        sys.exit("install.py: interrupted; nothing was installed.")
    say(f"Installed in {time.monotonic() - started:.0f} s.")
    print(f"\nIts Python, which has all that {sys.executable} has:\n  {folder}/bin/python")
    print(f"What its processes want in their environment:\n  . {shlex.quote(str(folder / 'env.sh'))}")
    print(f"The packages alone, for another Python of this version:\n  export PYTHONPATH={site(folder)}")


def read_manifest() -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((HERE / "manifest.json").read_text())
    except ValueError:
        raise Refused(f"{HERE / 'manifest.json'} is not what was made; copy it once more.") from None
    return manifest


def say(text: str) -> None:
    print(text, flush=True)


def chosen(manifest: dict[str, Any], only: str | None) -> list[str]:
    if only and only not in manifest["sets"]:
        raise Refused(f"the bundle has no set {only!r}; it has {', '.join(manifest['sets'])}.")
    return [only] if only else list(manifest["sets"])


def check_python(manifest: dict[str, Any]) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != manifest["python"]:
        raise Refused(f"the bundle is for Python {manifest['python']}, and {sys.executable} is {here}.")
    pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if pip.returncode:
        raise Refused(f"{sys.executable} has no pip; python3-pip of the system, or ensurepip, has it.")


def check_parts(name: str, parts: list[dict[str, Any]]) -> None:
    for part in parts:
        path = HERE / part["file"]
        if not path.is_file():
            raise Refused(f"{path} is missing; copy it from where the bundle was made.")
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
        if path.stat().st_size != part["size"] or digest.hexdigest() != part["sha256"]:
            raise Refused(f"{path} is not what was made (its SHA-256 differs); copy it once more.")
    say(f"{name}: {len(parts)} of {len(parts)} parts have the SHA-256 that they should have.")


def check_room(folder: Path, size: int) -> None:
    if folder.exists():
        raise Refused(f"{folder} exists; remove it, or give another folder.")
    place = next(parent for parent in folder.parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if free < 2 * size:  # the wheels, and what comes out of them
        raise Refused(f"{place} has {free / 1e9:.1f} GB free, and this needs {2 * size / 1e9:.1f} GB.")


def install(folder: Path, manifest: dict[str, Any], sets: list[str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        venv.create(folder, symlinks=True)
        wheels = folder / "wheels"
        for name in sets:
            unpack(manifest["sets"][name], wheels)
        say(f"{len(list(wheels.iterdir()))} wheels unpacked; installing them.")
        run_pip(folder, wheels)
        shutil.rmtree(wheels)
        # On every core, which pip would not; several server processes would each do it at once otherwise.
        warnings.simplefilter("ignore", SyntaxWarning)
        compileall.compile_dir(site(folder), quiet=2, workers=0)
        see_this_python(folder)
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in manifest["env"].items()]
        (folder / "env.sh").write_text("".join(lines))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def unpack(one: dict[str, Any], into: Path) -> None:
    into.mkdir(exist_ok=True)
    expected = {wheel["file"]: wheel["sha256"] for wheel in one["wheels"]}
    joined = io.BufferedReader(Joined([HERE / part["file"] for part in one["parts"]]))
    with joined, lzma.open(joined) as xz, tarfile.open(fileobj=xz, mode="r|") as tar:
        for member in tar:
            source = tar.extractfile(member) if member.name in expected else None
            if source is None:
                raise Refused(f"the bundle holds {member.name!r}, which its manifest does not name.")
            digest = hashlib.sha256()
            with source, (into / member.name).open("wb") as target:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
            if digest.hexdigest() != expected.pop(member.name):
                raise Refused(f"{member.name} in the bundle is not what was packed.")
    if expected:
        raise Refused(f"the bundle lacks {', '.join(expected)}, which its manifest names.")


class Joined(io.RawIOBase):
    """The parts as one stream."""

    def __init__(self, paths: list[Path]) -> None:
        self._chunks = self._read_all(paths)
        self._rest = b""

    @staticmethod
    def _read_all(paths: list[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as stream:
                while chunk := stream.read(CHUNK):
                    yield chunk

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


def run_pip(folder: Path, wheels: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--isolated", "--python", str(folder / "bin" / "python"), "install"]
    how = ["--no-index", "--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check"]
    argv = [*pip, *how, *map(str, sorted(wheels.iterdir()))]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate()
        except BaseException:  # interrupted: pip has a child of its own, which would go on writing
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()  # until neither of them holds the pipe
            raise
    if process.returncode:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise Refused(f"pip failed: {last} Nothing was installed.")


def see_this_python(folder: Path) -> None:
    """Packages of the Python that runs this come after the bundle's; `--system-site-packages` would miss a venv's."""
    seen = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (site(folder) / "zz_node.pth").write_text("".join(lines))


def site(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


if __name__ == "__main__":
    main()
