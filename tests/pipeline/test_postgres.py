"""The whole product on PostgreSQL: the same week gives the same tables and the same report as on DuckDB."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flows import cli
from stef_core.frames import TABLES
from tasks.demo_data import DemoWeek, write_demo_week
from tasks.report import load_report_data
from tasks.warehouse import connect
from tasks.warehouse.sql import VIEWS
from tests.postgres_server import PostgresServer

PER_RUN = {"run_id", "scored_at", "started_at", "ended_at", "recorded_at"}


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database; its password, which the server does not ask for, must be seen nowhere."""
    name = f"pipeline_{uuid.uuid4().hex}"
    yield postgres_server(name).replace("postgres@", "postgres:hush@")
    postgres_server.drop(name)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> DemoWeek:
    return write_demo_week(tmp_path_factory.mktemp("week"))


@pytest.fixture(scope="module")
def urls(database: str, week: DemoWeek, prefect_server: None) -> dict[str, str]:
    """The demo week, scored from the command line into each database."""
    urls = {"duckdb": f"duckdb:///{week.logs.parent / 'w.duckdb'}", "postgres": database}
    for url in urls.values():
        days = ["--date", str(week.first), "--to", str(week.last)]
        code = cli.run(["score", "--quiet", "--logs", str(week.logs), "--rules", str(week.rules), "--warehouse", url, *days])
        assert code == 0
    return urls


def both(urls: dict[str, str], name: str) -> list[pl.DataFrame]:
    frames = []
    for url in urls.values():
        with connect(url, read_only=True) as store:
            frame = store.read(name)
        frames.append(frame.drop(PER_RUN & set(frame.columns)))
    return frames


@pytest.mark.parametrize("table", [name for name in TABLES if name != "scoring_runs"])
def test_tables_of_a_week_are_the_same_on_both_databases(urls: dict[str, str], table: str) -> None:
    duckdb, postgres = both(urls, table)

    assert postgres.equals(duckdb)
    assert duckdb.height > 0 or table.startswith(("experiment", "score_changes"))


def test_runs_of_a_week_tell_the_same_on_both_databases(urls: dict[str, str]) -> None:
    duckdb, postgres = both(urls, "scoring_runs")

    assert postgres.head(7).equals(duckdb)
    assert duckdb["outcome"].to_list() == ["published"] * 7


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_a_week_are_the_same_on_both_databases(urls: dict[str, str], view: str) -> None:
    duckdb, postgres = both(urls, view)

    assert_frame_equal(postgres, duckdb, rel_tol=1e-12)  # sums are added up in another order
    assert duckdb.height > 0


def test_a_day_scored_again_leaves_the_same_rows(urls: dict[str, str], week: DemoWeek) -> None:
    before = both(urls, "query_scores")[1]

    given = ["--logs", str(week.logs), "--rules", str(week.rules), "--date", str(week.first)]
    code = cli.run(["score", "--quiet", "--warehouse", urls["postgres"], *given])

    with connect(urls["postgres"], read_only=True) as store:
        after, runs = store.read("query_scores"), store.read("scoring_runs")
        waiting = store.query("SELECT count(*) AS n FROM staging.query_scores")["n"].item()
    assert code == 0
    assert after.drop(PER_RUN & set(after.columns)).equals(before)
    assert (runs.height, waiting) == (8, 0)


def test_the_report_is_made_from_either_database(
    urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for name, url in urls.items():
        with connect(url, read_only=True) as store:
            shown[name] = load_report_data(store)

    code = cli.run(["report", "--warehouse", urls["postgres"], "--out", str(tmp_path / "report.html")])

    assert code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What slipped" in page
    assert "hush" not in page + "".join(capsys.readouterr())
    assert shown["postgres"].alerts.height == 1
    for part in ("worst", "examples", "faults"):
        first, second = (getattr(shown[name], part) for name in ("postgres", "duckdb"))
        assert first.equals(second) if isinstance(first, pl.DataFrame) else first == second, part


def test_users_feedback_is_read_from_postgresql_and_its_password_told_nowhere(
    urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[dict[str, Any]] = []
    pages = []
    for name, url in urls.items():
        out = tmp_path / f"{name}.html"
        code = cli.run(["calibrate", "--labelled", url, "--out", str(out), "--json"])
        assert code == 0
        found.append(json.loads(capsys.readouterr().out))
        pages.append(out.read_text(encoding="utf-8"))

    assert "hush" not in json.dumps(found[1]) + pages[1]
    assert found[1]["labelled"].startswith("postgresql://postgres:***@/")
    assert {key: value for key, value in found[1].items() if key not in ("labelled", "report")} == {
        key: value for key, value in found[0].items() if key not in ("labelled", "report")
    }


def test_a_warehouse_without_feedback_is_told_without_its_password(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"empty_{uuid.uuid4().hex}"
    url = postgres_server(name).replace("postgres@", "postgres:hush@")
    connect(url).close()

    for more in ([], ["--judge", "symbolic"]):
        assert cli.run(["calibrate", "--labelled", url, *more]) == 2

    told = capsys.readouterr().err
    assert told.count("no answer has user_feedback yet") == 2
    assert "hush" not in told
    postgres_server.drop(name)


def test_migrate_makes_the_tables_and_says_where_without_the_password(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"migrated_{uuid.uuid4().hex}"
    url = postgres_server(name).replace("postgres@", "postgres:hush@")

    code = cli.run(["migrate", "--warehouse", url, "--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["warehouse"].startswith("postgresql://postgres:***@/")
    with connect(url, read_only=True) as store:
        assert store.query("SELECT max(name) AS newest FROM schema_migrations WHERE version > 0")["newest"][0] == told["schema"]
    postgres_server.drop(name)


def test_a_server_that_is_away_is_told_in_one_line_and_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEF_WAREHOUSE_WAIT_S", "0.1")
    monkeypatch.setenv("STEF_WAREHOUSE", "postgresql://stef:hush@127.0.0.1:1/stef")

    code = cli.run(["report", "--out", str(tmp_path / "report.html")])

    told = capsys.readouterr().err
    assert code == 3
    assert told.startswith("error: postgresql://127.0.0.1:1/stef: cannot be reached: ")
    assert len(told.splitlines()) == 1
    assert "hush" not in told
