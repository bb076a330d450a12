"""The warehouse in one DuckDB file: one writing process at a time, and a read-only copy beside it for BI."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

import duckdb
import polars as pl
from filelock import FileLock, Timeout

from stef_core.errors import BusyError, InputError, RuleError, TransientError
from stef_core.frames import TABLES
from tasks.warehouse.sql import SqlWarehouse

_RETRY_S = 0.1
# no extension is fetched from the network behind the user's back
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
}
_MEMORY = "192MB"  # of a writer; beyond it DuckDB works on disk, beside its file. Its own limit is most of the machine's memory
_WRITE_FOR_ALL = 0o222
_NOT_FOR_OTHERS = 0o770  # questions and SQL of a business: never for everybody, whatever the umask says


def path_of(rest: str) -> Path:
    """The file that the part of a URL after ``duckdb://`` names.

    Raises:
        RuleError: It names no file.
    """
    what = f"warehouse duckdb://{rest}"
    if not rest.startswith("/"):
        raise RuleError(f"{what}: three slashes before the path, as in duckdb:///path/warehouse.duckdb")
    name = rest.removeprefix("/")
    if name in ("", ":memory:"):
        raise RuleError(f"{what}: a warehouse must outlive its run; name a file, as in duckdb:///path/warehouse.duckdb")
    if "?" in name or "\0" in name:
        raise RuleError(f"{what}: takes no options; write duckdb:///path/warehouse.duckdb")
    return Path(name).expanduser()


def bi_copy_of(path: Path) -> Path:
    """Where the read-only copy of a warehouse file lies: ``warehouse.bi.duckdb`` beside ``warehouse.duckdb``."""
    return path.with_name(f"{path.stem}.bi.duckdb")


class DuckdbWarehouse(SqlWarehouse):
    """A `tasks.warehouse.Warehouse` in one DuckDB file.

    DuckDB lets one process write and nobody read meanwhile. Writers queue at ``<file>.lock``, which the system frees when its
    holder dies; whoever does not know that lock is noticed by DuckDB's own, and waited for as well.

    Args:
        path: The file; it and its folder are made when they do not exist and are to be written.
        read_only: Open for reading.
        wait_s: Seconds to wait for another process.
        made: The file was there a moment ago.

    Raises:
        RuleError: The file cannot be used; the message says why.
        BusyError: Another process still held the file after `wait_s`.
        TransientError: It was `made`, and is gone or empty.
    """

    def __init__(self, path: Path, *, read_only: bool = False, wait_s: float = 60.0, made: bool = False) -> None:
        super().__init__(str(path))
        self._made = made
        self._path = path
        self._read_only = read_only
        self._file_lock: FileLock | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None
        deadline = time.monotonic() + wait_s
        try:
            if read_only:
                self._open_to_read(deadline, wait_s)
            else:
                self._open_to_write(deadline, wait_s)
        except BaseException:
            self.close()
            raise

    # --- opening and closing ----------------------------------------------------------------------------------------

    def _refuse_lost(self) -> None:
        """A run must not go on in a new file, where the days before are missing, say because a disk was unmounted."""
        try:
            there = self._path.stat().st_size > 0
        except OSError:
            there = False
        if self._made and not there:
            raise TransientError(
                f"{self.name}: is gone since this run began; put it back, or run the day again to begin a new warehouse"
            )

    def _open_to_read(self, deadline: float, wait_s: float) -> None:
        self._refuse_lost()
        try:
            self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise RuleError(f"{self.name}: no warehouse there; score a day into it first") from None
        except OSError as error:
            raise RuleError(f"{self.name}: cannot be read: {_reason(error)}") from error
        self._connection = self._attempt(deadline, wait_s)
        self.check()

    def _open_to_write(self, deadline: float, wait_s: float) -> None:
        if self._path.name.endswith(".bi.duckdb"):
            raise RuleError(f"{self.name}: is the copy for BI; name the warehouse itself")
        self._refuse_lost()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # a lock that a killed process leaves behind would shut everybody out: no fallback to one
            lock = FileLock(f"{self._path}.lock", fallback_to_soft=False, thread_local=False)
            lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        except Timeout:
            raise self._busy(wait_s, "another process writes to it") from None
        except (OSError, NotImplementedError) as error:
            raise RuleError(f"{self.name}: cannot be written: {_reason(error)}") from error
        self._file_lock = lock
        self._refuse_lost()
        with suppress(FileNotFoundError):
            if self._path.stat().st_size == 0:  # its maker was killed before the first byte; DuckDB refuses to open it
                self._path.unlink()
        is_new = not self._path.exists()
        self._connection = self._attempt(deadline, wait_s)
        if is_new:
            self._path.chmod(self._path.stat().st_mode & _NOT_FOR_OTHERS)
        self.migrate()
        if self._is_bi_copy_stale():
            self._published()

    def _attempt(self, deadline: float, wait_s: float) -> duckdb.DuckDBPyConnection:
        """Connect, again and again while somebody else holds the file."""
        while True:
            try:
                return _connect(self._path, read_only=self._read_only)
            except duckdb.Error as error:
                if not _is_held(error):
                    raise RuleError(f"{self.name}: cannot be opened as a DuckDB warehouse: {_reason(error)}") from error
                if time.monotonic() >= deadline:
                    raise self._busy(wait_s, "another process holds it") from error
            time.sleep(min(_RETRY_S, max(0.0, deadline - time.monotonic())))

    def _busy(self, wait_s: float, why: str) -> BusyError:
        return BusyError(f"{self.name}: {why}, still after {wait_s:g} s; let it finish and try again, or wait longer")

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._file_lock is not None:
                self._file_lock.release()
                self._file_lock = None

    # --- the four primitives ----------------------------------------------------------------------------------------

    @property
    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise RuleError(f"{self.name}: this connection is closed; connect again")
        return self._connection

    @contextmanager
    def _transaction(self, *, read_only: bool = False) -> Iterator[None]:
        connection = self._open
        if self._read_only and not read_only:
            raise RuleError(f"{self.name}: opened for reading only")
        with self._errors():
            connection.execute("BEGIN TRANSACTION READ ONLY" if read_only else "BEGIN TRANSACTION")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):  # a failed COMMIT has rolled back already
                    connection.execute("ROLLBACK")
                raise

    def _execute(self, sql: str, params: Sequence[object] = ()) -> None:
        self._open.execute(sql, list(params) or None)

    def _fetch(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        statements = self._open.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise RuleError(f"{self.name}: one SELECT at a time, not {sql[:80]!r}")
        frame = pl.from_arrow(self._open.sql(sql, params=list(params) or None).to_arrow_table())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _fetch_parts(self, sql: str, params: Sequence[object], rows: int) -> Iterator[pl.DataFrame]:
        for batch in self._open.sql(sql, params=list(params) or None).to_arrow_reader(rows):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        names = ", ".join(frame.columns)
        # found by its name; one that is registered is held until the transaction ends
        arriving = frame.to_arrow()  # noqa: F841
        self._open.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM arriving")  # noqa: S608

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """DuckDB's errors as ours, by what the caller does about them."""
        try:
            yield
        except duckdb.ConstraintException as error:
            raise InputError(f"{self.name}: {_reason(error)}") from error
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise TransientError(f"{self.name}: could not be read or written: {_reason(error)}") from error
        except (duckdb.Error, pl.exceptions.PolarsError) as error:
            if re.search("Could not (write|read|sync|truncate)|No space left|has been invalidated", str(error)):
                raise TransientError(f"{self.name}: could not be read or written: {_reason(error)}") from error
            raise RuleError(f"{self.name}: {_reason(error)}") from error

    # --- one writer a day -------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, day: date, *, wait_s: float = 2.0) -> Iterator[None]:
        """Be the only one to work on a day (see `Warehouse.claim`), by a lock on a file beside the warehouse's."""
        if self._read_only:
            raise RuleError(f"{self.name}: opened for reading only")
        file = Path(f"{self._path}.{day}.lock")
        lock = FileLock(file, fallback_to_soft=False, thread_local=False)
        try:
            lock.acquire(timeout=wait_s)
        except Timeout:
            raise self.day_is_held(day) from None
        except (OSError, NotImplementedError) as error:
            raise RuleError(f"{self.name}: {day} cannot be claimed: {_reason(error)}") from error
        try:
            yield
        finally:
            # while it is still held: whoever waits for a file that is gone opens the new one
            file.unlink(missing_ok=True)
            lock.release()

    # --- the copy for BI --------------------------------------------------------------------------------------------

    def _published(self) -> None:
        """Leave a copy of what is published, complete with views, for readers who must not wait; swapped in whole."""
        copy = bi_copy_of(self._path)
        arriving = copy.with_name(f"{copy.name}.tmp")
        for leftover in (arriving, arriving.with_name(f"{arriving.name}.wal")):
            leftover.unlink(missing_ok=True)
        connection = self._open
        with self._errors():
            empty = _Copy(arriving)
            empty.migrate()
            empty.close()
            connection.execute(f"ATTACH '{str(arriving).replace(chr(39), 2 * chr(39))}' AS arriving_copy")
            try:
                with self._transaction():
                    self._execute("DROP TABLE arriving_copy.staging.llm_answers")
                    for table in TABLES:
                        self._execute(f"INSERT INTO arriving_copy.{table} BY NAME SELECT * FROM {table}")  # noqa: S608
                    self._execute("INSERT INTO arriving_copy.staging.manifest SELECT * FROM staging.manifest WHERE published")
            finally:
                connection.execute("DETACH arriving_copy")
        arriving.chmod(self._path.stat().st_mode & ~_WRITE_FOR_ALL)
        os.replace(arriving, copy)

    def _is_bi_copy_stale(self) -> bool:
        """Whether a run was killed between its publish and the swap, or somebody took the copy away."""
        state = "SELECT dt, table_name, run_id FROM staging.manifest WHERE published ORDER BY ALL"
        views = "SELECT checksum FROM schema_migrations ORDER BY version"
        with self._transaction(read_only=True):
            published = [self._fetch(state).rows(), self._fetch(views).rows()]
        if not published[0]:
            return False
        try:
            with _connect(bi_copy_of(self._path), read_only=True) as copy:
                return published != [copy.execute(state).fetchall(), copy.execute(views).fetchall()]
        except duckdb.Error:
            return True


class _Copy(DuckdbWarehouse):
    """A file that nobody else knows yet: no lock, no copy of its own."""

    def _open_to_write(self, deadline: float, wait_s: float) -> None:
        self._connection = self._attempt(deadline, wait_s)


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path), read_only=read_only, config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    if not read_only:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
    return connection


def _is_held(error: duckdb.Error) -> bool:
    text = str(error)
    # the second: this very process holds it, in another thread, for the other kind of use
    return "Could not set lock" in text or "different configuration" in text


def _reason(error: BaseException) -> str:
    """The first line of an error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error).partition("\n")[0]
