"""A day scored by joining frames equals the same rows scored one by one."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stef_core.evaluate import conclude_many, evaluate_many, examine_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.frames import OPTIONAL_LOG, QUERY_LOG, QUERY_SCORES, frame_of, records_of
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import Alignment, Evidence, Filter, Verdict
from stef_core.rows import examined_frame, findings_frame, judged_frame, score_frame
from stef_core.rules import Rules
from stef_core.scoring import FILTER_POINTS, VERDICT_POINTS, compose, compose_frame

DAY = dt.date(2026, 3, 2)
NOW = dt.datetime(2026, 3, 3, 6, tzinfo=dt.UTC)
LOG = pl.Schema({**QUERY_LOG, **OPTIONAL_LOG, "extra": pl.String()})
ROWS: tuple[tuple[str | None, str | None], ...] = (
    ("How many orders came in 2024?", "SELECT COUNT(*) FROM orders WHERE year = 2024"),
    ("How many orders came in 2024?", "SELECT COUNT(*) FROM orders WHERE year = 2023"),
    ("How many orders came in 2024?", "SELECT COUNT(*) FROM orders"),
    ("List the names of all customers", "SELECT name FROM customers WHERE active = 1"),
    ("How many orders are there?", None),
    ("How many orders are there?", "DELETE FROM orders"),
    (None, "SELECT 1"),
    ("Total amount by country", "SELECT country, SUM(amount) FROM orders GROUP BY country"),
    ("How many orders are there?", "SELECT FROM WHERE ((("),
)


class Moody:
    """A judge that gives every grade, and now and then none."""

    name, model, prompt_version = "openai", "moody-1", "judge:1"

    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        grades: tuple[Any, ...] = (*VERDICT_POINTS, None)
        return [
            Verdict(
                grade=(grade := grades[i % len(grades)]),
                confidence=(0.9, 0.7, 0.5)[i % 3] if grade else None,
                judge=self.name,
                model=self.model,
                reasons=(f"because of {i}",),
                reason=None if grade else "judge_refused",
                p_right=0.5,
                tokens_in=i,
                calls=1,
                cost=0.25,
            )
            for i, _ in enumerate(evidence)
        ]


def log_of(rows: Sequence[tuple[str | None, str | None]]) -> pl.DataFrame:
    base = dict.fromkeys(LOG) | {"agent_id": "clerk", "asked_at": NOW}
    return frame_of(
        [base | {"query_id": f"q{i:02}", "user_question": q, "generated_sql": s} for i, (q, s) in enumerate(rows)], LOG
    )


def scored(log: pl.DataFrame, judge: Any, *, reverse: bool = False) -> pl.DataFrame:
    """The frame path: every step in frames, joined at the end, in another order if asked."""
    records, reader = records_of(log), OfflineReader()
    rules = [Rules()] * len(records)
    examined = examine_many(records, rules, reader)
    evaluations = conclude_many(examined, rules, judge)
    left = examined_frame(examined, records, rules)
    right = judged_frame(evaluations, records, rules, judge=judge.name, model=judge.model)
    if reverse:
        left, right = left.reverse(), right.reverse().sample(fraction=1.0, shuffle=True, seed=7)
    return score_frame(log, left, right, day=DAY, run_id="r", scored_at=NOW, prompt_version=None)


@pytest.mark.parametrize("judge", [SymbolicJudge(), Moody()], ids=["symbolic", "moody"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_day_in_frames_equals_its_rows_one_by_one(judge: Any, reverse: bool) -> None:
    log = log_of(ROWS * 3)

    frame = scored(log, judge, reverse=reverse)

    assert frame.schema == QUERY_SCORES
    for row, one in zip(frame.iter_rows(named=True), evaluate_many(records_of(log), judge=judge), strict=True):
        score = one.score
        assert (row["query_id"], row["status"], row["reason"]) == (one.query_id, one.status, one.reason)
        assert row["phi"] == (score.phi if score else None)
        assert row["band"] == (score.band if score else None)
        assert row["base"] == (score.base if score else None)
        assert row["sigma_filters"] == (score.filters if score else None)
        assert row["sigma_verdict"] == (score.verdict if score else None)
        assert row["delta_lenient"] == (score.lenient if score else None)
        assert row["gamma_factor"] == (score.gamma_factor if score else None)
        assert row["p_right"] == (score.p_right if score else None)
        assert row["filter_status"] == (one.alignment.filter_status if one.alignment else None)
        assert row["enrichment_status"] == (one.enrichment.status if one.enrichment else None)
        explained = one.to_json()
        for name in ("sql_spec", "question_spec", "alignment"):
            assert (json.loads(row[name]) if row[name] else None) == json.loads(json.dumps(explained[name]))


def test_every_row_comes_out_scored_or_unscored() -> None:
    frame = scored(log_of(ROWS), Moody())

    assert frame.height == len(ROWS)
    assert frame.filter((pl.col("status") == "scored") == pl.col("phi").is_null()).is_empty()
    assert frame.filter((pl.col("status") == "unscored") == pl.col("reason").is_null()).is_empty()
    assert set(frame["status"]) == {"scored", "unscored"}


def test_tokens_calls_and_cost_are_those_of_reading_and_judging() -> None:
    frame = scored(log_of(ROWS[:3]), Moody())

    assert (frame["llm_calls"].sum(), frame["tokens_in"].sum(), frame["cost"].sum()) == (3, 3, 0.75)


def test_row_lost_on_the_way_is_refused() -> None:
    log = log_of(ROWS)
    records = records_of(log)[:-1]
    rules = [Rules()] * len(records)
    examined = examine_many(records, rules, OfflineReader())
    left = examined_frame(examined, records, rules)
    right = judged_frame(conclude_many(examined, rules, Moody()), records, rules, judge="j", model=None)

    with pytest.raises(ValueError, match="9 rows went in and 8 came out"):
        score_frame(log, left, right, day=DAY, run_id="r", scored_at=NOW, prompt_version=None)


def test_row_doubled_on_the_way_is_refused() -> None:
    log = log_of(ROWS[:1])
    records, rules = records_of(log), [Rules()]
    examined = examine_many(records, rules, OfflineReader())
    left = examined_frame(examined, records, rules)
    right = judged_frame(conclude_many(examined, rules, Moody()), records, rules, judge="j", model=None)

    with pytest.raises(pl.exceptions.ComputeError, match="1:1"):
        score_frame(log, pl.concat([left, left]), right, day=DAY, run_id="r", scored_at=NOW, prompt_version=None)


def test_findings_are_numbered_and_carry_whom_they_are_about() -> None:
    log = log_of(ROWS)
    records = records_of(log)
    rules = [Rules()] * len(records)
    evaluations = conclude_many(examine_many(records, rules, OfflineReader()), rules, Moody())

    frame = findings_frame(evaluations, records, rules, day=DAY, run_id="r")

    assert frame.height == sum(len(e.findings) for e in evaluations) > 0
    assert frame.select("query_id", "ordinal").is_duplicated().sum() == 0
    assert set(frame.filter(pl.col("query_id") == "q05")["code"]) == {"not_a_query"}
    assert set(frame["agent_id"]) == {"clerk"}


EXTRA = Filter(column="deleted", op="=", value=False)


@given(
    status=st.sampled_from(sorted(FILTER_POINTS)),
    benign=st.booleans(),
    grade=st.sampled_from(sorted(VERDICT_POINTS)),
    confidence=st.floats(0, 1),
)
def test_phi_of_a_frame_is_phi_of_its_rows(status: Any, benign: bool, grade: Any, confidence: float) -> None:
    alignment = Alignment(filter_status=status, extra=(EXTRA,), benign=(EXTRA,) if benign else ())
    verdict = Verdict(grade=grade, confidence=confidence)
    row = {
        "status": "scored",
        "filter_status": status,
        "delta_lenient": alignment.lenient,
        "verdict": grade,
        "confidence": confidence,
    }

    (framed,) = compose_frame(pl.DataFrame([row])).to_dicts()

    score = compose(alignment, verdict)
    assert (framed["phi"], framed["band"], framed["base"]) == (score.phi, score.band, score.base)
    assert (framed["sigma_filters"], framed["sigma_verdict"]) == (score.filters, score.verdict)
    assert framed["gamma_factor"] == score.gamma_factor


@pytest.mark.parametrize("confidence", [0.85, 0.65, 0.8499999999999999, 0.6499999999999999, 0.0, 1.0])
def test_edges_of_confidence_fall_alike_in_frames_and_rows(confidence: float) -> None:
    row = {
        "status": "scored",
        "filter_status": "fully_applied",
        "delta_lenient": 0,
        "verdict": "correct",
        "confidence": confidence,
    }

    framed = compose_frame(pl.DataFrame([row]))["gamma_factor"][0]

    alignment = Alignment(filter_status="fully_applied")
    assert framed == compose(alignment, Verdict(grade="correct", confidence=confidence)).gamma_factor
