"""A fresh warehouse on each database that the product writes to."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pytest

from stef_core.frames import TABLES, frame_of
from tasks.warehouse import Warehouse, connect
from tests.postgres_server import PostgresServer

DAY = dt.date(2026, 3, 2)
Rows = Callable[..., pl.DataFrame]


@pytest.fixture(params=["duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "duckdb":
        yield f"duckdb:///{tmp_path / 'warehouse.duckdb'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"warehouse_{uuid.uuid4().hex}"
    yield server(name)
    server.drop(name)


@pytest.fixture
def published_url(url: str) -> str:
    """Where readers read while somebody writes: the same database of a server, the copy of a file."""
    return url.replace("/warehouse.duckdb", "/warehouse.bi.duckdb")


@pytest.fixture
def foreign(url: str) -> Callable[[str], None]:
    """What another program does to the published schema: ``foreign("DROP VIEW …")``."""

    def run(sql: str) -> None:
        if url.startswith("duckdb"):
            with duckdb.connect(url.removeprefix("duckdb:///")) as connection:
                connection.execute(sql)
            return
        with psycopg.connect(url, options="-c search_path=stef") as connection:
            connection.execute(sql.encode())

    return run


@pytest.fixture
def warehouse(url: str) -> Iterator[Warehouse]:
    with connect(url, wait_s=5) as opened:
        yield opened


@pytest.fixture
def rows() -> Rows:
    """Rows of one table, from the columns that matter to a test: ``rows("query_scores", {"query_id": "q1"}, …)``."""
    needed: dict[str, dict[str, Any]] = {
        "query_scores": {"query_id": "q", "agent_id": "ann", "status": "scored"},
        "query_findings": {"query_id": "q", "ordinal": 0, "agent_id": "ann", "code": "missing_filter"},
        "agent_daily": {"agent_id": "ann", "app_id": "*", "rows": 1, "scored": 1, "coverage": 1.0},
        "agent_alerts": {"agent_id": "ann", "app_id": "*", "kind": "phi_fall"},
        "score_changes": {"query_id": "q"},
        "log_catalogue": {"app_id": "shop", "kind": "table", "key": "orders"},
    }

    def build(table: str, *given: dict[str, Any], run_id: str = "run-1", day: dt.date = DAY) -> pl.DataFrame:
        base = {"dt": day, **({"run_id": run_id} if "run_id" in TABLES[table] else {}), **needed[table]}
        return frame_of([base | row for row in given], TABLES[table])

    return build
