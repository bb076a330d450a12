"""Masks what an application's rules keep out of storage and out of prompts.

A literal is masked where it is compared with a column that a glob of `Rules.redact` names, mappings included, and then wherever
else the same text stands in the row: in the SQL, the question and its reformulation. A value of a kind or pattern that `redact`
names is masked wherever it stands; two spellings of one value get one placeholder.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from stef_core.dialects import dialect_of
from stef_core.extract.sql_text import MAX_CHARS
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
from stef_core.rules import RedactEntry, Rules
from stef_core.sensitive import (
    Beginnings,
    Cluster,
    Detectors,
    Dictionary,
    Forms,
    Found,
    clusters,
    detectors_of,
    folded,
    view_of,
)

MASK = "[redacted]"
READ = ("ok", "other_dialect", "repaired", "llm")  # parse statuses whose filters are known
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
# the same where the last one is cut off, and figures: of SQL that no tokenizer reads
_UNREAD = re.compile(r"'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|\d{4,}")
_PLACEHOLDER = re.compile(r"\[redacted(?: (\d{1,5}))?\]", re.IGNORECASE)
_WRITTEN_NUMBER = re.compile(r"\+?\(?\d[\d ()./-]*\d")
_SQL_STRINGS = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING)
# texts that are told of a row are cut at 57 characters with a sign of omission, or at 160 and more without one
CUT_FROM, CUT_MAX, CUTS = 160, 1_600, 8
UNKNOWN = 0  # number of a value that nothing of the row names


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitive:
    """A value of a kind or pattern that a row holds."""

    identities: tuple[str, ...]
    spelling: str  # as the SQL has it, else as it first stands in the row
    compact: str  # its plainest spelling
    forms: tuple[str, ...] = ()
    quoted: bool | None = None  # whether the SQL has it as text (True) or as a number; None: the SQL does not have it


@dataclass(frozen=True)
class Redaction:
    """What of one row must not be seen.

    Args:
        literals: As written, without their quotes.
        numbered: Give each literal a placeholder of its own (``[redacted]``, ``[redacted 2]``, …), so that `restore` can undo
            it and two literals stay different; otherwise all become ``[redacted]``.
        values: Values of kinds and patterns that the row holds; they get placeholders after the literals.
        detectors: Find such values in any further text, e.g. in a model's answer.
        taken: Numbers of placeholders that the row itself holds, which may not be given to anything else.
    """

    literals: tuple[str, ...]
    numbered: bool = False
    values: tuple[Sensitive, ...] = ()
    detectors: Detectors | None = None
    taken: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.literals or self.detectors)

    def mask(self, text: str) -> str:
        """A text of words with everything replaced that must not be seen, whatever its case and spacing."""
        out, end = [], 0
        for part in self.parts(text):
            out += [text[end : part.start], self._placeholder(part)]
            end = part.end
        return "".join([*out, text[end:]]) if out else text

    def mask_sql(self, sql: str, dialect: str | None = None, *, all_literals: bool = False) -> str:
        """SQL with all that replaced by string literals, so that it still parses.

        Args:
            sql: The statement.
            dialect: sqlglot's name of its dialect.
            all_literals: Mask every string and every number of four digits or more: for SQL whose filters nobody could read.
        """
        if not self and not all_literals:
            return sql
        tokens = _tokens(sql, dialect)
        if tokens is None:
            return self.mask(_UNREAD.sub(f"'{MASK}'", sql))
        out, end = [], 0
        for first, last, part in self._pieces(sql, tokens):
            start, stop = tokens[first].start, tokens[last].end + 1
            out.append(self.mask(sql[end:start]))
            if part is None:
                out.append(self._masked_token(tokens[first], sql[start:stop], all_literals))
            else:
                out.append(f"'{self._placeholder(part)}'")
            end = stop
        return "".join([*out, self.mask(sql[end:])])

    def mask_json(self, data: Any) -> Any:
        """A JSON value with all that replaced in its strings and numbers, also where a string was cut off in it; keys stay."""
        if isinstance(data, str):
            return self.mask(self._without_beginnings(data))
        if isinstance(data, list | tuple):
            return [self.mask_json(item) for item in data]
        if isinstance(data, Mapping):
            return {key: self.mask_json(value) for key, value in data.items()}
        if isinstance(data, int | float) and not isinstance(data, bool):
            return self._masked_number(data)
        return data

    def restore(self, data: Any) -> Any:
        """A JSON value with the placeholders of `mask` (``numbered``) replaced by what they stand for."""
        if isinstance(data, str):
            return _PLACEHOLDER.sub(lambda m: self._spelled.get(int(m.group(1) or 1), m.group()), data)
        if isinstance(data, list | tuple):
            return [self.restore(item) for item in data]
        if isinstance(data, Mapping):
            return {key: self.restore(value) for key, value in data.items()}
        return data

    def parts(self, text: str, *, words: bool = True) -> list[Cluster]:
        """The parts of a text that must not be seen, in order.

        Args:
            text: Any text.
            words: Look for literals too; otherwise for values of kinds and patterns alone.
        """
        if not self or not text or text.isspace():
            return []
        hidden = [m.span() for m in _PLACEHOLDER.finditer(text) if int(m.group(1) or 1) in self._given] if "[" in text else []
        return clusters(text, self._search if words else self._search_values, hidden)

    def value_of(self, part: Cluster) -> Sensitive | None:
        """The value of the row that a part of a text spells."""
        return next((self._by_identity[name] for name in part.identities if name in self._by_identity), None)

    def _without_beginnings(self, text: str) -> str:
        """A text without the beginning of a value where its end, or a sign of omission, cuts the value off."""
        places = [match.start() for match in re.finditer("…", text)][-CUTS:]
        if len(text) >= CUT_FROM and not text.endswith("…"):
            places.append(len(text))
        for place in reversed(places if self else ()):
            end = len(text[:place].rstrip("'\" "))
            beginning = self._beginnings.at_end(text[max(0, end - CUT_MAX) : end])
            if beginning is not None:
                length, identity = beginning
                part = Cluster(start=end - length, end=end, identities=(identity,))
                text = text[: part.start] + self._placeholder(part) + text[end:]
        return text

    def _search(self, text: str) -> list[Found]:
        return [*self._dictionary.find(text), *self._search_values(text)]

    def _search_values(self, text: str) -> list[Found]:
        view = view_of(text)
        found = self.detectors.find(view) if self.detectors is not None else []
        return [*found, *self._forms.find(view)]

    def _pieces(self, sql: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, Cluster | None]]:
        """Tokens one by one, but those together that one value without quotes covers (``4111-1111-1111-1111``)."""
        spread = _spread(tokens, self.parts(sql, words=False)) if self.values or self.detectors else {}
        place = 0
        while place < len(tokens):
            last, part = spread.get(place, (place, None))
            yield place, last, part
            place = last + 1

    def _masked_token(self, token: Token, piece: str, all_literals: bool) -> str:
        if token.token_type == TokenType.NUMBER:
            long = len(re.sub(r"\D", "", piece)) >= 4
            masked = MASK if all_literals and long else self.mask(piece)
            return piece if masked == piece else f"'{masked}'"
        if all_literals and token.token_type in _SQL_STRINGS:
            return f"'{MASK}'"
        if piece[:1] in ("'", '"') and token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            masked = self.mask(token.text)
            return piece if masked == token.text else piece[0] + masked.replace(piece[0], piece[0] * 2) + piece[0]
        if token.token_type != TokenType.VAR or all_literals:
            return self.mask(piece)
        # a column may be named like a literal, but no column is named like an IBAN
        part = next((part for part in self.parts(piece, words=False) if part.end - part.start == len(piece)), None)
        return piece if part is None else f"'{self._placeholder(part)}'"

    def _masked_number(self, number: float) -> Any:
        if number in self._numbers:
            return self.mask(self._numbers[number])
        text = str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
        masked = self.mask(text)
        return number if masked == text else masked

    def _placeholder(self, part: Cluster) -> str:
        if not self.numbered:
            return MASK
        number = next((self._numbering[name] for name in part.identities if name in self._numbering), UNKNOWN)
        return MASK if number == 1 else f"[redacted {number}]"

    @cached_property
    def _given(self) -> frozenset[int]:
        """Numbers whose placeholders `mask` leaves as they are."""
        return frozenset({UNKNOWN, 1, *self._spelled})

    @cached_property
    def _numbering(self) -> dict[str, int]:
        return self._names[0]

    @cached_property
    def _spelled(self) -> dict[int, str]:
        return self._names[1]

    @cached_property
    def _names(self) -> tuple[dict[str, int], dict[int, str]]:
        """Numbers by identity, and what each number stands for."""
        numbers: dict[str, int] = {}
        spelled: dict[int, str] = {}
        free = (number for number in itertools.count(1) if number not in self.taken)
        named = [(self._identities(literal), literal) for literal in self.literals]
        for identities, spelling in [*named, *((value.identities, value.spelling) for value in self.values)]:
            known = next((numbers[name] for name in identities if name in numbers), None)
            number = next(free) if known is None else known
            spelled.setdefault(number, spelling)
            for name in identities:
                numbers.setdefault(name, number)
        return numbers, spelled

    def _identities(self, literal: str) -> tuple[str, ...]:
        """What names a literal, and the fixed parts of a pattern."""
        whole = self.detectors.find(view_of(literal)) if self.detectors is not None else ()
        named = [hit.identity for hit in whole if hit.end - hit.start == len(literal.strip())]
        return (*named, *(f"text:{folded(form)}" for form in _forms(literal)))

    @cached_property
    def _by_identity(self) -> dict[str, Sensitive]:
        return {name: value for value in reversed(self.values) for name in value.identities}

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
    def _dictionary(self) -> Dictionary:
        forms = ((form, f"text:{folded(form)}") for literal in self.literals for form in _forms(literal))
        return Dictionary([*forms, *((value.spelling, value.identities[0]) for value in self.values)])

    @cached_property
    def _beginnings(self) -> Beginnings:
        literals = [(form, f"text:{folded(form)}") for literal in self.literals for form in _forms(literal)]
        values = [
            (text, value.identities[0]) for value in self.values for text in (value.spelling, value.compact, *value.forms)
        ]
        return Beginnings([*literals, *values])

    @cached_property
    def _forms(self) -> Forms:
        known = [(form, value.identities[0]) for value in self.values for form in value.forms]
        for literal in self.literals:
            digits = re.sub(r"\D", "", literal)
            if len(digits) >= 7 and _WRITTEN_NUMBER.fullmatch(literal.strip()):  # a shorter number may be any other
                known.append((digits, f"text:{folded(literal)}"))
        return Forms(known)


def redaction(
    rules: Rules, *specs: SqlSpec | QuestionSpec | None, record: QueryRecord | None = None, numbered: bool = False
) -> Redaction:
    """What must be masked of a row that these specifications describe.

    Args:
        rules: The application's rules; without `redact` nothing is masked.
        specs: SQL and question sides; a literal that any of them compares with a redacted column is masked everywhere.
        record: The row, whose texts are searched for values of kinds and patterns.
        numbered: As in `Redaction`.
    """
    if not rules.redact:
        return Redaction((), numbered)
    record = _bounded(record) if record is not None else None
    found: dict[str, str] = {}
    named = [literal for spec in specs if spec is not None for literal in _spec_literals(spec, rules)]
    unread = any(isinstance(spec, SqlSpec) and spec.parse_status not in READ for spec in specs)
    if unread and record is not None and rules.redacted_columns:
        # nobody can tell which of them stand beside a redacted column
        pieces = _UNREAD.findall(record.generated_sql or "")
        named += [piece if piece[0] == piece[-1] else piece.lstrip("'\"") for piece in pieces]
    for literal in named:
        bare = _bare(literal)
        if bare.strip("% _"):
            found.setdefault(_folded(bare), bare)
    return Redaction(
        tuple(found.values()),
        numbered,
        values=values_of(record, rules) if record is not None else (),
        detectors=detectors_of(rules.redacted_values) if rules.redacted_values else None,
        taken=_placeholders(record) if record is not None else frozenset(),
    )


def values_of(record: QueryRecord, rules: Rules) -> tuple[Sensitive, ...]:
    """The values of kinds and patterns that a row holds, those of its SQL first."""
    if not rules.redacted_values:
        return ()
    texts = (record.generated_sql or "", record.user_question or "", record.enriched_question or "")
    return _values(rules.redacted_values, record.dialect or rules.dialect, texts)


def unified(record: QueryRecord, rules: Rules) -> QueryRecord:
    """The record with its questions spelling each sensitive value as the SQL does, or else in one word.

    So a question that groups the digits of a card is read, and compared, as one that does not.
    """
    values = values_of(record, rules)
    if not values:
        return record
    found = Redaction((), values=values, detectors=detectors_of(rules.redacted_values))
    question, enriched = record.user_question, record.enriched_question
    return replace(
        record,
        user_question=question and _in_one_spelling(question, found),
        enriched_question=enriched and _in_one_spelling(enriched, found),
    )


def redact(record: QueryRecord, reading: Reading | SqlSpec, rules: Rules) -> QueryRecord:
    """The record with all that the rules redact masked as ``[redacted]``, fit to be stored; its further columns too.

    Args:
        record: A row of the log.
        reading: Both sides of it, or the SQL side alone.
        rules: R_app; the record comes back unchanged where it redacts nothing.

    Returns:
        The record with SQL, question and enriched question masked. Of SQL that could not be read every literal is masked, and
        where columns are redacted the same text in the questions too.
    """
    if not rules.redact:
        return record
    sides = (reading.sql, reading.question, reading.enriched) if isinstance(reading, Reading) else (reading,)
    return redact_record(record, sides[0], redaction(rules, *sides, record=record), rules)


def redact_record(record: QueryRecord, sql: SqlSpec, found: Redaction, rules: Rules) -> QueryRecord:
    """`redact` with what was found already."""
    unread = sql.parse_status not in READ
    record = _bounded(record)
    statement, question, enriched = record.generated_sql, record.user_question, record.enriched_question
    return replace(
        record,
        generated_sql=statement and found.mask_sql(statement, sql.dialect, all_literals=unread),
        user_question=question and found.mask(question),
        enriched_question=enriched and found.mask(enriched),
        extra=record.extra and _masked_extra(record.extra, found, rules),
    )


def _bounded(record: QueryRecord) -> QueryRecord:
    """The record with texts masked whole that are too long to be read, so that nothing of them is told either."""
    texts = {name: getattr(record, name) for name in ("generated_sql", "user_question", "enriched_question")}
    long: dict[str, Any] = {name: MASK for name, text in texts.items() if text is not None and len(text) > MAX_CHARS}
    return replace(record, **long) if long else record


def redact_json(text: str, literals: Sequence[str]) -> str:
    """JSON text with these literals masked in its strings and numbers; anything else keeps its order and value.

    Raises:
        ValueError: The text is not JSON.
    """
    found = Redaction(tuple(_bare(literal) for literal in literals))
    if not found:
        return text
    return json.dumps(found.mask_json(json.loads(text)), ensure_ascii=False)


# --- values of a row ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1_024)  # a row is masked once for each table and prompt
def _values(entries: tuple[RedactEntry, ...], dialect: str | None, texts: tuple[str, str, str]) -> tuple[Sensitive, ...]:
    sql, question, enriched = texts
    tokens = _tokens(sql, dialect) or []
    detectors = detectors_of(entries)
    # a doubled quote hides a value from a look at the whole
    escaped = [t.text for t in tokens if t.token_type in _SQL_STRINGS and t.text != sql[t.start + 1 : t.end]]
    every = (sql, *escaped, question, enriched)
    # the second look sees what known values make of each other where they overlap
    found = _look(every, _look(every, {}, detectors), detectors)
    if not found:
        return ()
    values = {value: value for value in found.values()}
    known = Redaction((), values=tuple(values), detectors=detectors)
    for token in tokens:
        number = token.token_type == TokenType.NUMBER
        for part in known.parts(token.text) if number or token.token_type in _SQL_STRINGS else ():
            value = known.value_of(part)
            if value is not None and values[value].quoted is None:
                values[value] = replace(value, spelling=token.text[part.start : part.end], quoted=not number)
    return tuple(values.values())


def _look(texts: Iterable[str], found: Mapping[str, Sensitive], detectors: Detectors) -> dict[str, Sensitive]:
    """What is known by identity, and what the texts hold beside it."""
    known = Redaction((), values=tuple(dict.fromkeys(found.values())), detectors=detectors)
    out = dict(found)
    for text in texts:
        for part in known.parts(text):
            if not any(name in out for name in part.identities):
                spelling = text[part.start : part.end]
                compact, forms = (part.found.compact, part.found.forms) if part.found is not None else (spelling, ())
                new = Sensitive(identities=part.identities, spelling=spelling, compact=compact, forms=forms)
                out |= dict.fromkeys(part.identities, new)
    return out


def _in_one_spelling(text: str, found: Redaction) -> str:
    out, end = [], 0
    for part in found.parts(text):
        value = found.value_of(part)
        if value is None:
            continue
        spelled, written = value.compact if value.quoted is None else value.spelling, text[part.start : part.end]
        if spelled.casefold() != written.casefold() or not re.fullmatch(r"[\w@.-]+", spelled):
            inside = text[part.start - 1 : part.start] in ("'", '"')
            written = spelled if inside or value.quoted is False else f"'{spelled}'"
        out += [text[end : part.start], written]
        end = part.end
    return "".join([*out, text[end:]])


def _masked_extra(extra: str, found: Redaction, rules: Rules) -> str:
    """Further columns of a row: values under redacted names are masked whole, names stay."""

    def masked(value: Any) -> Any:
        if isinstance(value, list):
            return [masked(item) for item in value]
        if isinstance(value, dict):
            return {name: _emptied(inner) if _redacted(name, rules) else masked(inner) for name, inner in value.items()}
        return found.mask_json(value)

    return json.dumps(masked(json.loads(extra)), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _emptied(value: Any) -> Any:
    if isinstance(value, list):
        return [_emptied(item) for item in value]
    if isinstance(value, dict):
        return {name: _emptied(inner) for name, inner in value.items()}
    return value if value is None or isinstance(value, bool) else MASK


def _placeholders(record: QueryRecord) -> frozenset[int]:
    texts = (record.user_question, record.enriched_question, record.generated_sql)
    return frozenset(int(m.group(1) or 1) for text in texts if text for m in _PLACEHOLDER.finditer(text))


def _tokens(sql: str, dialect: str | None) -> list[Token] | None:
    try:
        return list(dialect_of(dialect).tokenize(sql))
    except (SqlglotError, ValueError):
        return None


def _spread(tokens: Sequence[Token], parts: Sequence[Cluster]) -> dict[int, tuple[int, Cluster]]:
    """Parts that cover several tokens, none of them quoted: {first token: (last token, part)}."""
    out: dict[int, tuple[int, Cluster]] = {}
    place = 0
    for part in parts:
        while place < len(tokens) and tokens[place].end < part.start:
            place += 1
        last = place
        while last + 1 < len(tokens) and tokens[last + 1].start < part.end:
            last += 1
        covered = tokens[place : last + 1]
        if last > place and not any(t.token_type in (*_SQL_STRINGS, TokenType.IDENTIFIER) for t in covered):
            out[place] = last, part
            place = last + 1
    return out


# --- literals of columns --------------------------------------------------------------------------------------------


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
    return any(fnmatch.fnmatchcase(n, glob.casefold()) for glob in rules.redacted_columns for n in names)


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
