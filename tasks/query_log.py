"""One day of the query log, read from Parquet on any file system that pyarrow reaches.

Source: data-contract.md, "Query log (in)".
"""

from __future__ import annotations

import base64
import datetime as dt
import difflib
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.errors import InputError, StefError, TransientError
from stef_core.frames import OPTIONAL_LOG, QUERY_LOG, REQUIRED_COLUMNS, compact_json
from stef_core.rules import Rules
from tasks.retrying import is_transient
from tasks.settings import Settings
from tasks.spool import Spool, batch_rows, gathered, open_spool, sweep, work_of

# the reader's own: columns of the contract that must hold a value in each row
LOG = "log"  # kind of the batches in a spool
ROWS_READ = 10_000  # at once
DUPLICATES_NAMED = 10
_BYTES_AT_ONCE = 1 << 20
KEY_COLUMNS = ("query_id", "agent_id", "asked_at")
PARTITION_LOG = pl.Schema({**QUERY_LOG, **OPTIONAL_LOG, "extra": pl.String()})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDay:
    """What is told of one day of the log beside its rows."""

    day: dt.date
    rows: int  # without repeats
    files: tuple[dict[str, Any], ...]  # {"path", "size", "sha256"}, in the order read
    rows_read: int  # before repeats are taken out
    duplicates: tuple[str, ...]  # query_ids seen more than once, the first `DUPLICATES_NAMED`
    out_of_day: int  # rows kept whose asked_at lies outside the day
    nulls: tuple[str, ...] = ()  # sentences: a key column is null, in which file, in how many rows
    notes: tuple[str, ...] = field(default=())

    @property
    def repeats(self) -> int:
        """Rows left out because their `query_id` had been seen."""
        return self.rows_read - self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(LogDay):
    """One day of the log. `frame` has the columns of `PARTITION_LOG`, first of each `query_id` kept, in file and row order."""

    frame: pl.DataFrame

    def frames(self) -> Iterator[pl.DataFrame]:
        """Its rows, some at a time."""
        yield self.frame

    def lazy(self) -> pl.LazyFrame:
        """Its rows."""
        return self.frame.lazy()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledPartition(LogDay):
    """One day of the log in the spool, as `Partition.frame` has it, in `batches` batches of kind ``log``."""

    spool: Spool
    batches: int

    def frames(self) -> Iterator[pl.DataFrame]:
        """Its rows, some at a time."""
        return gathered(map(pl.read_parquet, self.spool.parts(LOG, self.batches)))

    def lazy(self) -> pl.LazyFrame:
        """Its rows."""
        return self.spool.scan(LOG, PARTITION_LOG, self.batches)


def read_partition(logs: str, day: dt.date, *, filesystem: pafs.FileSystem | None = None) -> Partition:
    """Read one day of the query log.

    Args:
        logs: Root of the hive layout ``<root>/dt=YYYY-MM-DD/*.parquet``: a local path, or a URI.
        day: UTC day.
        filesystem: Where `logs` is a path on; found from `logs` when None.

    Raises:
        InputError: The partition is absent, a file is unreadable, or a column is missing or of the wrong type. The message
            names the file and the column.
        TransientError: The file system could not be reached, or a file was replaced while it was read.
    """
    kept: list[pl.DataFrame] = []
    facts = _read_day(logs, day, filesystem, kept.append, lambda ids: pl.concat(kept).filter(pl.col("query_id").is_in(ids)))
    return Partition(**facts, frame=pl.concat([PARTITION_LOG.to_frame(), *kept]))


def spool_partition(logs: str, day: dt.date, spool: Spool, batch_size: int) -> SpooledPartition:
    """Read one day of the query log into a spool; of its rows no more are in memory than `ROWS_READ` and a batch.

    Args:
        logs: As for `read_partition`.
        day: UTC day.
        spool: A new one; takes batches of kind ``log``.
        batch_size: Rows of a batch; more where a day would have very many (`batch_rows`).

    Raises:
        InputError: As `read_partition`.
        TransientError: As `read_partition`.
    """
    size = batch_rows(batch_size, _count_rows(logs, day))
    waiting = [PARTITION_LOG.to_frame()]
    batches = 0

    def keep(frame: pl.DataFrame, *, all_of_it: bool = False) -> None:
        nonlocal batches
        rows = pl.concat([waiting.pop(), frame])
        while rows.height >= size or (all_of_it and rows.height):
            spool.write(LOG, batches, rows.head(size))
            rows, batches = rows.slice(size), batches + 1
        waiting.append(rows)

    def among_kept(ids: pl.Series) -> pl.DataFrame:
        same = pl.col("query_id").is_in(ids.implode())
        return pl.concat([spool.scan(LOG, PARTITION_LOG), waiting[0].lazy()]).filter(same).collect(engine="streaming")

    facts = _read_day(logs, day, None, keep, among_kept)
    keep(PARTITION_LOG.to_frame(), all_of_it=True)
    return SpooledPartition(**facts, spool=spool, batches=batches)


def _read_day(
    logs: str,
    day: dt.date,
    filesystem: pafs.FileSystem | None,
    keep: Callable[[pl.DataFrame], None],
    among_kept: Callable[[pl.Series], pl.DataFrame],
) -> dict[str, Any]:
    """Hand the rows of a day to `keep`, some at a time and without repeats; what `LogDay` tells of them.

    Args:
        among_kept: Of rows handed over already those with these ids.
    """
    files, root = (filesystem, logs) if filesystem is not None else _open_root(logs)
    prints: list[dict[str, Any]] = []
    notes: list[str] = []
    nulls: list[str] = []
    seen, duplicates = _Seen(among_kept), list[str]()
    rows_read = rows = outside = 0
    for path in _list_files(files, root, logs, day):
        null_counts, file_rows = Counter[str](), 0
        for frame in _read_file(files, path, prints, notes):
            null_counts.update({name: frame[name].null_count() for name in KEY_COLUMNS})
            file_rows += frame.height
            kept, again = seen.first_of_each(frame)
            duplicates = list(dict.fromkeys([*duplicates, *again]))[:DUPLICATES_NAMED]
            outside += kept.filter(pl.col("asked_at").dt.date() != day).height
            rows += kept.height
            keep(kept)
        rows_read += file_rows
        nulls += [f"{path}: {name} is null in {n} of {file_rows} rows" for name in KEY_COLUMNS if (n := null_counts[name])]
    return {
        "day": day,
        "rows": rows,
        "files": tuple(prints),
        "rows_read": rows_read,
        "duplicates": tuple(duplicates),
        "out_of_day": outside,
        "nulls": tuple(nulls),
        "notes": tuple(dict.fromkeys(notes)),
    }


class _Seen:
    """Which rows repeat a `query_id`. Of each id eight bytes are held; what they find alike is compared in full.

    Args:
        among_kept: Of rows kept already those with these ids.
    """

    def __init__(self, among_kept: Callable[[pl.Series], pl.DataFrame]) -> None:
        self._among_kept = among_kept
        self._hashes = np.empty(0, dtype=np.uint64)

    def first_of_each(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        """The first row of each `query_id`, and the ids that came again; rows without an id are all kept for the gate."""
        ids = frame["query_id"]
        hashes = ids.hash().to_numpy()
        alike = ids.filter(pl.Series(np.isin(hashes, self._hashes))).drop_nulls().unique()
        there = self._among_kept(alike)["query_id"] if alike.len() else alike
        repeats = ~pl.col("query_id").is_first_distinct() | pl.col("query_id").is_in(there.implode())
        again = pl.col("query_id").is_not_null() & repeats
        self._hashes = np.concatenate([self._hashes, hashes])
        return frame.filter(~again), frame.filter(again)["query_id"].unique(maintain_order=True).to_list()


def list_days(logs: str) -> list[dt.date]:
    """Days that have a folder in the log, oldest first; folders of other names are left aside.

    Raises:
        InputError: The root cannot be read.
        TransientError: The file system could not be reached.
    """
    files, root = _open_root(logs)
    try:
        names = _days(files, root)
    except OSError as error:
        raise _unreached(logs, error) from error
    days = []
    for name in names:
        try:
            day = dt.date.fromisoformat(name)
        except ValueError:
            continue
        if day.isoformat() == name:  # a date may be written in other ways, and its folder is then found by none
            days.append(day)
    return days


def fingerprint_day(logs: str, day: dt.date) -> list[dict[str, Any]]:
    """What tells a partition's files from others: ``{"path", "size", "sha256"}``; none where there are no files.

    Raises:
        InputError: A file cannot be read.
        TransientError: The file system could not be reached.
    """
    files, root = _open_root(logs)
    try:
        paths = _list_files(files, root, logs, day)
    except InputError:
        return []
    found = []
    for path in paths:
        with _opened(files, path) as handle:
            found.append(_fingerprint(path, handle))
    return found


def _fingerprint(path: str, handle: pa.NativeFile) -> dict[str, Any]:
    """What tells a file from others; the handle is at its start again afterwards."""
    digest, size = hashlib.sha256(), 0
    try:
        while chunk := handle.read(_BYTES_AT_ONCE):
            digest.update(chunk)
            size += len(chunk)
        handle.seek(0)
    except OSError as error:
        raise _unreached(path, error) from error
    return {"path": path, "size": size, "sha256": digest.hexdigest()}


@task(name="read-partition", retries=2, retry_delay_seconds=[2, 8], retry_condition_fn=is_transient, cache_policy=NO_CACHE)
def read_day(logs: str, day: dt.date) -> Partition:
    """`read_partition` as a task."""
    return read_partition(logs, day)


@task(name="spool-partition", retries=2, retry_delay_seconds=[2, 8], retry_condition_fn=is_transient, cache_policy=NO_CACHE)
def spool_day(settings: Settings, rules: Mapping[str, Rules], day: dt.date) -> SpooledPartition:
    """`spool_partition` as a task, under the name of the work, so that what a killed run has left of it is found."""
    assert settings.logs is not None
    sweep(settings.spool)
    arriving = open_spool(settings.spool, day)
    try:
        partition = spool_partition(settings.logs, day, arriving, settings.batch_size)
        spool = arriving.become(arriving.folder.with_name(work_of(settings, rules, day, partition.files)))
    except BaseException:
        arriving.remove()
        raise
    return replace(partition, spool=spool)


def _open_root(logs: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in logs:
        return pafs.LocalFileSystem(), logs.rstrip("/") or "/"
    try:
        files, path = pafs.FileSystem.from_uri(logs)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InputError(f"{logs}: no file system that can be read: {_first_line(error)}") from error
    except OSError as error:
        raise TransientError(f"{logs}: cannot be reached: {_first_line(error)}") from error
    return files, path.rstrip("/")


def _list_files(files: pafs.FileSystem, root: str, logs: str, day: dt.date) -> list[str]:
    folder = f"{root}/dt={day.isoformat()}"
    try:
        found = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        paths = [
            f.path for f in found if f.is_file and f.base_name.endswith(".parquet") and not f.base_name.startswith(("_", "."))
        ]
        if paths:
            return sorted(paths)
        there = files.get_file_info(folder).type != pafs.FileType.NotFound
        days = _days(files, root)
    except OSError as error:
        raise _unreached(logs, error) from error
    if there:
        raise InputError(f"{logs}/dt={day}: holds no *.parquet file")
    others = f"partitions there: {days[0]} to {days[-1]}" if days else "there are no dt=YYYY-MM-DD folders under it"
    raise InputError(f"{logs}/dt={day}: no such partition; {others}")


def _days(files: pafs.FileSystem, root: str) -> list[str]:
    found = files.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    return sorted(f.base_name.removeprefix("dt=") for f in found if not f.is_file and f.base_name.startswith("dt="))


@contextmanager
def _opened(files: pafs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    try:
        handle = files.open_input_file(path)
    except OSError as error:
        raise _unreached(path, error) from error
    with handle:
        yield handle


def _unreached(path: str, error: OSError) -> StefError:
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError):
        return InputError(f"{path}: cannot be read: {_first_line(error)}")
    return TransientError(f"{path}: cannot be reached: {_first_line(error)}")


def _count_rows(logs: str, day: dt.date) -> int:
    """Rows of a day's files, as their footers tell; 0 for a file that cannot be read, which is told when it is read."""
    files, root = _open_root(logs)
    rows = 0
    for path in _list_files(files, root, logs, day):
        with _opened(files, path) as handle, suppress(pa.ArrowException, OSError, UnicodeDecodeError):
            rows += pq.ParquetFile(handle).metadata.num_rows
    return rows


def _state(files: pafs.FileSystem, path: str) -> tuple[Any, ...]:
    try:
        info = files.get_file_info(path)
    except OSError as error:
        raise _unreached(path, error) from error
    return info.type, info.size, info.mtime_ns


def _read_file(files: pafs.FileSystem, path: str, prints: list[dict[str, Any]], notes: list[str]) -> Iterator[pl.DataFrame]:
    """The rows of one file, as frames of `PARTITION_LOG`; its fingerprint is that of the very bytes that were read.

    Raises:
        TransientError: It was replaced meanwhile.
    """
    before = _state(files, path)
    with _opened(files, path) as handle:
        prints.append(_fingerprint(path, handle))
        try:
            # some rows at a time, in plain buffers: what lies ahead in the file is not held
            parquet = pq.ParquetFile(handle, buffer_size=_BYTES_AT_ONCE, pre_buffer=False)
            _check_columns(parquet.schema_arrow, path)
            empty = parquet.schema_arrow.empty_table()
            parts = map(pa.Table.from_batches, ([part] for part in parquet.iter_batches(ROWS_READ)))
            for table in chain([empty], parts):
                yield _rows_of(table, path, notes)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a column's name
            message = _first_line(error)
            raise InputError(f"{path}: no readable Parquet file (cut off, or still being written): {message}") from error
    if _state(files, path) != before:
        raise TransientError(f"{path}: was replaced while it was read; run the day again")


def _check_columns(schema: pa.Schema, path: str) -> None:
    names = schema.names
    for name in sorted({n for n in names if names.count(n) > 1}):
        raise InputError(f"{path}: column {name} is there more than once")
    for name in REQUIRED_COLUMNS:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.casefold() == name]
            hint = f" (is {near[0]!r} meant?)" if near else ""
            raise InputError(f"{path}: column {name} is missing{hint}; columns there: {', '.join(names)}")


def _rows_of(table: pa.Table, path: str, notes: list[str]) -> pl.DataFrame:
    names = table.column_names
    columns = {name: _column(table, name, path, notes) for name in (*QUERY_LOG, *OPTIONAL_LOG)}
    further = [n for n in names if n not in columns and n != "dt"]  # dt repeats the folder's name
    columns["extra"] = pa.array(_extras(table.select(further), path), type=pa.large_string())
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)  # a table has columns
    return frame.cast(PARTITION_LOG)


def _column(table: pa.Table, name: str, path: str, notes: list[str]) -> pa.ChunkedArray | pa.Array:
    """One column of the contract in its own type; nulls where the file lacks it."""
    wanted = {"asked_at": pa.timestamp("us", "UTC"), "user_feedback": pa.bool_()}.get(name, pa.large_string())
    if name not in table.column_names:
        return pa.nulls(table.num_rows, wanted)
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(table.num_rows, wanted)
    if name == "asked_at" and pa.types.is_timestamp(kind):
        if kind.tz is None:
            notes.append(f"{path}: asked_at has no time zone; taken as UTC")
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(wanted)
    if name == "user_feedback" and pa.types.is_boolean(kind):
        return column
    if wanted == pa.large_string() and (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        try:
            column.validate(full=True)  # Parquet does not promise that text is UTF-8
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: column {name} holds text that is not UTF-8") from error
        return column.cast(wanted)
    names = {"asked_at": "timestamp[us, UTC]", "user_feedback": "bool"}
    raise InputError(f"{path}: column {name} has type {kind}; it must be {names.get(name, 'string')}")


def _extras(table: pa.Table, path: str) -> list[str | None]:
    if not table.column_names:
        return [None] * table.num_rows
    try:
        return [compact_json(_plain(row)) for row in table.to_pylist()]
    except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: columns {', '.join(table.column_names)}: cannot be carried as JSON: {error}") from error


def _plain(value: Any) -> Any:
    """A value that JSON can hold: no NaN, dates as ISO text, bytes as base64."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
