"""The LLM reader: what it sends, what it makes of answers, and what it does with what is no answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from stef_core.canonical import question_spec_json
from stef_core.errors import TransientError
from stef_core.evaluate import QuestionReader
from stef_core.extract import question_llm
from stef_core.extract.question_llm import LLMReader, PairAnswer, QuestionAnswer, question_request, question_spec
from stef_core.extract.question_offline import OfflineReader
from stef_core.llm import ChatAnswer, ChatFailure, ChatRequest, Outcome, Usage
from stef_core.records import (
    AllOf,
    AnyOf,
    Filter,
    Mentions,
    Now,
    QueryRecord,
    QuestionSpec,
    ScalarQuery,
    SqlSpec,
    SubQuery,
)
from stef_core.redact import Redaction
from stef_core.rules import DEFAULT_RULES, MetricDefinition, Rules
from tests.openai_server import user_data

ROW = QueryRecord(query_id="1", user_question="How many ferries sailed from Bergen?", generated_sql="SELECT 1")
EMPTY: dict[str, Any] = {"projections": [], "aggregations": [], "filters": [], "group_by": []}


class Scripted:
    """A chat model that answers from a list."""

    name, model, usage = "openai", "m", Usage()

    def __init__(self, *outcomes: Outcome | dict[str, Any]) -> None:
        self.outcomes = [o if isinstance(o, ChatAnswer | ChatFailure) else ChatAnswer(text=json.dumps(o)) for o in outcomes]
        self.requests: list[ChatRequest] = []
        self.raising = False

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        if raise_if_down and self.raising:
            raise TransientError("down")
        self.requests += requests
        return [self.outcomes[i] for i in range(len(requests))]

    def close(self) -> None:
        pass


def data_of(request: ChatRequest) -> dict[str, Any]:
    return user_data(request.messages[1].content)


def spec_of(**keys: Any) -> QuestionSpec:
    answer = QuestionAnswer.model_validate_json(json.dumps({"question": EMPTY | keys}))
    return question_spec(answer.question.model_dump())


def only_filter(condition: dict[str, Any]) -> Any:
    return spec_of(filters=[condition]).filters[0]


def plain(**keys: Any) -> dict[str, Any]:
    return {"column": "port", "op": "=", "value": "Bergen", "agg": None, "window": None, "distinct": False, "text": ""} | keys


def test_it_is_a_question_reader_with_a_versioned_prompt() -> None:
    reader: QuestionReader = LLMReader(Scripted())

    assert reader.name == "llm"
    assert reader.prompt_version is not None
    assert reader.prompt_version.startswith("question_v2@")


def test_an_answer_becomes_a_specification_in_canonical_form() -> None:
    answer = {
        "question": EMPTY
        | {
            "projections": ["Shop Name"],
            "aggregations": [{"func": "COUNT", "column": "*", "distinct": False, "filter": [plain(column="paid", value=True)]}],
            "filters": [plain(text="from Bergen"), plain(column={"part": "year", "column": "Sailed_At"}, value="2023")],
            "group_by": [{"trunc": "month", "column": "sailed_at"}],
            "order_by": [{"column": "*", "agg": "count", "window": None, "dir": "desc"}],
            "limit": 3,
            "asks_limit": True,
            "superlative": "max",
            "target": "Ferries",
            "language": "no",
        }
    }
    chat = Scripted(ChatAnswer(text=json.dumps(answer), tokens_in=100, tokens_out=20, calls=1))

    (pair,) = LLMReader(chat).read_many([ROW], [DEFAULT_RULES])

    assert pair.question is not None
    assert (pair.tokens_in, pair.tokens_out, pair.calls, pair.reason) == (100, 20, 1, None)
    assert question_spec_json(pair.question) == {
        "projections": ["shop name"],
        "aggregations": [
            {
                "func": "count",
                "column": "*",
                "distinct": False,
                "filter": [{"column": "paid", "op": "=", "value": True}],
            }
        ],
        "filters": [
            {"column": "port", "op": "=", "value": "bergen"},
            {"column": {"part": "year", "column": "sailed_at"}, "op": "=", "value": 2023},
        ],
        "group_by": [{"trunc": "month", "column": "sailed_at"}],
        "order_by": [{"agg": "count", "column": "*", "dir": "desc"}],
        "limit": 3,
        "distinct": False,
        "asks_order": False,
        "asks_limit": True,
        "set_op": None,
        "target": "ferries",
        "language": "no",
        "reader": "llm",
        "unread": [],
        "notes": [],
    }
    first = pair.question.filters[0]
    assert isinstance(first, Filter)
    assert (first.text, first.raw, first.clause) == ("from Bergen", ("Bergen",), "question")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (plain(op="<>"), Filter(column="port", op="!=", value="bergen")),
        (plain(op="NOT IN", value=["B", "A"]), Filter(column="port", op="not_in", value=("a", "b"))),
        (plain(op="in", value=["B"]), Filter(column="port", value="b")),
        (plain(op="like", value="Bergen"), Filter(column="port", value="bergen")),
        (plain(op="like", value="Ber%"), Filter(column="port", op="like", value="ber%")),
        (plain(value="1.0"), Filter(column="port", value=1)),
        (plain(value=2.0), Filter(column="port", value=2)),
        (plain(value="007"), Filter(column="port", value="007")),
        (plain(value="-2.5"), Filter(column="port", value=-2.5)),
        (plain(value=True), Filter(column="port", value=True)),
        (plain(value=None), Filter(column="port", op="is_null")),
        (plain(op="!=", value=None), Filter(column="port", op="is_not_null")),
        (plain(op="is not null", value=None), Filter(column="port", op="is_not_null")),
        (plain(value={"now_minus": [30, "Days"]}), Filter(column="port", value=Now(amount=30, unit="day"))),
        (plain(op="between", value=[1, "2"]), Filter(column="port", op="between", value=(1, 2))),
        (plain(column=None), Filter(value="bergen")),
        (plain(column="*", agg="Count", op=">", value=5), Filter(column="*", agg="count", op=">", value=5)),
        (plain(column="fare", agg="mean", op=">", value=5), Filter(column="fare", agg="avg", op=">", value=5)),
        (
            plain(op=">", value={"scalar": {"func": "avg", "column": "fare", "filters": []}}),
            Filter(column="port", op=">", value=ScalarQuery(func="avg", column="fare")),
        ),
        (
            {"op": "not_exists", "value": {"filters": [plain()]}},
            Filter(op="not_exists", value=SubQuery(filters=(Filter(column="port", value="bergen"),))),
        ),
        ({"any": [plain(value="B"), plain(value="A")]}, Filter(column="port", op="in", value=("a", "b"))),
        ({"any": [plain()]}, Filter(column="port", value="bergen")),
        (
            {"any": [plain(value="a"), {"all": [plain(value="b"), plain(column="x", value=1)]}]},
            AnyOf(
                conditions=(
                    Filter(column="port", value="a"),
                    AllOf(conditions=(Filter(column="port", value="b"), Filter(column="x", value=1))),
                )
            ),
        ),
    ],
)
def test_conditions_take_their_simplest_form(answer: dict[str, Any], expected: Any) -> None:
    assert only_filter(answer) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"filters": [plain(op="equals")]},
        {"filters": [plain(op="between", value=1)]},
        {"filters": [plain(op="in", value=1)]},
        {"filters": [plain(op="=", value=[1, 2])]},
        {"filters": [plain(value={"now_minus": ["day", 30]})]},
        {"filters": [plain(value={"sql": "1"})]},
        {"filters": [plain(column="")]},
        {"filters": [{"any": []}]},
        {"filters": ["port = 'Bergen'"]},
        {"projections": [1]},
        {"limit": 0},
        {"limit": "three"},
        {"order_by": [{"column": "a", "dir": "down"}]},
        {"verdict": "correct"},
    ],
)
def test_an_answer_that_means_nothing_is_outside_the_schema(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QuestionAnswer.model_validate_json(json.dumps({"question": EMPTY | wrong}))


def test_mentions_and_hints_come_from_the_offline_reader() -> None:
    row = replace(ROW, enriched_question="Count ferries where departure_port = 'Bergen'; Bergen refers to port = 'BGO'")
    (offline,) = OfflineReader().read_many([row], [DEFAULT_RULES])

    (pair,) = LLMReader(Scripted({"question": EMPTY, "enriched": EMPTY})).read_many([row], [DEFAULT_RULES])

    assert pair.question is not None
    assert pair.enriched is not None
    assert offline.question is not None
    assert (pair.question.mentions, pair.question.hints) == (offline.question.mentions, offline.question.hints)
    if offline.enriched is not None:
        assert (pair.enriched.mentions, pair.enriched.hints) == (offline.enriched.mentions, offline.enriched.hints)


def test_a_row_with_a_reformulation_must_be_answered_with_two_specifications() -> None:
    row = replace(ROW, enriched_question="Number of ferries that left Bergen")

    request = question_request(row, DEFAULT_RULES, "m")

    assert request.answer is PairAnswer
    assert request.schema["required"] == ["question", "enriched"]
    assert data_of(request) == {"question": ROW.user_question, "enriched_question": row.enriched_question}


def test_both_specifications_of_a_pair_are_read() -> None:
    row = replace(ROW, enriched_question="Number of ferries that left Bergen")
    chat = Scripted({"question": EMPTY, "enriched": EMPTY | {"filters": [plain()]}})

    (pair,) = LLMReader(chat).read_many([row], [DEFAULT_RULES])

    assert pair.question is not None
    assert pair.enriched is not None
    assert (len(pair.question.filters), len(pair.enriched.filters)) == (0, 1)


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ("judge_unavailable", "question_reader_unavailable"),
        ("judge_refused", "question_reader_refused"),
        ("judge_invalid", "question_reader_invalid"),
        ("judge_truncated", "question_reader_truncated"),
        ("judge_rejected", "question_reader_rejected"),
    ],
)
def test_a_failure_is_an_absent_reading_with_a_reason(failed: Any, reason: str) -> None:
    chat = Scripted(ChatFailure(reason=failed, message="why", tokens_in=5, calls=1))

    (pair,) = LLMReader(chat).read_many([ROW], [DEFAULT_RULES])

    assert (pair.question, pair.reason, pair.message, pair.tokens_in, pair.calls) == (None, reason, "why", 5, 1)


def test_rows_stay_in_order_when_some_are_not_asked() -> None:
    rows = [replace(ROW, user_question=" "), ROW, replace(ROW, generated_sql=None), replace(ROW, query_id="2")]
    chat = Scripted({"question": EMPTY | {"limit": 1}}, {"question": EMPTY | {"limit": 2}})

    pairs = LLMReader(chat).read_many(rows, [DEFAULT_RULES] * 4)

    assert len(chat.requests) == 2
    assert [p.question.reader if p.question else None for p in pairs][1::2] == ["llm", "llm"]
    assert [p.question.limit for p in (pairs[1], pairs[3]) if p.question] == [1, 2]
    assert [p.calls for p in pairs] == [0, 1, 0, 1]


def test_a_batch_that_reached_nobody_raises_only_where_it_is_wanted() -> None:
    chat = Scripted({"question": EMPTY})
    chat.raising = True

    assert len(LLMReader(chat).read_many([ROW], [DEFAULT_RULES])) == 1
    with pytest.raises(TransientError):
        LLMReader(chat, raise_if_down=True).read_many([ROW], [DEFAULT_RULES])


def test_only_rules_of_words_in_the_question_are_sent() -> None:
    offline = QuestionSpec(mentions=Mentions(lemmas=frozenset({"ferry", "revenue"})))
    rules = Rules(
        metric_definitions={"revenue": MetricDefinition(func="sum", column="fare")},
        value_mappings={"vessel": {"ferry": "F", "tug": "T"}},
        column_mappings={"captain": "skipper"},
    )

    data = data_of(question_request(ROW, rules, "m", offline))

    assert data["words"] == {
        "values": {"vessel": {"ferry": "F", "tug": "T"}},
        "metrics": {"revenue": {"func": "sum", "column": "fare"}},
    }


def test_a_change_of_a_rule_that_does_not_bear_on_the_row_leaves_its_request_as_it_is() -> None:
    offline = QuestionSpec(mentions=Mentions(lemmas=frozenset({"ferry"})))

    def key(rules: Rules) -> str:
        return question_request(ROW, rules, "m", offline).key

    base = Rules(value_mappings={"vessel": {"ferry": "F"}})
    other_word = base.model_copy(update={"metric_definitions": {"profit": MetricDefinition(func="sum", column="gain")}})
    same_word = base.model_copy(update={"value_mappings": {"vessel": {"ferry": "FERRY"}}})

    assert key(other_word) == key(base)
    assert key(base.model_copy(update={"version": "2", "judge_notes": ["x"], "safety_limit_min": 5})) == key(base)
    assert key(same_word) != key(base)


def test_redacted_literals_are_not_sent_and_come_back_in_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = SqlSpec(parse_status="ok", filters=(Filter(column="email", value="ann@example.org", raw=("ann@example.org",)),))
    monkeypatch.setattr(question_llm, "extract_sql", lambda *_: sql)
    row = replace(ROW, user_question="Trips of ann@example.org?", enriched_question="Trips where mail is Ann@example.org")
    mail = plain(column="email", value="[redacted]", text="of [redacted]")
    chat = Scripted({"question": EMPTY | {"filters": [mail]}, "enriched": EMPTY})

    (pair,) = LLMReader(chat).read_many([row], [Rules(redact=["email"])])

    assert "example.org" not in chat.requests[0].messages[1].content
    assert pair.question is not None
    assert pair.question.filters == (Filter(column="email", value="ann@example.org"),)


def test_nothing_is_sent_of_a_row_whose_literals_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_llm, "extract_sql", lambda *_: SqlSpec(parse_status="unparseable"))
    chat = Scripted()

    (pair,) = LLMReader(chat).read_many([ROW], [Rules(redact=["email"])])

    assert chat.requests == []
    assert pair.question is not None


def test_a_question_of_a_megabyte_is_cut() -> None:
    request = question_request(replace(ROW, user_question="x" * 1_000_000), DEFAULT_RULES, "m", None, Redaction(()))

    assert len(request.messages[1].content) < 10_000


def test_the_example_of_the_prompt_fits_the_schema_it_explains() -> None:
    text = question_request(ROW, DEFAULT_RULES, "m").messages[0].content

    example = next(line for line in text.splitlines() if line.startswith('{"question":{'))

    assert QuestionAnswer.model_validate_json(example).question.limit == 3


def test_the_prompt_names_every_key_of_a_specification() -> None:
    text = question_request(ROW, DEFAULT_RULES, "m").messages[0].content

    assert [key for key in question_llm.SpecAnswer.model_fields if f"`{key}`" not in text] == []
