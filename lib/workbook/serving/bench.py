"""A sweep: every concurrency of every server, in turns, until the figures are precise or a budget is spent."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbook.errors import UsageError, WorkbookError
from workbook.intervals import relative_half_width
from workbook.node.base import NodeConnection
from workbook.serving import graph_use
from workbook.serving.client import Client
from workbook.serving.records import parse_point
from workbook.types import BenchPoint, SweepEnd

MIN_REQUESTS = 16  # with fewer not even a median means much
MAX_WARMUP_REQUESTS = 16


@dataclass(frozen=True)
class Target:
    """A server to measure.

    Args:
        label: what it is, such as "eager"; it names the raw files.
        url: its address, as the node sees it.
        model: as the engine calls it: for SGLang a folder or hub name that has the tokenizer.
        death: how it died, such as `Server.death`; None while it lives.
        engine: `sglang` is asked by SGLang's own protocol, `openai` by that of OpenAI's completions.
        tokenizer: a folder on the node. Without one, an `openai` server gets its prompts as lists of token ids.
        log: the server's log on this machine, which tells what ran in a CUDA graph; None where it is not at hand.
    """

    label: str
    url: str
    model: str
    death: Callable[[], str | None] = lambda: None
    engine: Literal["sglang", "openai"] = "sglang"
    tokenizer: str | None = None
    log: Path | None = None

    @property
    def stem(self) -> str:
        """The label as a part of a file's name."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.label).strip("-").lower() or "bench"


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        concurrencies: requests in flight, one point each.
        input_tokens: of each request.
        output_tokens: of each answer.
        requests_per_slot: requests of a point over its concurrency; there are at least 16.
        repeats: how often each point is measured at most.
        precision: half the 95 % interval of mean throughput over that mean at which a point needs no further repeat.
        budget_s: seconds after which no further point is begun; None for as long as it takes.
        seed: of the first repeat's prompts; repeat r has those of seed + r, at every concurrency and for every label.
        point_limit_s: seconds after which one point is given up.
        first_repeat: its number, where earlier ones were measured before.
        clients: processes that the load is spread over; None for one per 16 requests in flight, half the cores at most.
    """

    concurrencies: Sequence[int]
    input_tokens: int
    output_tokens: int
    requests_per_slot: int = 4
    repeats: int = 10
    precision: float = 0.03
    budget_s: float | None = None
    seed: int = 1
    point_limit_s: float = 1800.0
    first_repeat: int = 0
    clients: int | None = None


@dataclass(frozen=True)
class Sweep:
    """What was measured, in order, and why each point's repeats ended."""

    points: list[BenchPoint]
    ends: list[SweepEnd]


@dataclass(frozen=True)
class SoFar:
    """Where a sweep stands after a point.

    Args:
        repeats: of this label and concurrency, and how many there may be.
        half_width: half the 95 % interval of their mean throughput over that mean; None from too few.
        seconds_left: of the budget; None without one.
    """

    repeats: int
    most: int
    half_width: float | None
    seconds_left: float | None


def run_bench(
    node: NodeConnection,
    targets: Sequence[Target],
    plan: Plan,
    *,
    raw_dir: Path,
    run_id: str,
    env: Mapping[str, str] | None = None,
    python: str | None = None,
    on_point: Callable[[BenchPoint, SoFar], None] = lambda point, so_far: None,
) -> Sweep:
    """Measure every concurrency, then all of them again, each until it is precise at every target.

    Targets take turns at each concurrency, in opposite order at every other repeat (A B, B A), so that a drift of
    the machine does not pass for a difference. A point with failed or short requests is kept but does not count.
    Stopping at the first interval that is narrow enough makes it a little narrower than it should be.

    Args:
        node: where the client runs.
        targets: servers that are ready.
        raw_dir: a folder for the raw records; each sweep makes one of its own in it.
        run_id: the run that these points belong to.
        env: added to the client's environment.
        python: the Python that has SGLang, where it is not the node's.
        on_point: called with each point as it is finished.

    Raises:
        UsageError: there is nothing to measure, or the same was measured into `raw_dir` before.
        WorkbookError: a server died, or the client failed, or left a record that cannot be read.
    """
    check(targets, plan)
    folder = raw_dir / "-".join([*(one.stem for one in targets), f"r{plan.first_repeat}"])
    if folder.exists():
        raise UsageError(f"{raw_dir} has records of the same already;", "they are never overwritten.")
    points: list[BenchPoint] = []
    with Client(node, folder, env=env or {}, python=python, alive=lambda: _check_alive(targets)) as client:
        started = time.monotonic()

        def left() -> float | None:
            return None if plan.budget_s is None else plan.budget_s - (time.monotonic() - started)

        for target, concurrency, repeat in turns(targets, plan, points, left):
            asked = ask(target, plan, concurrency, repeat)
            begin = graph_use.size(target.log)
            found, measured = client.measure(asked)
            point = parse_point(
                found,
                measured,
                run_id=run_id,
                label=target.label,
                concurrency=concurrency,
                repeat=repeat,
                requested=asked["num_prompts"],
                output_tokens=plan.output_tokens,
                seed=asked["seed"],
                counts_told=target.engine == "sglang",
            ).model_copy(update=graph_use.shares(target.log, begin))
            points.append(point)
            same = _of(points, target.label, concurrency)
            on_point(point, SoFar(len(same), plan.repeats, half_width(same), left()))
    return Sweep(points, ends(points, [one.label for one in targets], plan))


def check(targets: Sequence[Target], plan: Plan) -> None:
    """Nothing, if there is something to measure.

    Raises:
        UsageError: there is not, or two targets cannot be told apart.
    """
    least_one = {
        "concurrencies": min(plan.concurrencies, default=0),
        "repeats": plan.repeats,
        "input tokens": plan.input_tokens,
        "output tokens": plan.output_tokens,
        "requests per slot": plan.requests_per_slot,
        "clients": 1 if plan.clients is None else plan.clients,
    }
    for name, value in least_one.items():
        if value < 1:
            raise UsageError(f"There is nothing to measure with {name} of {value};", "give 1 or more.")
    if plan.budget_s is not None and not plan.budget_s > 0:  # nor NaN
        raise UsageError(f"There is no time to measure in a budget of {plan.budget_s:g} s;", "give more.")
    if not targets or len({one.stem for one in targets}) < len(targets):
        raise UsageError(
            f"The labels {', '.join(repr(one.label) for one in targets) or 'are none'} do not tell servers apart;",
            "give each one of its own.",
        )


def ask(target: Target, plan: Plan, concurrency: int, repeat: int) -> dict[str, Any]:
    """What the client is told about one point; the name is that of its raw files."""
    return {
        "name": f"{target.stem}-c{concurrency}-r{repeat}",
        "url": target.url,
        "engine": target.engine,
        "model": target.model,
        "tokenizer": target.tokenizer,
        "concurrency": concurrency,
        "num_prompts": max(concurrency * plan.requests_per_slot, MIN_REQUESTS),
        "input_tokens": plan.input_tokens,
        "output_tokens": plan.output_tokens,
        "seed": plan.seed + repeat,
        "warmup_requests": min(concurrency, MAX_WARMUP_REQUESTS),
        "clients": plan.clients,
        "limit_s": plan.point_limit_s,
    }


def half_width(points: Iterable[BenchPoint]) -> float | None:
    """Half the 95 % interval of mean throughput over that mean, of the points that count; None from too few."""
    return relative_half_width([one.output_tok_s for one in points if one.usable])


def ends(
    points: Sequence[BenchPoint],
    labels: Sequence[str],
    plan: Plan,
    otherwise: Literal["time spent", "broken off"] = "time spent",
) -> list[SweepEnd]:
    """Why the repeats of each label and concurrency ended, when these points are all there will be.

    Args:
        otherwise: why the repeats ended that were neither precise nor as many as there may be.
    """
    found = []
    for concurrency in dict.fromkeys(plan.concurrencies):
        for label in labels:
            same = _of(points, label, concurrency)
            half = half_width(same)
            found.append(
                SweepEnd(
                    label=label,
                    concurrency=concurrency,
                    repeats=len(same),
                    half_width=half,
                    ended_by="precise"
                    if half is not None and half <= plan.precision
                    else "repeats spent"
                    if len(same) >= plan.repeats
                    else otherwise,
                )
            )
    return found


def turns(
    targets: Sequence[Target],
    plan: Plan,
    points: Sequence[BenchPoint],
    seconds_left: Callable[[], float | None],
) -> Iterable[tuple[Target, int, int]]:
    """What to measure next; `points` grows meanwhile. Time is looked at before a round, so that all have their turn."""
    for repeat in range(plan.first_repeat, plan.first_repeat + plan.repeats):
        for concurrency in dict.fromkeys(plan.concurrencies):
            if all(_is_precise(_of(points, one.label, concurrency), plan) for one in targets):
                continue
            left = seconds_left()
            if left is not None and left <= 0:
                return
            for target in targets if repeat % 2 == 0 else reversed(targets):
                yield target, concurrency, repeat


def _is_precise(points: Iterable[BenchPoint], plan: Plan) -> bool:
    half = half_width(points)
    return half is not None and half <= plan.precision


def _of(points: Iterable[BenchPoint], label: str, concurrency: int) -> list[BenchPoint]:
    return [one for one in points if one.label == label and one.concurrency == concurrency]


def _check_alive(targets: Sequence[Target]) -> None:
    for one in targets:
        if died := one.death():
            which = f" of {one.label!r}" if len(targets) > 1 else ""
            raise WorkbookError(f"The server{which} died during the benchmark: it {died}.")
