"""PostgreSQL in READ ONLY transactions that are always rolled back, under ``statement_timeout`` and a reader's role."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql as composed
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

from stef_core.errors import RuleError, TransientError
from stef_core.experiments.compare_results import ResultSet
from stef_core.experiments.execution import QueryFailure
from tasks.databases.base import ReadOnlyDatabase
from tasks.postgres_url import name_of, options_of, said

_CONNECT_S = 10
_READER = "pg_read_all_data"
# seconds that the server has beyond the client's clock, which cancels first and counts the time between fetches too
_GRACE_S = 1.0
_GIVEN_UP = ("08", "57P01", "57P02", "57P03", "53300")
_WRONG_SQL = ("42", "0A", "3F")
_REFUSED = ("42501", "25006", "25P02")
_TABLES = """
SELECT n.nspname, c.relname, c.oid, c.relkind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY c.relkind IN ('v', 'm'), n.nspname, c.relname
"""
_COLUMNS = """
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
  pg_catalog.col_description(a.attrelid, a.attnum)
FROM pg_catalog.pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_CONSTRAINTS = """
SELECT pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint
WHERE conrelid = %s AND contype IN ('p', 'u', 'f') ORDER BY contype = 'f', contype, conname
"""


class _AnyDate(DateLoader):
    """Dates beyond Python's years, and infinity, as the text that the server sends."""

    def load(self, data: Any) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class _AnyTimestamp(TimestampLoader):
    """The same for timestamps."""

    def load(self, data: Any) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class _AnyTimestamptz(TimestamptzLoader):
    """The same for timestamps with a zone."""

    def load(self, data: Any) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class PostgresDatabase(ReadOnlyDatabase):
    """A PostgreSQL database.

    Args:
        rest: The part of the URL after ``postgresql://``.
        timeout_s: Seconds a query may take.
        max_rows: Rows a query may return.

    Raises:
        RuleError: The URL is malformed.
        TransientError: The server could not be reached, or refuses the login.
    """

    dialect = "postgres"
    forbidden = frozenset(
        "set_config query_to_xml query_to_xmlschema query_to_xml_and_xmlschema cursor_to_xml cursor_to_xmlschema dblink ts_stat"
        " nextval setval pg_notify txid_current pg_current_xact_id".split()
    )
    forbidden_starts = (
        *"lo_ dblink_ pg_read_ pg_ls_ pg_stat_file pg_file_ pg_terminate_ pg_cancel_ pg_reload_ pg_rotate_".split(),
        *"pg_advisory_ pg_try_advisory_ pg_wal_replay_".split(),
        *" pg_logical_ pg_replication_ pg_create_ pg_drop_ pg_copy_ pg_switch_ pg_backup_ pg_start_".split(),
        *"pg_stop_ pg_promote pg_export_ pg_import_ pg_stat_reset pg_log_ pg_restore_ pg_clear_".split(),
    )

    def __init__(self, rest: str, *, timeout_s: float, max_rows: int) -> None:
        super().__init__(timeout_s=timeout_s, max_rows=max_rows)
        self._options = options_of(f"postgresql://{rest}", "database")
        self._name = name_of(self._options)
        self._connection = self._connect()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            # autocommit until the session is set up: each run opens a transaction of its own
            connection = psycopg.connect(
                **{"connect_timeout": str(_CONNECT_S), **self._options, "client_encoding": "utf8"},  # type: ignore[arg-type]
                fallback_application_name="stef",
                autocommit=True,
            )
            connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
            connection.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET cursor_tuple_fraction = 1")
            connection.autocommit = False
            connection.read_only = True
        except psycopg.Error as error:
            raise TransientError(f"database {self._name}: cannot be reached: {said(error)}") from error
        for kind, loader in (("date", _AnyDate), ("timestamp", _AnyTimestamp), ("timestamptz", _AnyTimestamptz)):
            connection.adapters.register_loader(kind, loader)
        return connection

    def _refused(self, sql: str) -> QueryFailure | None:
        if 'u&"' in sql.lower():
            return QueryFailure("refused", 'it writes a name in escapes (U&"…"), which cannot be checked')
        return super()._refused(sql)

    def _run(self, sql: str) -> ResultSet | QueryFailure:
        if self._connection.closed:
            try:
                self._connection = self._connect()
            except (TransientError, RuleError) as error:
                return QueryFailure("unavailable", str(error))
        try:
            with self._reading(), self._connection.cursor(name="stef") as cursor:
                # a named cursor is declared in the extended protocol, which takes one statement only
                cursor.execute(sql.encode())
                names = [column.name for column in cursor.description or ()]
                return self._gather(names, cursor.fetchmany)
        except (psycopg.Error, UnicodeError, ValueError, OverflowError, MemoryError) as error:
            return self._failure(error)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A transaction that reads, on a clock of the server and one of the client, and that leaves nothing behind."""
        connection = self._connection
        timer = threading.Timer(self._timeout_s, self._cancel)
        timer.daemon = True
        timer.start()
        try:
            milliseconds = int(1000 * (self._timeout_s + _GRACE_S))
            connection.execute(composed.SQL("SET LOCAL statement_timeout = {}").format(milliseconds))
            if connection.info.parameter_status("is_superuser") == "on":
                connection.execute("SET LOCAL temp_file_limit = '2GB'")  # a superuser's setting
                connection.execute(composed.SQL("SET LOCAL ROLE {}").format(composed.Identifier(_READER)))
            yield
        finally:
            timer.cancel()
            timer.join()
            with suppress(psycopg.Error):
                connection.rollback()

    def _cancel(self) -> None:
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CONNECT_S)

    def _failure(self, error: BaseException) -> QueryFailure:
        text = said(error)
        state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
        if state == "57014":
            return self._timeout()
        if state.startswith(_GIVEN_UP) or self._connection.closed:
            return QueryFailure("unavailable", text)
        if state in _REFUSED or "data-modifying" in text:
            return QueryFailure("refused", text)
        return QueryFailure("syntax" if state.startswith(_WRONG_SQL) else "error", text)

    def ddl(self) -> str:
        """CREATE statements from the catalogue: columns, keys and comments; tables before views."""
        with self._lock, self._reading():
            tables = self._connection.execute(_TABLES).fetchall()
            return "\n\n".join(self._create(*table) for table in tables)

    def _create(self, schema: str, name: str, oid: int, kind: str) -> str:
        full = _quoted(name) if schema == "public" else f"{_quoted(schema)}.{_quoted(name)}"
        if kind in ("v", "m"):
            row = self._connection.execute("SELECT pg_catalog.pg_get_viewdef(%s::oid, true)", (oid,)).fetchone()
            body = str(row[0]).strip().rstrip(";") if row else ""
            return f"CREATE {'MATERIALIZED ' if kind == 'm' else ''}VIEW {full} AS\n{body};"
        columns = self._connection.execute(_COLUMNS, (oid,)).fetchall()
        constraints = [str(text) for (text,) in self._connection.execute(_CONSTRAINTS, (oid,)).fetchall()]
        parts = [(f"{_quoted(column)} {type_}{' NOT NULL' if bound else ''}", note) for column, type_, bound, note in columns]
        parts += [(text, None) for text in constraints]
        lines = [
            f"  {text}{',' if k + 1 < len(parts) else ''}" + (f" -- {' '.join(note.split())}" if note else "")
            for k, (text, note) in enumerate(parts)
        ]
        return f"CREATE TABLE {full} (\n" + "\n".join(lines) + "\n);"

    def fingerprint(self) -> str:
        """SHA-256 of the schema and of every row of every table, whatever their order on disk."""
        digest = hashlib.sha256(self.ddl().encode())
        with self._lock, self._reading():
            for schema, name, _, kind in self._connection.execute(_TABLES).fetchall():
                if kind in ("v", "f"):
                    continue
                query = composed.SQL("SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM {} t").format(
                    composed.Identifier(schema, name)
                )
                digest.update(repr((schema, name, *(self._connection.execute(query).fetchone() or ()))).encode())
        return digest.hexdigest()

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def _quoted(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'
