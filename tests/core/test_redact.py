"""Redacted literals leave the row everywhere they stand, and nothing else does."""

from __future__ import annotations

import json

import pytest
import sqlglot

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
from stef_core.redact import Redaction, redact, redact_json, redaction
from stef_core.rules import Rules

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
