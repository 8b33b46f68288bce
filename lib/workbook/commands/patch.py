"""`workbook exec` and `workbook patch`: the overlay in place, and what it would change."""

import os
import signal
from typing import Annotated, NoReturn

import typer

from workbook import catalog
from workbook.boundary.diffs import patch_diffs
from workbook.boundary.levels import LEVELS, level
from workbook.commands.console import LevelOption, NodeOption, StackOption, out
from workbook.errors import UsageError
from workbook.node.connect import connect
from workbook.node.probe import check_flashinfer, overlay_env, stack_python
from workbook.types import Stack

app = typer.Typer(
    no_args_is_help=True, help="The patch levels: what each changes in the installed FlashInfer and SGLang."
)


def exec_(context: typer.Context, patch_level: LevelOption = 0, stack: StackOption = "embedded") -> NoReturn:
    """Any command under the overlay: workbook exec --patch-level 4 -- python -c '...'."""
    level(patch_level)
    if not context.args:
        raise UsageError(
            "No command was given.", "Write it after --: workbook exec --patch-level 4 -- python x.py"
        )
    versions = catalog.load(Stack, stack)
    node = connect("local")
    check_flashinfer(node, versions)
    python = stack_python(node, versions)
    env = os.environ | overlay_env(node, versions, patch_level)
    # The stack's environment first, so that `python` is the one that has its torch.
    env["PATH"] = os.pathsep.join([os.path.dirname(python), env.get("PATH", "")])  # noqa: PTH120
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # Python's own settings must not reach the command
    try:
        os.execvpe(context.args[0], context.args, env)
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot run {context.args[0]!r}: {error}.") from error


@app.command("list")
def patch_list() -> None:
    """The levels, what each changes and what is expected of it."""
    for one in LEVELS:
        out.print(
            f"{one.level}  {one.name:17} {one.changes}\n   {'':17} expected under fullgraph: {one.expected}"
        )


@app.command("show")
def patch_show(
    number: Annotated[int, typer.Argument(metavar="N")],
    stack: StackOption = "embedded",
    node: NodeOption = "local",
) -> None:
    """A level's unified diff against the installed code; nothing is changed."""
    for diff in patch_diffs(connect(node), catalog.load(Stack, stack), number):
        out.print(f"# {diff.patch}: {diff.target}")
        out.print(diff.refused or diff.diff)


@app.command("verify")
def patch_verify(
    number: Annotated[int, typer.Argument(metavar="N")],
    stack: StackOption = "embedded",
    node: NodeOption = "local",
) -> None:
    """Whether each target of a level is what its patch expects, or already cured upstream; exit status 2 if unknown."""
    found = patch_diffs(connect(node), catalog.load(Stack, stack), number)
    for one in found:
        version = one.known_in if one.known_in.startswith("SGLang") else f"FlashInfer {one.known_in}"
        known = f"as in {version} (source hash {one.source_sha256[:12]})"
        out.print(f"{one.patch}: {one.target}: {'refused' if one.refused else known}")
        for cure in one.cures:
            out.print(f"  already cured upstream: {cure}")
    if refusals := [one.refused for one in found if one.refused]:
        raise UsageError("; ".join(refusals) + ".")
