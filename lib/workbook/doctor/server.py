"""Whether the server of a launch profile can run on the node."""

from workbook.doctor.check import Asked, failed, not_applicable, ok, warning
from workbook.doctor.facts import NodeFacts
from workbook.errors import UsageError
from workbook.serving.launch import server_argv
from workbook.serving.tiny_model import SIZES
from workbook.types import DoctorCheck, LaunchProfile


def checks(facts: NodeFacts, asked: Asked, profile: LaunchProfile) -> list[DoctorCheck]:
    """All that the profile adds."""
    return [
        gpus(facts, asked, profile),
        flags(facts, profile),
        model(facts, profile),
        weights(facts, profile),
    ]


def gpus(facts: NodeFacts, asked: Asked, profile: LaunchProfile) -> DoctorCheck:
    name, needed = "profile: GPUs", f"{profile.tp} for tp {profile.tp}"
    if profile.device == "cpu":
        return not_applicable(name, "a CPU server")
    count = len(facts.visible)
    if count < profile.tp:
        remedy = (
            f"Name a node with {profile.tp} GPUs (--node), let gpus: in {asked.description} name more, "
            f"or lower tp in data/profiles/{profile.name}.yaml."
        )
        return failed(name, f"{count} to be used", needed, remedy)
    return ok(name, f"{count} to be used", needed)


def flags(facts: NodeFacts, profile: LaunchProfile) -> DoctorCheck:
    name, needed = "profile: flags", "flags that the node's SGLang takes"
    version = facts.packages.get("sglang")
    if version is None:
        return not_applicable(name, "no SGLang to translate it for")
    try:
        server_argv(profile, version, python="python", model_path=profile.model, port=0)
    except UsageError as error:
        remedy = error.hint or f"Mend data/profiles/{profile.name}.yaml, or take another stack."
        return failed(name, error.message.rstrip(";."), needed, f"{remedy[0].upper()}{remedy[1:]}")
    return ok(name, f"SGLang {version} takes them", needed)


def model(facts: NodeFacts, profile: LaunchProfile) -> DoctorCheck:
    name, needed = "profile: model", "a folder on the node, or a name in its Hugging Face cache"
    word, _, sizes = profile.model.partition(":")
    if word == "tiny":
        if sizes and not SIZES.fullmatch(sizes):
            remedy = f"Write it as tiny:hidden=128,layers=2 in data/profiles/{profile.name}.yaml."
            return failed(name, profile.model, "sizes of a tiny model", remedy)
        return ok(name, f"{profile.model}, made there on first use")
    if facts.model is None or not facts.model.path:
        remedy = (
            f"Let model: in data/profiles/{profile.name}.yaml name its folder on the node, or fetch it there with "
            "hf download NAME."
        )
        if profile.model.startswith(("/", ".", "~")) or facts.model is None or facts.model.offline:
            return failed(name, f"no {profile.model} there", needed, remedy)
        said = f"no {profile.model} there; SGLang would look for it on the hub when it starts"
        return warning(name, said, needed, remedy)
    if facts.model.missing and profile.load_format != "dummy":
        return failed(
            name,
            f"{facts.model.path}, which lacks {facts.model.missing} of the files that its index names",
            "all of its weights",
            "Fetch it again: hf download takes up where it stopped.",
        )
    return ok(name, facts.model.path, needed)


def weights(facts: NodeFacts, profile: LaunchProfile) -> DoctorCheck:
    name = "profile: memory"
    size = facts.model.weights_gib if facts.model else None
    if size is None or profile.load_format == "dummy" or not facts.visible or profile.device == "cpu":
        return not_applicable(name, "the size of its weights is not known here")
    least = min(facts.visible, key=lambda gpu: gpu.memory_gib)
    fraction = profile.memory_fraction or 1.0
    share, room = size / profile.tp, least.memory_gib * fraction
    said = f"{size:.1f} GiB of weights, {share:.1f} a GPU of {least.memory_gib:.1f}"
    needed = f"less than {room:.1f} GiB a GPU, with room for the KV cache"
    if share >= room:
        remedy = f"Raise tp in data/profiles/{profile.name}.yaml, or take a smaller or more quantized model."
        return failed(name, said, needed, remedy)
    if any(share >= gpu.free_gib * fraction for gpu in facts.visible):
        return warning(
            name, f"{said}, not all of it free", needed, "See the check of GPU memory for who holds it."
        )
    return ok(name, said, needed)
