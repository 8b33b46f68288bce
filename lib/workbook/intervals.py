"""How sure a figure is: the 95 % interval of a mean by Student's t, and what sample a percentile takes."""

from collections.abc import Sequence
from statistics import NormalDist, mean, stdev

INTERVAL_FROM = 5
"""Repeats from which on an interval is given."""


NEEDED = {"p50": 1, "p90": 100, "p99": 1000}
"""Requests that a sample must have for each percentile: ten beyond it, but for the median."""


def t_quantile(free: int) -> float:
    """The 97.5 % quantile of Student's t, within 0.3 % from 4 degrees of freedom on.

    It is the expansion around the normal quantile, Abramowitz and Stegun 26.7.5.
    """
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def half_width(values: Sequence[float]) -> float | None:
    """Half the 95 % interval of the mean, in the unit of the values; None from too few of them."""
    n = len(values)
    return t_quantile(n - 1) * stdev(values) / n**0.5 if n >= INTERVAL_FROM else None


def relative_half_width(values: Sequence[float]) -> float | None:
    """Half the 95 % interval of the mean over that mean; None from too few values, or where the mean is zero."""
    half = half_width(values)
    return None if half is None or not mean(values) else half / mean(values)
