"""The model of a machine without a GPU: a tiny random one, made on the node and kept there."""

import json
import re
from pathlib import Path

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.types import LaunchProfile

SIZE = r"(hidden|layers|heads|vocab|experts|seed)=\d+"
SIZES = re.compile(f"{SIZE}(,{SIZE})*")
FORMAT = 1  # part of the folder's name: raise it whenever the probe writes something else


def resolve_model(node: NodeConnection, profile: LaunchProfile) -> str:
    """The profile's model as SGLang takes it: `tiny`, or `tiny:hidden=2048,layers=16,seed=1`, becomes a folder.

    Raises:
        UsageError: the sizes after `tiny:` are none, or do not fit each other.
        WorkbookError: the tiny model could not be written.
    """
    word, _, sizes = profile.model.partition(":")
    if word != "tiny":
        return profile.model
    if sizes and not SIZES.fullmatch(sizes):
        raise UsageError(
            f"Profile {profile.name} has the model {profile.model!r};",
            "write it as tiny, or with some of tiny:hidden=128,layers=2,heads=2,vocab=512,experts=8,seed=0.",
        )
    shape = dict(size.split("=") for size in sizes.split(",") if size)
    return str(tiny_model(node, **{name: int(value) for name, value in shape.items()}))


def tiny_model(
    node: NodeConnection,
    *,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 2,
    vocab: int = 512,
    experts: int | None = None,
    seed: int | None = None,
) -> Path:
    """The tiny model's folder on `node`, written on first use.

    Args:
        node: where it is made; its Python needs the `tokenizers` library.
        hidden: hidden size, a multiple of twice `heads`.
        layers: number of decoder layers.
        heads: number of attention heads.
        vocab: vocabulary size in tokens, at least 258.
        experts: experts of a layer, at least 4; a dense Llama, where left out, else a Qwen3 mixture.
        seed: of random weights that are written with it, for load_format `auto`; none are, where left out.

    Raises:
        UsageError: the sizes do not fit each other.
        WorkbookError: the node's Python could not write it.
    """
    shape = {"hidden": hidden, "layers": layers, "heads": heads, "vocab": vocab}
    shape |= {key: value for key, value in (("experts", experts), ("seed", seed)) if value is not None}
    name = "-".join(
        [
            "tiny-llama" if experts is None else "tiny-qwen3-moe",
            *(f"{key}{size}" for key, size in shape.items()),
            str(FORMAT),
        ]
    )
    folder = node.stacks / "models" / name
    options = [part for key, size in shape.items() for part in (f"--{key}", str(size))]
    done = node.run(
        [node.python, "-P", str(node.probes / "tiny_model.py"), str(folder), *options], timeout_s=600
    )
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        if done.returncode == 2:  # how argparse refuses
            raise UsageError(f"There is no such tiny model: {last.rpartition('error: ')[2]}.")
        raise WorkbookError(
            f"The tiny model could not be written on node {node.node.name} ({folder}): {last}.",
            f"It needs the `tokenizers` library in that node's Python, {node.python}.",
        )
    return Path(json.loads(done.stdout)["path"])
