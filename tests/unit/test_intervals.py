"""How sure a mean is."""

from statistics import mean

import pytest

from workbook.intervals import INTERVAL_FROM, half_width, relative_half_width, t_quantile


@pytest.mark.parametrize(
    ("free", "exact"), [(4, 2.7764), (5, 2.5706), (9, 2.2622), (29, 2.0452), (1000, 1.9623)]
)
def test_t_quantile_is_that_of_the_tables(free: int, exact: float) -> None:
    assert t_quantile(free) == pytest.approx(exact, rel=0.003)


def test_the_interval_of_five_values_worked_out_by_hand() -> None:
    values = [98.0, 99.0, 100.0, 101.0, 102.0]  # standard deviation sqrt(2.5), over sqrt(5)
    assert half_width(values) == pytest.approx(2.7764 * 0.70711, rel=0.003)
    assert relative_half_width(values) == pytest.approx(2.7764 * 0.70711 / mean(values), rel=0.003)


def test_too_few_values_or_a_mean_of_zero_have_no_interval() -> None:
    assert half_width([1.0] * (INTERVAL_FROM - 1)) is None
    assert relative_half_width([0.0] * INTERVAL_FROM) is None
