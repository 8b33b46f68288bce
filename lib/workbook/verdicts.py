"""The answers in words, made from records and nothing else."""

from collections.abc import Sequence
from statistics import median

from workbook.boundary.levels import level
from workbook.types import (
    BenchPoint,
    EnvSnapshot,
    ServeOutcome,
    SplitOutcome,
    Stage,
    Status,
    TraceOutcome,
)


def baseline(serve: ServeOutcome, points: Sequence[BenchPoint], env: EnvSnapshot) -> tuple[Status, str]:
    """Whether the server held out, and what it reached. The status is the server's, or crashed without a point."""
    if serve.status is not Status.OK:
        told = f"The server of profile {serve.profile} {serve.reason or 'failed'}: its figures do not count."
        return serve.status, told
    if not [point for point in points if point.completed and not point.failed]:
        return Status.CRASHED, "No benchmark point was completed without failed requests."
    return Status.OK, throughput(points, env)


def throughput(points: Sequence[BenchPoint], env: EnvSnapshot) -> str:
    """What was reached: the median over repeats without failed requests, of which there must be one."""
    good = [point for point in points if point.completed and not point.failed]
    by_concurrency = {point.concurrency: [] for point in good}  # type: dict[int, list[float]]
    for point in good:
        by_concurrency[point.concurrency].append(point.output_tok_s)
    reached = {concurrency: median(values) for concurrency, values in sorted(by_concurrency.items())}
    best = max(reached, key=lambda concurrency: reached[concurrency])
    failed = sum(point.failed for point in points)
    words = (
        f"{reached[min(reached)]:,.0f} output tokens/s at concurrency {min(reached)}, at most {reached[best]:,.0f} at "
        f"concurrency {best}; {len(points)} points, {failed} failed requests; {env.hardware}."
    )
    return words if env.gpus else words + " A CPU and a toy model: no figure here speaks for a GPU."


def crash(outcome: TraceOutcome) -> tuple[Status, str]:
    """Whether the crash was reproduced: that it crashes is the success."""
    if outcome.status is Status.OK:
        return (
            Status.ALREADY_FIXED_UPSTREAM,
            f"{outcome.entry} traces without a patch: no crash with these versions.",
        )
    if outcome.status not in (Status.DYNAMO_UNSUPPORTED, Status.GRAPH_BREAK):
        return outcome.status, f"Not reproduced: {outcome.entry} {stop(outcome)}."
    return (
        Status.OK,
        f"Reproduced: {outcome.entry} under fullgraph {stop(outcome)}, {outcome.seconds:.1f} s into the trace.",
    )


def stop(outcome: TraceOutcome) -> str:
    """How one trace ended, as the rest of a sentence."""
    if outcome.status is Status.OK:
        return "passes"
    if outcome.status is Status.GRAPH_BREAK:
        return f"is refused: {outcome.operation} is a graph break"
    if outcome.status is Status.CRASHED:
        return f"fails outside of Dynamo: {outcome.message.partition(chr(10))[0][:200]}"
    return f"stops at {outcome.operation or 'an operation without a name'} in {outcome.blamed}"


def patches(outcomes: Sequence[TraceOutcome]) -> str:
    """Which level is the first to pass cold and warm, and where the others stop."""
    levels = sorted({one.patch_level for one in outcomes})
    passing = [n for n in levels if all(one.status is Status.OK for one in outcomes if one.patch_level == n)]
    stops = []
    for number in levels:
        if number not in passing:
            ends = {stop(one): one.process_state for one in outcomes if one.patch_level == number}
            told = " and ".join(f"{end} ({state})" if len(ends) > 1 else end for end, state in ends.items())
            stops.append(f"level {number} {told}")
    first = f"Level {passing[0]} ({level(passing[0]).name}) passes" if passing else "No level passes"
    return f"{first}; {'; '.join(stops)}." if stops else f"{first}."


def piecewise(split: SplitOutcome) -> tuple[Status, str]:
    """How far SGLang's compile step gets, and what could not be tried. The run's status is the last stage's."""
    name = f"Level {split.patch_level} ({level(split.patch_level).name})"
    if split.stages.get(Stage.IMPORT) is not Status.OK:
        return Status.NOT_SUPPORTED_HERE, f"{name}: {split.reasons[Stage.IMPORT]}."
    traced = split.stages[Stage.TRACE]
    if traced is not Status.OK:
        where = stop(split.stopped) if split.stopped else f"stops at {split.reasons[Stage.TRACE]}"
        return traced, f"{name}: SGLang's piecewise compile {where}."
    cut = sum(piece.split for piece in split.pieces)
    graphs = "one graph" if split.num_graphs == 1 else f"{split.num_graphs} graphs"
    return split.stages[Stage.CAPTURE], (
        f"{name}: SGLang {split.versions['sglang']} compiles the small module and splits it into "
        f"{len(split.pieces)} pieces ({len(split.pieces) - cut} compiled, {cut} split), "
        f"{graphs} for {len(split.capture_sizes)} capture sizes. "
        f"Nothing was captured: {split.reasons[Stage.CAPTURE]}."
    )


def campaign(
    outcomes: Sequence[TraceOutcome],
    splits: Sequence[SplitOutcome],
    serves: Sequence[ServeOutcome],
    points: Sequence[BenchPoint],
    env: EnvSnapshot,
) -> list[str]:
    """The verdict of a campaign: why it dies, what gets past it, what it is worth. What is unknown is said."""
    sentences = [_why(outcomes), _what_passes(outcomes)]
    sentences += [piecewise(split)[1] for split in splits]
    sentences += [
        f"Baseline: {baseline(serves[-1], points, env)[1]}" if serves else "No throughput was measured."
    ]
    if not env.gpus:
        sentences.append(
            "What capture is worth, and whether the answers stay right, takes a GPU: not measured here."
        )
    return sentences


def _why(outcomes: Sequence[TraceOutcome]) -> str:
    unpatched = next((one for one in outcomes if one.patch_level == 0), None)
    if unpatched is None:
        return "The unpatched call was not traced."
    if unpatched.status is Status.OK:
        return f"{unpatched.entry} traces unpatched with these versions."
    return f"Unpatched, {unpatched.entry} {stop(unpatched)}: Dynamo follows it into run-time compilation."


def _what_passes(outcomes: Sequence[TraceOutcome]) -> str:
    tried = sorted({one.patch_level for one in outcomes if one.patch_level})
    if not tried:
        return "No patch was tried."
    passing = [n for n in tried if all(one.status is Status.OK for one in outcomes if one.patch_level == n)]
    span = f"levels {tried[0]} to {tried[-1]}" if len(tried) > 1 else f"level {tried[0]}"
    if not passing:
        return f"Of patch {span} none passes fullgraph."
    named = " and ".join(f"level {n} ({level(n).name})" for n in passing)
    return f"Of patch {span}, {named} {'passes' if len(passing) == 1 else 'pass'} fullgraph, cold and warm."
