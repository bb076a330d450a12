"""When a day is given up because nobody answered, as opposed to answered badly."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stef_core.errors import TransientError
from stef_core.frames import QUERY_FINDINGS, frame_of
from stef_core.llm import Usage
from stef_core.rows import JUDGED
from tasks.batches import Asked, Extracted, Judged, judged_of
from tasks.query_log import PARTITION_LOG
from tasks.score import Scored, score, unknown_applications
from tasks.spool import Spool

DAY, NOW = dt.date(2026, 3, 2), dt.datetime(2026, 3, 3, tzinfo=dt.UTC)
COSTS = ("tokens_in", "tokens_out", "calls", "cost")
GRADED = {"status": "scored", "verdict": "correct", "confidence": 0.9, "judge": "openai"}
BY_RULE = {"status": "scored", "verdict": "incorrect", "confidence": 1.0, "judge": "rule"}


def unscored(reason: str) -> dict[str, Any]:
    return {"status": "unscored", "reason": reason, "judge": "openai"}


def batch_of(rows: Sequence[dict[str, Any]], ids: Sequence[str], judge: str = "openai") -> Judged:
    keys = [{"query_id": i} for i in ids]
    asked = {f"judge_{name}": 0 for name in COSTS}
    judged = frame_of([dict.fromkeys(JUDGED) | asked | row | key for row, key in zip(rows, keys, strict=True)], JUDGED)
    asked_of = Asked(judge=judge, model="m", prompt_version="judge:2")
    return judged_of(0, judged, frame_of([], QUERY_FINDINGS), asked_of)


EXTRACTED = Extracted(number=0, rows=0, usage=Usage(), prompt_version="question:1")


def score_rows(*rows: dict[str, Any], judge: str = "openai", rows_in: int | None = None) -> Scored:
    batch = batch_of(rows, [f"q{i}" for i in range(len(rows))], judge)
    return score(Spool(Path()), "c", [EXTRACTED], [batch], len(rows) if rows_in is None else rows_in, "r", NOW)


def test_a_day_that_nobody_answered_for_is_to_be_tried_again() -> None:
    with pytest.raises(TransientError, match="answered for none of 2 rows"):
        score_rows(
            unscored("judge_unavailable"), unscored("question_reader_unavailable"), BY_RULE, unscored("question_missing")
        )


@pytest.mark.parametrize("other", [GRADED, unscored("judge_refused"), unscored("judge_invalid")])
def test_one_answer_of_any_kind_leaves_the_rest_to_the_gate(other: dict[str, Any]) -> None:
    scored = score_rows(other, unscored("judge_unavailable"))

    assert scored.facts["rows_scored"] == int(other is GRADED)
    assert scored.facts["rows_scored"] + scored.facts["rows_unscored"] == 2


@pytest.mark.parametrize("rows", [[BY_RULE], [unscored("question_missing")], [unscored("sql_unparseable"), BY_RULE]])
def test_a_day_with_nothing_to_ask_is_no_outage(rows: list[dict[str, Any]]) -> None:
    assert score_rows(*rows).facts["rows_scored"] == rows.count(BY_RULE)


def test_prompts_of_reader_and_judge_both_stand_in_the_run() -> None:
    assert score_rows(GRADED).facts["prompt_version"] == "question:1+judge:2"


def test_applications_with_rules_and_rows_without_application_are_not_reported() -> None:
    log = frame_of(
        [dict.fromkeys(PARTITION_LOG) | {"app_id": app} for app in ("shop", None, "default", "crm", "crm")], PARTITION_LOG
    )

    assert [note.rpartition(": ")[2] for note in unknown_applications(log.lazy(), {"shop": None})] == ["crm"]  # type: ignore[dict-item]
