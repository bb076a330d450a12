"""Answered questions as JSON lines: read, judged and explained one a line, in order; a bad line is answered with its reason.

Source: interface.md, ``stef explain --file``.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stef_core.errors import InputError, RuleError
from stef_core.evaluate import BATCH, Judge, QuestionReader, conclude_many, examine_many
from stef_core.records import QueryRecord
from stef_core.rules import Rules, parse_rules

TEXTS = (
    "query_id",
    "agent_id",
    "agent_version",
    "app_id",
    "user_question",
    "enriched_question",
    "generated_sql",
    "dialect",
)
BAD_LINE = "bad_line"
EMPTY: dict[str, Any] = dict.fromkeys(
    ("question_spec", "enriched_spec", "sql_spec", "alignment", "enrichment", "verdict", "score"), None
) | {"findings": []}


def explain_lines(
    lines: Iterable[bytes], rules: Callable[[QueryRecord], Rules], judge: Judge, reader: QuestionReader
) -> Iterator[dict[str, Any]]:
    """Explain each line, lazily and in order; blank lines are passed over.

    Args:
        lines: UTF-8 JSON objects with the columns of the query log, and optionally ``rules``.
        rules: The rules of a row that brings none of its own.
        judge: Gives the verdicts, for up to 64 rows at once.
        reader: Reads the questions.

    Returns:
        The object of `Evaluation.to_json` for each line; for a bad one the same keys, ``status`` ``unscored`` and the reason.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while batch := tuple(itertools.islice(numbered, BATCH)):
        read = [_read(number, line, rules) for number, line in batch]
        good = [each for each in read if not isinstance(each, dict)]
        records, chosen = [record for record, _ in good], [its_rules for _, its_rules in good]
        examined = examine_many(records, chosen, reader) if good else []
        evaluations = iter(conclude_many(examined, chosen, judge) if good else ())
        for each in read:
            yield each if isinstance(each, dict) else next(evaluations).to_json()


def rows_of_lines(lines: Iterable[bytes], rules: Callable[[QueryRecord], Rules]) -> Iterator[tuple[QueryRecord, Rules] | str]:
    """Each line as a record with its rules, lazily and in order; of a bad line why it is bad. Blank lines are passed over.

    Args:
        lines: As in `explain_lines`.
        rules: The rules of a row that brings none of its own.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = _read(number, line, rules)
            yield str(row["reason"]) if isinstance(row, dict) else row


def record_of_line(line: bytes, number: int) -> tuple[QueryRecord, Rules | None]:
    """One line as a record, and the rules it brings.

    Args:
        line: UTF-8 JSON.
        number: Of the line in its file, from 1, for messages and for a row without ``query_id``.

    Raises:
        InputError: Not UTF-8, not JSON, no object, or a column of the wrong type.
        RuleError: Its rules are wrong.
    """
    where = f"line {number}"
    data = _parse(line, where)
    values: dict[str, Any] = {}
    for name in TEXTS:
        value = data.get(name)
        if value is not None and not isinstance(value, str):
            raise InputError(f"{where}: {name} is {json.dumps(value)[:60]}; it must be text or null")
        values[name] = value
    values |= {
        "query_id": values["query_id"] or f"line-{number}",
        "agent_id": values["agent_id"] or "unknown",
        "app_id": values["app_id"] or "default",
        "asked_at": _moment(data.get("asked_at"), where),
    }
    own = data.get("rules")
    return QueryRecord(**values), None if own is None else parse_rules(json.dumps(own), f"{where}: rules")


def _read(number: int, line: bytes, rules: Callable[[QueryRecord], Rules]) -> tuple[QueryRecord, Rules] | dict[str, Any]:
    try:
        record, own = record_of_line(line, number)
    except (InputError, RuleError) as error:
        return {"query_id": _id_of(line, number), "status": "unscored", "reason": f"{BAD_LINE}: {error}"} | EMPTY
    return record, own or rules(record)


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deep") from error
    except ValueError as error:  # JSONDecodeError, and numbers too long to read
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{where}: a line holds one JSON object, not {type(data).__name__}")
    return data


def _moment(value: Any, where: str) -> dt.datetime | None:
    if value is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: asked_at is {json.dumps(value)[:60]}; it must be ISO 8601 text or null") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _id_of(line: bytes, number: int) -> str:
    """The `query_id` of a bad line where it can still be told."""
    try:
        found = _parse(line, "").get("query_id")
    except InputError:
        found = None
    return found if isinstance(found, str) and found else f"line-{number}"
