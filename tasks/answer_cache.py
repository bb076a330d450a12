"""Answers of a model in one SQLite file, by request key: nothing is asked, or paid for, twice."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from stef_core.errors import RuleError, StefError, TransientError
from stef_core.llm import StoredAnswer

logger = logging.getLogger(__name__)

Journal: TypeAlias = Literal["auto", "wal", "delete"]

BUSY_TIMEOUT_S = 120.0  # how long a write waits for another process's; `stef cache prune` rewrites a large file in less
SWITCH_TIMEOUT_S = 5.0  # how long a file that others have open is waited for before its journal is changed
MOUNTS = Path("/proc/self/mountinfo")
# file systems whose hosts do not share memory, so that the index of a write-ahead log is not one; all of fuse. besides
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p virtiofs afs ceph lustre gpfs beegfs glusterfs orangefs pvfs2 panfs ocfs2 gfs2 "
    "vboxsf prl_fs fakeowner coda".split()
)

_PAGE_BYTES = 16384  # an answer of a thousand bytes fits into such a page beside others; the default would take one for itself
_LOOKUP = 500  # keys a query; SQLite's oldest limit of parameters is 999
_NOTED_AT = 5000  # uses held in memory at most before they are written
_RETRY_S = 0.05
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)

_COLUMNS = "text, reason, model, schema_name, step, tokens_in, tokens_out, calls, probability"
_TABLES = {
    "answers": """CREATE TABLE IF NOT EXISTS answers (
        key TEXT PRIMARY KEY,
        text TEXT NOT NULL,
        reason TEXT,
        model TEXT NOT NULL,
        schema_name TEXT NOT NULL,
        step TEXT NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        created_at REAL NOT NULL,
        probability REAL
    ) WITHOUT ROWID""",
    # beside the answers, because an answer's text would be written again with each use
    "uses": "CREATE TABLE IF NOT EXISTS uses (key TEXT PRIMARY KEY, used_at REAL NOT NULL) WITHOUT ROWID",
    "hits": """CREATE TABLE IF NOT EXISTS hits (
        model TEXT NOT NULL,
        schema_name TEXT NOT NULL,
        hits INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        PRIMARY KEY (model, schema_name)
    ) WITHOUT ROWID""",
    # which answers a warehouse has been given; failed: it was given a settled failure, which an answer may yet replace
    "shared": """CREATE TABLE IF NOT EXISTS shared (
        key TEXT NOT NULL,
        target TEXT NOT NULL,
        failed INTEGER NOT NULL,
        PRIMARY KEY (key, target)
    ) WITHOUT ROWID""",
}
_ADDED = {"probability": "REAL"}  # columns that a file of an earlier version lacks
_INSERT = (
    f"INSERT INTO answers (key, {_COLUMNS}, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?) "  # noqa: S608
    "ON CONFLICT (key) DO UPDATE SET text=excluded.text, reason=excluded.reason, step=excluded.step, "
    "tokens_in=excluded.tokens_in, tokens_out=excluded.tokens_out, calls=excluded.calls, probability=excluded.probability, "
    "created_at=excluded.created_at "
    "WHERE answers.reason IS NOT NULL AND excluded.reason IS NULL"
)
_USE = "INSERT INTO uses VALUES (?,?) ON CONFLICT (key) DO UPDATE SET used_at=max(uses.used_at, excluded.used_at)"
_HIT = (
    "INSERT INTO hits VALUES (?,?,?,?,?) ON CONFLICT (model, schema_name) DO UPDATE SET hits=hits+excluded.hits, "
    "tokens_in=tokens_in+excluded.tokens_in, tokens_out=tokens_out+excluded.tokens_out"
)

# closing any handle of a file drops the locks that SQLite holds on it in this process: a file is made before it is opened,
# and nothing here opens it again but SQLite
_making = threading.Lock()
_caches: weakref.WeakSet[SqliteAnswerCache] = weakref.WeakSet()
_inherited: list[sqlite3.Connection] = []


class SqliteAnswerCache:
    """An `AnswerCache` of stef_core.llm in a file that only its owner may read.

    Safe under threads, and under processes that share a file system. An answer that `put_many` returned for outlives the death
    of its process. On a disk of this machine SQLite keeps a write-ahead log, which is fast and may lose the last answers when
    the machine itself loses power; that log does not work between hosts, so on a network file system SQLite keeps a rollback
    journal, and relies on the locks of that file system. A file that may not be written is read, and `put_many` says so.

    Args:
        path: The file; made with its folders where absent.
        journal: ``wal`` or ``delete`` (rollback journal); ``auto`` takes what the file has, or for a new file what its file
            system can do, and takes ``delete`` on a network file system.
        clock: Seconds since the epoch, for the age of an answer.
        mounts: Which file systems there are, in the form of Linux; where there is no such file, all are taken as local.

    Raises:
        RuleError: The path cannot be used, is no cache file or a damaged one.
        TransientError: Another process held the file all the time.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        journal: Journal = "auto",
        clock: Callable[[], float] = time.time,
        mounts: Path = MOUNTS,
    ) -> None:
        self.path = Path(path).expanduser()
        self.read_only = False
        self._journal, self._clock, self._mounts = journal, clock, mounts
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._left_to_parent = False
        self._used: dict[str, float] = {}
        self._hits: dict[tuple[str, str], list[int]] = {}
        with self._refusing():
            self._make()
            self._connection = self._connect()
        _caches.add(self)

    def __enter__(self) -> SqliteAnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- an AnswerCache ---

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Those of the keys that are there.

        Raises:
            RuleError: The file is damaged.
            TransientError: The file could not be read.
        """
        found: dict[str, StoredAnswer] = {}
        for start in range(0, len(keys), _LOOKUP):
            part = list(keys[start : start + _LOOKUP])
            marks = ",".join("?" * len(part))
            with self.session() as connection:
                rows = connection.execute(f"SELECT key, {_COLUMNS} FROM answers WHERE key IN ({marks})", part).fetchall()  # noqa: S608
            found |= {key: stored_answer(columns) for key, *columns in rows}
        self.count_hits(found)
        return found

    def put_many(self, answers: Mapping[str, StoredAnswer]) -> None:
        """Keep answers in one transaction; an answer replaces a failure, and nothing replaces an answer.

        Raises:
            RuleError: The file is damaged.
            TransientError: The file could not be written, or not within the time that a write waits.
        """
        if self.read_only:
            raise TransientError(f"{self.path}: cannot be written; set STEF_CACHE to a file that can")
        now = self._clock()
        rows = [
            (
                key,
                _storable(a.text),
                a.reason,
                a.model,
                a.schema_name,
                a.step,
                a.tokens_in,
                a.tokens_out,
                a.calls,
                a.probability,
                now,
            )
            for key, a in answers.items()
        ]
        with self.transaction() as connection:
            connection.executemany(_INSERT, rows)

    def close(self) -> None:
        """Write what is still to be noted and close the file; calling it twice is harmless."""
        self.note_uses()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- uses ---

    def count_hits(self, answers: Mapping[str, StoredAnswer]) -> None:
        """Remember that these answers saved a request each; written in one go when the cache is closed."""
        now = self._clock()
        with self._lock:
            for key, answer in answers.items():
                self._used[key] = now
                sums = self._hits.setdefault((answer.model, answer.schema_name), [0, 0, 0])
                for place, amount in enumerate((1, answer.tokens_in, answer.tokens_out)):
                    sums[place] += amount
            is_full = len(self._used) >= _NOTED_AT
        if is_full:
            self.note_uses()

    def note_uses(self) -> None:
        """Write which answers were used, for `stef cache`; where that fails, a run loses nothing."""
        with self._lock:
            used, self._used = self._used, {}
            hits, self._hits = self._hits, {}
        if not used or self.read_only:
            return
        try:
            with self.transaction() as connection:
                connection.executemany(_USE, used.items())
                connection.executemany(_HIT, [(*about, *sums) for about, sums in hits.items()])
        except StefError as error:
            logger.debug("uses of answers are not noted: %s", error)

    # --- for what keeps the file in order ---

    def count(self) -> int:
        """Answers and settled failures kept."""
        with self.session() as connection:
            return int(connection.execute("SELECT count(*) FROM answers").fetchone()[0])

    @contextlib.contextmanager
    def session(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; SQLite's errors become ours.

        Raises:
            RuleError: The file is damaged.
            TransientError: The file is closed, or cannot be read or written.
        """
        with self._lock:
            if self._connection is None and self._left_to_parent:
                with self._refusing():
                    self._connection = self._connect()
                self._left_to_parent = False
            if self._connection is None:
                raise TransientError(f"{self.path}: the answer cache is closed")
            try:
                yield self._connection
            except (sqlite3.Error, OverflowError) as error:  # the second: a count of tokens that is no count
                if _code(error) in _DAMAGED:
                    raise RuleError(self._damaged(error)) from error
                raise TransientError(f"{self.path}: the answer cache cannot be used: {error}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """As `session`, all writes in it together or none."""
        with self.session() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled it back already
                    connection.execute("ROLLBACK")
                raise

    # --- opening ---

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _code(error) in _HELD:
                raise TransientError(f"{self.path}: the answer cache is held by another process: {error}") from error
            if _code(error) in _DAMAGED:
                raise RuleError(self._damaged(error)) from error
            raise RuleError(self._unusable(error)) from error
        except OSError as error:
            raise RuleError(self._unusable(error)) from error

    def _unusable(self, why: object) -> str:
        return f"{self.path}: no answer cache can be kept there: {why}; set STEF_CACHE to another file"

    def _damaged(self, why: object) -> str:
        return f"{self.path}: is damaged, or no answer cache: {why}; move it away, or set STEF_CACHE to another file"

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _making, contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if not self.path.is_file():
            raise OSError("it is no file")
        self.read_only = not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    def _connect(self) -> sqlite3.Connection:
        if self.read_only:
            return self._connect_to_read()
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            self._refuse_foreign(connection)
            # the death of a process harms neither journal; a rollback journal is only safe from that of a host when written out
            mode = self._set_journal(connection)
            connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
            self._add_tables(connection)
            for name in ("", "-wal", "-shm"):  # a cache that was there may have been open to others
                with contextlib.suppress(FileNotFoundError):
                    _close_to_others(self.path.with_name(f"{self.path.name}{name}"))
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        address = self.path.absolute().as_uri() + "?mode=ro"
        try:
            return _read_only(address)
        except sqlite3.OperationalError:
            # where the folder may not be written, a file with a write-ahead log opens only as one that nobody writes
            return _read_only(f"{address}&immutable=1")

    def _set_journal(self, connection: sqlite3.Connection) -> str:
        on_network = is_on_network(self.path, self._mounts)
        mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
        wanted: str = self._journal
        is_new = connection.execute("PRAGMA page_count").fetchone()[0] == 0
        if is_new:
            connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        if wanted == "auto":
            # a file that somebody gave a rollback journal may be open on other hosts, to which its disk is not local
            wanted = "delete" if on_network else "wal" if is_new else mode
        deadline = time.monotonic() + SWITCH_TIMEOUT_S
        while mode != wanted:
            try:
                mode = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0]
            except sqlite3.OperationalError as error:
                if _code(error) not in _HELD:
                    raise
                if time.monotonic() >= deadline:
                    raise RuleError(
                        f"{self.path}: others have it open with the journal {mode!r}, {wanted!r} is wanted"
                        f"{' on a network file system' if on_network else ''}; end them, or set STEF_CACHE_JOURNAL={mode}"
                    ) from error
                time.sleep(_RETRY_S)
            else:
                break  # a system without shared memory keeps its rollback journal, which does as well
        return mode

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        has_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
        columns = {row[1] for row in connection.execute("PRAGMA table_info(answers)")}
        if has_tables and not {"key", "created_at", *_COLUMNS.split(", ")} <= {*columns, *_ADDED}:
            raise RuleError(self._unusable("it is a database of something else"))

    def _add_tables(self, connection: sqlite3.Connection) -> None:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        there = {row[1] for row in connection.execute("PRAGMA table_info(answers)")}
        for column, kind in _ADDED.items() if there else ():
            if column not in there:
                with contextlib.suppress(sqlite3.OperationalError):  # another process has just added it
                    connection.execute(f"ALTER TABLE answers ADD COLUMN {column} {kind}")
        if not _TABLES.keys() <= names:
            connection.execute("BEGIN IMMEDIATE")
            for sql in _TABLES.values():
                connection.execute(sql)
            connection.execute("COMMIT")

    # --- fork ---

    def _leave_to_parent(self) -> None:
        """Keep hands off a connection that came with a fork: SQLite forbids to use or even close it here."""
        self._lock = threading.Lock()
        self._used, self._hits = {}, {}
        if self._connection is not None:
            _inherited.append(self._connection)
            self._connection, self._left_to_parent = None, True


def is_on_network(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether a file that is there may be used by other hosts too; False where the system does not tell."""
    kind = file_system_of(path, mounts) or ""
    return kind in NETWORK or kind.startswith("fuse.")


def file_system_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that holds a file, e.g. ``ext4``, as the list of mounts has it; None where it has none."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields = line.split()
        # the type follows a hyphen, after a number of optional fields
        if len(fields) > 6 and fields[2] == wanted and "-" in fields[6:-1]:
            return fields[fields.index("-", 6) + 1]
    return None


def _figures(answer: StoredAnswer) -> tuple[int, int, int, float | None]:
    return answer.tokens_in, answer.tokens_out, answer.calls, answer.probability


def stored_answer(columns: Sequence[Any]) -> StoredAnswer:
    """A row of ``text, reason, model, schema_name, step, tokens_in, tokens_out, calls, probability``."""
    text, reason, model, schema_name, step, tokens_in, tokens_out, calls, probability = columns
    return StoredAnswer(
        text=text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text,
        reason=reason,
        model=model,
        schema_name=schema_name,
        step=step,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        calls=calls,
        probability=probability,
    )


def _read_only(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM answers LIMIT 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _storable(text: str) -> str | bytes:
    """Text as SQLite takes it: a lone surrogate, which a model may send, has no UTF-8 and goes as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _close_to_others(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        path.chmod(0o600)


def _code(error: Exception) -> int:
    """SQLite's primary code of an error; -1 where Python itself raised it."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    for cache in tuple(_caches):
        cache._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
