"""Baseline and candidate, measured in one go on one node, in turns: A B A B."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.serving.accuracy import ask, graph_needs_no_logprobs
from workbook.serving.agreement import Answers
from workbook.serving.bench import Plan, SoFar, Target, ends, run_bench
from workbook.serving.gate import gate
from workbook.serving.server import Server
from workbook.serving.telemetry import Telemetry
from workbook.types import (
    AccuracyOutcome,
    BenchPoint,
    CaptureMode,
    CaptureStep,
    GpuSample,
    LaunchProfile,
    Measurement,
    ServeOutcome,
    Stack,
    Status,
    SweepEnd,
)

PASSES = (
    3  # over the same prompts, for each server: the baseline's own noise is what a candidate is judged by
)
ROUNDS = 2  # A B A B, where two servers do not fit side by side and each is started again


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: a profile's server under a patch level."""

    label: str
    profile: LaunchProfile
    patch_level: int = 0


@dataclass(frozen=True)
class Questions:
    """What both servers are asked for the accuracy gate: random prompts by seed, `concurrency` of them at once."""

    prompts: int
    input_tokens: int
    output_tokens: int
    seed: int
    concurrency: int = 16


def in_mode(profile: LaunchProfile, mode: CaptureMode) -> LaunchProfile:
    """The profile with another capture mode; on a CPU, which captures nothing, eager whatever is asked."""
    return profile.model_copy(update={"capture_mode": CaptureMode.EAGER if profile.device == "cpu" else mode})


def arms(
    profile: LaunchProfile, baseline: CaptureMode, candidate: CaptureMode, patch_level: int
) -> tuple[Arm, Arm]:
    """The baseline unpatched, and the candidate under its patch level.

    A CPU captures nothing: there both are the same server, and the comparison is a control, which shows what the
    method reads where there is no difference.
    """
    first, second = in_mode(profile, baseline), in_mode(profile, candidate)
    if profile.device == "cpu":
        return Arm("eager", first), Arm("eager again (control)", second)
    label = f"{candidate} · level {patch_level}" if patch_level else f"{candidate}"
    return Arm(f"{baseline}", first), Arm(
        label if label != baseline else f"{label} again (control)", second, patch_level
    )


@dataclass
class Comparison:
    """A comparison at work; `found` is what it has so far, so that a crash takes nothing along.

    Args:
        node: where both run.
        sides: the baseline, then the candidate.
        plan: what is measured of each.
        questions: what each is asked for the accuracy gate.
        raw: the folder of logs and raw records.
        run_id: the run that the points belong to.
        stack: whose SGLang it is, where it is not the node's own.
        tp: tensor-parallel size, where it is not the profile's.
        say: called with a line on what is going on.
    """

    node: NodeConnection
    sides: Sequence[Arm]
    plan: Plan
    questions: Questions
    raw: Path
    run_id: str
    stack: Stack | None = None
    tp: int | None = None
    say: Callable[[str], None] = lambda line: None
    _serves: list[ServeOutcome] = field(default_factory=list)
    _steps: list[CaptureStep] = field(default_factory=list)
    _points: list[BenchPoint] = field(default_factory=list)
    _ends: list[SweepEnd] = field(default_factory=list)
    _answers: dict[str, list[Answers]] = field(default_factory=dict)
    _accuracy: list[AccuracyOutcome] = field(default_factory=list)
    _samples: list[GpuSample] = field(default_factory=list)

    @property
    def found(self) -> Measurement:
        """What there is so far; the baseline's server first."""
        order = [side.label for side in self.sides]
        return Measurement(
            serves=tuple(sorted(self._serves, key=lambda one: order.index(one.label))),
            steps=tuple(sorted(self._steps, key=lambda one: order.index(one.label))),
            points=tuple(sorted(self._points, key=lambda one: order.index(one.label))),
            ends=tuple(self._ends),
            accuracy=tuple(self._accuracy),
            samples=tuple(self._samples),
        )

    def run(self) -> None:
        """Start, ask, measure and stop both. A server that dies is an answer, kept in `found`.

        Raises:
            UsageError: the baseline cannot be launched as asked.
            WorkbookError: something else than a server failed.
        """
        if not self._both_can_be_launched():
            return
        log = self.raw / "telemetry.log"
        try:
            with Telemetry(self.node, log) as telemetry:
                try:
                    if all(side.profile.side_by_side for side in self.sides):
                        self._side_by_side()
                    else:
                        self._one_after_the_other()
                finally:
                    self._samples = telemetry.samples()
        except WorkbookError:
            if all(one.status is Status.OK for one in self._serves):
                raise

    def _both_can_be_launched(self) -> bool:
        """Whether this SGLang takes both; that it refuses the candidate is an answer, before anything is started."""
        baseline, candidate = self.sides
        self._server(baseline, 0)
        try:
            self._server(candidate, 0)
        except UsageError as refusal:
            self._serves.append(
                ServeOutcome(
                    profile=candidate.profile.name,
                    label=candidate.label,
                    patch_level=candidate.patch_level,
                    capture_mode=candidate.profile.capture_mode,
                    status=Status.NOT_SUPPORTED_HERE,
                    command="",
                    reason=f"was not started: {refusal}",
                )
            )
            return False
        return True

    def _side_by_side(self) -> None:
        """Both up at once, in turns point by point. The candidate starts first: it may die, and that is the answer."""
        with ExitStack() as stack:
            up = {side.label: stack.enter_context(self._up(side)) for side in reversed(self.sides)}
            for side in self.sides:
                self._ask(side, up[side.label], PASSES)
            self._judge()
            self._sweep([self._target(side, up[side.label]) for side in self.sides], self.plan)

    def _one_after_the_other(self) -> None:
        """Each started ROUNDS times, in turns, with its share of the repeats."""
        share = -(-self.plan.repeats // ROUNDS)
        for turn in range(ROUNDS):
            plan = replace(self.plan, repeats=share, precision=0.0, first_repeat=turn * share)
            for side in reversed(self.sides):
                with self._up(side, turn) as server:
                    self._ask(side, server, PASSES if turn == 0 else 1)
                    self._sweep([self._target(side, server)], plan)
            self._judge()
        self._ends = ends(self._points, [side.label for side in self.sides], self.plan)

    def _server(self, side: Arm, turn: int) -> Server:
        return Server(
            self.node,
            side.profile,
            log=self.raw / f"server-{self.sides.index(side)}-{turn}.log",
            patch_level=side.patch_level,
            tp=self.tp,
            label=side.label,
            stack=self.stack,
            on_progress=lambda line: self.say(f"{side.label}: {line}"),
        )

    @contextmanager
    def _up(self, side: Arm, turn: int = 0) -> Iterator[Server]:
        """The side's server while it is ready; how it went is kept, however it ends."""
        server = self._server(side, turn)
        try:
            with server:
                yield server
        finally:
            self._serves.append(server.outcome)
            self._steps += server.capture_steps

    def _target(self, side: Arm, server: Server) -> Target:
        return Target(side.label, server.node_url, server.model_path, server.death, log=server.log)

    def _ask(self, side: Arm, server: Server, passes: int) -> None:
        answers, asked = self._answers.setdefault(side.label, []), self.questions
        in_graph = any(
            graph_needs_no_logprobs(server.sglang_version, one.profile.capture_mode) for one in self.sides
        )
        for number in range(len(answers) + 1, len(answers) + 1 + passes):
            self.say(f"{side.label}: asking the same prompts, pass {number}")
            answers.append(
                ask(
                    self.node,
                    server.node_url,
                    name=f"{side.label}, pass {number}",
                    raw=self.raw / "answers" / f"{self.sides.index(side)}-{number}.jsonl",
                    prompts=asked.prompts,
                    input_tokens=asked.input_tokens,
                    output_tokens=asked.output_tokens,
                    concurrency=asked.concurrency,
                    seed=asked.seed,
                    order=number,
                    logprobs=not in_graph,
                )
            )

    def _judge(self) -> None:
        baseline, candidate = (side.label for side in self.sides)
        self._accuracy = [gate(baseline, candidate, self._answers[baseline], self._answers[candidate])]

    def _sweep(self, targets: Sequence[Target], plan: Plan) -> None:
        def keep(point: BenchPoint, so_far: SoFar) -> None:
            self._points.append(point)
            self.say(
                f"{point.label}: concurrency {point.concurrency}, {so_far.repeats} of {so_far.most} repeats, "
                f"{point.output_tok_s:,.0f} tok/s"
            )

        sweep = run_bench(
            self.node,
            targets,
            plan,
            raw_dir=self.raw / "bench",
            run_id=self.run_id,
            env=self.sides[0].profile.env,
            on_point=keep,
        )
        self._ends += sweep.ends
