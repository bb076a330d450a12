"""Which requests are under way in batches, in one SQLite file beside the answer cache. Knows no Prefect."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from stef_core.errors import RuleError, TransientError
from stef_core.openai_batch import Chunk

BUSY_TIMEOUT_S = 30.0  # how long a write waits for another process's
_LOOKUP = 400  # keys a query; SQLite's oldest limit of parameters is 999

_TABLES = (
    """CREATE TABLE IF NOT EXISTS chunks (
        mark TEXT PRIMARY KEY,
        endpoint TEXT NOT NULL,
        model TEXT NOT NULL,
        step TEXT NOT NULL,
        tries INTEGER NOT NULL,
        batch_id TEXT,
        planned_at REAL NOT NULL
    )""",
    # mark NULL: not under way, and `tries` batches came to nothing; a line that was answered leaves
    """CREATE TABLE IF NOT EXISTS lines (
        endpoint TEXT NOT NULL,
        key TEXT NOT NULL,
        mark TEXT,
        tries INTEGER NOT NULL,
        PRIMARY KEY (endpoint, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS lines_of ON lines (mark)",
)


class SqliteBatchJournal:
    """A `BatchJournal` of stef_core.openai_batch in a file that only its owner may read.

    Safe under threads and processes; written out before a method returns, so that not even a loss of power makes a batch twice.

    Args:
        path: The file; made with its folders where absent.
        clock: Seconds since the epoch.

    Raises:
        RuleError: The path cannot be written or is no journal.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path).expanduser()
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = FileLock(f"{self.path}.lock", mode=0o600)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise RuleError(self._unusable(error)) from error
        try:
            self._connection.execute("PRAGMA synchronous=FULL")
            for sql in _TABLES:
                self._connection.execute(sql)
        except sqlite3.Error as error:
            self._connection.close()
            raise RuleError(self._unusable(error)) from error

    def __enter__(self) -> SqliteBatchJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; calling it twice is harmless."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Held by one process at a time, and let go by the system when that process dies."""
        with self._turn:
            yield

    def plan(self, chunk: Chunk) -> None:
        """Note a chunk before anything of it is sent.

        Raises:
            TransientError: The file could not be written; so for the other methods.
        """
        rows = [(chunk.endpoint, key, chunk.mark, chunk.tries) for key in chunk.keys]
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO chunks VALUES (?,?,?,?,?,NULL,?)",
                (chunk.mark, chunk.endpoint, chunk.model, chunk.step, chunk.tries, self._clock()),
            )
            connection.executemany("INSERT OR REPLACE INTO lines VALUES (?,?,?,?)", rows)

    def submitted(self, mark: str, batch_id: str) -> None:
        """Note the batch of a chunk."""
        with self._transaction() as connection:
            connection.execute("UPDATE chunks SET batch_id = ? WHERE mark = ?", (batch_id, mark))

    def drop(self, mark: str) -> None:
        """Forget a chunk of which no batch was made; its lines keep their tries."""
        with self._transaction() as connection:
            connection.execute("UPDATE lines SET mark = NULL WHERE mark = ?", (mark,))
            connection.execute("DELETE FROM chunks WHERE mark = ?", (mark,))

    def under_way(self, endpoint: str, keys: Sequence[str]) -> list[Chunk]:
        """The chunks that hold any of the keys, each with all its keys that are still under way, oldest first."""
        chunks = []
        with self._transaction() as connection:
            marks = {mark for _, mark, _ in self._found(connection, endpoint, keys) if mark is not None}
            for mark in marks:
                model, step, tries, batch_id, planned_at = connection.execute(
                    "SELECT model, step, tries, batch_id, planned_at FROM chunks WHERE mark = ?", (mark,)
                ).fetchone()
                held = connection.execute("SELECT key FROM lines WHERE mark = ? ORDER BY key", (mark,)).fetchall()
                chunks.append(
                    Chunk(
                        mark=mark,
                        endpoint=endpoint,
                        model=model,
                        step=step,
                        keys=tuple(key for (key,) in held),
                        tries=tries,
                        batch_id=batch_id,
                        planned_at=planned_at,
                    )
                )
        return sorted(chunks, key=lambda chunk: (chunk.planned_at, chunk.mark))

    def tries(self, endpoint: str, keys: Sequence[str]) -> dict[str, int]:
        """In how many batches the keys came to nothing, where that is so and they are not under way."""
        with self._transaction() as connection:
            return {key: tries for key, mark, tries in self._found(connection, endpoint, keys) if mark is None and tries}

    def settle(self, mark: str, answered: Sequence[str], unanswered: Mapping[str, int]) -> None:
        """Take keys out of a chunk, in one step; a chunk without keys goes."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM lines WHERE mark = ? AND key = ?", [(mark, key) for key in answered])
            connection.executemany(
                "UPDATE lines SET mark = NULL, tries = ? WHERE mark = ? AND key = ?",
                [(tries, mark, key) for key, tries in unanswered.items()],
            )
            connection.execute(
                "DELETE FROM chunks WHERE mark = ? AND NOT EXISTS (SELECT 1 FROM lines WHERE lines.mark = chunks.mark)", (mark,)
            )

    def _found(self, connection: sqlite3.Connection, endpoint: str, keys: Sequence[str]) -> list[tuple[str, str | None, int]]:
        found: list[tuple[str, str | None, int]] = []
        for start in range(0, len(keys), _LOOKUP):
            part = list(keys[start : start + _LOOKUP])
            marks = ",".join("?" * len(part))
            sql = f"SELECT key, mark, tries FROM lines WHERE endpoint = ? AND key IN ({marks})"  # noqa: S608
            found += connection.execute(sql, [endpoint, *part]).fetchall()
        return found

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise TransientError(f"{self.path}: the journal of batches cannot be used: {error}") from error

    def _unusable(self, why: object) -> str:
        return f"{self.path}: no journal of batches can be kept there: {why}; set STEF_CACHE to another file"
