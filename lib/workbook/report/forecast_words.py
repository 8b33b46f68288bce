"""A forecast in words, for a terminal and for a table alike."""

from collections.abc import Sequence

from workbook.boundary.levels import level
from workbook.types import Forecast, Foretold, Frame, Lane, ModelBlocker, SplitGraph, Status


def sentence(found: Forecast) -> str:
    """The answer in one sentence."""
    reason = found.reason.rstrip(". ")
    sglang = found.versions.get("sglang", "of no known version")
    asked = f"{found.profile} at patch level {found.patch_level} ({level(found.patch_level).name}) on SGLang {sglang}"
    match found.outcome:
        case Foretold.TRACES:
            cut = f", {found.graphs[0].pieces} pieces" if found.graphs else ""
            return f"{asked} traces to its end: {depth(found)}{cut}."
        case Foretold.STOPS:
            first = stops(found)[0]
            where = f" ({first.layer})" if first.layer else ""
            return f"{asked} stops at {stopped_at(first)}{where}; {_way_out(found)}."
        case Foretold.SWITCHED_OFF:
            return f"SGLang {sglang} switches piecewise capture of {found.profile} off: {reason}."
        case Foretold.CANNOT_TELL:
            return f"Cannot tell whether {asked} traces: {reason}."


def stops(found: Forecast) -> list[ModelBlocker]:
    """What stops the trace, in order, without the note of how the list ends."""
    return [one for one in found.blockers if one.status is not Status.OK]


def stopped_at(stop: ModelBlocker) -> str:
    """The operation, or what was said where it has no name."""
    return stop.operation or stop.message.partition("\n")[0] or "an operation without a name"


def chain(stop: ModelBlocker) -> list[Frame]:
    """The call chain without what Dynamo put between the calls."""
    return [frame for frame in stop.frames if frame.lane is not Lane.TORCH]


def _way_out(found: Forecast) -> str:
    there = stops(found)
    which = {1: "it", 2: "both stops"}.get(len(there), f"all {len(there)} stops")
    levels = [one.past_level for one in there]
    if found.blockers[-1].status is not Status.OK:
        found_so_far = f"{len(there)} stop{'s were' if len(there) > 1 else ' was'} found"
        if (last := levels[-1]) is None:
            return f"{found_so_far}, and what comes after the last is not known"
        name = level(last).name
        return (
            f"{found_so_far}; patch level {last} ({name}) is for the last, and what comes after was not tried"
        )
    if None in levels:
        return f"of {len(there)} stops, no patch level gets past {levels.count(None)}"
    highest = max(one for one in levels if one is not None)
    # What comes after a stop is looked for in the first layers alone, as many as have each kind.
    return f"patch level {highest} ({level(highest).name}) gets past {which}, and a few layers of each kind then trace"


def facts(found: Forecast) -> dict[str, str]:
    """What the answer is about and rests on, by name; what is not known is left out."""
    known = {
        "model": f"{found.architecture or 'no class'} ({found.model}), {depth(found)}, "
        f"{found.quantization or found.chosen.get('quantization', 'no quantization')}",
        "as": f"rank {found.rank} of {found.tp} (tensor parallel)",
        "declared": _declared(found),
        "versions": _versions(found),
        "pieces": pieces(found),
        "capture sizes": sizes(found.capture_sizes),
        "graph memory": _memory(found),
        "weights": f"{found.weights_gib:.2f} GiB on this rank{_of_few(found)}" if found.weights_gib else "",
        "SGLang chose": ", ".join(f"{name} {value}" for name, value in found.chosen.items()),
        "SGLang says": "; ".join(found.switches),
        "took": _took(found),
    }
    return {name: words for name, words in known.items() if words}


def depth(found: Forecast) -> str:
    """How many of the model's layers were traced."""
    whole = found.model_layers or found.layers
    return f"all {whole} layers" if whole == found.layers else f"the first {found.layers} of {whole} layers"


def pieces(found: Forecast) -> str:
    """How the graphs that Dynamo made were split, and at which operators; equal ones are told once."""
    told = list(dict.fromkeys(map(_split, found.graphs)))
    several = f"{len(found.graphs)} graphs, since Dynamo traced again, each " if len(found.graphs) > 1 else ""
    return several + "; then ".join(told)


def _split(graph: SplitGraph) -> str:
    at = ", ".join(f"{name} ({count})" for name, count in graph.split_ops.items())
    return f"{graph.pieces} pieces ({graph.compiled} compiled, {graph.split} split off{f' at {at}' if at else ''})"


def sizes(tokens: Sequence[int]) -> str:
    """How many capture sizes there are, the smallest and the largest."""
    if len(tokens) < 2:
        return f"{tokens[0]:,} tokens" if tokens else ""
    return f"{len(tokens)}, from {min(tokens):,} to {max(tokens):,} tokens"


def _declared(found: Forecast) -> str:
    if found.declared is None:
        return ""
    told = found.declared
    capability = ".".join(map(str, told.compute_capability))
    return (
        f"{found.tp} × {found.gpu} ({found.arch}, compute capability {capability}), CUDA {told.cuda_version} "
        f"{told.cuda_version_source}; every tensor is a fake one"
    )


def _versions(found: Forecast) -> str:
    there = found.versions.get("torch", "")
    other = bool(there and found.torch_pin) and there.partition("+")[0] != found.torch_pin
    note = (
        f"; torch is not the stack's {found.torch_pin}, and another Dynamo may stop elsewhere"
        if other
        else ""
    )
    return f"stack {found.stack}: {', '.join(f'{name} {one}' for name, one in found.versions.items())}{note}"


def _memory(found: Forecast) -> str:
    told = found.memory
    if told is None:
        return ""
    return f"about {told.total_gib:.2f} GiB for {told.graphs:,} graphs{_of_few(found)}, an estimate: {told.basis}"


def _of_few(found: Forecast) -> str:
    return " of the layers traced" if found.layers < found.model_layers else ""


def _took(found: Forecast) -> str:
    if not found.seconds:
        return ""
    longest = sorted(found.seconds.items(), key=lambda one: -one[1])[:3]
    parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest)
    return f"{sum(found.seconds.values()):.0f} s ({parts}), {found.peak_gib:.1f} GiB of memory"
