"""What the comparisons share: both sides of a row, what has been found so far, and how to walk a specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from stef_core.catalogue import Witness
from stef_core.findings import finding
from stef_core.lexicon import column_similarity, identifier_words, word_similarity, words
from stef_core.records import (
    Aggregation,
    AllOf,
    AnyOf,
    Column,
    ColumnValue,
    Condition,
    DatePart,
    DateTrunc,
    Filter,
    Finding,
    Hint,
    OrderKey,
    QueryRecord,
    QuestionSpec,
    ScalarQuery,
    Severity,
    SqlSpec,
    SubQuery,
)
from stef_core.rules import Rules
from stef_core.wording import column_text

EXTREMES = {"max": "desc", "min": "asc"}


# columns where a small number or an early date is the better one: the direction of a superlative says nothing there
INVERTED = frozenset("rank position place order date year birth birthday born dob founded opened built time".split())


CALLS = re.compile(r"\b(count|sum|avg|min|max)\s*\(")
_AVERAGE = re.compile(r"\bsum\(([^()]*(?:\([^()]*\)[^()]*)*)\).{0,20}/.{0,20}\bcount\(")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


NEGATIONS = frozenset({"not", "no", "without", "never", "doesn't", "don't", "didn't", "isn't", "lack", "missing"})


@dataclass(kw_only=True)
class Comparison:
    """What the steps share: both sides, the rules, and what has been found so far."""

    record: QueryRecord
    question: QuestionSpec
    enriched: QuestionSpec | None
    sql: SqlSpec
    rules: Rules
    witness: Witness | None = None
    benign: tuple[Condition, ...] = ()
    missing: tuple[Condition, ...] = ()
    extra: tuple[Condition, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    support: dict[str, float] = field(default_factory=dict)

    @cached_property
    def raw(self) -> str:
        """Question and reformulation as one lower-case text."""
        return f"{self.record.user_question or ''} {self.record.enriched_question or ''}".casefold()

    @cached_property
    def spoken(self) -> frozenset[str]:
        """Lemmas of the question, and its words as they stand."""
        return self.question.mentions.lemmas | frozenset(re.findall(r"[a-z]+", (self.record.user_question or "").casefold()))

    @cached_property
    def clauses(self) -> list[str]:
        """The reformulation in clauses, what repeats the question left out."""
        text = self.record.enriched_question
        if not text:
            return []
        _, marker, evidence = text.partition("Evidence:")
        return [part for part in re.split(r"[;\n]|\.\s", evidence if marker else text) if part.strip()]

    @cached_property
    def aggregates(self) -> list[Aggregation]:
        """Aggregates of the SQL, wherever they stand."""
        return list(all_aggregates(self.sql))

    def note(
        self,
        code: str,
        message: str,
        *,
        kind: str = "",
        strength: float = 1.0,
        question_part: str | None = None,
        sql_part: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Add a finding."""
        self.findings.append(
            finding(
                code,
                message,
                kind=kind,
                strength=strength,
                question_part=question_part,
                sql_part=sql_part,
                severity=severity,
            )
        )

    def found(self, name: str, value: float = 1.0) -> None:
        """Add a signal that speaks for the SQL."""
        self.support[name] = self.support.get(name, 0.0) + value

    def similar(self, left: Column | None, right: Column | None, table: str | None = None) -> float:
        """How likely two columns are one under the mappings, 0-1."""
        a, b = base_name(left), base_name(right)
        if a is None or b is None:
            return 0.0
        if self.rules.same_column(a, b):
            return 1.0
        tables = {table} if table else {t for t, n in self.sql.columns if n == b and t}
        names = [b, *(f"{t}_{b}" for t in tables)]
        if _same_letters(a, b):
            return 0.9
        floor = 0.6 if any(len(w) >= 5 and w in b.replace("_", "") for w in identifier_words(a)) else 0.0
        return max(floor, *(column_similarity(x, n) for x in {a, *self.rules.aliases(a)} for n in names))


def _same_letters(asked: str, name: str) -> bool:
    """A name that is the asked one behind a prefix, or with its first word cut short: sbTickerId, StuID for student_id."""
    wanted, have = asked.replace("_", ""), name.replace("_", "")
    if len(wanted) >= 5 and have.endswith(wanted):
        return True
    head, _, tail = asked.partition("_")
    return bool(tail) and len(have) > len(tail) + 1 and have.endswith(tail) and head.startswith(have[: -len(tail)])


def base_name(column: Column | None) -> str | None:
    """The column under a date part or truncation."""
    return column.column if isinstance(column, DatePart | DateTrunc) else column


def leaves(conditions: Iterable[Condition]) -> Iterator[Filter]:
    """Every single comparison of some conditions, those inside subqueries included."""
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from leaves(condition.conditions)
        else:
            yield condition
            if isinstance(condition.value, SubQuery | ScalarQuery):
                yield from leaves(condition.value.filters)


def all_aggregates(sql: SqlSpec) -> Iterator[Aggregation]:
    """Aggregates anywhere: outputs, order, HAVING, scalar subqueries, windows, branches."""
    yield from sql.aggregations
    for key in sql.order_by:
        if key.agg:
            yield Aggregation(func=key.agg, column=key.column or "*")
    for f in leaves(sql.filters):
        if f.agg:
            yield Aggregation(func=f.agg, column=f.column or "*", distinct=f.distinct)
        if isinstance(f.value, ScalarQuery):
            yield Aggregation(func=f.value.func, column=f.value.column)
            for func in CALLS.findall(str(f.value.column)):
                yield Aggregation(func=func, column=f.value.column)
        if isinstance(f.value, SubQuery) and f.value.spec is not None:
            yield from all_aggregates(f.value.spec)
        if isinstance(f.value, ColumnValue) and isinstance(f.value.column, str):
            for func in CALLS.findall(f.value.column):
                yield Aggregation(func=func, column=f.value.column)
    for window in sql.windows:
        yield Aggregation(func=window.func, column=window.column or "*")
    for expression in sql.expressions:
        if "(" not in expression:
            continue  # calls nothing
        for func in CALLS.findall(expression):
            if not any(a.func == func for a in sql.aggregations):
                yield Aggregation(func=func, column=expression)
        average = _AVERAGE.search(expression)
        if average:
            yield Aggregation(func="avg", column=average[1])
    for branch in sql.branches:
        yield from all_aggregates(branch)


def aggregated(expression: str) -> bool:
    """Whether an expression calls an aggregate."""
    return bool(CALLS.search(expression))


def owner_of(sql: SqlSpec, column: Column) -> str | None:
    """The one table that a column of the SQL comes from; None where that is not sure."""
    name = base_name(column)
    owners = {t for t, n in sql.columns if n == name and t}
    return next(iter(owners)) if len(owners) == 1 else None


def in_expression(column: Column, expression: str) -> bool:
    """Whether all words of a column stand in an expression."""
    wanted = set(identifier_words(base_name(column) or ""))
    return bool(wanted) and wanted <= {
        w for token in re.findall(r"[a-z_][a-z0-9_]*", expression) for w in identifier_words(token)
    }


def relevant_hints(c: Comparison) -> list[Hint]:
    """Hints of question and reformulation that speak of the question."""
    hints = (*c.question.hints, *(c.enriched.hints if c.enriched else ()))
    return [h for h in hints if h.relevant]


def names_used(c: Comparison, clause: str) -> bool:
    """Whether a clause of the reformulation names a column that the SQL uses."""
    named = {t.casefold() for t in _NAME.findall(clause)}
    return any(n in named and (len(n) >= 3 or not n.isalpha()) for _, n in c.sql.columns)


def key_text(key: OrderKey) -> str:
    """An ORDER BY key in words: ``sum(amount) desc``."""
    name = column_text(key.column) if key.column is not None else key.window or ""
    return f"{key.agg}({name}) {key.dir}" if key.agg else f"{name} {key.dir}"


def harmless_id(group: Column) -> bool:
    """Whether a grouped column is an identifier: grouping by it stands for grouping by its thing."""
    parts = identifier_words(base_name(group) or "")
    return bool(parts) and parts[-1] in ("id", "key", "code", "number")


def explained_by(column: str, named: frozenset[str] | set[str]) -> bool:
    """Whether the words of a column or table are among those named."""
    parts = set(identifier_words(column)) - {"id", "code", "name"}
    if any(len(w) >= 4 and w in column for w in named):
        return True  # names lose their capitals, and with them the seams between their words
    return not parts or any(p in named or any(word_similarity(p, w) >= 0.85 for w in named) for p in parts)


def whole(number: float) -> str:
    """A number as it is written: ``5`` for 5.0."""
    return str(int(number)) if float(number).is_integer() else str(number)


def words_of(text: str) -> set[str]:
    """The lemmas of a text."""
    return set(words(text))
