"""The accuracy gate: is a candidate further from its baseline than the baseline is from itself?

At temperature 0 two passes over the same prompts still differ where rounding depends on how requests are batched: a
near tie between two tokens falls the other way, and from there on the texts have nothing in common. So equal tokens
alone say little, and no fixed share of them is right. What is measured instead is the distance of two passes on a
prompt, and the distances among passes of the baseline are the yardstick:

- Where log-probabilities are known, the distance is in nats: the largest difference of the log-probabilities of equal
  tokens before the first divergence, or, where it is larger, the change that it took to make that divergence (see
  `agreement.difference`). A near tie that fell the other way is a small distance, a wrong token a large one.
- Where they are not, it is the share of the answer from the first divergence on.

A candidate is refused (`wrong_output`) for any of these:

1. Its answers are none: wrong length, a log-probability that is no number, one and the same token everywhere.
2. It is further away than chance explains. If it is as good as the baseline, then on each prompt it is chance which of
   the passes are called the candidate's; so the labels are shuffled, prompt by prompt, and the sum of distances
   (candidate to baseline, less baseline to itself) may be reached by less than ALPHA of the shuffles. This permutation
   test needs no model of the noise. It is done twice, with the distances, which shows a small shift of many prompts,
   and with their squares, which shows few prompts that are far away; ALPHA is for both together.
3. One prompt is further away than FACTOR times the largest distance within the baseline. This sees a single prompt
   that went wrong, which chance always explains. It needs nats: in tokens a near tie and an error look alike.

Rounding is allowed to differ: of every distance in nats `rounding` is forgiven, so a baseline that repeats itself
exactly does not condemn a kernel that sums in another order. It is ROUNDING nats: two tokens whose logits, bfloat16
between 16 and 32, each move by one step against the other. But it is at most MARGIN_SHARE of the median margin between
best and second token: where log-probabilities lie close together, as with random weights, ROUNDING would forgive all.

The gate says `not_supported_here` when it cannot tell: the baseline's own answers are none; or its noise is so large
that one answer in ten could be wrong from its first token on and pass; or its tokens follow each from the one before
alone, as with SGLang's dummy weights, so that errors of whole layers would not show.

Error rates, counted on simulated models (tests/slow/test_gate_rates.py; 256 prompts, three passes of each, baselines
that part from themselves on none to all of the prompts): an equal candidate is refused in less than 5 % of cases, also
where rare tokens are twenty times as noisy as the others; one with 2 % of its prompts corrupted, or that repeats one
token, is caught in more than 95 %. With fewer prompts or passes less is seen; the reason of an `ok` says how much.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from math import ceil
from statistics import median

import numpy as np
from numpy.typing import NDArray

from workbook.errors import UsageError
from workbook.serving.agreement import Answers, Difference, Token, agreement, difference
from workbook.types import AccuracyOutcome, Status

ALPHA = 0.02
"""How often chance alone may refuse a candidate by the permutation tests."""
FACTOR = 8.0
"""How many times the largest distance within the baseline one prompt may be away."""
ROUNDING = 0.25
"""Nats."""
MARGIN_SHARE = 1 / 4
SHARES = (0.01, 0.02, 0.05, 0.1)
"""Of wrong answers; the gate cannot tell where not even the last is noticed."""
SHUFFLES = 2_000
CONTEXT_REPEATS = 20
"""From so many repeated tokens on it is said that answers do not depend on their context."""

Floats = NDArray[np.float64]


def gate(
    baseline_label: str,
    candidate_label: str,
    baseline: Sequence[Answers],
    candidate: Sequence[Answers],
) -> AccuracyOutcome:
    """Judge a candidate by the rule that stands at the head of this module.

    Args:
        baseline_label: what the baseline is, such as "decode-graphs".
        candidate_label: what the candidate is.
        baseline: at least two passes of the baseline, better three; of more than one start of its server where the
            candidate has one of its own, since a start may choose its kernels anew.
        candidate: at least one pass over the same prompts, better as many.

    Raises:
        UsageError: there are too few passes, or they are not over the same prompts.
    """
    if len(baseline) < 2 or not candidate:
        raise UsageError(
            f"The gate has {len(baseline)} passes of {baseline_label} and {len(candidate)} of {candidate_label};",
            "it needs at least two of the baseline, for its noise, and one of the candidate.",
        )
    shapes = {(len(one.answers), one.output_tokens) for one in (*baseline, *candidate)}
    if len(shapes) != 1:
        raise UsageError(
            f"The passes of {baseline_label} and {candidate_label} are not over the same prompts;",
            "ask both with the same number of prompts and output tokens.",
        )
    status, reason = judge(baseline, candidate)
    return AccuracyOutcome(
        baseline=baseline_label,
        candidate=candidate_label,
        status=status,
        reason=reason,
        noise=tuple(agreement(a, b) for a, b in combinations(baseline, 2)),
        compared=tuple(agreement(a, b) for a, b in product(baseline, candidate)),
    )


def judge(baseline: Sequence[Answers], candidate: Sequence[Answers]) -> tuple[Status, str]:
    """The verdict, and why."""
    if fault := next(filter(None, map(fault_of, candidate)), ""):
        return Status.WRONG_OUTPUT, fault
    if fault := next(filter(None, map(fault_of, baseline)), ""):
        return Status.NOT_SUPPORTED_HERE, f"the baseline's own answers are no yardstick: {fault}"
    scale = Scale(baseline, candidate)
    distances = scale.distances()
    if refusal := scale.refusal(distances):
        return Status.WRONG_OUTPUT, refusal
    if ignores_context(baseline[0]):
        return Status.NOT_SUPPORTED_HERE, (
            "each token of the baseline follows from the one before alone, as with dummy weights, so errors of whole "
            "layers would not show; use a model with weights, such as tiny:seed=0 with load_format auto"
        )
    noticed = scale.noticed(distances)
    if noticed is None:
        apart = scale.show(distances[:, : len(baseline), : len(baseline)].max())
        return Status.NOT_SUPPORTED_HERE, (
            f"a candidate with one answer in ten wrong from the start would have passed: the baseline's own passes "
            f"are up to {apart} apart, over no more than {len(distances)} prompts"
        )
    return Status.OK, scale.acquittal(distances, noticed)


def fault_of(answers: Answers) -> str:
    """Why these are no answers at all; empty where they are."""
    for number, answer in enumerate(answers.answers):
        if len(answer.tokens) != answers.output_tokens:
            return (
                f"{answers.name}: prompt {number} has {len(answer.tokens)} output tokens, not "
                f"{answers.output_tokens}"
            )
        if answer.logprobs is not None and (
            None in answer.logprobs or len(answer.logprobs) != len(answer.tokens)
        ):
            return f"{answers.name}: prompt {number} has a token without a finite log-probability"
    kinds = {token for answer in answers.answers for token in answer.tokens}
    if len(kinds) == 1 and len(answers.answers) * answers.output_tokens > 1:
        return f"{answers.name}: every token of every answer is {kinds.pop()!r}"
    return ""


def ignores_context(answers: Answers) -> bool:
    """Whether a token always has the same successor, whichever prompt it is in."""
    successors: dict[Token, tuple[int, Token]] = {}
    repeats = 0
    for number, answer in enumerate(answers.answers):
        for token, following in pairwise(answer.tokens):
            seen_in, successor = successors.setdefault(token, (number, following))
            if successor != following:
                return False
            repeats += seen_in != number
    return repeats >= CONTEXT_REPEATS


class Scale:
    """How distances between the passes are measured, and what they say.

    Args:
        baseline: its passes.
        candidate: its passes.
    """

    def __init__(self, baseline: Sequence[Answers], candidate: Sequence[Answers]) -> None:
        self.first = len(baseline)
        self.passes = (*baseline, *candidate)
        self.in_nats = all(answer.logprobs and answer.tops for one in self.passes for answer in one.answers)
        self.rounding = min(ROUNDING, median(margins(baseline)) * MARGIN_SHARE) if self.in_nats else 0.0

    def distances(self) -> Floats:
        """For each prompt the distance between any two passes: prompts x passes x passes, the baseline's first."""
        count = len(self.passes)
        found = np.zeros((len(self.passes[0].answers), count, count))
        for i, j in combinations(range(count), 2):
            pairs = zip(self.passes[i].answers, self.passes[j].answers, strict=True)
            found[:, i, j] = found[:, j, i] = [self._distance(difference(a, b)) for a, b in pairs]
        return found

    def _distance(self, found: Difference) -> float:
        if self.in_nats:
            return max(found.logprob or 0.0, found.flip or 0.0)
        return 0.0 if found.position is None else 1 - found.position / found.positions

    def wrong_from_the_start(self, distances: Floats, count: int) -> Floats:
        """The distances, were `count` of the candidate's answers other ones from their first token on."""
        chosen = np.random.default_rng(0).permutation(len(distances))[:count]
        answers = self.passes[0].answers
        away = np.array(
            [2 * (answers[one].preference(0) or 0.0) if self.in_nats else 1.0 for one in chosen]
        ).reshape(-1, 1, 1)
        theirs = np.zeros(distances.shape[1:], dtype=bool)
        theirs[self.first :] = theirs[:, self.first :] = True
        np.fill_diagonal(theirs, False)
        invented = distances.copy()
        invented[chosen] = np.where(theirs, away, distances[chosen])
        return invented

    def noticed(self, distances: Floats) -> int | None:
        """How many answers, wrong from the start, would have been refused; None where one in ten would not."""
        counts = sorted({max(1, ceil(share * len(distances))) for share in SHARES})
        return next((n for n in counts if self.refusal(self.wrong_from_the_start(distances, n))), None)

    def refusal(self, distances: Floats) -> str:
        """Why the candidate is outside the baseline's noise; empty where it is not."""
        within, across = self._parts(distances)
        allowed = max(FACTOR * within.max(), self.rounding)
        if self.in_nats and across.max() > allowed:
            return (
                f"prompt {int(across.max(axis=(1, 2)).argmax())} is {self.show(across.max())} away from the baseline, "
                f"whose own passes are at most {self.show(within.max())} apart; {self.show(allowed)} was allowed"
            )
        p = self.chance(distances)
        if p < ALPHA:
            return (
                f"it is on average {self.show(across.mean())} away from the baseline, whose own passes are "
                f"{self.show(within.sum() / (within.shape[1] - 1) / within[..., 0].size)} apart; "
                f"chance does that in {p:.2%} of cases"
            )
        return ""

    def acquittal(self, distances: Floats, noticed: int) -> str:
        """Why the candidate is not outside, and what would have been."""
        within, across = self._parts(distances)
        said = (
            f"no further from the baseline than chance explains (p = {self.chance(distances):.2f}): at most "
            f"{self.show(across.max())} away, the baseline's own passes {self.show(within.max())} apart; "
            f"{noticed} of {len(distances)} answers wrong from the start would have been refused"
        )
        if not self.in_nats:
            said += "; without log-probabilities an error and a near tie look alike"
        if not all(one.flushed for one in self.passes):
            said += "; the server cannot empty its prefix cache, so a pass may repeat what an earlier one computed"
        return said

    def _parts(self, distances: Floats) -> tuple[Floats, Floats]:
        """The distances within the baseline, and from it to the candidate."""
        return distances[:, : self.first, : self.first], distances[:, : self.first, self.first :]

    def chance(self, distances: Floats) -> float:
        """How often chance puts the candidate at least as far away, rounding forgiven; the smaller of both tests."""
        beyond = np.maximum(distances - self.rounding, 0.0)
        return min(1.0, 2 * min(shuffled_share(beyond, self.first), shuffled_share(beyond**2, self.first)))

    def show(self, distance: float) -> str:
        """A distance with its unit."""
        return f"{distance:.2g} nats" if self.in_nats else f"{distance:.1%} of the tokens"


def margins(passes: Sequence[Answers]) -> list[float]:
    """How far the second best token lay below the chosen one, in nats, wherever both are known."""
    found = []
    for answer in (answer for one in passes for answer in one.answers):
        for own, top in zip(answer.logprobs or (), answer.tops or (), strict=False):
            if own is not None and len(top) > 1:
                found.append(own - sorted(top.values())[-2])
    return found


def shuffled_share(distances: Floats, first: int) -> float:
    """How often shuffled labels put the candidate at least as far away: the p value of the permutation test.

    Args:
        distances: prompts x passes x passes.
        first: how many of the passes are the baseline's; they stand first.
    """
    count = distances.shape[1]
    values = []
    for chosen in combinations(range(count), first):
        rest = [index for index in range(count) if index not in chosen]
        within, across = distances[:, chosen][:, :, chosen], distances[:, chosen][:, :, rest]
        values.append(across.mean(axis=(1, 2)) - within.sum(axis=(1, 2)) / (first * (first - 1)))
    table = np.stack(values, axis=1)  # the labels as they are stand first
    table = table[np.ptp(table, axis=1) > 0]
    draws = np.random.default_rng(0).integers(table.shape[1], size=(SHUFFLES, len(table)))
    shuffled = table[np.arange(len(table)), draws].sum(axis=1)
    least = table[:, 0].sum() - 1e-9 * np.abs(table).sum()
    return float((1 + np.sum(shuffled >= least)) / (1 + SHUFFLES))
