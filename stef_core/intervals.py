"""How far a mean of scores can be trusted: 95 % intervals from sums, so that a database can do the adding.

Rows are taken as independent draws. Sums of rows, of values and of squares add up over days, versions and applications, so
any selection of them has its interval without its rows being read again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LEVEL = 0.95
FEWEST = 5  # below, a spread measured on the rows says little, and equal rows would look certain
HIGHEST = 100.0
_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


class Sums(NamedTuple):
    """Rows, the sum of their values and the sum of the squares of these."""

    n: int
    total: float
    squares: float

    @property
    def mean(self) -> float | None:
        """Mean value; None of no rows."""
        return self.total / self.n if self.n else None

    @property
    def variance(self) -> float:
        """Sample variance; 0 of fewer than two rows."""
        # the difference of two large sums may fall below 0 by rounding
        return max(0.0, self.squares - self.total * self.total / self.n) / (self.n - 1) if self.n > 1 else 0.0


def mean_interval(sums: Sums) -> tuple[float, float] | None:
    """The 95 % interval of a mean score by Student's t, kept within 0-100; None of fewer than five rows."""
    if sums.n < FEWEST:
        return None
    mean = sums.total / sums.n
    reach = t_quantile(sums.n - 1) * math.sqrt(sums.variance / sums.n)
    return max(0.0, mean - reach), min(HIGHEST, mean + reach)


def difference_interval(new: Sums, old: Sums) -> tuple[float, float] | None:
    """The 95 % interval of ``new.mean - old.mean`` by Welch's t; None where either has fewer than five rows."""
    if new.n < FEWEST or old.n < FEWEST:
        return None
    parts = [sums.variance / sums.n for sums in (new, old)]
    error = sum(parts)
    difference = new.total / new.n - old.total / old.n
    if error == 0.0:
        return difference, difference
    freedom = error * error / sum(part * part / (sums.n - 1) for part, sums in zip(parts, (new, old), strict=True))
    reach = t_quantile(freedom) * math.sqrt(error)
    return difference - reach, difference + reach


def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, to 0.05 % from 4 degrees of freedom on.

    Source:
        Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.5. The report's script holds the same sum.
    """
    z = _Z
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3 + g4 / freedom**4
