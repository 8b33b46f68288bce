"""The steps of the notebooks: each runs on the study's node, keeps its records in the study's run, and returns them."""

from typing import Any

from workbook import catalog, measurements
from workbook.boundary.blockers import blockers
from workbook.boundary.diffs import patch_diffs
from workbook.boundary.foresee import KNOWN_SGLANG, foresee, not_told
from workbook.boundary.remedies import compare
from workbook.boundary.remedy_table import REMEDIES
from workbook.boundary.trace import TraceRequest, trace, trace_all
from workbook.capture.split import split
from workbook.errors import WorkbookError
from workbook.progress import live, live_line
from workbook.serving.bench import Plan, SoFar, Target, run_bench
from workbook.serving.compare import Comparison, Questions, arms, in_mode
from workbook.serving.server import Server
from workbook.serving.telemetry import Telemetry
from workbook.study import Study
from workbook.types import (
    BenchPoint,
    Blocker,
    Forecast,
    LaunchProfile,
    Measurement,
    PatchDiff,
    ProcessState,
    RemedyOutcome,
    SplitOutcome,
    Stack,
    Stage,
    Status,
    TraceOutcome,
)

THE_CASE, ITS_STACK = "glm5-nvfp4-tp8", "seed"
ANSWER_TOKENS = 64  # of each answer that the accuracy gate compares


def prepare_server(study: Study) -> Server:
    """The profile's server, not yet started: `command` is what will run."""
    params = study.params
    profile = in_mode(catalog.load(LaunchProfile, params.profile), params.capture_mode)
    say = live_line()
    return Server(study.node, profile, log=study.run.raw / "server.log", label=params.label, on_progress=say)


def measure_baseline(study: Study, server: Server) -> Measurement:
    """Start the server, measure it at every concurrency and repeat, stop it."""
    params = study.params
    plan = sweep_plan(params)
    say = live_line()
    points: list[BenchPoint] = []

    def keep(point: BenchPoint, so_far: SoFar) -> None:
        points.append(point)
        say(
            f"concurrency {point.concurrency}, {so_far.repeats} of {so_far.most} repeats: "
            f"{point.output_tok_s:,.0f} tok/s"
        )

    ends, telemetry = [], Telemetry(study.node, study.run.raw / "telemetry.log")
    try:
        with telemetry, server:
            target = Target(params.label, server.node_url, server.model_path, server.death, log=server.log)
            sweep = run_bench(
                study.node,
                [target],
                plan,
                raw_dir=study.run.raw / "bench",
                run_id=study.run.id,
                env=server.profile.env,
                on_point=keep,
            )
            ends = sweep.ends
    finally:  # a server that died is on record too
        found = Measurement(
            serves=(server.outcome,),
            steps=tuple(server.capture_steps),
            points=tuple(points),
            ends=tuple(ends),
            samples=tuple(telemetry.samples()),
        )
        measurements.keep(study.run, found)
    return found


def compare_servers(study: Study, split: SplitOutcome) -> Measurement:
    """Baseline and candidate, in turns on one node: captures, answers, throughput and latency.

    Nothing is started where that can say nothing: on a CPU, which captures nothing, after a rehearsal that stopped.
    """
    params = study.params
    profile = catalog.load(LaunchProfile, params.profile)
    if profile.device == "cpu" and split.stages.get(Stage.TRACE) is not Status.OK:
        return Measurement()
    plan = sweep_plan(params)
    comparison = Comparison(
        node=study.node,
        sides=arms(profile, params.baseline_mode, params.capture_mode, params.patch_level),
        plan=plan,
        questions=Questions(
            params.prompts, plan.input_tokens, min(plan.output_tokens, ANSWER_TOKENS), params.seed
        ),
        raw=study.run.raw / "servers",
        run_id=study.run.id,
        stack=study.stack,
        tp=params.tp or None,
        say=live_line(),
    )
    try:
        comparison.run()
    finally:
        measurements.keep(study.run, comparison.found)
    return comparison.found


def sweep_plan(params: Any) -> Plan:
    """What a notebook's parameters ask to be measured; lengths and load are the profile's."""
    profile = catalog.load(LaunchProfile, params.profile)
    return Plan(
        params.concurrencies or profile.concurrencies,
        profile.input_tokens,
        profile.output_tokens,
        profile.requests_per_slot,
        repeats=params.repeats,
        budget_s=params.budget_s or None,
        seed=params.seed,
    )


def reproduce_crash(study: Study) -> TraceOutcome:
    """Trace the unpatched entry point, in a fresh process."""
    params = study.params
    request = TraceRequest(params.entry, params.arch, 0, ProcessState.COLD)
    found = trace(study.node, study.stack, request, study.run.raw)
    study.run.add_records("outcomes", [found])
    return found


def try_levels(study: Study) -> list[TraceOutcome]:
    """Trace the entry point at every asked patch level, cold and warm, each in a fresh process."""
    params = study.params
    requests = [
        TraceRequest(params.entry, params.arch, number, state)
        for number in params.levels
        for state in ProcessState
    ]
    done = live("Traces", len(requests))
    outcomes = trace_all(
        study.node,
        study.stack,
        requests,
        study.run.raw,
        on_done=lambda one: done(f"level {one.patch_level} {one.process_state}: {one.status}"),
    )
    study.run.add_records("outcomes", outcomes)
    return outcomes


def show_patches(study: Study) -> list[PatchDiff]:
    """What each asked level changes in the installed FlashInfer, a patch once."""
    diffs = [one for number in study.params.levels for one in patch_diffs(study.node, study.stack, number)]
    distinct = list({one.target + one.patch: one for one in diffs}.values())
    study.run.add_records("diffs", distinct)
    return distinct


def list_blockers(study: Study) -> list[Blocker]:
    """Everything that stops the unpatched entry point, in order."""
    params = study.params
    found = blockers(study.node, study.stack, params.entry, arch=params.arch, raw_dir=study.run.raw)
    study.run.add_records("blockers", found)
    return found


def compare_remedies(study: Study) -> list[RemedyOutcome]:
    """Every usual remedy on the FP4 quantizer: whether it passes, what it costs, what was seen of its risk."""
    done = live("Remedies", len(REMEDIES))
    found = compare(
        study.node,
        study.stack,
        arch=study.params.arch,
        raw_dir=study.run.raw,
        on_done=lambda one: done(f"{one.remedy}: {one.status}"),
    )
    study.run.add_records("remedies", found)
    return found


def foresee_capture(study: Study) -> Forecast:
    """Whether the whole model's capture will trace, as one rank, asked without its GPUs.

    On a node with GPUs for the notebook's own profile and such a GPU; elsewhere for the case, and for a few layers of
    each kind only. Where it cannot be asked, the forecast says why.
    """
    params, gpus = study.params, study.env.gpus
    own = catalog.load(LaunchProfile, params.profile)
    profile = catalog.load(
        LaunchProfile, params.foresee_profile or (own.name if own.device == "cuda" else THE_CASE)
    )
    known = study.stack.sglang in KNOWN_SGLANG
    stack = catalog.load(Stack, params.foresee_stack or (study.stack.name if known else ITS_STACK))
    arch = f"sm{gpus[0].compute_capability.replace('.', '')}" if gpus else params.arch
    asked = {
        "arch": arch,
        "patch_level": params.patch_level,
        "tp": params.tp or None if profile == own else None,
    }
    say = live_line()
    say(f"asking SGLang {stack.sglang} about {profile.name}")
    try:
        found = foresee(
            study.node,
            stack,
            profile,
            **asked,
            quick=not gpus,
            raw_dir=study.run.raw,
            on_phase=lambda line: say(line.removeprefix("phase ")),
        )
    except WorkbookError as error:  # a gap that is seen; the servers can still be asked
        found = not_told(stack, profile, str(error), **asked)
    study.run.add_records("forecasts", [found])
    return found


def rehearse_capture(study: Study) -> SplitOutcome:
    """Compile and split the small FP4 module with SGLang's machinery at the asked patch level."""
    params = study.params
    found = split(
        study.node,
        study.stack,
        arch=params.arch,
        patch_level=params.patch_level,
        tp=params.tp or catalog.load(LaunchProfile, params.profile).tp,
        capture_mode=params.capture_mode,
        raw_dir=study.run.raw,
    )
    study.run.add_records("splits", [found])
    return found
