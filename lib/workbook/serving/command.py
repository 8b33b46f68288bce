"""The command of a server on a node: what runs, and in which environment."""

import os
from dataclasses import dataclass
from pathlib import Path

from workbook.boundary.levels import level
from workbook.node.base import NodeConnection
from workbook.node.probe import flashinfer_dir
from workbook.serving.caches import cache_env, caches_dir
from workbook.serving.launch import pasteable, server_argv, server_env
from workbook.types import LaunchProfile, Stack


@dataclass(frozen=True)
class Command:
    """A command, what its environment has beyond the node's own, and the folder of its caches."""

    argv: tuple[str, ...]
    env: dict[str, str]
    caches: Path

    @property
    def pasteable(self) -> str:
        """What a POSIX shell of the node takes as it is, an option a line."""
        return pasteable(self.argv, self.env)


def server_command(
    node: NodeConnection,
    profile: LaunchProfile,
    *,
    sglang_version: str,
    python: str,
    model_path: str,
    port: int,
    patch_level: int = 0,
    tp: int | None = None,
    stack: Stack | None = None,
) -> Command:
    """What starts this profile's server on a node, with caches of its own.

    Args:
        sglang_version: of the SGLang that `python` has.
        stack: whose Python it is; the node's own where left out.

    Raises:
        UsageError: this SGLang cannot do what the profile asks, or there is no such level.
    """
    level(patch_level)
    argv = server_argv(profile, sglang_version, python=python, model_path=model_path, port=port, tp=tp)
    caches = caches_dir(node.stacks, stack.name if stack else node.node.stack, sglang_version, patch_level)
    env = cache_env(caches)
    env |= server_env(profile, patch_level=patch_level)  # a profile may choose other caches
    folders = [str(node.overlay)] if any(key.startswith("WORKBOOK_") for key in env) else []
    if stack is not None and stack.name != node.node.stack and profile.device == "cuda":
        flashinfer = flashinfer_dir(node, stack)  # it lies beside the environment
        folders += [str(flashinfer)] if node.exists(flashinfer) else []
    if folders:
        env["PYTHONPATH"] = os.pathsep.join(part for part in (*folders, node.pythonpath) if part)
    return Command(tuple(argv), env, caches)
