"""The configuration of a profile's model, from which SGLang builds its class: no weights."""

import json
from pathlib import Path
from typing import Any

from workbook import catalog
from workbook.errors import UsageError, nearest
from workbook.node.base import NodeConnection
from workbook.serving import model_configs
from workbook.serving.tiny_model import resolve_model
from workbook.types import CaptureMode, LaunchProfile

CONFIG, QUANTIZATION = "config.json", "hf_quant_config.json"
MODELOPT = {"NVFP4": "modelopt_fp4", "FP8": "modelopt_fp8"}


def profile_for(name: str) -> LaunchProfile:
    """A launch profile by its name; for a model's name, or its folder, a profile that leaves all else to SGLang.

    Raises:
        UsageError: it is neither.
    """
    if name in catalog.names(LaunchProfile):
        return catalog.load(LaunchProfile, name)
    if (Path(name) / CONFIG).is_file() or model_configs.find(name):
        return LaunchProfile(
            name=Path(name).name,
            description=f"{name}, all else left to SGLang",
            model=name,
            quantization=_quantization(name),
            capture_mode=CaptureMode.PIECEWISE,
            concurrencies=(1,),
            input_tokens=1,
            output_tokens=1,
        )
    known = [*catalog.names(LaunchProfile), *model_configs.checkpoint_names()]
    raise UsageError(
        f"{name!r} is no launch profile, no model of data/models and no folder with a {CONFIG};",
        nearest(name, known, "`ls data/profiles data/models` shows what there is."),
    )


def model_files(node: NodeConnection, profile: LaunchProfile) -> dict[str, str]:
    """The model's config.json, and its hf_quant_config.json if there is one, by file name.

    Raises:
        UsageError: the model is no folder here and not in data/models, or its config.json is no JSON object.
        WorkbookError: a tiny model could not be made.
    """
    if profile.model.partition(":")[0] == "tiny":
        return _read(Path(resolve_model(node, profile)))
    if (folder := Path(profile.model)).is_dir():
        return _read(folder)
    if model_configs.find(profile.model):
        return model_configs.files(profile.model)
    raise UsageError(
        f"Model {profile.model!r} of profile {profile.name} is no folder here, and data/models has no such checkpoint;",
        nearest(
            profile.model, model_configs.checkpoint_names(), "put its config.json in a folder and name that."
        ),
    )


def layers_of(files: dict[str, str]) -> int:
    """How many layers the model has by its config.json; 0 where that does not say."""
    return _layers(json.loads(files[CONFIG]))


def _layers(config: dict[str, Any]) -> int:
    there = config.get("num_hidden_layers")
    return there if isinstance(there, int) and there > 0 else 0


def few_layers(files: dict[str, str]) -> dict[str, str]:
    """The same model cut to its first layers, as many as have each kind of layer at least once and two at least."""
    config = json.loads(files[CONFIG])
    cut = _cut(config)
    return files | {CONFIG: json.dumps(cut)}


def _cut(config: dict[str, Any]) -> dict[str, Any]:
    layers = _layers(config)
    kinds = config.get("layer_types") or []
    wanted = max(
        int(config.get("first_k_dense_replace") or 0) + 1,
        max((kinds.index(one) + 1 for one in set(kinds)), default=0),
        int(config.get("decoder_sparse_step") or 0),
        2,
    )
    if not layers or wanted >= layers:
        return config
    return {
        name: wanted
        if name == "num_hidden_layers"
        else value[:wanted]
        if _a_layer_each(value, layers)
        else value
        for name, value in config.items()
    }


def _a_layer_each(value: object, layers: int) -> bool:
    return isinstance(value, list) and len(value) == layers


def _read(folder: Path) -> dict[str, str]:
    found = {
        name: (folder / name).read_text() for name in (CONFIG, QUANTIZATION) if (folder / name).is_file()
    }
    if CONFIG not in found:
        raise UsageError(f"{folder} has no {CONFIG}.")
    for name, text in found.items():
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise UsageError(f"{folder / name} is no JSON: {error}.") from None
        if not isinstance(parsed, dict):
            raise UsageError(f"{folder / name} is no JSON object.")
    return found


def _quantization(name: str) -> str | None:
    """What SGLang has to be told of a checkpoint's quantization; it reads the other kinds from config.json itself."""
    files = _read(Path(name)) if Path(name).is_dir() else model_configs.files(name)
    if QUANTIZATION not in files:
        return None
    algorithm = json.loads(files[QUANTIZATION]).get("quantization", {}).get("quant_algo")
    return MODELOPT.get(str(algorithm))
