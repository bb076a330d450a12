"""The warehouse in a PostgreSQL database: schema ``stef`` for what is published, ``stef_staging`` for what waits."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from importlib.resources import files
from typing import Any

import polars as pl
import polars.selectors as cs
import psycopg
from psycopg import errors
from psycopg.types.string import TextLoader

from stef_core.errors import BusyError, InputError, RuleError, TransientError
from tasks.postgres_url import fails_for_good, name_of, options_of, said
from tasks.warehouse.sql import SqlWarehouse

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[tuple[Any, ...]]

_PUBLISHED, _STAGING = "stef", "stef_staging"
_ROWS = 5_000  # read or sent at once, which bounds memory
_RETRY_S, _RETRY_MOST_S = 0.1, 5.0
_CONNECT_S = 10
# every setting belongs to its transaction, so that a pooler may hand the next one to another session
_BEGIN = """
BEGIN ISOLATION LEVEL {level};
SET LOCAL search_path TO stef;
SET LOCAL TimeZone TO 'UTC';
SET LOCAL DateStyle TO 'ISO';
SET LOCAL extra_float_digits TO 1;
SET LOCAL cursor_tuple_fraction TO 1;
SET LOCAL lock_timeout TO {wait_ms}
"""
_READ, _WRITE = "REPEATABLE READ READ ONLY", "READ COMMITTED READ WRITE"
# a dead host or network is noticed within a minute; a URL may say otherwise
_DEFAULTS = {
    "fallback_application_name": "stef",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# the server's side of the same, for a session that does nothing but hold a day
_CLAIMING = """
SET tcp_keepalives_idle TO 30;
SET tcp_keepalives_interval TO 10;
SET tcp_keepalives_count TO 3;
SET idle_session_timeout TO 0;
SET statement_timeout TO 0;
SET lock_timeout TO {wait_ms}
"""
_COLUMNS = """
SELECT c.relname, a.attname
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
# connection, time limits of a transaction, serialization, resources, operator, system: the same may work later
_AWAY = ("08", "25P03", "25P04", "40", "53", "57", "58")
# types of PostgreSQL that have one of their own in a frame; all others are text
_TYPES: dict[int, type[pl.DataType] | pl.DataType] = {
    16: pl.Boolean,
    21: pl.Int16,
    23: pl.Int32,
    20: pl.Int64,
    700: pl.Float32,
    701: pl.Float64,
    1700: pl.Float64,
    1082: pl.Date,
    1114: pl.Datetime("us"),
    1184: pl.Datetime("us", "UTC"),
}


class PostgresWarehouse(SqlWarehouse):
    """A `tasks.warehouse.Warehouse` in a PostgreSQL database.

    Readers see a day as it was until it is published, and wait for nobody: a publish takes row locks only. Writers of one day
    take turns by an advisory lock that ends with their transaction. A server that has gone away between two calls is
    connected to anew; inside a call its loss is a `TransientError`, and nothing of the call remains.

    Args:
        url: ``postgresql://…`` with whatever libpq knows: the folder of a socket as ``?host=``, ``sslmode``, ``sslrootcert``.
        read_only: Open for reading.
        wait_s: Seconds to wait for a server that starts, restarts or has no connection to spare, and for locks of others.

    Raises:
        RuleError: The URL, the login or the database cannot be used; the message says why.
        TransientError: The server could not be reached within `wait_s`.
        BusyError: It had no connection to spare, or another process held the schema all that time.
    """

    def __init__(self, url: str, *, read_only: bool = False, wait_s: float = 60.0) -> None:
        self._options = options_of(url, "warehouse")
        super().__init__(name_of(self._options))
        self._read_only = read_only
        self._wait_s = wait_s
        self._connection: Connection | None = self._connect()
        try:
            if read_only:
                self.check()
            else:
                self.migrate()
        except BaseException:
            self.close()
            raise

    # --- opening and closing ----------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        """Connect, again and again while the server is away or full."""
        deadline = time.monotonic() + self._wait_s
        pause = _RETRY_S
        while True:
            try:
                return self._attempt(deadline)
            except psycopg.OperationalError as error:
                if fails_for_good(error):
                    raise RuleError(f"{self.name}: {said(error)}") from error
                if time.monotonic() >= deadline:
                    raise self._unreached(error) from error
                logger.info("%s: cannot be reached yet: %s", self.name, said(error))
            except TransientError:
                if time.monotonic() >= deadline:
                    raise
            except psycopg.Error as error:
                raise RuleError(f"{self.name}: cannot be used: {said(error)}") from error
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _RETRY_MOST_S)

    def _unreached(self, error: psycopg.OperationalError) -> TransientError:
        waited = f"{said(error)}, still after {self._wait_s:g} s"
        if re.search("too many clients|connection slots|too many connections", str(error)):
            return BusyError(f"{self.name}: has no connection to spare: {waited}; let others finish, or wait longer")
        return TransientError(f"{self.name}: cannot be reached: {waited}; start the server, correct the URL, or wait longer")

    def _attempt(self, deadline: float) -> Connection:
        patience = max(2, min(_CONNECT_S, int(deadline - time.monotonic())))
        connection = psycopg.connect(
            **{"connect_timeout": str(patience), **_DEFAULTS, **self._options, "client_encoding": "utf8"},  # type: ignore[arg-type]
            autocommit=True,
            prepare_threshold=None,  # a pooler may hand the next transaction to a session that has not prepared it
            cursor_factory=psycopg.RawCursor,
        )
        try:
            self._refuse_unfit(connection)
        except BaseException:
            connection.close()
            raise
        connection.server_cursor_factory = psycopg.RawServerCursor
        for kind in connection.adapters.types:  # all arrives as text, which polars turns into columns faster than Python does
            for oid in filter(None, (kind.oid, kind.array_oid)):
                connection.adapters.register_loader(oid, TextLoader)
        return connection

    def _refuse_unfit(self, connection: Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise RuleError(f"{self.name}: its encoding is {encoding}, which not every question fits in; make it with UTF8")
        if not self._read_only and connection.info.parameter_status("in_hot_standby") == "on":
            raise TransientError(
                f"{self.name}: is a standby, which takes no writes; "
                "name the primary, or all servers with target_session_attrs=read-write"
            )

    def close(self) -> None:
        """Let go of the connection; closing twice is fine."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- the primitives ---------------------------------------------------------------------------------------------

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise RuleError(f"{self.name}: this connection is closed; connect again")
        return self._connection

    @contextmanager
    def _transaction(self, *, read_only: bool = False) -> Iterator[None]:
        if self._read_only and not read_only:
            raise RuleError(f"{self.name}: opened for reading only")
        with self._errors(writing=not read_only):
            try:
                self._begin(read_only=read_only)
                yield
                # what reads leaves nothing behind, whatever its functions have set
                self._open.execute("ROLLBACK" if read_only else "COMMIT")
            except BaseException:
                with suppress(psycopg.Error):  # a connection that is gone has rolled back already
                    self._open.execute("ROLLBACK")
                raise

    def _begin(self, *, read_only: bool) -> None:
        begin = _BEGIN.format(level=_READ if read_only else _WRITE, wait_ms=_milliseconds(self._wait_s))
        if read_only and self._open.info.parameter_status("is_superuser") == "on":
            begin += "; SET LOCAL ROLE pg_read_all_data"  # whose functions cannot write the server's files
        try:
            self._open.execute(begin)
        except psycopg.OperationalError:
            # the server went away since the last call; nothing of this one has been done yet
            self._open.close()
            self._connection = self._connect()
            self._connection.execute(begin)

    def _execute(self, sql: str, params: Sequence[object] = ()) -> None:
        self._open.execute(_native(sql), list(params) or None)

    def _fetch(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        # a named cursor is declared for one SELECT, and for nothing else
        with self._open.cursor(name="stef") as cursor:
            cursor.execute(_native(sql), list(params) or None)
            columns = [(column.name, column.type_code) for column in cursor.description or ()]
            parts = [_frame(columns, cursor.fetchmany(_ROWS))]
            while parts[-1].height == _ROWS:
                parts.append(_frame(columns, cursor.fetchmany(_ROWS)))
        return pl.concat(parts)

    def _fetch_parts(self, sql: str, params: Sequence[object], rows: int) -> Iterator[pl.DataFrame]:
        with self._open.cursor(name="stef") as cursor:
            cursor.execute(_native(sql), list(params) or None)
            columns = [(column.name, column.type_code) for column in cursor.description or ()]
            while found := cursor.fetchmany(rows):
                yield _frame(columns, found)

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        copy_in = f"COPY {_native(table)} ({', '.join(frame.columns)}) FROM STDIN"
        with self._open.cursor() as cursor, cursor.copy(copy_in) as copy:
            for part in frame.iter_slices(_ROWS):
                copy.write(_copy_text(part))

    def _hold(self, what: str) -> None:
        try:
            self._execute("SELECT pg_advisory_xact_lock($1)", (_lock_key(what),))
        except errors.LockNotAvailable as error:
            raise self._busy(f"another process writes the {what}") from error

    def _busy(self, why: str) -> BusyError:
        return BusyError(f"{self.name}: {why}, still after {self._wait_s:g} s; let it finish and try again, or wait longer")

    @contextmanager
    def _errors(self, *, writing: bool = False) -> Iterator[None]:
        """PostgreSQL's errors as ours, by what the caller does about them."""
        try:
            yield
        except errors.LockNotAvailable as error:
            raise self._busy("another process holds a table that this needs") from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.IntegrityError) or (writing and isinstance(error, psycopg.DataError)):
                raise InputError(f"{self.name}: {said(error)}") from error
            is_lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
            if is_lost or (error.sqlstate or "").startswith(_AWAY):
                raise TransientError(f"{self.name}: the server gave up: {said(error)}; try again") from error
            raise RuleError(f"{self.name}: {said(error)}") from error
        except (pl.exceptions.PolarsError, UnicodeError) as error:
            raise RuleError(f"{self.name}: {said(error)}") from error

    # --- the schema -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Bring the schema up to this version's (see `Warehouse.migrate`); only the owner of its tables may."""
        try:
            return super().migrate()
        except RuleError as error:
            if isinstance(error.__cause__, errors.InsufficientPrivilege):
                raise RuleError(
                    f"{self.name}: its tables must be made, or brought up to date, by the role that owns them: "
                    f"run `stef migrate` as that role ({said(error.__cause__)})"
                ) from error.__cause__
            raise

    def _prepare(self) -> None:
        for schema in (_PUBLISHED, _STAGING):
            # asked first, because IF NOT EXISTS needs the right to make one even when there is nothing to do
            if self._fetch("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", (schema,)).is_empty():
                self._execute(f"CREATE SCHEMA {schema}")

    def _script(self, sql: str) -> None:
        sql = re.sub(r"(?m)^CREATE SCHEMA staging;$", "", sql)
        # text is ordered by its bytes on every database, whatever language this one was made for
        self._execute(re.sub(r"(?m)^(\s*(?:ALTER TABLE .* ADD COLUMN )?\w+ )TEXT\b", r'\1TEXT COLLATE "C"', sql))

    def _made_anew(self) -> str:
        return super()._made_anew() + (files("tasks.warehouse") / "postgres_indexes.sql").read_text(encoding="utf-8")

    def _columns(self) -> dict[str, list[str]]:
        # information_schema hides what a role may not read, and would make it look like an older schema
        columns: dict[str, list[str]] = {}
        for table, column in self._fetch(_COLUMNS, (_PUBLISHED,)).rows():
            columns.setdefault(table, []).append(column)
        return columns

    # --- one writer a day -------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, day: date, *, wait_s: float = 2.0) -> Iterator[None]:
        """Be the only one to work on a day (see `Warehouse.claim`), by a session of its own that holds an advisory lock."""
        if self._read_only:
            raise RuleError(f"{self.name}: opened for reading only")
        with self._errors():
            session = self._connect()
            try:
                session.execute(_CLAIMING.format(wait_ms=_milliseconds(wait_s)))
                session.execute("SELECT pg_advisory_lock($1)", (_lock_key(f"claim {day}"),))
            except errors.LockNotAvailable:
                session.close()
                raise self.day_is_held(day) from None
            except BaseException:
                session.close()
                raise
        try:
            yield
        finally:
            session.close()


def _milliseconds(seconds: float) -> int:
    return min(max(1, int(1000 * seconds)), 2**31 - 1)  # 0 would mean for ever


def _lock_key(what: str) -> int:
    """A number of 64 bits for a lock's name; locks of a database are told apart by nothing else."""
    return int.from_bytes(hashlib.sha256(f"stef {what}".encode()).digest()[:8], "big", signed=True)


def _native(sql: str) -> str:
    """Portable SQL with the schema of staging by its name here; texts and comments stay as they are."""
    parts = r"--[^\n]*|'(?:[^']|'')*'|\bstaging(?=\.)"
    return re.sub(parts, lambda found: _STAGING if found[0] == "staging" else found[0], sql)


def _frame(columns: Sequence[tuple[str, int]], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows of texts as a frame of the columns' types."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    texts = [pl.Series(name, list(column), dtype=pl.String) for (name, _), column in zip(columns, values, strict=True)]
    kinds = {name: _TYPES[oid] for name, oid in columns if oid in _TYPES}
    return pl.DataFrame(texts).with_columns(_typed(name, kind) for name, kind in kinds.items())


def _typed(name: str, kind: type[pl.DataType] | pl.DataType) -> pl.Expr:
    text = pl.col(name)
    if kind == pl.Boolean:
        return text == "t"
    if kind == pl.Date:
        return text.str.to_date("%Y-%m-%d")
    if isinstance(kind, pl.Datetime):
        moment = text.str.strip_suffix("+00").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone=None)
        return moment.dt.replace_time_zone(kind.time_zone)
    return text.cast(kind)


def _copy_text(frame: pl.DataFrame) -> bytes:
    """A frame in the text format of COPY. No text of PostgreSQL holds a NUL: the sign for the unreadable stands for it."""
    escaped = cs.string().str.replace_many(["\\", "\t", "\n", "\r", "\0"], ["\\\\", "\\t", "\\n", "\\r", "\ufffd"])
    return (
        frame.with_columns(escaped)
        .write_csv(
            include_header=False,
            separator="\t",
            quote_style="never",
            null_value="\\N",
            datetime_format="%Y-%m-%d %H:%M:%S%.6f%z",
        )
        .encode()
    )
