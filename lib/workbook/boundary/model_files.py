"""The configuration of a profile's model, from which SGLang builds its class: no weights."""

import json
import reprlib
import tempfile
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

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
        return _read_there(node, Path(resolve_model(node, profile)))
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


class _Shape(BaseModel):
    """What of a config.json tells how many layers there are, and of which kinds."""

    architectures: list[str] | None = None
    num_hidden_layers: int | None = Field(default=None, ge=1, le=1000)
    layer_types: list[str] | None = None
    first_k_dense_replace: int | None = Field(default=None, ge=0)
    moe_layer_freq: int | list[int] | None = None
    decoder_sparse_step: int | None = None
    mlp_only_layers: list[int] | None = None

    @property
    def layers(self) -> int:
        return self.num_hidden_layers or 0

    def is_dense(self, layer: int) -> bool:
        """Whether a layer has no experts in a model whose other layers have them."""
        every = self.moe_layer_freq if isinstance(self.moe_layer_freq, int) else 1
        return bool(
            layer < (self.first_k_dense_replace or 0)
            or layer % (every or 1)
            or (layer + 1) % (self.decoder_sparse_step or 1)
            or layer in (self.mlp_only_layers or ())
        )

    def wanted(self) -> int:
        """As many first layers as have each kind of layer at least once, and two at least."""
        kinds = self.layer_types or []
        sparse = next((layer for layer in range(self.layers) if not self.is_dense(layer)), 0)
        return max(sparse + 1, max((kinds.index(one) + 1 for one in set(kinds)), default=0), 2)


def layers_of(files: dict[str, str]) -> int:
    """How many layers the model has by its config.json; 0 where that does not say."""
    return _shape(files).layers


def architecture_of(files: dict[str, str]) -> str:
    """The class that the model's config.json names first; "unknown" where it names none."""
    return next(iter(_shape(files).architectures or ()), "unknown")


def few_layers(files: dict[str, str]) -> dict[str, str]:
    """The same model cut to its first layers, as many as have each kind of layer at least once and two at least."""
    config, shape = json.loads(files[CONFIG]), _shape(files)
    if (wanted := shape.wanted()) >= shape.layers:
        return files
    cut = {
        name: value[:wanted] if _a_layer_each(value, shape.layers) else value
        for name, value in config.items()
    }
    return files | {CONFIG: json.dumps(cut | {"num_hidden_layers": wanted})}


def _shape(files: dict[str, str]) -> _Shape:
    return _Shape.model_validate_json(files[CONFIG], strict=True)


def _a_layer_each(value: object, layers: int) -> bool:
    return isinstance(value, list) and len(value) == layers


def _read_there(node: NodeConnection, folder: Path) -> dict[str, str]:
    """The configuration of a model that lies on the node."""
    with tempfile.TemporaryDirectory() as here:
        node.get(folder / CONFIG, Path(here) / CONFIG)
        return _read(Path(here))


def _read(folder: Path) -> dict[str, str]:
    found = {}
    for path in (folder / CONFIG, folder / QUANTIZATION):
        if path.is_file():
            found[path.name] = _object(path)
    if CONFIG not in found:
        raise UsageError(f"{folder} has no {CONFIG}.")
    try:
        _shape(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, got = ".".join(map(str, first["loc"])), reprlib.repr(first["input"])
        raise UsageError(f"{folder / CONFIG}: {where}: {got} will not do; {first['msg']}.") from None
    return found


def _object(path: Path) -> str:
    """The text of a file that is a JSON object."""
    try:
        text = path.read_text()
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:  # bytes that are no text are a ValueError too
        raise UsageError(f"{path} is no JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise UsageError(f"{path} is no JSON object.")
    return text


def _quantization(name: str) -> str | None:
    """What SGLang has to be told of a checkpoint's quantization; it reads the other kinds from config.json itself."""
    files = _read(Path(name)) if Path(name).is_dir() else model_configs.files(name)
    said = json.loads(files.get(QUANTIZATION, "{}")).get("quantization")
    return MODELOPT.get(str(said.get("quant_algo"))) if isinstance(said, dict) else None
