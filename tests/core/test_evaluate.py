"""One row that this code fails on costs that row its score, and nothing else."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from stef_core import QueryRecord, Rules, evaluate, evaluate_many
from stef_core.catalogue import catalogue_of, mine
from stef_core.errors import RuleError, TransientError
from stef_core.evaluate import QuestionPair
from stef_core.extract.question_offline import OfflineReader
from stef_core.extract.sql import extract_sql
from stef_core.findings import SIGNALS
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import Alignment, Evaluation, Evidence, Verdict
from stef_core.rules import BenignFilter

ROWS = [
    QueryRecord(
        query_id=f"q{n}",
        user_question=f"How many orders in {2000 + n}?",
        generated_sql=f"SELECT COUNT(*) FROM t WHERE year = {2000 + n}",
    )
    for n in range(7)
]
BAD = "q4"
SECRET = "jane@example.org"


class FailingReader(OfflineReader):
    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        if any(record.query_id == BAD for record in records):
            raise ZeroDivisionError(SECRET)
        return super().read_many(records, rules)


class FailingJudge(SymbolicJudge):
    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        if any(e.record.query_id == BAD for e in evidence):
            raise ZeroDivisionError(SECRET)
        return super().judge_many(evidence, rules)


class ForgetfulJudge(SymbolicJudge):
    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        return [v for e, v in zip(evidence, super().judge_many(evidence, rules), strict=True) if e.record.query_id != BAD]


class SillyJudge(SymbolicJudge):
    def judge(self, evidence: Evidence) -> Verdict:
        confidence = 7.0 if evidence.record.query_id == BAD else 0.9
        return Verdict(grade="correct", confidence=confidence)


def fail_in(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = sys.modules["stef_core.evaluate"]  # the package's own attribute of that name is the function
    right = getattr(module, name)

    def wrong(*arguments: Any) -> Any:
        if BAD in repr(arguments) or "2004" in repr(arguments):
            raise ZeroDivisionError(SECRET)
        return right(*arguments)

    monkeypatch.setattr(module, name, wrong)


def assert_only_the_bad_row_lacks_a_score(evaluations: list[Evaluation]) -> Evaluation:
    right = list(evaluate_many(ROWS))
    assert [e.query_id for e in evaluations] == [r.query_id for r in ROWS]
    assert [e for e in evaluations if e.query_id != BAD] == [e for e in right if e.query_id != BAD]
    (bad,) = [e for e in evaluations if e.query_id == BAD]
    assert (bad.status, bad.reason, bad.score) == ("unscored", "evaluator_error", None)
    assert bad.verdict is not None
    assert bad.verdict.grade is None
    assert "The evaluator failed on this row" in bad.verdict.reasons[0]
    assert SECRET not in str(bad)
    return bad


@pytest.mark.parametrize("stage", ["extract_sql", "align", "compare_enrichment", "bearing_hash"])
def test_a_fault_in_a_stage_leaves_its_row_unscored_and_the_others_as_they_were(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in(monkeypatch, stage)

    evaluations = list(evaluate_many(ROWS))

    monkeypatch.undo()
    bad = assert_only_the_bad_row_lacks_a_score(evaluations)
    assert bad.findings == ()
    assert bad.to_json()["verdict"]["reasons"]


def test_a_fault_in_the_question_reader_costs_one_row() -> None:
    assert_only_the_bad_row_lacks_a_score(list(evaluate_many(ROWS, reader=FailingReader())))


@pytest.mark.parametrize("judge", [FailingJudge(), ForgetfulJudge()], ids=["raises", "gives too few verdicts"])
def test_a_fault_in_the_judge_costs_one_row_and_is_a_finding(judge: SymbolicJudge) -> None:
    bad = assert_only_the_bad_row_lacks_a_score(list(evaluate_many(ROWS, judge=judge)))

    assert [(f.code, f.kind) for f in bad.findings][-1] == ("judge_unavailable", "evaluator_error")


def test_a_verdict_that_cannot_be_composed_costs_one_row() -> None:
    evaluations = {e.query_id: e for e in evaluate_many(ROWS, judge=SillyJudge())}

    assert evaluations[BAD].reason == "evaluator_error"
    assert [e.status for e in evaluations.values()].count("scored") == len(ROWS) - 1


def test_text_that_is_no_query_still_scores_zero_when_its_question_could_not_be_read() -> None:
    row = QueryRecord(query_id=BAD, user_question="How many?", generated_sql="Sorry, no.")

    (evaluation,) = evaluate_many([row], reader=FailingReader())

    assert evaluation.score is not None
    assert evaluation.score.phi == 0


def test_log_names_the_row_and_where_it_failed_and_never_the_text_of_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "stef_core.evaluate"):
        list(evaluate_many(ROWS, judge=FailingJudge()))

    warning, debug = caplog.records
    assert (warning.levelname, warning.exc_info, debug.levelname) == ("WARNING", None, "DEBUG")
    assert "row q4 is unscored (evaluator_error)" in warning.getMessage()
    assert "ZeroDivisionError in test_evaluate.py" in warning.getMessage()
    assert SECRET not in warning.getMessage()
    assert "raise ZeroDivisionError(SECRET)" in debug.getMessage()
    assert SECRET not in debug.getMessage()
    assert debug.exc_info is None


@pytest.mark.parametrize("error", [TransientError("away"), RuleError("wrong")])
def test_errors_raised_on_purpose_reach_the_caller(error: Exception) -> None:
    class Away(SymbolicJudge):
        def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
            raise error

    with pytest.raises(type(error)):
        list(evaluate_many(ROWS, judge=Away()))


def test_weak_signals_are_weighed_and_told_but_are_no_findings() -> None:
    record = QueryRecord(query_id="q", user_question="How many boats are there?", generated_sql="SELECT COUNT(*) FROM zz9")

    evaluation = evaluate(record)

    assert evaluation.verdict is not None
    assert any("Nothing in the question leads to table zz9" in reason for reason in evaluation.verdict.reasons)
    assert not {f.kind for f in evaluation.findings} & SIGNALS


def test_rows_of_the_same_texts_are_compared_once_and_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["stef_core.evaluate"]
    right, compared = module.align, []

    def noted(record: QueryRecord, *rest: Any) -> Alignment:
        compared.append(record.query_id)
        aligned: Alignment = right(record, *rest)
        return aligned

    monkeypatch.setattr(module, "align", noted)
    twins = [replace(row, query_id=f"{row.query_id}-{agent}", agent_id=agent) for agent in ("a", "b") for row in ROWS]

    evaluations = list(evaluate_many(twins))

    assert compared == [f"{row.query_id}-a" for row in ROWS]
    assert [e.query_id for e in evaluations] == [row.query_id for row in twins]
    assert evaluations[len(ROWS) :] == [replace(e, query_id=f"{e.query_id[:-1]}b") for e in evaluations[: len(ROWS)]]


def test_the_same_texts_are_compared_anew_under_other_rules_and_another_catalogue() -> None:
    row = QueryRecord(
        query_id="q",
        app_id="shop",
        user_question="How many orders?",
        generated_sql="SELECT COUNT(*) FROM orders WHERE tenant_id = 7",
    )
    lenient = Rules(benign_filters=[BenignFilter(column="tenant_id", op="=", value="*")])
    others = [replace(row, query_id=f"o{n}", user_question=f"How many orders of day {n}?") for n in range(20)]
    spec = extract_sql("SELECT COUNT(*) FROM sales")
    catalogue = catalogue_of(mine(((other, spec) for other in others), dt.date(2026, 3, 2)))

    plain, allowed, witnessed = evaluate(row), evaluate(row, lenient), evaluate(row, catalogue=catalogue)

    alignments = [e.alignment for e in (plain, allowed, witnessed) if e.alignment]
    assert [len(alignment.benign) for alignment in alignments] == [0, 1, 0]
    kinds = [{f.kind for f in alignment.findings} for alignment in alignments]
    assert kinds[2] - kinds[0] == {"log_table_unseen"}
