"""Files of any shape as rows: found, recognised, decoded and read one row after the other. Knows no Prefect."""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import hashlib
import io
import itertools
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from stef_core.errors import InputError, RuleError
from tasks.importing_values import looks_like_sql

SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".pq")
CONTAINERS = ("csv", "json", "jsonl", "parquet")
DELIMITERS = (",", ";", "\t", "|")
FIELD_CHARS = 1_000_000  # of one field of CSV: beyond it a quote was lost, and longer SQL is not read anyway
_CHUNK = 1024 * 1024
_PARQUET_ROWS = 2_000  # read at once
_FOREIGN = {
    b"PK\x03\x04": "a spreadsheet or an archive; save the sheet as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save the sheet as CSV",
    b"SQLite format 3": "a SQLite database; export the table as CSV",
    b"%PDF": "a PDF",
    b"(\xb5/\xfd": "packed with zstd; unpack it first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file, as it came."""

    where: str  # "line 7", "row 3": the place in its file, as an editor or a table counts
    record: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be taken into the log, with the reason."""

    file: str
    where: str
    column: str | None
    reason: str
    record: Any = None  # as far as it could be read

    def __str__(self) -> str:
        column = f": column {self.column}" if self.column else ""
        return f"{self.file}: {self.where}{column}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file, and what can be told of it before its rows are read."""

    path: Path
    sha256: str  # of its bytes
    container: str  # csv, json, jsonl or parquet
    packed: bool  # with gzip
    encoding: str
    delimiter: str = ","
    notes: tuple[str, ...] = field(default=())


def find_files(names: Sequence[str]) -> list[Path]:
    """The files that names, folders and patterns mean, each once, sorted within a folder or pattern.

    Raises:
        InputError: One means nothing.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            inside = [each for each in sorted(path.rglob("*")) if each.is_file() and _wanted(each.relative_to(path))]
            if not inside:
                raise InputError(f"{name}: holds no file that ends with {', '.join(SUFFIXES)} (or .gz behind it)")
        elif path.is_file():
            inside = [path]
        elif path.exists():
            raise InputError(f"{name}: is neither a file nor a folder; write what comes from it to a file first")
        else:
            inside = [Path(each) for each in sorted(glob.glob(str(path), recursive=True)) if Path(each).is_file()]
            if not inside:
                raise InputError(f"{name}: {'nothing matches' if glob.has_magic(name) else 'no such file or folder'}")
        found.update(dict.fromkeys(inside))
    return list(found)


def _wanted(inside: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in inside.parts)
    return not hidden and Path(inside.name.lower().removesuffix(".gz")).suffix in SUFFIXES


def inspect(path: Path, container: str | None = None, encoding: str | None = None, delimiter: str | None = None) -> Source:
    """Recognise a file; it is read through once, a piece at a time.

    Args:
        path: The file.
        container: csv, json, jsonl or parquet; None finds out.
        encoding: Python's name of one; None finds out: UTF-8 and UTF-16 are recognised, anything else is windows-1252.
        delimiter: Of CSV; None finds out.

    Raises:
        InputError: The file cannot be read, is empty, or is of a kind that is not known.
        RuleError: Encoding or delimiter cannot be.
    """
    if encoding is not None:
        try:
            "".encode(encoding)
            codecs.getincrementaldecoder(encoding)
        except (LookupError, UnicodeError) as error:
            raise RuleError(f"--encoding {encoding}: is not known; write utf-8, windows-1252, utf-16 or the like") from error
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '\r\n"'):
        raise RuleError(f"--delimiter {delimiter!r}: is not one character; write , ; | or tab")
    with _told(path):
        with path.open("rb") as handle:
            packed = handle.read(2) == b"\x1f\x8b"
        with _bytes(path, packed=packed) as stream:
            head = stream.read(_CHUNK)
        if not head.strip():
            raise InputError(f"{path}: is empty")
        for magic, kind in _FOREIGN.items():
            if head.startswith(magic):
                raise InputError(f"{path}: is {kind}")
        if head.startswith(b"PAR1") or container == "parquet":
            return Source(path=path, sha256=_hash(path), container="parquet", packed=False, encoding="")
        found, note = (encoding, None) if encoding is not None else _encoding(path, packed, head)
        digest = _hash(path)
    notes = [note] if note else []
    try:
        text = codecs.getincrementaldecoder(found)().decode(head).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not {found} (byte {error.start:,}); name the encoding with --encoding") from error
    container = container or _container(path, text)
    if container == "csv" and delimiter is None:
        delimiter = _delimiter(path, text)
    return Source(
        path=path,
        sha256=digest,
        container=container,
        packed=packed,
        encoding=found,
        delimiter=delimiter or ",",
        notes=tuple(notes),
    )


def read_rows(source: Source) -> Iterator[Row | BadRow]:
    """The rows of a file in order, a few in memory at a time; a JSON file (not JSON lines) is read whole.

    Raises:
        InputError: The file as a whole cannot be read; the message says where it breaks.
    """
    readers = {"csv": _csv_rows, "jsonl": _json_lines, "json": _json_items, "parquet": _parquet_rows}
    with _told(source.path):
        try:
            yield from readers[source.container](source)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source.path}: is not {source.encoding} (byte {error.start:,} of a piece); name another one with --encoding"
            ) from error


def _hash(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile as error:
        raise InputError(f"{path}: is damaged: {error}") from error
    except EOFError as error:
        raise InputError(f"{path}: is cut off") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def _bytes(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as handle:
        if packed:
            with gzip.open(handle) as stream:
                yield stream  # type: ignore[misc]  # reads bytes as a file does
        else:
            yield handle


@contextmanager
def _text(source: Source) -> Iterator[io.TextIOWrapper]:
    with _bytes(source.path, packed=source.packed) as stream:
        encoding = "utf-8-sig" if source.encoding.replace("_", "-").casefold() == "utf-8" else source.encoding
        yield io.TextIOWrapper(stream, encoding=encoding, newline="")


def _encoding(path: Path, packed: bool, head: bytes) -> tuple[str, str | None]:
    """The encoding of a file, and a note where it was guessed."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", None
    for encoding, start in (("utf-16-le", 1), ("utf-16-be", 0)):
        if len(head) > 3 and head[start:400:2].count(0) > len(head[:400]) // 3:
            return encoding, f"{path.name}: is read as {encoding.upper()}; name another encoding with --encoding"
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _bytes(path, packed=packed) as stream:
        try:
            while piece := stream.read(_CHUNK):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            pass
        else:
            return "utf-8", None
    note = f"{path.name}: is not UTF-8, so it is read as windows-1252; look at its letters, name another one with --encoding"
    with _bytes(path, packed=packed) as stream:
        defined = all(not set(piece) & {0x81, 0x8D, 0x8F, 0x90, 0x9D} for piece in iter(lambda: stream.read(_CHUNK), b""))
    return ("cp1252", note) if defined else ("latin-1", note.replace("windows-1252", "latin-1"))


def _container(path: Path, text: str) -> str:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    start = text.lstrip()[:1]
    if suffix in (".csv", ".tsv", ".tab") or start not in ("{", "["):
        if suffix in (".json", ".jsonl", ".ndjson"):
            return "jsonl" if suffix != ".json" else "json"  # its error is told when it is read
        return "csv"
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    first, _, rest = text.lstrip().partition("\n")
    try:
        whole = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return "json"
    return "jsonl" if whole and rest.strip() else "json"


def _delimiter(path: Path, text: str) -> str:
    """The delimiter under which the first rows have the same number of fields, the more the better."""
    if Path(path.name.lower().removesuffix(".gz")).suffix in (".tsv", ".tab"):
        return "\t"
    if match := re.match(r"sep=(.)\r?\n", text):
        return match[1]
    best = (0.0, 0, ",")
    for delimiter in DELIMITERS:
        try:
            rows = [row for row in itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 50) if row]
        except csv.Error:
            continue
        if not rows or len(rows[0]) < 2:
            continue
        # the last one may be cut off by the end of the piece
        alike = [len(row) == len(rows[0]) for row in rows[:-1] or rows]
        best = max(best, (sum(alike) / len(alike), len(rows[0]), delimiter), key=lambda each: each[:2])
    return best[2]


def _csv_rows(source: Source) -> Iterator[Row | BadRow]:
    before = csv.field_size_limit(FIELD_CHARS)
    try:
        with _text(source) as stream:
            yield from _read_csv(source, _Lines(stream))
    finally:
        csv.field_size_limit(before)


class _Lines:
    """Lines of a text, of which those behind a broken one can be read anew."""

    def __init__(self, stream: Iterator[str]) -> None:
        self._stream = stream
        self._again: deque[str] = deque()
        self.number = 0  # lines taken so far
        self.taken: list[str] = []  # since `begin`

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._stream)
        self.number += 1
        self.taken.append(line)
        return line

    def begin(self) -> int:
        """Start a row; the number of its first line."""
        self.taken = []
        return self.number + 1

    def give_up(self) -> str:
        """The first line of a row that cannot be read; the others of it come again."""
        self._again.extendleft(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1
        return self.taken[0].rstrip("\r\n")


def _read_csv(source: Source, lines: _Lines) -> Iterator[Row | BadRow]:
    path = source.path
    reader = csv.reader(lines, delimiter=source.delimiter, strict=True)
    names: list[str] | None = None
    number = 0
    while True:
        place = f"line {lines.begin()}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if names is None:
                raise InputError(f"{path}: {place}: the names of the columns cannot be read: {error}") from error
            number += 1
            inside = "a quote stands inside a quoted field; write it twice"
            reason = inside if "expected after" in str(error) else "a quote is opened there and not closed"
            if "field limit" in str(error):
                reason = f"has a field of more than {FIELD_CHARS:,} characters, or a quote that is not closed"
            yield BadRow(file=str(path), where=f"row {number}, {place}", column=None, reason=reason, record=lines.give_up())
            continue
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        if names is None:
            if cells[0].startswith("sep=") and len("".join(cells)) <= len("sep=,"):
                continue  # how Excel tells the delimiter
            names = _names(source, cells, place)
            continue
        number += 1
        where = f"row {number}, {place}"
        while len(cells) > len(names) and not cells[-1].strip():
            cells.pop()
        if len(cells) != len(names):
            reason = f"has {len(cells)} fields, the head has {len(names)}"
            yield BadRow(file=str(path), where=where, column=None, reason=reason, record=cells)
            continue
        yield Row(where=where, record={name: cell if cell != "" else None for name, cell in zip(names, cells, strict=True)})


def _names(source: Source, cells: list[str], place: str) -> list[str]:
    if any(looks_like_sql(cell) for cell in cells):
        raise InputError(f"{source.path}: {place}: holds SQL and no names of columns; put a line with their names first")
    names: list[str] = []
    for position, cell in enumerate(cells, start=1):
        name = plain = cell.strip() or f"column_{position}"
        again = 1
        while name in names:
            again += 1
            name = f"{plain}_{again}"
        names.append(name)
    return names


def _json_lines(source: Source) -> Iterator[Row | BadRow]:
    with _text(source) as stream:
        for number, line in enumerate(stream, start=1):
            text = line.strip()
            if not text:
                continue
            where = f"line {number}"
            try:
                record = json.loads(text)
            except RecursionError:
                yield BadRow(file=str(source.path), where=where, column=None, reason="is nested too deep", record=text[:1000])
            except ValueError as error:
                reason = f"is no JSON: {error}"
                yield BadRow(file=str(source.path), where=where, column=None, reason=reason, record=text[:1000])
            else:
                if isinstance(record, dict):
                    yield Row(where=where, record=record)
                else:
                    reason = f"is a {type(record).__name__}, no JSON object"
                    yield BadRow(file=str(source.path), where=where, column=None, reason=reason, record=record)


def _json_items(source: Source) -> Iterator[Row | BadRow]:
    with _text(source) as stream:
        try:
            whole = json.loads(stream.read())
        except RecursionError as error:
            raise InputError(f"{source.path}: is nested too deep") from error
        except ValueError as error:
            raise InputError(f"{source.path}: is no JSON: {error}; a file of one object a line is --format jsonl") from error
    for number, record in enumerate(_items(whole, source.path), start=1):
        where = f"item {number}"
        if isinstance(record, dict):
            yield Row(where=where, record=record)
        else:
            reason = f"is a {type(record).__name__}, no JSON object"
            yield BadRow(file=str(source.path), where=where, column=None, reason=reason, record=record)


def _items(whole: Any, path: Path) -> list[Any]:
    """The rows of a JSON document: a list, a list inside an object, or columns as pandas writes them."""
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict):
        raise InputError(f"{path}: holds a single {type(whole).__name__}; a list of objects is wanted")
    if "resourceSpans" in whole or "trace" in whole or "observations" in whole:
        return [whole]
    if {"input", "output", "inputs", "outputs"} & whole.keys():
        return [whole]
    inner = list(whole.values())
    if (
        len(inner) > 1
        and all(isinstance(each, dict) for each in inner)
        and all(each.keys() == inner[0].keys() for each in inner)
    ):
        if not any(isinstance(each, dict) for each in inner[0].values()) and all(key.isdecimal() for key in inner[0]):
            return [{name: column[key] for name, column in whole.items()} for key in inner[0]]
        return inner
    lists = [each for each in inner if isinstance(each, list) and each and all(isinstance(one, dict) for one in each)]
    return lists[0] if len(lists) == 1 else [whole]


def _parquet_rows(source: Source) -> Iterator[Row | BadRow]:
    number = 0
    try:
        with pq.ParquetFile(source.path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for record in _microseconds(batch).to_pylist():
                    number += 1
                    yield Row(where=f"row {number}", record=record)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{source.path}: row {number + 1}: cannot be read as Parquet: {first}") from error


def _microseconds(batch: pa.RecordBatch) -> pa.Table:
    """Nanoseconds as microseconds, which Python's own type holds."""
    table = pa.Table.from_batches([batch])
    for position, kind in enumerate(table.schema.types):
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            wanted = pa.timestamp("us", kind.tz)
            name = table.schema.names[position]
            table = table.set_column(position, name, table.column(position).cast(wanted, safe=False))
    return table
