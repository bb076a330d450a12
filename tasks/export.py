"""A copy of the published tables for lakes: Parquet partitioned by day, or Delta tables; a day is replaced whole."""

from __future__ import annotations

import datetime as dt
import io
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs

from stef_core.errors import RuleError, TransientError
from stef_core.frames import RECORDED, TABLES
from tasks.warehouse import Warehouse, connect

Format = Literal["parquet", "delta"]
FORMATS: tuple[Format, ...] = ("parquet", "delta")
DATED = tuple(table for table in TABLES if table not in RECORDED)  # a folder a day; the others are written whole
FILE = "data.parquet"
DAYS_AT_ONCE = 31  # in one commit of a Delta table: bounds memory, and versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written of one table; `days` is None for a table that is written whole."""

    table: str
    path: str
    rows: int
    days: int | None
    removed: int  # days that were there and have no rows any more

    def to_json(self) -> dict[str, Any]:
        """As ``stef export --json`` prints it."""
        return asdict(self)


class _Lake(Protocol):
    """One table in an open format."""

    def days(self) -> set[dt.date]:
        """Days that are there."""
        ...

    def replace(self, days: Sequence[dt.date], frame: pl.DataFrame) -> None:
        """Put the rows of these days, which lie side by side, into the place of theirs."""
        ...

    def replace_all(self, frame: pl.DataFrame) -> None:
        """Put these rows into the place of all."""
        ...


def export_tables(
    warehouse: str,
    out: str,
    form: Format,
    *,
    since: dt.date | None = None,
    until: dt.date | None = None,
    tables: Sequence[str] = (),
    wait_s: float = 60.0,
    filesystem: pafs.FileSystem | None = None,
) -> list[Exported]:
    """Copy published tables, as they are at one moment, to a folder in an open format.

    Tables of days hold one partition a UTC day, ``dt=YYYY-MM-DD``; all days from `since` to `until` become what the warehouse
    has, those without rows among them. The other tables are written whole. Doing it twice leaves the same rows.

    Args:
        warehouse: URL.
        out: Folder, or URI of one (s3://, gs://, abfs://, file://); a table is a folder in it.
        form: ``parquet`` or ``delta``.
        since: First day; the first there is when None.
        until: Last day; the last there is when None.
        tables: Which; all published ones when empty.
        wait_s: Seconds to wait for the warehouse.
        filesystem: Where `out` is a path on, for ``parquet``; found from `out` when None.

    Raises:
        RuleError: No such table, an `out` that cannot be written, or ``delta`` without the package that writes it.
        TransientError: The warehouse could not be reached, or a write failed midway; doing it again completes it.
    """
    if unknown := sorted(set(tables) - set(TABLES)):
        raise RuleError(f"--tables: no published table {unknown[0]!r}; there are {', '.join(TABLES)}")
    if since and until and until < since:
        raise RuleError(f"--until {until} lies before --since {since}")
    wanted = [table for table in TABLES if table in tables or not tables]
    place = _Folder(out, filesystem) if form == "parquet" else None
    if form == "delta":
        _deltalake()
    done = []
    with connect(warehouse, read_only=True, wait_s=wait_s) as store, store.snapshot():
        for table in wanted:
            path = f"{out.rstrip('/')}/{table}"
            lake: _Lake = _Delta(path, table) if place is None else _Parquet(place, table)
            with _told(path):
                done.append(
                    _export_days(store, lake, table, path, since, until)
                    if table in DATED
                    else _export_all(store, lake, table, path)
                )
    return done


def _export_days(
    store: Warehouse, lake: _Lake, table: str, path: str, since: dt.date | None, until: dt.date | None
) -> Exported:
    def asked_for(day: dt.date) -> bool:
        return (since is None or since <= day) and (until is None or day <= until)

    published = {day for day in store.days(table) if asked_for(day)}
    gone = {day for day in lake.days() if asked_for(day)} - published
    rows = 0
    days = sorted(published | gone)
    for start in range(0, len(days), DAYS_AT_ONCE):
        some = days[start : start + DAYS_AT_ONCE]
        frame = store.read(table, since=some[0], until=some[-1])
        lake.replace(some, frame)
        rows += frame.height
    return Exported(table=table, path=path, rows=rows, days=len(published), removed=len(gone))


def _export_all(store: Warehouse, lake: _Lake, table: str, path: str) -> Exported:
    frame = store.read(table)
    lake.replace_all(frame)
    return Exported(table=table, path=path, rows=frame.height, days=None, removed=0)


class _Folder:
    """A folder on any file system of pyarrow."""

    def __init__(self, out: str, filesystem: pafs.FileSystem | None) -> None:
        if filesystem is not None:
            self.files, self.root = filesystem, out.rstrip("/")
        elif "://" in out:
            try:
                self.files, self.root = pafs.FileSystem.from_uri(out.rstrip("/"))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise RuleError(f"--out {out}: cannot be written to: {_first_line(error)}") from error
        else:
            self.files, self.root = pafs.LocalFileSystem(), str(Path(out).expanduser().absolute())


class _Parquet:
    """Hive-partitioned Parquet, one file a day, without the column dt that its folder says."""

    def __init__(self, place: _Folder, table: str) -> None:
        self._files, self._root = place.files, f"{place.root}/{table}"

    def days(self) -> set[dt.date]:
        found = self._files.get_file_info(pafs.FileSelector(self._root, allow_not_found=True, recursive=True))
        ours = [
            match[1] for entry in found if (match := re.fullmatch(r".*/dt=(\d{4}-\d\d-\d\d)/" + re.escape(FILE), entry.path))
        ]
        return {dt.date.fromisoformat(day) for day in ours}

    def replace(self, days: Sequence[dt.date], frame: pl.DataFrame) -> None:
        parts = {day: part for (day,), part in frame.partition_by("dt", as_dict=True, include_key=False).items()}
        for day in days:
            folder = f"{self._root}/dt={day.isoformat()}"
            if day in parts:
                self._write(folder, parts[day])
            else:
                self._files.delete_file(f"{folder}/{FILE}")

    def replace_all(self, frame: pl.DataFrame) -> None:
        self._write(self._root, frame)

    def _write(self, folder: str, frame: pl.DataFrame) -> None:
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd")
        self._files.create_dir(folder, recursive=True)
        if not isinstance(self._files, pafs.LocalFileSystem):
            self._put(f"{folder}/{FILE}", buffer)  # an object of a store appears whole, or not at all
            return
        arriving = f"{folder}/.{FILE}.{uuid.uuid4().hex}"  # no reader's *.parquet
        try:
            self._put(arriving, buffer)
            Path(arriving).replace(f"{folder}/{FILE}")
        except BaseException:
            Path(arriving).unlink(missing_ok=True)
            raise

    def _put(self, path: str, buffer: io.BytesIO) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(buffer.getbuffer())


class _Delta:
    """A Delta table partitioned by dt; each commit replaces a range of days whole."""

    def __init__(self, path: str, table: str) -> None:
        self._path, self._table = path, table

    def days(self) -> set[dt.date]:
        lake = _deltalake()
        if not lake.DeltaTable.is_deltatable(self._path):
            return set()
        return {dt.date.fromisoformat(part["dt"]) for part in lake.DeltaTable(self._path).partitions()}

    def replace(self, days: Sequence[dt.date], frame: pl.DataFrame) -> None:
        if not _deltalake().DeltaTable.is_deltatable(self._path):
            self._write(TABLES[self._table].to_frame(), partition_by=["dt"])
        predicate = f"dt >= '{days[0]}' AND dt <= '{days[-1]}'"
        # merge: a later version may have a column more
        self._write(frame, mode="overwrite", predicate=predicate, schema_mode="merge")

    def replace_all(self, frame: pl.DataFrame) -> None:
        self._write(frame, mode="overwrite", schema_mode="overwrite")

    def _write(self, frame: pl.DataFrame, **how: Any) -> None:
        lake = _deltalake()
        try:
            lake.write_deltalake(self._path, frame, **how)
        except lake.exceptions.TableNotFoundError as error:
            raise RuleError(f"{self._path}: cannot be written: {_first_line(error)}") from error
        except lake.exceptions.DeltaError as error:
            raise TransientError(f"{self._path}: could not be written: {_first_line(error)}; export again") from error


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise RuleError(
            "--format delta needs the package deltalake: install stef-pipeline[delta], or take --format parquet"
        ) from error
    return deltalake


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What a file system or a Delta table has to say, as an error of ours."""
    try:
        yield
    except (PermissionError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
        raise RuleError(f"{path}: cannot be written: {error.strerror or _first_line(error)}") from error
    except (OSError, pa.ArrowException) as error:
        raise TransientError(f"{path}: could not be written: {_first_line(error)}; export again") from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
