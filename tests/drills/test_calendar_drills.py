"""Days at the edges of calendars and time zones: a UTC day is the same rows wherever and whenever it is scored."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from prefect.settings import PREFECT_API_URL

from tests.drills.llm_days import ROOT
from tests.logs import table, write
from tests.pipeline.test_daily_scoring import House

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.drill]
HOURS = 24
# several command lines in one process, whose environment has the zone from the start
STEF = "import json, sys; from flows.cli import run; sys.exit(max(run(line) for line in json.loads(sys.argv[1])))"
LEAP = (dt.date(2028, 2, 28), dt.date(2028, 3, 1))
YEAR_END = (dt.date(2026, 12, 30), dt.date(2027, 1, 2))
CHANGES = ((2026, 3, 8), (2026, 3, 29), (2026, 10, 25), (2026, 11, 1))  # of the clocks in New York and Berlin


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.chdir(tmp_path)
    return House(tmp_path, capsys)


def days_of(first: dt.date, last: dt.date) -> list[dt.date]:
    return [first + dt.timedelta(days=n) for n in range((last - first).days + 1)]


def log_of(logs: Path, day: dt.date) -> None:
    """A day with a question in each of its hours, the first and the last second among them."""
    midnight = dt.datetime.combine(day, dt.time(), dt.UTC)
    moments = [midnight + dt.timedelta(hours=hour, minutes=30) for hour in range(HOURS)]
    moments[0], moments[-1] = midnight, midnight + dt.timedelta(hours=23, minutes=59, seconds=59)
    sqls = [f"SELECT COUNT(*) FROM orders WHERE day = '{moment:%Y-%m-%d}' AND hour = {moment.hour}" for moment in moments]
    asked = pa.array(moments, pa.timestamp("us", "UTC"))
    questions = [f"How many orders came on {moment:%Y-%m-%d} at hour {moment.hour}?" for moment in moments]
    ids = [f"{day}-{hour}" for hour in range(HOURS)]
    write(logs, table(HOURS, query_id=ids, asked_at=asked, generated_sql=sqls, user_question=questions), day=day)


@pytest.mark.parametrize(("first", "last"), [LEAP, YEAR_END])
def test_days_over_a_leap_day_and_a_year_end_are_scored_whole(house: House, first: dt.date, last: dt.date) -> None:
    days = days_of(first, last)
    for day in days:
        log_of(house.logs, day)

    assert house.score("--to", str(last), date=first)[0] == 0

    scores = house.read("query_scores")
    assert scores["dt"].value_counts(sort=True).sort("dt").rows() == [(day, HOURS) for day in days]
    assert scores.filter(pl.col("asked_at").dt.date() != pl.col("dt")).is_empty()
    assert house.read("scoring_runs")["out_of_day"].sum() == 0
    assert house.read("v_agent_calendar")["dt"].unique().sort().to_list() == days


def test_a_catch_up_over_the_year_end_finds_every_missing_day(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    days = days_of(dt.date(2026, 12, 28), dt.date(2027, 1, 4))
    for day in days:
        log_of(house.logs, day)
    assert house.score(date=days[2])[0] == 0
    monkeypatch.setenv("STEF_CATCH_UP_DAYS", str(len(days)))
    monkeypatch.setenv("STEF_LOGS", str(house.logs))

    assert house.score("--missing", "--to", str(days[-1]), "--json", date=days[0])[0] == 0

    assert house.read("query_scores")["dt"].unique().sort().to_list() == days
    assert json.loads(house.score("--missing", "--to", str(days[-1]), "--json", date=days[0])[1])["runs"] == []


def test_a_leap_day_is_a_day_of_leap_years_only(house: House) -> None:
    from flows import cli

    assert cli.run(["score", "--logs", str(house.logs), "--date", "2027-02-29", "--warehouse", house.url]) == 2
    assert "is no day of the calendar" in house.capsys.readouterr().err


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_the_zone_of_the_machine_changes_nothing(house: House, zone: str) -> None:
    spans = [(day - dt.timedelta(days=1), day + dt.timedelta(days=1)) for day in (dt.date(*each) for each in CHANGES)]
    spans += [LEAP, YEAR_END]
    for first, last in spans:
        for day in days_of(first, last):
            log_of(house.logs, day)

    def scored(name: str, tz: str) -> dict[str, pl.DataFrame]:
        house.url = f"duckdb:///{house.root / name}.duckdb"
        given = ["score", "--logs", str(house.logs), "--warehouse", house.url, "--quiet"]
        lines = [[*given, "--date", str(first), "--to", str(last)] for first, last in sorted(spans)]
        environment = {**os.environ, "TZ": tz, "PREFECT_API_URL": str(PREFECT_API_URL.value()), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", STEF, json.dumps(lines)],
            cwd=house.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return house.tables() | {"log_catalogue": house.read("log_catalogue")}

    here = scored("there", zone)

    for name, frame in scored("utc", "UTC").items():
        assert frame.equals(here[name]), name
    assert here["query_scores"].filter(pl.col("asked_at").dt.date() != pl.col("dt")).is_empty()
    assert here["query_scores"].height == HOURS * here["query_scores"]["dt"].n_unique()
