"""DuckDB, opened so that nothing can be written or reached: read-only, no file or network access, configuration locked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from stef_core.errors import RuleError
from stef_core.experiments.compare_results import ResultSet
from stef_core.experiments.execution import QueryFailure
from tasks.databases.base import ReadOnlyDatabase, digest_of, file_of, no_table_by_text, one_line

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",  # or a query could read the variables of this program
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "memory_limit": "2GB",
    "temp_directory": "",
    "threads": "2",
}

_opening = threading.Lock()  # the first connection to a file configures it for those that follow


class DuckdbDatabase(ReadOnlyDatabase):
    """A DuckDB file.

    Args:
        rest: The part of the URL after ``duckdb://``.
        timeout_s: Seconds a query may take.
        max_rows: Rows a query may return.

    Raises:
        RuleError: There is no such file, it is no DuckDB database, or another process writes it.
    """

    dialect = "duckdb"
    forbidden = frozenset(
        "glob sniff_csv getenv write_log enable_logging disable_logging enable_profiling disable_profiling st_read st_read_meta"
        " duckdb_secrets which_secret force_checkpoint checkpoint".split()
    )
    forbidden_starts = ("read_", "parquet_", "sqlite_", "postgres_", "mysql_", "iceberg_", "delta_")

    def __init__(self, rest: str, *, timeout_s: float, max_rows: int) -> None:
        super().__init__(timeout_s=timeout_s, max_rows=max_rows)
        self._path = file_of(rest, "duckdb")
        try:
            with _opening:
                self._connection = duckdb.connect(str(self._path), read_only=True, config=_CONFIG)
                # all connections of one process to a file share its configuration, which the first of them has locked
                ((locked,),) = self._connection.execute("SELECT current_setting('lock_configuration')").fetchall()
                if not locked:
                    self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
                    self._connection.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            raise RuleError(f"database {self._path}: cannot be opened as DuckDB for reading: {one_line(str(error))}") from error

    def _refused(self, sql: str) -> QueryFailure | None:
        return super()._refused(sql) or no_table_by_text(sql, self.dialect)

    def _run(self, sql: str) -> ResultSet | QueryFailure:
        with self._clock() as cursor:
            try:
                statements = cursor.extract_statements(sql)
                # the engine's own count and kind, whatever another parser made of the text
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    return QueryFailure("refused", "it is not one query that only reads")
                cursor.execute(statements[0])
                return self._gather([name for name, *_ in cursor.description or ()], cursor.fetchmany)
            except (duckdb.Error, RuntimeError, ValueError, OverflowError, MemoryError) as error:
                return self._failure(error)

    @contextmanager
    def _clock(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor whose query is interrupted when the time is over."""
        cursor = self._connection.cursor()
        timer = threading.Timer(self._timeout_s, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield cursor
        finally:
            timer.cancel()
            timer.join()
            cursor.close()

    def _failure(self, error: BaseException) -> QueryFailure:
        text = one_line(str(error)) or type(error).__name__
        if isinstance(error, duckdb.InterruptException) or self._late():
            return self._timeout()
        if isinstance(error, duckdb.PermissionException) or "read-only mode" in text:
            return QueryFailure("refused", text)
        if isinstance(
            error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException | duckdb.SyntaxException
        ):
            return QueryFailure("syntax", text)
        return QueryFailure("error", text)

    def ddl(self) -> str:
        """CREATE statements as DuckDB writes them, tables before views."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT sql FROM ("
                "SELECT 1 AS kind, schema_name, table_name AS name, sql FROM duckdb_tables() WHERE NOT internal"
                " UNION ALL SELECT 2, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal)"
                " ORDER BY kind, schema_name, name"
            ).fetchall()
        return "\n\n".join(f"{sql.strip().rstrip(';')};" for (sql,) in rows)

    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return digest_of(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
