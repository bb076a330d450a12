"""Forward from any earlier version, with the rows that it held."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest

from stef_core.errors import RuleError
from stef_core.frames import TABLES, frame_of
from tasks.warehouse import connect
from tasks.warehouse.duckdb import DuckdbWarehouse
from tasks.warehouse.postgres import PostgresWarehouse
from tasks.warehouse.sql import SqlWarehouse, migrations

NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)
VALUES: dict[type[pl.DataType], Any] = {
    pl.String: "größte 'Städte'",
    pl.Int64: 2**40,
    pl.Float64: 1 / 3,
    pl.Boolean: True,
    pl.Date: NOON.date(),
    pl.Datetime: NOON,
}


def fill_as_of(url: str, version: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, pl.DataFrame]:
    """Make a warehouse as it was at a version, with a row in each of its tables."""
    filled = {}
    with monkeypatch.context() as past:
        past.setattr("tasks.warehouse.sql.migrations", lambda: migrations()[:version])
        for kind in (DuckdbWarehouse, PostgresWarehouse):
            past.setattr(kind, "_made_anew", lambda self: "SELECT 1")
        past.setattr(SqlWarehouse, "_refuse_other_tables", lambda self: None)
        with connect(url) as old:
            assert isinstance(old, SqlWarehouse)
            with old._transaction():
                for table, columns in old._columns().items():
                    schema = pl.Schema({name: TABLES[table][name] for name in columns if name in TABLES.get(table, {})})
                    if schema:
                        row = {name: VALUES[type(kind)] for name, kind in schema.items()}
                        filled[table] = frame_of([row], schema)
                        old._append(table, filled[table])
    return filled


@pytest.mark.parametrize("version", range(1, len(migrations()) + 1))
def test_a_warehouse_of_an_earlier_version_is_brought_up_to_date_with_its_rows(
    url: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fill_as_of(url, version, monkeypatch)
    with pytest.raises(RuleError, match="written by an older version of STEF"):
        connect(url, read_only=True)

    with connect(url) as warehouse:
        after = {table: warehouse.read(table, columns=frame.columns) for table, frame in before.items()}
        versions = warehouse.query("SELECT version FROM schema_migrations ORDER BY version")["version"].to_list()

    assert set(before) >= {"query_scores", "scoring_runs"}
    assert all(after[table].equals(frame) for table, frame in before.items())
    assert versions == [0, *(number for number, _, _ in migrations())]
    with connect(url, read_only=True) as reader:
        assert reader.read("v_worst_queries")["worst_rank"].to_list() == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(url) as warehouse:
        warehouse.record_run({"run_id": "run-1"})
    broken = (9, "0009_broken", "CREATE TABLE half (a BIGINT);\nCREATE TABLE broken (a NOTYPE);\n")
    with monkeypatch.context() as future:
        future.setattr("tasks.warehouse.sql.migrations", lambda: [*migrations(), broken])
        with pytest.raises(RuleError, match=r"(?i)notype"):
            connect(url)

    with connect(url) as warehouse:
        assert warehouse.read("scoring_runs")["run_id"].to_list() == ["run-1"]
        tables = warehouse.query("SELECT table_name FROM information_schema.tables")["table_name"].to_list()
    assert "half" not in tables


def test_a_schema_newer_than_the_code_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later = (9999, "9999_later", "CREATE TABLE later (a BIGINT);\n")
    with monkeypatch.context() as future:
        future.setattr("tasks.warehouse.sql.migrations", lambda: [*migrations(), later])
        connect(url).close()

    for read_only in (False, True):
        with pytest.raises(RuleError, match=r"schema is version 9999, this version of STEF knows up to \d+"):
            connect(url, read_only=read_only, wait_s=1)
