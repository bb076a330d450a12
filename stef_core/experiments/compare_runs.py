"""Runs side by side: accuracy with its interval, by level, what one run fixed and broke, and whether that is more than chance.

Source: experiments.md, "The loop" 6; E. B. Wilson (1927) for the interval; Q. McNemar (1947), exact form, for the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stef_core.experiments.gold import level_key

Z_95 = 1.959963984540054  # 97.5 % point of the standard normal
CORRECT, INCORRECT, NOT_RUN, GOLD_FAILED = "correct", "incorrect", "not_run", "gold_failed"
LABELS = (CORRECT, INCORRECT, NOT_RUN, GOLD_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One row of a run as far as comparing needs it."""

    key: str  # the same in two runs for the same question and gold SQL; differs within a run
    question: str
    level: str
    label: str  # one of `LABELS`


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Execution accuracy of some rows; shares are 0-1 and None where there is nothing to divide by."""

    rows: int
    correct: int
    incorrect: int
    not_run: int  # the agent gave no SQL for a reason that is no answer
    gold_failed: int  # the data set's fault
    low: float | None  # 95 % Wilson interval
    high: float | None

    @property
    def decided(self) -> int:
        """Rows that are right or wrong."""
        return self.correct + self.incorrect

    @property
    def accuracy(self) -> float | None:
        """Right among those decided."""
        return self.correct / self.decided if self.decided else None

    @property
    def coverage(self) -> float | None:
        """Decided among all."""
        return self.decided / self.rows if self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two runs on the rows that both decided."""

    pairs: int
    both: int  # right in both
    neither: int
    fixed: tuple[Labelled, ...]  # wrong in the first, right in the second; in the order of the second
    broke: tuple[Labelled, ...]  # right in the first, wrong in the second
    p_value: float  # McNemar's exact test, two-sided
    only_first: int = 0  # rows of the first run that the second lacks or did not decide
    only_second: int = 0

    @property
    def difference(self) -> float | None:
        """Accuracy of the second less that of the first, on the pairs."""
        return (len(self.fixed) - len(self.broke)) / self.pairs if self.pairs else None


def wilson(successes: int, trials: int) -> tuple[float, float] | None:
    """The 95 % Wilson score interval of a share, within 0-1; None without trials."""
    if trials == 0:
        return None
    share, z2 = successes / trials, Z_95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    # at the ends the bound is the end itself, which rounding misses by an ulp
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


def mcnemar(fixed: int, broke: int) -> float:
    """p of McNemar's exact test, two-sided: chance of a split at least as uneven if fixing and breaking were as likely."""
    changed = fixed + broke
    tail = sum(math.comb(changed, k) for k in range(min(fixed, broke) + 1))
    return min(1.0, 2 * tail / (1 << changed))  # whole numbers up to the division: exact


def accuracy_of(rows: Sequence[Labelled]) -> Accuracy:
    """Execution accuracy of rows."""
    counts = {label: sum(row.label == label for row in rows) for label in LABELS}
    interval = wilson(counts[CORRECT], counts[CORRECT] + counts[INCORRECT])
    low, high = interval if interval is not None else (None, None)
    return Accuracy(rows=len(rows), low=low, high=high, **counts)


def accuracy_by_level(rows: Sequence[Labelled]) -> dict[str, Accuracy]:
    """Execution accuracy of each level, from easy to hard."""
    levels = sorted({row.level for row in rows}, key=level_key)
    return {level: accuracy_of([row for row in rows if row.level == level]) for level in levels}


def paired(first: Sequence[Labelled], second: Sequence[Labelled]) -> Paired:
    """Compare two runs on the rows that both decided.

    Args:
        first: Rows of the run that came before.
        second: Rows of the run that is held against it.
    """
    before = {row.key: row.label for row in first if row.label in (CORRECT, INCORRECT)}
    after = {row.key: row for row in second if row.label in (CORRECT, INCORRECT)}
    shared = [row for key, row in after.items() if key in before]
    fixed = tuple(row for row in shared if before[row.key] == INCORRECT and row.label == CORRECT)
    broke = tuple(row for row in shared if before[row.key] == CORRECT and row.label == INCORRECT)
    both = sum(before[row.key] == row.label == CORRECT for row in shared)
    return Paired(
        pairs=len(shared),
        both=both,
        neither=len(shared) - both - len(fixed) - len(broke),
        fixed=fixed,
        broke=broke,
        p_value=mcnemar(len(fixed), len(broke)),
        only_first=len(first) - len(shared),
        only_second=len(second) - len(shared),
    )
