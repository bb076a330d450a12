"""Redacted literals leave the row everywhere they stand, and nothing else does."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum import luhn
from stdnum.iso7064 import mod_97_10
from stdnum.pl import pesel

from stef_core import evaluate
from stef_core.evaluate import examine_many
from stef_core.extract.question_llm import question_request
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.llm import judge_request
from stef_core.records import (
    Aggregation,
    AllOf,
    AnyOf,
    Condition,
    Filter,
    Hint,
    QueryRecord,
    QuestionSpec,
    Reading,
    SqlSpec,
    SubQuery,
)
from stef_core.redact import Redaction, redact, redact_json, redaction, unified
from stef_core.rows import examined_frame, findings_frame, judged_frame
from stef_core.rules import RedactKind, RedactPattern, Rules

DAY = dt.date(2026, 3, 2)
RULES = Rules(redact=["email", "*phone*"], column_mappings={"mail_address": "email"})


def sql_spec(*filters: Condition) -> SqlSpec:
    return SqlSpec(parse_status="ok", filters=filters)


def record(sql: str, question: str = "?", enriched: str | None = None) -> QueryRecord:
    return QueryRecord(query_id="1", user_question=question, enriched_question=enriched, generated_sql=sql)


EMAIL = Filter(column="email", op="=", value="ann.lee@example.org", raw=("Ann.Lee@example.org",))


def test_a_literal_of_a_redacted_column_is_masked_in_sql_and_both_questions() -> None:
    row = record(
        "SELECT id FROM users WHERE email = 'Ann.Lee@example.org' AND plan = 'pro'",
        "Which id has ann.lee@example.org on the pro plan?",
        "id of the user whose email is ANN.LEE@EXAMPLE.ORG and plan is pro",
    )

    masked = redact(row, sql_spec(EMAIL, Filter(column="plan", value="pro", raw=("pro",))), RULES)

    assert masked.generated_sql == "SELECT id FROM users WHERE email = '[redacted]' AND plan = 'pro'"
    assert masked.user_question == "Which id has [redacted] on the pro plan?"
    assert masked.enriched_question == "id of the user whose email is [redacted] and plan is pro"


def test_without_redacted_columns_the_record_stays_as_it_is() -> None:
    row = record("SELECT 1 FROM t WHERE email = 'a@b.c'")

    assert redact(row, sql_spec(EMAIL), Rules()) is row


def test_a_value_that_only_the_question_names_is_masked_too() -> None:
    question = QuestionSpec(filters=(Filter(column="email", value="bo@example.org", raw=("bo@example.org",)),))
    reading = Reading(question=question, enriched=None, sql=sql_spec(EMAIL))

    masked = redact(record("SELECT 1 FROM t WHERE email = 'Ann.Lee@example.org'", "Is bo@example.org there?"), reading, RULES)

    assert masked.user_question == "Is [redacted] there?"
    assert masked.generated_sql == "SELECT 1 FROM t WHERE email = '[redacted]'"


@pytest.mark.parametrize(
    "condition",
    [
        EMAIL,
        Filter(column="mail_address", value="ann.lee@example.org", raw=("Ann.Lee@example.org",)),
        Filter(column="lower(email)", value="ann.lee@example.org", raw=("Ann.Lee@example.org",)),
        Filter(column="email", op="in", value=("ann.lee@example.org", "x@y.z"), raw=("'Ann.Lee@example.org'", "'x@y.z'")),
        Filter(column="email", op="like", value="%ann.lee@example.org%", raw=("%Ann.Lee@example.org%",)),
        AnyOf(conditions=(EMAIL, AllOf(conditions=(Filter(column="id", value=1),)))),
        Filter(column="id", op="in", value=SubQuery(projections=("id",), filters=(EMAIL,))),
        Filter(column="id", op="in", value=SubQuery(spec=sql_spec(EMAIL))),
        Filter(column="email", value="ann.lee@example.org"),
    ],
    ids=["plain", "mapped", "in a function", "list", "like", "or", "subquery", "deep subquery", "no raw"],
)
def test_the_literal_is_found_wherever_it_is_compared(condition: Condition) -> None:
    row = record("SELECT 1 FROM t WHERE a = 'Ann.Lee@example.org'", "Who is ann.lee@example.org?")

    masked = redact(row, sql_spec(condition), RULES)

    assert masked.user_question == "Who is [redacted]?"
    assert "nn.Lee" not in (masked.generated_sql or "")


def test_conditions_of_aggregates_joins_and_branches_count() -> None:
    def spec(email: str) -> Filter:
        return Filter(column="email", value=email)

    sql = SqlSpec(
        parse_status="ok",
        aggregations=(Aggregation(func="count", filter=(spec("a@a.aa"),)),),
        join_filters=(spec("b@b.bb"),),
        branches=(sql_spec(spec("c@c.cc")),),
        expressions=("case when email = 'd@d.dd' then 1 end",),
    )

    assert set(redaction(RULES, sql).literals) == {"a@a.aa", "b@b.bb", "c@c.cc", "d@d.dd"}


def test_the_hints_of_a_reformulation_count() -> None:
    question = QuestionSpec(hints=(Hint(column="email", op="=", value="a@a.aa"),))

    assert redaction(RULES, question).literals == ("a@a.aa",)


def test_a_number_becomes_a_string_so_that_the_sql_still_parses() -> None:
    sql = "SELECT 1 FROM t WHERE phone = 5551234 AND n = 55512345 LIMIT 10"

    masked = redact(record(sql, "Who has 5551234?"), sql_spec(Filter(column="phone", value=5551234, raw=("5551234",))), RULES)

    assert masked.generated_sql == "SELECT 1 FROM t WHERE phone = '[redacted]' AND n = 55512345 LIMIT 10"
    assert masked.user_question == "Who has [redacted]?"
    sqlglot.parse_one(masked.generated_sql)


def test_quotes_inside_a_literal_are_seen_through() -> None:
    sql = "SELECT 1 FROM t WHERE email = 'O''Brien' /* about O'Brien and O''Brien */"

    masked = redact(record(sql, "Is O'Brien in?"), sql_spec(Filter(column="email", value="o'brien", raw=("O'Brien",))), RULES)

    assert masked.generated_sql == "SELECT 1 FROM t WHERE email = '[redacted]' /* about [redacted] and [redacted] */"
    assert masked.user_question == "Is [redacted] in?"


def test_a_literal_is_no_reason_to_mask_part_of_a_word() -> None:
    found = Redaction(("ann",))

    assert found.mask("Ann's annual plan") == "[redacted]'s annual plan"


def test_a_column_named_like_the_literal_stays() -> None:
    sql = "SELECT email FROM t WHERE email = 'email'"

    masked = redact(record(sql), sql_spec(Filter(column="email", value="email", raw=("email",))), RULES)

    assert masked.generated_sql == "SELECT email FROM t WHERE email = '[redacted]'"


@pytest.mark.parametrize("status", ["unparseable", "not_a_query"])
def test_of_sql_that_nobody_could_read_every_literal_is_masked(status: str) -> None:
    spec = SqlSpec(parse_status=status)  # type: ignore[arg-type]  # one of its values

    masked = redact(record("SELEC email = 'a@b.c', phone 5551234, 12 FROM"), spec, RULES)

    assert masked.generated_sql == "SELEC email = '[redacted]', phone '[redacted]', 12 FROM"


def test_sql_that_not_even_a_tokenizer_reads_is_masked_by_its_quotes() -> None:
    found = Redaction(("a@b.c",))

    assert "secret" not in found.mask_sql("SELECT 'secret', 'open", all_literals=True)


def test_stored_json_is_masked_in_strings_and_numbers_and_keeps_the_rest() -> None:
    text = json.dumps({"filters": [{"column": "email", "value": "ann.lee@example.org"}, {"value": 5551234}], "n": 5, "b": True})

    masked = redact_json(text, ["Ann.Lee@example.org", "5551234", "1"])

    assert json.loads(masked) == {
        "filters": [{"column": "email", "value": "[redacted]"}, {"value": "[redacted]"}],
        "n": 5,
        "b": True,
    }


def test_json_without_literals_stays_as_it_is() -> None:
    assert redact_json('{"a":1}', []) == '{"a":1}'


def test_numbered_placeholders_keep_literals_apart_and_can_be_undone() -> None:
    spec = sql_spec(Filter(column="email", op="in", value=("a@a.aa", "b@b.bb"), raw=("A@a.aa", "b@b.bb")))
    found = redaction(RULES, spec, numbered=True)

    masked = found.mask("from A@A.AA to b@b.bb")

    assert masked == "from [redacted] to [redacted 2]"
    assert found.restore({"value": ["[redacted 2]", "[Redacted]"], "n": 1}) == {"value": ["b@b.bb", "A@a.aa"], "n": 1}
    assert found.restore("[redacted 7]") == "[redacted 7]"


@pytest.mark.parametrize("literal", ["", "%", " ", "_%"])
def test_an_empty_pattern_masks_nothing(literal: str) -> None:
    spec = sql_spec(Filter(column="email", op="like", value=literal, raw=(literal,)))

    assert not redaction(RULES, spec)


# --- kinds and patterns ---------------------------------------------------------------------------------------------

KINDS = Rules(
    redact=[
        RedactKind(kind="email"),
        RedactKind(kind="phone", region=("DE", "US")),
        RedactKind(kind="card"),
        RedactKind(kind="iban"),
        RedactKind(kind="national_id", region="PL"),
        RedactPattern(pattern=r"K-\d{6}", name="customer_no"),
    ]
)


def found_in(row: QueryRecord, *specs: SqlSpec | QuestionSpec, rules: Rules = KINDS) -> Redaction:
    return redaction(rules, *specs, record=row, numbered=True)


@pytest.mark.parametrize(
    ("question", "sql", "masked_question", "masked_sql"),
    [
        (
            "Orders of +49 30 901820 in 2024?",
            "SELECT * FROM o WHERE phone = 4930901820 AND y = 2024",
            "Orders of [redacted] in 2024?",
            "SELECT * FROM o WHERE phone = '[redacted]' AND y = 2024",
        ),
        (
            "Orders of 030 901820?",  # a number loses its leading zero
            "SELECT * FROM o WHERE phone = 30901820",
            "Orders of [redacted]?",
            "SELECT * FROM o WHERE phone = '[redacted]'",
        ),
        (
            "Payments by 4111 1111 1111 1111 or 5555 5555 5555 4444?",
            "SELECT * FROM p WHERE card IN ('5555-5555-5555-4444', '4111111111111111')",
            "Payments by [redacted 2] or [redacted]?",
            "SELECT * FROM p WHERE card IN ('[redacted]', '[redacted 2]')",
        ),
        (
            "Payments by 4111-1111-1111-1111?",
            "SELECT * FROM p WHERE card = 4111-1111-1111-1111 AND a - 1 > 2",  # unquoted, a sum to the tokenizer
            "Payments by [redacted]?",
            "SELECT * FROM p WHERE card = '[redacted]' AND a - 1 > 2",
        ),
        (
            "Balance of DE89 3704 0044 0532 0130 00?",
            "SELECT b FROM a WHERE iban = DE89370400440532013000 OR mail = ann@example.org",
            "Balance of [redacted]?",
            "SELECT b FROM a WHERE iban = '[redacted]' OR mail = '[redacted 2]'",
        ),
        (
            "Who is 44051401458, customer k-123456?",
            "SELECT n FROM c WHERE id = '440514 01458' AND no LIKE 'K-123456%' -- ann@example.org",
            "Who is [redacted], customer [redacted 2]?",
            "SELECT n FROM c WHERE id = '[redacted]' AND no LIKE '[redacted 2]%' -- [redacted 3]",
        ),
        (
            "Who is O'Brien, o'brien@example.org?",
            "SELECT n FROM c WHERE t = 'it''s ann@example.org' AND m = 'brien@example.org'",
            "Who is O'Brien, o'[redacted 2]?",
            "SELECT n FROM c WHERE t = 'it''s [redacted]' AND m = '[redacted 2]'",
        ),
    ],
)
def test_one_value_gets_one_placeholder_however_each_side_writes_it(
    question: str, sql: str, masked_question: str, masked_sql: str
) -> None:
    found = found_in(record(sql, question))

    assert found.mask(question) == masked_question
    assert found.mask_sql(sql) == masked_sql
    sqlglot.parse_one(masked_sql)


def test_a_value_of_a_redacted_column_and_of_a_kind_has_one_placeholder() -> None:
    rules = Rules(redact=["email", RedactKind(kind="email")])
    row = record("SELECT 1 FROM t WHERE email = 'Ann.Lee@example.org'", "Is ann.lee@example.org or bo@example.org in?")

    found = found_in(row, sql_spec(EMAIL), rules=rules)

    assert found.mask(row.user_question or "") == "Is [redacted] or [redacted 2] in?"


def test_numbers_of_placeholders_that_a_row_already_holds_are_given_to_nothing_else() -> None:
    row = record("SELECT 1 FROM t WHERE m = 'ann@example.org'", "Is [redacted] or [redacted 2] ann@example.org?")
    found = found_in(row)

    masked = found.mask(row.user_question or "")

    assert masked == "Is [redacted] or [redacted 2] [redacted 3]?"
    assert found.restore(masked) == row.user_question


def test_a_value_that_the_row_does_not_hold_is_masked_in_what_is_said_of_it() -> None:
    found = found_in(record("SELECT 1 FROM t WHERE m = 'ann@example.org'"))

    assert found.mask("not ann@example.org but bo@example.org") == "not [redacted] but [redacted 0]"


def test_numbers_of_json_are_masked_as_the_texts_they_are_in_the_row() -> None:
    found = found_in(record("SELECT 1 FROM t WHERE phone = 30901820", "Is 030 901820 in?"))

    assert found.mask_json({"value": [30901820, 30901820.0, 4111111111111111, 7, True]}) == {
        "value": ["[redacted]", "[redacted]", "[redacted 0]", 7, True]
    }


LONG = "x " * 80


@pytest.mark.parametrize(
    ("told", "masked"),
    [
        (f"{LONG}customer = 'kim.lund@exa", f"{LONG}customer = '[redacted 2]"),
        ("the text is no query: 'WITH kim.lund@e…'", "the text is no query: 'WITH [redacted 2]…'"),
        ("card 5105 1051 0…, kim.l… and more", "card [redacted 3]…, [redacted 2]… and more"),
        (f"{LONG}5105105105", f"{LONG}[redacted 3]"),
        (f"{LONG}a private rem", f"{LONG}[redacted]"),
        ("a short text may end in a private", "a short text may end in a private"),
        (f"{LONG}kim", f"{LONG}kim"),
        (f"{LONG}kim.lund@example.org", f"{LONG}[redacted 2]"),
    ],
)
def test_a_value_that_was_cut_off_is_masked_where_it_is_told(told: str, masked: str) -> None:
    row = record("SELECT 1 FROM t WHERE m = 'kim.lund@example.org' AND card = 5105105105105100")
    remark = Filter(column="remark", value="a private remark", raw=("A private remark",))

    found = found_in(row, sql_spec(remark), rules=Rules(redact=[*KINDS.redact, "remark"]))

    assert found.mask_json(told) == masked


@pytest.mark.parametrize(
    "written", ["kim.lund@example.org", "'kim.lund@example.org'", "5105105105105100", "DE89370400440532013000"]
)
@pytest.mark.parametrize(
    "broken", ["SELEC {0} WHERE m = {1} AND (", "SELECT {0} FROM t WHERE m = {1} AND (", "SELECT {0} FROM t WHERE m = {1}"]
)
def test_nothing_is_left_of_a_value_wherever_a_finding_cuts_it_off(broken: str, written: str) -> None:
    told = []
    for length in range(10, 210, 3):
        row = record(broken.format("x" * length, written), "How many?")
        (examined,) = examine_many([row], [KINDS], OfflineReader())
        told.append(examined_frame([examined], [row], [KINDS]).write_json())
        told.append(findings_frame([evaluate(row, KINDS)], [row], [KINDS], day=DAY, run_id="r").write_json())

    assert bare(written)[:6] not in bare(" ".join(told))


@pytest.mark.parametrize("words", range(780, 802))
def test_a_question_that_is_too_long_is_not_cut_inside_a_value(words: int) -> None:
    row = record("SELECT 1 FROM t", f"{'many ' * words}5105 1051 0510 5100 and more of it")

    (examined,) = examine_many([row], [KINDS], OfflineReader())

    assert "1051" not in examined_frame([examined], [row], [KINDS]).write_json()


def test_a_question_is_read_with_the_spelling_of_the_sql() -> None:
    row = record("SELECT * FROM o WHERE phone = 4930901820", "Orders of the customer with phone +49 30 901820")

    assert unified(row, KINDS).user_question == "Orders of the customer with phone 4930901820"
    assert unified(row, Rules()) is row


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("the phone +49 30 901820", "phone = '030901820'"),
        ("the phone 030 901820", "phone = 4930901820"),
        ("the card 4111 1111 1111 1111", "card = 4111111111111111"),
        ("the account DE89 3704 0044 0532 0130 00", "account = 'DE89370400440532013000'"),
    ],
)
def test_a_filter_meets_its_question_however_each_side_writes_the_value(question: str, sql: str) -> None:
    row = record(f"SELECT COUNT(*) FROM orders WHERE {sql}", f"How many orders came from {question}?")

    alignment = evaluate(row, KINDS).alignment

    assert alignment is not None
    assert alignment.filter_status == "fully_applied"


def test_another_number_is_another_filter() -> None:
    sql = "SELECT COUNT(*) FROM orders WHERE phone = '030901821'"

    alignment = evaluate(record(sql, "How many orders came from the phone +49 30 901820?"), KINDS).alignment

    assert alignment is not None
    assert alignment.filter_status == "partially_applied"


def test_of_sql_that_no_tokenizer_reads_strings_and_figures_are_masked_to_its_end() -> None:
    masked = redact(
        record("SELECT * FROM t WHERE phone = 5551234 AND email = 'ann.lee@exam"), SqlSpec(parse_status="not_a_query"), RULES
    )

    assert masked.generated_sql == "SELECT * FROM t WHERE phone = '[redacted]' AND email = '[redacted]'"


def test_literals_of_sql_that_nobody_could_read_are_masked_in_the_questions_too() -> None:
    row = record(
        "SELEC * WHERE email = 'Ann Lee' AND phone = 5551234 AND n = 'x", "Is ann lee in, or 5551234, but not 55512345?"
    )

    masked = redact(row, SqlSpec(parse_status="unparseable"), RULES)

    assert masked.user_question == "Is [redacted] in, or [redacted], but not 55512345?"


def test_further_columns_are_masked_in_their_values_and_whole_under_redacted_names() -> None:
    extra = {
        "note": "call ann@example.org",
        "n": 3,
        "Email": ["x", {"deep": 5}],
        "ok": True,
        "user": {"phone_no": "1"},
        "k": None,
    }
    rules = replace_redact("email", "phone*", RedactKind(kind="email"))
    row = replace(record("SELECT 1"), extra=json.dumps(extra))

    masked = redact(row, sql_spec(), rules)

    assert json.loads(masked.extra or "") == {
        "note": "call [redacted]",
        "n": 3,
        "Email": ["[redacted]", {"deep": "[redacted]"}],
        "ok": True,
        "user": {"phone_no": "[redacted]"},
        "k": None,
    }


def replace_redact(*entries: str | RedactKind | RedactPattern) -> Rules:
    return Rules(redact=list(entries))


# --- laws -----------------------------------------------------------------------------------------------------------

DIGIT = st.sampled_from("0123456789")


def digits(length: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=DIGIT, min_size=length, max_size=length)


def grouped(number: str, size: int, sign: str) -> str:
    return sign.join(number[i : i + size] for i in range(0, len(number), size))


# each a value in the spellings that people and SQL have for it
EMAILS = st.builds("{}.{}@example.org".format, st.sampled_from(["ann", "kim", "jo"]), digits(3)).map(
    lambda m: (m, m.title(), m.upper())
)
CARDS = digits(14).map(lambda d: (n := f"4{d}{luhn.calc_check_digit(f'4{d}')}", grouped(n, 4, " "), grouped(n, 4, "-")))
IBANS = (
    digits(18).map(lambda d: f"DE{mod_97_10.calc_check_digits(f'{d}DE')}{d}").map(lambda n: (n, grouped(n, 4, " "), n.lower()))
)
PHONES = digits(6).map(lambda d: (f"+49309{d}", f"+49 30 9{d}", f"0309{d}", f"030 / 9{d}", f"49309{d}"))
IDS = st.builds("{:02}{:02}{:02}{}".format, st.integers(0, 99), st.integers(1, 12), st.integers(1, 28), digits(4)).map(
    lambda d: (n := f"{d}{pesel.calc_check_digit(d)}", f"{n[:6]} {n[6:]}")
)
CUSTOMERS = digits(6).map(lambda d: (f"K-{d}", f"k-{d}"))
VALUES = st.one_of(EMAILS, CARDS, IBANS, PHONES, IDS, CUSTOMERS)
SPELLED = VALUES.flatmap(st.sampled_from)
WORDS = st.sampled_from(
    ["orders", "of", "customer", "and", "in 2024", "above 17.5,", "not", "(", ")", "é", "[redacted]", "Ann"]
)
TEXTS = st.lists(st.one_of(WORDS, SPELLED), max_size=8).map(", ".join)


def bare(text: str) -> str:
    return re.sub(r"[^0-9a-z@]", "", text.casefold())


YEARS = ("2023", "2024")  # stand in the row anyhow


def pieces(value: str) -> list[str]:
    """What of a value may be left nowhere: its parts that could not be anything else."""
    return [
        piece
        for piece in re.split(r"[^0-9a-z]", value.casefold().removesuffix("@example.org"))
        if len(piece) >= 4 and piece not in YEARS
    ]


@settings(deadline=None)
@given(text=TEXTS)
def test_masking_twice_is_masking_once(text: str) -> None:
    found = found_in(record("SELECT 1", text))

    once = found.mask(text)

    assert found.mask(once) == once


@settings(deadline=None)
@given(text=TEXTS)
def test_what_was_masked_can_be_restored_but_for_its_spelling(text: str) -> None:
    row = record("SELECT 1", text)
    found = found_in(row)

    back = found.restore(found.mask(text))

    # a value that stands there in several spellings comes back in one of them
    assert found.mask(back) == found.mask(text)
    if len(found.values) == len({part.start for part in found.parts(text)}):
        assert back == text


@settings(deadline=None)
@given(text=TEXTS, value=SPELLED)
def test_a_masked_text_holds_nothing_of_a_value(text: str, value: str) -> None:
    whole = f"{text} {value}, {text}"
    found = found_in(record("SELECT 1", whole))

    masked = found.mask(whole)

    assert bare(value) not in bare(masked)
    assert [piece for piece in pieces(value) if piece in masked.casefold()] == []


@settings(max_examples=60, deadline=None)
@given(value=VALUES, data=st.data())
def test_a_planted_value_is_in_no_request_and_in_no_stored_row(value: tuple[str, ...], data: st.DataObject) -> None:
    def spelled() -> str:
        return data.draw(st.sampled_from(value))

    planted = [spelled() for _ in range(5)]
    row = QueryRecord(
        query_id="1",
        user_question=f"How many orders of the customer {planted[0]} came in 2024, not of {planted[1]}?",
        enriched_question=f"Count orders where customer is {planted[2]} and year is 2024",
        generated_sql=f"SELECT COUNT(*) FROM orders WHERE customer = '{planted[3]}' AND note <> 'x {planted[4]}' AND y = 2023",
        extra=json.dumps({"said": planted[0]}),
    )

    (examined,) = examine_many([row], [KINDS], OfflineReader())
    evaluation = evaluate(row, KINDS)
    assert examined.evidence is not None
    (offline,) = OfflineReader().read_many([row], [KINDS])
    asked = question_request(row, KINDS, "m", offline.question, found_in(row))
    judged = judge_request(examined.evidence, KINDS, "m")
    out = [
        *(message.content for request in (asked, judged) for message in request.messages if message.role == "user"),
        examined_frame([examined], [row], [KINDS]).write_json(),
        judged_frame([evaluation], [row], [KINDS], judge="symbolic", model=None).write_json(),
        findings_frame([evaluation], [row], [KINDS], day=DAY, run_id="r").write_json(),
    ]

    for text in out:
        for written in planted:
            assert bare(written) not in bare(text)
            assert [piece for piece in pieces(written) if piece in text.casefold()] == []
