"""Each expectation with a row that breaks it, and the sentence a person reads."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest

from stef_core.errors import GateError
from stef_core.frames import AGENT_DAILY, QUERY_FINDINGS, QUERY_SCORES, frame_of
from tasks import expectations
from tasks.gates import Failure, GateResult, agent_coverage, check, check_input, check_output, conservation, refuse
from tasks.query_log import PARTITION_LOG, Partition

DAY = dt.date(2026, 3, 2)
NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)


def log(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"agent_id": "clerk", "asked_at": NOON, "user_question": "How many?", "generated_sql": "SELECT 1"}
    return frame_of(
        [dict.fromkeys(PARTITION_LOG) | base | {"query_id": f"q{i}"} | row for i, row in enumerate(rows)], PARTITION_LOG
    )


def partition(frame: pl.DataFrame) -> Partition:
    return Partition(day=DAY, frame=frame, files=(), rows_read=frame.height, duplicates=(), out_of_day=0)


def scores(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {
        "dt": DAY, "agent_id": "clerk", "app_id": "shop", "status": "scored", "parse_status": "ok", "verdict": "correct",
        "confidence": 0.9, "filter_status": "fully_applied", "enrichment_status": "absent", "sigma_filters": 5,
        "sigma_verdict": 5, "delta_lenient": 0, "base": 10, "gamma_factor": 1.0, "phi": 100.0, "band": "excellent",
        "p_right": 0.9,
    }  # fmt: skip
    return frame_of(
        [dict.fromkeys(QUERY_SCORES) | base | {"query_id": f"q{i}"} | row for i, row in enumerate(rows)], QUERY_SCORES
    )


UNSCORED = dict.fromkeys(expectations.SCORE_COLUMNS) | {"status": "unscored", "reason": "sql_unparseable", "p_right": None}


def findings(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {
        "dt": DAY,
        "query_id": "q0",
        "code": "extra_filter",
        "severity": "major",
        "stage": "generation",
        "message": "An extra.",
    }
    return frame_of([dict.fromkeys(QUERY_FINDINGS) | base | {"ordinal": i} | row for i, row in enumerate(rows)], QUERY_FINDINGS)


def agent_daily(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {
        "dt": DAY, "agent_id": "clerk", "agent_version": "v1", "app_id": "*", "rows": 100, "scored": 100, "coverage": 1.0,
        "mean_phi": 90.0, "median_phi": 90.0, "p90_phi": 100.0, "mean_p_right": 0.8,
    }  # fmt: skip
    return frame_of([dict.fromkeys(AGENT_DAILY) | base | row for row in rows], AGENT_DAILY)


def only(result: GateResult) -> Failure:
    assert len(result.failures) == 1, [f.message for f in result.failures]
    return result.failures[0]


def test_a_sound_day_passes_every_gate() -> None:
    frame = log({}, {})

    results = [
        *check_input(partition(frame)),
        *check_output(frame, scores({}, UNSCORED), findings({}), agent_daily({}), day=DAY, coverage_min=0.95),
    ]

    assert [r.failures for r in results] == [()] * 6
    assert all(r.passed for r in results)
    refuse(results)


def test_empty_log_fails_on_the_row_count() -> None:
    (result,) = check_input(partition(log()))

    assert not result.passed
    assert "gate query_log: row count on 2026-03-02 is 0, required at least 1 (ExpectTableRowCountToBeBetween)" in {
        f.message for f in result.failures
    }


@pytest.mark.parametrize("column", ["query_id", "agent_id", "asked_at"])
def test_null_key_fails_the_input_gate(column: str) -> None:
    (result,) = check_input(partition(log({}, {column: None})))

    assert not result.passed
    assert (only(result).expectation, only(result).column) == ("ExpectColumnValuesToNotBeNull", column)


def test_repeated_query_id_fails_the_input_gate() -> None:
    (result,) = check_input(partition(log({"query_id": "a"}, {"query_id": "a"})))

    assert (only(result).expectation, only(result).column) == ("ExpectColumnValuesToBeUnique", "query_id")
    assert "query_id of agent clerk on 2026-03-02 is a in 2 rows" in only(result).message


@pytest.mark.parametrize("moment", [NOON + dt.timedelta(hours=12), NOON - dt.timedelta(hours=12, microseconds=1)])
def test_date_outside_the_day_is_reported_and_the_day_goes_on(moment: dt.datetime) -> None:
    (result,) = check_input(partition(log({}, {"asked_at": moment})))

    assert result.passed
    assert (only(result).severity, only(result).column) == ("warning", "asked_at")


def test_missing_column_could_not_be_evaluated_rather_than_failed() -> None:
    (result,) = check_input(partition(log({}).drop("asked_at")))

    told = {(f.expectation, f.evaluated) for f in result.failures}
    assert ("ExpectTableColumnsToMatchSet", True) in told
    assert ("ExpectColumnValuesToNotBeNull", False) in told
    assert any("could not be evaluated: " in f.message for f in result.failures)
    assert "gate query_log: columns on 2026-03-02: missing asked_at (ExpectTableColumnsToMatchSet)" in {
        f.message for f in result.failures
    }
    assert not result.passed


@pytest.mark.parametrize(("column", "values"), [("asked_at", ["noon"]), ("agent_id", [1]), ("generated_sql", [1.5])])
def test_wrong_type_fails_the_input_gate(column: str, values: list[Any]) -> None:
    (result,) = check_input(partition(log({}).with_columns(pl.Series(column, values))))

    assert ("ExpectColumnValuesToBeOfType", column) in {(f.expectation, f.column) for f in result.failures}


@pytest.mark.parametrize(
    ("row", "expectation", "column"),
    [
        ({"phi": 100.00000000000001}, "ExpectColumnValuesToBeBetween", "phi"),
        ({"phi": -0.1}, "ExpectColumnValuesToBeBetween", "phi"),
        ({"p_right": 1.2}, "ExpectColumnValuesToBeBetween", "p_right"),
        ({"confidence": 1.2}, "ExpectColumnValuesToBeBetween", "confidence"),
        ({"verdict": "maybe"}, "ExpectColumnValuesToBeInSet", "verdict"),
        ({"band": "fair"}, "ExpectColumnValuesToBeInSet", "band"),
        ({"filter_status": "applied"}, "ExpectColumnValuesToBeInSet", "filter_status"),
        ({"enrichment_status": "odd"}, "ExpectColumnValuesToBeInSet", "enrichment_status"),
        ({"parse_status": "odd"}, "ExpectColumnValuesToBeInSet", "parse_status"),
        ({"status": "lost", "reason": "x"}, "ExpectColumnValuesToBeInSet", "status"),
        ({"app_id": None}, "ExpectColumnValuesToNotBeNull", "app_id"),
        ({"reason": "but it is scored"}, "ExpectColumnValuesToBeNull", "reason"),
        (UNSCORED | {"reason": None}, "ExpectColumnValuesToNotBeNull", "reason"),
        (UNSCORED | {"phi": 0.0}, "ExpectColumnValuesToBeNull", "phi"),
        (UNSCORED | {"band": "poor"}, "ExpectColumnValuesToBeNull", "band"),
        (UNSCORED | {"base": 0}, "ExpectColumnValuesToBeNull", "base"),
        *(({name: None}, "ExpectColumnValuesToNotBeNull", name) for name in expectations.SCORE_COLUMNS),
    ],
)
def test_each_rule_of_a_scored_row_catches_the_row_that_breaks_it(row: dict[str, Any], expectation: str, column: str) -> None:
    result = check("scores", scores({}, row), expectations.scores_suite(), day=DAY, keys=("query_id", "agent_id"))

    assert not result.passed
    assert (only(result).expectation, only(result).column, only(result).agent) == (expectation, column, "clerk")
    assert "query_id q1" in only(result).message


@pytest.mark.parametrize("staged", [scores({}).drop("band"), scores({}).with_columns(pl.lit(1).alias("mood"))])
def test_scores_have_the_columns_of_the_contract_and_no_others(staged: pl.DataFrame) -> None:
    result = check("scores", staged, expectations.scores_suite(), day=DAY, keys=("query_id", "agent_id"))

    assert not result.passed
    assert "ExpectTableColumnsToMatchSet" in {f.expectation for f in result.failures if f.evaluated}


def test_row_staged_twice_fails() -> None:
    result = check(
        "scores", scores({}, {"query_id": "q0"}), expectations.scores_suite(), day=DAY, keys=("query_id", "agent_id")
    )

    assert (only(result).expectation, only(result).column) == ("ExpectCompoundColumnsToBeUnique", "dt, query_id")


def test_lost_doubled_and_invented_rows_fail_conservation() -> None:
    staged = scores({"query_id": "q0"}, {"query_id": "q0"}, {"query_id": "new", "agent_id": "other"})
    frame = conservation(log({}, {}), staged)

    result = check("scores", frame, expectations.conservation_suite(2), day=DAY, keys=("query_id", "agent_id"))

    told = {(f.column, f.agent, f.observed) for f in result.failures}
    assert told == {(None, None, "3"), ("in_scores", "clerk", "2, 0"), ("in_log", "other", "0")}


@pytest.mark.parametrize(
    ("row", "expectation", "column"),
    [
        ({"code": "wrong_mood"}, "ExpectColumnValuesToBeInSet", "code"),
        ({"severity": "fatal"}, "ExpectColumnValuesToBeInSet", "severity"),
        ({"stage": "later"}, "ExpectColumnValuesToBeInSet", "stage"),
        ({"message": None}, "ExpectColumnValuesToNotBeNull", "message"),
        ({"ordinal": 0}, "ExpectCompoundColumnsToBeUnique", "dt, query_id, ordinal"),
    ],
)
def test_each_rule_of_a_finding_catches_the_row_that_breaks_it(row: dict[str, Any], expectation: str, column: str) -> None:
    result = check("findings", findings({}, row), expectations.findings_suite(), day=DAY, keys=("query_id", "agent_id"))

    assert (only(result).expectation, only(result).column) == (expectation, column)


@pytest.mark.parametrize(
    ("row", "column"),
    [({"coverage": 1.1}, "coverage"), ({"mean_p_right": -0.1}, "mean_p_right"), ({"mean_phi": 100.1}, "mean_phi"),
     ({"median_phi": -1.0}, "median_phi"), ({"p90_phi": 101.0}, "p90_phi")],
)  # fmt: skip
def test_each_range_of_an_agents_day_is_held(row: dict[str, Any], column: str) -> None:
    frame = agent_daily({}, {"app_id": "shop"} | row)

    result = check("agent_daily", frame, expectations.agent_daily_suite(), day=DAY, keys=("agent_id",))

    assert only(result).column == column


def test_coverage_below_the_threshold_names_agent_observed_and_required() -> None:
    frame = agent_daily({}, {"agent_id": "sales-bot", "scored": 91, "coverage": 0.91})

    results = check_output(log({}), scores({}), findings(), frame, day=DAY, coverage_min=0.95)

    with pytest.raises(GateError) as caught:
        refuse(results)
    assert str(caught.value) == (
        "gate scores: coverage of agent sales-bot on 2026-03-02 is 0.91, required at least 0.95"
        " (ExpectColumnValuesToBeBetween coverage)"
    )


def test_coverage_is_of_an_agent_over_all_its_versions() -> None:
    halves = agent_daily(
        {"rows": 90, "scored": 90, "coverage": 1.0},
        {"agent_version": "v2", "rows": 10, "scored": 6, "coverage": 0.6},
        {"app_id": "shop", "rows": 90, "scored": 0, "coverage": 0.0},
    )

    assert agent_coverage(halves).select("agent_id", "coverage").rows() == [("clerk", 0.96)]


def test_every_agent_that_falls_short_is_named() -> None:
    short = {"scored": 90, "coverage": 0.9}
    frame = agent_coverage(agent_daily({"agent_id": "a"} | short, {"agent_id": "b"} | short, {"agent_id": "c"}))

    result = check("scores", frame, expectations.agents_suite(0.95), day=DAY, keys=("agent_id",))

    assert [f.agent for f in result.failures] == ["a", "b"]


def test_a_warning_alone_refuses_nothing() -> None:
    warning = Failure(
        expectation="E", column="c", agent=None, observed="1", required="2", severity="warning", message="gate x: c"
    )

    refuse([GateResult(gate="x", passed=True, expectations=1, failures=(warning,))])
