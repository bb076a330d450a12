"""Sampling: duplicates go, levels balance, and the draw depends on seed and content alone."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stef_core.experiments.gold import GoldRow
from stef_core.experiments.sampling import balanced_sample, by_level, without_duplicates


def rows(**counts: int) -> list[GoldRow]:
    return [
        GoldRow(query_id=f"{level}-{n}", question=f"{level} {n}?", gold_sql=(f"SELECT {n}",), level=level)
        for level, count in counts.items()
        for n in range(count)
    ]


def test_the_first_of_equal_rows_stays_whatever_their_white_space() -> None:
    first = GoldRow(query_id="1", question="How many?", gold_sql=("SELECT 1",), level="easy")
    same = GoldRow(query_id="2", question="How  many?", gold_sql=("SELECT\n1",), level="hard")
    other = GoldRow(query_id="3", question="How many?", gold_sql=("SELECT 2",))

    assert without_duplicates([first, same, other, first]) == [first, other]


def test_each_level_gives_as_many_rows_or_all_it_has() -> None:
    sample = balanced_sample(rows(hard=3, easy=20, medium=9), 5, seed=1)

    assert by_level(sample) == {"easy": 5, "medium": 5, "hard": 3}
    assert list(by_level(sample)) == ["easy", "medium", "hard"]


def test_the_same_seed_draws_the_same_rows_and_another_seed_others() -> None:
    pool = rows(easy=40, hard=40)

    assert balanced_sample(pool, 10, seed=3) == balanced_sample(pool, 10, seed=3)
    assert balanced_sample(pool, 10, seed=3) != balanced_sample(pool, 10, seed=4)


@given(st.integers(0, 9), st.integers(1, 12), st.integers())
def test_order_other_levels_and_a_larger_sample_change_no_draw(shuffle: int, size: int, seed: int) -> None:
    pool = rows(easy=15, medium=10)
    shuffled = random.Random(shuffle).sample(pool, len(pool))

    drawn = {row.query_id for row in balanced_sample(pool, size, seed)}

    assert {row.query_id for row in balanced_sample(shuffled, size, seed)} == drawn
    assert drawn <= {row.query_id for row in balanced_sample([*pool, *rows(hard=4)], size + 2, seed)}


def test_a_sample_keeps_the_order_of_the_file() -> None:
    pool = rows(hard=6, easy=6)
    sample = balanced_sample(pool, 3, seed=1)

    assert [pool.index(row) for row in sample] == sorted(pool.index(row) for row in sample)
