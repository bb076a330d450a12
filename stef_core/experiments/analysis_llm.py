"""Why a wrong answer is wrong, told by a chat model; where it gives no answer, the syntax trees tell it.

Source: experiments.md, "The loop" 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, field_validator

from stef_core.experiments.error_codes import Analysis, ErrorCode, analyse
from stef_core.judge.llm import clip
from stef_core.llm import ChatFailure, ChatModel, ChatRequest, Message, data_message, strict_schema
from stef_core.prompts import load_prompt
from stef_core.withhold import shown_statement

PROMPT = "analyse_error_v2"
MAX_TOKENS = 800
QUESTION_MAX, SQL_MAX, TEXT_MAX, CODES_MAX = 4000, 12_000, 1200, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswer:
    """One incorrect row of an experiment."""

    question: str
    gold_sql: tuple[str, ...]
    predicted_sql: str | None
    dialect: str | None = None
    outcome: str = ""  # what the comparison of results says
    flags: tuple[str, ...] = ()


class ErrorAnswer(BaseModel):
    """What a model answers; the order makes it explain before it names codes."""

    model_config = ConfigDict(extra="forbid")

    analysis: str
    error_codes: list[ErrorCode]

    @field_validator("analysis")
    @classmethod
    def _said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("says nothing")
        return clip(" ".join(value.split()), TEXT_MAX)

    @field_validator("error_codes")
    @classmethod
    def _some(cls, value: list[ErrorCode]) -> list[ErrorCode]:
        if not value:
            raise ValueError("names no code")
        return list(dict.fromkeys(value))[:CODES_MAX]


_SCHEMA = strict_schema(ErrorAnswer)


def analyse_offline(wrong: WrongAnswer) -> Analysis:
    """Analyse one row by its syntax trees."""
    return analyse(wrong.gold_sql, wrong.predicted_sql, wrong.dialect, flags=wrong.flags)


def analyse_many(wrong: Sequence[WrongAnswer], chat: ChatModel, marker_key: bytes | None = None) -> list[Analysis]:
    """Analyse rows by a model, in order; a row that it fails on is analysed by its trees, and says so.

    Args:
        wrong: Incorrect rows.
        chat: Answers the requests.
        marker_key: As in `stef_core.judge.llm.LLMJudge`.
    """
    offline = [analyse_offline(row) for row in wrong]
    requests = [error_request(row, trees, chat.model, marker_key) for row, trees in zip(wrong, offline, strict=True)]
    analyses: list[Analysis] = []
    for trees, outcome in zip(offline, chat.complete_many(requests), strict=True):
        if isinstance(outcome, ChatFailure):
            analyses.append(replace(trees, text=f"{trees.text} (By the syntax trees: the model gave none, {outcome.message})"))
            continue
        answer = ErrorAnswer.model_validate_json(outcome.text)
        analyses.append(
            Analysis(codes=tuple(answer.error_codes), text=answer.analysis, differences=trees.differences, by=chat.model)
        )
    return analyses


def error_request(wrong: WrongAnswer, trees: Analysis, model: str, marker_key: bytes | None = None) -> ChatRequest:
    """What is asked about one wrong row."""
    predicted, held = shown_statement(wrong.predicted_sql or "", wrong.dialect, (wrong.question,))
    data = {
        "question": clip(wrong.question, QUESTION_MAX),
        "gold_sql": [clip(sql, SQL_MAX) for sql in wrong.gold_sql],
        "predicted_sql": clip(predicted, SQL_MAX),
        "dialect": wrong.dialect,
        "outcome": clip(wrong.outcome, TEXT_MAX),
        "differences": [clip(held.text(difference.message), TEXT_MAX) for difference in trees.differences[:12]],
    }
    return ChatRequest(
        messages=(Message(role="system", content=load_prompt(PROMPT).text), data_message(data, marker_key)),
        schema_name="error_analysis",
        schema=_SCHEMA,
        model=model,
        max_tokens=MAX_TOKENS,
        answer=ErrorAnswer,
    )
