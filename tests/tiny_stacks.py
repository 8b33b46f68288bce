"""A small world of stacks: descriptions, locks and wheels that lie in a folder, so that pip asks no index."""

import subprocess
import sys
import zipfile

from workbook import catalog, stacks
from workbook.types import Stack

STACKS = {"tiny": ("1.0", "pebble==1.0"), "other": ("1.0", "pebble==1.0"), "third": ("2.0", "pebble==2.0")}
# The command, with the descriptions and locks of this test in place of the checkout's.
COMMAND = """
import sys
from pathlib import Path
from workbook import catalog, stacks
catalog.DATA, stacks.LOCKS = Path(sys.argv[1]) / "data", Path(sys.argv[1]) / "locks"
sys.argv = ["workbook", *sys.argv[2:]]
from workbook.cli import main
main()
"""


def wheel(folder, name, version, code):
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as out:
        out.writestr(f"{name}.py", code)
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")


def description(name, flashinfer, **disk):
    lines = [
        f"name: {name}",
        'torch: "1.0"',
        f'flashinfer: "{flashinfer}"',
        'sglang: "1.0"',
        "purpose: a test",
    ]
    return "\n".join(lines + [f"{kind}: {use}" for kind, use in disk.items()])


def make_world(tmp_path, monkeypatch):
    """Three stacks with their locks, wheels for them, and an empty stacks folder."""
    wheels, data, locks = tmp_path / "wheels", tmp_path / "data" / "stacks", tmp_path / "locks"
    for folder in (wheels, data, locks, tmp_path / "data" / "nodes"):
        folder.mkdir(parents=True)
    (tmp_path / "data" / "nodes" / "local.yaml").write_text("name: local")
    (data / "embedded.yaml").write_text(description("embedded", "1.0"))
    (locks / "embedded.txt").write_text("pebble==1.0\n")
    for name, (flashinfer, pin) in STACKS.items():
        (data / f"{name}.yaml").write_text(description(name, flashinfer))
        kernels = f"flashinfer-cubin=={flashinfer}"  # there is no such wheel: asking for it would fail
        (locks / f"{name}.txt").write_text(f"# a lock\nFlashInfer_Python=={flashinfer}\n{kernels}\n{pin}\n")
    for version in ("1.0", "2.0"):
        wheel(wheels, "pebble", version, f"version = '{version}'")
        wheel(wheels, "flashinfer_python", version, f"version = '{version}'")
    monkeypatch.setattr(catalog, "DATA", tmp_path / "data")
    monkeypatch.setattr(stacks, "LOCKS", locks)
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "stacks"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


def stack(name):
    return catalog.load(Stack, name)


def made(node, name, **options):
    said = []
    stacks.create(node, stack(name), say=said.append, **options)
    return "\n".join(said)


def lies_in(world):
    """What a reader finds in the stacks folder; the log and the lock file are not stacks."""
    folder = world / "stacks"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []


def workbook(world, *args):
    return subprocess.run(
        [sys.executable, "-c", COMMAND, str(world), *args], capture_output=True, text=True, check=False
    )
