"""What the project knows of words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stef_core import lexicon
from stef_core.records import DatePart, DateTrunc


@pytest.mark.parametrize(
    ("word", "base"),
    [("Orders", "order"), ("cancelled", "cancel"), ("people", "person"), ("sales", "sale"), ("clerk's", "clerk")],
)
def test_word_has_one_dictionary_form(word: str, base: str) -> None:
    assert lexicon.lemma(word) == base


def test_words_leave_stop_words_out() -> None:
    assert lexicon.words("How many of the urgent tickets are still open?") == ["urgent", "ticket", "still", "open"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cust_qty", ("customer", "quantity")),
        ("OrderAmt", ("order", "amount")),
        ("deptNo", ("department", "number")),
        ("hiredate", ("hire", "date")),
        ("candidate", ("candidate",)),
        ("DOB", ("birth", "date")),
    ],
)
def test_identifier_splits_into_written_out_words(name: str, parts: tuple[str, ...]) -> None:
    assert lexicon.identifier_words(name) == parts


@pytest.mark.parametrize(
    ("left", "right", "low", "high"),
    [
        ("salary", "salary", 1, 1),
        ("postal code", "postalCode", 1, 1),
        ("birth date", "birthday", 1, 1),
        ("created_at", "creation_date", 0.5, 1),
        ("customer", "customer_id", 0.85, 1),
        ("salary", "pay", 0.85, 1),
        ("price", "cost", 0.85, 1),
        ("town", "city", 0.85, 1),
        ("staff", "employee", 0.85, 1),
        ("date", "order_date", 0.6, 0.9),
        ("department", "dept", 0.95, 1),
        ("catagory", "category", 0.75, 0.95),
        ("first_name", "last_name", 0, 0.4),
        ("price", "country", 0, 0),
        ("weight", "postal_code", 0, 0),
    ],
)
def test_likeness_of_columns_follows_their_meaning(left: str, right: str, low: float, high: float) -> None:
    assert low <= lexicon.column_similarity(left, right) <= high


def test_date_part_is_like_its_column_and_like_a_column_named_after_the_part() -> None:
    year = DatePart(part="year", column="hire_date")

    assert lexicon.column_similarity(year, year) == 1
    assert lexicon.column_similarity(year, "hire_date") > 0.9
    assert lexicon.column_similarity("year", year) > 0.85
    assert lexicon.column_similarity(year, DateTrunc(unit="month", column="hire_date")) < 0.7


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_likeness_is_symmetric_and_stays_in_range(left: str, right: str) -> None:
    forward = lexicon.column_similarity(left, right)

    assert 0 <= forward <= 1
    assert forward == lexicon.column_similarity(right, left)


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        ("open", "status"),
        ("urgent", "priority"),
        ("Kenya", "country"),
        ("Peruvian", "nationality"),
        ("Ohio", "state"),
        ("Oslo", "city"),
        ("red", "color"),
        ("Monday", "weekday"),
        ("female", "gender"),
        ("English", "nationality"),
        ("web", "channel"),
        ("android", "platform"),
    ],
)
def test_value_word_tells_its_attribute(value: str, attribute: str) -> None:
    assert lexicon.attribute_of(value)[0] == attribute


def test_unknown_word_has_no_attribute_and_an_ambiguous_one_has_several_groups() -> None:
    assert lexicon.attribute_of("zebra") == ()
    assert len(lexicon.attribute_groups("Georgia")) == 2


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Lima", " lima "),
        ("French", "France"),
        ("dogs", "Dog"),
        ("five", 5.0),
        ("1", 1),
        ("yes", True),
        ("F", "female"),
        ("USA", "United States"),
    ],
)
def test_values_that_mean_the_same_are_the_same(left: object, right: object) -> None:
    assert lexicon.same_value(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [("02139", 2139), ("Lima", "Limas Verdes"), (2927464, 2927465), (True, 1), (None, "none"), ("Peru", "Chile")],
)
def test_values_that_differ_are_not_the_same(left: object, right: object) -> None:
    assert not lexicon.same_value(left, right)


@pytest.mark.parametrize(
    ("word", "number"), [("seven", 7), ("twenty-one", 21), ("dozen", 12), ("red", None), ("twenty-eleven", None)]
)
def test_number_words_are_numbers(word: str, number: int | None) -> None:
    assert lexicon.number_of(word) == number


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_no_text_makes_the_lexicon_raise(text: str) -> None:
    assert isinstance(lexicon.words(text), list)
    assert isinstance(lexicon.identifier_words(text), tuple)
    assert lexicon.same_value(text, text)
