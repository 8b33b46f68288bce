"""The answers in words, made from records and nothing else."""

from collections.abc import Sequence
from statistics import median

from workbook.boundary.levels import level
from workbook.report.evidence import Evidence
from workbook.report.forecast_check import check
from workbook.report.forecast_words import sentence
from workbook.report.ratio import worth
from workbook.types import (
    BenchPoint,
    EnvSnapshot,
    Forecast,
    Measurement,
    SplitOutcome,
    Stage,
    Status,
    TraceOutcome,
)


def baseline(found: Measurement, env: EnvSnapshot) -> tuple[Status, str]:
    """Whether the server held out, and what it reached. The status is the server's, or crashed without a point."""
    serve = found.serves[-1]
    if serve.status is not Status.OK:
        told = f"The server of profile {serve.profile} {serve.reason or 'failed'}: its figures do not count."
        return serve.status, told
    if not any(point.usable for point in found.points):
        return Status.CRASHED, "No benchmark point was completed without failed or short requests."
    return Status.OK, throughput(found.points, env)


def throughput(points: Sequence[BenchPoint], env: EnvSnapshot) -> str:
    """What was reached: the median over repeats without failed requests, of which there must be one."""
    good = [point for point in points if point.usable]
    by_concurrency = {point.concurrency: [] for point in good}  # type: dict[int, list[float]]
    for point in good:
        by_concurrency[point.concurrency].append(point.output_tok_s)
    reached = {concurrency: median(values) for concurrency, values in sorted(by_concurrency.items())}
    best = max(reached, key=lambda concurrency: reached[concurrency])
    failed = sum(point.failed + point.short for point in points)
    words = (
        f"{reached[min(reached)]:,.0f} output tokens/s at concurrency {min(reached)}, at most {reached[best]:,.0f} at "
        f"concurrency {best}; {len(points)} points, {failed} failed or short requests; {env.hardware}."
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


def piecewise(split: SplitOutcome, found: Measurement, foretold: Forecast) -> tuple[Status, str]:
    """Forecast, rehearsal, the two servers. Where the candidate's server really captured, that is the status."""
    rehearsed, said = rehearsal(split)
    compared, more = comparison(found)
    really = bool(found.serves) and any(step.label == found.serves[-1].label for step in found.steps)
    return (
        compared if really or rehearsed is Status.OK else rehearsed
    ), f"{forecast(foretold, found)}\n{said}\n{more}"


def forecast(foretold: Forecast, found: Measurement) -> str:
    """What was foretold of the whole model, and whether the real server bore it out."""
    checked = check(foretold, found)
    said = f"Forecast: {sentence(foretold)}"
    return f"{said} A {checked.word}: the server {checked.server} {checked.real}." if checked else said


def rehearsal(split: SplitOutcome) -> tuple[Status, str]:
    """How far SGLang's compile step gets with the small module. The status is the last stage's."""
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


def comparison(found: Measurement) -> tuple[Status, str]:
    """Whether the candidate ran, whether its answers are right, and what it is worth."""
    if not found.serves:
        return Status.NOT_SUPPORTED_HERE, "No server was started: there is nothing that it could show here."
    labels = list(dict.fromkeys(serve.label for serve in found.serves))
    bad = next((serve for serve in found.serves if serve.status is not Status.OK), None)
    if bad is not None:
        where = f" ({bad.decisive_line})" if bad.decisive_line else ""
        return bad.status, f"The server {bad.label} {bad.reason}{where}."
    sentences = [
        f"The answers of {one.candidate} are {_ANSWERS.get(one.status, one.status.value)}: {one.reason}."
        for one in found.accuracy
    ]
    status = next((one.status for one in found.accuracy if one.status is not Status.OK), Status.OK)
    sentences += [worth(found.points, labels[0], other) for other in labels[1:]]
    return status, " ".join(sentences)


_ANSWERS = {
    Status.OK: "right by the baseline's measure",
    Status.WRONG_OUTPUT: "wrong",
    Status.NOT_SUPPORTED_HERE: "beyond what can be judged",
}


def campaign(found: Evidence) -> list[str]:
    """The verdict of a campaign: why it dies, what gets past it, what it is worth. What is unknown is said."""
    sentences = [_why(found.outcomes), _what_passes(found.outcomes)]
    sentences += [f"Forecast: {sentence(one)}" for one in found.forecasts]
    sentences += [rehearsal(split)[1] for split in found.splits]
    baselines = [one.found for one in found.baselines]
    sentences += [
        f"Baseline: {baseline(baselines[-1], found.env)[1]}" if baselines else "No throughput was measured."
    ]
    sentences += [comparison(one.found)[1] for one in found.comparisons]
    if not found.env.gpus:
        sentences.append(
            "What capture is worth, and whether its answers stay right, takes a GPU: not measured here."
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
