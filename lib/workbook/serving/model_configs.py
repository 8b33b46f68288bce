"""The configuration files of public models, without their weights."""

import json
import re

from pydantic import JsonValue

from workbook import catalog
from workbook.errors import UsageError, nearest
from workbook.types import Checkpoint, ModelFamily

LAYERS = re.compile(r"\{(\d+)\.\.(\d+)\}")


def checkpoint_names() -> list[str]:
    """The short names of all checkpoints, family by family."""
    return [name for family in _families() for name in family.checkpoints]


def find(name: str) -> tuple[ModelFamily, Checkpoint] | None:
    """A checkpoint by its short name or its name on the hub; None where data/models has none.

    Raises:
        UsageError: a description under data/models is damaged.
    """
    for family in _families():
        for short, checkpoint in family.checkpoints.items():
            if name in (short, checkpoint.published):
                return family, checkpoint
    return None


def files(name: str) -> dict[str, str]:
    """The configuration files of a checkpoint: name -> text.

    Args:
        name: as for `find`.

    Raises:
        UsageError: data/models has no such checkpoint (the nearest is offered), or a description is damaged.
    """
    found = find(name)
    if found is None:
        known = checkpoint_names()
        hint = nearest(name, known, f"known: {', '.join(known)}.")
        raise UsageError(f"No checkpoint named {name!r} in data/models;", hint)
    family, checkpoint = found
    config: dict[str, JsonValue] = {**family.config, **checkpoint.config}
    if checkpoint.quantization_config is not None:
        config["quantization_config"] = _each_layer(checkpoint.quantization_config)
    contents: dict[str, JsonValue] = {"config.json": config}
    if checkpoint.hf_quant_config is not None:
        contents["hf_quant_config.json"] = _each_layer(checkpoint.hf_quant_config)
    return {file: json.dumps(content, indent=2) + "\n" for file, content in contents.items()}


def _families() -> list[ModelFamily]:
    return [catalog.load(ModelFamily, name) for name in catalog.names(ModelFamily)]


def _each_layer(value: JsonValue) -> JsonValue:
    """The same with one entry per layer for every `{first..last}` in a list of modules."""
    if isinstance(value, dict):
        return {key: _each_layer(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [name for item in value for name in (_names(item) if isinstance(item, str) else [item])]
    return value


def _names(module: str) -> list[JsonValue]:
    layers = LAYERS.search(module)
    if layers is None:
        return [module]
    first, last = map(int, layers.groups())
    return [module.replace(layers[0], str(layer)) for layer in range(first, last + 1)]
