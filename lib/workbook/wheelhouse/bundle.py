"""Make the offline bundle of a stack: wheels chosen, fetched, reduced, packed in parts, with what installs them."""

import json
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from workbook import catalog, wheelhouse
from workbook.errors import UsageError, nearest
from workbook.exclusive import held
from workbook.node.base import NodeConnection
from workbook.paths import LOCKS, ROOT, stacks_dir
from workbook.types import Stack
from workbook.types.wheelhouse import FileRule, WheelhouseRules
from workbook.wheelhouse.left_out import report
from workbook.wheelhouse.parts import digest, pack
from workbook.wheelhouse.pins import Pins, read_freeze, read_lock
from workbook.wheelhouse.reduce import Reduction, repack
from workbook.wheelhouse.resolve import Selection, select
from workbook.wheelhouse.wheels import Target, WheelCache, requires

GB = 1e9
INSTALLER = Path(wheelhouse.__path__[0]) / "install.py"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What a bundle is made for.

    Args:
        python: the node's Python, such as 3.12.
        part_size: the most bytes that a part has.
        have: the node's `pip freeze`; where left out, nothing is taken to be there.
        arch: the node's GPU architecture; where left out, the kernels of all of them stay.
        workbook: also what the workbook's own notebooks need, as a set of its own.
    """

    python: str
    part_size: int
    have: Path | None = None
    arch: str | None = None
    workbook: bool = False


def make(node: NodeConnection, stack: Stack, asked: Asked, out: Path, say: Say, on_step: Say) -> None:
    """Make the bundle in a folder, which appears when it is whole.

    Args:
        node: whose pip fetches the wheels.
        out: must not exist.
        say: called with a sentence for each step.
        on_step: called with a line for each package.

    Raises:
        UsageError: `out` exists, no rules for this stack or architecture, a version that no wheel has, no disk.
        WorkbookError: pip failed, or a rule was written for other versions. Nothing half-made is left.
    """
    rules = catalog.load(WheelhouseRules, stack.name)
    if asked.arch and asked.arch not in rules.left_out_on:
        hint = nearest(asked.arch, rules.left_out_on, f"known: {', '.join(rules.left_out_on)}.")
        raise UsageError(f"No rules reduce stack {stack.name} to {asked.arch!r};", hint)
    target = Target(asked.python)
    lock = read_lock(LOCKS / f"{stack.name}.txt", target.environment)
    have = read_freeze(asked.have) if asked.have else {}
    with _alone(), _half_made(out) as partial:
        _check_disk(rules.disk_reduced_gb if asked.arch and "torch" in have else rules.disk_gb, out, say)
        sets, selection = _choose(node, target, rules, lock, have, asked, say, on_step)
        applied = [rule for rule in rules.files if not rule.arch or asked.arch in rule.arch]
        reductions: list[Reduction] = []
        packed = {}
        for name, wheels in sets.items():
            say(f"Packing {name}: {len(wheels)} wheels.")
            packed[name] = _pack(name, wheels, applied, asked.part_size, partial, reductions, on_step)
            parts = packed[name]["parts"]
            size = sum(part["size"] for part in parts) / 1e6
            say(
                f"{name}: {size:.1f} MB in {len(parts)} parts, {packed[name]['bytes'] / 1e6:.1f} MB unpacked."
            )
        env = dict(rules.env)
        for reduction in reductions:
            env |= reduction.rule.env
        manifest = {
            "stack": stack.name,
            "python": asked.python,
            "arch": asked.arch,
            "env": env,
            "sets": packed,
        }
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
        (partial / "LEFT_OUT.md").write_text(report(stack, lock, selection, reductions))
        shutil.copyfile(INSTALLER, partial / INSTALLER.name)


def _choose(
    node: NodeConnection,
    target: Target,
    rules: WheelhouseRules,
    lock: Pins,
    have: Pins,
    asked: Asked,
    say: Say,
    on_step: Say,
) -> tuple[dict[str, dict[str, Path]], Selection]:
    folder = stacks_dir() / "wheels" / f"cp{target.python.replace('.', '')}"
    cache = WheelCache(node, target, folder)
    selection = Selection()
    left_out = rules.left_out | (rules.left_out_on[asked.arch] if asked.arch else {})

    def fetch(name: str, version: Version) -> Path:
        on_step(f"{len(selection.wheels) + 1}: {name} {version}")
        return cache.fetch(name, version)

    def add(roots: Iterable[Requirement]) -> dict[str, Path]:
        return select(
            roots,
            selection,
            lock=lock,
            have=have,
            left_out=left_out,
            environment=target.environment,
            fetch=fetch,
            requires=requires,
        )

    say(f"Finding out what is needed, and fetching what is not in {folder} yet.")
    sets = {"server": add(Requirement(name) for name in (*rules.roots, *rules.undeclared))}
    if asked.workbook:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        sets["workbook"] = add(Requirement(line) for line in project["dependencies"])
    return sets, selection


def _pack(
    name: str,
    wheels: dict[str, Path],
    rules: Iterable[FileRule],
    part_size: int,
    into: Path,
    reductions: list[Reduction],
    on_step: Say,
) -> dict[str, Any]:
    scratch = into / name
    scratch.mkdir()
    for package, wheel in sorted(wheels.items()):
        on_step(wheel.name)
        reductions += repack(wheel, scratch, [rule for rule in rules if rule.wheel == package])
    files = sorted(scratch.iterdir())
    parts = pack(files, into, name, part_size, on_step)
    manifest = {
        "parts": [asdict(part) for part in parts],
        "bytes": sum(path.stat().st_size for path in files),
        "wheels": [asdict(digest(path)) for path in files],
    }
    shutil.rmtree(scratch)
    return manifest


def _check_disk(needed: float, out: Path, say: Say) -> None:
    """Stop before anything is fetched where a disk has less GB free than is needed."""
    for place in (stacks_dir(), out):
        there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
        free = shutil.disk_usage(there).free / GB
        if free < needed:
            raise UsageError(
                f"{there} has {free:.1f} GB free, and this needs about {needed:.1f} GB.", "Make room."
            )
    say(f"This takes at most about {needed:.1f} GB of disk for wheels and bundle.")


@contextmanager
def _alone() -> Iterator[None]:
    """No other process fetches wheels or writes a bundle meanwhile; the lock ends with this process."""
    folder = stacks_dir() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    with held(
        folder / ".lock", f"Another `workbook wheelhouse` fetches wheels to {folder}.", "Run this after it."
    ):
        yield


@contextmanager
def _half_made(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its name at the end; nothing is left of it otherwise."""
    if out.exists():
        raise UsageError(f"{out} exists;", "remove it, or name another folder with --out.")
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
