"""The schema: migrations in order, tables as the frames say, forward only."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import polars as pl
import pytest

from stef_core.errors import RuleError
from stef_core.frames import TABLES
from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import STAGED, migrations

SQL_TYPES: dict[type[pl.DataType], tuple[str, ...]] = {
    pl.String: ("VARCHAR", "text"),
    pl.Int64: ("BIGINT", "bigint"),
    pl.Float64: ("DOUBLE", "double precision"),
    pl.Boolean: ("BOOLEAN", "boolean"),
    pl.Date: ("DATE", "date"),
    pl.Datetime: ("TIMESTAMP WITH TIME ZONE", "timestamp with time zone"),
}
COLUMNS = (
    "SELECT column_name, data_type FROM information_schema.columns "
    "WHERE table_schema LIKE $1 AND table_name = $2 ORDER BY ordinal_position"
)


def test_migrations_are_numbered_without_gaps() -> None:
    versions = [version for version, _, _ in migrations()]

    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) == sum(entry.name.endswith(".sql") for entry in (files("tasks.warehouse") / "migrations").iterdir())


@pytest.mark.parametrize(
    ("schema", "table"), [("published", table) for table in TABLES] + [("staging", table) for table in STAGED]
)
def test_migrated_tables_are_those_of_the_frames(warehouse: Warehouse, schema: str, table: str) -> None:
    published = warehouse.query("SELECT current_schema() AS name")["name"].item()

    columns = warehouse.query(COLUMNS, (published if schema == "published" else "%staging", table)).rows()

    assert [name for name, _ in columns] == list(TABLES[table])
    for name, sql_type in columns:
        assert sql_type in SQL_TYPES[type(TABLES[table][name])], name


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_reads_with_the_types_of_its_frame(warehouse: Warehouse, table: str) -> None:
    assert warehouse.read(table).schema == TABLES[table]


def test_a_fresh_warehouse_records_its_migrations_and_a_second_look_changes_nothing(warehouse: Warehouse) -> None:
    recorded = warehouse.query("SELECT name FROM schema_migrations WHERE version > 0 ORDER BY version")["name"].to_list()

    assert recorded == [name for _, name, _ in migrations()]
    assert warehouse.migrate() == []


# --- in other hands -------------------------------------------------------------------------------------------------


def test_views_that_somebody_dropped_come_back(url: str, foreign: Callable[[str], None]) -> None:
    connect(url).close()
    foreign("DROP VIEW v_worst_queries")
    with pytest.raises(RuleError, match="score a day into it to bring it up to date"):
        connect(url, read_only=True)

    with connect(url) as warehouse:
        assert warehouse.read("v_worst_queries").is_empty()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_table_that_lost_a_column_is_refused(url: str, foreign: Callable[[str], None], read_only: bool) -> None:
    connect(url).close()
    foreign("ALTER TABLE agent_alerts DROP COLUMN p_value")

    with pytest.raises(RuleError, match="columns p_value of table agent_alerts"):
        connect(url, read_only=read_only, wait_s=1)


def test_a_closed_warehouse_says_so(url: str) -> None:
    with connect(url) as warehouse:
        warehouse.close()

    for call in (warehouse.days, warehouse.migrate):
        with pytest.raises(RuleError, match="is closed"):
            call()
