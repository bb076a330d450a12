"""Reads questions through a chat model, in any language: one call a row for a question and its reformulation.

What a text names (`mentions`) and the hints of a reformulation always come from the offline reader, as alignment rests on them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stef_core.canonical import column_from_json, condition_from_json
from stef_core.errors import InputError
from stef_core.evaluate import QuestionPair
from stef_core.extract.question_offline import OfflineReader
from stef_core.extract.question_text import INJECTION
from stef_core.extract.sql import extract_sql
from stef_core.injection import separate
from stef_core.llm import ChatFailure, ChatModel, ChatRequest, Message, Outcome, data_message, strict_schema
from stef_core.prompts import load_prompt
from stef_core.records import (
    Aggregation,
    AllOf,
    AnyOf,
    Condition,
    Filter,
    OrderKey,
    QueryRecord,
    QuestionSpec,
    Value,
)
from stef_core.redact import READ, Redaction, redaction
from stef_core.rules import Rules

PROMPT = "question_v2"
MAX_TOKENS = 4000
QUESTION_MAX = 8000  # characters of a question that are sent; more is no question

# --- the answer -----------------------------------------------------------------------------------------------------

_OPS = {"==": "=", "<>": "!=", "not in": "not_in", "not like": "not_like", "ilike": "like", "is null": "is_null"}
_OPS |= {"is not null": "is_not_null", "not between": "not_between", "not exists": "not_exists"}
_FUNCTIONS = {"average": "avg", "mean": "avg", "total": "sum", "maximum": "max", "minimum": "min"}


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PartAnswer(_Answer):
    """A part of a date column."""

    part: str
    column: str


class TruncAnswer(_Answer):
    """A date column cut to a unit."""

    trunc: str
    column: str


ColumnAnswer: TypeAlias = str | PartAnswer | TruncAnswer


class NowAnswer(_Answer):
    """A moment relative to now: ``[amount, unit]``."""

    now_minus: list[int | str]

    @field_validator("now_minus")
    @classmethod
    def _amount_and_unit(cls, value: list[int | str]) -> list[int | str]:
        if len(value) != 2 or not isinstance(value[0], int) or not isinstance(value[1], str):
            raise ValueError('is not of the form [30, "day"]')
        return [value[0], value[1].lower().removesuffix("s")]


class ColumnValueAnswer(_Answer):
    """The value of another column."""

    column: ColumnAnswer


class ScalarBody(_Answer):
    """One aggregate over the data."""

    func: str
    column: ColumnAnswer
    filters: list[ConditionAnswer] = []


class ScalarAnswer(_Answer):
    """A value that an aggregate of the data yields."""

    scalar: ScalarBody


class SubqueryBody(_Answer):
    """Columns and conditions of another question."""

    projections: list[ColumnAnswer] = []
    filters: list[ConditionAnswer] = []


class SubqueryAnswer(_Answer):
    """A set of values that another question yields."""

    subquery: SubqueryBody


PlainAnswer: TypeAlias = str | int | float | bool | None
ItemAnswer: TypeAlias = str | int | float | bool | NowAnswer | ColumnValueAnswer | None
ValueAnswer: TypeAlias = PlainAnswer | NowAnswer | ColumnValueAnswer | ScalarAnswer | SubqueryAnswer | list[ItemAnswer]


class FilterAnswer(_Answer):
    """One comparison."""

    column: ColumnAnswer | None
    op: Literal[
        "=",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "not_in",
        "between",
        "not_between",
        "like",
        "not_like",
        "regexp",
        "not_regexp",
        "is_null",
        "is_not_null",
    ]
    value: ValueAnswer = None
    agg: str | None = None
    window: str | None = None
    distinct: bool = False
    text: str = ""

    @field_validator("op", mode="before")
    @classmethod
    def _usual_spelling(cls, value: Any) -> Any:
        return _OPS.get(value.lower(), value.lower()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _value_fits(self) -> FilterAnswer:
        if self.op in ("between", "not_between") and (not isinstance(self.value, list) or len(self.value) != 2):
            raise ValueError(f"{self.op} takes a list of two values")
        if self.op in ("in", "not_in") and not isinstance(self.value, list | SubqueryAnswer):
            raise ValueError(f"{self.op} takes a list of values")
        if isinstance(self.value, list) and self.op not in ("in", "not_in", "between", "not_between"):
            raise ValueError(f"{self.op} takes one value")
        return self


class ExistsBody(_Answer):
    """Conditions on the thing that is, or is not, there."""

    filters: list[ConditionAnswer] = []


class ExistsAnswer(_Answer):
    """A test whether something else is there."""

    op: Literal["exists", "not_exists"]
    value: ExistsBody


class AnyAnswer(_Answer):
    """OR."""

    any: list[ConditionAnswer] = Field(min_length=1)


class AllAnswer(_Answer):
    """AND inside an OR."""

    all: list[ConditionAnswer] = Field(min_length=1)


ConditionAnswer: TypeAlias = FilterAnswer | ExistsAnswer | AnyAnswer | AllAnswer


class AggregationAnswer(_Answer):
    """An aggregate to be computed."""

    func: str = Field(min_length=1)
    column: ColumnAnswer = "*"
    distinct: bool = False
    filter: list[ConditionAnswer] = []


class OrderAnswer(_Answer):
    """One key of an order."""

    column: ColumnAnswer | None = None
    agg: str | None = None
    window: str | None = None
    dir: Literal["asc", "desc"] = "asc"


class SpecAnswer(_Answer):
    """What one text asks for."""

    projections: list[ColumnAnswer]
    aggregations: list[AggregationAnswer]
    filters: list[ConditionAnswer]
    group_by: list[ColumnAnswer]
    order_by: list[OrderAnswer] = []
    limit: int | None = Field(default=None, ge=1)
    distinct: bool = False
    asks_order: bool = False
    asks_limit: bool = False
    superlative: Literal["max", "min"] | None = None
    per_group_limit: bool = False
    set_op: str | None = None
    negated: bool = False
    ratio: bool = False
    target: str | None = None
    language: str = "en"
    unread: list[str] = []

    @model_validator(mode="after")
    def _can_be_read(self) -> SpecAnswer:
        try:
            question_spec(self.model_dump())
        except InputError as error:
            raise ValueError(str(error)) from error
        return self


class QuestionAnswer(_Answer):
    """Answer for a row without reformulation."""

    question: SpecAnswer


class PairAnswer(_Answer):
    """Answer for a row with one."""

    question: SpecAnswer
    enriched: SpecAnswer


_SCHEMAS: dict[type[BaseModel], dict[str, Any]] = {model: strict_schema(model) for model in (QuestionAnswer, PairAnswer)}

# --- the reader -----------------------------------------------------------------------------------------------------


class LLMReader:
    """Reads questions through a chat model.

    Args:
        chat: Answers the requests; it is not closed here.
        raise_if_down: Raise TransientError when no request of a batch reached the endpoint, so that the batch can be repeated.
        marker_key: Secret key of the marker around the data (`stef_core.llm.data_message`); where None a random one of this
            process, so that no other process makes equal requests.
    """

    name = "llm"

    def __init__(self, chat: ChatModel, *, raise_if_down: bool = False, marker_key: bytes | None = None) -> None:
        self.chat = chat
        self._raise_if_down, self._marker_key = raise_if_down, marker_key
        self._offline = OfflineReader()

    @property
    def prompt_version(self) -> str:
        """Version of the prompt that determines an answer."""
        return load_prompt(PROMPT).version

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        """One answer a record, in order.

        A row without question or without SQL is read offline, as no verdict rests on it; so is one whose SQL cannot be read
        under rules that redact, as nobody can say what of it may be sent. A row whose texts address the evaluator is read
        offline too; the model's reading of what is left of them stands beside it as `doubted`, and is not asked for where
        nobody can say what is left.

        Raises:
            TransientError: Only with `raise_if_down`.
        """
        pairs = self._offline.read_many(records, rules)
        masks = {
            i: mask for i, row in enumerate(zip(records, rules, pairs, strict=True)) if (mask := row_mask(*row)) is not None
        }
        requests = [
            question_request(records[i], rules[i], self.chat.model, pairs[i].question, mask, self._marker_key)
            for i, mask in masks.items()
        ]
        outcomes = self.chat.complete_many(requests, raise_if_down=self._raise_if_down)
        for (i, mask), outcome in zip(masks.items(), outcomes, strict=True):
            pairs[i] = _pair(outcome, pairs[i], mask, answer_model(records[i]))
        return pairs


def question_request(
    record: QueryRecord,
    rules: Rules,
    model: str,
    offline: QuestionSpec | None = None,
    mask: Redaction | None = None,
    marker_key: bytes | None = None,
) -> ChatRequest:
    """What is asked about one row.

    Args:
        record: The row; its question is not empty.
        rules: R_app; only mappings and definitions of words that the question uses are sent.
        model: Model id.
        offline: The offline reading of the question, whose lemmas choose the rules.
        mask: Literals that may not be sent.
        marker_key: As in `LLMReader`.
    """
    mask = mask or Redaction(())
    data: dict[str, Any] = {"question": _clip(mask.mask(separate(record.user_question or "").text))}
    answer = answer_model(record)
    if answer is PairAnswer:
        data["enriched_question"] = _clip(mask.mask(separate(record.enriched_question or "").text))
    words = words_of(rules, offline.mentions.lemmas if offline else frozenset())
    if words:
        data["words"] = mask.mask_json(words)
    return ChatRequest(
        messages=(Message(role="system", content=load_prompt(PROMPT).text), data_message(data, marker_key)),
        schema_name="question" if answer is QuestionAnswer else "question_pair",
        schema=_SCHEMAS[answer],
        model=model,
        max_tokens=MAX_TOKENS,
        answer=answer,
    )


def question_spec(answer: dict[str, Any]) -> QuestionSpec:
    """The specification that a dumped `SpecAnswer` describes, in canonical form.

    Raises:
        InputError: A column, value or condition is of no known form.
    """
    return QuestionSpec(
        projections=tuple(column_from_json(c) for c in answer["projections"]),
        aggregations=tuple(
            Aggregation(
                func=_function(a["func"]),
                column=column_from_json(a["column"]),
                distinct=a["distinct"],
                filter=_conditions(a["filter"]),
            )
            for a in answer["aggregations"]
        ),
        filters=_conditions(answer["filters"]),
        group_by=tuple(column_from_json(c) for c in answer["group_by"]),
        order_by=tuple(
            OrderKey(
                column=None if k["column"] is None else column_from_json(k["column"]),
                agg=_function(k["agg"]) if k["agg"] else None,
                window=k["window"] or None,
                dir=k["dir"],
            )
            for k in answer["order_by"]
        ),
        limit=answer["limit"],
        distinct=answer["distinct"],
        asks_order=answer["asks_order"],
        asks_limit=answer["asks_limit"],
        superlative=answer["superlative"],
        per_group_limit=answer["per_group_limit"],
        set_op=answer["set_op"] or None,
        negated=answer["negated"],
        ratio=answer["ratio"],
        target=answer["target"].casefold() if answer["target"] else None,
        language=answer["language"] or "en",
        unread=tuple(answer["unread"]),
        reader="llm",
    )


def answer_model(record: QueryRecord) -> type[BaseModel]:
    """What a model must answer about a row: one specification, or two where there is a reformulation."""
    return PairAnswer if separate(record.enriched_question or "").text else QuestionAnswer


def _pair(outcome: Outcome, offline: QuestionPair, mask: Redaction, model: type[BaseModel]) -> QuestionPair:
    figures: Any = {"tokens_in": outcome.tokens_in, "tokens_out": outcome.tokens_out, "calls": outcome.calls}
    figures["cost"] = outcome.cost
    if isinstance(outcome, ChatFailure):
        reason = outcome.reason.replace("judge_", "question_reader_")
        return QuestionPair(question=None, reason=reason, message=outcome.message, **figures)
    answer = mask.restore(model.model_validate_json(outcome.text).model_dump())
    pair = QuestionPair(
        question=merged_spec(answer["question"], offline.question),
        enriched=merged_spec(answer["enriched"], offline.enriched) if "enriched" in answer else None,
        **figures,
    )
    if any(note.startswith(INJECTION) for spec in (offline.question, offline.enriched) if spec for note in spec.notes):
        return replace(offline, doubted=pair, **figures)
    return pair


def merged_spec(answer: dict[str, Any], offline: QuestionSpec | None) -> QuestionSpec:
    """A model's specification, with what the offline reader says the text names."""
    spec = question_spec(answer)
    return spec if offline is None else replace(spec, mentions=offline.mentions, hints=offline.hints)


def row_mask(record: QueryRecord, rules: Rules, offline: QuestionPair) -> Redaction | None:
    """What must not be sent of a row; None where the row is not sent at all."""
    if not _has_text(record.user_question) or not _has_text(record.generated_sql) or offline.question is None:
        return None
    if not all(separate(text or "").sure for text in (record.user_question, record.enriched_question)):
        return None
    if not rules.redact:
        return Redaction(())
    sql = extract_sql(record.generated_sql, record.dialect or rules.dialect)
    if sql.parse_status not in READ:
        return None
    return redaction(rules, sql, offline.question, offline.enriched, record=record, numbered=True)


def words_of(rules: Rules, lemmas: frozenset[str]) -> dict[str, Any]:
    """What the rules say of the words of a question, as a prompt shows it."""
    bearing = rules.bearing_on(frozenset(), lemmas)
    words: dict[str, Any] = {
        "same_column": dict(sorted(bearing.column_mappings.items())),
        "values": {column: dict(sorted(values.items())) for column, values in sorted(bearing.value_mappings.items())},
        "metrics": {word: metric.model_dump() for word, metric in sorted(bearing.metric_definitions.items())},
    }
    return {kind: entries for kind, entries in words.items() if entries}


# --- conditions in canonical form -----------------------------------------------------------------------------------


def _conditions(answers: Sequence[dict[str, Any]]) -> tuple[Condition, ...]:
    return tuple(_condition(answer) for answer in answers)


def _condition(answer: dict[str, Any]) -> Condition:
    if "any" in answer:
        return _one_column(_conditions(answer["any"]))
    if "all" in answer:
        return AllOf(conditions=_conditions(answer["all"]))
    read = condition_from_json(answer)
    assert isinstance(read, Filter)
    if read.op in ("exists", "not_exists"):
        return replace(read, clause="question")
    raw = answer["value"] if isinstance(answer["value"], list) else [answer["value"]]
    read = replace(
        read,
        value=_value(read.value),
        agg=_function(read.agg) if read.agg else None,
        window=read.window or None,
        raw=tuple(str(v) for v in raw if isinstance(v, str | int | float) and not isinstance(v, bool)),
        text=answer["text"],
        clause="question",
    )
    return _simplest(read)


def _simplest(read: Filter) -> Filter:
    value = read.value
    if read.op in ("in", "not_in") and isinstance(value, tuple):
        if len(value) == 1:
            return replace(read, op="=" if read.op == "in" else "!=", value=value[0])
        return replace(read, value=tuple(sorted(value, key=repr)))
    if read.op in ("like", "not_like") and isinstance(value, str) and not re.search(r"[%_]", value):
        return replace(read, op="=" if read.op == "like" else "!=")
    if value is None and read.op in ("=", "!="):
        return replace(read, op="is_null" if read.op == "=" else "is_not_null")
    return read


def _one_column(conditions: tuple[Condition, ...]) -> Condition:
    """OR of equalities on one column is ``in``."""
    if len(conditions) == 1:
        return conditions[0]
    filters = [c for c in conditions if isinstance(c, Filter) and c.op == "=" and not c.agg and not c.window]
    if len(filters) == len(conditions) and len({c.column for c in filters}) == 1 and filters[0].column is not None:
        values = tuple(sorted((c.value for c in filters), key=repr))
        raw = tuple(r for c in filters for r in c.raw)
        return replace(filters[0], op="in", value=values, raw=raw, text=", ".join(c.text for c in filters if c.text))
    return AnyOf(conditions=conditions)


def _value(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_value(v) for v in value)
    if isinstance(value, str) and re.fullmatch(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?", value):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def _function(name: str) -> str:
    folded = name.strip().casefold()
    return _FUNCTIONS.get(folded, folded)


def _has_text(text: str | None) -> bool:
    return bool((text or "").strip())


def _clip(text: str) -> str:
    return text if len(text) <= QUESTION_MAX else text[:QUESTION_MAX] + " …"
