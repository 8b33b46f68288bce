"""The model configurations under data/models: whole, consistent, and what transformers can read."""

import functools
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from workbook import catalog
from workbook.errors import UsageError
from workbook.serving import model_configs
from workbook.types import ModelFamily

FAMILIES = [catalog.load(ModelFamily, name) for name in catalog.names(ModelFamily)]
CHECKPOINTS = model_configs.checkpoint_names()
GOOD = (
    "{name: x, description: d, sources: [s], checkpoints: {X: {}}, "
    "config: {architectures: [A], model_type: a, num_hidden_layers: 1}}"
)


@functools.cache
def read(checkpoint: str) -> tuple[dict, dict]:  # type: ignore[type-arg]
    texts = model_configs.files(checkpoint)
    return json.loads(texts["config.json"]), json.loads(texts.get("hf_quant_config.json", "{}"))


@pytest.mark.parametrize(
    "model_type", ["glm_moe_dsa", "qwen3", "qwen3_moe", "llama", "deepseek_v3", "glm4_moe", "gpt_oss"]
)
def test_every_promised_model_is_there_in_bf16_and_in_4_bit(model_type: str) -> None:
    checkpoints = [
        c for family in FAMILIES if family.config["model_type"] == model_type for c in family.checkpoints
    ]
    bits = ["FP4" in json.dumps(read(name)).upper() for name in checkpoints]
    plain = [not (read(name)[0].get("quantization_config") or read(name)[1]) for name in checkpoints]
    assert any(bits) and any(plain)


def test_no_checkpoint_has_two_meanings() -> None:
    published = [c.published for family in FAMILIES for c in family.checkpoints.values() if c.published]
    assert max(Counter(CHECKPOINTS + published).values()) == 1


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_checkpoint_fits_itself(checkpoint: str) -> None:
    config, hf_quant = read(checkpoint)
    layers = config["num_hidden_layers"]
    for key, kinds in config.items():
        if key.endswith("layer_types"):
            assert len(kinds) == layers, key
    assert config["num_attention_heads"] % 8 == 0  # as many ranks as the case has
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0
    assert config.get("first_k_dense_replace", 0) < layers
    quant = config.get("quantization_config", {})
    names = hf_quant.get("quantization", {}).get("exclude_modules", [])
    names = [*names, *quant.get("modules_to_not_convert", []), *quant.get("ignore", [])]
    last = layers + config.get("num_nextn_predict_layers", 0) - 1
    assert len(names) == len(set(names))
    assert not any("{" in name for name in names)
    assert max((int(n) for name in names for n in re.findall(r"layers\.(\d+)", name)), default=last) <= last


def test_a_range_of_layers_becomes_a_name_per_layer() -> None:
    excluded = read("GLM-5-NVFP4")[1]["quantization"]["exclude_modules"]
    assert len(excluded) == 1 + 5 * 78 + 79 + 1  # as many as NVIDIA's own file has
    assert "model.layers.0.self_attn.o_proj" in excluded and "model.layers.77.self_attn.indexer*" in excluded


def test_a_checkpoint_is_found_by_either_name_and_has_its_own_values() -> None:
    assert model_configs.find("openai/gpt-oss-20b") == model_configs.find("gpt-oss-20b")
    assert read("gpt-oss-20b")[0]["num_hidden_layers"] == 24
    assert read("gpt-oss-20b")[0]["quantization_config"]["quant_method"] == "mxfp4"
    assert read("gpt-oss-120b")[0]["num_hidden_layers"] == 36
    assert "quantization_config" not in read("unsloth/DeepSeek-V3-bf16")[0]
    assert model_configs.find("gpt-oss-7b") is None


def test_an_unknown_checkpoint_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"No checkpoint named 'GLM-5-NVFP44' .* did you mean GLM-5-NVFP4\?"):
        model_configs.files("GLM-5-NVFP44")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("model_type: a, ", "", "config says no model_type"),
        ("model_type: a", "model_type: a, quantization_config: {}", "belongs to a checkpoint"),
        ("{X: {}}", "{X: {config: {quantization_config: {}}}}", "belongs to a checkpoint"),
        ("{X: {}}", "{X: {published: X}}", "checkpoints.X.published"),
        ("{X: {}}", "{X: {quantisation_config: {}}}", "did you mean quantization_config"),
        ("[s]", "[]", "sources"),
    ],
)
def test_a_mistake_in_a_family_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, sentence: str
) -> None:
    monkeypatch.setattr(catalog, "DATA", tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "x.yaml").write_text(GOOD)
    catalog.load(ModelFamily, "x")
    (tmp_path / "models" / "x.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=sentence):
        catalog.load(ModelFamily, "x")


# run away from the tests: its import is heavy, and with a torchvision for another torch some classes do not import
READ = """
import json, pathlib, sys
sys.modules["torchvision"] = None
import transformers
found = {}
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if json.loads((folder / "config.json").read_text())["model_type"] in transformers.CONFIG_MAPPING:
        one = transformers.AutoConfig.from_pretrained(folder)
        theta = one.rope_parameters["rope_theta"]
        found[folder.name] = [type(one).__name__, one.num_hidden_layers, theta, str(one.dtype)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def as_transformers_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[str, int, float, str]]:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("no transformers here")
    folder = tmp_path_factory.mktemp("models")
    for checkpoint in CHECKPOINTS:
        (folder / checkpoint).mkdir()
        for file, text in model_configs.files(checkpoint).items():
            (folder / checkpoint / file).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_transformers_reads_it(
    checkpoint: str, as_transformers_reads_them: dict[str, tuple[str, int, float, str]]
) -> None:
    config, _ = read(checkpoint)
    if checkpoint not in as_transformers_reads_them:
        pytest.skip(f"this transformers knows no {config['model_type']}")
    name, layers, rope_theta, dtype = as_transformers_reads_them[checkpoint]
    assert name.removesuffix("Config").lower() == config["model_type"].replace("_", "")
    assert layers == config["num_hidden_layers"]
    assert rope_theta == (config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    assert dtype == ("torch.bfloat16" if config.keys() & {"dtype", "torch_dtype"} else "None")
