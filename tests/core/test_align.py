"""Alignment against cases that an SQL expert can read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stef_core import Evaluation, QueryRecord, Rules, evaluate
from stef_core.wording import column_text, condition_text

CASES = json.loads((Path(__file__).parents[1] / "golden" / "align.json").read_text(encoding="utf-8"))
# departures that speak against an answer, and so may stand in no case that expects none
WEIGHTY = ("critical", "major")


def judged(case: dict[str, Any]) -> Evaluation:
    record = QueryRecord(
        query_id=case["id"],
        user_question=case["question"],
        enriched_question=case.get("enriched"),
        generated_sql=case["sql"],
        dialect=case.get("dialect", "postgres"),
    )
    return evaluate(record, Rules(**case.get("rules", {})))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_alignment_matches_golden_case(case: dict[str, Any]) -> None:
    expect = case["expect"]

    evaluation = judged(case)

    alignment = evaluation.alignment
    assert alignment is not None
    for name in ("filter_status", "group_by_required", "order_by_tolerated", "limit_is_safety", "lenient"):
        if name in expect:
            assert getattr(alignment, name) == expect[name], name
    for name in ("missing", "extra", "benign"):
        if name in expect:
            assert sorted(condition_text(c) for c in getattr(alignment, name)) == sorted(expect[name]), name
    if "benign_group_by" in expect:
        assert [column_text(c) for c in alignment.benign_group_by] == expect["benign_group_by"]
    codes = {f.code for f in alignment.findings if f.severity in WEIGHTY}
    if "codes" in expect:
        assert set(expect["codes"]) <= codes
        assert bool(codes) == bool(expect["codes"]), [f.message for f in alignment.findings]
    for code, stage in expect.get("stages", {}).items():
        assert {f.stage for f in alignment.findings if f.code == code} == {stage}
    if expect.get("fatal"):
        assert evaluation.verdict is not None
        assert evaluation.verdict.grade in ("incorrect", "potentially_incorrect")


def conjuncts() -> st.SearchStrategy[list[str]]:
    parts = [
        "country = 'Norway'",
        "status = 'delivered'",
        "weight > 20",
        "carrier IN ('Posta', 'Flyt')",
        "sent_on >= '2023-01-01'",
        "sent_on < '2024-01-01'",
        "tenant_id = 4",
        "(fragile = 1 OR insured = 1)",
    ]
    return st.lists(st.sampled_from(parts), min_size=1, max_size=6, unique=True)


@given(parts=conjuncts(), data=st.data())
def test_the_order_of_conjuncts_changes_nothing(parts: list[str], data: st.DataObject) -> None:
    question = "How many delivered parcels with weight over 20 went to Norway in 2023?"
    shuffled = data.draw(st.permutations(parts))

    first, second = (
        evaluate(
            QueryRecord(
                query_id="q", user_question=question, generated_sql=f"SELECT COUNT(*) FROM parcels WHERE {' AND '.join(order)}"
            )
        )
        for order in (parts, shuffled)
    )

    assert first.alignment is not None
    assert second.alignment is not None
    assert first.alignment.filter_status == second.alignment.filter_status
    assert {condition_text(c) for c in first.alignment.extra} == {condition_text(c) for c in second.alignment.extra}
    assert first.score == second.score


@pytest.mark.parametrize(
    "reformulated",
    [
        "Number of bookings with city = Lisbon and status = cancelled in the year 2025",
        "How many bookings from Lisbon were cancelled in 2025?",
        "Count bookings where city is Lisbon, status is cancelled, year 2025",
        None,
    ],
)
def test_a_reformulation_in_one_clause_hides_no_missing_filter(reformulated: str | None) -> None:
    sql = "SELECT COUNT(*) FROM bookings WHERE status = 'cancelled' AND booked_on >= '2025-01-01' AND booked_on < '2026-01-01'"
    record = QueryRecord(
        query_id="q",
        user_question="How many bookings from Lisbon were cancelled in 2025?",
        enriched_question=reformulated,
        generated_sql=sql,
    )

    evaluation = evaluate(record)

    assert evaluation.alignment is not None
    assert evaluation.alignment.filter_status == "partially_applied"
    assert [f.question_part for f in evaluation.findings if f.code == "missing_filter"] != []


def test_a_reformulation_still_says_which_stored_value_a_word_means() -> None:
    record = QueryRecord(
        query_id="q",
        user_question="How many bookings have the status dropped?",
        enriched_question="Count bookings; dropped refers to status = 'cancelled'",
        generated_sql="SELECT COUNT(*) FROM bookings WHERE status = 'cancelled'",
    )

    evaluation = evaluate(record)

    assert evaluation.alignment is not None
    assert evaluation.alignment.filter_status == "fully_applied"
