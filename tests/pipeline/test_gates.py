"""Each expectation with a row that breaks it, and the sentence a person reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from stef_core.errors import GateError
from stef_core.frames import AGENT_ALERTS, AGENT_DAILY, QUERY_FINDINGS, QUERY_LOG, QUERY_SCORES, frame_of
from stef_core.trailing import AGENTS, INPUTS, LATEST, VOLUME, Room, input_counts
from tasks import expectations
from tasks.gates import (
    Failure,
    GateResult,
    agent_coverage,
    check,
    check_history,
    check_input,
    check_output,
    conservation,
    refuse,
)
from tasks.query_log import PARTITION_LOG, Partition

DAY = dt.date(2026, 3, 2)
NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)


def log(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"agent_id": "clerk", "asked_at": NOON, "user_question": "How many?", "generated_sql": "SELECT 1"}
    return frame_of(
        [dict.fromkeys(PARTITION_LOG) | base | {"query_id": f"q{i}"} | row for i, row in enumerate(rows)], PARTITION_LOG
    )


def partition(frame: pl.DataFrame) -> Partition:
    return Partition(day=DAY, frame=frame, rows=frame.height, files=(), rows_read=frame.height, duplicates=(), out_of_day=0)


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


# --- every expectation, and a row that breaks it --------------------------------------------------------------------


def of_trailing(schema: pl.Schema, **row: Any) -> pl.DataFrame:
    base = {
        "subject": "agent clerk", "agent_id": "clerk", "rows": 100, "rows_least": 50.0, "rows_most": 150.0,
        "quiet_hours": 2.0, "quiet_hours_most": 5.0, "psi": 0.1, "psi_most": 0.25, "coverage": 1.0, "coverage_least": 0.94,
        "band_psi": 0.1, "band_psi_most": 0.25,
    }  # fmt: skip
    return frame_of([{name: (base | row)[name] for name in schema}], schema)


def counts(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"query_id": "q0", "agent_id": "clerk", "in_log": 1, "in_scores": 1}
    return pl.DataFrame([base | row for row in rows], schema=[*base], orient="row")


TEXTS = [name for name, kind in QUERY_LOG.items() if kind.is_(QUERY_LOG["query_id"])]
ROWS, COLUMNS = ("row_count_to_be_between", None), ("columns_to_match_set", None)
# by suite: a sound frame, and for each expectation (kind, columns and condition) one that breaks it
BREAKING: dict[str, tuple[pl.DataFrame, dict[tuple[str, str | None], pl.DataFrame]]] = {
    "query_log_suite": (
        log({}),
        {
            ROWS: log(),
            COLUMNS: log({}).drop("app_id"),
            **{("to_be_of_type", name): log({}).with_columns(pl.Series(name, [1])) for name in TEXTS},
            ("to_be_of_type", "asked_at"): log({}).with_columns(pl.Series("asked_at", ["noon"])),
            **{("to_not_be_null", name): log({}, {name: None}) for name in ("query_id", "agent_id", "asked_at")},
            ("to_be_unique", "query_id"): log({"query_id": "a"}, {"query_id": "a"}),
            ("to_be_between", "asked_at"): log({}, {"asked_at": NOON + dt.timedelta(hours=12)}),
        },
    ),
    "scores_suite": (
        scores({}, UNSCORED),
        {
            ROWS: scores(),
            COLUMNS: scores({}).drop("band"),
            ("to_be_unique", "dt query_id"): scores({}, {"query_id": "q0"}),
            **{("to_not_be_null", n): scores({}, {n: None}) for n in ("dt", "query_id", "agent_id", "app_id", "status")},
            **{
                ("to_be_in_set", name): scores({}, {name: "odd"})
                for name in ("status", "verdict", "band", "filter_status", "enrichment_status", "parse_status")
            },
            **{("to_be_between", name): scores({}, {name: 100.1}) for name in ("phi", "p_right", "confidence")},
            **{("to_not_be_null", f"{n} of scored"): scores({}, {n: None}) for n in expectations.SCORE_COLUMNS},
            ("to_be_null", "phi of unscored"): scores({}, UNSCORED | {"phi": 0.0}),
            ("to_be_null", "band of unscored"): scores({}, UNSCORED | {"band": "poor"}),
            ("to_be_null", "base of unscored"): scores({}, UNSCORED | {"base": 0}),
            ("to_not_be_null", "reason of unscored"): scores({}, UNSCORED | {"reason": None}),
            ("to_be_null", "reason of scored"): scores({}, {"reason": "but it is scored"}),
        },
    ),
    "conservation_suite": (
        counts({}, {"query_id": "q1"}),
        {
            ROWS: counts(),
            ("row_count_to_equal", None): counts({}),
            ("to_be_in_set", "in_log"): counts({}, {"in_log": 0}),
            ("to_be_in_set", "in_scores"): counts({}, {"in_scores": 2}),
        },
    ),
    "findings_suite": (
        findings({}),
        {
            ROWS: findings(),
            COLUMNS: findings({}).drop("stage"),
            ("to_be_unique", "dt query_id ordinal"): findings({}, {"ordinal": 0}),
            **{
                ("to_not_be_null", name): findings({}, {name: None})
                for name in ("query_id", "code", "severity", "stage", "message")
            },
            **{("to_be_in_set", name): findings({}, {name: "odd"}) for name in ("code", "severity", "stage")},
        },
    ),
    "agents_suite": (
        agent_coverage(agent_daily({})),
        {
            ROWS: agent_coverage(agent_daily()),
            ("to_not_be_null", "coverage"): agent_coverage(agent_daily({})).with_columns(coverage=pl.lit(None, pl.Float64)),
            ("to_be_between", "coverage"): agent_coverage(agent_daily({"scored": 94})),
        },
    ),
    "agent_daily_suite": (
        agent_daily({}),
        {
            ROWS: agent_daily(),
            ("to_be_unique", "dt agent_id agent_version app_id"): agent_daily({}, {}),
            **{("to_be_between", name): agent_daily({name: 1.1}) for name in expectations.SHARE_COLUMNS},
            **{("to_be_between", name): agent_daily({name: 100.1}) for name in expectations.PHI_COLUMNS},
        },
    ),
    "volume_suite": (
        of_trailing(VOLUME),
        {
            ("row_count_to_equal", None): VOLUME.to_frame(),
            ("a_to_be_greater_than_b", "rows rows_least"): of_trailing(VOLUME, rows=49),
            ("a_to_be_greater_than_b", "rows_most rows"): of_trailing(VOLUME, rows=151),
            ("a_to_be_greater_than_b", "quiet_hours_most quiet_hours"): of_trailing(VOLUME, quiet_hours=5.1),
        },
    ),
    "inputs_suite": (
        of_trailing(INPUTS),
        {
            ROWS: INPUTS.to_frame(),
            ("a_to_be_greater_than_b", "psi_most psi"): of_trailing(INPUTS, psi=0.26),
        },
    ),
    "agent_drift_suite": (
        of_trailing(AGENTS),
        {
            ROWS: AGENTS.to_frame(),
            ("a_to_be_greater_than_b", "rows rows_least"): of_trailing(AGENTS, rows=0, rows_least=1.0),
            ("a_to_be_greater_than_b", "coverage coverage_least"): of_trailing(AGENTS, coverage=0.93),
            ("a_to_be_greater_than_b", "band_psi_most band_psi"): of_trailing(AGENTS, band_psi=0.26),
        },
    ),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {"query_log_suite": (DAY,), "conservation_suite": (2,), "agents_suite": (0.95,)}
SUITES = sorted(name for name in vars(expectations) if name.endswith("_suite"))


def named(expectation: Any) -> tuple[str, str | None]:
    """Kind of an expectation, and the columns and the condition that it is about."""
    given = expectation.configuration.kwargs
    columns = given.get("column_list") or [given[name] for name in ("column", "column_A", "column_B") if name in given]
    condition = expectation.row_condition.parameter if getattr(expectation, "row_condition", None) else None
    about = " ".join(columns) + (f" of {condition}" if condition else "")
    kind = expectation.expectation_type.removeprefix("expect_")
    for prefix in ("table_", "column_values_", "compound_columns_", "column_pair_values_"):
        kind = kind.removeprefix(prefix)
    return kind, about or None


@pytest.mark.parametrize("name", SUITES)
def test_each_expectation_of_a_suite_has_a_row_that_breaks_it(name: str) -> None:
    from great_expectations import ExpectationSuite

    suite = getattr(expectations, name)(*ARGUMENTS.get(name, ()))
    sound, breaking = BREAKING[name]

    assert len({named(each) for each in suite.expectations}) == len(suite.expectations)
    assert {named(each) for each in suite.expectations} == set(breaking)
    keys = ("query_id", "agent_id", "subject")
    assert check("g", sound, suite, day=DAY, keys=keys).failures == ()
    for each in getattr(expectations, name)(*ARGUMENTS.get(name, ())).expectations:
        alone = ExpectationSuite(name="alone", expectations=[each])
        broken = check("g", breaking[named(each)], alone, day=DAY, keys=keys)
        assert [failure.evaluated for failure in broken.failures] == [True], named(each)


def test_only_what_is_unusual_is_a_warning() -> None:
    severities = {
        name: {each.severity.value for each in getattr(expectations, name)(*ARGUMENTS.get(name, ())).expectations[1:]}
        for name in SUITES
    }

    unusual = {"volume_suite", "inputs_suite", "agent_drift_suite"}
    assert {name for name, found in severities.items() if found == {"warning"}} == unusual
    assert {name for name, found in severities.items() if found == {"critical"}} == set(SUITES) - unusual - {"query_log_suite"}


# --- against the days before ----------------------------------------------------------------------------------------

BANDS = '{"band":{"excellent":1.0,"good":0.0,"marginal":0.0,"poor":0.0}}'
POOR = '{"band":{"excellent":0.0,"good":0.0,"marginal":0.0,"poor":1.0}}'


def day_of(ago: int, rows: int, **row: Any) -> pl.DataFrame:
    date = DAY - dt.timedelta(days=ago)
    asked = NOON - dt.timedelta(days=ago) + dt.timedelta(hours=11)
    return scores(*({"dt": date, "asked_at": asked, "user_question": "How many?", "generated_sql": "SELECT 1"} | row,) * rows)


NO_ALERTS = AGENT_ALERTS.to_frame()


def before() -> dict[str, pl.DataFrame]:
    past = [day_of(ago, 100) for ago in range(1, 8)]
    latest = pl.concat(past).group_by("dt").agg(pl.len().alias("rows").cast(pl.Int64), pl.col("asked_at").max().alias("latest"))
    daily = [{"dt": DAY - dt.timedelta(days=ago), "agent_id": agent, "shares": BANDS} for ago in range(1, 8)
             for agent in ("clerk", "sales")]  # fmt: skip
    return {
        "latest": latest.select(LATEST.names()).sort("dt"),
        "input_counts": input_counts(pl.concat(past)),
        "agent_daily": agent_daily(*daily),
        "agent_alerts": NO_ALERTS,
    }


USUAL = agent_daily({"shares": BANDS}, {"agent_id": "sales", "shares": BANDS})


def test_a_day_like_the_days_before_it_gives_no_warning() -> None:
    results = check_history(day_of(0, 100), USUAL, NO_ALERTS, before(), day=DAY, room=Room())

    assert [(result.gate, result.passed, result.failures) for result in results] == [
        ("volume", True, ()),
        ("inputs", True, ()),
        ("agent_drift", True, ()),
    ]


@pytest.mark.parametrize(
    ("today", "daily", "told"),
    [
        (
            day_of(0, 40),
            USUAL,
            "gate volume: row count of the log on 2026-03-02 is 40, usual is at least 50"
            " (ExpectColumnPairValuesAToBeGreaterThanB rows)",
        ),
        (day_of(0, 160), USUAL, "gate volume: row count of the log on 2026-03-02 is 160, usual is at most 150"),
        (
            day_of(0, 100, asked_at=NOON),
            USUAL,
            "gate volume: hours without a row at the end of the log on 2026-03-02 is 12, usual is at most 4",
        ),
        (
            day_of(0, 100, generated_sql=None),
            USUAL,
            "gate inputs: shift (population stability index) of input sql on 2026-03-02 is ",
        ),
        (
            day_of(0, 100),
            agent_daily({"shares": BANDS}),
            "gate agent_drift: row count of agent sales on 2026-03-02 is 0, usual is at least 1",
        ),
        (
            day_of(0, 100),
            agent_daily({"shares": BANDS, "scored": 90}, {"agent_id": "sales", "shares": BANDS}),
            "gate agent_drift: coverage of agent clerk on 2026-03-02 is 0.9, usual is at least 0.95",
        ),
        (
            day_of(0, 100),
            agent_daily({"shares": POOR}, {"agent_id": "sales", "shares": BANDS}),
            "gate agent_drift: shift of bands (population stability index) of agent clerk on 2026-03-02 is ",
        ),
    ],
)
def test_what_is_unusual_is_told_against_what_is_usual_and_stops_nothing(
    today: pl.DataFrame, daily: pl.DataFrame, told: str
) -> None:
    results = check_history(today, daily, NO_ALERTS, before(), day=DAY, room=Room())

    refuse(results)
    assert all(result.passed for result in results)
    (message,) = [message for result in results for message in result.warnings]
    assert message.startswith(told)


def test_a_warning_names_its_agent_what_was_observed_and_what_is_usual() -> None:
    (*_, result) = check_history(day_of(0, 100), agent_daily({"shares": BANDS}), NO_ALERTS, before(), day=DAY, room=Room())

    failure = only(result)
    assert (failure.agent, failure.column, failure.observed, failure.severity) == ("sales", "rows", "0", "warning")
    assert failure.required == "at least rows_least"
    assert result.to_json()["failures"][0]["agent"] == "sales"
    assert set(result.to_json()) == {"gate", "passed", "expectations", "failures"}


def test_the_room_of_the_settings_decides_what_is_unusual() -> None:
    strict = check_history(day_of(0, 55), USUAL, NO_ALERTS, before(), day=DAY, room=Room(volume=0.1))
    lenient = check_history(day_of(0, 55), USUAL, NO_ALERTS, before(), day=DAY, room=Room(volume=0.5))

    assert [len(result.warnings) for result in strict] == [1, 0, 0]
    assert [len(result.warnings) for result in lenient] == [0, 0, 0]


def test_a_first_day_is_compared_with_nothing() -> None:
    nothing = {name: frame.clear() for name, frame in before().items()}

    results = check_history(day_of(0, 100), USUAL, NO_ALERTS, nothing, day=DAY, room=Room())

    assert [result.gate for result in results] == ["volume", "agent_drift"]
    assert all(result.failures == () for result in results)


# --- tables in several frames ---


@pytest.mark.parametrize("cut", [1, 2, 5, 9])
def test_a_table_in_several_frames_is_judged_as_one(cut: int) -> None:
    rows: list[dict[str, Any]] = [{"query_id": f"q{n}"} for n in range(9)]
    rows[1] |= {"phi": 101.0}
    rows[4] |= {"phi": -1.0, "agent_id": "other"}
    rows[7] |= {"status": "lost", "phi": 300.0}
    rows[8] |= {"band": None}
    frame = scores(*rows)

    whole = check("scores", frame, expectations.scores_suite(), day=DAY, keys=("query_id", "agent_id"))
    parts = check("scores", frame.iter_slices(cut), expectations.scores_suite(), day=DAY, keys=("query_id", "agent_id"))

    assert parts == whole
    assert len(whole.failures) >= 4
    names = ("element_count", "unexpected_count", "missing_count", "unexpected_percent", "unexpected_percent_total")
    told = [[(r.success, *map(r.result.get, names)) for r in outcome.validation.results] for outcome in (whole, parts)]
    assert told[1] == told[0]
    assert parts.validation.success is False


def test_rows_are_counted_over_all_frames() -> None:
    frame = pl.DataFrame({"query_id": ["a", "b", "c"], "agent_id": "x", "in_log": 1, "in_scores": 1})

    held = check("scores", frame.iter_slices(2), expectations.conservation_suite(3), day=DAY)
    lost = check("scores", frame.iter_slices(2), expectations.conservation_suite(4), day=DAY)

    assert held.passed
    assert [failure.message for failure in lost.failures] == [
        f"gate scores: row count on {DAY} is 3, required 4 (ExpectTableRowCountToEqual)"
    ]


def test_conservation_finds_what_is_lost_doubled_or_made_up_in_any_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.gates.ROWS_AT_ONCE", 2)
    left = pl.DataFrame({"query_id": ["a", "b", "c", "d", "e"], "agent_id": "x"})
    right = pl.DataFrame({"query_id": ["a", "b", "b", "d", "e", "f"], "agent_id": "x"})

    parts = list(conservation(left, right))

    found = {row["query_id"]: (row["in_log"], row["in_scores"]) for part in parts for row in part.iter_rows(named=True)}
    assert len(parts) == 3
    assert found == {"a": (1, 1), "b": (1, 2), "c": (1, 0), "d": (1, 1), "e": (1, 1), "f": (0, 1)}


def test_a_staged_table_without_rows_is_put_to_its_suite() -> None:
    class Nothing:
        def frames(self) -> Iterator[pl.DataFrame]:
            return iter(())

        def lazy(self) -> pl.LazyFrame:
            return QUERY_SCORES.to_frame().lazy()

    results = check_output(log().clear(), Nothing(), findings().clear(), agent_daily(), day=DAY, coverage_min=0.95)

    assert not results[0].passed
