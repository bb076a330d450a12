"""Labelled answers from Parquet, JSON lines or CSV, or from a warehouse whose users gave feedback. Knows no Prefect.

Source: experiments.md, "Calibration"; data-contract.md (`user_feedback`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from stef_core.calibration import ANSWERS, LabelledRow, features_of, fold, seen_by_fit
from stef_core.errors import InputError
from stef_core.experiments.gold import json_lines
from stef_core.extract.sql import extract_sql
from stef_core.frames import frame_of
from stef_core.records import QueryRecord
from tasks.settings import shown_url

FORMATS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".tsv": "CSV",
}
REQUIRED = ("user_question", "generated_sql", "label")
TEXTS = ("query_id", "user_question", "enriched_question", "generated_sql", "dialect", "db_id", "app_id", "source")
COLUMNS = (*REQUIRED, "enriched_question", "dialect", "agent_id", "db_id", "app_id", "source", "error_types", "query_id")
UNNAMED = "(unnamed)"  # source of rows that state none
WORDS = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "y", "t", "right", "correct", "good", "pass"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "n", "f", "wrong", "incorrect", "bad", "fail"), False),
    **dict.fromkeys(("", "null", "none", "na", "nan", "not_run", "gold_failed", "unknown"), None),
}
# what the results of an experiment call our columns
EXPERIMENT = {"user_question": "query", "generated_sql": "predicted_sql", "label": "execution_accuracy"}
# what the published scores of a day show; the judge's work is not repeated
_PUBLISHED = (
    "query_id agent_id app_id user_question generated_sql dialect sql_dialect user_feedback status reason verdict phi "
    "confidence p_right judge model core_version"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Labelled rows of one file or warehouse, in order."""

    rows: tuple[LabelledRow, ...]
    unlabelled: int = 0  # rows without a label, left out
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Scores that a warehouse has published for answers with feedback: a frame of `stef_core.calibration.ANSWERS`."""

    answers: pl.DataFrame
    judges: tuple[str, ...]  # judge and model of the scores
    notes: tuple[str, ...] = field(default=())


def is_warehouse(labelled: str) -> bool:
    """Whether a name is a warehouse's URL and no file."""
    return "://" in labelled


def read_labelled(
    labelled: str, columns: Mapping[str, str] | None = None, sources: Collection[str] = (), *, wait_s: float = 60.0
) -> Labelled:
    """Read labelled answers.

    Args:
        labelled: A Parquet, JSON lines or CSV file, ``results.csv`` of an experiment included, or the URL of a warehouse: then
            ``user_feedback`` is the label.
        columns: The file's name of a column of `COLUMNS`, where it differs.
        sources: Keep only rows of these sources; all rows where empty.
        wait_s: Seconds to wait for another process that holds the warehouse.

    Raises:
        InputError: The file, a column or a value is wrong, or no row has a label; the message names it.
        RuleError: The warehouse's URL does not work.
        BusyError: Another process holds the warehouse.
    """
    named = dict(columns or {})
    for name in named:
        if name not in COLUMNS:
            raise InputError(f"--map {name}={named[name]}: {name} is no column of labelled rows{_near(name, COLUMNS)}")
    if is_warehouse(labelled):
        frame = _feedback(labelled, wait_s)
        named = {"label": "user_feedback", "db_id": "app_id"} | named
    else:
        frame = _read_file(Path(labelled))
        if set(EXPERIMENT.values()) <= set(frame.columns) and not set(EXPERIMENT) & set(frame.columns):
            named = EXPERIMENT | named
    labelled = shown_url(labelled)  # from here on it is only told
    rows = list(_rows(frame, labelled, named))
    wanted = [row for row in rows if not sources or row[0] in sources]
    if missing := sorted(set(sources) - {source for source, _ in rows}):
        found = ", ".join(sorted({source for source, _ in rows})) or "none"
        raise InputError(
            f"{labelled}: column {named.get('source', 'source')}: no row is of {', '.join(missing)}; there: {found}"
        )
    kept = tuple(row for _, row in wanted if row is not None)
    if not kept:
        what = (
            "no answer has user_feedback yet"
            if is_warehouse(labelled)
            else f"column {named.get('label', 'label')}: no row has a label"
        )
        raise InputError(f"{labelled}: {what}, so there is nothing to measure")
    unlabelled = len(wanted) - len(kept)
    notes = (f"{unlabelled:,} rows without a label were left out.",) if unlabelled and not is_warehouse(labelled) else ()
    return Labelled(rows=kept, unlabelled=unlabelled, notes=notes)


def read_published(warehouse: str, *, wait_s: float = 60.0) -> Published:
    """The published scores of a warehouse for answers with feedback, as they stand; nothing is judged.

    Args:
        warehouse: Its URL.
        wait_s: Seconds to wait for another process that holds it.

    Raises:
        InputError: No answer has feedback.
        RuleError: The URL does not work.
        BusyError: Another process holds the warehouse.
    """
    frame = _feedback(warehouse, wait_s)
    if frame.is_empty():
        raise InputError(f"{shown_url(warehouse)}: no answer has user_feedback yet, so there is nothing to measure")
    lines = []
    for row in frame.iter_rows(named=True):
        sql = extract_sql(row["generated_sql"], row["sql_dialect"] or row["dialect"])
        lines.append(
            {
                "query_id": row["query_id"],
                "agent": row["agent_id"],
                "database": row["app_id"] or "",
                "source": "warehouse",
                "question": fold(row["user_question"]),
                "right": row["user_feedback"],
                "error_types": [],
                "features": list(features_of(sql)),
                "status": row["status"],
                "reason": row["reason"],
                "says_right": row["verdict"] in ("correct", "likely_correct") if row["verdict"] else None,
                "phi": row["phi"],
                "gamma": row["confidence"],
                "p_right": row["p_right"],
                "seen": seen_by_fit(row["user_question"], row["model"]),
            }
        )
    named = frame.select("judge", "model").unique().sort("judge", "model").iter_rows()
    judges = tuple(f"{judge} {model}" if model else str(judge) for judge, model in named if judge)
    versions = frame["core_version"].drop_nulls().unique().sort().to_list()
    notes = ["The scores are the published ones; name a --judge to judge these answers anew."]
    if len(judges) > 1 or len(versions) > 1:
        notes.append(
            f"They were given by {', '.join(judges)} (core {', '.join(versions)}): days differ in how they were judged."
        )
    return Published(answers=frame_of(lines, ANSWERS), judges=judges, notes=tuple(notes))


def _feedback(warehouse: str, wait_s: float) -> pl.DataFrame:
    from tasks.warehouse import connect  # a file needs no database

    names = ", ".join((*_PUBLISHED.split(), "enriched_question"))
    with connect(warehouse, read_only=True, wait_s=wait_s) as store:
        return store.query(
            f"SELECT {names} FROM query_scores WHERE user_feedback IS NOT NULL ORDER BY dt, query_id"  # noqa: S608  # names are ours
        )


def _read_file(path: Path) -> pl.DataFrame:
    kind = FORMATS.get(path.suffix.lower())
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a file of labelled answers, or a warehouse as duckdb:///path.duckdb")
    if kind is None:
        raise InputError(f"{path}: is neither of {', '.join(FORMATS)}; save it as one of them")
    try:
        if kind == "Parquet":
            return pl.read_parquet(path)
        if kind == "JSON lines":
            return _json_lines(path)
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        return pl.read_csv(path, separator=separator, infer_schema=False)
    except InputError:
        raise
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{path}: cannot be read as {kind}: {reason}") from error


def _json_lines(path: Path) -> pl.DataFrame:
    """JSON objects as columns of Python values, so that a wrong value can be named by its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8") from error
    lines = json_lines(path, text)
    names = list(lines[0]) if lines else []
    return pl.DataFrame([pl.Series(name, [line.get(name) for line in lines], dtype=pl.Object) for name in names])


def _rows(frame: pl.DataFrame, origin: str, named: Mapping[str, str]) -> Iterator[tuple[str, LabelledRow | None]]:
    """Source and row of each line; None for a row without a label."""
    for name in COLUMNS:
        wanted = named.get(name, name)
        if wanted not in frame.columns and (name in REQUIRED or name in named):
            hint = f"; map it with --map {name}=NAME" if name not in named else ""
            near = _near(wanted, frame.columns) or f"; columns there: {', '.join(frame.columns)}"
            raise InputError(f"{origin}: column {wanted} is missing{near}{hint}")
    columns = {name: _values(frame, named.get(name, name)) for name in COLUMNS}
    for number in range(frame.height):
        row = {name: None if values is None else values[number] for name, values in columns.items()}

        def fail(name: str, wanted: str, number: int = number, row: Mapping[str, Any] = row) -> InputError:
            shown = repr(row[name])
            shown = shown if len(shown) <= 40 else shown[:39] + "…"
            return InputError(f"{origin}: row {number + 1}: column {named.get(name, name)} is {shown}; it must be {wanted}")

        for name in TEXTS:
            if row[name] is not None and not isinstance(row[name], str):
                if name not in ("query_id", "db_id", "app_id", "source") or not isinstance(row[name], int):
                    raise fail(name, "text")
                row[name] = str(row[name])
        source = row["source"] or UNNAMED
        if is_warehouse(origin):
            source = "warehouse"
        try:
            label = _label(row["label"])
        except ValueError as error:
            raise fail("label", "true or false") from error
        agents, types = _names(row["agent_id"], split=False), _names(row["error_types"], split=True)
        if agents is None:
            raise fail("agent_id", "text or a list of texts")
        if types is None:
            raise fail("error_types", "a list of texts")
        if label is None:
            yield source, None
            continue
        record = QueryRecord(
            query_id=row["query_id"] or f"row-{number + 1}",
            user_question=row["user_question"],
            enriched_question=row["enriched_question"],
            generated_sql=row["generated_sql"],
            dialect=row["dialect"],
            agent_id=agents[0] if agents else "unknown",
            app_id=row["app_id"] or row["db_id"] or "default",
        )
        yield (
            source,
            LabelledRow(
                record=record,
                right=label,
                database=row["db_id"] or row["app_id"] or "",
                source=source,
                agents=agents,
                error_types=types,
            ),
        )


def _values(frame: pl.DataFrame, name: str) -> list[Any] | None:
    return frame[name].to_list() if name in frame.columns else None


def _label(value: Any) -> bool | None:
    """The label that a value stands for, None for none.

    Raises:
        ValueError: It stands for neither.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.strip().casefold() in WORDS:
        return WORDS[value.strip().casefold()]
    raise ValueError(value)


def _names(value: Any, *, split: bool) -> tuple[str, ...] | None:
    """A text or a list of texts as names; None for anything else. A text may be a JSON list, or several names with ``;``."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        value = value.replace("|", ";").split(";") if split else [value]
    if not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(dict.fromkeys(each.strip() for each in value if each.strip()))


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
