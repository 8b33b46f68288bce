"""The steps of the notebooks: each runs on the study's node, keeps its records in the study's run, and returns them."""

from workbook import catalog
from workbook.boundary.blockers import blockers
from workbook.boundary.levels import patch_diffs
from workbook.boundary.remedies import REMEDIES, compare
from workbook.boundary.trace import TraceRequest, trace, trace_all
from workbook.capture.split import split
from workbook.errors import WorkbookError
from workbook.node.probe import overlay_env, stack_python
from workbook.progress import live
from workbook.serving.bench import run_bench
from workbook.serving.launch import pasteable, server_argv, server_env
from workbook.serving.server import Server, installed_sglang
from workbook.study import Study
from workbook.types import (
    BenchPoint,
    Blocker,
    LaunchProfile,
    PatchDiff,
    ProcessState,
    RemedyOutcome,
    ServeOutcome,
    SplitOutcome,
    TraceOutcome,
)

DEFAULT_PORT = 30000  # SGLang's own


def prepare_server(study: Study) -> Server:
    """The profile's server, not yet started: `command` is what will run."""
    profile = catalog.load(LaunchProfile, study.params.profile)
    return Server(study.node, profile, log=study.run.raw / "server.log")


def measure_baseline(study: Study, server: Server) -> tuple[ServeOutcome, list[BenchPoint]]:
    """Start the server, measure it at every concurrency and repeat, stop it."""
    params = study.params
    profile = catalog.load(LaunchProfile, params.profile)
    concurrencies = params.concurrencies or profile.concurrencies
    done = live("Benchmark points", len(concurrencies) * params.repeats)
    try:
        with server:
            points = run_bench(
                study.node,
                server.url,
                profile,
                server.model_path,
                concurrencies=concurrencies,
                repeats=params.repeats,
                raw_dir=study.run.raw / "bench",
                label=params.label,
                run_id=study.run.id,
                seed=params.seed,
                on_point=lambda point: done(
                    f"concurrency {point.concurrency}, {point.output_tok_s:.0f} tok/s"
                ),
                server_death=server.death,
            )
    finally:  # a server that died is on record too
        study.run.add_records("serve", [server.outcome])
    study.run.add_table("points", points)
    return server.outcome, points


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


def capture_command(study: Study) -> str:
    """The command that would serve the profile in the asked capture mode, or why the stack's SGLang refuses it."""
    params = study.params
    profile = catalog.load(LaunchProfile, params.profile).model_copy(
        update={"capture_mode": params.capture_mode}
    )
    python = stack_python(study.node, study.stack)
    try:
        argv = server_argv(
            profile,
            installed_sglang(study.node, python),
            python=python,
            model_path=profile.model,
            port=DEFAULT_PORT,
            tp=params.tp,
        )
    except WorkbookError as refusal:
        return f"Refused: {refusal}"
    env = server_env(profile, patch_level=params.patch_level)
    if python != study.node.python and profile.device == "cuda":  # this stack's FlashInfer lies beside it
        env |= overlay_env(study.stack, params.patch_level)
    return pasteable(argv, env)


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


def rehearse_capture(study: Study) -> SplitOutcome:
    """Compile and split the small FP4 module with SGLang's machinery at the asked patch level."""
    params = study.params
    found = split(
        study.node,
        study.stack,
        arch=params.arch,
        patch_level=params.patch_level,
        tp=params.tp,
        capture_mode=params.capture_mode,
        raw_dir=study.run.raw,
    )
    study.run.add_records("splits", [found])
    return found
