"""The views for BI, against numbers worked out by hand."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest

from stef_core.aggregates import agent_daily
from tasks.warehouse import Warehouse

FIRST = dt.date(2026, 3, 1)
Rows = Callable[..., pl.DataFrame]
Publish = Callable[..., None]


@pytest.fixture
def publish(warehouse: Warehouse, rows: Rows) -> Publish:
    """``publish(3, query_scores=[…], query_findings=[…])``: rows of the third day."""

    def put(day_of_march: int, **tables: Sequence[dict[str, Any]]) -> None:
        day = FIRST + dt.timedelta(days=day_of_march - 1)
        run_id = f"run-{day_of_march}"
        frames = {table: rows(table, *given, run_id=run_id, day=day) for table, given in tables.items()}
        warehouse.stage(run_id, day, frames)
        warehouse.publish(run_id, day, list(frames))

    return put


def daily(scored: int, mean_phi: float | None, rows: int | None = None, **columns: Any) -> dict[str, Any]:
    total = rows or scored
    return {"rows": total, "scored": scored, "coverage": scored / total, "mean_phi": mean_phi} | columns


def on(frame: pl.DataFrame, day_of_march: int, agent_id: str = "ann") -> dict[str, Any]:
    day = FIRST + dt.timedelta(days=day_of_march - 1)
    return frame.filter(dt=day, agent_id=agent_id).row(0, named=True)


# --- v_agent_trend --------------------------------------------------------------------------------------------------


def test_the_week_is_weighted_by_scored_rows_over_calendar_days(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, agent_daily=[daily(10, 80.0)])
    publish(3, agent_daily=[daily(30, 40.0)])
    publish(7, agent_daily=[daily(10, 100.0)])
    publish(8, agent_daily=[daily(20, 70.0)])

    trend = warehouse.read("v_agent_trend")

    assert on(trend, 3)["mean_phi_7d"] == 50.0  # (10*80 + 30*40) / 40
    assert on(trend, 7)["mean_phi_7d"] == 60.0  # (800 + 1200 + 1000) / 50
    assert on(trend, 8)["mean_phi_7d"] == 60.0  # day 1 has left: (1200 + 1000 + 1400) / 60
    assert [on(trend, day)["scored_7d"] for day in (1, 3, 7, 8)] == [10, 40, 50, 60]


def test_the_change_is_against_the_seven_days_before_and_null_without_them(warehouse: Warehouse, publish: Publish) -> None:
    for day, phi in ((1, 90.0), (2, 60.0), (8, 50.0), (9, 40.0), (20, 70.0), (30, 10.0)):
        publish(day, agent_daily=[daily(1, phi)])

    trend = warehouse.read("v_agent_trend")

    assert on(trend, 2)["change_7d"] is None
    assert on(trend, 8)["change_7d"] == 55.0 - 90.0  # days 2-8 against day 1
    assert on(trend, 9)["change_7d"] == 45.0 - 75.0  # days 3-9 against days 1-2
    assert on(trend, 20)["change_7d"] == 70.0 - 45.0  # days 14-20 against days 8 and 9, which lie in days 7-13
    assert on(trend, 30)["change_7d"] == 10.0 - 70.0


def test_versions_of_a_day_are_one_agent_and_applications_are_not_counted_twice(warehouse: Warehouse, publish: Publish) -> None:
    publish(
        1,
        agent_daily=[
            daily(3, 100.0, 4, agent_version="v1", mean_p_right=0.8),
            daily(1, 0.0, 1, agent_version="v2", mean_p_right=0.4),
            daily(3, 100.0, 4, agent_version="v1", app_id="shop"),
            daily(9, 10.0, agent_id="bob"),
        ],
    )

    ann = on(warehouse.read("v_agent_trend"), 1)

    assert (ann["app_id"], ann["rows"], ann["scored"], ann["coverage"]) == ("*", 5, 4, 0.8)
    assert (ann["mean_phi"], ann["mean_p_right"]) == (75.0, pytest.approx(0.7))


def test_a_day_without_scores_has_no_mean_and_does_not_pull_the_week(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, agent_daily=[daily(2, 80.0)])
    publish(2, agent_daily=[daily(0, None, 5)])
    publish(9, agent_daily=[daily(1, 50.0)])
    publish(16, agent_daily=[daily(0, None, 5)])

    trend = warehouse.read("v_agent_trend")

    assert (on(trend, 2)["coverage"], on(trend, 2)["mean_phi"], on(trend, 2)["mean_phi_7d"]) == (0.0, None, 80.0)
    assert on(trend, 9)["change_7d"] == 50.0 - 80.0  # days 2-8: nothing scored
    assert on(trend, 16)["change_7d"] is None


# --- v_agent_compare ------------------------------------------------------------------------------------------------


def score(query_id: str, phi: float | None, version: str | None = "v1", **columns: Any) -> dict[str, Any]:
    status = {"status": "unscored", "reason": "judge_unavailable"} if phi is None else {"status": "scored", "phi": phi}
    return {"query_id": query_id, "agent_version": version} | status | columns


def test_a_version_is_compared_with_the_one_that_appeared_before_it(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, query_scores=[score("a", 100, "v9", p_right=0.9), score("b", 50, "v9", p_right=0.5), score("c", None, "v9")])
    publish(
        2,
        query_scores=[score("a", 80, "v9", p_right=0.7), score("b", 40, "v10", p_right=0.3), score("c", 0, "v10", p_right=0.1)],
    )
    publish(3, query_scores=[score("a", 80, "v10", p_right=0.8), score("b", 10, None, agent_id="bob")])

    compare = warehouse.read("v_agent_compare")

    assert compare.select("agent_id", "agent_version").rows() == [("ann", "v9"), ("ann", "v10"), ("bob", None)]
    old, new, bob = compare.iter_rows(named=True)
    assert (old["rows"], old["scored"], old["coverage"]) == (4, 3, 0.75)
    assert (old["mean_phi"], old["median_phi"], old["p90_phi"]) == (pytest.approx(230 / 3), 80.0, pytest.approx(96.0))
    assert (old["first_day"], old["last_day"]) == (FIRST, FIRST + dt.timedelta(days=1))
    assert (old["previous_version"], old["mean_phi_change"], old["mean_p_right"]) == (None, None, pytest.approx(0.7))
    assert (new["previous_version"], new["mean_phi_change"]) == ("v9", pytest.approx(40 - 230 / 3))
    assert new["mean_p_right_change"] == pytest.approx(0.4 - 0.7)
    assert (bob["rows"], bob["mean_phi"], bob["previous_version"]) == (1, 10.0, None)


def test_a_version_of_which_nothing_was_scored_has_rows_and_no_mean(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, query_scores=[score("a", None)])

    row = warehouse.read("v_agent_compare").row(0, named=True)

    assert (row["rows"], row["scored"], row["coverage"]) == (1, 0, 0.0)
    assert (row["mean_phi"], row["median_phi"], row["p90_phi"]) == (None, None, None)


# --- v_worst_queries ------------------------------------------------------------------------------------------------


def test_the_worst_have_the_lowest_score_then_the_lowest_probability(warehouse: Warehouse, publish: Publish) -> None:
    publish(
        1,
        query_scores=[
            score("a", 50, p_right=0.1),
            score("b", 0, p_right=0.4),
            score("c", 0, p_right=0.2),
            score("d", 0),
            score("e", None),
            score("f", 0, p_right=0.3, agent_id="bob"),
        ],
    )

    worst = warehouse.read("v_worst_queries")

    assert worst["query_id"].to_list() == ["c", "f", "b", "d", "a"]
    assert worst["worst_rank"].to_list() == [1, 2, 3, 4, 5]
    assert worst["worst_rank_of_agent"].to_list() == [1, 1, 2, 3, 4]


def test_a_worst_query_carries_its_three_weightiest_findings(warehouse: Warehouse, publish: Publish) -> None:
    def finding(ordinal: int, severity: str, code: str) -> dict[str, Any]:
        return {"query_id": "a", "ordinal": ordinal, "severity": severity, "code": code, "message": f"{code} {ordinal}"}

    publish(
        1,
        query_scores=[score("a", 0, user_question="how many?", generated_sql="SELECT 1", verdict="incorrect"), score("b", 10)],
        query_findings=[
            finding(0, "minor", "missing_order"),
            finding(1, "info", "extra_output"),
            finding(2, "critical", "missing_filter"),
            finding(3, "major", "extra_filter"),
        ],
    )
    publish(2, query_scores=[score("a", 100)])

    first, second, same_id_next_day = warehouse.read("v_worst_queries").iter_rows(named=True)

    assert (first["user_question"], first["generated_sql"], first["verdict"]) == ("how many?", "SELECT 1", "incorrect")
    assert first["findings"] == 4
    assert first["finding_codes"] == "missing_filter, extra_filter, missing_order"
    assert first["finding_messages"] == "missing_filter 2; extra_filter 3; missing_order 0"
    assert (second["findings"], second["finding_codes"]) == (0, None)
    assert same_id_next_day["findings"] == 0


# --- v_finding_pareto -----------------------------------------------------------------------------------------------


def test_the_pareto_counts_occurrences_and_queries_of_each_agent_and_of_all(warehouse: Warehouse, publish: Publish) -> None:
    def finding(query_id: str, ordinal: int, code: str, agent_id: str = "ann") -> dict[str, Any]:
        columns = {"dimension": "filters", "severity": "critical", "stage": "generation"}
        return {"query_id": query_id, "ordinal": ordinal, "code": code, "agent_id": agent_id} | columns

    publish(
        1,
        query_scores=[
            score("a", 0),
            score("b", 100),
            score("u", None),
            score("x", 0, agent_id="bob"),
            score("y", 40, agent_id="bob"),
        ],
        query_findings=[
            finding("a", 0, "missing_filter"),
            finding("a", 1, "missing_filter"),
            finding("b", 0, "extra_output"),
            finding("u", 0, "judge_unavailable"),
            finding("x", 0, "missing_filter", "bob"),
        ],
    )
    publish(2, query_scores=[score("a", 0), score("b", 0)], query_findings=[finding("a", 0, "extra_output")])

    pareto = warehouse.read(
        "v_finding_pareto", columns=["agent_id", "code", "occurrences", "queries", "share", "cumulative_share"]
    )

    assert pareto.rows() == [
        ("*", "missing_filter", 3, 2, 2 / 6, 0.6),
        ("*", "extra_output", 2, 2, 2 / 6, 1.0),
        ("ann", "extra_output", 2, 2, 2 / 4, 0.5),
        ("ann", "missing_filter", 2, 1, 1 / 4, 1.0),
        ("bob", "missing_filter", 1, 1, 1 / 2, 1.0),
    ]


def test_a_code_found_at_two_stages_has_two_rows(warehouse: Warehouse, publish: Publish) -> None:
    codes = [
        {"query_id": "a", "ordinal": n, "stage": stage} for n, stage in enumerate(("generation", "enrichment", "generation"))
    ]
    publish(1, query_scores=[score("a", 0)], query_findings=codes)

    pareto = warehouse.read("v_finding_pareto").filter(agent_id="*")

    assert pareto.select("stage", "occurrences", "pareto_rank").rows() == [("generation", 2, 1), ("enrichment", 1, 2)]
    assert pareto["cumulative_share"].to_list() == [pytest.approx(2 / 3), 1.0]


def test_findings_without_messages_leave_none_to_tell(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, query_scores=[score("a", 0)], query_findings=[{"query_id": "a", "ordinal": 0, "message": None}])

    row = warehouse.read("v_worst_queries").row(0, named=True)

    assert (row["findings"], row["finding_codes"], row["finding_messages"]) == (1, "missing_filter", None)


# --- v_agent_calendar -----------------------------------------------------------------------------------------------


def test_every_agent_has_every_day_from_the_first_to_the_last(warehouse: Warehouse, publish: Publish) -> None:
    publish(1, agent_daily=[daily(2, 80.0, 4, mean_p_right=0.5)])
    publish(3, agent_daily=[daily(1, 50.0, agent_id="bob"), daily(1, 50.0, agent_id="bob", app_id="shop")])
    publish(4, agent_daily=[daily(0, None, 5)])

    calendar = warehouse.read("v_agent_calendar")

    assert calendar.height == 2 * 4
    assert on(calendar, 1) == {
        "dt": FIRST,
        "agent_id": "ann",
        "rows": 4,
        "scored": 2,
        "coverage": 0.5,
        "mean_phi": 80.0,
        "mean_p_right": 0.5,
        "is_silent": False,
        "is_published": True,
        "last_heard": FIRST,
    }
    silent, unpublished, unscored = on(calendar, 3), on(calendar, 2), on(calendar, 4)
    assert (silent["rows"], silent["scored"], silent["coverage"], silent["mean_phi"]) == (0, 0, None, None)
    assert (silent["is_silent"], silent["is_published"], silent["last_heard"]) == (True, True, FIRST)
    assert (unpublished["is_silent"], unpublished["is_published"]) == (True, False)
    assert (unscored["is_silent"], unscored["coverage"], unscored["mean_phi"]) == (False, 0.0, None)
    assert [on(calendar, day, "bob")["last_heard"] for day in (2, 3)] == [None, FIRST + dt.timedelta(days=2)]
    assert on(calendar, 3, "bob")["rows"] == 1


def test_a_warehouse_without_days_has_an_empty_calendar(warehouse: Warehouse) -> None:
    assert warehouse.read("v_agent_calendar").is_empty()


# --- v_agent_shares -------------------------------------------------------------------------------------------------


def test_shares_as_rows_are_those_of_the_aggregates(warehouse: Warehouse, publish: Publish, rows: Rows) -> None:
    given = [
        score("a", 95, band="excellent", verdict="correct", filter_status="fully_applied", enrichment_status="absent"),
        score("b", 10, band="poor", verdict="incorrect", filter_status="not_applied", enrichment_status=None),
        score("c", 20, band="poor", verdict="incorrect", filter_status="not_applied", enrichment_status="absent"),
        score("d", None),
        score("e", 80, "v2", band="good", verdict="correct", filter_status="fully_applied", enrichment_status="absent"),
    ]
    publish(1, query_scores=given)

    shares = warehouse.read("v_agent_shares")

    frame = rows("query_scores", *given, day=FIRST)
    aggregates = agent_daily(frame, rows("query_findings").clear())
    for row in aggregates.filter(app_id="*").iter_rows(named=True):
        told = json.loads(row["shares"])
        for kind in ("band", "verdict", "filter_status", "enrichment", "reason"):
            found = shares.filter(agent_version=row["agent_version"], kind=kind)
            as_told = {value: share for value, share in told[kind].items() if share}
            assert {
                r["value"]: round(r["share"], 6) for r in found.to_dicts() if (kind, r["value"]) != ("reason", "scored")
            } == as_told
    reasons = shares.filter(agent_version="v1", kind="reason").select("value", "rows", "of_rows").rows()
    assert reasons == [("judge_unavailable", 1, 4), ("scored", 3, 4)]


# --- v_agent_cost ---------------------------------------------------------------------------------------------------


def test_cost_counts_rows_of_unknown_price_and_divides_by_priced_scores(warehouse: Warehouse, publish: Publish) -> None:
    paid: dict[str, Any] = {"judge": "openai", "model": "m", "llm_calls": 2, "tokens_in": 100, "tokens_out": 10}
    publish(
        1,
        query_scores=[
            score("a", 50, **paid, cost=0.3),
            score("b", 50, **paid, cost=0.1),
            score("c", 50, **paid),
            score("d", None, **paid, cost=0.2),
            score("e", 50, judge="symbolic", model="v1"),
        ],
    )

    asked, symbolic = warehouse.read("v_agent_cost").iter_rows(named=True)

    assert (asked["model"], asked["rows"], asked["scored"], asked["priced"]) == ("m", 4, 3, 3)
    assert (asked["llm_calls"], asked["tokens_in"], asked["tokens_out"]) == (8, 400, 40)
    assert (asked["cost"], asked["cost_per_scored"]) == (pytest.approx(0.6), pytest.approx(0.3))
    assert (symbolic["llm_calls"], symbolic["cost"], symbolic["cost_per_scored"]) == (0, None, None)


# --- v_gate_history -------------------------------------------------------------------------------------------------


def test_each_result_of_a_gate_is_a_row_with_its_weightiest_failure(warehouse: Warehouse) -> None:
    failure = {"severity": "critical", "message": "agent ann: coverage is 0.5, not 0.95"}
    gates = [
        {"gate": "query_log", "passed": True, "expectations": 16, "failures": []},
        {"gate": "scores", "passed": False, "expectations": 3, "failures": [failure, failure | {"message": "second"}]},
    ]
    warehouse.record_run({"run_id": "r1", "dt": FIRST, "outcome": "gate_failed", "gates": json.dumps(gates)})
    warehouse.record_run({"run_id": "r2", "outcome": "failed", "gates": "[]"})
    warehouse.record_run({"run_id": "r3", "outcome": "failed"})

    history = warehouse.read("v_gate_history", columns=["run_id", "place", "gate", "passed", "failures", "first_failure"])

    assert history.rows() == [
        ("r1", 1, "query_log", True, 0, None),
        ("r1", 2, "scores", False, 2, "agent ann: coverage is 0.5, not 0.95"),
    ]
