"""The normal form of values, shared by the question side and the SQL side."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stef_core.normalize import folded_number, normal_date, normal_name, normal_number, normal_text, normal_value


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Lima", "lima"),
        ("  New\t York \n", "new york"),
        ("ＡＢＣ", "abc"),  # full width
        ("Straße", "strasse"),
        ("ﬁnance", "finance"),  # ligature
        ("CAFE\u0301", "café"),  # combining accent
        ("\u00a0x\u2003y", "x y"),
        ("İzmir", "i̇zmir"),
        ("", ""),
        ("a\ud800b", "a\ud800b"),  # a lone surrogate survives
    ],
)
def test_text_is_folded_in_form_case_and_blanks(written: str, normal: str) -> None:
    assert normal_text(written) == normal


@pytest.mark.parametrize(
    ("written", "number"),
    [("1", 1), ("1.0", 1), (" -3 ", -3), ("0.50", 0.5), ("0", 0), ("12345678901234567890", 12345678901234567890), ("+7", 7)],
)
def test_numeric_text_is_a_number(written: str, number: float) -> None:
    assert normal_number(written) == number
    assert type(normal_number(written)) is type(number)


@pytest.mark.parametrize("written", ["02139", "-007", "00", "1,000", "1e5", "½", "٣", "", "1.", ".5", "12a", "9" * 500])
def test_codes_and_other_spellings_stay_text(written: str) -> None:
    assert normal_number(written) is None


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("2024-07-05", "2024-07-05"),
        ("2024-7-5", "2024-07-05"),
        ("2024/07/05", "2024-07-05"),
        ("2024.07.05", "2024-07-05"),
        ("2024-07-05 00:00:00", "2024-07-05"),
        ("2024-07-05T00:00:00.000Z", "2024-07-05"),
        ("2024-07-05 00:00:00+00:00", "2024-07-05"),
        ("2024-07-05T13:45", "2024-07-05 13:45:00"),
        ("2024-07-05 23:59:59.999000", "2024-07-05 23:59:59.999"),
        ("2024-07-05 10:00:00+02:00", "2024-07-05 10:00:00+02:00"),
        ("0999-01-02", "0999-01-02"),
    ],
)
def test_year_first_dates_have_one_spelling(written: str, date: str) -> None:
    assert normal_date(written) == date


@pytest.mark.parametrize(
    "written", ["05/07/2024", "2024-02-30", "2024-07", "2024-07/05", "20240705", "July 5", "2024-13-01", ""]
)
def test_other_texts_are_no_dates(written: str) -> None:
    assert normal_date(written) is None


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        (None, None),
        (True, True),
        (2.0, 2),
        (2.5, 2.5),
        (7, 7),
        ("1.0", 1),
        ("02139", "02139"),
        ("2024-7-5", "2024-07-05"),
        ("ACTIVE ", "active"),
        ("true", "true"),
    ],
)
def test_a_value_is_what_it_stands_for(written: str | float | bool | None, normal: str | float | bool | None) -> None:
    assert normal_value(written) == normal
    assert type(normal_value(written)) is type(normal)


@pytest.mark.parametrize("written", ['"Unit Price"', "`unit price`", "[UNIT PRICE]", "Unit  Price"])
def test_quoting_and_case_do_not_tell_names_apart(written: str) -> None:
    assert normal_name(written) == "unit price"


@given(st.text())
@example("ϔ")
@example("ᾳ\u0345")
def test_folding_twice_is_folding_once(text: str) -> None:
    once = normal_text(text)

    assert normal_text(once) == once


@example("¹")
@example("２０２４－０１－０２")
@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()))
def test_normalising_twice_is_normalising_once(value: str | float | bool | None) -> None:
    once = normal_value(value)

    assert normal_value(once) == once


@given(st.dates(), st.sampled_from(["-", "/", "."]))
def test_every_date_keeps_its_day(day: dt.date, separator: str) -> None:
    assert normal_date(separator.join([f"{day.year:04d}", str(day.month), str(day.day)])) == day.isoformat()


@given(st.integers(-(10**14), 10**14))
def test_whole_floats_and_their_text_equal_the_integer(number: int) -> None:
    assert folded_number(float(number)) == normal_value(f"{number}.0") == normal_value(str(number)) == number
