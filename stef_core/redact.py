"""Masks the literals that an application's rules keep out of storage and out of prompts.

A literal is masked where it is compared with a column that a glob of `Rules.redact` names, mappings included, and then wherever
else the same text stands in the row: in the SQL, the question and its reformulation.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from stef_core.records import (
    AllOf,
    AnyOf,
    Column,
    Condition,
    DatePart,
    DateTrunc,
    Filter,
    QueryRecord,
    QuestionSpec,
    Reading,
    ScalarQuery,
    SqlSpec,
    SubQuery,
    Value,
)
from stef_core.rules import Rules

MASK = "[redacted]"
READ = ("ok", "other_dialect", "repaired", "llm")  # parse statuses whose filters are known
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_PLACEHOLDER = re.compile(r"\[redacted(?: (\d+))?\]", re.IGNORECASE)


@dataclass(frozen=True)
class Redaction:
    """The literals of one row that must not be seen.

    Args:
        literals: As written, without their quotes.
        numbered: Give each literal a placeholder of its own (``[redacted]``, ``[redacted 2]``, …), so that `restore` can undo
            it and two literals stay different; otherwise all become ``[redacted]``.
    """

    literals: tuple[str, ...]
    numbered: bool = False

    def __bool__(self) -> bool:
        return bool(self.literals)

    def mask(self, text: str) -> str:
        """A text of words with every literal replaced, whatever its case and spacing."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._placeholder(match.group()), text)

    def mask_sql(self, sql: str, dialect: str | None = None, *, all_literals: bool = False) -> str:
        """SQL with every such literal replaced by a string literal, so that it still parses.

        Args:
            sql: The statement.
            dialect: sqlglot's name of its dialect.
            all_literals: Mask every string and every number of four digits or more: for SQL whose filters nobody could read.
        """
        if not self.literals and not all_literals:
            return sql
        try:
            tokens = sqlglot.Dialect.get_or_raise(dialect or None).tokenize(sql)
        except (SqlglotError, ValueError):
            return self.mask(_QUOTED.sub(f"'{MASK}'", sql))
        out, end = [], 0
        for token in tokens:
            piece = sql[token.start : token.end + 1]
            out += [self.mask(sql[end : token.start]), self._masked_token(token, piece, all_literals)]
            end = token.end + 1
        return "".join([*out, self.mask(sql[end:])])

    def mask_json(self, data: Any) -> Any:
        """A JSON value with the literals replaced in its strings and numbers; keys stay."""
        if isinstance(data, str):
            return self.mask(data)
        if isinstance(data, list | tuple):
            return [self.mask_json(item) for item in data]
        if isinstance(data, Mapping):
            return {key: self.mask_json(value) for key, value in data.items()}
        if isinstance(data, int | float) and not isinstance(data, bool) and data in self._numbers:
            return self.mask(self._numbers[data])
        return data

    def restore(self, data: Any) -> Any:
        """A JSON value with the placeholders of `mask` (``numbered``) replaced by their literals."""
        if isinstance(data, str):
            return _PLACEHOLDER.sub(lambda m: self._literal(int(m.group(1) or 1), m.group()), data)
        if isinstance(data, list | tuple):
            return [self.restore(item) for item in data]
        if isinstance(data, Mapping):
            return {key: self.restore(value) for key, value in data.items()}
        return data

    def _masked_token(self, token: Token, piece: str, all_literals: bool) -> str:
        if token.token_type == TokenType.NUMBER:
            long = len(re.sub(r"\D", "", piece)) >= 4
            masked = MASK if all_literals and long else self.mask(piece)
            return piece if masked == piece else f"'{masked}'"
        if piece[:1] in ("'", '"') and token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            if token.token_type == TokenType.STRING and all_literals:
                return f"'{MASK}'"
            masked = self.mask(token.text)
            return piece if masked == token.text else piece[0] + masked.replace(piece[0], piece[0] * 2) + piece[0]
        return piece if token.token_type == TokenType.VAR else self.mask(piece)

    def _placeholder(self, found: str) -> str:
        if not self.numbered:
            return MASK
        number = self._numbering.get(_folded(found), 1)
        return MASK if number == 1 else f"[redacted {number}]"

    def _literal(self, number: int, otherwise: str) -> str:
        return self.literals[number - 1] if 0 < number <= len(self.literals) else otherwise

    @cached_property
    def _numbering(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for number, literal in enumerate(self.literals, 1):
            for form in _forms(literal):
                numbers.setdefault(_folded(form), number)
        return numbers

    @cached_property
    def _numbers(self) -> dict[float, str]:
        found: dict[float, str] = {}
        for literal in self.literals:
            try:
                found[float(literal)] = literal
            except ValueError:
                continue
        return found

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        forms = {form for literal in self.literals for form in _forms(literal)}
        if not forms:
            return None
        # longest first: a name inside an address must not break the address up
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        bodies = [r"\s+".join(re.escape(word) for word in form.split()) for form in ordered]
        return re.compile(r"(?<!\w)(?:" + "|".join(bodies) + r")(?!\w)", re.IGNORECASE)


def redaction(rules: Rules, *specs: SqlSpec | QuestionSpec | None, numbered: bool = False) -> Redaction:
    """What must be masked of a row that these specifications describe.

    Args:
        rules: The application's rules; without `redact` nothing is masked.
        specs: SQL and question sides; a literal that any of them compares with a redacted column is masked everywhere.
        numbered: As in `Redaction`.
    """
    if not rules.redact:
        return Redaction((), numbered)
    found: dict[str, str] = {}
    for spec in specs:
        for literal in _spec_literals(spec, rules) if spec is not None else ():
            bare = _bare(literal)
            if bare.strip("% _"):
                found.setdefault(_folded(bare), bare)
    return Redaction(tuple(found.values()), numbered)


def redact(record: QueryRecord, reading: Reading | SqlSpec, rules: Rules) -> QueryRecord:
    """The record with the literals of redacted columns masked as ``[redacted]``, fit to be stored.

    Args:
        record: A row of the log.
        reading: Both sides of it, or the SQL side alone.
        rules: R_app; the record comes back unchanged where it redacts nothing.

    Returns:
        The record with SQL, question and enriched question masked. Of SQL that could not be read every literal is masked.
    """
    if not rules.redact:
        return record
    sides = (reading.sql, reading.question, reading.enriched) if isinstance(reading, Reading) else (reading,)
    return redact_record(record, sides[0], redaction(rules, *sides))


def redact_record(record: QueryRecord, sql: SqlSpec, found: Redaction) -> QueryRecord:
    """`redact` with literals that are already known."""
    unread = sql.parse_status not in READ
    statement, question, enriched = record.generated_sql, record.user_question, record.enriched_question
    return replace(
        record,
        generated_sql=statement and found.mask_sql(statement, sql.dialect, all_literals=unread),
        user_question=question and found.mask(question),
        enriched_question=enriched and found.mask(enriched),
    )


def redact_json(text: str, literals: Sequence[str]) -> str:
    """JSON text with these literals masked in its strings and numbers; anything else keeps its order and value.

    Raises:
        ValueError: The text is not JSON.
    """
    found = Redaction(tuple(_bare(literal) for literal in literals))
    if not found:
        return text
    return json.dumps(found.mask_json(json.loads(text)), ensure_ascii=False)


def _spec_literals(spec: SqlSpec | QuestionSpec, rules: Rules) -> Iterator[str]:
    conditions = [*spec.filters, *(c for a in spec.aggregations for c in a.filter)]
    texts: list[Column] = [*spec.projections, *spec.group_by, *(a.column for a in spec.aggregations)]
    if isinstance(spec, SqlSpec):
        conditions += spec.join_filters
        texts += spec.expressions
        for branch in spec.branches:
            yield from _spec_literals(branch, rules)
    else:
        for hint in spec.hints:
            if hint.column is not None and _redacted(hint.column, rules):
                yield from _value_literals(hint.value)
    yield from _condition_literals(conditions, rules)
    for text in texts:  # a CASE in the output compares too
        if isinstance(text, str) and _redacted(text, rules):
            yield from _QUOTED.findall(text)


def _condition_literals(conditions: Iterable[Condition], rules: Rules) -> Iterator[str]:
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from _condition_literals(condition.conditions, rules)
            continue
        value = condition.value
        if isinstance(value, SubQuery | ScalarQuery):
            yield from _condition_literals(value.filters, rules)
        if isinstance(value, SubQuery) and value.spec is not None:
            yield from _spec_literals(value.spec, rules)
        if condition.column is not None and _redacted(condition.column, rules):
            yield from _filter_literals(condition)


def _filter_literals(condition: Filter) -> Iterator[str]:
    yield from condition.raw
    yield from _value_literals(condition.value)  # raw may be absent, and its spelling differs from the folded one
    if isinstance(condition.column, str):
        yield from _QUOTED.findall(condition.column)


def _value_literals(value: Value) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _value_literals(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _redacted(column: Column, rules: Rules) -> bool:
    name = column.column if isinstance(column, DatePart | DateTrunc) else column
    words = re.findall(r"\w+", _QUOTED.sub(" ", name.casefold()))
    names = {alias for word in {name.casefold(), *words} for alias in rules.aliases(word)}
    return any(fnmatch.fnmatchcase(n, glob.casefold()) for glob in rules.redact for n in names)


def _forms(literal: str) -> Iterator[str]:
    """Spellings of one literal: with doubled quotes, and the fixed parts of a LIKE pattern."""
    yield literal
    yield literal.replace("'", "''")
    for part in literal.split("%") if "%" in literal else ():
        if len(part.strip("_ ")) >= 2:
            yield part.strip("_ ")


def _bare(literal: str) -> str:
    quoted = len(literal) >= 2 and literal[0] == literal[-1] and literal[0] in "'\""
    return literal[1:-1].replace(literal[0] * 2, literal[0]) if quoted else literal


def _folded(text: str) -> str:
    return " ".join(text.casefold().replace("''", "'").split())
