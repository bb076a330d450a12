"""A day's work under way, on disk: every batch of rows in files of its own.

Memory so does not grow with the day, tasks hand each other numbers instead of rows whatever process they run in, and what a
killed run had finished is found by the next run of the same work. A file is there whole or not at all. It holds rows as the log
has them, before anything is masked: folders are for their owner alone, and go when their day ends.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from stef_core.errors import RuleError, SpoolError, StefError, TransientError
from stef_core.frames import compact_json
from stef_core.rules import Rules
from stef_core.version import CORE_VERSION

KEPT_DAYS = 7  # a folder that nobody has come back to
LEDGER = "budget-{run}.sqlite"  # what the processes of a run have spent together (tasks.crew)
ROWS_AT_ONCE = 10_000  # of a frame that is put together from batches
# a day of more than so many batches gets larger ones, as each is a task to tell of; but of a size that memory bears
BATCHES, BATCHES_MAX, BATCH_ROWS = 40, 1_000, 1_000
# what bears on what is read and judged; all else bears on how fast, how dear, or what becomes of it
_BEARING = (
    "judge",
    "model",
    "base_url",
    "fused",
    "samples",
    "sample_temperature",
    "logprobs",
    "batch_size",
    "row_seconds",
    "row_memory_mb",
)


class Spool:
    """The files of one day's work.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spool) and other.folder == self.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    def within(self, name: str) -> Spool:
        """A folder of it."""
        return Spool(self.folder / name)

    # --- frames -----------------------------------------------------------------------------------------------------

    def write(self, kind: str, number: int, frame: pl.DataFrame) -> None:
        """Keep a frame as batch `number` of its kind, from 0."""
        data = io.BytesIO()  # a batch is small, and polars does not say why a disk refused it
        frame.write_parquet(data, compression="lz4", statistics=False)
        self._put(self._part(kind, number), lambda path: path.write_bytes(data.getbuffer()))

    def read(self, kind: str, number: int) -> pl.DataFrame:
        """The frame of a batch.

        Raises:
            SpoolError: It is gone.
        """
        path = self._part(kind, number)
        try:
            frame: pl.DataFrame = pl.read_parquet(path)
        except FileNotFoundError as error:
            raise _lost(path) from error
        return frame

    def parts(self, kind: str, batches: int | None = None) -> list[Path]:
        """The files of a kind, in order.

        Args:
            kind: Of the batches.
            batches: How many were written, where that is known.

        Raises:
            SpoolError: Some of them are gone.
        """
        found = sorted(self.folder.glob(f"{kind}-[0-9]*.parquet"))
        if batches is not None and len(found) < batches:
            there = set(found)
            raise _lost(next(path for path in (self._part(kind, n) for n in range(batches)) if path not in there))
        return found

    def scan(self, kind: str, schema: pl.Schema, batches: int | None = None) -> pl.LazyFrame:
        """All rows of a kind, in the order of batches; `schema` where there are none. As `parts` else."""
        parts = self.parts(kind, batches)
        return pl.scan_parquet(parts) if parts else schema.to_frame().lazy()

    # --- what a batch came to, and objects of the core --------------------------------------------------------------

    def note(self, kind: str, number: int, facts: Mapping[str, Any]) -> None:
        """Keep what a batch came to; written last, it says that the batch is done."""
        text = compact_json(dict(facts))
        self._put(self.folder / f"{kind}-{number:06}.json", lambda path: path.write_text(text, encoding="utf-8"))

    def noted(self, kind: str, number: int) -> dict[str, Any] | None:
        """What a batch came to; None while it is not done."""
        try:
            found = json.loads((self.folder / f"{kind}-{number:06}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None

    def write_objects(self, kind: str, number: int, objects: Any) -> None:
        """Keep records of the core."""
        data = pickle.dumps(objects, protocol=5)
        self._put(self.folder / f"{kind}-{number:06}.bin", lambda path: path.write_bytes(data))

    def read_objects(self, kind: str, number: int) -> Any:
        """Records of the core; a file that holds anything else is refused.

        Raises:
            pickle.UnpicklingError: It names a class that is none of ours.
            SpoolError: It is gone.
        """
        path = self.folder / f"{kind}-{number:06}.bin"
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise _lost(path) from error
        return _OwnClasses(io.BytesIO(data)).load()

    def _part(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:06}.parquet"

    def _put(self, path: Path, write: Callable[[Path], object]) -> None:
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            _make(self.folder)
            write(draft)
            os.replace(draft, path)
        except OSError as error:
            raise _refused(self.folder, error) from error
        finally:
            with suppress(OSError):  # of a folder that is gone, or a disk that fails
                draft.unlink(missing_ok=True)

    # --- the folder -------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether there is such a folder."""
        return self.folder.is_dir()

    def become(self, folder: Path) -> Spool:
        """Move to another name; where that is taken, what is there stays and this one goes, unless files of it are gone.

        Raises:
            SpoolError: It cannot be moved.
        """
        try:
            _make(folder.parent)
            if folder.is_dir() and not _names(self.folder) <= _names(folder):
                shutil.rmtree(folder)
            try:
                self.folder.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
                self.remove()
            os.utime(folder)
        except OSError as error:
            raise _refused(folder.parent, error) from error
        return Spool(folder)

    def remove(self) -> None:
        """Throw all of it away."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledTable:
    """Rows of one table of a day, put together from its batches each time they are asked for.

    `constants` are columns that are the same in all rows and that no batch knew. `batches` is how many there are.
    """

    spool: Spool
    kind: str
    batches: int
    schema: pl.Schema
    constants: Mapping[str, Any]

    def __iter__(self) -> Iterator[pl.DataFrame]:
        columns = [pl.lit(value, dtype=self.schema[name]).alias(name) for name, value in self.constants.items()]
        for frame in gathered(map(pl.read_parquet, self.spool.parts(self.kind, self.batches))):
            yield frame.with_columns(columns).select(self.schema.names()).cast(self.schema)

    def frame(self, *order: str) -> pl.DataFrame:
        """All rows at once, sorted."""
        rows: pl.DataFrame = pl.concat([self.schema.to_frame(), *self]).sort(order)
        return rows


def gathered(frames: Iterable[pl.DataFrame], rows: int = ROWS_AT_ONCE) -> Iterator[pl.DataFrame]:
    """Small frames put together to some of at least so many rows; the last may be smaller, and frames stay whole."""
    waiting: list[pl.DataFrame] = []
    height = 0
    for frame in frames:
        waiting.append(frame)
        height += frame.height
        if height >= rows:
            yield pl.concat(waiting)
            waiting, height = [], 0
    if waiting:
        yield pl.concat(waiting)


def batch_rows(asked: int, rows: int) -> int:
    """Rows of a batch of a day.

    Args:
        asked: At least so many.
        rows: Of the day.
    """
    return max(asked, min(BATCH_ROWS, math.ceil(rows / BATCHES)), math.ceil(rows / BATCHES_MAX))


def open_spool(root: Path, day: Any) -> Spool:
    """A new folder for a day that is being read.

    Raises:
        RuleError: It cannot be made; the message names the setting.
    """
    folder = root.expanduser() / f"{day}-{uuid.uuid4().hex}"
    try:
        _make(folder)
    except OSError as error:
        raise RuleError(f"STEF_SPOOL: {root}: no folder can be made there: {error.strerror}") from error
    return Spool(folder.resolve())


def work_of(settings: Any, rules: Mapping[str, Rules], day: Any, files: Iterable[Mapping[str, Any]], more: str = "") -> str:
    """The name of a day's work: equal where the same rows would be read and judged alike.

    Args:
        settings: Say who reads and judges, and for which warehouse.
        rules: Rules by `app_id`.
        day: The partition.
        files: What tells its files from others.
        more: What else tells this work from another.
    """
    parts = [
        *(f"{name}={getattr(settings, name)!r}" for name in _BEARING),
        hashlib.sha256(settings.warehouse.encode()).hexdigest(),
        *(f"{app}={rules[app].content_hash}" for app in sorted(rules)),
        *(f"{file['path']}={file['sha256']}" for file in files),
        version("stef-pipeline"),
        CORE_VERSION,
        more,
    ]
    return f"{day}-{hashlib.sha256(chr(10).join(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def sweep(root: Path, *, clock: Callable[[], float] = time.time) -> int:
    """Throw away what killed runs left and nobody came back to, and ledgers of budgets; returns how many there were.

    Args:
        root: Folder of all of them.
        clock: Seconds since 1970.
    """
    found, root = 0, root.expanduser()
    for path in (*root.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]-*"), *root.glob(LEDGER.format(run="*"))):
        try:
            age = clock() - path.stat().st_mtime
        except FileNotFoundError:  # its own run has just ended
            continue
        if age > KEPT_DAYS * 86_400:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            found += 1
    return found


def as_spool_error(error: Exception, spool: Spool | None) -> Exception:
    """What became of a day whose spool may have gone meanwhile: whoever reads a file of it tells only that there is none."""
    if isinstance(error, StefError) or spool is None:
        return error
    is_lost = not spool.exists or (isinstance(error, FileNotFoundError) and str(spool.folder) in str(error))
    return _lost(spool.folder) if is_lost else error


def is_worth_keeping(error: Exception) -> bool:
    """Whether the same run may pass later, and go on with what a day that ended with `error` has left in its spool."""
    return isinstance(error, TransientError) and not (isinstance(error, SpoolError) and error.lost)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _refused(folder: Path, error: OSError) -> SpoolError:
    why = error.strerror or error
    return SpoolError(
        f"STEF_SPOOL: {folder}: cannot be written: {why}; make room there or name another folder, and run the day again"
    )


def _lost(path: Path) -> SpoolError:
    return SpoolError(f"STEF_SPOOL: {path}: is gone while its day is under way; run the day again", lost=True)


_DATES = frozenset({"datetime", "date", "time", "timedelta", "timezone"})
_OWN = frozenset({"stef_core.records", "stef_core.evaluate"})


class _OwnClasses(pickle.Unpickler):
    """Reads records of the core and dates, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module in _OWN and name[:1].isupper() and "." not in name) or (module == "datetime" and name in _DATES):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a spool")
