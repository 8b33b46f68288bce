"""What a patch level does to the FlashInfer, and to the SGLang, that are installed on a node."""

from workbook.boundary.levels import level
from workbook.node.base import NodeConnection
from workbook.node.probe import run_probe, sglang_dir, sources_env, sources_python
from workbook.types import PatchDiff, Stack


def patch_diffs(node: NodeConnection, stack: Stack, number: int) -> list[PatchDiff]:
    """What level `number` would change in the installed code of `node`; nothing is patched.

    A stack whose SGLang is there as sources need not have an environment of its own.

    Raises:
        UsageError: no such level, or no FlashInfer on the node.
    """
    patches = level(number).patches
    if not patches:
        return []
    if node.exists(sglang_dir(node, stack)):
        python, env = sources_python(node, stack), sources_env(node, stack)
    else:
        python, env = None, None
    answer = run_probe(node, stack, "patch_diff.py", list(patches), timeout_s=120, python=python, env=env)
    return [PatchDiff.model_validate(one) for one in answer]
