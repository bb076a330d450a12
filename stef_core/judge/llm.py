"""Asks a chat model for a verdict: grade, confidence and reasons, from a closed set. A failure is a reason, never a grade.

The confidence γ of a verdict is the least of what is known of it: the mean confidence that the model states, the share of
several samples that gave the grade, and the probability of the tokens that write it. Models state too much; the others cannot.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from stef_core.bearing import bearing_rules
from stef_core.canonical import alignment_json, finding_json, question_spec_json, sql_spec_json
from stef_core.dialects import sqlglot_dialect
from stef_core.extract.question_text import INJECTION
from stef_core.injection import separate, visible
from stef_core.llm import ChatAnswer, ChatFailure, ChatModel, ChatRequest, Message, Outcome, data_message, strict_schema
from stef_core.prompts import load_prompt
from stef_core.records import Basis, Evidence, Grade, Verdict
from stef_core.redact import redaction
from stef_core.rules import Rules
from stef_core.scoring import VERDICT_POINTS
from stef_core.withhold import shown_statement

PROMPT = "judge_v2"
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


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class JudgeAnswer(BaseModel):
    """What a model answers; the order makes it reason before it grades."""

    model_config = ConfigDict(extra="forbid")

    reasons: list[str]
    grade: Grade
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)

    @field_validator("reasons")
    @classmethod
    def _short(cls, value: list[str]) -> list[str]:
        return [clip(_CONTROLS.sub(" ", visible(reason)).strip(), TEXT_MAX) for reason in value[:8]]


_SCHEMA = strict_schema(JudgeAnswer)


class LLMJudge:
    """Grades evidence through a chat model.

    Args:
        chat: Answers the requests; it is not closed here.
        raise_if_down: Raise TransientError when the endpoint is away, so that the batch can be repeated.
        samples: Verdicts asked for a row, each with a seed of its own. The grade of most counts, the lower one of equal
            numbers. A row has no verdict when half of its samples or more failed.
        sample_temperature: Temperature where there are several samples; a single one is asked at 0.
        logprobs: Ask for the probability of the grade, where the endpoint tells it.
        marker_key: Secret key of the marker around the data (`stef_core.llm.data_message`); where None a random one of this
            process, so that no other process makes equal requests.
    """

    name = "openai"

    def __init__(
        self,
        chat: ChatModel,
        *,
        raise_if_down: bool = False,
        samples: int = 1,
        sample_temperature: float = 0.7,
        logprobs: bool = False,
        marker_key: bytes | None = None,
    ) -> None:
        self.chat = chat
        self._raise_if_down, self._marker_key = raise_if_down, marker_key
        self._samples, self._temperature, self._logprobs = samples, sample_temperature, logprobs

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
        requests = [
            self._sampled(judge_request(e, r, self.chat.model, self._marker_key)) for e, r in zip(evidence, rules, strict=True)
        ]
        outcomes = iter(
            self.chat.complete_many([r for samples in requests for r in samples], raise_if_down=self._raise_if_down)
        )
        return [self._verdict([next(outcomes) for _ in samples]) for samples in requests]

    def _sampled(self, request: ChatRequest) -> list[ChatRequest]:
        request = replace(request, measured="grade") if self._logprobs else request
        if self._samples == 1:
            return [request]
        return [replace(request, seed=seed, temperature=self._temperature) for seed in range(1, self._samples + 1)]

    def _verdict(self, outcomes: Sequence[Outcome]) -> Verdict:
        shared: Any = {
            "judge": self.name,
            "model": self.model,
            "prompt_version": self.prompt_version,
            "tokens_in": sum(o.tokens_in for o in outcomes),
            "tokens_out": sum(o.tokens_out for o in outcomes),
            "calls": sum(o.calls for o in outcomes),
            "cost": sum(o.cost for o in outcomes),
        }
        failed = [o for o in outcomes if isinstance(o, ChatFailure)]
        if 2 * len(failed) >= len(outcomes):
            return Verdict(grade=None, reason=failed[0].reason, reasons=(failed[0].message,), **shared)
        given = [(o, JudgeAnswer.model_validate_json(o.text)) for o in outcomes if isinstance(o, ChatAnswer)]
        votes = Counter(answer.grade for _, answer in given)
        grade = max(votes, key=lambda g: (votes[g], -VERDICT_POINTS[g]))
        chosen = [(o, answer) for o, answer in given if answer.grade == grade]
        known = [o.probability for o, _ in chosen if o.probability is not None]
        basis = Basis(
            stated=sum(answer.confidence for _, answer in chosen) / len(chosen),
            step=chosen[0][0].step,
            repaired=any(o.calls > 1 for o, _ in chosen),
            votes=tuple(sorted(votes.items(), key=lambda vote: -VERDICT_POINTS[vote[0]])) if len(outcomes) > 1 else (),
            agreement=len(chosen) / len(given) if len(outcomes) > 1 else None,
            probability=sum(known) / len(known) if known else None,
        )
        return Verdict(grade=grade, confidence=confidence_of(basis), reasons=tuple(chosen[0][1].reasons), basis=basis, **shared)


def confidence_of(basis: Basis) -> float:
    """γ of a verdict, 0-1: the least of what is known of it."""
    return min(v for v in (basis.stated, basis.agreement, basis.probability) if v is not None)


def judge_request(evidence: Evidence, rules: Rules, model: str, marker_key: bytes | None = None) -> ChatRequest:
    """What is asked about one row.

    Args:
        evidence: All that is known of the row.
        rules: R_app; only the rules that bear on the row are sent, so that a change elsewhere leaves the request as it is.
        model: Model id.
        marker_key: As in `LLMJudge`.
    """
    data = judge_data(evidence, rules)
    return ChatRequest(
        messages=(Message(role="system", content=load_prompt(PROMPT).text), data_message(data, marker_key)),
        schema_name="verdict",
        schema=_SCHEMA,
        model=model,
        max_tokens=MAX_TOKENS,
        answer=JudgeAnswer,
    )


def judge_data(evidence: Evidence, rules: Rules) -> dict[str, Any]:
    """What a judge is shown of a row: its texts, the analysis, and the rules that bear on it."""
    record, reading = evidence.record, evidence.reading
    question, enriched = separate(record.user_question or "").text, separate(record.enriched_question or "").text
    mask = redaction(rules, reading.sql, reading.question, reading.enriched, record=record, numbered=True)
    bearing = bearing_rules(rules, reading)
    dialect = reading.sql.dialect or record.dialect or rules.dialect
    # masked before it is cut, as a cut may go through a literal
    statement, held = shown_statement(record.generated_sql or "", dialect, (question, enriched))
    statement = mask.mask_sql(statement, reading.sql.dialect)
    analysis = {
        "question_spec": question_spec_json(reading.question),
        "enriched_spec": question_spec_json(reading.enriched) if reading.enriched else None,
        "sql_spec": sql_spec_json(reading.sql),
        "alignment": alignment_json(evidence.alignment),
        "enrichment": evidence.enrichment.status,
        # text that addresses the evaluator is no evidence, and a note on it would quote it
        "findings": [finding_json(f) for f in evidence.findings if f.code != INJECTION],
    }
    for spec in (analysis["question_spec"], analysis["enriched_spec"]):
        if isinstance(spec, dict):
            spec["notes"] = [note for note in spec["notes"] if not note.startswith(INJECTION)]
    stated = bearing.model_dump(mode="json", include=set(_RULES))
    return {
        "question": clip(mask.mask(question), QUESTION_MAX),
        "enriched_question": clip(mask.mask(enriched), QUESTION_MAX) if enriched else None,
        "sql": clip(statement, SQL_MAX),
        "dialect": dialect if sqlglot_dialect(dialect) is not None else None,
        **clip_all(mask.mask_json(held.json(analysis))),
        "rules": mask.mask_json({name: _ordered(stated[name]) for name in _RULES}),
        "judge_notes": bearing.judge_notes,
    }


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
