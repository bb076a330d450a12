"""Questions with gold SQL, read from CSV, JSON lines or Parquet.

Source: experiments.md, "The loop" 1.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from stef_core.errors import InputError
from stef_core.experiments.statements import split_statements

FORMATS = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".parquet": "Parquet",
    ".pq": "Parquet",
}
# what other data sets call our columns, best known first; letter case does not matter
NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "user_question", "query"),
    "gold_sql": ("gold_sql", "gold", "sql", "expected_sql", "query"),
    "level": ("level", "levels", "difficulty", "hardness"),
    "split": ("split",),
    "query_id": ("query_id", "question_id", "id"),
    "enriched_question": ("enriched_question", "evidence"),
}
REQUIRED = ("question", "gold_sql")
UNLEVELLED = "none"  # level of rows that state none
LEVELS = ("easy", "simple", "medium", "moderate", "hard", "challenging", "extra")  # the order that tables show
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldRow:
    """One question with the queries that are accepted as its answer."""

    query_id: str
    question: str
    gold_sql: tuple[str, ...]  # one at least; matching one of them is enough
    level: str = UNLEVELLED  # lower-case
    split: str = ""
    enriched_question: str | None = None
    number: int = 0  # of the row in its file, from 1

    @property
    def content(self) -> str:
        """Question and SQL with white space collapsed: equal for rows that ask the same."""
        return "\x00".join(" ".join(text.split()) for text in (self.question, *self.gold_sql))


def read_gold(path: str | Path, columns: Mapping[str, str] | None = None) -> list[GoldRow]:
    """Read a data set.

    Args:
        path: A ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson`` or ``.parquet`` file. ``gold_sql`` is a list, a JSON list, or one
            text in which ``;`` separates accepted queries.
        columns: The file's name of a column of `NAMES`, where it is none of the names known.

    Raises:
        InputError: The message names the file, and the row and column where they are known.
    """
    lines = read_table(Path(path))
    return gold_rows(lines, str(path), columns)


def gold_rows(lines: Sequence[Mapping[str, Any]], origin: str, columns: Mapping[str, str] | None = None) -> list[GoldRow]:
    """Rows of a table as gold rows.

    Args:
        lines: One mapping a row; all have the same keys.
        origin: What messages call the table.
        columns: As in `read_gold`.

    Raises:
        InputError: A column is missing, or a value is wrong; the message names it.
    """
    if not lines:
        raise InputError(f"{origin}: holds no rows")
    named = named_columns(list(lines[0]), origin, NAMES, REQUIRED, columns or {})
    rows = [_gold_row(line, named, number, origin) for number, line in enumerate(lines, 1)]
    seen: dict[str, int] = {}
    times: dict[str, int] = {}
    for n, row in enumerate(rows):
        if "query_id" not in named:
            # equal rows of a file without ids are told apart by their place among themselves
            times[row.query_id] = times.get(row.query_id, 0) + 1
            rows[n] = replace(row, query_id=f"{row.query_id}-{times[row.query_id]}") if times[row.query_id] > 1 else row
        elif row.query_id in seen:
            raise InputError(
                f"{origin}: row {row.number}: column {named['query_id']} is {row.query_id!r}, as in row {seen[row.query_id]}; "
                "ids must differ"
            )
        seen[row.query_id] = row.number
    return rows


def named_columns(
    there: Sequence[str],
    origin: str,
    names: Mapping[str, Sequence[str]],
    required: Collection[str],
    columns: Mapping[str, str],
) -> dict[str, str]:
    """Which of the columns that are there is which of ours.

    Args:
        there: Columns of the table.
        origin: What messages call the table.
        names: Known names of each of our columns, best first, lower-case.
        required: Those of ours that must be there.
        columns: Names that the user gave.

    Raises:
        InputError: A column that is required, or that the user named, is missing.
    """
    for name, theirs in columns.items():
        if name not in names:
            near = _near(name, names)
            raise InputError(f"--map {name}={theirs}: {name} is none of {', '.join(names)}{near}")
        if theirs not in there:
            near = _near(theirs, there) or f"; columns there: {', '.join(there)}"
            raise InputError(f"{origin}: column {theirs} is missing{near}")
    found = dict(columns)
    lower = {name.strip().casefold(): name for name in reversed(there)}
    # those whose first names are there go first: `query` is the SQL beside a `question`, the question beside an `SQL`
    for rank in range(max(map(len, names.values()))):
        for name, known in names.items():
            if name in found or rank >= len(known):
                continue
            candidate = lower.get(known[rank])
            if candidate is not None and candidate not in found.values():
                found[name] = candidate
    for name in required:
        if name not in found:
            raise InputError(
                f"{origin}: no column for {name} (known names: {', '.join(names[name])}); columns there: {', '.join(there)}; "
                f"map it with --map {name}=NAME"
            )
    return found


def read_table(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV (values are text), JSON lines or Parquet file.

    Raises:
        InputError: There is no such file, or it is not what its name says.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: is neither of {', '.join(FORMATS)}; save it as one of them")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if kind == "Parquet":
        try:
            return pl.read_parquet(path).to_dicts()
        except (pl.exceptions.PolarsError, OSError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise InputError(f"{path}: cannot be read as Parquet: {reason}") from error
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if kind == "JSON lines":
        return json_lines(path, text)
    return _csv(path, text, "\t" if path.suffix.lower() == ".tsv" else ",")


def level_key(level: str) -> tuple[int, str]:
    """What sorts levels from easy to hard; unknown ones follow by name."""
    return (LEVELS.index(level) if level in LEVELS else len(LEVELS), level)


def accepted(value: Any) -> tuple[str, ...] | None:
    """Accepted queries of one cell: a list, a JSON list, or queries with ``;`` between them; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, str):
        return statements(value)
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return tuple(dict.fromkeys(part for each in value for part in statements(each)))
    return None


def statements(text: str) -> tuple[str, ...]:
    """The statements of a text, split at semicolons outside literals, names and comments; repeats and empty ones left out."""
    return tuple(dict.fromkeys(part for part in split_statements(text, None) if part))


def _gold_row(line: Mapping[str, Any], named: Mapping[str, str], number: int, origin: str) -> GoldRow:
    def fail(name: str, wanted: str) -> InputError:
        shown = repr(line.get(named[name]))
        shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
        return InputError(f"{origin}: row {number}: column {named[name]} is {shown}; it must be {wanted}")

    def text(name: str) -> str:
        value = line.get(named[name]) if name in named else None
        if value is None or (isinstance(value, float) and value != value):
            return ""
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, int) and name != "question":
            return str(value)
        raise fail(name, "text")

    question = text("question")
    if not question:
        raise fail("question", "a question")
    gold = accepted(line.get(named["gold_sql"]))
    if not gold:
        raise fail("gold_sql", "SQL, or a list of accepted queries")
    # an id of its own content keeps a row the same row in every subset and order of its file
    content = hashlib.sha256("\x00".join([question, *gold]).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return GoldRow(
        query_id=text("query_id") or content,
        question=question,
        gold_sql=gold,
        level=text("level").casefold() or UNLEVELLED,
        split=text("split"),
        enriched_question=text("enriched_question") or None,
        number=number,
    )


def json_lines(path: Path, text: str) -> list[dict[str, Any]]:
    """JSON objects, one a line, each with the names of all.

    Raises:
        InputError: A line is no JSON object; the message names file and line.
    """
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {number}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise InputError(f"{path}: line {number}: a line holds one JSON object, not {type(value).__name__}")
        lines.append(value)
    names = dict.fromkeys(name for line in lines for name in line)
    return [{name: line.get(name) for name in names} for line in lines]


def _csv(path: Path, text: str, separator: str) -> list[dict[str, Any]]:
    return list(_csv_rows(path, text, separator))


def _csv_rows(path: Path, text: str, separator: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # SQL may be longer than the module's 128 KiB
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(f"{path}: column {twice[0]} stands twice in the header")
        for number, values in enumerate(filter(None, reader), 1):
            if len(values) != len(header):
                raise InputError(
                    f"{path}: row {number} (line {reader.line_num}): has {len(values)} values, the header {len(header)} "
                    "columns; quote values that hold a separator or a line end"
                )
            yield dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: cannot be read as CSV: {error}") from error


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
