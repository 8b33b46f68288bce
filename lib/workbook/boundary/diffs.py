"""What a patch level does to the FlashInfer that is installed on a node."""

from workbook.boundary.levels import level
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe
from workbook.types import PatchDiff, Stack


def patch_diffs(node: NodeConnection, stack: Stack, number: int) -> list[PatchDiff]:
    """What level `number` would change in the FlashInfer installed on `node`; nothing is patched.

    Raises:
        UsageError: no such level, or no FlashInfer on the node.
    """
    patches = level(number).patches
    if not patches:
        return []
    answer = run_probe(node, stack, "patch_diff.py", list(patches), timeout_s=120)
    return [PatchDiff.model_validate(one) for one in answer]
