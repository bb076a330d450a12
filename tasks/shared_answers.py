"""Answers that other machines have paid for: read from the warehouse where the own file lacks them, and given to it."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stef_core.errors import StefError
from stef_core.llm import AnswerCache, StoredAnswer
from tasks.answer_cache import Journal, SqliteAnswerCache, stored_answer

if TYPE_CHECKING:
    import polars as pl

    from tasks.warehouse import Warehouse

logger = logging.getLogger(__name__)

READ_WAIT_S = 3.0  # how long a batch waits for a warehouse that another process holds before it asks the model instead
TURN = 5000  # answers given to the warehouse each time it is opened, so that others wait for it only briefly

_STORED = ("text", "reason", "model", "schema_name", "step", "tokens_in", "tokens_out", "calls", "probability")
_UNSHARED = (
    f"SELECT a.key, {', '.join(f'a.{name}' for name in _STORED)}, a.created_at "  # noqa: S608
    "FROM answers a LEFT JOIN shared s ON s.key = a.key AND s.target = ? "
    "WHERE a.key > ? AND (s.key IS NULL OR (s.failed AND a.reason IS NULL)) ORDER BY a.key LIMIT ?"
)


class CacheSettings(Protocol):
    """What this module reads of tasks.settings.Settings."""

    @property
    def cache(self) -> Path | None:
        """File of the answer cache; no cache where None."""

    @property
    def cache_journal(self) -> Journal:
        """Journal of that file."""

    @property
    def cache_shared(self) -> bool:
        """Whether answers are shared through the warehouse."""

    @property
    def warehouse(self) -> str:
        """URL of the warehouse."""

    @property
    def warehouse_shown(self) -> str:
        """The same without its password."""

    @property
    def warehouse_wait_s(self) -> float:
        """Seconds to wait while another process holds it."""


class SharedAnswers:
    """An `AnswerCache` of stef_core.llm over a file and the answers in a warehouse; what is found there is kept in the file.

    The warehouse is opened for reading, once for each batch of keys that the file lacks, and never waited for long: where it
    cannot be had, the model is asked. What is put goes to the file alone; `push_answers` gives it to the warehouse.

    Args:
        local: The file; closed with this.
        warehouse: URL of the warehouse.
        wait_s: Seconds to wait while another process holds it.
    """

    def __init__(self, local: SqliteAnswerCache, warehouse: str, *, wait_s: float = READ_WAIT_S) -> None:
        self._local, self._warehouse, self._wait_s = local, warehouse, wait_s
        self._out_of_reach = False

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Those of the keys that are in the file or the warehouse.

        Raises:
            RuleError: The file is damaged.
            TransientError: The file could not be read.
        """
        found = self._local.get_many(keys)
        missing = [key for key in keys if key not in found]
        return found | self._pull(missing) if missing else found

    def put_many(self, answers: Mapping[str, StoredAnswer]) -> None:
        """Keep answers in the file, as `SqliteAnswerCache.put_many`."""
        self._local.put_many(answers)

    def close(self) -> None:
        """Close the file."""
        self._local.close()

    def _pull(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        from tasks.warehouse import connect

        if self._out_of_reach:
            return {}
        try:
            with connect(self._warehouse, read_only=True, wait_s=self._wait_s) as store:
                rows = store.answers(keys).select("key", *_STORED).rows()
        except StefError as error:
            self._out_of_reach = True  # the batches after this one try again
            logger.debug("answers shared by others are not read: %s", error)
            return {}
        found = {key: stored_answer(columns) for key, *columns in rows}
        if found:
            self._local.count_hits(found)
            try:
                self._local.put_many(found)
            except StefError as error:
                logger.debug("answers shared by others are not kept: %s", error)
        return found


def open_answers(settings: CacheSettings) -> AnswerCache | None:
    """The answer cache that the settings name; None where they name none.

    Raises:
        RuleError: The file cannot be used, is no cache or a damaged one.
        TransientError: Another process held the file all the time.
    """
    if settings.cache is None:
        return None
    local = SqliteAnswerCache(settings.cache, journal=settings.cache_journal)
    if not settings.cache_shared:
        return local
    return SharedAnswers(local, settings.warehouse, wait_s=min(READ_WAIT_S, settings.warehouse_wait_s))


def push_answers(settings: CacheSettings) -> int:
    """Give the warehouse the answers of the cache that it was not given yet, some at a time.

    Returns:
        How many it was given.

    Raises:
        StefError: Cache or warehouse could not be used; what was not given yet is the next time.
    """
    from tasks.warehouse import connect

    if settings.cache is None:
        return 0
    given, after = 0, ""
    with SqliteAnswerCache(settings.cache, journal=settings.cache_journal) as cache:
        with connect(settings.warehouse, read_only=True, wait_s=settings.warehouse_wait_s) as store:
            target = _identity(settings.warehouse_shown, store)
        while True:
            with cache.session() as connection:
                rows = connection.execute(_UNSHARED, (target, after, TURN)).fetchall()
            if not rows:
                return given
            after = rows[-1][0]
            frame = _frame(rows)
            if frame.height:
                with connect(settings.warehouse, wait_s=settings.warehouse_wait_s) as store:
                    store.put_answers(frame)
                given += frame.height
            noted = [(row[0], target, row[2] is not None) for row in rows]
            with cache.transaction() as connection:
                connection.executemany("INSERT OR REPLACE INTO shared VALUES (?,?,?)", noted)


def _identity(url: str, store: Warehouse) -> str:
    """What tells a warehouse from another, also from one that was there under the same URL before."""
    (made,) = store.query("SELECT min(applied_at) AS made FROM schema_migrations WHERE version = 3")["made"]
    return hashlib.sha256(f"{url} {made}".encode()).hexdigest()[:16]


def _frame(rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Rows of the cache as those of ``llm_answers``; a text that not every database can hold stays behind."""
    from stef_core.frames import LLM_ANSWERS, frame_of

    return frame_of(
        [
            dict(zip(LLM_ANSWERS, (*row[:-1], dt.datetime.fromtimestamp(row[-1], dt.UTC)), strict=True))
            for row in rows
            if isinstance(row[1], str) and "\0" not in row[1]
        ],
        LLM_ANSWERS,
    )
