"""How often the gate errs, counted on simulated models. The bounds are those that the gate's module names."""

from typing import Any

import numpy as np
import pytest

from tests.simulated_answers import one_pass
from workbook.serving.gate import gate
from workbook.types import Status

pytestmark = pytest.mark.slow

TRIALS = 25


def counted(noise: dict[str, Any], change: dict[str, Any]) -> dict[Status, int]:
    """The verdicts on so many models: three passes of each, over as many prompts as `ask` has by itself."""
    found = dict.fromkeys((Status.OK, Status.WRONG_OUTPUT, Status.NOT_SUPPORTED_HERE), 0)
    for model in range(TRIALS):
        rng = np.random.default_rng(model)
        baseline = [one_pass(rng, model=2 * model, prompts=256, **noise) for _ in range(3)]
        candidate = [
            one_pass(rng, **{"model": 2 * model, "prompts": 256, **noise, **change}) for _ in range(3)
        ]
        found[gate("baseline", "candidate", baseline, candidate).status] += 1
    return found


@pytest.mark.parametrize(
    "noise",
    [
        {"noise": 0.1},
        {"noise": 0.02, "outliers": 0.001},
        {"noise": 0.0, "with_logprobs": False},
    ],
)
def test_an_equal_candidate_is_refused_in_less_than_one_of_twenty(noise: dict[str, Any]) -> None:
    found = counted(noise, {})
    print(noise, found)
    assert found[Status.WRONG_OUTPUT] < 0.05 * TRIALS
    assert found[Status.NOT_SUPPORTED_HERE] == 0


@pytest.mark.parametrize("noise", [{"noise": 0.0}, {"noise": 0.1}, {"noise": 0.0, "with_logprobs": False}])
def test_two_percent_of_corrupted_prompts_are_caught_in_more_than_19_of_20(noise: dict[str, Any]) -> None:
    found = counted(noise, {"corrupted": 0.02})
    print(noise, found)
    assert found[Status.WRONG_OUTPUT] > 0.95 * TRIALS
