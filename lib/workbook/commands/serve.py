"""`workbook serve`: one server of a profile, watched until it is asked to stop or dies."""

import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from workbook import catalog
from workbook.commands.console import LevelOption, NodeOption, err, out, progress
from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.node.connect import connect
from workbook.node.probe import stack_python
from workbook.serving.checks import installed_sglang
from workbook.serving.command import server_command
from workbook.serving.server import Server
from workbook.serving.tiny_model import resolve_model
from workbook.types import LaunchProfile, Stack, Status

DEFAULT_PORT = 30000  # SGLang's own
POLL_S = 0.5


def serve(
    profile: Annotated[str, typer.Argument(help="A profile of data/profiles.")],
    node: NodeOption = "local",
    patch_level: LevelOption = 0,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor-parallel size; else the profile's.")] = None,
    stack: Annotated[str, typer.Option(help="A stack of data/stacks; else the node's own Python.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command, and start nothing.")] = False,
    sglang: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="With --dry-run: the SGLang to translate for, if not the one there."
        ),
    ] = "",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="On the node's loopback; else a free one.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="A new file; else serve-PROFILE-TIME.log, here.")] = None,
) -> None:
    """Start a server, say when it answers and where, and stop it on Ctrl-C with all that belongs to it.

    Exit status 0: it was stopped after it was ready, or it died or hung and the line that tells why was shown.
    130: interrupted before it was ready.
    """
    asked = catalog.load(LaunchProfile, profile)
    versions = catalog.load(Stack, stack) if stack else None
    if sglang and not dry_run:
        raise UsageError("--sglang belongs to --dry-run;", "a server runs with the SGLang that is there.")
    connection = connect(node)
    if dry_run:
        print(_command(connection, asked, versions, sglang, patch_level, tp, port))
        return
    place = (log or Path(f"serve-{profile}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.log")).absolute()
    server = Server(connection, asked, log=place, patch_level=patch_level, tp=tp, stack=versions, port=port)
    err.print(server.command)
    err.print(f"Log: {place}. What it compiles is kept for the next run of this level: {server.caches}")
    _serve(server)


def _command(
    node: NodeConnection,
    profile: LaunchProfile,
    stack: Stack | None,
    sglang: str,
    patch_level: int,
    tp: int | None,
    port: int | None,
) -> str:
    python = stack_python(node, stack) if stack else node.python
    return server_command(
        node,
        profile,
        sglang_version=sglang or installed_sglang(node, python),
        python=python,
        model_path=resolve_model(node, profile),
        port=port or DEFAULT_PORT,
        patch_level=patch_level,
        tp=tp,
        stack=stack,
    ).pasteable


def _serve(server: Server) -> None:
    """From the start to the stop, whatever ends it."""
    interrupted = False
    try:
        with ExitStack() as running:
            with progress() as server.on_progress:
                running.enter_context(server)
            out.print(f"Ready after {server.outcome.ready_s or 0:.0f} s: {server.url}. Ctrl-C stops it.")
            try:
                while (death := server.death()) is None:
                    time.sleep(POLL_S)
                out.print(f"The server {death}.")
            except KeyboardInterrupt:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)  # the stop has time limits of its own
                err.print("Stopping.")
    except KeyboardInterrupt:
        interrupted = True
    except WorkbookError as error:
        if server.outcome.status is Status.OK:  # not the server's doing
            raise
        out.print(error.message)
        err.print(error.hint)
    _tell_what_is_left(server)
    if interrupted:
        err.print("workbook: interrupted before the server was ready.")
        raise typer.Exit(130)


def _tell_what_is_left(server: Server) -> None:
    if not server.stopped:
        raise WorkbookError("The stop was interrupted; what still runs of the server is being ended.")
    if server.outcome.left_behind:
        raise WorkbookError(f"Left of the server: {'; '.join(server.outcome.left_behind)}.")
    gpus = ", the memory of its GPUs is back" if server.gpus else ""
    out.print(f"Nothing is left: its processes are gone, port {server.port} is free{gpus}.")
