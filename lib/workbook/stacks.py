"""Create and remove stacks: an environment from a lock, and FlashInfer in a folder a version beside it.

An environment is built in its place, since its scripts name their folder, and marked when it is complete.
A FlashInfer folder is built beside its place and renamed.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbook import catalog
from workbook.disk import Kind, check_disk, size_gb
from workbook.errors import UsageError
from workbook.exclusive import held
from workbook.node.base import NodeConnection
from workbook.node.pip import pip_install, run_logged
from workbook.node.probe import READY, flashinfer_dir, stack_dir
from workbook.paths import LOCKS, stacks_dir
from workbook.types import Stack

PACKAGE = "flashinfer-python"
# torch, and what FlashInfer's Python part imports
MINIMAL = (
    "torch", "apache-tvm-ffi", "click", "einops", "ninja", "numpy", "nvidia-ml-py", "packaging", "requests",
    "tabulate", "tqdm",
)  # fmt: skip

Say = Callable[[str], None]


def checked_version(text: str) -> str:
    """A version of FlashInfer in its normal form.

    Raises:
        UsageError: it is none.
    """
    try:
        return str(Version(text))
    except InvalidVersion:
        raise UsageError(f"{text!r} is not a version of FlashInfer.", "For example: 0.6.3") from None


def created(node: NodeConnection, stack: Stack) -> Kind | None:
    """What the stack's environment was made as; None where it was not made, or not to its end."""
    marker = stack_dir(node, stack) / READY
    if not marker.is_file():
        return None
    return "minimal" if marker.read_text().strip() == "minimal" else "full"


def flashinfer_folders() -> dict[str, Path]:
    """Version -> folder of every FlashInfer that lies in the stacks folder, oldest first."""
    found = {}
    for folder in stacks_dir().glob(f"{PACKAGE}-*"):
        with suppress(InvalidVersion):  # not whole yet: it ends in .partial
            found[Version(folder.name.removeprefix(f"{PACKAGE}-"))] = folder
    return {str(version): found[version] for version in sorted(found)}


def create(
    node: NodeConnection,
    stack: Stack,
    *,
    minimal: bool = False,
    flashinfer: Iterable[str] = (),
    say: Say = lambda line: None,
    on_package: Say = lambda line: None,
) -> None:
    """Make the stack's environment, unless it is the node's own, and put its FlashInfer beside it.

    Args:
        minimal: only what a trace needs, no server.
        flashinfer: more versions of FlashInfer to put there.
        say: called with a sentence for each step.
        on_package: called with a line for each package that pip turns to.

    Raises:
        UsageError: no such version, too little disk, or the stack is there with less than is asked for.
        WorkbookError: pip failed, or another process works in the stacks folder. Nothing half-made is left.
    """
    versions = dict.fromkeys([stack.flashinfer, *map(checked_version, flashinfer)])
    kind: Kind = "minimal" if minimal else "full"
    with _alone():
        folders = {version: _place(_flashinfer(node, stack, version)) for version in versions}
        missing = {version: folder for version, folder in folders.items() if not folder.is_dir()}
        make = _is_to_be_made(node, stack, kind, say)
        for version in versions:
            if version not in missing:
                say(f"FlashInfer {version} is here already, in {folders[version]}.")
        check_disk(stack, kind if make else None, missing, say)
        for version, folder in missing.items():  # first, since a version that does not exist shows at once
            say(f"Putting FlashInfer {version} in a folder of its own.")
            _put_flashinfer(node, version, folder, on_package)
        if make:
            say(f"Making the environment of stack {stack.name}, {kind}.")
            _make_environment(node, stack, kind, on_package)
            say(
                f"Stack {stack.name} is ready: {size_gb(stack_dir(node, stack)):.2f} GB in {stack_dir(node, stack)}."
            )


def remove(node: NodeConnection, stack: Stack, *, say: Say = lambda line: None) -> None:
    """Remove the stack's environment, and its FlashInfer unless another stack names it.

    Raises:
        UsageError: it is the node's own environment, or not there.
    """
    if stack.name == node.node.stack:
        raise UsageError(
            f"Stack {stack.name} is the workbook's own environment; it is not removed from here.",
            "`make clean` removes it.",
        )
    folder = stack_dir(node, stack)
    if not any(_place(one).exists() for one in (folder, _partial(folder))):
        raise UsageError(f"Stack {stack.name} is not here (looked in {folder}).")
    others = [catalog.load(Stack, name) for name in catalog.names(Stack) if name != stack.name]
    keep = [one.name for one in others if one.flashinfer == stack.flashinfer]
    with _alone():
        say(f"Stack {stack.name} is removed: {_discard(folder):.2f} GB came free.")
        folder = flashinfer_dir(node, stack)
        if keep:
            say(f"{folder.name} stays where it is, since stack {keep[0]} has it too.")
        elif _place(folder).exists():
            say(f"{folder.name} is removed: {_discard(folder):.2f} GB came free.")


def remove_flashinfer(
    node: NodeConnection, stack: Stack, versions: Iterable[str], *, say: Say = lambda line: None
) -> None:
    """Remove the folders of these versions of FlashInfer, whoever names them.

    Raises:
        UsageError: a version is none, or not there; nothing is removed then.
    """
    folders = [_flashinfer(node, stack, checked_version(version)) for version in versions]
    for folder in folders:
        if not _place(folder).is_dir():
            raise UsageError(f"{folder.name} is not here (looked in {stacks_dir()}).")
    with _alone():
        for folder in dict.fromkeys(folders):
            say(f"{folder.name} is removed: {_discard(folder):.2f} GB came free.")


def _flashinfer(node: NodeConnection, stack: Stack, version: str) -> Path:
    return flashinfer_dir(node, stack.model_copy(update={"flashinfer": version}))


def _is_to_be_made(node: NodeConnection, stack: Stack, kind: Kind, say: Say) -> bool:
    if stack.name == node.node.stack:
        if kind == "minimal":
            raise UsageError(f"Stack {stack.name} is the workbook's own environment;", "leave out --minimal.")
        say(f"Stack {stack.name} is the workbook's own environment; none is made.")
        return False
    folder = stack_dir(node, stack)
    there = created(node, stack) if _place(folder).exists() else None
    if there == "minimal" and kind == "full":
        raise UsageError(
            f"Stack {stack.name} is here, but minimal.", f"Run first: workbook stack remove {stack.name}"
        )
    if there:
        say(f"Stack {stack.name} is here already, {there}, in {folder}.")
    return there is None


def _put_flashinfer(node: NodeConnection, version: str, folder: Path, on_package: Say) -> None:
    partial = _partial(folder)
    what = [
        "--no-deps",
        f"--only-binary={PACKAGE}",
        "--target",
        str(partial / "site"),
        f"{PACKAGE}=={version}",
    ]
    with _half_made(partial):
        pip_install(node, what, partial / "tmp", _log(), on_package)
        (partial / "site").rename(folder)
    _remove_tree(partial)


def _make_environment(node: NodeConnection, stack: Stack, kind: Kind, on_package: Say) -> None:
    folder, lock = stack_dir(node, stack), LOCKS / f"{stack.name}.txt"
    scratch = folder / "tmp"
    with _half_made(folder):
        run_logged(node, [node.python, "-I", "-m", "venv", "--without-pip", str(folder)], log=_log())
        scratch.mkdir()
        if kind == "minimal":
            what = ["--constraint", str(lock), *MINIMAL]
        else:
            wanted = scratch / "requirements.txt"
            wanted.write_text("\n".join(_without_flashinfer(lock)))
            what = ["--no-deps", "--requirement", str(wanted)]
        pip_install(node, what, scratch, _log(), on_package, into=str(folder / "bin" / "python"))
        _remove_tree(scratch)
        marker = folder / f"{READY}.partial"
        marker.write_text(f"{kind}\n")
        marker.rename(folder / READY)


def _without_flashinfer(lock: Path) -> list[str]:
    """A lock's lines without FlashInfer and its kernels, which take no other version of FlashInfer than their own."""
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return [line for line in lines if not canonicalize_name(Requirement(line).name).startswith("flashinfer-")]


def _log() -> Path:
    """What pip said, newest command only; kept for when it fails."""
    return stacks_dir() / "create.log"


@contextmanager
def _half_made(folder: Path) -> Iterator[None]:
    """A new folder to build in; nothing is left of it when that fails or is interrupted."""
    _discard(folder)
    folder.mkdir()
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _alone() -> Iterator[None]:
    """No other process makes or removes stacks meanwhile; the lock ends with this process."""
    stacks_dir().mkdir(parents=True, exist_ok=True)
    busy = f"Another `workbook stack` is at work in {stacks_dir()}."
    with held(stacks_dir() / ".lock", busy, "Run this when it is done."):
        yield


def _place(folder: Path) -> Path:
    """The folder, if it is none that a link leads to: what a link leads to is not the workbook's."""
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link to somewhere else.", "Remove the link, and run this again.")
    return folder


def _discard(folder: Path) -> float:
    """Remove a folder, which looks incomplete from the first moment on; the GB that came free."""
    partial = _partial(folder)
    freed = size_gb(folder) + size_gb(partial)  # one is left there where a removal was interrupted
    _remove_tree(partial)
    if _place(folder).exists():
        folder.rename(partial)
        _remove_tree(partial)
    return freed


def _partial(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.partial")


def _remove_tree(folder: Path) -> None:
    if _place(folder).exists():
        shutil.rmtree(folder)
