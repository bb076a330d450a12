"""SQLite, opened so that nothing can be written: ``mode=ro``, ``query_only``, an authorizer that lets reads through only."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from urllib.parse import quote

from stef_core.errors import RuleError
from stef_core.experiments.compare_results import ResultSet
from stef_core.experiments.execution import QueryFailure
from tasks.databases.base import ReadOnlyDatabase, digest_of, file_of, one_line

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
# pragmas that tell of the schema; they are table functions too
_TELLING = frozenset("table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list".split())
_TABLE_FUNCTIONS = ("json_each", "json_tree")
_STEPS = 20_000  # of SQLite's virtual machine between two looks at the clock: about a millisecond
_LONGEST_CELL = 50_000_000  # bytes; one step may not fill the memory


class SqliteDatabase(ReadOnlyDatabase):
    """A SQLite file.

    Args:
        rest: The part of the URL after ``sqlite://``.
        timeout_s: Seconds a query may take.
        max_rows: Rows a query may return.

    Raises:
        RuleError: There is no such file, or it is no SQLite database.
    """

    dialect = "sqlite"
    forbidden = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "fsdir", "lsdir"})

    def __init__(self, rest: str, *, timeout_s: float, max_rows: int) -> None:
        super().__init__(timeout_s=timeout_s, max_rows=max_rows)
        self._path = file_of(rest, "sqlite")
        name = f"file:{quote(str(self._path.resolve()))}?mode=ro"
        try:
            self._connection = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise RuleError(f"database {self._path}: cannot be opened: {one_line(str(error))}") from error
        try:
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            self._connection.close()
            raise RuleError(f"database {self._path}: not a SQLite database that can be read: {one_line(str(error))}") from error
        for function in (*_TABLE_FUNCTIONS, *(f"pragma_{name}" for name in sorted(_TELLING))):
            with suppress(sqlite3.Error):  # an older SQLite has fewer
                # their first use declares a table, which the authorizer would take for a write
                self._connection.execute(f"SELECT 1 FROM {function}('[]') LIMIT 1").fetchone()  # noqa: S608 - names above
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.set_authorizer(self._allows)
        self._connection.set_progress_handler(self._late, _STEPS)
        self._denied: str | None = None

    def _allows(self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        allowed = action in _READING and (action != sqlite3.SQLITE_FUNCTION or (second or "").casefold() not in self.forbidden)
        if allowed or (action == sqlite3.SQLITE_PRAGMA and (first or "").casefold() in _TELLING):
            return sqlite3.SQLITE_OK
        self._denied = second or first
        return sqlite3.SQLITE_DENY

    def _run(self, sql: str) -> ResultSet | QueryFailure:
        try:
            return self._fetch(sql)
        except sqlite3.OperationalError as error:
            if "Could not decode to UTF-8" not in str(error):
                return self._failure(error)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            return self._failure(error)
        # a text that is not UTF-8: its bytes stand for it
        self._connection.text_factory = _text_or_bytes
        try:
            return self._fetch(sql)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            return self._failure(error)
        finally:
            self._connection.text_factory = str

    def _fetch(self, sql: str) -> ResultSet | QueryFailure:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
            return self._gather([name for name, *_ in cursor.description or ()], cursor.fetchmany)
        finally:
            cursor.close()  # also ends a query that is stopped in the middle

    def _failure(self, error: BaseException) -> QueryFailure:
        text = one_line(str(error)) or type(error).__name__
        if text == "interrupted":
            return self._timeout()
        code = getattr(error, "sqlite_errorcode", None)  # absent where Python refused the query and not SQLite, as for SELECT ?
        if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
            return QueryFailure("refused", f"only reading is allowed: {text}")
        if isinstance(error, sqlite3.OperationalError) and code == sqlite3.SQLITE_ERROR:
            return QueryFailure("syntax", text)
        if isinstance(error, sqlite3.OperationalError) and code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR):
            return QueryFailure("unavailable", text)
        return QueryFailure("error", text)

    def ddl(self) -> str:
        """CREATE statements as they were written, tables before views and indexes left out."""
        with self._lock:
            self._deadline = float("inf")
            rows = self._connection.execute(
                "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql IS NOT NULL"
                " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
            ).fetchall()
        return "\n\n".join(f"{sql.strip().rstrip(';')};" for (sql,) in rows)

    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return digest_of(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
