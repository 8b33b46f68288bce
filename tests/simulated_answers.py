"""A language model made of hashes, for the gate's error rates: what follows depends on the whole text before.

Every pass adds normal noise to its logits, as rounding does, so that near ties fall either way and answers part there.
"""

import numpy as np
from numpy.typing import NDArray

from workbook.serving.agreement import Answer, Answers

TOKENS, VOCABULARY, TOPS, SPREAD = 16, 32, 5, 2.0
STEP = np.uint64(0x9E3779B97F4A7C15)
States = NDArray[np.uint64]


def mix(x: States) -> States:
    """A hash of each number (the end of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def logits(texts: States) -> NDArray[np.float64]:
    """Normal logits of what follows each text."""
    draws = (
        mix(texts[:, None] + (np.arange(1, 2 * VOCABULARY + 1, dtype=np.uint64) * STEP)[None, :]) / 2.0**64
    )
    radius = np.sqrt(-2 * np.log(draws[:, :VOCABULARY] + 1e-300))
    return SPREAD * radius * np.cos(2 * np.pi * draws[:, VOCABULARY:])


def one_pass(
    rng: np.random.Generator,
    *,
    name: str = "a pass",
    model: int = 0,
    prompts: int = 100,
    noise: float = 0.0,
    outliers: float = 0.0,
    shift: float = 0.0,
    corrupted: float = 0.0,
    constant: int | None = None,
    with_logprobs: bool = True,
) -> Answers:
    """One pass over the prompts of one model.

    Args:
        noise: standard deviation of what a pass adds to its logits.
        outliers: share of tokens at which it adds twenty times as much, as where an expert is chosen otherwise.
        shift: standard deviation of an error that is the same in every pass, as of a worse kernel.
        corrupted: share of prompts that continue as another model's from some position on.
        constant: a token that comes at every position.
    """
    texts = mix(np.arange(prompts, dtype=np.uint64) * STEP + np.uint64(model))
    from_position = np.full(prompts, TOKENS)
    broken = rng.permutation(prompts)[: round(corrupted * prompts)]
    from_position[broken] = rng.integers(TOKENS, size=len(broken))
    answers: list[tuple[list[int], list[float], list[dict[int, float]]]] = [
        ([], [], []) for _ in range(prompts)
    ]
    for position in range(TOKENS):
        scores = logits(texts) + shift / SPREAD * logits(texts + np.uint64(7))
        size = np.where(rng.random(prompts) < outliers, 20 * noise, noise)
        scores += rng.normal(size=scores.shape) * size[:, None]
        wrong = from_position <= position
        scores[wrong] = logits(texts[wrong] + np.uint64(99))
        if constant is not None:
            scores[:, constant] = 20.0
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        best = np.argsort(scores, axis=1)[:, : -TOPS - 1 : -1]
        for (tokens, logprobs, tops), row, chosen in zip(answers, scores, best, strict=True):
            tokens.append(int(chosen[0]))
            logprobs.append(float(row[chosen[0]]))
            tops.append({int(token): float(row[token]) for token in chosen})
        texts = mix(texts + best[:, 0].astype(np.uint64) * STEP + np.uint64(position + 1))
    return Answers(
        name,
        TOKENS,
        tuple(
            Answer(tuple(t), tuple(lp), tuple(tops)) if with_logprobs else Answer(tuple(t))
            for t, lp, tops in answers
        ),
    )
