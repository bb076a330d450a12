"""Reads and judges a row in one call: half the requests.

What a text names, the alignment and the points for filters are worked out as ever, from the specification that comes back. A
row whose texts address the evaluator takes the ordinary way: its verdict is held within what the symbolic judge allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, Field

from stef_core.align import align
from stef_core.enrichment import compare_enrichment
from stef_core.evaluate import QuestionPair, injections_of
from stef_core.extract.question_llm import MAX_TOKENS as READ_MAX_TOKENS
from stef_core.extract.question_llm import PROMPT as READ_PROMPT
from stef_core.extract.question_llm import (
    LLMReader,
    PairAnswer,
    QuestionAnswer,
    answer_model,
    merged_spec,
    row_mask,
    words_of,
)
from stef_core.extract.sql import extract_sql
from stef_core.judge.llm import MAX_TOKENS as JUDGE_MAX_TOKENS
from stef_core.judge.llm import PROMPT as JUDGE_PROMPT
from stef_core.judge.llm import JudgeAnswer, confidence_of, judge_data
from stef_core.limits import weigh_sql
from stef_core.llm import ChatAnswer, ChatFailure, ChatModel, ChatRequest, Message, Outcome, data_message, strict_schema
from stef_core.prompts import Prompt, load_prompt
from stef_core.records import Basis, Evidence, Grade, QueryRecord, Reading, SqlSpec, Verdict
from stef_core.redact import READ, Redaction
from stef_core.rules import Rules

PROMPT = "fused_v1"


class FusedAnswer(QuestionAnswer):
    """Answer for a row without reformulation; it specifies before it judges."""

    reasons: list[str]
    grade: Grade
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)


class FusedPairAnswer(PairAnswer):
    """Answer for a row with one."""

    reasons: list[str]
    grade: Grade
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)


_MODELS: dict[type[BaseModel], type[BaseModel]] = {QuestionAnswer: FusedAnswer, PairAnswer: FusedPairAnswer}
_SCHEMAS = {model: strict_schema(model) for model in _MODELS.values()}


@cache
def fused_prompt() -> Prompt:
    """The prompts of reader and judge as two parts of one."""
    parts = [load_prompt(name).text for name in (PROMPT, READ_PROMPT, JUDGE_PROMPT)]
    text = f"{parts[0]}\n\n# FIRST PART: the question\n\n{parts[1]}\n\n# SECOND PART: the verdict\n\n{parts[2]}"
    return Prompt(name=PROMPT, text=text, version=f"{PROMPT}@{hashlib.sha256(text.encode()).hexdigest()[:8]}")


class FusedReader(LLMReader):
    """A `QuestionReader` whose answers bring their verdicts along.

    Args:
        chat: Answers the requests; it is not closed here.
        raise_if_down: As in `LLMReader`.
        marker_key: As in `LLMReader`.
        logprobs: Ask for the probability of the grade, where the endpoint tells it.
    """

    name = "fused"

    def __init__(
        self, chat: ChatModel, *, raise_if_down: bool = False, marker_key: bytes | None = None, logprobs: bool = False
    ) -> None:
        super().__init__(chat, raise_if_down=raise_if_down, marker_key=marker_key)
        self._logprobs = logprobs

    @property
    def prompt_version(self) -> str:
        """Version of the prompt that determines an answer."""
        return fused_prompt().version

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        """One answer a record, in order, each with its verdict where one call gave both.

        Raises:
            TransientError: Only with `raise_if_down`.
        """
        pairs = self._offline.read_many(records, rules)
        asked: dict[int, tuple[ChatRequest, Redaction]] = {}
        apart = []
        for i, (record, its, pair) in enumerate(zip(records, rules, pairs, strict=True)):
            mask = row_mask(record, its, pair)
            sql = extract_sql(record.generated_sql, record.dialect or its.dialect)
            if mask is None or pair.question is None or sql.parse_status not in READ or _apart(record, sql):
                apart.append(i)
            else:
                asked[i] = (self._request(record, its, pair, sql, mask), mask)
        others = super().read_many([records[i] for i in apart], [rules[i] for i in apart])
        outcomes = self.chat.complete_many([r for r, _ in asked.values()], raise_if_down=self._raise_if_down)
        for (i, (_, mask)), outcome in zip(asked.items(), outcomes, strict=True):
            pairs[i] = self._pair(outcome, pairs[i], mask, answer_model(records[i]))
        for i, pair in zip(apart, others, strict=True):
            pairs[i] = pair
        return pairs

    def _request(self, record: QueryRecord, rules: Rules, pair: QuestionPair, sql: SqlSpec, mask: Redaction) -> ChatRequest:
        assert pair.question is not None
        reading = Reading(question=pair.question, enriched=pair.enriched, sql=sql)
        alignment, enrichment = align(record, reading, rules), compare_enrichment(record, reading, rules)
        findings = (*alignment.findings, *enrichment.findings)
        evidence = Evidence(record=record, reading=reading, alignment=alignment, enrichment=enrichment, findings=findings)
        data = judge_data(evidence, rules)
        if words := words_of(rules, pair.question.mentions.lemmas):
            data["words"] = mask.mask_json(words)
        model = _MODELS[answer_model(record)]
        return ChatRequest(
            messages=(Message(role="system", content=fused_prompt().text), data_message(data, self._marker_key)),
            schema_name="fused" if model is FusedAnswer else "fused_pair",
            schema=_SCHEMAS[model],
            model=self.chat.model,
            max_tokens=READ_MAX_TOKENS + JUDGE_MAX_TOKENS,
            measured="grade" if self._logprobs else None,
            answer=model,
        )

    def _pair(self, outcome: Outcome, offline: QuestionPair, mask: Redaction, asked: type[BaseModel]) -> QuestionPair:
        figures: Any = {"tokens_in": outcome.tokens_in, "tokens_out": outcome.tokens_out, "calls": outcome.calls}
        figures["cost"] = outcome.cost
        if isinstance(outcome, ChatFailure):
            return QuestionPair(question=None, reason=outcome.reason, message=outcome.message, **figures)
        answer = _MODELS[asked].model_validate_json(outcome.text).model_dump()
        read = mask.restore({name: answer[name] for name in ("question", "enriched") if name in answer})
        return QuestionPair(
            question=merged_spec(read["question"], offline.question),
            enriched=merged_spec(read["enriched"], offline.enriched) if "enriched" in read else None,
            verdict=self._verdict(answer, outcome),
            **figures,
        )

    def _verdict(self, answer: dict[str, Any], outcome: ChatAnswer) -> Verdict:
        """The verdict of an answer; what it took is booked with the reading."""
        told = JudgeAnswer.model_validate({name: answer[name] for name in ("reasons", "grade", "confidence")})
        basis = Basis(stated=told.confidence, step=outcome.step, repaired=outcome.calls > 1, probability=outcome.probability)
        return Verdict(
            grade=told.grade,
            confidence=confidence_of(basis),
            judge=self.chat.name,
            reasons=tuple(told.reasons),
            model=self.chat.model,
            prompt_version=self.prompt_version,
            basis=basis,
        )


def _apart(record: QueryRecord, sql: SqlSpec) -> bool:
    """Whether reading and verdict of a row are asked one by one: its texts address a reader, or are too much to align here."""
    return weigh_sql(record.generated_sql)[0] != "plain" or bool(injections_of(record, sql))
