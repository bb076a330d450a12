"""What the three databases share: the check before a query runs, its clock, its row limit and its messages."""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stef_core.errors import RuleError
from stef_core.experiments.compare_results import ResultSet
from stef_core.experiments.execution import QueryFailure
from stef_core.experiments.statements import called_functions, tables_named_by_text, why_not_one_query

FIRST_BATCH = 8
BATCH = 2_000
BATCH_BYTES = 16_000_000
MAX_BYTES = 500_000_000
"""What a result may take in memory, as estimated from some of its rows; a cell can be as large as its engine allows."""

_SHOWN = 300


class ReadOnlyDatabase(ABC):
    """A `tasks.databases.Database` but for its engine."""

    dialect: str
    forbidden: frozenset[str] = frozenset()  # functions that read files, reach out or change the session
    forbidden_starts: tuple[str, ...] = ()

    def __init__(self, *, timeout_s: float, max_rows: int) -> None:
        self._timeout_s = timeout_s
        self._max_rows = max_rows
        self._lock = threading.RLock()
        self._deadline = 0.0

    def run(self, sql: str) -> ResultSet | QueryFailure:
        """Run one query that reads; see `tasks.databases.Database.run`."""
        refused = self._refused(sql)
        if refused is not None:
            return refused
        with self._lock:
            self._deadline = time.monotonic() + self._timeout_s
            return self._run(sql)

    @abstractmethod
    def _run(self, sql: str) -> ResultSet | QueryFailure: ...

    @abstractmethod
    def ddl(self) -> str:
        """CREATE statements of its tables and views."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of what it holds."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _refused(self, sql: str) -> QueryFailure | None:
        """What need not be tried: the engine would refuse most of it too, but later and in other words."""
        why = why_not_one_query(sql, self.dialect)
        if why is not None:
            return QueryFailure("syntax" if why.startswith("it cannot be read") else "refused", why)
        called = sorted(
            name
            for name in called_functions(sql, self.dialect)
            if name in self.forbidden or name.startswith(self.forbidden_starts)
        )
        if called:
            return QueryFailure("refused", f"it calls {called[0]}, which reaches outside the database or changes the session")
        return None

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _timeout(self) -> QueryFailure:
        return QueryFailure("timeout", f"it was stopped after {self._timeout_s:g} s")

    def _gather(self, columns: Sequence[str], fetch: Callable[[int], Sequence[tuple[Any, ...]]]) -> ResultSet | QueryFailure:
        """Rows in batches, until there are no more, or one more than the limit, or no time or memory."""
        rows: list[tuple[Any, ...]] = []
        size, taken = FIRST_BATCH, 0
        while len(rows) <= self._max_rows:
            if self._late():
                return self._timeout()
            batch = fetch(min(size, self._max_rows + 1 - len(rows)))
            if not batch:
                return ResultSet(tuple(columns), rows)
            rows += batch
            wide = _bytes(batch[:: -(-len(batch) // FIRST_BATCH)])
            taken += wide * len(batch)
            if taken > MAX_BYTES:
                return QueryFailure("error", f"its rows take more than {MAX_BYTES // 1_000_000:,} MB")
            size = max(1, min(4 * size, BATCH, BATCH_BYTES // wide))
        return ResultSet(tuple(columns), rows[: self._max_rows], truncated=True)


def _bytes(rows: Sequence[tuple[Any, ...]]) -> int:
    """Mean size of these rows: 50 bytes a cell, and the length of what has one."""
    cells = sum(50 + (len(cell) if isinstance(cell, str | bytes) else 0) for row in rows for cell in row)
    return max(1, cells // len(rows))


def no_table_by_text(sql: str, dialect: str) -> QueryFailure | None:
    """Refuse ``FROM 'file.csv'``, which some engines read as a file."""
    named = tables_named_by_text(sql, dialect)
    return QueryFailure("refused", f"it reads the file {named[0][:80]!r} in the place of a table") if named else None


def file_of(rest: str, scheme: str) -> Path:
    """The file that the part of a URL after ``scheme://`` names.

    Raises:
        RuleError: It names no file, or one that does not exist.
    """
    example = f"{scheme}:///path/file"
    if not rest.startswith("/"):
        raise RuleError(f"database {scheme}://{rest}: three slashes before the path, as in {example}")
    name = rest.removeprefix("/")
    if name in ("", ":memory:") or "?" in name or "\0" in name:
        raise RuleError(f"database {scheme}://{rest}: name a file, without options, as in {example}")
    path = Path(name).expanduser()
    if not path.is_file():
        raise RuleError(f"database {scheme}://{rest}: there is no such file")
    return path


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def one_line(text: str) -> str:
    """The first line of a driver's message, cut to what fits a table."""
    line = " ".join((text.strip().splitlines() or [""])[0].split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
