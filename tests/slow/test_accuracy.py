"""The gate on a real SGLang server on the CPU: the model against itself, and against one with other weights."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from workbook.catalog import load
from workbook.node.local import LocalConnection
from workbook.serving.accuracy import ask
from workbook.serving.agreement import Answers
from workbook.serving.gate import gate
from workbook.serving.server import Server
from workbook.types import LaunchProfile, Node, Status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sglang") is None, reason="no sglang in this environment"),
    pytest.mark.timeout(1200),
]

NODE = LocalConnection(Node(name="here"))


def served(folder: Path, seed: int | None, concurrencies: list[int]) -> list[Answers]:
    """One pass for each concurrency, of the tiny model with these weights, or with SGLang's dummy ones."""
    weights = {"model": "tiny", "load_format": "dummy"}
    if seed is not None:
        weights = {"model": f"tiny:seed={seed}", "load_format": "auto"}
    profile = load(LaunchProfile, "tiny-cpu").model_copy(update=weights)
    name = f"seed {seed}"
    with Server(NODE, profile, log=folder / f"{name}.log", ready_timeout_s=600) as server:
        return [
            ask(
                NODE,
                server.node_url,
                name=f"{name}, pass {order}",
                raw=folder / f"{name}-{order}.jsonl",
                prompts=64,
                concurrency=concurrency,
                order=order,
            )
            for order, concurrency in enumerate(concurrencies)
        ]


def test_a_model_agrees_with_itself_and_not_with_other_weights(tmp_path: Path) -> None:
    own = served(tmp_path, 0, [16, 5, 16])
    same = gate("seed 0", "seed 0 again", own[:2], own[2:])
    assert same.status is Status.OK, same.reason
    assert same.noise[0].prompts == 64 and same.noise[0].tokens == 64 * 32
    other = gate("seed 0", "seed 1", own, served(tmp_path, 1, [16]))
    assert other.status is Status.WRONG_OUTPUT and "away from the baseline" in other.reason
    assert all(found.equal_share < 0.1 for found in other.compared)


def test_dummy_weights_are_found_out(tmp_path: Path) -> None:
    dummy = served(tmp_path, None, [16, 16, 5])
    outcome = gate("dummy", "dummy again", dummy[:2], dummy[2:])
    assert outcome.status is Status.NOT_SUPPORTED_HERE and "dummy weights" in outcome.reason
