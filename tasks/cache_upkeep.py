"""What the answer cache holds, and how what is no longer asked leaves it: ``stef cache``."""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stef_core.errors import RuleError, TransientError
from tasks.answer_cache import Journal, SqliteAnswerCache

CHUNK = 1000  # rows of one transaction, so that a run which writes meanwhile waits only briefly
_ROW_BYTES = 100  # of a row beside its text and key, about
_SIZE = f"length(CAST(a.text AS BLOB)) + length(a.key) + {_ROW_BYTES}"
_LAST_USE = "max(a.created_at, coalesce(u.used_at, a.created_at))"
_ROWS = f"SELECT a.key, a.created_at, a.reason IS NOT NULL, {_SIZE} FROM answers a LEFT JOIN uses u ON u.key = a.key"  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of one model and schema, and what it saved since the file was made, answers removed since included."""

    model: str
    schema: str
    answers: int = 0
    failures: int = 0  # settled ones, which are not asked again either
    tokens_in: int = 0  # paid for what is kept
    tokens_out: int = 0
    hits: int = 0  # requests saved
    saved_in: int = 0  # their tokens
    saved_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStats:
    """A cache file in figures; instants are UTC, None where nothing is kept or was used."""

    file: Path
    exists: bool
    size_bytes: int = 0  # of the file and its journal
    journal: str | None = None
    kept: tuple[Kept, ...] = ()  # most rows first
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None
    last_used: dt.datetime | None = None

    def total(self, name: str) -> int:
        """The sum of one figure of `Kept`."""
        return sum(getattr(kept, name) for kept in self.kept)

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        figures = ("answers", "failures", "tokens_in", "tokens_out", "hits", "saved_in", "saved_out")
        instants = {"oldest": self.oldest, "newest": self.newest, "last_used": self.last_used}
        return {
            "file": str(self.file),
            "exists": self.exists,
            "size_bytes": self.size_bytes,
            "journal": self.journal,
            **{name: self.total(name) for name in figures},
            **{name: None if at is None else at.isoformat() for name, at in instants.items()},
            "by_model": [asdict(kept) for kept in self.kept],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to go: rows that meet every condition that is set, then the longest unused until the rest fits."""

    older_than_s: float | None = None  # since an answer was last asked for
    model: str | None = None
    failures: bool = False  # settled failures alone
    max_bytes: int | None = None  # of the file afterwards

    @property
    def has_condition(self) -> bool:
        """Whether rows are to go whatever the size of the file."""
        return self.older_than_s is not None or self.model is not None or self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What has left the cache; of a dry run what would leave it, and sizes are estimates."""

    file: Path
    dry_run: bool
    answers: int = 0
    failures: int = 0
    left: int = 0
    freed_bytes: int = 0
    size_bytes: int = 0
    note: str | None = None  # why the file is not as small as it could be

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self) | {"file": str(self.file)}


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    created_at: float
    failed: bool
    size: int  # bytes, about


def cache_stats(path: Path, *, journal: Journal = "auto") -> CacheStats:
    """What a cache file holds; one that is not there holds nothing, and is not made.

    Raises:
        RuleError: The file cannot be read, is damaged or no cache.
        TransientError: Another process held it all the time.
    """
    path = path.expanduser()
    if not _exists(path):
        return CacheStats(file=path, exists=False)
    with SqliteAnswerCache(path, journal=journal) as cache, cache.session() as connection:
        kept, oldest, newest = _kept(connection)
        return CacheStats(
            file=path,
            exists=True,
            size_bytes=_size(path),
            journal=connection.execute("PRAGMA journal_mode").fetchone()[0],
            kept=kept,
            oldest=_instant(oldest),
            newest=_instant(newest),
            last_used=_instant(connection.execute("SELECT max(used_at) FROM uses").fetchone()[0]),
        )


def prune_cache(
    path: Path, wish: Wish, *, journal: Journal = "auto", dry_run: bool = False, now: float | None = None
) -> Pruned:
    """Remove answers and give their space back; runs may use the file meanwhile.

    Args:
        path: The file; nothing is done where there is none.
        wish: What is to go.
        journal: As in `SqliteAnswerCache`.
        dry_run: Remove nothing, say what would go.
        now: Seconds since the epoch; those of the clock where None.

    Raises:
        RuleError: The file cannot be written, is damaged or no cache; or the wish is empty.
        TransientError: Another process held it all the time.
    """
    path = path.expanduser()
    if not wish.has_condition and wish.max_bytes is None:
        raise RuleError("nothing says which answers are to go; name --older-than, --model, --failures or --max-size")
    if not _exists(path):
        return Pruned(file=path, dry_run=dry_run)
    with SqliteAnswerCache(path, journal=journal) as cache:
        if cache.read_only:
            raise RuleError(f"{path}: cannot be written; nothing was removed")
        rows = _meeting(cache, wish, time.time() if now is None else now)
        return _foresee(cache, rows, wish.max_bytes) if dry_run else _prune(cache, rows, wish.max_bytes)


def _prune(cache: SqliteAnswerCache, rows: Sequence[_Row], max_bytes: int | None) -> Pruned:
    before, aim = _size(cache.path), max_bytes
    gone = _remove(cache, rows)
    # how much has to go is seen in a file without gaps
    note = _compact(cache, with_gaps=bool(gone) or (max_bytes is not None and before > max_bytes))
    while note is None and max_bytes is not None and aim is not None:
        used, per_byte = _space(cache)
        rows = _longest_unused(cache, used, per_byte, aim) if used > max_bytes else ()
        if not rows:
            break
        gone += _remove(cache, rows)
        note = _compact(cache, with_gaps=True)
        aim = aim * 99 // 100  # sizes of rows are estimates: what did not fit at once comes to fit
    size, failures = _size(cache.path), sum(row.failed for row in gone)
    return Pruned(
        file=cache.path,
        dry_run=False,
        answers=len(gone) - failures,
        failures=failures,
        left=cache.count(),
        freed_bytes=max(0, before - size),
        size_bytes=size,
        note=note,
    )


def _foresee(cache: SqliteAnswerCache, rows: Sequence[_Row], max_bytes: int | None) -> Pruned:
    before, (used, per_byte) = _size(cache.path), _space(cache)
    used -= per_byte * sum(row.size for row in rows)
    if max_bytes is not None:
        more = _longest_unused(cache, used, per_byte, max_bytes, without={row.key for row in rows})
        used -= per_byte * sum(row.size for row in more)
        rows = [*rows, *more]
    failures, size = sum(row.failed for row in rows), min(before, max(0, round(used)))
    return Pruned(
        file=cache.path,
        dry_run=True,
        answers=len(rows) - failures,
        failures=failures,
        left=cache.count() - len(rows),
        freed_bytes=before - size,
        size_bytes=size,
    )


def _meeting(cache: SqliteAnswerCache, wish: Wish, now: float) -> list[_Row]:
    """Rows that meet every condition of a wish; none where it has none."""
    conditions: dict[str, tuple[object, ...]] = {}
    if wish.older_than_s is not None:
        conditions[f"{_LAST_USE} < ?"] = (now - wish.older_than_s,)
    if wish.model is not None:
        conditions["a.model = ?"] = (wish.model,)
    if wish.failures:
        conditions["a.reason IS NOT NULL"] = ()
    if not conditions:
        return []
    values = [value for given in conditions.values() for value in given]
    with cache.session() as connection:
        return list(_rows(connection, f"WHERE {' AND '.join(conditions)}", values))


def _longest_unused(
    cache: SqliteAnswerCache, used: float, per_byte: float, max_bytes: int, without: set[str] | None = None
) -> list[_Row]:
    """Rows that must go, the longest unused first, until the used space fits."""
    over: list[_Row] = []
    with cache.session() as connection:
        for row in _rows(connection, f"ORDER BY {_LAST_USE}, a.key") if used > max_bytes else ():
            if used <= max_bytes:
                break
            if without is None or row.key not in without:
                over.append(row)
                used -= per_byte * row.size
    return over


def _rows(connection: sqlite3.Connection, which: str, values: Sequence[object] = ()) -> Iterator[_Row]:
    for key, created_at, failed, size in connection.execute(f"{_ROWS} {which}", values):
        yield _Row(key, created_at, bool(failed), size)


def _remove(cache: SqliteAnswerCache, rows: Sequence[_Row]) -> list[_Row]:
    """Remove rows; those that a run has replaced meanwhile stay."""
    gone: list[_Row] = []
    for start in range(0, len(rows), CHUNK):
        with cache.transaction() as connection:
            for row in rows[start : start + CHUNK]:
                found = connection.execute("DELETE FROM answers WHERE key = ? AND created_at = ?", (row.key, row.created_at))
                if found.rowcount:
                    connection.execute("DELETE FROM uses WHERE key = ?", (row.key,))
                    connection.execute("DELETE FROM shared WHERE key = ?", (row.key,))
                    gone.append(row)
    return gone


def _compact(cache: SqliteAnswerCache, *, with_gaps: bool) -> str | None:
    """Give free space back to the disk; why it was not possible."""
    try:
        with cache.session() as connection:
            if with_gaps or connection.execute("PRAGMA freelist_count").fetchone()[0]:
                connection.execute("VACUUM")
            (held, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except TransientError as error:
        return f"the space will be used again, but could not be given back: {error}"
    return "runs are reading the file: its space is given back when they have ended" if held else None


def _space(cache: SqliteAnswerCache) -> tuple[float, float]:
    """Bytes that the file uses, and how many of them go with each byte of a row."""
    with cache.session() as connection:
        pages, free, page_bytes = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        (rows_bytes,) = connection.execute(f"SELECT coalesce(sum({_SIZE}), 0) FROM answers a").fetchone()  # noqa: S608
    used = float((pages - free) * page_bytes)
    return used, used / rows_bytes if rows_bytes else 0.0


def _kept(connection: sqlite3.Connection) -> tuple[tuple[Kept, ...], float | None, float | None]:
    """What is kept by model and schema, and when the first and the last of it came."""
    sums = connection.execute(
        "SELECT model, schema_name, sum(reason IS NULL), sum(reason IS NOT NULL), sum(tokens_in), sum(tokens_out), "
        "min(created_at), max(created_at) FROM answers GROUP BY model, schema_name"
    ).fetchall()
    hits = {(row[0], row[1]): row[2:] for row in connection.execute("SELECT * FROM hits").fetchall()}
    kept = []
    for model, schema, answers, failures, tokens_in, tokens_out, *_ in sums:
        saved = hits.pop((model, schema), (0, 0, 0))
        kept.append(
            Kept(
                model=model,
                schema=schema,
                answers=answers,
                failures=failures,
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                hits=saved[0],
                saved_in=saved[1],
                saved_out=saved[2],
            )
        )
    kept += [Kept(model=m, schema=s, hits=n, saved_in=i, saved_out=o) for (m, s), (n, i, o) in hits.items()]
    kept.sort(key=lambda k: (-k.answers - k.failures, k.model, k.schema))
    return tuple(kept), min((row[6] for row in sums), default=None), max((row[7] for row in sums), default=None)


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {error.strerror}; see STEF_CACHE") from error
    return True


def _size(path: Path) -> int:
    """Bytes of the file and its journal."""
    return sum(each.stat().st_size for each in (path, path.with_name(f"{path.name}-wal")) if each.exists())


def _instant(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)
