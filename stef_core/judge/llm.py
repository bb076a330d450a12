"""Asks a chat model for a verdict: grade, confidence and reasons, from a closed set. A failure is a reason, never a grade."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlglot.errors import SqlglotError

from stef_core.canonical import alignment_json, finding_json, question_spec_json, sql_spec_json
from stef_core.evaluate import bearing_rules
from stef_core.llm import ChatFailure, ChatModel, ChatRequest, Message, data_message, strict_schema
from stef_core.prompts import load_prompt
from stef_core.records import Evidence, Grade, Verdict
from stef_core.redact import redaction
from stef_core.rules import Rules

PROMPT = "judge_v1"
MAX_TOKENS = 1500
SQL_MAX, QUESTION_MAX = 8000, 8000  # characters that are sent; the middle of a longer text is left out
TEXT_MAX, LIST_MAX = 500, 40  # the same for one string, and items of one list, of the analysis

_RULES = (
    "column_mappings",
    "value_mappings",
    "benign_filters",
    "critical_filters",
    "metric_definitions",
    "safety_limit_min",
    "tolerate_order_by",
    "trust_enrichment",
)


_FENCE = re.compile(r"\s*```\w*\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
# quoted text (kept) or a comment (not); for SQL that the tokenizer of its dialect does not read
_PIECES = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


class JudgeAnswer(BaseModel):
    """What a model answers; the order makes it reason before it grades."""

    model_config = ConfigDict(extra="forbid")

    reasons: list[str]
    grade: Grade
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)

    @field_validator("reasons")
    @classmethod
    def _short(cls, value: list[str]) -> list[str]:
        return [clip(reason, TEXT_MAX) for reason in value[:8]]


_SCHEMA = strict_schema(JudgeAnswer)


class LLMJudge:
    """Grades evidence through a chat model.

    Args:
        chat: Answers the requests; it is not closed here.
        raise_if_down: Raise TransientError when no request of a batch reached the endpoint, so that the batch can be repeated.
    """

    name = "openai"

    def __init__(self, chat: ChatModel, *, raise_if_down: bool = False) -> None:
        self.chat = chat
        self._raise_if_down = raise_if_down

    @property
    def model(self) -> str:
        """Model id."""
        return self.chat.model

    @property
    def prompt_version(self) -> str:
        """Version of the prompt that determines an answer."""
        return load_prompt(PROMPT).version

    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        """One verdict a row, in order; a failure is a verdict without grade and with a reason.

        Raises:
            TransientError: Only with `raise_if_down`.
        """
        requests = [judge_request(e, r, self.chat.model) for e, r in zip(evidence, rules, strict=True)]
        verdicts = []
        for outcome in self.chat.complete_many(requests, raise_if_down=self._raise_if_down):
            shared: Any = {
                "judge": self.name,
                "model": self.model,
                "prompt_version": self.prompt_version,
                "tokens_in": outcome.tokens_in,
                "tokens_out": outcome.tokens_out,
                "calls": outcome.calls,
            }
            if isinstance(outcome, ChatFailure):
                verdicts.append(Verdict(grade=None, reason=outcome.reason, reasons=(outcome.message,), **shared))
                continue
            answer = JudgeAnswer.model_validate_json(outcome.text)
            verdicts.append(Verdict(grade=answer.grade, confidence=answer.confidence, reasons=tuple(answer.reasons), **shared))
        return verdicts


def judge_request(evidence: Evidence, rules: Rules, model: str) -> ChatRequest:
    """What is asked about one row.

    Args:
        evidence: All that is known of the row.
        rules: R_app; only the rules that bear on the row are sent, so that a change elsewhere leaves the request as it is.
        model: Model id.
    """
    record, reading = evidence.record, evidence.reading
    mask = redaction(rules, reading.sql, reading.question, reading.enriched, record=record, numbered=True)
    bearing = bearing_rules(rules, reading)
    dialect = reading.sql.dialect or record.dialect or rules.dialect
    # masked before it is cut, as a cut may go through a literal
    statement = mask.mask_sql(without_comments(record.generated_sql or "", dialect), reading.sql.dialect)
    analysis = {
        "question_spec": question_spec_json(reading.question),
        "enriched_spec": question_spec_json(reading.enriched) if reading.enriched else None,
        "sql_spec": sql_spec_json(reading.sql),
        "alignment": alignment_json(evidence.alignment),
        "enrichment": evidence.enrichment.status,
        "findings": [finding_json(f) for f in evidence.findings],
    }
    stated = bearing.model_dump(mode="json", include=set(_RULES))
    data = {
        "question": clip(mask.mask(record.user_question or ""), QUESTION_MAX),
        "enriched_question": clip(mask.mask(record.enriched_question), QUESTION_MAX) if record.enriched_question else None,
        "sql": clip(statement, SQL_MAX),
        "dialect": dialect,
        **clip_all(mask.mask_json(analysis)),
        "rules": mask.mask_json({name: _ordered(stated[name]) for name in _RULES}),
        "judge_notes": bearing.judge_notes,
    }
    return ChatRequest(
        messages=(Message(role="system", content=load_prompt(PROMPT).text), data_message(data)),
        schema_name="verdict",
        schema=_SCHEMA,
        model=model,
        max_tokens=MAX_TOKENS,
        answer=JudgeAnswer,
    )


def without_comments(sql: str, dialect: str | None = None) -> str:
    """SQL without its comments, otherwise as written; a markdown fence around it goes too."""
    if fence := _FENCE.fullmatch(sql):
        sql = fence.group(1)
    try:
        tokens = sqlglot.Dialect.get_or_raise(dialect or None).tokenize(sql)
    except (SqlglotError, ValueError):
        return _PIECES.sub(lambda match: match.group(1) or " ", sql).strip()
    out: list[str] = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        out += [" " if gap.strip() else gap, sql[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(out).strip()


def clip(text: str, length: int) -> str:
    """A text of at most about `length` characters: the middle of a longer one is left out, with a note of how much."""
    if len(text) <= length:
        return text
    head, tail = length * 2 // 3, length // 3
    return f"{text[:head]} [… {len(text) - head - tail} characters left out …] {text[-tail:]}"


def clip_all(data: Any) -> Any:
    """A JSON value with long strings and lists cut, each with a note of how much is left out."""
    if isinstance(data, str):
        return clip(data, TEXT_MAX)
    if isinstance(data, list):
        kept = [clip_all(item) for item in data[:LIST_MAX]]
        return [*kept, f"[… {len(data) - LIST_MAX} more]"] if len(data) > LIST_MAX else kept
    if isinstance(data, Mapping):
        return {key: clip_all(value) for key, value in data.items()}
    return data


def _ordered(value: Any) -> Any:
    return {key: _ordered(value[key]) for key in sorted(value)} if isinstance(value, dict) else value
