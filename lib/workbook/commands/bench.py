"""`workbook bench`: a server of ours, or any that is already running, under SGLang's own serving benchmark."""

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from workbook import catalog
from workbook.boundary.levels import level
from workbook.commands.console import JsonOption, LevelOption, NodeOption, columns, err, out
from workbook.errors import UsageError, WorkbookError
from workbook.intervals import NEEDED
from workbook.node.base import NodeConnection
from workbook.node.connect import connect
from workbook.report.text import one_line
from workbook.serving.bench import Plan, SoFar, Target, check
from workbook.serving.endpoint import check_lengths, check_tokenizer, find_endpoint
from workbook.serving.server import Server
from workbook.types import BenchPoint, LaunchProfile, Measurement, SweepEnd

if TYPE_CHECKING:
    from workbook import store

OF_THE_CASE = Plan((1, 10, 256, 1024), input_tokens=1024, output_tokens=512)
HIGHEST_SEED = 2**31 - 1
CAVEAT_WIDTH = 500  # characters
LABEL_WIDTH = 100
HEADER = (
    "concurrency", "tok/s", "+-95%", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "repeats", "not_counted",
    "clients", "client_cpu", "ended_by",
)  # fmt: skip


def bench(
    profile: Annotated[str | None, typer.Argument(help="A profile of data/profiles, to be started.")] = None,
    url: Annotated[
        str | None, typer.Option(help="A server that runs already, as the node sees it: http://host:8000.")
    ] = None,
    node: NodeOption = "local",
    concurrency: Annotated[
        str | None, typer.Option(help="Requests in flight; else the profile's, with --url 1,10,256,1024.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Of each point, at most.")] = Plan.repeats,
    budget: Annotated[
        float | None, typer.Option(help="Seconds of measuring after which no further point is begun.")
    ] = None,
    input_tokens: Annotated[
        int | None, typer.Option(help="Of each request; else the profile's, with --url 1024.")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option(help="Of each answer; else the profile's, with --url 512.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the first repeat's prompts; else 1, with --url a new one.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Client processes; else one per 16 in flight, half the cores at most.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="What the records call it.")] = None,
    patch_level: LevelOption = 0,
    model: Annotated[str | None, typer.Option(help="With --url: which of its models.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="With --url: a folder on the node, to send text, not token ids.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Throughput and latency: each point until its 95 % interval is within 3 %, or a budget is spent."""
    if (profile is None) == (url is None):
        raise UsageError(
            "bench measures one server:", "give a PROFILE to start or the --url of one that runs."
        )
    if url is None and (model or tokenizer):
        raise UsageError("--model and --tokenizer belong to --url;", "a profile names its own model.")
    if url is not None and patch_level:
        raise UsageError("--patch-level belongs to a PROFILE;", "a server that runs has its own already.")
    level(patch_level)
    known = catalog.load(LaunchProfile, profile) if profile else None
    if known is None and seed is None:  # its cache may still have the prompts of an earlier measurement
        seed = secrets.randbelow(HIGHEST_SEED)
    chosen = {
        "concurrencies": None if concurrency is None else _concurrencies(concurrency),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "repeats": repeats,
        "budget_s": budget,
        "seed": seed,
        "clients": clients,
    }
    plan = replace(_plan_of(known), **{name: one for name, one in chosen.items() if one is not None})  # type: ignore[arg-type]
    if not 0 <= plan.seed <= HIGHEST_SEED:
        raise UsageError(f"--seed {plan.seed} is out of range;", f"give one from 0 to {HIGHEST_SEED}.")
    if label is not None:
        label = one_line(label, LABEL_WIDTH)
    connection = connect(node)
    if known is not None:
        run = _measure_profile(connection, known, plan, label or known.name, patch_level)
    elif url is not None:
        run = _measure_url(connection, url, plan, label, model, tokenizer)
    points = run.records("points", BenchPoint)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in points], indent=1))
    else:
        for line in lines(points, run.records("sweep_ends", SweepEnd)):
            out.print(line)
        out.print(f"{run.record.verdict} Kept in {run.path}")
    if not any(one.usable for one in points):
        raise WorkbookError("No point came back whole.", f"The client's words are in {run.path / 'raw'}.")


def _plan_of(profile: LaunchProfile | None) -> Plan:
    if profile is None:
        return OF_THE_CASE
    return Plan(profile.concurrencies, profile.input_tokens, profile.output_tokens, profile.requests_per_slot)


def _concurrencies(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if not (re.fullmatch("[0-9]{1,5}", word) and 0 < int(word) <= 65536)]
    if wrong or not words:
        raise UsageError(
            f"--concurrency {one_line(text, 40)!r} will not do;",
            "give whole numbers from 1 to 65536, such as 1,10,256,1024.",
        )
    return tuple(dict.fromkeys(map(int, words)))


def _measure_url(
    node: NodeConnection, url: str, plan: Plan, label: str | None, model: str | None, tokenizer: str | None
) -> "store.SealedRun":
    check([Target(label or "url", url, "")], plan)
    found = find_endpoint(node, url, model)
    check_lengths(found, plan.input_tokens, plan.output_tokens)
    folder = None if tokenizer is None else check_tokenizer(node, tokenizer)
    name = label or one_line(found.model.rstrip("/").rpartition("/")[2], LABEL_WIDTH)
    target = Target(name, found.url, found.model, engine="openai", tokenizer=folder)
    from workbook import benches  # pandas takes a second that other commands need not wait for

    run = benches.begin(target, plan, {"url": found.url, "model": found.model, "node": node.node.name})
    with _interruptible():
        return benches.measure(node, run, plan, nullcontext(target), on_point=_tell)


def _measure_profile(
    node: NodeConnection, profile: LaunchProfile, plan: Plan, label: str, patch_level: int
) -> "store.SealedRun":
    named = Target(label, "", "")
    check([named], plan)
    from workbook import benches

    asked = {"profile": profile.name, "patch_level": patch_level, "node": node.node.name}
    run = benches.begin(named, plan, asked)
    status = err.status(Text("Server: starting"))
    try:
        server = Server(
            node,
            profile,
            log=run.raw / "server.log",
            patch_level=patch_level,
            label=label,
            on_progress=lambda words: status.update(Text(f"Server: {words}")),
        )
    except WorkbookError:  # nothing was started, so there is nothing to keep
        shutil.rmtree(run.path)
        raise

    @contextmanager
    def ready() -> Iterator[Target]:
        err.print(server.command)
        with ExitStack() as stack:
            with status:
                stack.enter_context(server)
            err.print(f"Server: ready after {server.outcome.ready_s or 0:.0f} s")
            yield replace(
                named, url=server.node_url, model=server.model_path, death=server.death, log=server.log
            )

    with _interruptible():
        return benches.measure(
            node,
            run,
            plan,
            ready(),
            served=lambda: Measurement(serves=(server.outcome,), steps=server.capture_steps),
            on_point=_tell,
        )


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        err.print(f"workbook: interrupted. {' '.join(map(str, stop.args))}".rstrip())
        raise typer.Exit(130) from None


def _tell(point: BenchPoint, so_far: SoFar) -> None:
    """A line for a finished point: what it gave, how sure the mean is by now, and what is left."""
    sure = "" if so_far.half_width is None else f"±{so_far.half_width:.1%} "
    left = (
        "" if so_far.seconds_left is None else f", {max(0.0, so_far.seconds_left):.0f} s of the budget left"
    )
    err.print(
        f"Concurrency {point.concurrency:,}: {point.output_tok_s:,.0f} tok/s; "
        f"{sure}after {so_far.repeats} of at most {so_far.most} repeats{left}"
    )


def lines(points: Sequence[BenchPoint], ends: Sequence[SweepEnd]) -> Iterator[str]:
    """A row a concurrency: medians of the repeats that count; then what the points do not say."""
    rows = [HEADER]
    for end in ends:
        same = [one for one in points if one.concurrency == end.concurrency]
        good = [one for one in same if one.usable]
        many = [one for one in good if one.completed >= NEEDED["p99"]]
        rows.append(
            (
                str(end.concurrency),
                _median([one.output_tok_s for one in good], ".0f"),
                "" if end.half_width is None else f"{end.half_width:.1%}",
                _median([one.ttft_ms_p50 for one in good], ".0f"),
                _median([one.ttft_ms_p99 for one in many], ".0f"),
                _median([one.itl_ms_p50 for one in good], ".3g"),
                _median([one.itl_ms_p99 for one in many], ".3g"),
                str(end.repeats),
                str(len(same) - len(good)),
                str(max((one.clients for one in same), default="")),
                _median([one.client_cpu for one in good], ".0%"),
                end.ended_by,
            )
        )
    yield from columns(rows)
    for concurrency in dict.fromkeys(one.concurrency for one in points):
        said = [one.caveat for one in points if one.concurrency == concurrency and one.caveat]
        if said:
            of = f"{len(said)} of its repeats, the last" if len(said) > 1 else "one of its repeats"
            yield f"Concurrency {concurrency}, {of}: {one_line(said[-1], CAVEAT_WIDTH)}."


def _median(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(median(known), form) if known else "-"
