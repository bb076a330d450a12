"""Filters of both sides against each other: which were asked for, which are there, which part.

Soft where language is soft (the question's columns are guesses from words), hard where SQL is hard (values, direction,
boundary, boolean structure).

Source: method.md sections 2 and 3.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stef_core.domains import SAME, Domain, Relation, dated, domain_of, mergeable, relate
from stef_core.findings import finding
from stef_core.lexicon import attribute_of, column_similarity, identifier_words, is_country, same_value, words
from stef_core.records import (
    AllOf,
    AnyOf,
    Column,
    ColumnValue,
    Condition,
    DatePart,
    DateTrunc,
    Filter,
    FilterStatus,
    Finding,
    Hint,
    Now,
    Parameter,
    QuestionSpec,
    Reading,
    ScalarQuery,
    SqlSpec,
    SubQuery,
)
from stef_core.rules import BenignFilter, Rules
from stef_core.wording import condition_text

FIT_MATCH = 0.45  # from here on a guessed column may be the SQL's when the values agree
FIT_CONFLICT = 0.62  # from here on it is the same column, so another value is a conflict
_CONFLICT_CODE: dict[Relation, tuple[str, str]] = {
    "boundary": ("wrong_filter_operator", "boundary"),
    "direction": ("wrong_filter_operator", "direction"),
    "negated": ("wrong_filter_operator", "negated"),
    "subset": ("wrong_filter_value", "value_subset"),
    "superset": ("wrong_filter_value", "value_superset"),
    "value": ("wrong_filter_value", "value_conflict"),
}
_FLAG_WORDS = frozenset(("is", "has", "was", "flag", "id"))
_NEGATING = frozenset("not no non without except excluding exclude never other than un isn't aren't".split())
_SUPERLATIVE_WORDS = frozenset(
    "most least max maximum min minimum highest lowest largest smallest biggest longest shortest oldest youngest newest latest "
    "earliest first last top bottom best worst high low large small big long short old young new late early good bad great "
    "cheap expensive heavy light fast slow tall few many recent popular common".split()
)


@dataclass(slots=True, kw_only=True)
class Asked:
    """One thing the question side wants held: a leaf, several leaves of one column, or an OR."""

    condition: Condition
    filters: tuple[Filter, ...]
    domain: Domain | None  # None: an OR across columns
    certain: bool
    from_hint: bool = False
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Applied:
    """One thing the SQL holds. `origin` is the top-level conjunct that it stands in."""

    origin: Condition
    filters: tuple[Filter, ...]
    domain: Domain | None  # None: an OR
    negated: bool = False  # under NOT EXISTS, NOT IN or EXCEPT
    nested: bool = False  # inside a subquery of the conjunct
    in_aggregate: bool = False  # inside FILTER or CASE of an aggregate: satisfies, never an extra
    used: bool = False


@dataclass(slots=True, kw_only=True)
class FilterAlignment:
    """What `align_filters` found; the lists hold conditions of their side."""

    status: FilterStatus
    required: list[Condition] = field(default_factory=list)
    matched: list[Condition] = field(default_factory=list)
    missing: list[Condition] = field(default_factory=list)
    extra: list[Condition] = field(default_factory=list)
    benign: list[Condition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    support: dict[str, float] = field(default_factory=dict)


def align_filters(reading: Reading, rules: Rules, clauses: Sequence[str] = (), raw: str = "") -> FilterAlignment:
    """Compare the filters of question and SQL.

    Args:
        reading: Both specifications.
        rules: R_app.
        clauses: The reformulation in clauses.
        raw: Question and reformulation as one lower-case text.
    """
    matcher = _Matcher(reading, rules, clauses, raw)
    return matcher.run()


class _Matcher:
    """One comparison; holds what its steps share."""

    def __init__(self, reading: Reading, rules: Rules, clauses: Sequence[str], raw: str) -> None:
        self.clauses = clauses
        self.raw = raw
        self.has_evidence = any(h.relevant for h in (reading.enriched.hints if reading.enriched else ()))
        self.question: QuestionSpec = reading.question
        self.enriched: QuestionSpec | None = reading.enriched
        self.sql: SqlSpec = reading.sql
        self.rules = rules
        self.stage_of_hints = "generation"
        hints = (*self.question.hints, *(self.enriched.hints if self.enriched else ()))
        self.hints: tuple[Hint, ...] = tuple(dict.fromkeys(hints))
        mentions = self.question.mentions
        self.words = set(mentions.lemmas)
        self.numbers = set(mentions.numbers)
        self.dates = set(mentions.dates)
        self.phrases = [w.casefold() for w in (*mentions.quoted, *mentions.names)]
        self.read = self.question.language == "en"

    # --- the two sides ----------------------------------------------------------------------------------------------

    def asked(self) -> list[Asked]:
        """What the question requires, its hints included; one entry for several bounds of one column."""
        wanted = self._group(self.question.filters)
        if self.rules.trust_enrichment and self.enriched:
            for item in self._group(self.enriched.filters):
                if not any(self._same_asked(item, other) for other in wanted):
                    wanted.append(item)
        for item in self._hinted():
            clashing = [w for w in wanted if self._same_subject(item, w)]
            for old in clashing:
                wanted.remove(old)
            wanted.append(item)
        return wanted

    def _group(self, conditions: Sequence[Condition]) -> list[Asked]:
        result: list[Asked] = []
        by_column: dict[Any, list[Filter]] = {}
        for condition in conditions:
            if isinstance(condition, Filter) and not condition.agg and not condition.window:
                by_column.setdefault(_base(condition.column), []).append(self._mapped(condition))
            elif isinstance(condition, Filter):
                result.append(_asked_leaf(condition))
            else:
                leaves = tuple(_leaves(condition))
                result.append(
                    Asked(
                        condition=condition,
                        filters=leaves,
                        domain=None,
                        certain=all(f.certain for f in leaves),
                        text=" / ".join(f.text for f in leaves if f.text),
                    )
                )
        for filters in by_column.values():
            if len(filters) > 1 and mergeable(filters):
                result.append(
                    Asked(
                        condition=AllOf(conditions=tuple(filters)),
                        filters=tuple(filters),
                        domain=domain_of(filters),
                        certain=all(f.certain for f in filters),
                        text=next((f.text for f in filters if f.text), ""),
                    )
                )
            else:
                result.extend(_asked_leaf(f) for f in filters)
        return result

    def _mapped(self, f: Filter) -> Filter:
        """The filter with words of the business turned into stored values (value_mappings)."""
        if not self.rules.value_mappings or f.column is None:
            return f
        name = _base(f.column)
        values = f.value if isinstance(f.value, tuple) else (f.value,)
        mapped = tuple(self._folded(self.rules.mapped_value(name, v)) for v in values)
        if mapped == values:
            return f
        value = mapped if isinstance(f.value, tuple) else mapped[0]
        return Filter(column=f.column, op=f.op, value=value, raw=f.raw, text=f.text, clause=f.clause, certain=f.certain)

    @staticmethod
    def _folded(value: Any) -> Any:
        return " ".join(value.casefold().split()) if isinstance(value, str) else value

    def _hinted(self) -> list[Asked]:
        found: list[Filter] = []
        for hint in self.hints:
            if not hint.relevant or hint.column is None or hint.agg or hint.expression or hint.op is None:
                continue
            text = hint.text or hint.phrase
            found.append(Filter(column=hint.column, op=hint.op, value=hint.value, text=text, clause="enrichment"))
        by_clause: dict[str, list[Filter]] = {}
        for f in found:
            by_clause.setdefault(f.text, []).append(f)
        out = []
        for clause, filters in by_clause.items():
            either = " or " in f" {clause.casefold()} " and len({_base(f.column) for f in filters}) == 1 < len(filters)
            group: Sequence[Condition] = [AnyOf(conditions=tuple(filters))] if either else filters
            for item in self._group(group):
                item.from_hint = True
                item.text = clause
                out.append(item)
        return out

    def _same_asked(self, a: Asked, b: Asked) -> bool:
        if a.domain is None or b.domain is None:
            return a.condition == b.condition
        return relate(a.domain, b.domain, self._same) in SAME and self._fit(a.filters[0], b.filters[0]) >= FIT_MATCH

    def _same_subject(self, hint: Asked, wanted: Asked) -> bool:
        """Whether a hint explains what a condition of the question only guessed."""
        if wanted.domain is None or wanted.from_hint or hint.domain is None:
            return False
        if relate(wanted.domain, hint.domain, self._same) in SAME:
            return True
        texts = {w for f in wanted.filters for w in words(f.text)} | {
            w for f in wanted.filters for w in (words(f.value) if isinstance(f.value, str) else ())
        }
        phrase = set(words(hint.text))
        value_words = {w for f in wanted.filters if isinstance(f.value, str) for w in words(f.value)}
        return bool(texts and phrase) and (
            value_words <= phrase if value_words else len(texts & phrase) >= max(1, len(texts) // 2)
        )

    def applied(self) -> list[Applied]:
        """What the SQL holds, subqueries and conditional aggregates included."""
        result: list[Applied] = []
        self._collect(_conjuncts(self.sql), result)
        for aggregation in self.sql.aggregations:
            for condition in aggregation.filter:
                self._collect_one(condition, condition, result, negated=False, nested=True, in_aggregate=True)
        return result

    def _collect(self, conditions: Sequence[Condition], result: list[Applied]) -> None:
        by_column: dict[Any, list[Filter]] = {}
        for condition in conditions:
            if isinstance(condition, Filter) and _is_plain(condition):
                part = _calendar(condition)
                by_column.setdefault((_base(part.column), condition.table), []).append(part)
            else:
                self._collect_one(condition, condition, result, negated=False, nested=False, in_aggregate=False)
        for filters in by_column.values():
            bounds = [f for f in filters if f.op not in ("is_not_null", "is_null")]
            rest = [f for f in filters if f.op in ("is_not_null", "is_null")]
            if len(bounds) > 1 and mergeable(bounds):
                origin: Condition = AllOf(conditions=tuple(bounds))
                result.append(Applied(origin=origin, filters=tuple(bounds), domain=domain_of(bounds)))
            else:
                rest = bounds + rest
            result.extend(Applied(origin=f, filters=(f,), domain=domain_of([f])) for f in rest)

    def _collect_one(
        self, condition: Condition, origin: Condition, result: list[Applied], *, negated: bool, nested: bool, in_aggregate: bool
    ) -> None:
        flags = {"negated": negated, "nested": nested, "in_aggregate": in_aggregate}
        if isinstance(condition, AllOf):
            for inner in condition.conditions:
                self._collect_one(inner, origin, result, **flags)
            return
        if isinstance(condition, AnyOf):
            result.append(Applied(origin=origin, filters=tuple(_leaves(condition)), domain=None, **flags))
            return
        result.append(Applied(origin=origin, filters=(condition,), domain=domain_of([condition]), **flags))
        inner_filters, flips = _inner(condition)
        plain = [f for f in inner_filters if isinstance(f, Filter) and _is_plain(f)]
        if len(plain) > 1 and len({_base(f.column) for f in plain}) == 1 and mergeable(plain):
            result.append(
                Applied(
                    origin=origin,
                    filters=tuple(plain),
                    domain=domain_of(plain),
                    negated=negated != flips,
                    nested=True,
                    in_aggregate=in_aggregate,
                )
            )
        for inner in inner_filters:
            self._collect_one(inner, origin, result, negated=negated != flips, nested=True, in_aggregate=in_aggregate)

    # --- matching ---------------------------------------------------------------------------------------------------

    def run(self) -> FilterAlignment:
        """Match, sort out, and say the status."""
        asked, applied = self.asked(), self.applied()
        out = FilterAlignment(status="fully_applied")
        present = constrained = 0
        matched_origins: list[Condition] = []
        met = {_base(i.filters[0].column) for i in asked if i.from_hint and self._best(i, applied)[0] in SAME}
        several = [_base(i.filters[0].column) for i in asked if i.from_hint]
        shown = {_base(p) for p in self.sql.projections}
        for item in asked:
            relation, hits, fit = self._best(item, applied)
            if relation in SAME and not item.from_hint and hits and all(self._only_pads(hit) for hit in hits):
                out.required.append(item.condition)
                out.missing.extend(_flat(item.condition))
                out.findings.append(self._padded(item, hits[0]))
                for hit in hits:
                    hit.used = True
                continue
            name = _base(item.filters[0].column)
            if item.from_hint and relation not in SAME and several.count(name) > 1 and (name in met or name in shown):
                continue  # "M means men, F means women": the other meaning is held, or the column itself is shown
            if relation in SAME:
                present += 1
                out.required.append(item.condition)
                for hit in hits:
                    hit.used = True
                    matched_origins.append(hit.origin)
                out.support["filter_found"] = out.support.get("filter_found", 0.0) + 1
                if item.from_hint:
                    out.support["hint_found"] = out.support.get("hint_found", 0.0) + 1
                continue
            if relation is not None and hits:
                if not item.certain and relation in ("value", "superset", "subset") and not self._vouched(item, hits[0]):
                    continue  # a guess that does not fit is no departure
                constrained += 1
                out.required.append(item.condition)
                out.missing.extend(_flat(item.condition))
                for hit in hits:
                    hit.used = True
                    matched_origins.append(hit.origin)
                out.findings.append(self._conflict(item, relation, hits[0], fit))
                continue
            if not item.certain and not self._known_attribute(item):
                continue
            other = self._other_aggregate(item, applied)
            if other is not None:
                constrained += 1
                other.used = True
                out.required.append(item.condition)
                out.missing.extend(_flat(item.condition))
                out.findings.append(self._conflict(item, "value", other, 1.0))
                continue
            if self._answered_elsewhere(item) or self._written_somewhere(item):
                present += 1
                out.required.append(item.condition)
                out.support["filter_written"] = out.support.get("filter_written", 0.0) + 1
                continue
            out.required.append(item.condition)
            out.missing.extend(_flat(item.condition))
            kind = "hint_missing" if item.from_hint else "missing_filter"
            phrase = item.text or condition_text(item.condition)
            out.findings.append(
                finding(
                    "missing_filter",
                    f"Nothing in the SQL holds {condition_text(item.condition)}.",
                    question_part=phrase,
                    kind=kind,
                    strength=0.7 if item.from_hint else 1.0,
                )
            )
        missing = len(out.missing)
        self._extras(applied, matched_origins, out)
        constrained += len(out.missing) - missing  # a flag held the other way round
        out.status = self._status(out, present, constrained)
        return out

    def _other_aggregate(self, item: Asked, applied: Sequence[Applied]) -> Applied | None:
        """What the SQL compares with the number in place of the count or total of each group that was asked for."""
        f = item.filters[0]
        if item.from_hint:
            return None
        if f.agg == "sum":
            return next((a for a in applied if a.filters[0].value == f.value and self._summed(a.filters[0], f)), None)
        if f.agg != "count":
            return None
        for candidate in applied:
            have = candidate.filters[0]
            counts = {"number", "count", "total", "quantity", "num", "qty"} & set(identifier_words(_base(have.column) or ""))
            if have.agg in ("sum", "avg", "min", "max") and have.value == f.value and not counts and have.column:
                return candidate
        return None

    def _summed(self, f: Filter, asked: Filter) -> bool:
        """A condition on single rows of a column whose total for each group was asked for."""
        if f.agg or f.window:
            return False
        if self.sql.group_by:
            return any(a.func == "sum" and a.column == f.column for a in self.sql.aggregations)
        left, right = _base(asked.column), _base(f.column)
        grouped = self.sql.inner_groups or self.sql.aggregations or self.sql.windows or self.sql.subqueries
        return not grouped and left is not None and right is not None and column_similarity(left, right) >= 0.95

    def _only_pads(self, hit: Applied) -> bool:
        """A condition in ON of an outer join cuts no row, and nothing that comes out is read from the side that it limits."""
        leaves = [f for f in _leaves(hit.origin) if f in self.sql.join_filters]
        tables = {f.table for f in leaves}
        if not leaves or None in tables or "anti" in {j.kind for j in self.sql.joins} or self.sql.branches:
            return False
        used = {_base(c) for c in (*self.sql.projections, *self.sql.group_by, *(a.column for a in self.sql.aggregations))}
        used |= {_base(f.column) for f in _all_leaves(self.sql) if f not in self.sql.join_filters}
        plain = all(a.column == "*" or isinstance(a.column, str) for a in self.sql.aggregations)
        known = {n for _, n in self.sql.columns} | {"*", None}
        owned = {n for t, n in self.sql.columns if t in tables or not t}
        return plain and not self.sql.windows and bool(used) and used <= known and not used & owned

    def _padded(self, item: Asked, hit: Applied) -> Finding:
        return finding(
            "missing_filter",
            f"{condition_text(hit.filters[0])} stands in ON of an outer join: rows without a match come out all the same.",
            question_part=item.text or condition_text(item.condition),
            sql_part=condition_text(hit.filters[0]),
            kind="missing_filter",
            strength=1.0,
        )

    def _best(self, item: Asked, applied: Sequence[Applied]) -> tuple[Relation | None, list[Applied], float]:
        """The best counterpart of one asked condition: its relation, the parts of the SQL, and how well the columns fit."""
        if item.domain is None:
            return self._best_group(item, applied)
        best: tuple[int, float, Relation, list[Applied]] | None = None
        for candidate in applied:
            if candidate.domain is None:
                relation, fit = self._through_or(item, candidate)
            else:
                fit = self._fit(item.filters[0], candidate.filters[0])
                relation = relate(item.domain, candidate.domain, self._same)
                if candidate.negated:
                    relation = self._under_negation(item, candidate, relation)
                if relation == "value" and not item.from_hint and self._linked(item, candidate):
                    relation = "alike"  # the reformulation says which stored value the word means
                told = self._flag_denied(item, candidate)
                if told is not None:
                    relation, fit = ("alike" if told else "negated"), 1.0
                if relation == "superset" and self._rest_is_named(item, candidate):
                    relation = "alike"  # the reader saw one of the values that the question names
                if relation in SAME:
                    fit = max(fit, self._fit_by_value(item, candidate))
                elif relation == "incomparable":
                    relation, fit = self._resolve(item, candidate, fit)
                elif relation in ("direction", "boundary") and self._only_figure(item, candidate):
                    fit = max(fit, FIT_CONFLICT)
            if relation in SAME and fit >= FIT_MATCH:
                rank = 3 if relation == "equal" else 2
            elif relation != "incomparable" and fit >= FIT_CONFLICT and (not candidate.nested or relation != "value"):
                rank = 1
            else:
                continue
            if best is None or (rank, fit) > best[:2]:
                best = (rank, fit, relation, [candidate])
        return (best[2], best[3], best[1]) if best else (None, [], 0.0)

    def _only_figure(self, item: Asked, candidate: Applied) -> bool:
        """A figure whose column the question does not name, and the SQL compares one thing with that figure."""
        f, have = item.filters[0], candidate.filters[0]
        if f.column is not None or len(item.filters) != 1 or len(candidate.filters) != 1 or candidate.nested:
            return False
        number = isinstance(f.value, int | float) and not isinstance(f.value, bool)
        figures = [g for g in _all_leaves(self.sql) if g.value == f.value]
        return number and f.agg == have.agg and have.value == f.value and len(figures) == 1

    def _vouched(self, item: Asked, hit: Applied) -> bool:
        """A guess whose value is one of its column's kind (a country of a country column) is no guess."""
        value, name = item.filters[0].value, _base(hit.filters[0].column)
        if not isinstance(value, str) or name is None:
            return False
        asked = _base(item.filters[0].column)
        named = asked is not None and column_similarity(asked, name) >= 0.95  # "in building Delta"
        return named or bool(set(attribute_of(value)) & set(identifier_words(name)))

    def _known_attribute(self, item: Asked) -> bool:
        """A country or the like that nothing in the SQL speaks of was asked for, whatever its column is called."""
        value = item.filters[0].value
        if item.domain is None or item.domain.kind != "set" or not isinstance(value, str) or item.filters[0].op != "=":
            return False
        touched = " ".join((*self.sql.literals, *(n for _, n in self.sql.columns), *self.sql.tables)).casefold()
        return bool(attribute_of(value)) and is_country(value) and not set(words(value)) & set(words(touched))

    def _best_group(self, item: Asked, applied: Sequence[Applied]) -> tuple[Relation | None, list[Applied], float]:
        """An OR that was asked for against an OR of the SQL, or against its conjuncts (then AND stands for OR)."""
        leaves = [_asked_leaf(f) for f in item.filters]
        for candidate in applied:
            if candidate.domain is None:
                found = [any(self._leaf_matches(leaf, f) for f in candidate.filters) for leaf in leaves]
                if all(found) and len(candidate.filters) == len(leaves):
                    return "equal", [candidate], 1.0
                if any(found):
                    return "value", [candidate], 1.0
        hits = [c for leaf in leaves for c in applied if c.domain is not None and self._leaf_matches(leaf, c.filters[0])]
        if len(hits) >= len(leaves) > 1:
            return "negated", hits, 1.0
        return ("value", hits[:1], 1.0) if hits else (None, [], 0.0)

    def _leaf_matches(self, leaf: Asked, f: Filter) -> bool:
        assert leaf.domain is not None
        relation = relate(leaf.domain, domain_of([f]), self._same)
        if relation not in SAME:
            return False
        candidate = Applied(origin=f, filters=(f,), domain=domain_of([f]))
        return max(self._fit(leaf.filters[0], f), self._fit_by_value(leaf, candidate)) >= FIT_MATCH

    def _linked(self, item: Asked, candidate: Applied) -> bool:
        """One clause of the reformulation holds both the asked word and the literal that the SQL compares with."""
        asked, applied = item.filters[0].value, candidate.filters[0].value
        if not (isinstance(asked, str) and isinstance(applied, str)):
            return False
        wanted, named = set(words(asked)), set(words(applied))
        if named and named <= self.words - wanted:
            return False  # the question names that value for itself: the clause holds two conditions
        return any(wanted <= set(words(clause)) and applied in clause.casefold() for clause in self.clauses)

    def _rest_is_named(self, item: Asked, candidate: Applied) -> bool:
        a, b = item.domain, candidate.domain
        if a is None or b is None or a.kind != "set" or b.kind != "set":
            return False
        rest = [v for v in b.values if not any(self._same(v, w) for w in a.values)]
        f = candidate.filters[0]
        return bool(rest) and all(
            self._value_spoken(v, f, False, set(), self.words, self.numbers, self.dates, self.phrases) for v in rest
        )

    def _through_or(self, item: Asked, candidate: Applied) -> tuple[Relation, float]:
        """Whether every branch of an OR of the SQL implies the condition; if only some do, the OR lets other rows through."""
        if not isinstance(candidate.origin, AnyOf):
            return "incomparable", 0.0
        implied = [self._implies(branch, item) for branch in candidate.origin.conditions]
        if all(implied):
            return "equal", 1.0
        if any(implied):
            return "superset", 1.0
        if all(self._lets_more_through(branch, item) for branch in candidate.origin.conditions):
            return "superset", 1.0  # "neither red nor blue" written as <> OR <>
        return "incomparable", 0.0

    def _lets_more_through(self, branch: Condition, item: Asked) -> bool:
        if not isinstance(branch, Filter) or item.domain is None or item.domain.kind != "not_set":
            return False
        relation = relate(item.domain, domain_of([branch]), self._same)
        return relation == "superset" and self._fit(item.filters[0], branch) >= FIT_CONFLICT

    def _implies(self, branch: Condition, item: Asked) -> bool:
        if isinstance(branch, AllOf):
            return any(self._implies(c, item) for c in branch.conditions)
        if isinstance(branch, AnyOf):
            return all(self._implies(c, item) for c in branch.conditions)
        assert item.domain is not None
        relation = relate(item.domain, domain_of([branch]), self._same)
        candidate = Applied(origin=branch, filters=(branch,), domain=domain_of([branch]))
        fit = max(self._fit(item.filters[0], branch), self._fit_by_value(item, candidate) if relation in SAME else 0.0)
        return relation in (*SAME, "subset") and fit >= FIT_MATCH

    def _under_negation(self, item: Asked, candidate: Applied, relation: Relation) -> Relation:
        if relation == "negated":
            return "equal"
        if relation in SAME:
            return relation if self.question.negated or self.question.set_op in ("except", "minus") else "negated"
        return relation

    def _resolve(self, item: Asked, candidate: Applied, fit: float) -> tuple[Relation, float]:
        """Two forms that cannot be compared value by value: a name found through a subquery, a flag, a null test."""
        assert item.domain is not None
        assert candidate.domain is not None
        a, b = item.domain, candidate.domain
        if a.kind in ("null", "not_null") and b.kind == "query":
            return "incomparable", fit
        if a.kind == "range" and b.kind == "period" and fit < 0.9:
            return "incomparable", 0.0
        if b.kind in ("column", "query", "scalar", "other", "like", "not_like") or a.kind in ("other", "column", "scalar"):
            return "incomparable", fit
        if a.kind in ("null", "not_null") or b.kind in ("null", "not_null"):
            return "incomparable", fit
        if {a.kind, b.kind} <= {"set", "range", "part", "not_set"} and fit >= 0.9:
            return "value", fit
        return "incomparable", fit

    def _same(self, a: Any, b: Any) -> bool:
        if a == b and isinstance(a, bool) == isinstance(b, bool):
            return True
        if isinstance(a, bool) or isinstance(b, bool):
            return _flag(a) == _flag(b) is not None
        return bool(same_value(a, b))

    def _fit(self, asked: Filter, applied: Filter) -> float:
        """How likely the asked column is the SQL's, 0-1."""
        if (asked.agg or None) != (applied.agg or None):
            if not (asked.agg and applied.agg is None) and not (applied.agg and asked.agg is None):
                return 0.2
            if asked.agg == "count" and applied.column is not None:
                counted = {"number", "count", "total", "quantity"} & set(identifier_words(_base(applied.column) or ""))
                return 0.8 if counted else 0.35
            return 0.35
        if asked.column is None or applied.column is None:
            return 0.5
        left, right = _base(asked.column), _base(applied.column)
        if left is None or right is None:
            return 0.5
        if self.rules.same_column(left, right):
            return 1.0
        names = [right, *((f"{applied.table}_{right}",) if applied.table else ())]
        alternatives = {left, *self.rules.aliases(left)}
        fit = max(column_similarity(a, n) for a in alternatives for n in names)
        if asked.clause == "enrichment" and (left.endswith("id") != right.endswith("id")):
            fit = min(fit, 0.5)  # alignment_id is not alignment
        if asked.agg and applied.agg and "*" in (left, right):
            fit = max(fit, 0.7)
        if _is_dated(asked) and _is_dated(applied):
            fit = max(fit, 0.7)
        return fit

    def _fit_by_value(self, item: Asked, candidate: Applied) -> float:
        """A value that is rare enough vouches for its column: the question's own column is only a guess from its words."""
        asked, applied = item.filters[0], candidate.filters[0]
        if item.from_hint:
            return 0.0  # a hint names its column
        if asked.agg and applied.agg and asked.agg != applied.agg:
            return 0.0  # a number of rows is not a sum
        if asked.agg == "sum" and self._summed(applied, asked):
            return 0.0
        value = asked.value
        if isinstance(value, tuple):
            value = value[0] if value else None
        if asked.column is None:
            return 0.7
        if isinstance(value, str) and len(value) >= 2:
            return 0.6 if not self._owns_other(asked.column, applied) else 0.3
        if isinstance(value, Now) or _is_dated(asked):
            return 0.7
        if isinstance(value, int | float) and not isinstance(value, bool):
            same_op = asked.op == applied.op
            return 0.55 if same_op and not self._owns_other(asked.column, applied) else 0.3
        return 0.0

    def _owns_other(self, column: Column, applied: Filter) -> bool:
        """Whether the SQL uses another column that is clearly the one the question named."""
        name = _base(column)
        here = _base(applied.column)
        if name is None:
            return False
        return any(c != here and column_similarity(name, c) >= 0.95 for _, c in self.sql.columns)

    def _conflict(self, item: Asked, relation: Relation, hit: Applied, fit: float) -> Finding:
        code, kind = _CONFLICT_CODE.get(relation, ("wrong_filter_value", "value_conflict"))
        if hit.domain is None or item.domain is None:
            code, kind = "wrong_filter_operator", "boolean_structure"
        if item.from_hint:
            kind = f"hint_{kind}"
        elif item.domain is not None and item.domain.kind == "period":
            kind = f"period_{kind}"
        applied = " and ".join(condition_text(f) for f in hit.filters) if hit.domain else condition_text(hit.origin)
        wanted = condition_text(item.condition)
        return finding(
            code,
            f"The question asks for {wanted}; the SQL applies {applied}.",
            question_part=item.text or wanted,
            sql_part=applied,
            kind=kind,
            strength=(1.0 if item.certain else 0.5) * min(1.0, fit),
        )

    def _answered_elsewhere(self, item: Asked) -> bool:
        """What looks like a filter may be met by the shape of the query: a table's name, an anti-join, a superlative."""
        f = item.filters[0]
        if item.from_hint and f.op in ("=", "in"):
            return False
        if f.op in ("is_null", "not_exists") or self.question.negated:
            kinds = {j.kind for j in self.sql.joins}
            if "anti" in kinds or self.sql.set_op in ("except", "minus"):
                return True
            if f.op in ("is_null", "not_exists") and any(
                leaf.op in ("is_null", "not_exists", "not_in") for leaf in _all_leaves(self.sql)
            ):
                return True
        if f.op == "is_not_null" and not item.from_hint:
            return any(_base(f.column) and column_similarity(_base(f.column) or "", c) >= 0.8 for _, c in self.sql.columns)
        if isinstance(f.value, str) and f.op == "=" and not item.from_hint:
            value_words = set(words(f.value))
            tables = {w for t in self.sql.tables for w in identifier_words(t)}
            if value_words and value_words <= tables:
                return True
            columns = {w for _, c in self.sql.columns for w in identifier_words(c)}
            if value_words and value_words <= columns and not attribute_of(f.value):
                return True  # the word names a column that is used, not a value
            outputs = " ".join(self.sql.expressions).casefold()
            return f"'{f.value}'" in outputs
        return False

    def _written_somewhere(self, item: Asked) -> bool:
        """Every literal of the condition stands in the SQL in a form that was not understood, or a hint says what it is."""
        texts = " ".join((*self.sql.literals, *(n for _, n in self.sql.columns))).casefold()
        numbers = set(re.findall(r"\d+(?:\.\d+)?", texts))
        wanted: list[str] = []
        for f in item.filters:
            values = f.value if isinstance(f.value, tuple) else (f.value,)
            for value in values:
                if isinstance(value, bool) or not isinstance(value, str | int | float):
                    return False
                wanted.append(str(value))
        if not wanted:
            return False
        if not item.from_hint and any(self._hint_places(w) for w in wanted):
            return True
        return all(set(re.findall(r"\d+(?:\.\d+)?", w)) <= numbers if w[0].isdigit() else w in texts for w in wanted)

    def _hint_places(self, value: str) -> bool:
        """A hint that speaks of this value and names a column that the SQL uses: the value is part of the column's meaning."""
        used = {n for _, n in self.sql.columns}
        for hint in self.hints:
            speaks = hint.relevant and hint.column and value[:4] in hint.text and value not in str(hint.value)
            if speaks and any(column_similarity(hint.column or "", n) >= 0.85 for n in used):
                return True
        return False

    # --- extras -----------------------------------------------------------------------------------------------------

    def _extras(self, applied: Sequence[Applied], matched_origins: list[Condition], out: FilterAlignment) -> None:
        tops: dict[int, list[Applied]] = {}
        for item in applied:
            if not item.in_aggregate:
                tops.setdefault(id(item.origin), []).append(item)
        compared = {
            _base(f.column) for item in applied for f in item.filters if f.op not in ("is_not_null",) and f.column is not None
        }
        compared |= {_base(k.column) for k in self.sql.order_by if k.column is not None}
        for parts in tops.values():
            origin = parts[0].origin
            if any(p.used for p in parts):
                out.matched.extend(_flat(origin))
                continue
            top = parts[0].filters[0]
            if isinstance(origin, Filter) and origin.op == "is_not_null" and _base(origin.column) in compared:
                continue
            if self._is_join_like(origin):
                continue
            if isinstance(origin, Filter) and self._flag_inverted(origin):
                self._note_inverted(origin, out)
                continue
            support = self._support(origin)
            if support == "question" or (support == "enrichment" and self._clarifies(origin)):
                out.matched.extend(_flat(origin))
                out.required.extend(_flat(origin))
                out.support["filter_mentioned"] = out.support.get("filter_mentioned", 0.0) + 1
                continue
            if not self.read:
                out.matched.extend(_flat(origin))
                out.support["filter_unread"] = out.support.get("filter_unread", 0.0) + 1
                continue
            out.extra.extend(_flat(origin))
            benign = [rule for rule in self.rules.benign_filters if self._is_benign(origin, rule)]
            if benign:
                out.benign.extend(_flat(origin))
                continue
            stage = "enrichment" if support == "enrichment" else "generation"
            kind = self._extra_kind(origin, top)
            out.findings.append(
                finding(
                    "extra_filter",
                    f"Nobody asked for {condition_text(origin)}."
                    if stage == "generation"
                    else f"Only the reformulation asks for {condition_text(origin)}.",
                    stage=stage,  # type: ignore[arg-type]  # two literals
                    sql_part=condition_text(origin),
                    kind=kind,
                    strength=self._extra_strength(origin),
                    severity="critical" if kind.endswith("_unnamed") else None,
                )
            )

    def _flag_denied(self, item: Asked, candidate: Applied) -> bool | None:
        """``is_active`` where inactive ones are asked for: whether the flag is held false; None where it says nothing of it."""
        f, have = item.filters[0], candidate.filters[0]
        state = _flag_state(have)
        if state is None or item.from_hint or f.op != "=" or not isinstance(f.value, str):
            return None
        opposites = {p + w for w in identifier_words(str(have.column)) for p in ("in", "un", "non", "non-")}
        return not state if f.value in opposites else None

    def _flag_inverted(self, f: Filter) -> bool:
        """``is_deleted = 0`` where the question asks for what is deleted."""
        if _flag_state(f) is not False or not self.read:
            return False
        named = {w for alias in self.rules.aliases(str(f.column)) for w in identifier_words(alias)} - _FLAG_WORDS
        unsaid = self.question.negated or _NEGATING & set(re.findall(r"[a-z']+", self.raw))
        return bool(named) and named <= self.words and not unsaid

    def _note_inverted(self, f: Filter, out: FilterAlignment) -> None:
        asked = Filter(column=f.column, op="=", value=True if isinstance(f.value, bool) else 1, clause="question")
        out.matched.append(f)
        out.required.append(asked)
        out.missing.append(asked)
        out.findings.append(
            finding(
                "wrong_filter_value",
                f"The question asks for {condition_text(asked)}; the SQL applies {condition_text(f)}.",
                question_part=condition_text(asked),
                sql_part=condition_text(f),
                kind="flag_inverted",
                severity="critical",
            )
        )

    def _extra_kind(self, origin: Condition, top: Filter) -> str:
        if not isinstance(origin, Filter):
            return "extra_group"
        if origin.window:
            return "extra_window_filter"
        if origin.agg:
            return "extra_having"
        if origin.op in ("exists", "not_exists") or isinstance(origin.value, SubQuery | ScalarQuery):
            return "extra_subquery"
        if isinstance(origin.value, str):
            spoken = set(re.findall(r"\w+", self.raw))
            return "extra_text_value" if set(re.findall(r"\w+", origin.value)) <= spoken else "extra_text_unnamed"
        if isinstance(origin.value, bool | int | float):
            figure = str(int(origin.value)) if float(origin.value).is_integer() else str(origin.value)
            return "extra_number" if figure in self.raw or origin.value in (0, 1) else "extra_number_unnamed"
        return "extra_filter"

    def _extra_strength(self, origin: Condition) -> float:
        leaves = list(_leaves(origin))
        if leaves and all(f.op in ("is_not_null", "is_null", "!=", "not_in") for f in leaves):
            return 0.6
        return 1.0

    def _is_join_like(self, origin: Condition) -> bool:
        """A column held equal to another one ties rows together; a bare IN/EXISTS tie without conditions does the same."""
        if not isinstance(origin, Filter):
            return False
        if isinstance(origin.value, ColumnValue):
            return origin.op == "=" or (origin.op in ("<=", ">=") and origin.value.column == origin.column)
        inner, _ = _inner(origin)
        if isinstance(origin.value, SubQuery) and not inner:
            return origin.op in ("in", "exists", "=") or self.question.negated or self.question.set_op is not None
        return False

    def _clarifies(self, origin: Condition) -> bool:
        """A condition that only the reformulation names clarifies the question when a relevant hint states it."""
        for f in _leaves(origin):
            name = _base(f.column)
            for hint in self.hints:
                if hint.relevant and hint.column and name and column_similarity(hint.column, name) >= 0.8:
                    return True
                if hint.relevant and isinstance(f.value, str) and set(words(f.value)) & set(words(hint.text)):
                    return True
        return False

    def _in_evidence(self, origin: Condition) -> bool:
        """Every value of the condition stands in a clause of the reformulation that speaks of the question."""
        relevant = [clause.casefold() for clause in self.clauses if set(words(clause)) & self.words]
        for f in _leaves(origin):
            name = _base(f.column) or ""
            for value in f.value if isinstance(f.value, tuple) else (f.value,):
                if isinstance(value, str) and value:
                    held = any(value in clause for clause in relevant)
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    number = re.escape(str(int(value)) if float(value).is_integer() else str(value))
                    held = any(
                        name in clause and re.search(rf"(?<![\d.]){number}(?![\d])", clause) for clause in relevant if name
                    )
                else:
                    held = False
                if not held:
                    return False
        return True

    def _support(self, origin: Condition) -> str | None:
        """Who speaks of this condition: the question, only the reformulation, or nobody."""
        if self.has_evidence and self._in_evidence(origin):
            return "question"
        if self._spoken(origin, self.question, self.words, self.numbers, self.dates, self.phrases):
            return "question"
        if self.enriched is not None:
            mentions = self.enriched.mentions
            phrases = [w.casefold() for w in (*mentions.quoted, *mentions.names)]
            if self._spoken(origin, self.enriched, set(mentions.lemmas), set(mentions.numbers), set(mentions.dates), phrases):
                return "enrichment"
        return None

    def _spoken(
        self,
        condition: Condition,
        spec: QuestionSpec,
        lemmas: set[str],
        numbers: set[float],
        dates: set[str],
        phrases: list[str],
    ) -> bool:
        args = (spec, lemmas, numbers, dates, phrases)
        if isinstance(condition, AllOf):
            return all(self._spoken(c, *args) for c in condition.conditions)
        if isinstance(condition, AnyOf):
            return all(self._spoken(c, *args) for c in condition.conditions)
        column = _base(condition.column) or ""
        column_words = set(identifier_words(column)) if column else set()
        named = bool(column_words & lemmas)
        value = condition.value
        if condition.window:
            return (
                spec.limit is not None or spec.superlative is not None or bool(lemmas & _SUPERLATIVE_WORDS) or "rank" in lemmas
            )
        if condition.op in ("is_null", "is_not_null"):
            return (named and (spec.negated or condition.op == "is_not_null")) or (spec.negated and condition.op == "is_null")
        if isinstance(value, ScalarQuery):
            called = set(re.findall(r"\b(count|sum|avg|min|max)\s*\(", str(value.column))) | {value.func}
            if called & {"max", "min"}:
                return spec.superlative is not None or bool(lemmas & _SUPERLATIVE_WORDS)
            return (
                bool({"average", "mean", "avg"} & lemmas)
                if value.func == "avg"
                else bool(lemmas & {value.func, "total", "number"})
            )
        if isinstance(value, SubQuery) or condition.op in ("exists", "not_exists"):
            inner, _ = _inner(condition)
            if inner:
                return all(self._spoken(c, *args) for c in inner)
            nested = value.spec if isinstance(value, SubQuery) else None
            if nested is not None and nested.aggregations:
                spoken = {"avg": {"average", "mean"}, "max": _SUPERLATIVE_WORDS, "min": _SUPERLATIVE_WORDS}
                if all(spoken.get(a.func, {"number", "total", "sum", "count"}) & lemmas for a in nested.aggregations):
                    return True
            if nested is not None and nested.limit is not None and lemmas & _SUPERLATIVE_WORDS:
                return True
            return bool(spec.negated or named)
        if isinstance(value, ColumnValue):
            return named or condition.op == "="
        if isinstance(value, Now):
            return bool({"last", "past", "recent", "ago", "previous", "today", "current", "since", "this"} & lemmas) or bool(
                numbers
            )
        if isinstance(value, Parameter):
            return named
        values = value if isinstance(value, tuple) else (value,)
        return bool(values) and all(
            self._value_spoken(v, condition, named, column_words, lemmas, numbers, dates, phrases) for v in values
        )

    def _value_spoken(
        self,
        value: Any,
        condition: Filter,
        named: bool,
        column_words: set[str],
        lemmas: set[str],
        numbers: set[float],
        dates: set[str],
        phrases: list[str],
    ) -> bool:
        if isinstance(value, bool):
            return named
        if isinstance(value, int | float):
            if float(value) in numbers or (float(value).is_integer() and str(int(value)) in dates):
                return True
            if condition.op in (">", ">=", "<", "<=") and value in (0, 1) and (named or condition.agg):
                return True
            if (condition.op in (">", ">=") and float(value) + 1 in numbers) or (
                condition.op in ("<", "<=") and float(value) - 1 in numbers
            ):
                return True
            return value in (0, 1) and named  # a flag named by the question
        if not isinstance(value, str):
            return False
        text = re.sub(r"[%_]+", " ", value).strip() if condition.op in ("like", "not_like") else value
        if _dates_spoken(text, dates):
            return True
        for word, stored in self.rules.value_mappings.get(_base(condition.column) or "", {}).items():
            if stored is not None and str(stored).casefold() == text.casefold() and set(words(word)) <= lemmas:
                return True
        tokens = set(words(text))
        if tokens and tokens <= lemmas:
            return True
        if any(text == p or (len(text) >= 3 and text in p) for p in phrases):
            return True
        if any(same_value(text, w) for w in lemmas) or any(same_value(text, p) for p in phrases):
            return True
        return len(text) == 1 and any(
            w.startswith(text) and (named or attribute_of(w)) for w in lemmas if w not in column_words
        )

    def _is_benign(self, origin: Condition, rule: BenignFilter) -> bool:
        """method.md section 3: one top-level conjunct, the operator binds, off where the question speaks of the column."""
        if not isinstance(origin, Filter) or origin.agg or origin.window or not isinstance(origin.column, str):
            return False
        names = self.rules.aliases(origin.column)
        if not any(fnmatch.fnmatchcase(name, rule.column.casefold()) for name in names):
            return False
        if origin.op != rule.op or isinstance(origin.value, ColumnValue | ScalarQuery | SubQuery):
            return False
        if self._question_speaks_of(origin):
            return False
        if rule.value == "*":
            return not isinstance(origin.value, tuple) and origin.op not in ("is_null", "is_not_null")
        if rule.op in ("is_null", "is_not_null"):
            return True
        expected = rule.value if isinstance(rule.value, list) else [rule.value]
        actual = list(origin.value) if isinstance(origin.value, tuple) else [origin.value]
        return len(expected) == len(actual) and all(any(self._same(self._folded(e), a) for a in actual) for e in expected)

    def _question_speaks_of(self, origin: Filter) -> bool:
        name = _base(origin.column) or ""
        for condition in self.question.filters:
            for f in _leaves(condition):
                other = _base(f.column)
                if other and (self.rules.same_column(other, name) or column_similarity(other, name) >= 0.8):
                    return True
        for alias in self.rules.aliases(name):
            column_words = set(identifier_words(alias)) - {"id", "flag", "is", "has"}
            if column_words and column_words <= self.words:
                return True
        values = origin.value if isinstance(origin.value, tuple) else (origin.value,)
        return any(isinstance(v, str) and set(words(v)) and set(words(v)) <= self.words for v in values)

    # --- status -----------------------------------------------------------------------------------------------------

    def _status(self, out: FilterAlignment, present: int, constrained: int) -> FilterStatus:
        if out.missing:
            if self._critical_missing(out.missing):
                return "not_applied"
            return "partially_applied" if present or constrained else "not_applied"
        return "fully_applied_with_extras" if out.extra else "fully_applied"

    def _critical_missing(self, missing: Iterable[Condition]) -> bool:
        for condition in missing:
            for f in _leaves(condition):
                name = _base(f.column)
                if name and any(
                    self.rules.same_column(name, c) or column_similarity(name, c) >= 0.9 for c in self.rules.critical_filters
                ):
                    return True
        return False


# --- helpers over conditions ----------------------------------------------------------------------------------------


def _asked_leaf(f: Filter) -> Asked:
    return Asked(condition=f, filters=(f,), domain=domain_of([f]), certain=f.certain, text=f.text)


def _base(column: Column | None) -> str | None:
    return column.column if isinstance(column, DatePart | DateTrunc) else column


def _flat(condition: Condition) -> list[Condition]:
    """A merged group back as the conjuncts that it was made of."""
    return list(condition.conditions) if isinstance(condition, AllOf) else [condition]


def _leaves(condition: Condition) -> Iterator[Filter]:
    if isinstance(condition, AnyOf | AllOf):
        for inner in condition.conditions:
            yield from _leaves(inner)
    else:
        yield condition


def _inner(f: Filter) -> tuple[tuple[Condition, ...], bool]:
    """Conditions inside the subquery of a filter, and whether they hold under a negation."""
    flips = f.op in ("not_exists", "not_in", "!=")
    if isinstance(f.value, SubQuery):
        spec = f.value.spec
        return (_conjuncts(spec) if spec is not None and spec.branches else f.value.filters), flips
    if isinstance(f.value, ScalarQuery):
        return f.value.filters, False
    return (), False


def _all_leaves(sql: SqlSpec) -> Iterator[Filter]:
    pending: list[Condition] = list(_conjuncts(sql))
    while pending:
        for leaf in _leaves(pending.pop()):
            yield leaf
            pending.extend(_inner(leaf)[0])


def _conjuncts(sql: SqlSpec) -> tuple[Condition, ...]:
    """What must hold for a row to come out, set operations included: a union is an OR of its branches, EXCEPT a negation."""
    common = (*sql.filters, *sql.join_filters)
    if not sql.branches:
        return common
    own = [tuple(c for c in _conjuncts(b) if c not in common) for b in sql.branches]
    operation = sql.set_op or ""
    if operation.startswith("union"):
        if not any(own):
            return common
        groups = tuple(AllOf(conditions=o) if len(o) != 1 else o[0] for o in own)
        return (*common, AnyOf(conditions=groups))
    if operation.startswith("intersect"):
        return (*common, *(c for o in own for c in o))
    excluded = tuple(c for o in own[1:] for c in o)
    kept = (*common, *own[0])
    return (*kept, Filter(op="not_exists", value=SubQuery(filters=excluded))) if excluded else kept


def _is_plain(f: Filter) -> bool:
    return (
        not f.agg
        and not f.window
        and f.op not in ("exists", "not_exists")
        and not isinstance(f.value, ColumnValue | ScalarQuery | SubQuery)
    )


_MONTHS = {m: i + 1 for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())}


def _calendar(f: Filter) -> Filter:
    """``year = 2021 and month = 'april'`` on columns of that name are parts of one date."""
    cut = dated(f.column)
    if cut is not None:
        value = tuple(_digits(v) for v in f.value) if isinstance(f.value, tuple) else _digits(f.value)
        return Filter(column=cut, op=f.op, value=value, raw=f.raw, text=f.text, table=f.table, clause=f.clause, level=f.level)
    if f.column not in ("year", "month") or f.op not in ("=", "like"):
        return f
    value = f.value
    if isinstance(value, str):
        value = _MONTHS.get(value.strip("%")[:3]) if f.column == "month" else value
    if not isinstance(value, int) or isinstance(value, bool):
        return f
    column = DatePart(part=str(f.column), column="date")
    return Filter(column=column, op="=", value=value, raw=f.raw, text=f.text, table=f.table, clause=f.clause, level=f.level)


def _digits(value: Any) -> Any:
    """``'08'`` of a text cut is the month 8; a year and month stay together."""
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) <= 4 else value


def _is_dated(f: Filter) -> bool:
    if isinstance(f.column, DatePart | DateTrunc) or isinstance(f.value, Now):
        return True
    return domain_of([f]).kind in ("period", "relative")


def _flag_state(f: Filter) -> bool | None:
    """What a condition on a flag (``is_deleted``, ``test_flag``) holds it at; None where it is no such condition."""
    if f.op not in ("=", "!=") or f.agg or f.window or not isinstance(f.column, str):
        return None
    parts = f.column.casefold().split("_")
    if len(parts) < 2 or not (parts[0] in ("is", "has", "was") or parts[-1] == "flag"):
        return None
    state = _flag(f.value)
    return None if state is None else state == (f.op == "=")


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        return {"true": True, "t": True, "yes": True, "y": True, "false": False, "f": False, "no": False, "n": False}.get(value)
    return None


def _dates_spoken(text: str, dates: set[str]) -> bool:
    """Whether a date literal lies in a period that the text names (a year, a month, a day)."""
    match = re.match(r"^(\d{4})(?:-?(\d{2})(?:-?(\d{2}))?)?", text)
    if not match:
        return False
    year, month, day = match.groups()
    if day and f"{year}-{month}-{day}" in dates:
        return True
    if any(d == year or d.startswith(f"{year}-") for d in dates):
        return True
    following = str(int(year) - 1)
    return (month, day) in (("01", "01"), (None, None)) and following in dates
