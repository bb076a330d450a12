"""Every table, view and column says in the database what it holds, from one file."""

from __future__ import annotations

import pytest

from stef_core.frames import TABLES
from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import ORDER, VIEWS, comments

IN_DATABASE = {
    "duckdb": (
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main' "
        "UNION ALL SELECT table_name, 'table', comment FROM duckdb_tables() WHERE schema_name = 'main' "
        "UNION ALL SELECT view_name, 'table', comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main' "
        "UNION ALL SELECT 'staging.' || table_name, column_name, comment FROM duckdb_columns() "
        "WHERE schema_name = 'staging' AND table_name IN ('manifest', 'llm_answers') "
        "UNION ALL SELECT 'staging.' || table_name, 'table', comment FROM duckdb_tables() "
        "WHERE schema_name = 'staging' AND table_name IN ('manifest', 'llm_answers')"
    ),
    "postgresql": (
        "SELECT CASE WHEN n.nspname = 'stef' THEN c.relname::text ELSE 'staging.' || c.relname END, "
        "coalesce(a.attname::text, 'table'), col_description(c.oid, coalesce(a.attnum, 0)) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN LATERAL (SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 "
        "UNION ALL SELECT NULL, NULL) a ON TRUE "
        "WHERE c.relkind IN ('r', 'v') "
        "AND (n.nspname = 'stef' OR n.nspname = 'stef_staging' AND c.relname IN ('manifest', 'llm_answers'))"
    ),
}


def in_database(warehouse: Warehouse, url: str) -> dict[tuple[str, str], str | None]:
    rows = warehouse.query(IN_DATABASE[url.partition(":")[0]].replace("col_description(c.oid, coalesce(a.attnum, 0))", TEXT))
    return {(table, column): text for table, column, text in rows.rows()}


TEXT = "CASE WHEN a.attnum IS NULL THEN obj_description(c.oid, 'pg_class') ELSE col_description(c.oid, a.attnum) END"


def test_every_table_view_and_column_has_a_sentence_in_the_database(url: str, warehouse: Warehouse) -> None:
    found = in_database(warehouse, url)

    written = {(table, column): text for table, columns in comments().items() for column, text in columns.items()}
    assert found == written
    assert {table for table, _ in found} == {*ORDER, "schema_migrations", "staging.manifest", "staging.llm_answers"}


@pytest.mark.parametrize("table", TABLES)
def test_columns_of_the_file_are_those_of_the_frame_in_their_order(table: str) -> None:
    assert list(comments()[table]) == ["table", *TABLES[table]]


def test_every_text_is_one_line_that_ends_as_a_sentence() -> None:
    for table, columns in comments().items():
        for column, text in columns.items():
            assert text.endswith("."), (table, column)
            assert "\n" not in text, (table, column)


def test_columns_of_views_are_told_in_their_order(warehouse: Warehouse) -> None:
    for view in VIEWS:
        assert list(comments()[view]) == ["table", *warehouse.read(view).columns]


def test_a_changed_sentence_reaches_a_database_that_has_been_made(
    url: str, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = comments()
    changed["query_scores"]["phi"] = "The user's score."
    monkeypatch.setattr("tasks.warehouse.sql.comments", lambda: changed)

    assert warehouse.migrate() == ["views"]

    assert in_database(warehouse, url)["query_scores", "phi"] == "The user's score."
    assert warehouse.migrate() == []
    warehouse.close()
    with connect(url) as again:
        assert again.migrate() == []
