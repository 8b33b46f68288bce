"""How alike two passes over the same prompts at temperature 0 are. Passes are read from raw files; no node is asked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from workbook.errors import WorkbookError
from workbook.types import Agreement

Token = int | str
"""An id; an OpenAI-compatible server tells the token's text instead."""


@dataclass(frozen=True)
class Answer:
    """What one prompt was answered with.

    Args:
        tokens: the output, token by token.
        logprobs: the log-probability of each token in nats, None where it was no finite number; None where none were
            asked for or given.
        tops: at each position the likeliest tokens with their log-probabilities, likewise.
    """

    tokens: tuple[Token, ...]
    logprobs: tuple[float | None, ...] | None = None
    tops: tuple[Mapping[Token, float], ...] | None = None

    def preference(self, position: int, other: Token | None = None) -> float | None:
        """By how many nats the token at a position was preferred to another one, at least; None where not known."""
        if not self.logprobs or not self.tops or position >= min(len(self.logprobs), len(self.tops)):
            return None
        own, top = self.logprobs[position], self.tops[position]
        if own is None or not top:
            return None
        least = min(top.values())  # of a token that is not among them no more is known
        return own - (least if other is None else top.get(other, least))


@dataclass(frozen=True)
class Answers:
    """One pass over all prompts, in the order of the prompts.

    Args:
        name: which pass, such as "eager, pass 2".
        output_tokens: how many tokens each answer was to have.
        answers: one for each prompt.
        flushed: whether the server's prefix cache was emptied before.
    """

    name: str
    output_tokens: int
    answers: tuple[Answer, ...]
    flushed: bool = True


@dataclass(frozen=True)
class Difference:
    """Where two answers to one prompt part.

    Up to there both continued the same text, so their numbers can be compared; after it they cannot.

    Args:
        position: the first position that differs; None where none does.
        equal: positions that are equal, also after that.
        positions: of the longer answer.
        logprob: largest difference in nats of the log-probabilities of the equal tokens before it; None without any.
        flip: nats by which the two tokens at that position moved against each other, at least: what one answer
            preferred its own token by, and the other one the other; None where that is not known.
    """

    position: int | None
    equal: int
    positions: int
    logprob: float | None
    flip: float | None


def difference(a: Answer, b: Answer) -> Difference:
    """Compare two answers to one prompt."""
    same = [x == y for x, y in zip_longest(a.tokens, b.tokens)]
    position = same.index(False) if False in same else None
    pairs = zip((a.logprobs or ())[:position], (b.logprobs or ())[:position], strict=False)
    apart = [abs(x - y) for x, y in pairs if x is not None and y is not None]
    return Difference(
        position=position,
        equal=sum(same),
        positions=len(same),
        logprob=max(apart, default=None),
        flip=None if position is None else _flip(a, b, position),
    )


def _flip(a: Answer, b: Answer, position: int) -> float | None:
    if position >= min(len(a.tokens), len(b.tokens)):
        return None
    one, other = a.preference(position, b.tokens[position]), b.preference(position, a.tokens[position])
    return None if one is None or other is None else one + other


def agreement(a: Answers, b: Answers) -> Agreement:
    """How alike two passes are, over all prompts.

    Raises:
        WorkbookError: they are not passes over the same number of prompts.
    """
    if len(a.answers) != len(b.answers):
        raise WorkbookError(
            f"{a.name} has {len(a.answers)} answers, {b.name} has {len(b.answers)}.",
            "Ask both with the same prompts.",
        )
    found = [difference(x, y) for x, y in zip(a.answers, b.answers, strict=True)]
    positions = sum(one.positions for one in found)
    return Agreement(
        name=f"{a.name} / {b.name}",
        prompts=len(found),
        tokens=positions,
        equal_share=sum(one.equal for one in found) / positions if positions else 0.0,
        first_divergence=tuple(one.position for one in found),
        max_logprob_diff=max((one.logprob for one in found if one.logprob is not None), default=None),
        max_flip=max((one.flip for one in found if one.flip is not None), default=None),
    )


def read_answers(raw: Path, name: str, *, prompts: int, output_tokens: int, flushed: bool = True) -> Answers:
    """One pass from its raw file.

    Args:
        raw: a JSON line for each prompt, as probes/answers.py writes them.
        name: which pass it is.
        prompts: how many prompts were asked.
        output_tokens: how many tokens were asked for.
        flushed: whether the server's prefix cache was emptied before.

    Raises:
        WorkbookError: it is not the whole answer to that many prompts.
    """
    try:
        records = [json.loads(line) for line in raw.read_text(errors="replace").splitlines()]
        numbers = [record["prompt"] for record in records]
        answers = tuple(map(_answer, records))
    except (ValueError, KeyError, TypeError) as error:
        raise WorkbookError(f"{raw} does not hold answers: {error!r}.", "Ask again.") from error
    if numbers != list(range(prompts)):
        raise WorkbookError(f"{raw} has {len(numbers)} answers to {prompts} prompts.", "Ask again.")
    return Answers(name, output_tokens, answers, flushed)


def _answer(record: Mapping[str, Any]) -> Answer:
    logprobs, tops = record["logprobs"], record["tops"]
    return Answer(
        tokens=tuple(record["tokens"]),
        logprobs=None if logprobs is None else tuple(logprobs),
        tops=None if tops is None else tuple({token: float(value) for token, value in top} for top in tops),
    )
