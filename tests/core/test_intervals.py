"""Intervals of means from sums: they agree with those of the rows, and say nothing where there is nothing to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from stef_core.intervals import FEWEST, Sums, difference_interval, mean_interval, t_quantile

PHI = st.sampled_from([0.0, 24.0, 32.0, 40.0, 50.0, 64.0, 80.0, 100.0])
ROWS = st.lists(PHI, min_size=FEWEST, max_size=60)


def sums(values: list[float]) -> Sums:
    return Sums(len(values), sum(values), sum(value * value for value in values))


@pytest.mark.parametrize("freedom", [4, 4.5, 5, 7, 12.3, 30, 100, 10_000])
def test_the_quantile_is_that_of_students_t(freedom: float) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=5e-4)


@given(ROWS)
def test_the_interval_of_a_mean_is_that_of_its_rows(values: list[float]) -> None:
    found = mean_interval(sums(values))

    reach = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    mean = float(np.mean(values))
    assert found == pytest.approx((max(0.0, mean - reach), min(100.0, mean + reach)), abs=0.02)


# SciPy warns of equal rows, whose interval is right all the same
@pytest.mark.filterwarnings("ignore:Precision loss occurred:RuntimeWarning")
@given(ROWS, ROWS)
@example(new=[0.0, 0.0, 0.0, 0.0, 24.0], old=[24.0] * 5)
def test_the_interval_of_a_difference_is_welchs(new: list[float], old: list[float]) -> None:
    found = difference_interval(sums(new), sums(old))

    assert found is not None
    if len({*new}) == 1 and len({*old}) == 1:
        assert found == (new[0] - old[0], new[0] - old[0])
    else:
        expected = stats.ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
        assert found == pytest.approx((expected.low, expected.high), abs=0.05)


def test_few_rows_have_no_interval() -> None:
    few, enough = sums([80.0] * (FEWEST - 1)), sums([80.0, 40.0, 80.0, 80.0, 0.0])

    assert mean_interval(few) is None
    assert difference_interval(few, enough) is None
    assert difference_interval(enough, few) is None
    assert Sums(0, 0.0, 0.0).mean is None


def test_sums_of_parts_add_up_to_the_sums_of_the_whole() -> None:
    first, second = [80.0, 50.0, 24.0], [100.0, 0.0, 64.0]

    (n, total, squares), more = sums(first), sums(second)
    added = Sums(n + more.n, total + more.total, squares + more.squares)

    assert mean_interval(added) == mean_interval(sums(first + second))


def test_equal_rows_have_no_width_though_their_sums_are_rounded() -> None:
    assert Sums(7, 7 * 0.1, 7 * 0.1 * 0.1).variance == pytest.approx(0.0, abs=1e-12)
    assert Sums(7, 7 * 0.1, 7 * 0.1 * 0.1).variance >= 0.0
