"""Databases that experiments run SQL on, read-only whatever the SQL says; `open_database` opens the one a URL names."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from stef_core.errors import RuleError
from stef_core.experiments.compare_results import ResultSet
from stef_core.experiments.execution import QueryFailure

__all__ = ["DEFAULT_MAX_ROWS", "Database", "QueryFailure", "ResultSet", "open_database"]

DEFAULT_MAX_ROWS = 500_000
"""Rows after which a query is stopped: what memory bears, and more than an answer to a question has."""


class Database(Protocol):
    """One open database. May be used from several threads; it runs one query at a time."""

    @property
    def dialect(self) -> str:
        """sqlglot's name of its SQL."""
        ...

    def run(self, sql: str) -> ResultSet | QueryFailure:
        """Run one query that reads. The text reaches the engine as it is; never raises for what a query does.

        Rows are cut off at the row limit (``truncated``), and the query is stopped at the time limit (``timeout``).
        """
        ...

    def ddl(self) -> str:
        """CREATE statements of its tables and views, sorted by name, each ended by a semicolon."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of what it holds, in hex: the same before and after whatever was run."""
        ...

    def close(self) -> None:
        """Let go of it; closing twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def open_database(url: str, *, timeout_s: float = 30.0, max_rows: int | None = None) -> Database:
    """Open a database for reading; use it as a context manager.

    Args:
        url: ``sqlite:///file``, ``duckdb:///file`` (four slashes before an absolute path) or ``postgresql://user@host/name``.
        timeout_s: Seconds after which a query is interrupted, its rows included.
        max_rows: Rows after which a query is stopped; None stands for `DEFAULT_MAX_ROWS`.

    Raises:
        RuleError: The URL is none that works, or names a file that does not exist or is no database of its kind.
        TransientError: The server could not be reached.
    """
    if timeout_s <= 0 or (max_rows is not None and max_rows < 1):
        raise RuleError(f"database: the limits are {timeout_s} s and {max_rows} rows; both must be above zero")
    rows = DEFAULT_MAX_ROWS if max_rows is None else max_rows
    scheme, separator, rest = url.partition("://")
    # drivers are imported when one is needed
    if separator and scheme == "sqlite":
        from tasks.databases.sqlite import SqliteDatabase

        return SqliteDatabase(rest, timeout_s=timeout_s, max_rows=rows)
    if separator and scheme == "duckdb":
        from tasks.databases.duckdb import DuckdbDatabase

        return DuckdbDatabase(rest, timeout_s=timeout_s, max_rows=rows)
    if separator and scheme in ("postgresql", "postgres"):
        from tasks.databases.postgres import PostgresDatabase

        return PostgresDatabase(rest, timeout_s=timeout_s, max_rows=rows)
    # the rest of a URL may hold a password: never repeat it
    what = f"a URL that begins with '{scheme[:20]}://'" if separator else "a text without '://'"
    message = f"database: {what} does not work; write sqlite:///file.db, duckdb:///file.duckdb or postgresql://user@host/name"
    raise RuleError(message)
