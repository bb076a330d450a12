"""Rows on their way into the log: kept by day in a folder beside it, then moved in whole. Knows no Prefect."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stef_core.errors import InputError
from stef_core.frames import compact_json
from tasks.importing_files import BadRow
from tasks.importing_mapping import COLUMNS, LogRow

REJECTS = "_rejects"  # folder in the log's root, which no reader of days looks at
PREFIX = "import-"
_HELD = 20_000  # rows in memory
_WEIGHT = 64_000_000  # characters of theirs
_FIELDS = 300  # further columns of a file; what lies beyond becomes one
_REST = "further_fields"
_TYPES: dict[str, pa.DataType] = {"asked_at": pa.timestamp("us", "UTC"), "user_feedback": pa.bool_()}
_STAGED = pa.schema(
    [(name, _TYPES.get(name, pa.string())) for name in (*COLUMNS, "_where", "_digest", "_further")]
)  # _further: JSON
_SAYING = ("query_id", "agent_id", "user_question", "generated_sql")  # of a row that is compared with another
_KINDS: dict[str, pa.DataType] = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}


@dataclass(slots=True, kw_only=True)
class Merged:
    """What became of the rows of one source."""

    days: dict[Any, int] = field(default_factory=dict)  # rows that are written, by day
    repeated: int = 0  # rows whose query_id an earlier row of the source has on that day
    present: int = 0  # rows that the log holds already, from another file
    repeats: list[str] = field(default_factory=list)  # some of the repeated query_ids
    bad: list[BadRow] = field(default_factory=list)


class SourceRows:
    """The rows of one source by day, in files of a folder that nobody else sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[Any, list[LogRow]] = defaultdict(list)
        self._count = 0
        self._weight = 0
        self._pieces: dict[Any, list[Path]] = defaultdict(list)
        self._kinds: dict[str, str] = {}
        folder.mkdir(parents=True)

    def add(self, row: LogRow) -> None:
        """Take in one row."""
        further: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in row.further.items():
            # fields that are called after what they hold would make a column a row
            known = name in self._kinds or len(self._kinds) < _FIELDS
            (further if known else rest)[name] = value
            if known:
                self._kinds[name] = _wider(self._kinds.get(name), value)
        if rest:
            further[_REST] = compact_json(rest)
            self._kinds[_REST] = "text"
        self._held[row.day].append(replace(row, further=further))
        self._count += 1
        self._weight += _weight(row.values) + _weight(further)
        if self._count >= _HELD or self._weight >= _WEIGHT:
            self._flush()

    def days(self) -> list[Any]:
        """Days that have rows, oldest first."""
        self._flush()
        return sorted(self._pieces)

    def rows(self, day: Any) -> Iterator[dict[str, Any]]:
        """The rows of a day in the order in which they came."""
        for path in self._pieces[day]:
            with pa.ipc.open_file(path) as reader:
                for number in range(reader.num_record_batches):
                    yield from reader.get_batch(number).to_pylist()

    def schema(self) -> pa.Schema:
        """Columns of the files: those of the log, and the further ones of the source."""
        fields = [(name, _TYPES.get(name, pa.string())) for name in COLUMNS if name != "user_feedback"]
        further = [(name, _KINDS[kind]) for name, kind in sorted(self._kinds.items())]
        return pa.schema([*fields, ("user_feedback", pa.bool_()), *further])

    def table(self, rows: list[dict[str, Any]]) -> pa.Table:
        """Rows of `rows` with `schema`."""
        opened = [json.loads(row["_further"]) for row in rows]
        plain = [
            {**{name: row[name] for name in COLUMNS}, **_fitted(more, self._kinds)}
            for row, more in zip(rows, opened, strict=True)
        ]
        return pa.Table.from_pylist(plain, schema=self.schema())

    def _flush(self) -> None:
        for day, rows in self._held.items():
            path = self._folder / f"{day}-{len(self._pieces[day]):06d}.arrow"
            lines = [
                {**row.values, "_where": row.where, "_digest": row.digest, "_further": compact_json(row.further)}
                for row in rows
            ]
            with pa.ipc.new_file(path, _STAGED) as writer:
                writer.write_table(pa.Table.from_pylist(lines, schema=_STAGED))
            self._pieces[day].append(path)
        self._held.clear()
        self._count = self._weight = 0


def _weight(values: Mapping[str, Any]) -> int:
    return sum(len(value) for value in values.values() if isinstance(value, str))


def _wider(kind: str | None, value: Any) -> str:
    own = {bool: "bool", int: "int", float: "float"}.get(type(value), "text")
    if kind is None or kind == own:
        return own
    return "float" if {kind, own} == {"int", "float"} else "text"


def _fitted(further: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """Further values in the type that holds all of their column."""
    return {
        name: value if kinds[name] in ("bool", "int") or (kinds[name] == "text" and isinstance(value, str))
        else float(value) if kinds[name] == "float"
        else json.dumps(value)
        for name, value in further.items()
    }  # fmt: skip


def _said(row: dict[str, Any]) -> bytes:
    """Whose answer a row is, and what it says: rows with one id that differ in it are two."""
    return hashlib.sha256(compact_json([row.get(name) for name in _SAYING]).encode("utf-8", "replace")).digest()


class Inbox:
    """A folder inside the log's root in which an import is made ready, and the moves out of it.

    Args:
        root: Root of the log; made, for its owner alone, where it is absent.

    Raises:
        OSError: The root cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.made_root = not root.exists()
        if self.made_root:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=0o700)
        self.private = self.made_root or not root.stat().st_mode & 0o077
        self.folder = Path(tempfile.mkdtemp(prefix=".import-", dir=root))

    def close(self, *, keep_root: bool) -> None:
        """Leave nothing behind but what was moved into the log."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.made_root and not keep_root and not any(self._root.iterdir()):
            self._root.rmdir()

    def kept(self, stem: str) -> SourceRows:
        """Where the rows of one source are kept."""
        return SourceRows(self.folder / f"rows-{stem}")

    def merge(self, kept: SourceRows, stem: str, file: str, *, ids_are_meant: bool) -> Merged:
        """Make the files of one source: ids where they lack, each once a day.

        Args:
            kept: Its rows.
            stem: Name of its files.
            file: Its name, for messages.
            ids_are_meant: Whether the source's ids are known to be ids; else one that repeats is no id.

        Raises:
            InputError: What was taken for an id repeats, or a file of the log cannot be read.
        """
        merged = Merged()
        for day in kept.days():
            there = self._present(day, stem)
            seen: dict[str, str] = {}
            made: Counter[str] = Counter()
            ready: list[dict[str, Any]] = []
            written = weight = 0
            target = self.folder / f"dt={day}" / f"{stem}.parquet"
            writer: pq.ParquetWriter | None = None
            try:
                for row in kept.rows(day):
                    if row["query_id"] is None:
                        made[row["_digest"]] += 1
                        again = made[row["_digest"]]
                        row["query_id"] = f"{row['_digest']}-{again}" if again > 1 else row["_digest"]
                    if not self._is_new(row, seen, there, file, merged, ids_are_meant=ids_are_meant):
                        continue
                    seen[row["query_id"]] = row["_where"]
                    ready.append(row)
                    weight += _weight(row)
                    if len(ready) >= _HELD or weight >= _WEIGHT:
                        writer = writer or self._writer(target, kept.schema())
                        writer.write_table(kept.table(ready))
                        written += len(ready)
                        ready, weight = [], 0
                if ready:
                    writer = writer or self._writer(target, kept.schema())
                    writer.write_table(kept.table(ready))
                    written += len(ready)
            finally:
                if writer is not None:
                    writer.close()
            if written:
                merged.days[day] = written
        return merged

    def _is_new(
        self,
        row: dict[str, Any],
        seen: dict[str, str],
        there: dict[str, bytes],
        file: str,
        merged: Merged,
        *,
        ids_are_meant: bool,
    ) -> bool:
        identity, where = row["query_id"], row["_where"]
        if identity in seen:
            if not ids_are_meant:
                raise InputError(
                    f"{file}: {where}: {identity!r}, taken for a query_id, stands also at {seen[identity]}; say --map query_id="
                    " to have ids made, or --map query_id=FIELD to keep the first row of each"
                )
            merged.repeated += 1
            if len(merged.repeats) < 5:
                merged.repeats.append(f"{identity} ({where})")
            return False
        if identity in there:
            if there[identity] == _said(row):
                merged.present += 1
                return False
            reason = f"the log has another row {identity!r} on {row['asked_at']:%Y-%m-%d}; say --map query_id= to have ids made"
            record = {name: row[name] for name in COLUMNS}
            merged.bad.append(BadRow(file=file, where=where, column="query_id", reason=reason, record=record))
            return False
        return True

    def _writer(self, target: Path, schema: pa.Schema) -> pq.ParquetWriter:
        target.parent.mkdir(exist_ok=True)
        return pq.ParquetWriter(target, schema, compression="zstd")

    def _present(self, day: Any, stem: str) -> dict[str, bytes]:
        """What rows of a day say, by `query_id`: those of other sources, of this import, too."""
        found: dict[str, bytes] = {}
        for base in (self._root, self.folder):
            for path in sorted((base / f"dt={day}").glob("*.parquet")):
                if path.stem == stem or path.name.startswith((".", "_")):
                    continue
                try:
                    with pq.ParquetFile(path) as file:
                        for batch in file.iter_batches(columns=list(_SAYING)):
                            for row in batch.to_pylist():
                                if row.get("query_id") is not None:
                                    found.setdefault(str(row["query_id"]), _said(row))
                except (pa.ArrowException, OSError) as error:
                    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                    raise InputError(f"{path}: a file of the log cannot be read: {first}") from error
        return found

    def publish(self, stem: str, *, also: str | None = None) -> tuple[bool, list[str]]:
        """Move the files of a source into the log, and take away those it had there.

        Args:
            stem: Name of its files.
            also: Beginning of names of other files that go, too.

        Returns:
            Whether an earlier import of the source was there, and days from which it was taken away without a new file.
        """
        before = any(self._root.glob(f"dt=*/{stem}.parquet"))
        arriving = sorted(self.folder.glob(f"dt=*/{stem}.parquet"))
        names = {path.parent.name for path in arriving}
        for path in arriving:
            folder = self._root / path.parent.name
            folder.mkdir(mode=0o700 if self.private else 0o777, exist_ok=True)
            self._move(path, folder / path.name)
        gone = [path for path in self._root.glob(f"dt=*/{stem}.parquet") if path.parent.name not in names]
        gone += [path for path in self._root.glob(f"dt=*/{also}*.parquet") if also and path.stem != stem]
        for path in gone:
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
        left = {path.parent.name for path in gone} - names
        return before, sorted(name.removeprefix("dt=") for name in left)

    def others(self, stem: str, begin: str) -> bool:
        """Whether the log has files of the same source under another name."""
        return any(path.stem != stem for path in self._root.glob(f"dt=*/{begin}*.parquet"))

    def rejects(self, stem: str, bad: Path | None) -> Path | None:
        """Put the refused rows of a source beside the log, in place of those of an earlier import."""
        target = self._root / REJECTS / f"{stem}.jsonl"
        if bad is None or not bad.exists():
            target.unlink(missing_ok=True)
            return None
        target.parent.mkdir(mode=0o700, exist_ok=True)
        bad.chmod(0o600)
        bad.replace(target)
        return target

    def _move(self, path: Path, target: Path) -> None:
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        if self.private:
            path.chmod(0o600)
        path.replace(target)
