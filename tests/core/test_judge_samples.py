"""Several samples a row: the grade of most, and a confidence that is the least of what is known of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from stef_core.judge.llm import LLMJudge, confidence_of
from stef_core.llm import ChatAnswer, ChatFailure, ChatRequest, Outcome, Usage
from stef_core.records import Alignment, Basis, Enrichment, Evidence, QueryRecord, QuestionSpec, Reading, SqlSpec, Verdict
from stef_core.rules import DEFAULT_RULES

EVIDENCE = Evidence(
    record=QueryRecord(query_id="1", user_question="How many kites?", generated_sql="SELECT COUNT(*) FROM kites"),
    reading=Reading(question=QuestionSpec(), enriched=None, sql=SqlSpec(parse_status="ok", tables=("kites",))),
    alignment=Alignment(filter_status="fully_applied"),
    enrichment=Enrichment(status="absent"),
)


class Told:
    """A chat model that gives one outcome after the other, and keeps what it was asked."""

    name, model, usage = "openai", "m", Usage()

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.asked = list(outcomes), list[ChatRequest]()

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        self.asked += requests
        return [self.outcomes.pop(0) for _ in requests]

    def close(self) -> None:
        pass


def said(grade: str, confidence: float, probability: float | None = None, calls: int = 1) -> ChatAnswer:
    text = json.dumps({"reasons": [f"{grade} it is"], "grade": grade, "confidence": confidence})
    return ChatAnswer(text=text, tokens_in=10, tokens_out=1, cost=0.5, probability=probability, calls=calls)


def verdict_of(*outcomes: Outcome, logprobs: bool = False) -> tuple[Verdict, list[ChatRequest]]:
    chat = Told(*outcomes)
    (verdict,) = LLMJudge(chat, samples=len(outcomes), logprobs=logprobs).judge_many([EVIDENCE], [DEFAULT_RULES])
    return verdict, chat.asked


def test_most_votes_win_and_all_are_paid_for() -> None:
    verdict, asked = verdict_of(said("correct", 0.9), said("incorrect", 0.99), said("correct", 0.8))

    assert (verdict.grade, verdict.reasons) == ("correct", ("correct it is",))
    assert verdict.confidence == pytest.approx(2 / 3)
    assert verdict.basis is not None
    assert verdict.basis.stated == pytest.approx(0.85)
    assert verdict.basis.agreement == pytest.approx(2 / 3)
    assert (verdict.basis.votes, verdict.basis.step) == ((("correct", 2), ("incorrect", 1)), "json_schema")
    assert (verdict.tokens_in, verdict.tokens_out, verdict.calls, verdict.cost) == (30, 3, 3, 1.5)
    assert [(r.seed, r.temperature) for r in asked] == [(1, 0.7), (2, 0.7), (3, 0.7)]
    assert len({r.key for r in asked}) == 3


def test_of_equal_votes_the_lower_grade_wins() -> None:
    assert verdict_of(said("correct", 0.9), said("potentially_incorrect", 0.9))[0].grade == "potentially_incorrect"
    assert verdict_of(said("incorrect", 0.9), said("likely_correct", 0.9))[0].grade == "incorrect"


def test_one_failed_sample_of_three_is_no_failure_and_two_are() -> None:
    refused = ChatFailure(reason="judge_refused", message="no", tokens_in=4)

    assert verdict_of(said("correct", 0.9), refused, said("correct", 0.9))[0].grade == "correct"
    verdict, _ = verdict_of(said("correct", 0.9), refused, refused)
    assert (verdict.grade, verdict.reason, verdict.tokens_in) == (None, "judge_refused", 18)


def test_a_single_sample_is_asked_at_temperature_0_and_states_its_confidence() -> None:
    verdict, asked = verdict_of(said("correct", 0.9, calls=2))

    assert verdict.confidence == 0.9
    assert verdict.basis == Basis(stated=0.9, step="json_schema", repaired=True)
    assert (asked[0].seed, asked[0].temperature, asked[0].measured) == (None, 0.0, None)


def test_the_probability_of_the_grade_caps_what_the_model_states() -> None:
    verdict, asked = verdict_of(said("correct", 0.95, probability=0.6), logprobs=True)

    assert asked[0].measured == "grade"
    assert (verdict.confidence, verdict.basis and verdict.basis.probability) == (0.6, 0.6)


@pytest.mark.parametrize(
    ("stated", "agreement", "probability", "least"),
    [(0.9, None, None, 0.9), (0.9, 0.8, None, 0.8), (0.5, 1.0, 0.99, 0.5), (0.9, 1.0, 0.7, 0.7)],
)
def test_confidence_is_the_least_of_what_is_known(
    stated: float, agreement: float | None, probability: float | None, least: float
) -> None:
    basis = Basis(stated=stated, step="text", agreement=agreement, probability=probability)

    assert confidence_of(basis) == least
