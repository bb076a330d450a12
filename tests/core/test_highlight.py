"""Where texts hold what findings name: parts are found as people and SQL spell them, and nothing else is touched."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stef_core.highlight import PLACES, places


def marked(text: str, *parts: str | None) -> list[str]:
    return [text[start:end] for start, end in places(text, parts)]


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("Which orders came before 2003?", "before 2003", ["before 2003"]),
        ("Which ORDERS came?", "orders", ["ORDERS"]),
        ("How many dogs are there?", "dog", ["dogs"]),
        ("SELECT 1 WHERE Role_Code = 'Treatment'", "role_code = 'treatment'", ["Role_Code = 'Treatment'"]),
        ('SELECT 1 WHERE "role_code"="Treatment" AND x', "role_code = 'treatment'", ['"role_code"="Treatment"']),
        ("SELECT 1 WHERE o.status   =\n 'open'", "orders.status = 'open'", ["o.status   =\n 'open'"]),
        ("ON T1.country_id = T2.league_id", "match.league_id = league.country_id", ["T1.country_id = T2.league_id"]),
        ("WHERE amount <> 5", "amount ≠ 5", ["amount <> 5"]),
        ("WHERE amount >= 5", "amount ≥ 5", ["amount >= 5"]),
        ("What was the anti-nucleus level?", "anti_nucleus", ["anti-nucleus"]),
        ("SELECT YEAR(founded) WHERE founded = 2003", "year(founded) = 2003", ["founded", "2003"]),
        ("sales by each month", "per month", ["month"]),
        ("on 2026-01-02 in Lima", "day = 2026-01-02", ["2026-01-02"]),
        ("売上合計を教えて", "合計", ["合計"]),
        ("SELECT price FROM t", "rice", []),
        ("How many orders?", "the of", []),
        ("anything", None, []),
        ("anything", "  ", []),
        ("", "orders", []),
    ],
)
def test_a_part_is_found_as_it_is_spelled(text: str, part: str | None, expected: list[str]) -> None:
    assert marked(text, part) == expected


def test_the_table_of_a_column_decides_where_it_stands_twice() -> None:
    assert marked("SELECT a.id, b.id FROM a, b", "b.id") == ["b.id"]


def test_places_of_several_parts_are_in_order_and_apart() -> None:
    text = "open orders of 2025 from Peru"

    assert marked(text, "from Peru", "orders of", "of 2025") == ["orders of 2025", "from Peru"]


def test_a_text_is_never_marked_all_over() -> None:
    words = [f"word{n}" for n in range(40)]

    assert len(places(" and ".join(words), words)) == PLACES


@given(st.text(max_size=80), st.lists(st.text(max_size=30), max_size=4))
def test_places_are_disjoint_ranges_of_the_text(text: str, parts: list[str]) -> None:
    found = places(text, parts)

    ends = [end for each in found for end in each]
    assert ends == sorted(ends)
    assert all(0 <= start < end <= len(text) for start, end in found)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a." * 5_000, "a.a " * 75),
        ("'" * 10_000, "a = 'b'"),
        ("a '" * 3_000, "a 'a 'a 'a 'a b"),
        ('a"."' * 3_000, "a a a a a a b"),
        ("a " * 5_000, "a a a a a a a a a a a a a a a a b"),
        ("x" * 10_000, "x" * 300),
    ],
)
def test_no_text_keeps_the_search_busy(text: str, part: str) -> None:
    started = time.process_time()

    places(text, [part])

    assert time.process_time() - started < 2.0
