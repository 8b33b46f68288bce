"""Create and remove stacks: an environment from a lock; beside it FlashInfer and SGLang's sources, a folder a version.

An environment is built in its place, since its scripts name their folder, and marked when it is complete.
The other folders are built beside their place and renamed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workbook import catalog
from workbook.disk import Kind, check_disk, size_gb
from workbook.errors import UsageError
from workbook.exclusive import held
from workbook.folders import discard, half_made, is_there, made_beside, own, remove_tree
from workbook.node.base import NodeConnection
from workbook.node.pip import pip_install, run_logged
from workbook.node.probe import READY, flashinfer_dir, sglang_dir, stack_dir
from workbook.paths import LOCKS, stacks_dir
from workbook.sources import Kernels, pinned_kernels, put_sources
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


def version_folders(package: Literal["flashinfer-python", "sglang"]) -> dict[str, Path]:
    """Version -> folder of every version of it that lies in the stacks folder, oldest first."""
    found = {}
    for folder in stacks_dir().glob(f"{package}-*"):
        with suppress(InvalidVersion):  # not whole yet: it ends in .partial
            found[Version(folder.name.removeprefix(f"{package}-"))] = folder
    return {str(version): found[version] for version in sorted(found)}


def create(
    node: NodeConnection,
    stack: Stack,
    *,
    minimal: bool = False,
    sources: bool = False,
    flashinfer: Iterable[str] = (),
    say: Say = lambda line: None,
    on_package: Say = lambda line: None,
) -> None:
    """Make the stack's environment, unless it is the node's own, and put its FlashInfer beside it.

    Args:
        minimal: only what a trace needs, no server.
        sources: SGLang's sources beside its FlashInfer, all that a forecast needs, and no environment.
        flashinfer: more versions of FlashInfer to put there.
        say: called with a sentence for each step.
        on_package: called with a line for each package that pip turns to.

    Raises:
        UsageError: no such version, too little disk, no kernels whose Python could be had, or the stack is there with
            less than is asked for.
        WorkbookError: pip failed, or another process works in the stacks folder. Nothing half-made is left.
    """
    versions = dict.fromkeys([stack.flashinfer, *map(checked_version, flashinfer)])
    kind: Kind = "minimal" if minimal else "full"
    if sources and minimal:
        raise UsageError("--sources makes no environment, full or minimal;", "leave out --minimal.")
    kernels = _kernels_of(stack) if sources else None
    with _alone():
        folders = {version: own(_flashinfer(node, stack, version)) for version in versions}
        missing = {version: folder for version, folder in folders.items() if not folder.is_dir()}
        make = not sources and _is_to_be_made(node, stack, kind, say)
        for version in versions:
            if version not in missing:
                say(f"FlashInfer {version} is here already, in {folders[version]}.")
        sglang = own(sglang_dir(node, stack))
        if kernels and sglang.is_dir():
            say(f"SGLang {stack.sglang}'s sources are here already, in {sglang}.")
            kernels = None
        check_disk(stack, kind if make else None, missing, stack.sglang if kernels else None, say)
        for version, folder in missing.items():  # first, since a version that does not exist shows at once
            say(f"Putting FlashInfer {version} in a folder of its own.")
            _put_flashinfer(node, version, folder, on_package)
        if kernels:
            say(f"Putting SGLang {stack.sglang}'s sources in a folder, with the Python of {kernels}.")
            put_sources(node, stack, kernels, sglang, _log(), on_package)
            say(f"SGLang {stack.sglang}'s sources are ready: {size_gb(sglang):.2f} GB in {sglang}.")
        if make:
            say(f"Making the environment of stack {stack.name}, {kind}.")
            _make_environment(node, stack, kind, on_package)
            say(
                f"Stack {stack.name} is ready: {size_gb(stack_dir(node, stack)):.2f} GB in {stack_dir(node, stack)}."
            )


def remove(node: NodeConnection, stack: Stack, *, say: Say = lambda line: None) -> None:
    """Remove the stack's environment with its caches, and its SGLang and FlashInfer unless another stack has them.

    Raises:
        UsageError: it is the node's own environment, or neither it nor its SGLang's sources are there.
    """
    if stack.name == node.node.stack:
        raise UsageError(
            f"Stack {stack.name} is the workbook's own environment; it is not removed from here.",
            "`make clean` removes it.",
        )
    others = [catalog.load(Stack, name) for name in catalog.names(Stack) if name != stack.name]
    sharing_sglang = [one.name for one in others if one.sglang == stack.sglang and pinned_kernels(_lock(one))]
    sharing_flashinfer = [one.name for one in others if one.flashinfer == stack.flashinfer]
    folder, sglang = stack_dir(node, stack), sglang_dir(node, stack)
    if not is_there(folder) and (sharing_sglang or not is_there(sglang)):
        raise UsageError(f"Stack {stack.name} is not here (looked in {folder}).")
    with _alone():
        if is_there(folder):
            caches = list((stacks_dir() / "caches").glob(f"{stack.name}-sglang-*"))
            say(f"Stack {stack.name} is removed: {sum(map(discard, [folder, *caches])):.2f} GB came free.")
        for one, sharing in ((sglang, sharing_sglang), (flashinfer_dir(node, stack), sharing_flashinfer)):
            if sharing and one.exists():
                say(f"{one.name} stays where it is, since stack {sharing[0]} has it too.")
            elif is_there(one):
                say(f"{one.name} is removed: {discard(one):.2f} GB came free.")


def remove_flashinfer(
    node: NodeConnection, stack: Stack, versions: Iterable[str], *, say: Say = lambda line: None
) -> None:
    """Remove the folders of these versions of FlashInfer, whoever names them.

    Raises:
        UsageError: a version is none, or not there; nothing is removed then.
    """
    folders = [_flashinfer(node, stack, checked_version(version)) for version in versions]
    for folder in folders:
        if not own(folder).is_dir():
            raise UsageError(f"{folder.name} is not here (looked in {stacks_dir()}).")
    with _alone():
        for folder in dict.fromkeys(folders):
            say(f"{folder.name} is removed: {discard(folder):.2f} GB came free.")


def _kernels_of(stack: Stack) -> Kernels:
    if kernels := pinned_kernels(_lock(stack)):
        return kernels
    raise UsageError(
        f"Stack {stack.name} has no kernels in its lock, since its SGLang runs on the CPU:",
        "--sources is for a stack with sgl-kernel or sglang-kernel, such as `current`.",
    )


def _flashinfer(node: NodeConnection, stack: Stack, version: str) -> Path:
    return flashinfer_dir(node, stack.model_copy(update={"flashinfer": version}))


def _is_to_be_made(node: NodeConnection, stack: Stack, kind: Kind, say: Say) -> bool:
    if stack.name == node.node.stack:
        if kind == "minimal":
            raise UsageError(f"Stack {stack.name} is the workbook's own environment;", "leave out --minimal.")
        say(f"Stack {stack.name} is the workbook's own environment; none is made.")
        return False
    folder = stack_dir(node, stack)
    there = created(node, stack) if own(folder).exists() else None
    if there == "minimal" and kind == "full":
        raise UsageError(
            f"Stack {stack.name} is here, but minimal.", f"Run first: workbook stack remove {stack.name}"
        )
    if there:
        say(f"Stack {stack.name} is here already, {there}, in {folder}.")
    return there is None


def _put_flashinfer(node: NodeConnection, version: str, folder: Path, on_package: Say) -> None:
    with made_beside(folder) as beside:
        what = ["--no-deps", f"--only-binary={PACKAGE}", "--target", str(beside / "site")]
        pip_install(node, [*what, f"{PACKAGE}=={version}"], beside / "tmp", _log(), on_package)


def _make_environment(node: NodeConnection, stack: Stack, kind: Kind, on_package: Say) -> None:
    folder, lock = stack_dir(node, stack), _lock(stack)
    scratch = folder / "tmp"
    with half_made(folder):
        run_logged(node, [node.python, "-I", "-m", "venv", "--without-pip", str(folder)], log=_log())
        scratch.mkdir()
        if kind == "minimal":
            what = ["--constraint", str(lock), *MINIMAL]
        else:
            wanted = scratch / "requirements.txt"
            wanted.write_text("\n".join(_without_flashinfer(lock)))
            what = ["--no-deps", "--requirement", str(wanted)]
        pip_install(node, what, scratch, _log(), on_package, into=str(folder / "bin" / "python"))
        remove_tree(scratch)
        marker = folder / f"{READY}.partial"
        marker.write_text(f"{kind}\n")
        marker.rename(folder / READY)


def _without_flashinfer(lock: Path) -> list[str]:
    """A lock's lines without FlashInfer and its kernels, which take no other version of FlashInfer than their own."""
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return [line for line in lines if not canonicalize_name(Requirement(line).name).startswith("flashinfer-")]


def _lock(stack: Stack) -> Path:
    return LOCKS / f"{stack.name}.txt"


def _log() -> Path:
    """What pip said, newest command only; kept for when it fails."""
    return stacks_dir() / "create.log"


@contextmanager
def _alone() -> Iterator[None]:
    """No other process makes or removes stacks meanwhile; the lock ends with this process."""
    stacks_dir().mkdir(parents=True, exist_ok=True)
    busy = f"Another `workbook stack` is at work in {stacks_dir()}."
    with held(stacks_dir() / ".lock", busy, "Run this when it is done."):
        yield
