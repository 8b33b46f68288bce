"""Whether a launch profile's piecewise capture will trace: SGLang's own runner on GPUs that are not there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.version import Version

from workbook.boundary import diagnosis
from workbook.boundary.entries import check_arch
from workbook.boundary.levels import level
from workbook.boundary.model_files import architecture_of, few_layers, layers_of, model_files
from workbook.errors import UsageError
from workbook.node.base import NodeConnection
from workbook.node.probe import check_sglang, flashinfer_dir, run_probe, sources_env, sources_python
from workbook.serving.launch import server_argv
from workbook.types import (
    CaptureMode,
    Forecast,
    Foretold,
    Frame,
    GraphMemory,
    LaunchProfile,
    ModelBlocker,
    ProcessState,
    SplitGraph,
    Stack,
)

#: The releases of SGLang whose runner the probe was read against.
KNOWN_SGLANG = ("0.5.9", "0.5.12")
NO_COMPILE_FROM = Version("0.5.22")
TIMEOUT_S = 900
MODEL = "MODEL"  # stands in the arguments where the model's folder will
ENFORCE = "--enforce-piecewise-cuda-graph"
PORT = 30000  # in the arguments only; nothing listens
#: Memory of a captured graph beside its tensors, in MiB; what any capture takes once, in GiB; where it was measured.
PER_GRAPH_MIB, ONCE_GIB = 0.135, 0.05
MEASURED = "one H200, SGLang 0.5.12, torch 2.11.0"
_PHASE = re.compile(r"phase (.+): \d+\.\d s")


def foresee(
    node: NodeConnection,
    stack: Stack,
    profile: LaunchProfile,
    *,
    arch: str = "sm120",
    patch_level: int = 0,
    tp: int | None = None,
    rank: int = 0,
    quick: bool = False,
    enforce: bool = True,
    raw_dir: Path | None = None,
    on_phase: Callable[[str], None] = lambda line: None,
) -> Forecast:
    """What the piecewise capture of a profile's server will come to, asked without its GPUs.

    Args:
        stack: whose SGLang and FlashInfer are asked; its torch where the stack was created whole, else the node's.
        profile: what the server would be launched with; its capture mode is not asked, but piecewise.
        arch: the architecture of the GPUs that are declared.
        tp: tensor-parallel size, where it is not the profile's.
        rank: whose part of the model is built.
        quick: only a few layers of each kind.
        enforce: have SGLang overrule its own rules for switching it off, as the server's command does where it can.
        raw_dir: where the probe's own output is kept.
        on_phase: called with a line for each phase as it ends.

    Raises:
        UsageError: unknown architecture or level, a rank that is not one, no such model here, an SGLang that is not
            known or not there, or one that cannot do what the profile asks.
        WorkbookError: the probe itself failed.
    """
    check_arch(arch)
    level(patch_level)
    profile = profile.model_copy(update={"capture_mode": CaptureMode.PIECEWISE, "device": "cuda"})
    ranks = tp or profile.tp
    if not 0 <= rank < ranks:
        raise UsageError(f"No rank {rank} of {ranks};", f"allowed: 0 to {ranks - 1}.")
    files = model_files(node, profile)
    told = {
        "profile": profile,
        "stack": stack,
        "arch": arch,
        "tp": ranks,
        "rank": rank,
        "patch_level": patch_level,
        "layers": layers_of(files),
    }
    if quick:
        files = few_layers(files)
    if Version(stack.sglang) >= NO_COMPILE_FROM:
        return _without_compile(told, files)
    if stack.sglang not in KNOWN_SGLANG:
        raise UsageError(
            f"SGLang {stack.sglang}'s piecewise runner is not known;", f"known: {', '.join(KNOWN_SGLANG)}."
        )
    argv = server_argv(profile, stack.sglang, python="python", model_path=MODEL, port=PORT, tp=tp)
    argv = without_weights(argv[argv.index("--model-path") :])
    if not enforce:
        argv = [one for one in argv if one != ENFORCE]
    check_sglang(node, stack)
    if not node.exists(flashinfer_dir(node, stack)):
        raise UsageError(
            f"FlashInfer {stack.flashinfer} is not on node {node.node.name} (looked in {flashinfer_dir(node, stack)}).",
            f"Run: workbook stack create {stack.name} --sources",
        )
    spec = {"files": files, "argv": argv, "env": profile.env, "arch": arch, "gpus": ranks, "rank": rank}
    answer = ask(node, stack, spec, patch_level, raw_dir, on_phase)
    return judge(told, answer, argv)


def not_told(
    stack: Stack, profile: LaunchProfile, reason: str, *, arch: str, patch_level: int, tp: int | None = None
) -> Forecast:
    """The forecast where none could be made, which says why."""
    ranks = tp or profile.tp
    told = {
        "profile": profile,
        "stack": stack,
        "arch": arch,
        "tp": ranks,
        "rank": 0,
        "patch_level": patch_level,
    }
    return _forecast(
        told | {"layers": 0},
        outcome=Foretold.CANNOT_TELL,
        reason=reason,
        architecture="",
        layers=0,
        versions={"sglang": stack.sglang},
        gpu="",
        declared=None,
        seconds={},
        peak_gib=0,
    )


def without_weights(argv: list[str]) -> list[str]:
    """The same arguments for a model of which only the configuration is there."""
    asked = [*argv]
    if "--load-format" in asked:
        at = asked.index("--load-format")
        del asked[at : at + 2]
    return [*asked, "--load-format", "dummy", "--skip-tokenizer-init"]


def ask(
    node: NodeConnection,
    stack: Stack,
    spec: dict[str, Any],
    patch_level: int,
    raw_dir: Path | None,
    on_phase: Callable[[str], None],
) -> dict[str, Any]:
    """What the probe answers to a specification of its own (`probes/foresee.py`)."""
    answer = run_probe(
        node,
        stack,
        "foresee.py",
        [],
        spec=spec,
        python=sources_python(node, stack),
        timeout_s=TIMEOUT_S,
        patch_level=patch_level,
        env={
            **sources_env(node, stack, patch_level),
            "WORKBOOK_STAND_IN_KERNELS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        raw=raw_dir / f"foresee-level{patch_level}" if raw_dir else None,
        on_stderr=lambda line: on_phase(line) if _PHASE.fullmatch(line) else None,
    )
    assert isinstance(answer, dict)
    return answer


def _without_compile(told: dict[str, Any], files: dict[str, str]) -> Forecast:
    """The answer for an SGLang that compiles nothing: there is no trace to foretell."""
    stack: Stack = told["stack"]
    return _forecast(
        told,
        outcome=Foretold.SWITCHED_OFF,
        reason=f"capture by torch.compile was removed in {NO_COMPILE_FROM}; its "
        "breakable graphs run the model as it is, so nothing is traced",
        architecture=architecture_of(files),
        layers=layers_of(files),
        versions={"sglang": stack.sglang},
        gpu="",
        declared=None,
        seconds={},
        peak_gib=0,
    )


def judge(told: dict[str, Any], answer: dict[str, Any], argv: list[str]) -> Forecast:
    """The record of what the probe answered."""
    blockers = tuple(
        _blocker(number, stop, told, answer) for number, stop in enumerate(answer["stops"], start=1)
    )
    graphs = tuple(SplitGraph(**one) for one in answer["graphs"])
    outcome, reason = _outcome(answer, blockers)
    return _forecast(
        told,
        outcome=outcome,
        reason=reason,
        architecture=answer["architecture"],
        layers=answer["layers"],
        blockers=blockers,
        graphs=graphs,
        capture_sizes=answer["capture_sizes"],
        compiled_sizes=answer["compiled_sizes"],
        memory=_memory(answer, graphs) if outcome is Foretold.TRACES else None,
        switches=tuple(answer["switches"]),
        chosen=answer["chosen"],
        weights_gib=answer["weights_gib"],
        argv=tuple(argv),
        versions=answer["versions"],
        declared=answer["declared"] | {"input_shapes": [f"int64 ({n},)" for n in answer["compiled_sizes"]]},
        gpu=answer["gpu"],
        applied=answer["applied"],
        stand_ins=answer["stand_ins"],
        seconds=answer["seconds"],
        peak_gib=answer["peak_gib"],
    )


def _forecast(told: dict[str, Any], **found: Any) -> Forecast:
    profile: LaunchProfile = told["profile"]
    return Forecast(
        profile=profile.name,
        model=profile.model,
        quantization=profile.quantization,
        stack=told["stack"].name,
        torch_pin=told["stack"].torch,
        model_layers=told["layers"],
        arch=told["arch"],
        tp=told["tp"],
        rank=told["rank"],
        patch_level=told["patch_level"],
        **found,
    )


def _outcome(answer: dict[str, Any], blockers: tuple[ModelBlocker, ...]) -> tuple[Foretold, str]:
    if blockers:
        first, stop = blockers[0], answer["stops"][0]
        said = _first_line(first.message) or stop["error"]["type"].rpartition(".")[2]
        if stop["rests_on_stand_in"]:
            return Foretold.CANNOT_TELL, f"the trace rests on a stand-in: {said}"
        return (
            Foretold.STOPS,
            f"{first.operation or said} in {first.blamed or 'a function of neither library'}",
        )
    if error := answer["error"]:
        said = _first_line(f"{error['type'].rpartition('.')[2]}: {error['message']}").removesuffix(": ")
        where = _blamed(diagnosis.frames(error["stack"]))
        return Foretold.CANNOT_TELL, f"SGLang fails ({answer['stage']}): {said}" + (
            f" in {where}" if where else ""
        )
    if answer["compiled"] and not answer["graphs"]:
        return Foretold.CANNOT_TELL, "SGLang's piecewise runner compiled no graph"
    if answer["compiled"]:
        return Foretold.TRACES, ""
    silent = "SGLang made no piecewise runner, and does not say why"
    return Foretold.SWITCHED_OFF, "; ".join(answer["switches"]) or silent


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def _blocker(number: int, stop: dict[str, Any], told: dict[str, Any], answer: dict[str, Any]) -> ModelBlocker:
    fields = diagnosis.fields(stop["error"])
    return ModelBlocker(
        order=number,
        entry=answer["architecture"],
        arch=told["arch"],
        process_state=ProcessState.WARM,
        blamed=_blamed(fields["frames"]) if stop["error"] else None,
        layer=stop["layer"],
        passed=stop["passed"],
        how=stop["how"],
        past=_past(stop),
        past_level=stop.get("level"),
        seconds=stop["seconds"],
        versions=answer["versions"],
        declared=None,
        stand_ins=(),  # those of the forecast
        **fields,
    )


def _blamed(chain: tuple[Frame, ...]) -> str | None:
    """The innermost function of FlashInfer, else of SGLang, as module:function:line."""
    for package in ("flashinfer", "sglang"):
        inside = [frame for frame in chain if frame.module.partition(".")[0] == package]
        if inside:
            return f"{inside[-1].module}:{inside[-1].function}:{inside[-1].line}"
    return None


def _past(stop: dict[str, Any]) -> str:
    if stop["error"] is None:
        return "nothing is left"
    if number := stop.get("level"):
        found = level(number)
        return f"patch level {number} ({found.name}): {found.changes}"
    if stop["passed"] == "constant":
        return f"no patch level; a remedy: read the value before the trace, since {stop['how']}"
    if stop["passed"] == "opaque":
        return f"no patch level; a remedy: an operator of its own, since {stop['how']}"
    return f"no patch level, and no remedy was found: {stop['how']}"


def _memory(answer: dict[str, Any], graphs: tuple[SplitGraph, ...]) -> GraphMemory:
    count = graphs[0].compiled * len(answer["capture_sizes"])
    pool = answer["pool_bytes"] / 2**30
    return GraphMemory(
        pool_gib=pool,
        graphs=count,
        per_graph_mib=PER_GRAPH_MIB,
        total_gib=pool + count * PER_GRAPH_MIB / 1024 + ONCE_GIB,
        basis=f"tensors alive at once at {answer['compiled_sizes'][0]} tokens, and {PER_GRAPH_MIB} MiB a graph and "
        f"{ONCE_GIB} GiB once, as measured on {MEASURED}",
    )
