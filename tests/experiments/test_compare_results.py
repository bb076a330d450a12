"""What makes two results the same, and two different: rules by hand, and laws on random results."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stef_core.experiments.compare_results import CompareOptions, Comparison, ResultSet, Window, same_result
from stef_core.experiments.values import same_cell


def result(*rows: tuple[Any, ...], names: Sequence[str] | None = None, width: int | None = None) -> ResultSet:
    count = width if width is not None else len(rows[0]) if rows else 1
    return ResultSet(tuple(names or (f"c{k}" for k in range(count))), list(rows))


def compare(gold: Sequence[tuple[Any, ...]], predicted: Sequence[tuple[Any, ...]], **options: Any) -> Comparison:
    return same_result(result(*gold), result(*predicted), CompareOptions(**options))


NAN, INF = math.nan, math.inf
UTC = dt.UTC
SAME: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "rows in another order": ([(1, "x"), (2, "y")], [(2, "y"), (1, "x")]),
    "columns in another order": ([(1, "x"), (2, "y")], [("x", 1), ("y", 2)]),
    "one, one as a float, one as a decimal": ([(1,), (2,), (3,)], [(1.0,), (Decimal(2),), (Decimal("3.000"),)]),
    "a sum of floats": ([(0.3,), (1.0,)], [(0.1 + 0.2,), (1.0,)]),
    "a float and a decimal": ([(0.1,), (7.25,)], [(Decimal("0.1"),), (Decimal("7.25"),)]),
    "minus zero": ([(0.0,), (1,)], [(-0.0,), (1,)]),
    "not a number, twice": ([(NAN,), (1.0,)], [(1.0,), (float("nan"),)]),
    "not a number as a decimal": ([(NAN,), (1.0,)], [(Decimal("NaN"),), (Decimal(1),)]),
    "infinities": ([(INF,), (-INF,)], [(Decimal("-Infinity"),), (Decimal("Infinity"),)]),
    "nulls": ([(None, 1), (None, 2)], [(None, 2), (None, 1)]),
    "true and one": ([(True,), (False,)], [(1,), (0,)]),
    "a date and its text": ([(dt.date(2024, 3, 1),), (dt.date(2024, 3, 2),)], [("2024-03-02",), ("2024-03-01",)]),
    "a date and its midnight": ([(dt.date(2024, 3, 1),), (None,)], [(dt.datetime(2024, 3, 1),), (None,)]),  # noqa: DTZ001
    "one instant in two zones": (
        [(dt.datetime(2024, 3, 1, 12, tzinfo=UTC),), (None,)],
        [(dt.datetime(2024, 3, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),), (None,)],
    ),
    "an instant written in two ways": ([("2024-03-01 12:00:00",), ("x",)], [("2024-03-01T12:00:00Z",), ("x",)]),
    "a column that comes twice": ([(1, 1, "x"), (2, 2, "y")], [("y", 2, 2), ("x", 1, 1)]),
    "lists and objects": ([([1, 2.0], {"a": 1}), ([3], {})], [([3.0], {}), ([1, 2], {"a": 1.0})]),
    "integers beyond floats": ([(2**60 + 1,), (2**200,)], [(2**200,), (2**60 + 1,)]),
    "integers beyond floats, as decimals": ([(2**60 + 1,), (5,)], [(Decimal(2**60 + 1),), (Decimal(5),)]),
    "bytes": ([(b"\x00\xff",), (b"",)], [(bytearray(b""),), (memoryview(b"\x00\xff"),)]),
}
DIFFERENT: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], str]] = {
    "3 against 2 of a row": ([(1,), (1,), (1,), (2,), (2,)], [(1,), (1,), (2,), (2,), (2,)], "another number of times"),
    "columns that agree as sets, rows that do not": ([(1, "x"), (2, "y")], [(1, "y"), (2, "x")], "(1, 'y'), is not in gold"),
    "cells swapped in one of several rows": ([(1, 2), (3, 4)], [(2, 1), (3, 4)], "c0"),
    "null and empty text": ([(None,), ("a",)], [("",), ("a",)], "has '', which gold has not, and lacks NULL"),
    "null and zero": ([(None,), (1,)], [(0,), (1,)], "lacks NULL"),
    "null and the text null": ([(None,), ("a",)], [("NULL",), ("a",)], "lacks NULL"),
    "a number and its text": ([(1,), (2,)], [("1",), ("2",)], "lacks 1"),
    "texts in another case": ([("Lima",), ("Rome",)], [("lima",), ("Rome",)], "has 'lima'"),
    "texts with other blanks": ([("Lima",), ("Rome",)], [("Lima ",), ("Rome",)], "has 'Lima '"),
    "a column that should come twice": ([(1, 1), (2, 2)], [(1, 3), (2, 4)], "several of gold's columns are alike"),
    "infinities of other sign": ([(INF,), (1.0,)], [(-INF,), (1.0,)], "lacks inf"),
    "not a number and null": ([(NAN,), (1.0,)], [(None,), (1.0,)], "has NULL"),
    "numbers just beyond the tolerance": ([(1.0,), (2.0,)], [(1.0 + 1e-9,), (2.0,)], "lacks 1.0"),
    "neighbouring integers however large": ([(10**15,), (1,)], [(10**15 + 1,), (1,)], "c0"),
    "minus one and minus two": ([(-1,), (5,)], [(-2,), (5,)], "lacks -1"),
    "no date of a calendar": (
        [("2024-02-30",), (dt.date(2024, 3, 1),)],
        [(dt.date(2024, 3, 1),), (dt.date(2024, 3, 1),)],
        "c0",
    ),
    "a date written otherwise": ([(dt.date(2024, 3, 1),), (None,)], [("01.03.2024",), (None,)], "lacks 2024-03-01"),
    "one empty": ([(1,)], [], "the prediction has 0 rows, gold has 1"),
    "the other empty": ([], [(1,)], "the prediction has 1 row, gold has 0"),
    "an extra column": ([(1,), (2,)], [(1, "x"), (2, "y")], "the prediction has 2 columns (c0, c1), gold has 1 column (c0)"),
    "a column too few": ([(1, "x")], [(1,)], "the prediction has 1 column"),
}


@pytest.mark.parametrize("case", SAME)
def test_same(case: str) -> None:
    gold, predicted = SAME[case]

    compared = compare(gold, predicted)

    assert compared.same, compared.reason
    assert compared.reason.startswith("the same ")


@pytest.mark.parametrize("case", DIFFERENT)
def test_different_and_the_reason_says_where(case: str) -> None:
    gold, predicted, said = DIFFERENT[case]

    compared = compare(gold, predicted)

    assert not compared.same
    assert said in compared.reason


def test_both_empty_is_the_same_and_flagged() -> None:
    assert compare([], []) == Comparison(True, "both results are empty, which proves little", frozenset({"both_empty"}))


def test_a_row_too_few_is_named_when_only_its_number_differs() -> None:
    compared = compare([(1, "x")] * 3 + [(2, "y")], [(1, "x")] * 2 + [(2, "y")])

    assert compared.reason == "the prediction has 3 rows, gold has 4; the row (1, 'x') comes 2 times, in gold 3 times"


def test_case_is_ignored_when_asked_for() -> None:
    assert compare([("Straße",), ("Rome",)], [("ROME",), ("STRASSE",)], ignore_case=True).same


def test_extra_columns_pass_as_a_subset_only() -> None:
    gold, predicted = [(1, "x"), (2, "y")], [("x", True, 1), ("y", True, 2)]

    assert compare(gold, predicted, columns="subset").same
    assert not compare(gold, predicted).same


def test_a_subset_still_keeps_rows_whole() -> None:
    compared = compare([(1, "x"), (2, "y")], [("y", 0, 1), ("x", 0, 2)], columns="subset")

    assert not compared.same


def test_one_row_under_each_others_names_is_no_match() -> None:
    gold, swapped = result((1, 2), names=("lo", "hi")), result((2, 1), names=("lo", "hi"))

    compared = same_result(gold, swapped, CompareOptions())

    assert not compared.same
    assert "under each other's names: (2, 1) as (lo, hi), in gold (1, 2) as (lo, hi)" in compared.reason


@pytest.mark.parametrize("names", [("hi", "lo"), ("max", "min"), ("x", "x")])
def test_one_row_under_other_names_or_in_another_order_matches(names: tuple[str, str]) -> None:
    gold, predicted = result((1, 2), names=("lo", "hi")), result((2, 1), names=names)

    assert same_result(gold, predicted, CompareOptions()).same


def test_order_counts_when_asked_for_and_the_first_row_out_of_place_is_named() -> None:
    compared = compare([(1, "x"), (2, "y"), (3, "z")], [(1, "x"), (3, "z"), (2, "y")], ordered=True)

    assert not compared.same
    assert compared.flags == {"order_differs"}
    assert compared.reason == "the same rows in another order: row 2 is (3, 'z'), in gold (2, 'y')"


def test_rows_of_one_tie_may_swap_and_others_not() -> None:
    gold = result((9, "a"), (5, "b"), (5, "c"), (1, "d"))
    swapped, moved = result((9, "a"), (5, "c"), (5, "b"), (1, "d")), result((5, "b"), (9, "a"), (5, "c"), (1, "d"))
    options = CompareOptions(ordered=True)

    assert same_result(gold, swapped, options, groups=[0, 1, 1, 2]).same
    assert not same_result(gold, swapped, options).same
    assert not same_result(gold, moved, options, groups=[0, 1, 1, 2]).same


@pytest.mark.parametrize(
    ("rows", "same"),
    [
        ([("a", 9), ("b", 5)], True),
        ([("a", 9), ("c", 5)], True),
        ([("a", 9), ("d", 5)], True),
        ([("b", 5), ("a", 9)], False),
        ([("b", 5), ("c", 5)], False),
        ([("a", 9), ("e", 1)], False),
        ([("a", 9), ("b", 9)], False),
        ([("a", 9)], False),
    ],
)
def test_any_row_of_a_tie_that_a_limit_cuts_is_right(rows: list[tuple[Any, ...]], same: bool) -> None:
    pool = result(("a", 9), ("b", 5), ("c", 5), ("d", 5), ("e", 1))

    compared = same_result(
        pool, result(*rows), CompareOptions(ordered=True), groups=[0, 1, 1, 1, 2], window=Window(start=0, size=2)
    )

    assert compared.same is same


def test_a_tie_gives_each_of_its_rows_once() -> None:
    pool = result(("a",), ("b",), ("c",))

    compared = same_result(pool, result(("a",), ("a",)), CompareOptions(), groups=[0, 0, 0], window=Window(0, 2))

    assert not compared.same


def test_a_coarse_tolerance_holds_for_integers_too() -> None:
    assert compare([(100,), (7,)], [(101,), (7,)], rel_tol=0.05).same
    assert not compare([(100,), (7,)], [(110,), (7,)], rel_tol=0.05).same


def test_values_that_lie_close_in_a_chain_are_paired_one_to_one() -> None:
    gold = [(0.0, "x"), (0.8, "x"), (1.6, "x")]

    assert compare(gold, [(0.5, "x"), (1.3, "x"), (2.1, "x")], abs_tol=1.0).same
    assert not compare(gold, [(0.5, "x"), (2.1, "x"), (2.2, "x")], abs_tol=1.0).same


def test_rounding_in_one_column_does_not_blur_integers_in_another() -> None:
    gold = [(10**12 + k, 0.1 * k) for k in range(50)]
    predicted = [(10**12 + k, 0.1 * k * (1 + 1e-13)) for k in reversed(range(50))]

    assert compare(gold, predicted).same
    assert not compare(gold, [(a + (a == 10**12 + 7) * 100, b) for a, b in predicted]).same


def test_columns_that_look_alike_one_by_one_are_told_apart_by_their_rows() -> None:
    chance = random.Random(1)
    rows = [tuple(chance.randrange(2) for _ in range(8)) for _ in range(400)]
    turned = [row[3:] + row[:3] for row in rows]
    chance.shuffle(turned)

    assert compare(rows, turned).same
    flipped = [(1 - turned[0][0], *turned[0][1:]), *turned[1:]]
    assert not compare(rows, flipped).same


def test_columns_that_cannot_all_find_a_partner_are_told_at_once() -> None:
    ones = [tuple(int(i == j) for j in range(40)) for i in range(40)]

    compared = compare(ones, [*ones[:-1], ones[0]])

    assert not compared.same
    assert "has too few columns of those values" in compared.reason


def test_a_search_that_takes_too_long_is_ended_and_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    # rings of columns: every column, and every pair of them, looks like others, and only the whole tells them apart
    def rings(sizes: list[int]) -> list[tuple[int, ...]]:
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        after = {start + k: start + (k + 1) % size for start, size in zip(starts, sizes, strict=True) for k in range(size)}
        return [tuple(int(j in (i, after[i])) for j in range(sum(sizes))) for i in range(sum(sizes))]

    decided = compare(rings([6] * 8), rings([4] * 12))
    monkeypatch.setattr("stef_core.experiments.compare_results._SEARCH_CELLS", 20_000)
    ended = compare(rings([6] * 8), rings([4] * 12))

    assert (decided.same, decided.flags) == (False, frozenset())
    assert (ended.same, ended.flags) == (False, frozenset({"search_ended"}))


def test_a_thousand_columns_of_nulls_are_no_trouble() -> None:
    rows: list[tuple[Any, ...]] = [(None,) * 1_200, (None,) * 1_200]

    assert compare(rows, rows).same


def test_texts_with_broken_or_odd_characters_are_compared_as_they_are() -> None:
    odd = [("\ud800",), ("\0null",), ("\0instant 5",)]

    assert compare(odd, odd[::-1]).same
    assert not compare(odd, [(None,), *odd[1:]]).same
    assert not compare([("\0null",), (1,)], [(None,), (1,)]).same


@pytest.mark.parametrize("cut", ["gold", "predicted"])
def test_a_result_cut_off_decides_only_what_its_length_proves(cut: str) -> None:
    short = ResultSet(("a",), [(1,)])
    long = ResultSet(("a",), [(1,), (2,)], truncated=True)

    gold, predicted = (long, short) if cut == "gold" else (short, long)
    proved = same_result(gold, predicted, CompareOptions())
    open_ = same_result(long, long, CompareOptions())

    assert (proved.same, proved.flags) == (False, frozenset())
    assert "more than 2" in proved.reason
    assert (open_.same, open_.flags) == (False, frozenset({"truncated"}))


def big(count: int) -> list[tuple[Any, ...]]:
    return [
        (k, f"name {k % 1000}", k * 0.37, None if k % 11 == 0 else dt.date(2024, 1, 1) + dt.timedelta(k % 366))
        for k in range(count)
    ]


def test_a_quarter_of_a_million_rows_shuffled_are_the_same() -> None:
    rows = big(250_000)
    shuffled = [(b, c * (1 + 1e-13), a, d) for a, b, c, d in random.Random(5).sample(rows, len(rows))]

    compared = compare(rows, shuffled)

    assert compared.same
    assert compared.flags == {"by_hash"}


def test_one_cell_in_a_quarter_of_a_million_rows_is_found() -> None:
    rows = big(250_000)
    wrong = random.Random(5).sample(rows, len(rows))
    # both columns keep their values: only whole rows tell
    (a, b, *rest), (a2, b2, *rest2) = wrong[0], wrong[1]
    wrong[0], wrong[1] = (a2, b, *rest), (a, b2, *rest2)

    compared = compare(rows, wrong)

    assert not compared.same
    assert "the rows do not" in compared.reason


def test_beyond_max_rows_the_answer_is_the_same_as_below() -> None:
    for gold, predicted in SAME.values():
        assert compare(gold, predicted, max_rows=1).same
    for gold, predicted, _ in DIFFERENT.values():
        assert not compare(gold, predicted, max_rows=1).same


# --- laws -----------------------------------------------------------------------------------------------------------

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(width=32),
    st.sampled_from([0.1 + 0.2, 0.3, -0.0, 1.0, Decimal("0.3"), Decimal(1), Decimal("NaN")]),
    st.text(max_size=3),
    st.sampled_from(["", "NULL", "a", "A", "2024-03-01", "2024-03-01 00:00:00"]),
    st.dates(dt.date(2024, 2, 28), dt.date(2024, 3, 2)),
    st.datetimes(dt.datetime(2024, 3, 1), dt.datetime(2024, 3, 2)),  # noqa: DTZ001
    st.binary(max_size=2),
)


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[CELLS] * width), min_size=2, max_size=8))


@settings(deadline=None)
@given(rows=tables(), chance=st.randoms(use_true_random=False), max_rows=st.sampled_from([1, 10_000]))
def test_neither_the_order_of_rows_nor_of_columns_matters(
    rows: list[tuple[Any, ...]], chance: random.Random, max_rows: int
) -> None:
    places = chance.sample(range(len(rows[0])), len(rows[0]))
    turned = [tuple(row[place] for place in places) for row in chance.sample(rows, len(rows))]

    compared = compare(rows, turned, max_rows=max_rows)

    assert compared.same, compared.reason


@settings(deadline=None)
@given(rows=tables(), chance=st.randoms(use_true_random=False), max_rows=st.sampled_from([1, 10_000]))
def test_one_other_cell_makes_another_result(rows: list[tuple[Any, ...]], chance: random.Random, max_rows: int) -> None:
    k, place = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
    changed = [
        tuple("quite another" if (n, i) == (k, place) else cell for i, cell in enumerate(row)) for n, row in enumerate(rows)
    ]

    compared = compare(rows, chance.sample(changed, len(changed)), max_rows=max_rows)

    assert not compared.same
    assert compared.reason


@settings(deadline=None)
@given(rows=tables(), others=tables(), max_rows=st.sampled_from([1, 10_000]))
def test_gold_and_prediction_may_change_sides(
    rows: list[tuple[Any, ...]], others: list[tuple[Any, ...]], max_rows: int
) -> None:
    assert compare(rows, others, max_rows=max_rows).same == compare(others, rows, max_rows=max_rows).same


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=5),
    chance=st.randoms(),
)
def test_the_search_for_columns_finds_what_trying_all_of_them_finds(rows: list[tuple[int, ...]], chance: random.Random) -> None:
    others = [tuple(chance.randrange(2) for _ in row) for row in rows]
    by_trying = any(
        sorted(tuple(row[p] for p in places) for row in others) == sorted(rows) for places in permutations(range(3))
    )

    assert compare(rows, others).same == by_trying


NEAR = st.sampled_from([0, 1, 1.0, 0.5, 1.5, 0.9, 2, 0.4, None, "a", True])


@settings(deadline=None, max_examples=300)
@given(
    rows=st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[NEAR] * width), min_size=2, max_size=4)),
    chance=st.randoms(use_true_random=False),
    tolerance=st.sampled_from([1e-10, 0.35, 0.5, 1.0]),
    max_rows=st.sampled_from([1, 10_000]),
)
def test_a_tolerance_pairs_rows_as_trying_every_pairing_does(
    rows: list[tuple[Any, ...]], chance: random.Random, tolerance: float, max_rows: int
) -> None:
    width = len(rows[0])
    places = chance.sample(range(width), width)
    moved = [
        tuple(row[p] if row[p] is None or isinstance(row[p], str) else row[p] + chance.choice([0, 0.3, -0.3]) for p in places)
        for row in chance.sample(rows, len(rows))
    ]

    def near(a: Any, b: Any) -> bool:
        return same_cell(a, b, abs_tol=tolerance, rel_tol=1e-10, ignore_case=False)

    by_trying = any(
        all(near(row[i], other[turn[i]]) for row, other in zip(rows, pairing, strict=True) for i in range(width))
        for turn in permutations(range(width))
        for pairing in permutations(moved)
    )
    found = same_result(
        result(*rows),
        result(*moved, names=[f"d{k}" for k in range(width)]),
        CompareOptions(abs_tol=tolerance, max_rows=max_rows),
    )

    assert found.same == by_trying, found.reason
