"""The warehouse: where a day's scores are staged, published and read; `connect` opens the one a URL names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from types import TracebackType
from typing import Any, Protocol, Self

import polars as pl

from stef_core.errors import RuleError

__all__ = ["Warehouse", "connect"]


class Warehouse(Protocol):
    """One open warehouse: write to staging, audit there, publish in one transaction.

    Frames have the schemas of `stef_core.frames.TABLES`. A day is a UTC date. Every method may raise `TransientError` when the
    warehouse cannot be reached, and `InputError` or `RuleError` as its own docstring says.
    """

    def migrate(self) -> list[str]:
        """Bring the schema up to this version's; names of the migrations applied, ``views`` among them when they changed.

        Raises:
            RuleError: The warehouse was written by a newer version, or its tables are not what the migrations make.
        """
        ...

    def stage(self, run_id: str, day: date, tables: Mapping[str, pl.DataFrame | Iterable[pl.DataFrame]]) -> None:
        """Put a day's rows of these tables into staging, in the place of whatever this or an older run had staged for it.

        A table may come in frames, one after another, so that it need not be in memory.

        Raises:
            InputError: A frame differs from its schema, or holds rows of another day or run; nothing is staged.
            RuleError: A table that cannot be staged.
        """
        ...

    def staged(self, table: str, run_id: str) -> pl.DataFrame:
        """Rows of one table that a run has staged and not published."""
        ...

    def staged_parts(self, table: str, run_id: str, *, without: Sequence[str] = (), rows: int) -> Iterator[pl.DataFrame]:
        """As `staged`, about so many rows at a time, each sorted by the grain; of columns in `without` nothing is read.

        The warehouse is busy until the last is taken.
        """
        ...

    def publish(self, run_id: str, day: date, tables: Sequence[str], run: dict[str, Any] | None = None) -> None:
        """Replace a day by what the run staged for it, in one transaction, and record the run when it is given.

        Killed in between, everything is as it was. Publishing again what the run has published already changes nothing.
        ``score_changes`` keeps the rows of earlier runs.

        Raises:
            InputError: The run has staged no such table for the day; nothing is published.
            BusyError: Another run has staged the day since; nothing is published.
        """
        ...

    def discard(self, run_id: str) -> None:
        """Throw away what a run has staged and not published."""
        ...

    def record_run(self, row: dict[str, Any]) -> None:
        """Write one row of ``scoring_runs``, in the place of the run's earlier one; absent columns become null.

        Raises:
            InputError: A column that does not exist, a value that does not fit, or no ``run_id``.
        """
        ...

    def record_rules(self, rules: pl.DataFrame) -> None:
        """Keep rules, a frame of ``rules_history``, so that a later change of them can be told entry by entry."""
        ...

    def record_experiment(self, run: dict[str, Any], results: pl.DataFrame) -> None:
        """Write a run of an experiment and its rows, in one transaction, in the place of the earlier ones of that name.

        Args:
            run: One row of ``experiment_runs``; absent columns become null.
            results: Its rows, a frame of ``experiment_results``.

        Raises:
            InputError: A column or value that does not fit, or rows of another run; nothing is written.
        """
        ...

    def read(
        self,
        table_or_view: str,
        *,
        day: date | None = None,
        since: date | None = None,
        until: date | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Published rows in the order of their grain; `since` and `until` belong to the range.

        Raises:
            RuleError: No such table, view or column, or a range asked of a view without days.
        """
        ...

    def query(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        """Rows of one statement that reads; it cannot change the warehouse.

        Raises:
            RuleError: The statement is wrong, writes, or is more than one.
        """
        ...

    def days(self, table: str = "query_scores") -> list[date]:
        """Days that are published, oldest first."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """A context in which all that is read is of one moment, however many publishes end meanwhile; for reading only."""
        ...

    def claim(self, day: date, *, wait_s: float = 2.0) -> AbstractContextManager[None]:
        """A context in which no other process may claim the day; it ends with its holder, however that ends.

        It keeps nobody from reading or publishing: it is for whoever is about to score a day. It outlives `close`, so that the
        warehouse need not stay open meanwhile.

        Args:
            day: UTC day.
            wait_s: Seconds to wait for the holder; a killed one lets go within a moment.

        Raises:
            BusyError: Another process holds the day; the message names it.
        """
        ...

    def close(self) -> None:
        """Let go of the warehouse; closing twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def put_answers(self, frame: pl.DataFrame) -> None:
        """Add answers that runs share, in one transaction; an answer replaces a failure, and nothing replaces an answer.

        Args:
            frame: Rows of ``llm_answers`` (stef_core.frames.LLM_ANSWERS), each key once.

        Raises:
            InputError: Another schema, a value that is missing, or a key twice; nothing is written.
        """
        ...

    def answers(self, keys: Sequence[str]) -> pl.DataFrame:
        """Those of the shared answers that are there, in no order.

        Raises:
            RuleError: This is the copy for BI, which has none.
        """
        ...


def connect(url: str, *, read_only: bool = False, wait_s: float = 60.0, made: bool = False) -> Warehouse:
    """Open the warehouse that a URL names; use it as a context manager, and keep it no longer than the work needs.

    Args:
        url: ``duckdb:///relative.duckdb``, ``duckdb:////absolute/path.duckdb`` or ``postgresql://user@host:5432/database``.
        read_only: Open for reading: nothing is created, migrated or changed.
        wait_s: Seconds to wait for another process that holds the warehouse, and for a server that is not there yet.
        made: It was there a moment ago; a file that is gone since is told, and none is begun in its place.

    Raises:
        RuleError: The URL is none that works, or what it names cannot be used as a warehouse; the message says why.
        BusyError: Another process still held it after `wait_s`.
        TransientError: The server could still not be reached after `wait_s`, or a file that was `made` is gone.
    """
    scheme, separator, rest = url.partition("://")
    # slow imports: pay when a warehouse is opened
    if separator and scheme == "duckdb":
        from tasks.warehouse.duckdb import DuckdbWarehouse, path_of

        return DuckdbWarehouse(path_of(rest), read_only=read_only, wait_s=wait_s, made=made)
    if separator and scheme in ("postgresql", "postgres"):
        from tasks.warehouse.postgres import PostgresWarehouse

        return PostgresWarehouse(url, read_only=read_only, wait_s=wait_s)
    # the rest of a URL may hold a password: never repeat it
    what = f"a warehouse URL that begins with '{scheme}://'" if separator else f"'{url}'"
    raise RuleError(
        f"warehouse: {what} does not work; write duckdb:///path/warehouse.duckdb or postgresql://user@host:5432/database"
    )
