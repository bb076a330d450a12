"""Three real databases with the same rows: SQLite, DuckDB, and a PostgreSQL server of the session's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from tasks.databases import Database, open_database
from tests.postgres_server import PostgresServer

ENGINES = ("sqlite", "duckdb", "postgres")
# written so that all three read it; the types are each engine's own for the same thing
SCHEMA = """
CREATE TABLE visits (id INTEGER PRIMARY KEY, site TEXT, nurse TEXT, minutes INTEGER, cost DOUBLE PRECISION, day DATE);
INSERT INTO visits VALUES
  (1, 'North', 'Ida', 30, 0.1, '2024-03-01'), (2, 'North', 'Bo', 45, 0.2, '2024-03-01'),
  (3, 'South', 'Ida', 45, 0.3, '2024-03-02'), (4, 'South', 'Cy', 20, 12.5, '2024-03-04'),
  (5, 'South', NULL, 45, 7.25, '2024-03-04'), (6, 'East', '', 10, NULL, NULL);
CREATE TABLE doubles (a INTEGER, b TEXT);
INSERT INTO doubles VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, 'y');
CREATE VIEW long_visits AS SELECT id, site FROM visits WHERE minutes >= 45;
"""


@pytest.fixture(scope="session")
def database_urls(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> dict[str, str]:
    """The URL of each engine's database with `SCHEMA` in it."""
    import psycopg

    folder = tmp_path_factory.mktemp("databases")
    with sqlite3.connect(folder / "visits.sqlite") as lite:
        lite.executescript(SCHEMA)
    lite.close()
    with duckdb.connect(str(folder / "visits.duckdb")) as duck:
        duck.execute(SCHEMA)
    url = postgres_server("visits")
    with psycopg.connect(url) as connection:
        connection.execute(SCHEMA.encode())
    return {"sqlite": f"sqlite:///{folder}/visits.sqlite", "duckdb": f"duckdb:///{folder}/visits.duckdb", "postgres": url}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """One engine after the other."""
    return str(request.param)


@pytest.fixture
def database(engine: str, database_urls: dict[str, str]) -> Iterator[Database]:
    """The engine's database, open for reading under short limits."""
    with open_database(database_urls[engine], timeout_s=2.0, max_rows=300_000) as opened:
        yield opened


@pytest.fixture
def open_with(engine: str, database_urls: dict[str, str]) -> Callable[..., Database]:
    """Opens the engine's database under other limits; use the result as a context manager."""

    def opener(**limits: Any) -> Database:
        return open_database(database_urls[engine], **limits)

    return opener
