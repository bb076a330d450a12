"""One day of the query log, read from Parquet on any file system that pyarrow reaches.

Source: data-contract.md, "Query log (in)".
"""

from __future__ import annotations

import base64
import datetime as dt
import difflib
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.errors import InputError, StefError, TransientError
from stef_core.frames import OPTIONAL_LOG, QUERY_LOG, REQUIRED_COLUMNS, compact_json
from tasks.retrying import is_transient

# the reader's own: columns of the contract that must hold a value in each row
KEY_COLUMNS = ("query_id", "agent_id", "asked_at")
PARTITION_LOG = pl.Schema({**QUERY_LOG, **OPTIONAL_LOG, "extra": pl.String()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One day of the log. `frame` has the columns of `PARTITION_LOG`, first of each `query_id` kept, in file and row order."""

    day: dt.date
    frame: pl.DataFrame
    files: tuple[dict[str, Any], ...]  # {"path", "size", "sha256"}, in the order read
    rows_read: int  # before repeats are taken out
    duplicates: tuple[str, ...]  # query_ids seen more than once
    out_of_day: int  # rows kept whose asked_at lies outside the day
    nulls: tuple[str, ...] = ()  # sentences: a key column is null, in which file, in how many rows
    notes: tuple[str, ...] = field(default=())

    @property
    def repeats(self) -> int:
        """Rows left out because their `query_id` had been seen."""
        return self.rows_read - self.frame.height


def read_partition(logs: str, day: dt.date, *, filesystem: pafs.FileSystem | None = None) -> Partition:
    """Read one day of the query log.

    Args:
        logs: Root of the hive layout ``<root>/dt=YYYY-MM-DD/*.parquet``: a local path, or a URI.
        day: UTC day.
        filesystem: Where `logs` is a path on; found from `logs` when None.

    Raises:
        InputError: The partition is absent, a file is unreadable, or a column is missing or of the wrong type. The message
            names the file and the column.
        TransientError: The file system could not be reached.
    """
    files, root = (filesystem, logs) if filesystem is not None else _open_root(logs)
    frames: list[pl.DataFrame] = []
    prints: list[dict[str, Any]] = []
    notes: list[str] = []
    nulls: list[str] = []
    for path in _list_files(files, root, logs, day):
        data = _read_bytes(files, path)
        prints.append(_fingerprint(path, data))
        frame = _read_file(data, path, notes)
        frames.append(frame)
        nulls += [
            f"{path}: {name} is null in {count} of {frame.height} rows"
            for name in KEY_COLUMNS
            if (count := frame[name].null_count())
        ]
    everything = pl.concat(frames)
    kept, duplicates = _first_of_each(everything)
    outside = kept.filter(pl.col("asked_at").dt.date() != day).height
    return Partition(
        day=day,
        frame=kept,
        files=tuple(prints),
        rows_read=everything.height,
        duplicates=tuple(duplicates),
        out_of_day=outside,
        nulls=tuple(nulls),
        notes=tuple(notes),
    )


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
            days.append(dt.date.fromisoformat(name))
        except ValueError:
            continue
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
    return [_fingerprint(path, _read_bytes(files, path)) for path in paths]


def _fingerprint(path: str, data: bytes) -> dict[str, Any]:
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@task(name="read-partition", retries=2, retry_delay_seconds=[2, 8], retry_condition_fn=is_transient, cache_policy=NO_CACHE)
def read_day(logs: str, day: dt.date) -> Partition:
    """`read_partition` as a task."""
    return read_partition(logs, day)


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


def _read_bytes(files: pafs.FileSystem, path: str) -> bytes:
    try:
        with files.open_input_file(path) as handle:
            return bytes(handle.readall())
    except OSError as error:
        raise _unreached(path, error) from error


def _unreached(path: str, error: OSError) -> StefError:
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError):
        return InputError(f"{path}: cannot be read: {_first_line(error)}")
    return TransientError(f"{path}: cannot be reached: {_first_line(error)}")


def _read_file(data: bytes, path: str, notes: list[str]) -> pl.DataFrame:
    """One file as a frame of `PARTITION_LOG`."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError) as error:
        message = _first_line(error)
        raise InputError(f"{path}: no readable Parquet file (cut off, or still being written): {message}") from error
    names = table.column_names
    for name in sorted({n for n in names if names.count(n) > 1}):
        raise InputError(f"{path}: column {name} is there more than once")
    for name in REQUIRED_COLUMNS:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.casefold() == name]
            hint = f" (is {near[0]!r} meant?)" if near else ""
            raise InputError(f"{path}: column {name} is missing{hint}; columns there: {', '.join(names)}")
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


def _first_of_each(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[str]]:
    """The first row of each `query_id`, and the ids that came again; rows without an id are all kept for the gate to count."""
    again = pl.col("query_id").is_not_null() & ~pl.col("query_id").is_first_distinct()
    duplicates = frame.filter(again)["query_id"].unique(maintain_order=True).to_list()
    return frame.filter(~again), duplicates


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
