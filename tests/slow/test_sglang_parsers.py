"""Every shipped profile, in every capture mode, before each SGLang's own argument parser and resolution.

The releases are fetched without their dependencies (a folder each, kept between tests) and run with this
environment's torch and transformers. A GPU is declared, not used.
"""

import json
import re
from dataclasses import dataclass, field
from importlib.util import find_spec

import pytest

from tests.sglang_wheels import NoWheel, ask, fetch
from workbook.catalog import load, names
from workbook.errors import UsageError
from workbook.node.local import LocalConnection
from workbook.serving import options
from workbook.serving.launch import server_argv
from workbook.serving.tiny_model import resolve_model
from workbook.types import CaptureMode, LaunchProfile, Node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sglang") is None, reason="no sglang in this environment"),
]

VERSIONS = ["0.5.9", "0.5.10.post1", "0.5.12", "0.5.16", "0.5.20", "0.5.23"]
PORT = 31234
CASE_GPUS = {"count": 8, "capability": [12, 0], "memory_mib": 97887}  # RTX PRO 6000 Blackwell
HOPPER = {"count": 1, "capability": [9, 0], "memory_mib": 143771}  # H200
CAPTURES = {
    CaptureMode.EAGER: ("disabled", "disabled"),
    CaptureMode.DECODE_GRAPHS: ("full", "disabled"),
    CaptureMode.PIECEWISE: ("full", "tc_piecewise"),
    CaptureMode.BREAKABLE: ("full", "breakable"),
}
WRONG = {
    "--moe-runner-backend": "cutlas", "--attention-backend": "falshinfer", "--quantization": "fp5",
    "--tp-size": "many", "--enable-metric": "", "--moe-a2a-backend": "deep", "--load-format": "none",
    "--kv-cache-dtype": "fp8", "--enable-metrics": "yes",
}  # fmt: skip
# of GLM-5 what SGLang looks at before it loads anything, small
GLM = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": 512,
    "intermediate_size": 1024, "moe_intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 256,
    "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "index_head_dim": 128,
    "index_n_heads": 8, "index_topk": 2048, "vocab_size": 1024, "max_position_embeddings": 8192,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model folder for each profile, by the profile's name: configs only."""
    glm = tmp_path_factory.mktemp("glm")
    (glm / "config.json").write_text(json.dumps(GLM))
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_STACKS", str(tmp_path_factory.mktemp("stacks")))
        for name in names(LaunchProfile):
            profile = load(LaunchProfile, name)
            weightless = profile.model_copy(update={"model": re.sub(r"[:,]seed=\d+", "", profile.model)})
            tiny = profile.model.startswith("tiny")
            folders[name] = (
                resolve_model(LocalConnection(Node(name="here")), weightless) if tiny else str(glm)
            )
    return folders


@dataclass
class Told:
    """What one version's SGLang made of everything, and what was refused before it was asked."""

    version: str
    options: dict = field(default_factory=dict)
    profiles: list[tuple[LaunchProfile, dict]] = field(default_factory=list)
    refusals: dict[tuple[str, CaptureMode], str] = field(default_factory=dict)
    wrong: dict[str, dict] = field(default_factory=dict)


@pytest.fixture(scope="module", params=VERSIONS)
def told(request: pytest.FixtureRequest, models: dict[str, str]) -> Told:
    """One process a version: its imports take ten seconds."""
    made = Told(request.param)
    try:
        fetch(made.version)
    except NoWheel as error:
        pytest.skip(f"sglang {made.version} could not be fetched: {error}")
    asked, requests = [], []
    for name in names(LaunchProfile):
        for mode in CaptureMode:
            profile = load(LaunchProfile, name).model_copy(update={"capture_mode": mode})
            try:
                argv = server_argv(profile, made.version, python="python", model_path=models[name], port=PORT)
            except UsageError as refusal:
                made.refusals[name, mode] = str(refusal)
            else:
                asked.append(profile)
                requests.append({"argv": argv[3:], "gpu": gpus(profile)})
    for flag, value in WRONG.items():
        requests.append({"argv": ["--model-path", "m", flag, *([value] if value else [])], "gpu": None})
    answer = ask(made.version, requests)
    made.options = answer["options"]
    made.profiles = list(zip(asked, answer["answers"], strict=False))
    made.wrong = dict(zip(WRONG, answer["answers"][len(asked) :], strict=True))
    return made


def gpus(profile: LaunchProfile) -> dict | None:
    if profile.device == "cpu":
        return None
    return CASE_GPUS if profile.tp == 8 else HOPPER


def test_the_record_is_what_the_parser_takes(told: Told) -> None:
    assert told.options == options.raw()[told.version], "make it anew: python -m tests.sglang_wheels"


def test_every_profile_means_to_sglang_what_it_says(told: Told, models: dict[str, str]) -> None:
    assert len(told.profiles) + len(told.refusals) == len(names(LaunchProfile)) * len(CaptureMode)
    for profile, answer in told.profiles:
        assert "refused" not in answer, (profile.name, answer)
        meant = {
            "model_path": models[profile.name], "load_format": profile.load_format, "device": profile.device,
            "tp_size": profile.tp, "ep_size": profile.ep, "quantization": profile.quantization,
            "host": "127.0.0.1", "port": PORT, "attention_backend": profile.attention_backend,
            "enable_mscclpp": profile.all_reduce == "mscclpp",
            "disable_custom_all_reduce": profile.all_reduce != "auto",
        }  # fmt: skip
        if profile.memory_fraction is not None:
            meant["mem_fraction_static"] = profile.memory_fraction
        if profile.moe_runner is not None:
            meant |= {"moe_runner_backend": profile.moe_runner, "moe_a2a_backend": profile.moe_a2a or "none"}
        for phase in ("decode", "prefill"):
            if backend := getattr(profile, f"nsa_{phase}_backend"):
                meant[f"{'dsa' if f'dsa_{phase}_backend' in answer else 'nsa'}_{phase}_backend"] = backend
        assert {key: answer[key] for key in meant} == meant, profile.name
        if profile.device == "cuda":
            captured = answer["decode"], answer["prefill"]
            assert captured == CAPTURES[profile.capture_mode], (profile.name, profile.capture_mode)


def test_what_a_version_cannot_do_is_refused_with_the_reason(told: Told) -> None:
    for (name, mode), reason in told.refusals.items():
        if name == "tiny-cpu":
            assert mode is not CaptureMode.EAGER and "a CPU has no CUDA graphs" in reason
        elif mode is CaptureMode.PIECEWISE:
            assert told.version == "0.5.23"
            assert "tc_piecewise was removed in 0.5.22; use capture_mode: breakable" in reason
        elif mode is CaptureMode.BREAKABLE:
            assert told.version in ("0.5.9", "0.5.10.post1")
            assert "came with 0.5.11; use capture_mode: piecewise" in reason
        else:
            assert mode is CaptureMode.EAGER and name.endswith("mscclpp") and "in CUDA graphs only" in reason


def test_what_is_refused_here_the_parser_refuses_too(told: Told) -> None:
    version = options.known_version(told.version)
    for flag, value in WRONG.items():
        assert options.misfit(version, flag, [value] if value else []), flag
        assert "refused" in told.wrong[flag], flag


def test_the_case_captures_its_52_decode_sizes(told: Told) -> None:
    sizes = {
        len(answer["decode_sizes"])
        for profile, answer in told.profiles
        if profile.name == "glm5-nvfp4-tp8" and profile.capture_mode is CaptureMode.DECODE_GRAPHS
    }
    assert sizes == {52} or told.version not in ("0.5.9", "0.5.10.post1", "0.5.12", "0.5.16")
