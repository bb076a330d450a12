"""A day is unlike the days before it when it leaves the room that they, few rows and the settings give it."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from stef_core.frames import AGENT_ALERTS, AGENT_DAILY, QUERY_SCORES, frame_of
from stef_core.trailing import (
    AGENTS,
    INPUT_COUNTS,
    INPUTS,
    LATEST,
    VOLUME,
    Room,
    agent_drift,
    input_counts,
    input_drift,
    stability_index,
    volume,
)

DAY = dt.date(2026, 5, 20)  # a Wednesday
ROOM = Room()


def days(rows: list[int], last_hour: float = 22.0) -> pl.DataFrame:
    """Days up to the one before `DAY`, each with its number of rows and the hour of its last."""
    dates = [DAY - dt.timedelta(days=len(rows) - n) for n in range(len(rows))]
    starts = [dt.datetime.combine(date, dt.time(), dt.UTC) for date in dates]
    table = [
        {"dt": date, "rows": count, "latest": start + dt.timedelta(hours=last_hour)}
        for date, count, start in zip(dates, rows, starts, strict=True)
    ]
    return frame_of(table, LATEST)


def at(hour: float) -> dt.datetime:
    return dt.datetime.combine(DAY, dt.time(), dt.UTC) + dt.timedelta(hours=hour)


def only(frame: pl.DataFrame) -> dict[str, Any]:
    (row,) = frame.to_dicts()
    return row


# --- volume and freshness -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "least", "most"),
    [
        ([1000, 1010, 990, 1000], 500.0, 1500.0),  # the room of the settings
        ([1000, 400, 1600, 1000, 700, 1300], 0.0, 3223.9),  # days that differ more
        ([25, 25, 25, 25], 5.0, 45.0),  # few rows, which differ by chance
        ([1000, 1010], None, None),
    ],
)
def test_rows_have_room_on_either_side_of_the_usual(before: list[int], least: float | None, most: float | None) -> None:
    frame = volume(DAY, 100, at(22), days(before), ROOM)

    row = only(frame)
    assert frame.schema == VOLUME
    assert (row["rows"], row["rows_least"], row["rows_most"]) == (100, least, most)


def test_a_day_is_compared_with_the_same_days_of_the_weeks_before() -> None:
    weekly = [1000, 1000, 1000, 100, 100, 1000, 1000] * 4  # thin on Saturdays and Sundays
    sunday = DAY + dt.timedelta(days=4)

    usual = only(volume(DAY, 1000, at(22), days(weekly), ROOM))
    thin = only(volume(sunday, 100, None, days(weekly), ROOM))

    assert usual["rows_least"] == 500.0
    assert (thin["rows_least"], thin["rows_most"]) == (50.0, 150.0)


def test_the_room_of_the_volume_is_a_setting() -> None:
    row = only(volume(DAY, 100, at(22), days([1000] * 4), Room(volume=0.2)))

    assert (row["rows_least"], row["rows_most"]) == (800.0, 1200.0)


def test_hours_without_a_row_are_counted_to_the_end_of_the_day() -> None:
    row = only(volume(DAY, 100, at(15.5), days([100] * 4, last_hour=22), ROOM))
    late = only(volume(DAY, 100, at(30), days([100] * 4, last_hour=22), ROOM))
    first = only(volume(DAY, 100, at(15.5), days([]), ROOM))

    assert (row["quiet_hours"], row["quiet_hours_most"]) == (8.5, 5.0)
    assert late["quiet_hours"] == 0.0  # a row of another day is reported elsewhere
    assert (first["quiet_hours"], first["quiet_hours_most"]) == (8.5, 12.0)


def test_a_log_that_always_ends_in_the_afternoon_may_end_in_the_afternoon() -> None:
    row = only(volume(DAY, 100, at(15), days([100] * 6, last_hour=16), ROOM))

    assert row["quiet_hours"] < row["quiet_hours_most"]


# --- inputs ---------------------------------------------------------------------------------------------------------


def scores(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"dt": DAY, "app_id": "shop", "dialect": "duckdb", "generated_sql": "SELECT 1", "user_question": "How many?"}
    return frame_of([dict.fromkeys(QUERY_SCORES) | base | row for row in rows], QUERY_SCORES)


def counts(date: dt.date, feature: str, **values: int) -> pl.DataFrame:
    return frame_of([{"dt": date, "feature": feature, "value": v, "rows": n} for v, n in values.items()], INPUT_COUNTS)


def history(feature: str, *of_days: dict[str, int]) -> pl.DataFrame:
    return pl.concat([counts(DAY - dt.timedelta(days=len(of_days) - n), feature, **values) for n, values in enumerate(of_days)])


def test_inputs_are_counted_by_what_is_there_and_how_long_it_is() -> None:
    rows = scores(
        {},
        {"app_id": None, "dialect": None, "generated_sql": None, "enriched_question": "", "user_question": ""},
        {"generated_sql": "", "enriched_question": "How many orders?", "user_question": "x" * 20},
        {"user_question": "ä" * 21},
        {"user_question": "x" * 321},
    )

    counted = input_counts(rows)

    assert counted.schema == INPUT_COUNTS
    found = {(feature, value): n for _, feature, value, n in counted.iter_rows()}
    assert found == {
        ("application", "shop"): 4,
        ("application", "default"): 1,
        ("dialect", "duckdb"): 4,
        ("dialect", ""): 1,
        ("sql", "present"): 3,
        ("sql", "absent"): 2,
        ("reformulation", "present"): 1,
        ("reformulation", "absent"): 4,
        ("question length", "0"): 1,
        ("question length", "20"): 2,
        ("question length", "40"): 1,
        ("question length", "more"): 1,
    }


def test_the_index_is_that_of_the_formula_and_knows_no_direction() -> None:
    now, before = {"a": 799.5, "b": 199.5}, {"a": 499.5, "b": 499.5}

    expected = (0.8 - 0.5) * np.log(0.8 / 0.5) + (0.2 - 0.5) * np.log(0.2 / 0.5)

    assert stability_index(now, before) == pytest.approx(expected)
    assert stability_index(before, now) == pytest.approx(expected)
    assert stability_index(now, now) == 0.0
    assert 0 < stability_index({"a": 100}, {"b": 100}) < 20


def test_inputs_that_shift_leave_the_room_and_steady_ones_do_not() -> None:
    before = history("dialect", *[{"duckdb": 90, "postgres": 10}] * 5)

    steady, shifted = (
        only(input_drift(counts(DAY, "dialect", **values), before, ROOM))
        for values in ({"duckdb": 85, "postgres": 15}, {"duckdb": 40, "postgres": 60})
    )

    assert steady["subject"] == "input dialect"
    assert steady["psi"] < steady["psi_most"] == 0.25
    assert shifted["psi"] > 1.0


def test_a_value_never_seen_before_is_a_shift() -> None:
    before = history("application", *[{"shop": 100}] * 5)

    row = only(input_drift(counts(DAY, "application", shop=60, crm=40), before, ROOM))

    assert row["psi"] > row["psi_most"]


def test_many_rare_values_count_as_one() -> None:
    often = {"shop": 900} | {f"app{n}": 4 for n in range(25)}
    before = history("application", *[often] * 5)
    others = {"shop": 900} | {f"other{n}": 4 for n in range(25)}

    row = only(input_drift(counts(DAY, "application", **others), before, ROOM))

    assert row["psi"] < 0.01


def test_few_rows_and_days_that_differ_give_more_room() -> None:
    few = history("dialect", *[{"duckdb": 15, "postgres": 10}] * 3)
    weekly = history("dialect", *[{"duckdb": 90, "postgres": 10}] * 5, {"duckdb": 30, "postgres": 70})

    by_chance = only(input_drift(counts(DAY, "dialect", duckdb=16, postgres=6), few, ROOM))
    as_before = only(input_drift(counts(DAY, "dialect", duckdb=30, postgres=70), weekly, ROOM))

    assert by_chance["psi_most"] > 0.5
    assert as_before["psi"] < as_before["psi_most"]


def test_two_days_or_few_rows_say_nothing_of_inputs() -> None:
    today = counts(DAY, "dialect", duckdb=100)

    assert input_drift(today, history("dialect", *[{"duckdb": 100}] * 2), ROOM).is_empty()
    assert input_drift(counts(DAY, "dialect", duckdb=19), history("dialect", *[{"duckdb": 100}] * 3), ROOM).is_empty()
    assert input_drift(today, INPUT_COUNTS.to_frame(), ROOM).schema == INPUTS


def test_days_drawn_alike_seldom_leave_the_room() -> None:
    rng = np.random.default_rng(1)
    names = [f"app{n:02d}" for n in range(12)]
    shares = rng.dirichlet(np.full(12, 2.0))

    def a_day() -> dict[str, int]:
        return dict(zip(names, rng.multinomial(40, shares).tolist(), strict=True))

    def a_log() -> pl.DataFrame:
        before = history("application", *(a_day() for _ in range(14)))
        return input_drift(counts(DAY, "application", **a_day()), before, ROOM)

    rows = [only(a_log()) for _ in range(100)]

    assert sum(row["psi"] > row["psi_most"] for row in rows) <= 1


# --- agents ---------------------------------------------------------------------------------------------------------


def daily(ago: int, agent: str = "clerk", rows: int = 100, scored: int | None = None, **row: Any) -> dict[str, Any]:
    bands = row.pop("bands", {"excellent": 0.6, "good": 0.2, "marginal": 0.1, "poor": 0.1})
    base = {
        "dt": DAY - dt.timedelta(days=ago), "agent_id": agent, "agent_version": "v1", "app_id": "*", "rows": rows,
        "scored": rows if scored is None else scored, "shares": json.dumps({"band": bands}),
    }  # fmt: skip
    return dict.fromkeys(AGENT_DAILY) | base | row


def drift(
    today: list[dict[str, Any]], *before: dict[str, Any], alerts: pl.DataFrame | None = None
) -> dict[str, dict[str, Any]]:
    told = AGENT_ALERTS.to_frame() if alerts is None else alerts
    frame = agent_drift(frame_of(today, AGENT_DAILY), frame_of(list(before), AGENT_DAILY), [told], DAY, ROOM)
    assert frame.schema == AGENTS
    return {row["agent_id"]: row for row in frame.iter_rows(named=True)}


def test_an_agent_that_answered_daily_is_missed_when_it_is_silent() -> None:
    before = [daily(ago, agent) for ago in range(1, 10) for agent in ("clerk", "sales")]
    seldom = [daily(ago, "seldom") for ago in (1, 3, 5)]

    rows = drift([daily(0, "clerk")], *before, *seldom)

    assert (rows["sales"]["rows"], rows["sales"]["rows_least"]) == (0, 1.0)
    assert (rows["clerk"]["rows"], rows["clerk"]["rows_least"]) == (100, 1.0)
    assert rows["seldom"]["rows_least"] is None


def test_coverage_may_fall_by_the_room_or_by_what_few_rows_explain() -> None:
    many = [daily(ago, rows=2000, scored=1980) for ago in range(1, 8)]
    few = [daily(ago, rows=30, scored=29) for ago in range(1, 8)]

    assert drift([daily(0, rows=2000)], *many)["clerk"]["coverage_least"] == pytest.approx(0.94)
    assert drift([daily(0, rows=25, scored=21)], *few)["clerk"]["coverage_least"] < 0.84
    assert drift([daily(0, rows=19)], *few)["clerk"]["coverage_least"] is None
    assert drift([daily(0)], *many[:2])["clerk"]["coverage_least"] is None


def test_bands_that_shift_leave_the_room() -> None:
    before = [daily(ago) for ago in range(1, 8)]
    worse = {"excellent": 0.2, "good": 0.2, "marginal": 0.3, "poor": 0.3}

    steady, shifted = (drift([day], *before)["clerk"] for day in (daily(0), daily(0, bands=worse)))

    assert steady["band_psi"] < 0.01
    assert shifted["band_psi"] > shifted["band_psi_most"] == 0.25


@pytest.mark.parametrize(
    ("kind", "ago", "bounds"),
    [("phi_fall", 0, (True, False)), ("version_worse", 7, (True, False)), ("coverage_fall", 3, (False, True)),
     ("phi_fall", 8, (True, True))],
)  # fmt: skip
def test_what_an_alert_tells_of_an_agent_is_no_warning_too(kind: str, ago: int, bounds: tuple[bool, bool]) -> None:
    before = [daily(ago, agent) for ago in range(1, 8) for agent in ("clerk", "sales")]
    alert = {"dt": DAY - dt.timedelta(days=ago), "agent_id": "clerk", "kind": kind}

    rows = drift(
        [daily(0, "clerk"), daily(0, "sales")], *before, alerts=frame_of([dict.fromkeys(AGENT_ALERTS) | alert], AGENT_ALERTS)
    )

    found = {agent: (row["coverage_least"] is not None, row["band_psi_most"] is not None) for agent, row in rows.items()}
    assert found == {"clerk": bounds, "sales": (True, True)}


def test_an_agent_is_taken_over_all_its_versions_and_applications() -> None:
    before = [daily(ago) for ago in range(1, 8)]
    today = [daily(0, rows=60, scored=50), daily(0, rows=40, scored=40, agent_version="v2"), daily(0, app_id="shop", rows=60)]

    row = drift(today, *before)["clerk"]

    assert (row["rows"], row["coverage"]) == (100, 0.9)


def test_a_first_day_has_nothing_to_be_compared_with() -> None:
    row = drift([daily(0)])["clerk"]

    assert (row["rows_least"], row["coverage_least"], row["band_psi_most"]) == (None, None, None)
