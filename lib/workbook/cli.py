"""The `workbook` command. Exit status: 0 answered (also "it crashes"), 2 bad arguments, 1 the workbook failed."""

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import yaml
from rich.console import Console

from workbook import catalog
from workbook.boundary.entries import ENTRIES
from workbook.boundary.levels import LEVELS, level, patch_diffs
from workbook.boundary.trace import TraceRequest
from workbook.boundary.trace import trace as trace_call
from workbook.errors import UsageError, WorkbookError
from workbook.node.connect import connect
from workbook.node.probe import flashinfer_dir, how_to_get, overlay_env
from workbook.paths import require_checkout
from workbook.types import ProcessState, Stack, Status, TraceOutcome

if TYPE_CHECKING:
    from workbook.campaign import Finished

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
patch_app = typer.Typer(
    no_args_is_help=True, help="The patch levels: what each changes in the installed FlashInfer."
)
stack_app = typer.Typer(no_args_is_help=True, help="Named, locked sets of versions.")
app.add_typer(patch_app, name="patch")
app.add_typer(stack_app, name="stack")

out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

NodeOption = Annotated[str, typer.Option("--node", help="A node of data/nodes.")]
StackOption = Annotated[str, typer.Option("--stack", help="A stack of data/stacks.")]
ArchOption = Annotated[str, typer.Option("--arch", help="The declared GPU architecture.")]
LevelOption = Annotated[int, typer.Option("--patch-level", help="0 (unpatched) to 4.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command()
def run(
    node: NodeOption = "",
    only: Annotated[str, typer.Option(help="Notebooks by number, such as 00,01.")] = "",
    campaign: Annotated[str, typer.Option(help="The folder's name; the time by default.")] = "",
    resume: Annotated[str, typer.Option(metavar="CAMPAIGN", help="Go on where this campaign stopped.")] = "",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A notebook parameter.")
    ] = None,
) -> None:
    """The notebooks in order, then the report."""
    from workbook import (
        campaign as campaigns,
    )  # papermill and pandas take seconds that `trace` need not wait for

    require_checkout()
    if resume and (node or only or campaign or parameter):
        raise UsageError(
            "--resume goes on with what the campaign was asked for;",
            "leave out --node, --only, --campaign and -p.",
        )
    if resume:
        wanted, given = campaigns.kept_request(resume)
    else:
        wanted = [part.strip() for part in only.split(",")] if only else []
        given = {"node": node or "local"} | dict(_name_value(one) for one in parameter or [])
    if "campaign" in given:
        raise UsageError("-p campaign is not taken;", "give --campaign NAME.")
    name = resume or campaign or campaigns.new_name()
    models = campaigns.choose(wanted)
    parameters = campaigns.plan(models, given | {"campaign": name})
    campaigns.keep_request(name, wanted, given)
    out.print(f"Campaign {name}: {', '.join(model.notebook for model in models)} on node {given['node']}.")
    try:
        page = campaigns.run(name, parameters, resume=bool(resume), on_done=_tell)
    except KeyboardInterrupt:
        err.print(
            f"workbook: interrupted; what was started is being stopped. To go on: workbook run --resume {name}"
        )
        raise typer.Exit(130) from None
    _say_verdict(name, page)


@app.command()
def report(
    campaign: Annotated[str, typer.Argument(help="The newest by default.")] = "",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A parameter of 04_report.")
    ] = None,
) -> None:
    """Gather a campaign's records and render its report anew."""
    from workbook import campaign as campaigns
    from workbook import store
    from workbook.params import ReportParams

    require_checkout()
    known = store.campaigns()
    name = campaign or (known[-1] if known else "")
    if name not in known:
        raise UsageError(
            f"No campaign {name!r};" if name else "No campaign yet;", f"known: {campaigns.known_names()}."
        )
    given = dict(_name_value(one) for one in parameter or []) | {"campaign": name}
    page = campaigns.run(name, campaigns.plan([ReportParams], given), on_done=_tell)
    _say_verdict(name, page)


@app.command()
def trace(
    entry: Annotated[str, typer.Argument(help=f"An entry point, such as {ENTRIES[0].path}.")],
    arch: ArchOption = "sm120",
    patch_level: LevelOption = 0,
    process: Annotated[
        ProcessState, typer.Option(help="Fresh, or after an eager call as a server makes.")
    ] = ProcessState.COLD,
    stack: StackOption = "embedded",
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """What Dynamo makes of one call under fullgraph, in a process of its own."""
    request = TraceRequest(entry, arch, patch_level, process)
    found = trace_call(connect(node), catalog.load(Stack, stack), request)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _print_trace(found)


@app.command()
def blockers(
    entry: Annotated[str, typer.Argument(help="An entry point, or with --inputs any MODULE:FUNCTION.")],
    arch: ArchOption = "sm120",
    inputs: Annotated[
        Path | None, typer.Option(help="A Python file whose inputs() gives the arguments.")
    ] = None,
    stack: StackOption = "embedded",
    node: NodeOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Every operation that cannot be traced, in order, from one command."""
    from workbook.boundary.blockers import blockers as find_blockers

    connection, versions = connect(node), catalog.load(Stack, stack)
    found = find_blockers(connection, versions, entry, arch=arch, inputs=inputs, on_layer=err.print)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
        return
    for one in found:
        stopped = f"{one.operation} in {one.blamed} ({one.break_id})" if one.status is not Status.OK else "ok"
        out.print(f"{one.order:2}  {stopped}\n    {one.passed}: {one.how}")
    for stood_in in found[-1].stand_ins:
        out.print(f"stood in for: {stood_in}")


@app.command(name="exec", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def exec_(context: typer.Context, patch_level: LevelOption = 0, stack: StackOption = "embedded") -> NoReturn:
    """Any command under the overlay: workbook exec --patch-level 4 -- python -c '...'."""
    level(patch_level)
    if not context.args:
        raise UsageError(
            "No command was given.", "Write it after --: workbook exec --patch-level 4 -- python x.py"
        )
    versions = catalog.load(Stack, stack)
    if not flashinfer_dir(versions).is_dir() and find_spec("flashinfer") is None:
        raise UsageError(
            f"No FlashInfer {versions.flashinfer} in {flashinfer_dir(versions)}.", how_to_get(versions)
        )
    env = os.environ | overlay_env(versions, patch_level)
    # The workbook's own environment first, so that `python` is the one that has torch.
    env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env.get("PATH", "")])  # noqa: PTH120
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # Python's own settings must not reach the command
    try:
        os.execvpe(context.args[0], context.args, env)
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot run {context.args[0]!r}: {error}.") from error


@patch_app.command("list")
def patch_list() -> None:
    """The levels, what each changes and what is expected of it."""
    for one in LEVELS:
        out.print(
            f"{one.level}  {one.name:17} {one.changes}\n   {'':17} expected under fullgraph: {one.expected}"
        )


@patch_app.command("show")
def patch_show(
    number: Annotated[int, typer.Argument(metavar="N")],
    stack: StackOption = "embedded",
    node: NodeOption = "local",
) -> None:
    """A level's unified diff against the installed FlashInfer; nothing is changed."""
    for diff in patch_diffs(connect(node), catalog.load(Stack, stack), number):
        out.print(f"# {diff.patch}: {diff.target}")
        out.print(diff.refused or diff.diff)


@patch_app.command("verify")
def patch_verify(
    number: Annotated[int, typer.Argument(metavar="N")],
    stack: StackOption = "embedded",
    node: NodeOption = "local",
) -> None:
    """Whether each target of a level is what its patch expects, or already cured upstream; exit status 2 if unknown."""
    found = patch_diffs(connect(node), catalog.load(Stack, stack), number)
    for one in found:
        known = f"as in FlashInfer {one.known_in} (source hash {one.source_sha256[:12]})"
        out.print(f"{one.patch}: {one.target}: {'refused' if one.refused else known}")
        for cure in one.cures:
            out.print(f"  already cured upstream: {cure}")
    if refusals := [one.refused for one in found if one.refused]:
        raise UsageError("; ".join(refusals) + ".")


@stack_app.command("list")
def stack_list() -> None:
    """The stacks, their versions and what each is for."""
    for name in catalog.names(Stack):
        one = catalog.load(Stack, name)
        out.print(
            f"{name:9} torch {one.torch}, flashinfer-python {one.flashinfer}, sglang {one.sglang}: {one.purpose}"
        )


def _name_value(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML: 2 is a number, "two" a word, [1, 4] a list."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"-p {text!r} is not NAME=VALUE.", "For example: -p patch_level=2")
    try:
        return name, yaml.safe_load(value) if value else ""
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"-p {name}: {value!r} cannot be read as a value.") from error


def _tell(finished: "Finished") -> None:
    took = "done before" if finished.reused else f"{finished.seconds:.0f} s"
    out.print(f"{finished.run.record.notebook}  {finished.run.record.status}  {took}")


def _say_verdict(name: str, page: Path) -> None:
    from workbook import store

    report_run = store.find(name, "04_report")[-1]
    out.print(f"\nVerdict:\n{report_run.record.verdict}\n\nOpen {page}")


def _print_trace(found: TraceOutcome) -> None:
    told = found.declared
    out.print(f"{found.entry} at patch level {found.patch_level}, {found.process_state}: {found.status}")
    for frame in found.frames:
        out.print(f"  {frame.lane:16} {frame.file}:{frame.line} {frame.function}")
    if found.operation:
        out.print(f"stops at {found.operation} ({found.break_id or 'no break id'}), in {found.blamed}")
    out.print(
        f"{told.inputs}; compute capability {told.compute_capability[0]}.{told.compute_capability[1]} declared, "
        f"CUDA {told.cuda_version} {told.cuda_version_source}; "
        + ", ".join(f"{name} {version}" for name, version in found.versions.items())
    )


def _stop_on_sigterm(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: errors become one sentence and an exit status."""
    signal.signal(signal.SIGTERM, _stop_on_sigterm)
    try:
        app()
    except WorkbookError as error:
        err.print(f"workbook: {error}")
        sys.exit(error.exit_status)
    except OSError as error:  # a full disk, a folder that is not ours
        err.print(f"workbook: {error.filename or 'output'}: {error.strerror or error}.")
        sys.exit(1)


if __name__ == "__main__":
    main()
