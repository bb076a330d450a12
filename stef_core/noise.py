"""What chance does to a day's mean: few rows, and days that differ by more than their rows.

Every test here asks one thing: do some days lie further below the days before them than chance explains? Two things are chance.
Rows: which of the answers happen to fall on the day, which permuting them between the day and its window tells. Days: other
people, other questions, weekends. A day's own effect is taken to have heavy tails (Student's t, 5 degrees of freedom), to last
from day to day (`MEMORY`), and to vary as much as the window shows, which is little evidence and so is weighed against what all
agents show together. The chance is computed, not drawn: the same rows give the same figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY_SHARE = 0.004  # variance between ordinary days, as a share of that between rows, assumed until a log says more
DAY_SHARE_DAYS = 6  # how many days of evidence that assumption is worth against all agents together
POOL_DAYS = 10  # and all agents together against one agent's own days
MEMORY = 0.5  # correlation of a day's effect with that of the day before
DAY_KURTOSIS = 6.0  # of Student's t with 5 degrees of freedom: some ordinary days are odd
LIKELY = -2.0  # standard errors; above it a fall is ordinary and the normal approximation is near enough
EXACT_ROWS = 1000  # beyond, sums of rows are normal
LEAST = 1e-12  # a chance below it is not told apart from none


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Rows of each day in three sums. Arrays of the same shape; the last axis is the day, a day without rows counts 0."""

    rows: Floats
    total: Floats
    squares: Floats

    @property
    def count(self) -> Floats:
        """Days that have rows."""
        return np.asarray((self.rows > 0).sum(axis=-1), dtype=float)

    @property
    def mean(self) -> Floats:
        """Mean over all rows of all days; nan without rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.total.sum(axis=-1) / self.rows.sum(axis=-1))

    def only(self, days: slice | NDArray[np.bool_]) -> Days:
        """These days alone."""
        return Days(rows=self.rows[..., days], total=self.total[..., days], squares=self.squares[..., days])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the days of a window differ. `between` is the variance of day effects, unbiased and so at times negative."""

    between: Floats
    within: Floats  # variance of rows inside their days
    freedom: Floats  # days less one
    rows_a_day: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """Some days against the days before them. `observed` and `expected` are means, `error` is that of their difference."""

    observed: float
    expected: float
    error: float
    p_value: float
    rows: int
    baseline_rows: int
    days: int
    baseline_days: int


def days_of(values: Sequence[Floats]) -> Days:
    """The values of each day, summed up."""
    return Days(
        rows=np.array([len(day) for day in values], dtype=float),
        total=np.array([day.sum() for day in values]),
        squares=np.array([(day**2).sum() for day in values]),
    )


def spread(days: Days) -> Spread:
    """Variance between and within days, by the method of moments for groups of unequal size."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rows, count = days.rows.sum(axis=-1), days.count
        own = np.where(days.rows > 0, days.total**2 / days.rows, 0.0).sum(axis=-1)
        within = np.where(rows > count, (days.squares.sum(axis=-1) - own) / (rows - count), 0.0)
        within = np.maximum(within, 0.0)
        scatter = own - days.total.sum(axis=-1) ** 2 / rows
        weight = rows - (days.rows**2).sum(axis=-1) / rows
        between = np.where(weight > 0, (scatter - (count - 1) * within) / weight, 0.0)
        rows_a_day = np.where(count > 1, weight / (count - 1), rows)
    return Spread(between=between, within=within, freedom=np.maximum(count - 1, 0.0), rows_a_day=rows_a_day)


def learn_day_share(days: Days) -> float:
    """How much days differ in this log: variance between days as a share of that between rows, over all series together.

    Each series counts by the days of evidence that it gives (Satterthwaite 1946): many days of few rows say little. `DAY_SHARE`
    stands for what is not known.
    """
    found = spread(days)
    known = (found.within > 0) & (found.freedom > 0)
    own = found.between[known] / found.within[known]
    row_share = 1 / found.rows_a_day[known]
    share = DAY_SHARE
    for _ in range(3):  # the evidence of a series hangs on the share that is looked for
        evidence = found.freedom[known] * (share / (share + row_share)) ** 2
        share = float((DAY_SHARE_DAYS * DAY_SHARE + evidence @ own) / (DAY_SHARE_DAYS + evidence.sum()))
        share = max(share, DAY_SHARE / 4)
    return share


def day_variance(baseline: Days, row_variance: Floats, day_share: float) -> tuple[Floats, Floats]:
    """Variance of a day's effect, and the degrees of freedom it is known with.

    Args:
        baseline: The days before.
        row_variance: Variance of a row.
        day_share: From `learn_day_share`.
    """
    found = spread(baseline)
    expected, own = day_share * row_variance, np.maximum(found.between, 0.0)
    likely = np.maximum(expected, own)
    with np.errstate(invalid="ignore", divide="ignore"):
        reliable = np.where(likely > 0, likely / (likely + found.within / found.rows_a_day), 0.0)
    evidence = found.freedom * reliable**2
    return (POOL_DAYS * expected + evidence * own) / (POOL_DAYS + evidence), POOL_DAYS + evidence


def screen(days: Days, baseline: Days, day_share: float) -> tuple[Floats, Floats]:
    """Standard error of many falls at once, and the chance of each by the normal approximation.

    Args:
        days: The days tested, one series a row.
        baseline: The days before, likewise.
        day_share: From `learn_day_share`.
    """
    n, m = days.rows.sum(axis=-1), baseline.rows.sum(axis=-1)
    row_variance = _row_variance(days, baseline)
    variance, _ = day_variance(baseline, row_variance, day_share)
    error = np.sqrt(row_variance * (1 / n + 1 / m) + variance * (lasting(days.count) + lasting(baseline.count)))
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(error > 0, (days.mean - baseline.mean) / error, 0.0)
    from scipy.special import ndtr  # slow import: pay when a day is tested

    return error, ndtr(z)


def measure_fall(days: Sequence[Floats], baseline: Sequence[Floats], *, day_share: float = DAY_SHARE) -> Fall:
    """How far some days lie below the window before them, and how often chance alone does that.

    Args:
        days: Values of each day that is tested, 0-100, each with at least one.
        baseline: Values of each earlier day, likewise.
        day_share: From `learn_day_share`.
    """
    now, before = days_of(days), days_of(baseline)
    variance, freedom = day_variance(before, _row_variance(now, before), day_share)
    return _fall(
        np.concatenate(days),
        np.concatenate(baseline),
        observed=float(now.mean),
        expected=float(before.mean),
        effects=float(variance) * np.array([float(lasting(now.count)), float(lasting(before.count))]),
        freedom=float(freedom),
        days=(len(days), len(baseline)),
        scale=(0.0, 100.0),
    )


def measure_paired_fall(days: Sequence[tuple[Floats, Floats]]) -> Fall:
    """How far one of two that ran side by side lies below the other, day by day, and how often chance alone does that.

    A day's effect strikes both alike and drops out. What is left, since the two answer other people, is taken to be half of
    what an ordinary day has (`DAY_SHARE`), however much the days of this log differ.

    Args:
        days: Values of the one and of the other on each day that has both, 0-100.
    """
    sizes = np.array([(len(a), len(b)) for a, b in days], dtype=float)
    weights = sizes.prod(axis=1) / sizes.sum(axis=1)
    means = np.array([(a.mean(), b.mean()) for a, b in days])
    observed, expected = (weights @ means / weights.sum()).tolist()
    # each row without its day, so that rows of all days can be permuted together
    centres = [float(np.concatenate(pair).mean()) for pair in days]
    now = np.concatenate([a - centre for (a, _), centre in zip(days, centres, strict=True)])
    before = np.concatenate([b - centre for (_, b), centre in zip(days, centres, strict=True)])
    variance = DAY_SHARE * float(np.concatenate([now, before]).var())
    effects = variance / 2 * np.array([1.0, 1.0]) * float((weights**2).sum() / weights.sum() ** 2)
    return _fall(
        now,
        before,
        observed=observed,
        expected=expected,
        effects=effects,
        freedom=POOL_DAYS + len(days) - 1.0,
        days=(len(days), len(days)),
        scale=(-100.0, 100.0),
        error_of_rows=float(1 / weights.sum()),
    )


def lasting(days: Floats) -> Floats:
    """Variance of the mean of some days in a row, as a share of that of one, where each day remembers the one before."""
    longest = int(np.max(days, initial=1))
    return np.asarray(_lasting(longest)[np.asarray(days, dtype=int)])


def holm(p_values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """P-values corrected for being many, in the order given: one of a family is wrongly at or below `alpha` at most that often.

    Args:
        p_values: 0-1, of tests that may depend on each other in any way.
        weights: What share of the error each test may spend, relative to the others (Holm 1979, weighted).
    """
    adjusted, worst, left = [1.0] * len(p_values), 0.0, float(sum(weights))
    for index in sorted(range(len(p_values)), key=lambda i: (p_values[i] / weights[i], i)):
        worst = max(worst, min(1.0, left * p_values[index] / weights[index]))
        adjusted[index] = worst
        left -= weights[index]
    return adjusted


@lru_cache
def _lasting(longest: int) -> Floats:
    shares = [1.0]  # of no day; never used as such
    for days in range(1, longest + 1):
        lags = np.arange(1, days)
        shares.append(float((1 + 2 * ((1 - lags / days) * MEMORY**lags).sum()) / days))
    return np.array(shares)


def _row_variance(days: Days, baseline: Days) -> Floats:
    rows, total, squares = (
        a.sum(axis=-1) + b.sum(axis=-1)
        for a, b in ((days.rows, baseline.rows), (days.total, baseline.total), (days.squares, baseline.squares))
    )
    return np.asarray(np.maximum(squares / rows - (total / rows) ** 2, 0.0))


def _fall(
    now: Floats,
    before: Floats,
    *,
    observed: float,
    expected: float,
    effects: Floats,  # variance that days add on either side
    freedom: float,
    days: tuple[int, int],
    scale: tuple[float, float],
    error_of_rows: float | None = None,
) -> Fall:
    from scipy.special import ndtr, stdtr

    both = np.concatenate([now, before])
    each = 1 / len(now) + 1 / len(before)
    row_variance = float(both.var())
    error_of_rows = each if error_of_rows is None else error_of_rows
    error = float(np.sqrt(row_variance * error_of_rows + effects.sum()))
    fall = observed - expected
    if error == 0.0 or fall >= LIKELY * error:
        p_value = float(ndtr(fall / error)) if error else 1.0
    else:
        points, chances = _permuted(now, both, scale)
        points *= float(np.sqrt(error_of_rows / each))
        noise = float(effects.sum())
        if noise > 0:
            # Student's t with the variance and kurtosis of the mean of heavy-tailed days, known with limited freedom
            kurtosis = DAY_KURTOSIS / days[0] * (effects[0] / noise) ** 2 + 6 / (freedom - 4)
            tail = 4 + 6 / kurtosis
            p_value = float(chances @ stdtr(tail, (fall - points) / np.sqrt(noise * (tail - 2) / tail)))
        else:
            p_value = float(chances[points <= fall + 1e-9].sum())
    return Fall(
        observed=observed,
        expected=expected,
        error=error,
        p_value=min(1.0, max(LEAST, p_value)),
        rows=len(now),
        baseline_rows=len(before),
        days=days[0],
        baseline_days=days[1],
    )


def _permuted(now: Floats, both: Floats, scale: tuple[float, float]) -> tuple[Floats, Floats]:
    """Differences of the two means that permuting the rows gives, centred, and the chance of each."""
    n, m = len(now), len(both) - len(now)
    low, high = float(both.min()), float(both.max())
    if len(np.unique(both)) == 2:
        return _hypergeometric(n, m, int((both == low).sum()), high - low)
    spread_of_mean = float(both.std()) * np.sqrt(1 / n + 1 / m)
    if n > EXACT_ROWS:
        steps = np.linspace(-9, 9, 361)
        chances = np.exp(-(steps**2) / 2)
        return steps * spread_of_mean, chances / chances.sum()
    # the sum of n rows on a grid of points of the scale, by the n-th power of its transform
    least, most = scale
    places = np.clip((both - least) / (most - least) * 100, 0, 100)
    floor = np.minimum(places.astype(int), 99)
    chance = np.bincount(floor, 1 - (places - floor), 101) + np.bincount(floor + 1, places - floor, 101)
    size = 1 << (100 * n + 1).bit_length()
    sums = np.fft.irfft(np.fft.rfft(chance / len(both), size) ** n, size)[: 100 * n + 1]
    means = (np.arange(100 * n + 1) / n - places.mean()) * (most - least) / 100
    # rows are drawn with replacement here; permuted ones differ less from the rest by this factor
    return means * (spread_of_mean / (float(both.std()) / np.sqrt(n))), np.maximum(sums, 0.0)


def _hypergeometric(n: int, m: int, low_rows: int, gap: float) -> tuple[Floats, Floats]:
    from scipy.special import gammaln

    def choose(a: int, b: Floats) -> Floats:
        return np.asarray(gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1))

    low = np.arange(max(0, low_rows - m), min(n, low_rows) + 1, dtype=float)
    logs = choose(low_rows, low) + choose(n + m - low_rows, n - low) - choose(n + m, np.array(float(n)))
    return -gap * (low / n - (low_rows - low) / m), np.exp(logs)
