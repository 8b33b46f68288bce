"""What is asked of a node before a server is started there: everything that would make the start pointless."""

from collections.abc import Mapping

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.types import LaunchProfile

# 0: it is there, or may be fetched; 3: a path that is not there; 4: a hub's name that must not be fetched
HAS_MODEL = """
import os, sys
model = sys.argv[1]
if os.path.exists(model):
    sys.exit(0)
if model.startswith(("/", ".", "~")):
    sys.exit(3)
if os.environ.get("HF_HUB_OFFLINE", "").lower() not in ("1", "true", "yes", "on"):
    sys.exit(0)
try:
    from huggingface_hub import try_to_load_from_cache
    sys.exit(0 if isinstance(try_to_load_from_cache(model, "config.json"), str) else 4)
except (ImportError, ValueError):
    sys.exit(4)
"""


def installed_sglang(node: NodeConnection, python: str) -> str:
    """The version of SGLang that a Python of the node has.

    Raises:
        WorkbookError: it has none.
    """
    ask = "from importlib.metadata import version; print(version('sglang'))"
    done = node.run([python, "-P", "-c", ask], timeout_s=60)
    if done.returncode != 0:
        raise WorkbookError(
            f"The Python {python} of node {node.node.name} has no sglang.",
            f"Install it there, or name another Python in data/nodes/{node.node.name}.yaml.",
        )
    return done.stdout.strip().rpartition("\n")[2]


def check_model(node: NodeConnection, python: str, model: str, env: Mapping[str, str]) -> None:
    """Nothing, if the server will find its model: a folder of the node, or a name on the Hugging Face hub.

    Args:
        python: the server's.
        env: the server's, which may forbid it to fetch anything (HF_HUB_OFFLINE).

    Raises:
        UsageError: it will not.
    """
    done = node.run([python, "-P", "-c", HAS_MODEL, model], timeout_s=60, env=env)
    if done.returncode == 3:
        hint = "No shell expands ~ here; write the path in full." if model.startswith("~") else ""
        raise UsageError(
            f"Node {node.node.name} has no model folder {model}.",
            hint or "Name one that is there in the profile.",
        )
    if done.returncode == 4:
        raise UsageError(
            f"Node {node.node.name} has no model {model!r}: it is no folder and not in the hub's cache, and "
            "HF_HUB_OFFLINE is set.",
            "Name a folder in the profile, or fetch the model first.",
        )


def usable_gpus(
    node: NodeConnection, profile: LaunchProfile, tp: int, there: list[int], env: Mapping[str, str]
) -> list[int]:
    """The GPUs that the server will run on, by nvidia-smi's index; none for a profile of the CPU.

    Args:
        there: those of the node.
        env: the server's.

    Raises:
        UsageError: there are fewer than its tensor-parallel size.
    """
    if profile.device == "cpu":
        return []
    chosen = env.get("CUDA_VISIBLE_DEVICES", node.node.env.get("CUDA_VISIBLE_DEVICES"))
    if node.node.gpus is not None:
        there = [gpu for gpu in node.node.gpus if gpu in there]
    elif chosen is not None and all(part.strip().isdigit() for part in chosen.split(",")):
        there = [int(part) for part in chosen.split(",") if int(part) in there]
    if tp > len(there):
        have = f"{len(there)} GPU{'s' if len(there) != 1 else ''} to use" if there else "no GPU"
        raise UsageError(
            f"Profile {profile.name} wants {tp} GPU{'s' if tp > 1 else ''} (tensor parallel), and node "
            f"{node.node.name} has {have}.",
            "Give a smaller tensor-parallel size, or another node or profile.",
        )
    return there[:tp]
