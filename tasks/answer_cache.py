"""Answers of a model in one SQLite file, by request key: nothing is asked, or paid for, twice."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from stef_core.errors import RuleError, TransientError
from stef_core.llm import StoredAnswer

BUSY_TIMEOUT_S = 30.0  # how long a write waits for another process's
_LOOKUP = 500  # keys a query; SQLite's oldest limit of parameters is 999

_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    reason TEXT,
    model TEXT NOT NULL,
    schema_name TEXT NOT NULL,
    step TEXT NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID
"""
_COLUMNS = "text, reason, model, schema_name, step, tokens_in, tokens_out, calls"

_INSERT = (
    f"INSERT INTO answers (key, {_COLUMNS}, created_at) VALUES (?,?,?,?,?,?,?,?,?,?) "  # noqa: S608
    "ON CONFLICT (key) DO UPDATE SET text=excluded.text, reason=excluded.reason, step=excluded.step, "
    "tokens_in=excluded.tokens_in, tokens_out=excluded.tokens_out, calls=excluded.calls, created_at=excluded.created_at "
    "WHERE answers.reason IS NOT NULL AND excluded.reason IS NULL"
)


class SqliteAnswerCache:
    """An `AnswerCache` of stef_core.llm in a file that only its owner may read.

    Safe under threads and under processes of one machine (write-ahead log); the log does not work on a network file system.

    Args:
        path: The file; made with its folders where absent.
        clock: Seconds since the epoch, for the age of an answer.

    Raises:
        RuleError: The path cannot be written or is no cache file.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path).expanduser()
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self.path.chmod(0o600)  # a file that was there may have been open to others
            # SQLite gives the write-ahead log the rights of its file
            self._connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_TABLE)
        except (OSError, sqlite3.DatabaseError) as error:
            self.close()
            raise RuleError(
                f"{self.path}: no answer cache can be kept there: {error}; set STEF_CACHE to another file"
            ) from error

    def __enter__(self) -> SqliteAnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Those of the keys that are there.

        Raises:
            TransientError: The file could not be read.
        """
        found: dict[str, StoredAnswer] = {}
        for start in range(0, len(keys), _LOOKUP):
            part = list(keys[start : start + _LOOKUP])
            marks = ",".join("?" * len(part))
            with self._open() as connection:
                rows = connection.execute(f"SELECT key, {_COLUMNS} FROM answers WHERE key IN ({marks})", part).fetchall()  # noqa: S608
            for key, text, reason, model, schema_name, step, tokens_in, tokens_out, calls in rows:
                found[key] = StoredAnswer(
                    text=text,
                    reason=reason,
                    model=model,
                    schema_name=schema_name,
                    step=step,
                    tokens_in=tokens_in,
                    tokens_out=tokens_out,
                    calls=calls,
                )
        return found

    def put_many(self, answers: Mapping[str, StoredAnswer]) -> None:
        """Keep answers in one transaction; an answer replaces a failure, and nothing replaces an answer.

        Raises:
            TransientError: The file could not be written within `BUSY_TIMEOUT_S`.
        """
        now = self._clock()
        rows = [
            (key, a.text, a.reason, a.model, a.schema_name, a.step, a.tokens_in, a.tokens_out, a.calls, now)
            for key, a in answers.items()
        ]
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(_INSERT, rows)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def count(self) -> int:
        """Answers and settled failures kept."""
        with self._open() as connection:
            return int(connection.execute("SELECT count(*) FROM answers").fetchone()[0])

    def close(self) -> None:
        """Close the file; calling it twice is harmless."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                raise TransientError(f"{self.path}: the answer cache is closed")
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise TransientError(f"{self.path}: the answer cache cannot be used: {error}") from error
