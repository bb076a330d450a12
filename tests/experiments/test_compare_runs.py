"""Comparison of runs: intervals and p-values against scipy, and fixes and breaks against counting by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from stef_core.experiments.compare_runs import Labelled, accuracy_by_level, accuracy_of, mcnemar, paired, wilson

COUNTS = st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def run(labels: str, *, levels: str = "", skip: int = 0) -> list[Labelled]:
    """A row a letter: c correct, i incorrect, n not run, g gold failed."""
    words = {"c": "correct", "i": "incorrect", "n": "not_run", "g": "gold_failed"}
    return [
        Labelled(key=str(n), question=f"q{n}", level=(levels or "e" * len(labels))[n - skip], label=words[letter])
        for n, letter in enumerate(labels, skip)
    ]


@given(COUNTS.filter(lambda pair: pair[1] > 0))
def test_the_interval_is_wilsons_and_holds_the_share(counts: tuple[int, int]) -> None:
    successes, trials = counts
    interval = wilson(successes, trials)
    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")

    assert interval == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert interval is not None
    assert 0 <= interval[0] <= successes / trials <= interval[1] <= 1


def test_the_guides_first_run_has_the_interval_of_the_textbook() -> None:
    assert wilson(2, 99) == pytest.approx((0.00556, 0.07073), abs=5e-5)
    assert wilson(0, 0) is None


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemars_p_is_the_exact_two_sided_binomial(fixed: int, broke: int) -> None:
    expected = binomtest(fixed, fixed + broke, 0.5).pvalue if fixed + broke else 1.0

    assert mcnemar(fixed, broke) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(fixed, broke) == mcnemar(broke, fixed)


def test_a_very_long_run_still_has_a_p() -> None:
    assert 0 <= mcnemar(3000, 2000) < 1e-40


def test_rows_that_did_not_run_lower_the_coverage_and_not_the_accuracy() -> None:
    found = accuracy_of(run("ccinng"))

    assert (found.rows, found.correct, found.decided, found.not_run, found.gold_failed) == (6, 2, 3, 2, 1)
    assert (found.accuracy, found.coverage) == (2 / 3, 0.5)


def test_nothing_decided_has_no_accuracy() -> None:
    found = accuracy_of(run("nn"))

    assert (found.accuracy, found.low, found.high, found.coverage) == (None, None, None, 0.0)
    assert accuracy_of([]).coverage is None


def test_levels_go_from_easy_to_hard() -> None:
    rows = [
        Labelled(key=level, question="", level=level, label="correct") for level in ("zeta", "hard", "easy", "medium", "none")
    ]

    assert list(accuracy_by_level(rows)) == ["easy", "medium", "hard", "none", "zeta"]


def test_fixes_and_breaks_are_counted_on_rows_that_both_decided() -> None:
    found = paired(run("ciicnc"), run("iccnci"))

    assert found.pairs == 4
    assert [row.key for row in found.fixed] == ["1", "2"]
    assert [row.key for row in found.broke] == ["0", "5"]
    assert (found.both, found.neither, found.difference, found.p_value) == (0, 0, 0.0, 1.0)
    assert (found.only_first, found.only_second) == (2, 2)


def test_rows_of_one_run_alone_are_in_no_pair() -> None:
    found = paired(run("ci"), run("cc", skip=1))

    assert (found.pairs, len(found.fixed), found.only_first, found.only_second) == (1, 1, 1, 1)
    assert paired(run("c"), run("c", skip=5)).difference is None
