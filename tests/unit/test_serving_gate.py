"""The gate's verdicts, on answers of a simulated model."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.simulated_answers import TOKENS, one_pass
from workbook.errors import UsageError
from workbook.serving.agreement import Answer, Answers
from workbook.serving.gate import gate, ignores_context, shuffled_share
from workbook.types import AccuracyOutcome, Status


def passes(seed: int, count: int, label: str = "baseline", **how: Any) -> list[Answers]:
    rng = np.random.default_rng(seed)
    return [
        one_pass(rng, name=f"{label}, pass {number}", **{"prompts": 256, **how}) for number in range(count)
    ]


def judged(
    noise: float, candidate: dict[str, Any], seed: int = 1, count: int = 3, **both: Any
) -> AccuracyOutcome:
    baseline = passes(seed, count, noise=noise, **both)
    other = passes(seed + 1, 3, "candidate", **({"noise": noise} | both | candidate))
    return gate("baseline", "candidate", baseline, other)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_a_candidate_that_is_the_baseline_passes(noise: float) -> None:
    outcome = judged(noise, {})
    assert outcome.status is Status.OK, outcome.reason
    assert len(outcome.noise) == 3 and len(outcome.compared) == 9
    assert re.search(r"[1-6] of 256 answers wrong from the start would have been refused", outcome.reason)
    diverged = [one is not None for found in outcome.noise for one in found.first_divergence]
    assert any(diverged) == (noise > 0)  # the baseline itself differs from itself, and that is no fault


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"corrupted": 0.02}, "away from the baseline"),
        ({"model": 1}, "away from the baseline"),
        ({"constant": 5}, "candidate, pass 0: every token of every answer is 5"),
        ({"shift": 1.0}, "away from the baseline"),
    ],
)
def test_a_candidate_outside_the_noise_is_wrong(noise: float, change: dict[str, Any], words: str) -> None:
    outcome = judged(noise, change)
    assert outcome.status is Status.WRONG_OUTPUT and words in outcome.reason


def test_a_small_shift_of_every_prompt_is_seen_where_no_single_prompt_stands_out() -> None:
    outcome = judged(0.05, {"shift": 0.08})
    assert outcome.status is Status.WRONG_OUTPUT and "on average" in outcome.reason


def test_rounding_in_another_order_is_no_error_even_if_the_baseline_never_varies() -> None:
    outcome = judged(0.0, {"shift": 0.01})
    assert outcome.status is Status.OK, outcome.reason
    assert any(found.max_flip for found in outcome.compared)  # near ties did fall the other way


def test_a_baseline_too_noisy_for_a_verdict_says_so() -> None:
    outcome = judged(20.0, {"corrupted": 0.02})
    assert outcome.status is Status.NOT_SUPPORTED_HERE
    assert "one answer in ten wrong" in outcome.reason


def test_without_logprobs_tokens_alone_are_judged() -> None:
    same = judged(0.0, {}, with_logprobs=False)
    assert same.status is Status.OK and "without log-probabilities" in same.reason
    assert judged(0.0, {"corrupted": 0.02}, with_logprobs=False).status is Status.WRONG_OUTPUT
    assert judged(0.0, {"model": 1}, with_logprobs=False).status is Status.WRONG_OUTPUT
    assert judged(20.0, {}, with_logprobs=False).status is Status.NOT_SUPPORTED_HERE


def broken(answers: Answers, **changes: Any) -> Answers:
    first, *rest = answers.answers
    return replace(answers, answers=(replace(first, **changes), *rest))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": (1,) * (TOKENS - 1)}, f"prompt 0 has {TOKENS - 1} output tokens, not {TOKENS}"),
        ({"tokens": ()}, "prompt 0 has 0 output tokens"),
        ({"logprobs": (None,) * TOKENS}, "prompt 0 has a token without a finite log-probability"),
        ({"logprobs": ()}, "prompt 0 has a token without a finite log-probability"),
    ],
)
def test_what_is_no_answer_is_wrong_in_the_candidate_and_no_yardstick_in_the_baseline(
    changes: dict[str, Any], words: str
) -> None:
    one, two, three = passes(1, 3)
    wrong = gate("b", "c", [one, two], [broken(three, **changes)])
    assert wrong.status is Status.WRONG_OUTPUT and words in wrong.reason
    useless = gate("b", "c", [one, broken(two, **changes)], [three])
    assert useless.status is Status.NOT_SUPPORTED_HERE and words in useless.reason


def test_equal_garbage_is_not_right() -> None:
    garbage = passes(1, 3, constant=7)
    assert gate("b", "c", garbage[:2], garbage[2:]).status is Status.WRONG_OUTPUT
    nothing = [replace(one, answers=tuple(Answer(()) for _ in one.answers)) for one in garbage]
    assert gate("b", "c", nothing[:2], nothing[2:]).status is Status.WRONG_OUTPUT


def test_answers_that_ignore_their_context_prove_nothing() -> None:
    chains = tuple(Answer(tuple((start + step) % 9 for step in range(TOKENS))) for start in range(20))
    blind = Answers("dummy weights", TOKENS, chains)
    assert ignores_context(blind) and not ignores_context(passes(1, 1)[0])
    outcome = gate("b", "c", [blind, blind, blind], [blind])
    assert outcome.status is Status.NOT_SUPPORTED_HERE and "dummy weights" in outcome.reason


def test_a_cache_that_could_not_be_emptied_is_mentioned() -> None:
    baseline = passes(1, 2, noise=0.02)
    kept = [replace(one, flushed=False) for one in passes(2, 1, noise=0.02)]
    assert "cannot empty its prefix cache" in gate("b", "c", baseline, kept).reason


def test_too_few_passes_or_other_prompts_are_refused() -> None:
    one, two = passes(1, 2)
    with pytest.raises(UsageError, match="1 passes of b and 1 of c"):
        gate("b", "c", [one], [two])
    with pytest.raises(UsageError, match="not over the same prompts"):
        gate("b", "c", [one, two], passes(2, 1, prompts=50))


def test_the_permutation_test_is_exact() -> None:
    """One prompt, two passes of the baseline and one other: by chance the farther one is the candidate in a third."""
    distances = np.array([[[0, 0, 1], [0, 0, 1], [1, 1, 0]]], dtype=float)
    assert shuffled_share(distances, 2) == pytest.approx(1 / 3, abs=0.02)
    assert shuffled_share(np.repeat(distances, 3, axis=0), 2) == pytest.approx(1 / 27, abs=0.01)
    assert shuffled_share(np.zeros((5, 3, 3)), 2) == 1.0
