"""Alignment: question side and SQL side against each other, dimension by dimension, under the four production rules.

Each step adds findings; the judge weighs them. Conflict is kept apart from absence: a value that conflicts is damning,
something that was not found may only not have been read.

Source: method.md sections 2 and 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from stef_core.align_filters import align_filters
from stef_core.catalogue import Witness, compared_texts
from stef_core.findings import CODES, finding
from stef_core.lexicon import attribute_of, column_similarity, identifier_words, same_value, word_similarity, words
from stef_core.records import (
    Aggregation,
    Alignment,
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
    Reading,
    ScalarQuery,
    Severity,
    SqlSpec,
    SubQuery,
)
from stef_core.rules import Rules
from stef_core.wording import column_text, condition_text

_EXTREMES = {"max": "desc", "min": "asc"}
# columns where a small number or an early date is the better one: the direction of a superlative says nothing there
_INVERTED = frozenset("rank position place order date year birth birthday born dob founded opened built time".split())
_GRAINS = ("hour", "day", "week", "month", "quarter", "year")


@dataclass(slots=True, kw_only=True)
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

    @property
    def raw(self) -> str:
        """Question and reformulation as one lower-case text."""
        return f"{self.record.user_question or ''} {self.record.enriched_question or ''}".casefold()

    @property
    def spoken(self) -> frozenset[str]:
        """Lemmas of the question, and its words as they stand."""
        return self.question.mentions.lemmas | frozenset(re.findall(r"[a-z]+", (self.record.user_question or "").casefold()))

    @property
    def clauses(self) -> list[str]:
        """The reformulation in clauses, what repeats the question left out."""
        text = self.record.enriched_question or ""
        _, marker, evidence = text.partition("Evidence:")
        return [part for part in re.split(r"[;\n]|\.\s", evidence if marker else text) if part.strip()]

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


def align(record: QueryRecord, reading: Reading, rules: Rules, witness: Witness | None = None) -> Alignment:
    """Compare what was asked with what the SQL does.

    Args:
        record: The row; only its texts are looked at.
        reading: Both specifications.
        rules: R_app.
        witness: What the rest of the log shows; nothing is asked of it where None.

    Returns:
        Filter status with the conditions behind it, the four production rules, and a finding for each departure.
    """
    comparison = Comparison(
        record=record,
        question=reading.question,
        enriched=reading.enriched,
        sql=reading.sql,
        rules=rules,
        witness=witness,
    )
    filters = align_filters(reading, rules, comparison.clauses, comparison.raw)
    comparison.benign, comparison.missing, comparison.extra = (
        tuple(filters.benign),
        tuple(filters.missing),
        tuple(filters.extra),
    )
    comparison.findings = list(filters.findings)
    comparison.support = dict(filters.support)
    for step in STEPS:
        step(comparison)
    return Alignment(
        filter_status=filters.status,
        required=_distinct(filters.required),
        matched=_distinct(filters.matched),
        missing=_distinct(filters.missing),
        extra=_distinct(filters.extra),
        benign=_distinct(filters.benign),
        group_by_required=group_by_required(reading.sql),
        benign_group_by=benign_group_by(reading.sql),
        order_by_tolerated=order_by_tolerated(reading, rules),
        limit_is_safety=limit_is_safety(reading, rules),
        findings=tuple(_staged(comparison)),
        support=tuple(sorted(comparison.support.items())),
    )


def _distinct(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    out: dict[str, Condition] = {}
    for condition in conditions:
        for part in condition.conditions if isinstance(condition, AllOf) else (condition,):
            out.setdefault(repr(part), part)
    return tuple(out.values())


def _staged(c: Comparison) -> Iterator[Finding]:
    """Name the stage at fault: the reformulation, where the SQL is true to it and it is not true to the question."""
    enriched = c.enriched
    for f in c.findings:
        stage = f.stage
        if enriched is not None and stage == "generation" and f.code in _ENRICHMENT_FAULTS and _follows(f, enriched, c.sql):
            stage = "enrichment"
        yield (
            f
            if stage == f.stage
            else finding(
                f.code,
                f.message,
                stage=stage,
                question_part=f.question_part,
                sql_part=f.sql_part,
                kind=f.kind,
                strength=f.strength,
            )
        )


_ENRICHMENT_FAULTS = frozenset(
    "missing_filter wrong_filter_value wrong_filter_operator wrong_aggregation missing_group_by wrong_group_by".split()
)


def _follows(f: Finding, enriched: QuestionSpec, sql: SqlSpec) -> bool:
    """Whether the SQL does what the reformulation says where both leave the question."""
    if enriched.hints and any(h.relevant for h in enriched.hints):
        return False  # evidence explains the question; it does not replace it
    asked = {a.func for a in enriched.aggregations}
    if f.code == "wrong_aggregation":
        return bool(asked & {a.func for a in sql.aggregations})
    if f.code == "wrong_group_by":
        return any(g in sql.group_by for g in enriched.group_by)
    if f.code == "missing_group_by":
        return not enriched.group_by
    wanted = set(words(f.question_part or ""))
    return bool(wanted) and not wanted <= enriched.mentions.lemmas


# --- the four production rules --------------------------------------------------------------------------------------


def group_by_required(sql: SqlSpec) -> bool:
    """Plain outputs beside aggregates need a GROUP BY (window functions and literals do not count)."""
    if not sql.projections:
        return False
    if sql.aggregations:
        return True
    return bool(sql.group_by) and any(_aggregated(e) for e in sql.expressions)


_CALLS = re.compile(r"\b(count|sum|avg|min|max)\s*\(")


def _aggregated(expression: str) -> bool:
    return bool(_CALLS.search(expression))


def benign_group_by(sql: SqlSpec) -> tuple[Column, ...]:
    """Grouped columns that WHERE pins to one value at top level."""
    pinned = [f for f in sql.filters if isinstance(f, Filter) and not f.agg and not f.window and _pins(f)]
    return tuple(g for g in sql.group_by if any(f.column == g for f in pinned))


def _pins(f: Filter) -> bool:
    if f.op == "is_null":
        return True
    return (
        f.op == "="
        and f.value is not None
        and (isinstance(f.value, str | int | float | bool) or type(f.value).__name__ in ("Parameter", "Now"))
    )


def order_by_tolerated(reading: Reading, rules: Rules) -> bool:
    """An order that nobody asked for and that picks no rows."""
    sql, question = reading.sql, reading.question
    if not sql.order_by or not rules.tolerate_order_by or sql.distinct_on:
        return False
    if question.asks_order or question.asks_limit or question.superlative:
        return False
    return sql.limit is None or limit_is_safety(reading, rules)


def limit_is_safety(reading: Reading, rules: Rules) -> bool:
    """A limit from λ_min on that nobody asked for."""
    limit = reading.sql.limit
    return limit is not None and limit >= rules.safety_limit_min and not reading.question.asks_limit


# --- steps ----------------------------------------------------------------------------------------------------------


def compare_defects(c: Comparison) -> None:
    """Faults of the SQL whatever was asked."""
    benign = set(benign_group_by(c.sql))
    for defect in c.sql.defects:
        if defect.kind == "missing_group_by" and benign:
            continue
        code = defect.code if defect.code in CODES else "extra_transformation"
        c.note(
            code,
            defect.message,
            kind=f"defect_{defect.kind}",
            sql_part=defect.sql_part or None,
            severity="critical" if defect.fatal else "minor",
        )


def compare_outputs(c: Comparison) -> None:
    """Each thing asked to be seen against what is output."""
    asked = [p for p in c.question.projections if base_name(p)]
    if not asked or c.question.language != "en" or "*" in c.sql.projections:
        return
    outputs = list(c.sql.projections)
    texts = list(c.sql.expressions)
    found: set[int] = set()
    unmet: list[Column] = []
    for wanted in asked:
        scores = [c.similar(wanted, o, _owner(c.sql, o)) for o in outputs]
        best = max(range(len(outputs)), key=scores.__getitem__, default=None)
        if best is not None and scores[best] >= 0.5:
            found.add(best)
        elif any(_in_expression(wanted, t) for t in texts):
            continue
        else:
            unmet.append(wanted)
    free = [o for i, o in enumerate(outputs) if i not in found]
    if not unmet:
        c.found("outputs_found")
    for wanted in unmet:
        name = column_text(wanted)
        counted = any(a for a in c.sql.aggregations) and not c.question.aggregations
        if len(texts) < len(asked):
            c.note("missing_output", f"{name} is asked for and not output.", question_part=name, kind="missing_output")
        elif free and not counted and len(outputs) == len(texts):
            other = column_text(free[0])
            named = column_similarity(base_name(wanted) or "", base_name(free[0]) or "")
            c.note(
                "wrong_output",
                f"{name} is asked for; {other} is output.",
                question_part=name,
                sql_part=other,
                kind="wrong_output",
                strength=0.4 if named > 0.3 else 0.6,
            )
    if not unmet and len(texts) > len(asked) + len(c.question.aggregations) and not c.question.group_by:
        extra = [o for o in free if not _harmless_output(c, o)]
        if extra:
            c.note(
                "extra_output",
                f"Nobody asked to see {', '.join(column_text(o) for o in extra)}.",
                sql_part=", ".join(column_text(o) for o in extra),
                kind="extra_output",
                strength=min(1.0, 0.5 + 0.25 * len(extra)),
            )


def _harmless_output(c: Comparison, output: Column) -> bool:
    name = base_name(output) or ""
    if output in c.sql.group_by or "id" in identifier_words(name):
        return True
    return bool(set(identifier_words(name)) & c.question.mentions.lemmas)


def compare_output_count(c: Comparison) -> None:
    """Fewer outputs than things asked for, whatever they are called."""
    asked = len(c.question.projections)
    outputs = len(c.sql.expressions)
    if asked > outputs >= 1 and "*" not in c.sql.projections and asked >= 2:
        c.note(
            "missing_output",
            f"{asked} things are asked for and {outputs} are output.",
            kind="fewer_outputs",
            strength=0.7,
        )


def compare_aggregates(c: Comparison) -> None:
    """The metric: function, column, distinct."""
    asked = [a for a in c.question.aggregations if a.certain and not _part_of_a_name(c, a)]
    have = list(_all_aggregates(c.sql))
    funcs = {a.func for a in have}
    for wanted in asked:
        if wanted.func in funcs:
            c.found("aggregate_found")
            _compare_distinct(c, wanted, [a for a in have if a.func == wanted.func])
            _compare_measure(c, wanted, [a for a in have if a.func == wanted.func])
            continue
        if _answered_otherwise(c, wanted, funcs):
            continue
        output_funcs = [a.func for a in c.sql.aggregations]
        name = f"{wanted.func}({column_text(wanted.column)})"
        if output_funcs and not set(output_funcs) & {a.func for a in asked}:
            c.note(
                "wrong_aggregation",
                f"{name} is asked for; the SQL computes {output_funcs[0]}({column_text(c.sql.aggregations[0].column)}).",
                question_part=wanted.text or name,
                sql_part=output_funcs[0],
                kind=f"wrong_aggregate_{'count' if wanted.func == 'count' else 'value'}",
            )
        else:
            c.note(
                "missing_aggregation",
                f"{name} is asked for and not computed.",
                question_part=wanted.text or name,
                kind=f"missing_{wanted.func if wanted.func in ('count', 'avg', 'sum', 'max', 'min') else 'aggregate'}",
            )
    if c.question.language != "en":
        return
    for extra in c.sql.aggregations:
        if extra.func in {a.func for a in c.question.aggregations} or extra.func in _hinted_functions(c):
            continue
        if _explained(c, extra, c.spoken):
            continue
        c.note(
            "extra_aggregation",
            f"Nobody asked for {extra.func}({column_text(extra.column)}).",
            sql_part=f"{extra.func}({column_text(extra.column)})",
            kind=f"extra_{extra.func if extra.func in ('count', 'avg', 'sum', 'max', 'min') else 'aggregate'}",
            strength=0.6 if asked else 1.0,
        )


_FUNCTION_WORDS: dict[str, frozenset[str]] = {
    "count": frozenset(
        "count number many much frequency time often total amount popular common most least percentage share rate ratio "
        "proportion".split()
    ),
    "sum": frozenset(
        "sum total much many overall altogether combined amount number most revenue percentage share rate ratio proportion "
        "cumulative".split()
    ),
    "avg": frozenset("average mean avg typical rate per".split()),
    "max": frozenset(
        "max maximum most high large big long old late great good last top recent heavy expensive fast peak".split()
    ),
    "min": frozenset("min minimum least low small short young early few first bad light cheap old".split()),
}


def _part_of_a_name(c: Comparison, aggregation: Aggregation) -> bool:
    """ "Number of cards refers to baseSetSize": the words of the aggregate are those of a column that is used."""
    spoken = _FUNCTION_WORDS.get(aggregation.func, frozenset())
    for clause in c.clauses:
        if not set(words(clause)) & spoken or re.search(r"\b(count|sum|avg|min|max|divide)\b", clause, re.IGNORECASE):
            continue
        target = set(words(aggregation.text)) - spoken
        if _names_used(c, clause) and (not target or target & set(words(clause))):
            return True
    return False


def _names_used(c: Comparison, clause: str) -> bool:
    """Whether a clause of the reformulation names a column that the SQL uses."""
    named = {t.casefold() for t in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", clause)}
    return any(n in named and (len(n) >= 3 or not n.isalpha()) for _, n in c.sql.columns)


def _explained(c: Comparison, aggregation: Aggregation, lemmas: frozenset[str]) -> bool:
    expected = _FUNCTION_WORDS.get(aggregation.func)
    if expected is None or expected & lemmas or c.question.superlative or c.question.ratio:
        return True
    if any(f.agg == aggregation.func for f in _leaves(c.sql.filters)) and "extra_having" not in {f.kind for f in c.findings}:
        return True  # shown beside the condition on it that was asked for
    measure = set(identifier_words(base_name(aggregation.column) or "")) - {"id", "*"}
    if aggregation.func == "sum" and measure & lemmas and not c.question.projections:
        return True  # a measure is asked for by its name: cost per litre, days of leave, monthly cost
    return any(w in lemmas for w in c.rules.metric_definitions)


def _hinted_functions(c: Comparison) -> set[str]:
    hints = (*c.question.hints, *(c.enriched.hints if c.enriched else ()))
    named = {h.agg for h in hints if h.agg}
    for h in hints:
        named |= set(re.findall(r"\b(count|sum|avg|min|max)\b", (h.expression or h.text or "").casefold()))
    return {n for n in named if n}


def _compare_distinct(c: Comparison, wanted: Aggregation, have: list[Aggregation]) -> None:
    counted = [a for a in have if a in c.sql.aggregations] or have
    if wanted.func != "count" or not counted:
        return
    if wanted.distinct and not any(a.distinct for a in counted) and not c.sql.distinct and not _grouped_inside(c.sql):
        c.note(
            "missing_distinct",
            "Different things are to be counted; the SQL counts repeats.",
            question_part=wanted.text or None,
            kind="missing_distinct_count",
            severity="critical",
        )
    elif not wanted.distinct and all(a.distinct for a in counted) and len(c.sql.tables) < 2:
        c.note(
            "extra_distinct", "Repeats are counted once though nobody asked for it.", kind="extra_distinct_count", strength=0.5
        )


def _grouped_inside(sql: SqlSpec) -> bool:
    return sql.subqueries > 0 and bool(sql.group_by)


def _compare_measure(c: Comparison, wanted: Aggregation, have: list[Aggregation]) -> None:
    """The column that is measured, for functions that measure one."""
    name = base_name(wanted.column)
    if wanted.func == "count" or not name or name == "*":
        return
    fits = [c.similar(name, a.column, a.table) for a in have]
    if max(fits, default=0.0) >= 0.5:
        c.found("measure_found")
        return
    if any(_in_expression(wanted.column, e) for e in c.sql.expressions):
        return
    other = have[0]
    if any(column_similarity(name, col) >= 0.9 for _, col in c.sql.columns if col != base_name(other.column)):
        c.note(
            "wrong_aggregation",
            f"{wanted.func} of {name} is asked for; the SQL measures {column_text(other.column)}.",
            question_part=wanted.text or name,
            sql_part=column_text(other.column),
            kind="wrong_measure",
            strength=0.6,
        )


def _answered_otherwise(c: Comparison, wanted: Aggregation, funcs: set[str]) -> bool:
    """ORDER BY with LIMIT answers MAX and MIN; SUM of a count column answers "how many"; a column may hold the aggregate."""
    sql = c.sql
    if wanted.func in _EXTREMES and (
        (sql.order_by and (sql.limit is not None)) or sql.inner_limits or any(w.order_by for w in sql.windows)
    ):
        return True
    name = base_name(wanted.column) or ""
    outputs = [base_name(p) or "" for p in sql.projections]
    if wanted.func in ("count", "sum") and "sum" in funcs | {"count"} and {"sum", "count"} & funcs:
        measured = [base_name(a.column) or "" for a in sql.aggregations]
        return any({"number", "count", "quantity", "total", "amount"} & set(identifier_words(m)) for m in measured) or (
            wanted.func == "sum" and (name in ("", "*"))
        )
    own_words = {"number", "count", "total", "average", "num", wanted.func}
    for output in outputs:
        output_words = set(identifier_words(output))
        if output_words & own_words or (
            name and name != "*" and column_similarity(name, output) >= 0.9 and wanted.func != "count"
        ):
            return True
    if wanted.func in _EXTREMES:
        return any(isinstance(f.value, ScalarQuery) and f.value.func == wanted.func for f in _leaves(sql.filters))
    return False


def compare_grouping(c: Comparison) -> None:
    """Groups asked for against groups formed, with the grain of dates."""
    sql, question = c.sql, c.question
    groups: list[Column] = [*sql.group_by, *(p for w in sql.windows for p in w.partition_by)]
    shown: list[Column] = [*groups, *sql.projections]
    for wanted in question.group_by:
        best = max((c.similar(wanted, g, _owner(sql, g)) for g in groups), default=0.0)
        dated = [g for g in groups if isinstance(g, DatePart | DateTrunc)]
        if isinstance(wanted, DatePart | DateTrunc):
            grain = wanted.part if isinstance(wanted, DatePart) else wanted.unit
            if _names_something_else(c, grain):
                continue
            have = [g.part if isinstance(g, DatePart) else g.unit for g in dated]
            if have and grain not in have and not any(grain in identifier_words(base_name(g) or "") for g in groups):
                c.note(
                    "wrong_group_by",
                    f"Groups are asked for each {grain}; the SQL forms them for each {have[0]}.",
                    question_part=f"per {grain}",
                    sql_part=have[0],
                    kind="wrong_grain",
                )
                continue
            if have or groups:
                c.found("group_found")
                continue
        elif best >= 0.5:
            c.found("group_found")
            continue
        name = column_text(wanted)
        if groups and any(_harmless_id(g) for g in groups):
            continue  # grouped by the id of what was asked for
        if not groups and (any(c.similar(wanted, p) >= 0.5 for p in shown) and not sql.aggregations):
            continue
        if groups:
            c.note(
                "wrong_group_by",
                f"Groups are asked for each {name}; the SQL forms them by {', '.join(column_text(g) for g in groups[:3])}.",
                question_part=name,
                sql_part=column_text(groups[0]),
                kind="wrong_group_by",
                strength=0.5,
            )
        elif question.aggregations or sql.aggregations:
            c.note(
                "missing_group_by",
                f"A row for each {name} is asked for; the SQL forms no groups.",
                question_part=f"per {name}",
                kind="missing_group_by",
            )
    _extra_groups(c, groups)


def _names_something_else(c: Comparison, grain: str) -> bool:
    """ "Yearly Kickoff", "weekly issuance" that the reformulation explains, a monthly average as a twelfth: no groups."""
    word = "daily" if grain == "day" else f"{grain}ly"
    mentions = c.question.mentions
    if any(word in name.casefold() for name in (*mentions.names, *mentions.quoted)):
        return True
    if any(word in clause.casefold() for clause in c.clauses):
        return True
    return any(re.search(r"/ (12|52|365|4)\b", expression) for expression in c.sql.expressions)


def _harmless_id(group: Column) -> bool:
    parts = identifier_words(base_name(group) or "")
    return bool(parts) and parts[-1] in ("id", "key", "code", "number")


def _extra_groups(c: Comparison, groups: list[Column]) -> None:
    sql, question = c.sql, c.question
    if question.language != "en" or not sql.aggregations:
        return
    pinned = set(benign_group_by(sql))
    free = []
    for group in sql.group_by:
        name = base_name(group) or ""
        if group in pinned or _harmless_id(group):
            continue
        if any(c.similar(w, group, _owner(sql, group)) >= 0.5 for w in (*question.group_by, *question.projections)):
            continue
        parts = set(identifier_words(name)) - {"name", "id"}
        if isinstance(group, DatePart | DateTrunc):
            parts |= {group.part if isinstance(group, DatePart) else group.unit}
        if parts & question.mentions.lemmas or (not parts and question.group_by):
            continue
        free.append(group)
    if not free:
        return
    if any(f.agg for f in _leaves(sql.filters)) or any(k.agg for k in sql.order_by):
        return  # a condition or an order on an aggregate needs its groups
    picked = question.superlative is not None or question.asks_limit
    whole = bool(question.aggregations) and not question.group_by and not question.projections and not picked
    splits = bool(question.group_by) and len(sql.group_by) > len(question.group_by)
    c.note(
        "extra_group_by",
        f"Nobody asked for groups by {', '.join(column_text(g) for g in free)}; they split the result.",
        sql_part=", ".join(column_text(g) for g in free),
        kind="extra_group_splits" if whole or splits else "extra_group_by",
        strength=1.0 if whole or splits else 0.5,
        severity="critical" if whole or splits else None,
    )


def compare_grouped_total(c: Comparison) -> None:
    """One total is asked for and a row for each group comes out, though the question names the grouped column."""
    sql, question = c.sql, c.question
    if not question.aggregations or question.group_by or question.projections or question.superlative or question.asks_limit:
        return
    if any(f.agg for f in _leaves(sql.filters)) or any(k.agg for k in sql.order_by):
        return
    pinned = set(benign_group_by(sql))
    unpinned = [g for g in sql.group_by if g not in pinned]
    named = question.mentions.lemmas
    shown = [g for g in unpinned if g in sql.projections and not set(identifier_words(base_name(g) or "")) & named]
    if shown and question.language == "en" and not any(f.code == "extra_group_by" for f in c.findings):
        several = [
            f
            for f in sql.filters
            if isinstance(f, Filter) and f.op == "in" and isinstance(f.value, tuple) and f.column in shown
        ]
        c.note(
            "extra_group_by",
            f"One figure is asked for; the SQL gives one for each {column_text(shown[0])}.",
            sql_part=column_text(shown[0]),
            kind="extra_group_splits" if several else "grouped_total",
            strength=1.0 if several else 0.6,
            severity="critical" if several else None,
        )


def compare_order(c: Comparison) -> None:
    """Order asked for, its direction, and the direction of a superlative."""
    sql, question = c.sql, c.question
    keys = (
        list(sql.order_by)
        or [k for _, order in sql.inner_limits for k in order]
        or [k for w in sql.windows for k in w.order_by]
    )
    if question.asks_order:
        if not keys:
            c.note("missing_order", "An order is asked for and none is given.", kind="missing_order")
        else:
            c.found("order_found")
            _compare_keys(c, keys)
            wanted = question.order_by[0] if question.order_by else None
            if wanted is not None and wanted.column and not wanted.agg and not any(k.agg for k in keys):
                fit = max((c.similar(wanted.column, k.column) for k in keys if k.column is not None), default=1.0)
                if fit < 0.3:
                    c.note(
                        "wrong_order_direction",
                        f"Rows are asked for by {column_text(wanted.column)}; the SQL sorts by {_key_text(keys[0])}.",
                        sql_part=_key_text(keys[0]),
                        kind="order_key_other",
                        severity="minor",
                    )
        return
    if question.superlative and keys and (sql.limit is not None or sql.inner_limits or sql.windows):
        direction = _EXTREMES[question.superlative]
        key = keys[0]
        name = set(identifier_words(base_name(key.column) or ""))
        if key.agg is None and name & _INVERTED:
            return
        if key.dir != direction:
            c.note(
                "wrong_order_direction",
                f"The {question.superlative}imum is asked for; the SQL takes rows from the other end ({_key_text(key)}).",
                sql_part=_key_text(key),
                kind="superlative_direction",
            )
        else:
            c.found("superlative_found")


def _compare_keys(c: Comparison, keys: list[OrderKey]) -> None:
    for wanted in c.question.order_by:
        fits = [(c.similar(wanted.column, k.column), k) for k in keys]
        fit, key = max(fits, key=lambda pair: pair[0])
        if wanted.agg and key.agg and wanted.agg == key.agg:
            fit = 1.0
        if c.question.mentions.lemmas & {"old", "young"}:
            continue  # by age or by birth date: the words do not say which way
        if fit >= 0.5 and wanted.certain and wanted.dir != key.dir:
            c.note(
                "wrong_order_direction",
                f"Rows are asked for by {_key_text(wanted)}; the SQL sorts by {_key_text(key)}.",
                question_part=wanted.text or None,
                sql_part=_key_text(key),
                kind="order_direction",
            )


def _key_text(key: OrderKey) -> str:
    name = column_text(key.column) if key.column is not None else key.window or ""
    return f"{key.agg}({name}) {key.dir}" if key.agg else f"{name} {key.dir}"


def compare_hinted_extremes(c: Comparison) -> None:
    """``MAX(cost)`` in the reformulation: the SQL orders by that column, or takes its maximum."""
    sql = c.sql
    keys = list(sql.order_by) or [k for _, order in sql.inner_limits for k in order]
    keys += [k for w in sql.windows for k in w.order_by]
    have = list(_all_aggregates(sql))
    for hint in _relevant_hints(c):
        if hint.agg is None or hint.column is None or "/" in (hint.expression or ""):
            continue
        fitting = [k for k in keys if c.similar(hint.column, k.column) >= 0.8]
        if hint.agg in _EXTREMES:
            computed = any(a.func == hint.agg and c.similar(hint.column, a.column) >= 0.8 for a in have)
            aggregated = [k for k in keys if k.agg or _aggregated(str(base_name(k.column)))]
            counted = any(k.dir == _EXTREMES[hint.agg] for k in aggregated)
            if computed or counted or any(k.dir == _EXTREMES[hint.agg] for k in fitting):
                c.found("hint_extreme_found")
            elif fitting and not set(identifier_words(hint.column)) & _INVERTED:
                c.note(
                    "wrong_order_direction",
                    f"The reformulation means the {hint.agg}imum of {hint.column}; the SQL sorts from the other end.",
                    question_part=hint.text,
                    sql_part=_key_text(fitting[0]),
                    kind="hint_extreme_direction",
                )
            elif not fitting:
                c.note(
                    "missing_aggregation",
                    f"The reformulation means the {hint.agg}imum of {hint.column}; the SQL takes none.",
                    question_part=hint.text,
                    kind="hint_extreme_absent",
                    severity="major",
                )
        elif hint.agg in ("sum", "avg", "count"):
            if any(a.func == hint.agg for a in have):
                c.found("hint_aggregate_found")
            else:
                c.note(
                    "missing_aggregation",
                    f"The reformulation computes {hint.agg}({hint.column}); the SQL does not.",
                    question_part=hint.text,
                    kind="hint_aggregate_absent",
                    severity="major",
                )
    wanted = c.question.order_by[0] if c.question.order_by else None
    if wanted is not None and wanted.column and wanted.certain and keys and not wanted.agg and not _relevant_hints(c):
        fits = [c.similar(wanted.column, k.column) for k in keys]
        if max(fits) < 0.3 and not any(k.agg for k in keys):
            c.note(
                "wrong_order_direction",
                f"Rows are picked by {_key_text(keys[0])}; the question speaks of {column_text(wanted.column)}.",
                sql_part=_key_text(keys[0]),
                kind="order_column_other",
                severity="minor",
            )


def compare_limit(c: Comparison) -> None:
    """The number of rows asked for against the number that can come out."""
    sql, question, rules = c.sql, c.question, c.rules
    ranks = [f for f in _leaves(sql.filters) if f.window and isinstance(f.value, int) and not isinstance(f.value, bool)]
    limit = sql.limit
    inner = sql.inner_limits[0][0] if sql.inner_limits else None
    rank = (ranks[0].value - 1 if ranks[0].op == "<" else ranks[0].value) if ranks and isinstance(ranks[0].value, int) else None
    effective = limit if limit is not None and limit < rules.safety_limit_min else rank if rank is not None else inner
    effective = limit if effective is None else effective
    if question.asks_limit and question.limit is not None:
        if effective == question.limit or question.limit in (limit, inner, rank):
            c.found("limit_found")
        elif effective is None:
            extreme = any(isinstance(f.value, ScalarQuery) and f.value.func in _EXTREMES for f in _leaves(sql.filters)) or bool(
                {a.func for a in sql.aggregations} & set(_EXTREMES)
            )
            if question.limit == 1 and extreme:
                c.found("limit_found")
            elif question.limit == 1 and (sql.one_row or question.aggregations):
                return
            else:
                c.note(
                    "missing_limit",
                    f"{_rows(question.limit)} asked for; the SQL returns all.",
                    question_part=str(question.limit),
                    kind="missing_limit",
                    strength=0.6 if question.limit == 1 else 1.0,
                )
        else:
            c.note(
                "wrong_limit",
                f"{_rows(question.limit)} asked for; the SQL returns up to {effective}.",
                question_part=str(question.limit),
                sql_part=f"limit {effective}",
                kind="wrong_limit",
            )
        return
    if limit is None or limit >= rules.safety_limit_min or (limit == 1 and sql.one_row) or question.language != "en":
        return
    if limit in question.mentions.numbers:
        return
    soft = bool(c.spoken & _PICKING) or question.superlative is not None
    soft = soft or any(h.agg in _EXTREMES for h in _relevant_hints(c))
    if soft and limit == 1:
        return
    c.note(
        "unrequested_limit",
        f"Only {limit} {'row comes' if limit == 1 else 'rows come'} out though nobody asked for a number of rows.",
        sql_part=f"limit {limit}",
        kind="unrequested_limit_soft" if soft else "unrequested_limit",
    )


_PICKING = frozenset(
    "most least max maximum min minimum high low large small big long short old young new late early first last top best good "
    "bad worst fast slow recent heavy light cheap expensive great common popular main major majority champion winner "
    "single one tall few".split()
)


def _rows(number: int) -> str:
    return "1 row is" if number == 1 else f"{number} rows are"


_NEGATIONS = frozenset({"not", "no", "without", "never", "doesn't", "don't", "didn't", "isn't", "lack", "missing"})


def compare_sets(c: Comparison) -> None:
    """Negation and combination of results."""
    sql, question = c.sql, c.question
    if question.negated:
        negative = sql.set_op in ("except", "minus") or any(j.kind in ("anti", "left") for j in sql.joins)
        negative = negative or any(
            f.op in ("!=", "not_in", "not_like", "is_null", "not_exists", "not_regexp") for f in _leaves(sql.filters)
        )
        negative = negative or any(f.value in (0, False) or (f.op in ("<", "<=", "=") and f.agg) for f in _leaves(sql.filters))
        negative = negative or any(
            isinstance(f.value, str) and f.value in ("no", "n", "none", "f") for f in _leaves(sql.filters)
        )
        explained = any(_NEGATIONS & set(re.findall(r"[a-z']+", x.casefold())) and _names_used(c, x) for x in c.clauses)
        if not negative and not explained:
            c.note(
                "wrong_set_operation",
                "Something is asked to be absent; the SQL asks for nothing absent.",
                kind="negation_absent",
            )
        elif negative:
            c.found("negation_found")
    if question.set_op == "intersect" and not sql.set_op and sql.subqueries == 0:
        merged = [f for f in _leaves(sql.filters) if f.op == "in" and isinstance(f.value, tuple)]
        either = any(isinstance(f, AnyOf) for f in sql.filters)
        if merged or either:
            c.note("wrong_set_operation", "Both conditions are asked to hold; the SQL accepts either.", kind="either_for_both")
        elif not sql.group_by:
            c.note(
                "wrong_set_operation", "Two sets are asked to overlap; the SQL reads one.", kind="overlap_absent", strength=0.5
            )


def compare_distinct(c: Comparison) -> None:
    """Rows without repeats."""
    sql, question = c.sql, c.question
    listed = not sql.aggregations and not sql.group_by
    distinct = sql.distinct or sql.distinct_on or (sql.set_op is not None and sql.set_op != "union_all")
    if question.distinct and listed and not distinct and not question.aggregations:
        c.note("missing_distinct", "Each thing is asked for once; the SQL lists repeats.", kind="missing_distinct_rows")
    elif question.distinct and distinct:
        c.found("distinct_found")
    if listed and not question.distinct and not distinct and len(sql.tables) >= 2 and sql.limit is None and sql.projections:
        outputs = {t for t, name in sql.columns if name in {base_name(p) for p in sql.projections}}
        if outputs and len(set(sql.tables) - {o for o in outputs if o}) >= 1:
            c.support["join_may_repeat"] = 1.0
    if distinct and sql.distinct and not question.distinct and question.language == "en" and len(sql.tables) < 2:
        c.note("extra_distinct", "Repeats are removed though nobody asked for it.", kind="extra_distinct_rows", strength=0.5)


def compare_joins(c: Comparison) -> None:
    """Tables that are read without need."""
    sql = c.sql
    uses = Counter(sql.tables)
    if len(uses) < 2 or not sql.joins:
        return
    used: dict[str, set[str]] = {}
    for table, column in sql.columns:
        if table:
            used.setdefault(table, set()).add(column)
    edges: dict[str, set[str]] = {}
    degree: Counter[str] = Counter()
    for edge in sql.joins:
        edges.setdefault(edge.left_table, set()).add(edge.left_column)
        edges.setdefault(edge.right_table, set()).add(edge.right_column)
        degree.update({edge.left_table, edge.right_table})
    for table, count in uses.items():
        if count > 1 or table not in edges or degree[table] > 1:
            continue
        if used.get(table, set()) - edges[table]:
            continue
        if any(e.kind not in ("inner",) for e in sql.joins if table in (e.left_table, e.right_table)):
            continue
        mentioned = set(identifier_words(table)) & c.question.mentions.lemmas
        counts = [a for a in _all_aggregates(sql) if a.func == "count"]
        if mentioned and any(a.column == "*" for a in counts):
            continue  # its rows are what is counted
        kind = "redundant_table" if not mentioned else "redundant_table_counted" if counts else "redundant_table_named"
        c.note(
            "wrong_join",
            f"Table {table} is joined and nothing of it is used but the key.",
            sql_part=table,
            kind=kind,
            strength=0.6 if mentioned else 1.0,
            severity="major" if mentioned else None,
        )
    measured = [a for a in sql.aggregations if a.func in ("sum", "avg") and not a.distinct]
    if measured and len(uses) >= 3:
        c.note("wrong_join", "A sum or average over three joined tables may count rows twice.", kind="fan_out", strength=0.5)


def compare_types(c: Comparison) -> None:
    """Values and columns of different kinds held against each other, and ids where names were asked for."""
    sql = c.sql
    for f in _leaves(sql.filters):
        name = base_name(f.column) if isinstance(f.column, str) else None
        values = f.value if isinstance(f.value, tuple) else (f.value,)
        if name is None or f.agg or f.window:
            continue
        if (
            _names_date(name)
            and any(_bare_year(v) for v in values)
            and f.op in ("=", "in", "!=", "<", "<=", ">", ">=", "between")
        ):
            c.note(
                "wrong_filter_value",
                f"{name} is a date and is compared with the bare year {values[0]}.",
                sql_part=condition_text(f),
                kind="date_against_year",
                severity="major",
            )
        if f.op in ("=", "like") and any(_means(clause, name, v) for v in values for clause in c.clauses):
            c.note(
                "wrong_filter_value",
                f"{values[0]} belongs to what {name} means; it is no value of it.",
                sql_part=condition_text(f),
                kind="meaning_as_value",
            )
        if isinstance(f.value, ColumnValue) and f.op == "=" and f.table and f.value.table == f.table:
            asked_for = any(
                name in x.casefold() and str(base_name(f.value.column)) in x.casefold() and "=" in x for x in c.clauses
            )
            if not asked_for and not {"same", "equal", "both", "identical", "match"} & c.spoken:
                c.note(
                    "extra_filter",
                    f"Nobody asked for {condition_text(f)}.",
                    sql_part=condition_text(f),
                    kind="extra_column_equality",
                )
        other = next((v for v in values if isinstance(v, str) and _of_other_kind(v, name)), None)
        if other is not None:
            c.note(
                "wrong_filter_column",
                f"'{other}' is a {attribute_of(other)[0]}; the SQL looks for it in {name}.",
                sql_part=condition_text(f),
                kind="value_of_other_kind",
                severity="major",
            )
    for edge in dict.fromkeys(sql.joins):
        text = f"{edge.left_table}.{edge.left_column}={edge.right_table}.{edge.right_column}"
        seen = c.witness is not None and c.witness.others("edge", text) > 0
        if edge.left_column == edge.right_column == "id" and edge.left_table != edge.right_table and not seen:
            c.note(
                "wrong_join",
                f"{edge.left_table} and {edge.right_table} are tied by the ids of two different things.",
                sql_part=f"{edge.left_table}.id = {edge.right_table}.id",
                kind="join_id_id",
                severity="major",
            )
    for expression in sql.expressions:
        match = re.search(r"\b([a-z_][\w]*) - \1\b", expression)
        if match:
            c.note(
                "extra_transformation",
                f"{match[0]} is always 0.",
                sql_part=match[0],
                kind="self_difference",
                severity="critical",
            )
    _ids_for_names(c)
    for a in sql.aggregations:
        parts = identifier_words(base_name(a.column) or "")
        if a.func in ("sum", "avg") and parts and parts[-1] in ("id", "uuid", "key"):
            text = f"{a.func}({column_text(a.column)})"
            c.note("wrong_aggregation", f"{text} adds up identifiers.", sql_part=text, kind="sum_of_id")
    counted = [a for a in sql.aggregations if a.func == "count" and not a.distinct and a.column != "*"]
    if counted and len(set(sql.tables)) >= 2 and not sql.group_by:
        held = {f.table for f in _leaves(sql.filters) if f.table}
        if any(a.table and held - {a.table} for a in counted):
            c.note(
                "missing_distinct",
                "Rows of a joined table decide what is counted; one thing may be counted more than once.",
                kind="count_over_join",
                severity="minor",
            )


def _means(clause: str, name: str, value: object) -> bool:
    """Whether a clause explains a column by a phrase that holds this value, and compares nothing."""
    text = clause.casefold()
    if not isinstance(value, int | float) or isinstance(value, bool) or re.search(r"[=<>]|between|like", text):
        return False
    return bool(re.search(rf"\b{re.escape(name)}\b", text)) and bool(re.search(rf"\b{re.escape(_whole(value))}\b", text))


def _names_date(name: str) -> bool:
    parts = set(identifier_words(name))
    return bool(parts & {"date", "dob", "birthday", "birthdate", "timestamp", "datetime"}) or name.endswith(("_at", "date"))


def _bare_year(value: object) -> bool:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return bool(re.fullmatch(r"1[89]\d\d|20\d\d", text))


_KINDS = frozenset("country city continent state language color colour gender sex nationality weekday month".split())


def _of_other_kind(value: str, name: str) -> bool:
    """A value of one well-known kind in a column that names another one: a continent in ``country``."""
    kinds = set(attribute_of(value)) & _KINDS
    have = set(identifier_words(name)) & _KINDS
    return bool(kinds and have) and not any(word_similarity(k, h) >= 0.85 for k in kinds for h in have)


def _ids_for_names(c: Comparison) -> None:
    """``gender_id`` is output where the gender was asked for."""
    if {"id", "identifier", "code", "key", "number", "uuid"} & c.question.mentions.lemmas or not c.question.projections:
        return
    for output in c.sql.projections:
        parts = identifier_words(base_name(output) or "")
        if len(parts) >= 2 and parts[-1] == "id":
            stem = "_".join(parts[:-1])
            if any(c.similar(p, stem) >= 0.8 for p in c.question.projections) and len(c.sql.expressions) == 1:
                c.note(
                    "wrong_output",
                    f"The {stem.replace('_', ' ')} is asked for; its id is output.",
                    sql_part=column_text(output),
                    kind="id_for_name",
                )


_DIVIDES = re.compile(
    r"[a-z_)`\]]\s*/\s*[a-z_(`\[]|\bdivide\s*\(", re.IGNORECASE
)  # a slash inside a date or season divides nothing


_RATIOS = frozenset({"percent", "percentage", "rate", "ratio", "share", "proportion"})


def compare_ratio(c: Comparison) -> None:
    """A share, percentage or rate needs a division (or a column that holds it)."""
    hints = (*c.question.hints, *(c.enriched.hints if c.enriched else ()))
    hinted = any(h.relevant and h.expression and _DIVIDES.search(h.expression) for h in hints)
    divides = any("/" in e or "divide" in e or "avg(" in e for e in c.sql.expressions) or any(
        "/" in str(base_name(k.column)) for k in c.sql.order_by
    )
    divides = divides or any("/" in str(base_name(f.column)) for f in _leaves(c.sql.filters))
    divides = divides or any(a.func == "avg" for a in _all_aggregates(c.sql))
    if hinted and not divides:
        c.note("missing_aggregation", "A ratio is defined and the SQL divides nothing.", kind="hint_ratio_absent")
    elif c.question.ratio and not divides and not hinted:
        named = any(_RATIOS & set(identifier_words(n)) for _, n in c.sql.columns)
        named = named or any(_RATIOS & set(words(clause)) and _names_used(c, clause) for clause in c.clauses)
        if not named:
            c.note("missing_aggregation", "A share or rate is asked for and the SQL divides nothing.", kind="ratio_absent")
    elif (hinted or c.question.ratio) and divides:
        c.found("ratio_found")


def compare_literals(c: Comparison) -> None:
    """Numbers, dates and quoted words of the question that are nowhere in the SQL, literals of the SQL that nobody named, and
    columns that the reformulation names and the SQL does not use.
    """
    sql, question = c.sql, c.question
    texts = " ".join((*sql.literals, *sql.expressions)).casefold()
    inside = " ".join((*sql.expressions, *(n for _, n in sql.columns), *sql.tables)).casefold()
    flagged = any(f.code in ("missing_filter", "wrong_filter_value", "wrong_limit", "missing_limit") for f in c.findings)
    _numbers_absent(c, texts, inside)
    for quoted in question.mentions.quoted:
        core = " ".join(quoted.casefold().split())
        if core and core not in texts and core not in inside and not set(words(core)) <= _words_of(texts):
            c.note(
                "missing_filter",
                f"'{quoted}' stands in the question and nowhere in the SQL.",
                kind="quoted_absent",
                strength=0.4 if flagged else 0.8,
                severity="major",
            )
    _compare_names(c, texts, inside, flagged)
    _literals_unnamed(c)
    _hint_columns(c, inside)
    _compare_case(c)


def _numbers_absent(c: Comparison, texts: str, inside: str) -> None:
    """Numbers and dates of the question that stand nowhere in the SQL in any form."""
    sql, question = c.sql, c.question
    have = {float(m) for m in re.findall(r"\d+(?:\.\d+)?", texts)} | {float(n) for n, _ in sql.inner_limits}
    have |= {float(v) for v in (sql.limit, sql.offset) if v is not None}
    have |= {h + 1 for h in have} | {h - 1 for h in have}
    explained = " ".join(clause for clause in c.clauses if _names_used(c, clause))
    dates = question.mentions.dates
    for number in question.mentions.numbers:
        text = _whole(number)
        if number in have or text in texts or text in inside or text in explained or number in (1.0, 2.0, 100.0):
            continue
        if any(text in d.split("-") or text.zfill(2) in d.split("-") for d in dates) or number / 100 in have:
            continue
        c.note(
            "missing_filter", f"{text} stands in the question and nowhere in the SQL.", kind="number_absent", severity="major"
        )
    for date in dates:
        year = date[:4]
        if year in texts or year in inside or year in explained:
            continue
        if not any(str(int(year) + d) in texts for d in (-1, 1)):
            c.note(
                "missing_filter", f"{date} stands in the question and nowhere in the SQL.", kind="date_absent", severity="major"
            )


def _literals_unnamed(c: Comparison) -> None:
    """Literals that neither the question nor the reformulation names, wherever they stand in the SQL."""
    if c.question.language != "en":
        return
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}".casefold()
    spoken = _plain(raw)
    numbers = {n for spec in (c.question, c.enriched) if spec is not None for n in spec.mentions.numbers}
    numbers |= {float(n) for n in re.findall(r"\d+(?:\.\d+)?", raw.replace(",", ""))}
    named = {w for spec in (c.question, c.enriched) if spec is not None for w in spec.mentions.lemmas}
    phrases = [p.casefold() for spec in (c.question, c.enriched) if spec is not None for p in spec.mentions.names]
    benign = {raw.casefold() for f in _leaves((*c.benign, *c.extra)) for raw in f.raw}  # said already, or allowed
    days = {
        part.lstrip("0")
        for spec in (c.question, c.enriched)
        if spec is not None
        for d in spec.mentions.dates
        for part in d.split("-")
    }
    mapped = {str(v).casefold() for values in c.rules.value_mappings.values() for v in values.values()}
    pieces = " ".join((*c.sql.expressions, *(str(base_name(f.column)) for f in _leaves(c.sql.filters))))
    pieces += " ".join(str(base_name(g)) for g in (*c.sql.group_by, *(k.column for k in c.sql.order_by)))
    days |= {n for cut in re.findall(r"substr(?:ing)?\([^()]*?, (\d+), (\d+)\)", pieces) for n in cut}
    for literal in dict.fromkeys(c.sql.literals):
        text = " ".join(literal.casefold().split()).strip("%")
        core = _plain(text)
        if not core or text in benign or text in mapped or core in spoken or _FORMAT.match(text):
            continue
        if all(w in spoken for w in core.split()) or _dates_of(text):
            continue
        if re.fullmatch(r"-?\d+(\.\d+)?", text):
            value = float(text)
            if (
                text.lstrip("0") in days
                or value in (0.0, 1.0, -1.0, 100.0)
                or {value, value + 1, value - 1, value / 100, value * 100} & numbers
            ):
                continue
            kind = "number_unnamed"
        else:
            if set(words(text)) <= named or any(same_value(text, w) for w in (*named, *phrases)):
                continue
            if len(text) == 1 and any(w.startswith(text) for w in named):
                continue
            kind = "text_unnamed"
        c.note(
            "wrong_filter_value",
            f"'{literal}' stands in the SQL; neither the question nor its reformulation names it.",
            sql_part=literal,
            kind=kind,
            severity="major",
        )


_FORMAT = re.compile(r"^[%ymdhijws:\-/ .t]*$", re.IGNORECASE)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+(?:\.\d+)?", text.casefold()))


def _dates_of(text: str) -> bool:
    """Dates are compared as periods elsewhere."""
    return bool(re.match(r"^\d{4}[-/]?\d{2}([-/]?\d{2})?\b", text)) or bool(
        re.match(r"^[+-]?\d+ (day|month|year|week|hour)s?$", text)
    )


def _hint_columns(c: Comparison, inside: str) -> None:
    """Columns that the reformulation names and the SQL does not use."""
    columns = {name for _, name in c.sql.columns} | set(re.findall(r"[a-z_][a-z0-9_]*", inside))
    squeezed = {n.replace("_", "") for n in columns}
    for hint in _relevant_hints(c):
        if not hint.column or hint.column in _NO_COLUMN:
            continue
        parts = set(identifier_words(hint.column))
        if len(parts) >= 2 and parts <= c.spoken | c.question.mentions.lemmas and hint.column not in c.raw:
            continue  # a phrase of the question, not the name of a column
        if any(column_similarity(hint.column, name) >= 0.85 for name in columns) or hint.column.replace("_", "") in squeezed:
            c.found("hint_column_found", 0.5)
        elif hint.op is None:
            c.note(
                "wrong_output",
                f"The reformulation names {hint.column}; the SQL does not use it.",
                question_part=hint.text or hint.column,
                kind="hint_column_absent",
                strength=0.8,
                severity="major",
            )


_NO_COLUMN = frozenset("year month day date count sum avg min max time name value number".split())


def _compare_names(c: Comparison, texts: str, inside: str, flagged: bool) -> None:
    """Proper names of the question that the SQL compares nothing with."""
    touched = _words_of(texts) | _words_of(inside) | {w for n in inside.split() for w in identifier_words(n)}
    literals = [" ".join(x.casefold().split()) for x in c.sql.literals]
    said = {str(v) for f in _leaves(c.missing) for v in (f.value if isinstance(f.value, tuple) else (f.value,))}
    for name in c.question.mentions.names:
        if any(same_value(v, name) for v in said):
            continue
        core = set(words(name))
        if not core or core & touched or core <= _ASKING or any(same_value(x, name) for x in literals):
            continue
        if any(core <= set(words(clause)) and _names_used(c, clause) for clause in c.clauses):
            continue  # the reformulation says which column stands for it
        c.note(
            "missing_filter",
            f"{name} stands in the question and nowhere in the SQL.",
            question_part=name,
            kind="name_absent_too" if flagged else "name_absent",
            strength=0.3 if len(name) <= 4 and name.upper() == name else 0.8,
            severity="major",
        )


def _compare_case(c: Comparison) -> None:
    """Literals against what the texts quote, letter by letter: databases compare text case by case and space by space."""
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}"
    quoted = [q for pair in re.findall(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"", raw) for q in pair if q]
    for f in _leaves(c.sql.filters):
        if f.op not in ("=", "in"):
            continue
        for literal in f.raw:
            if literal != literal.strip() and literal.strip():
                c.note(
                    "wrong_filter_value",
                    f"'{literal}' begins or ends with a space.",
                    sql_part=f"'{literal}'",
                    kind="literal_edge_space",
                    severity="major",
                )
            alike = [q for q in quoted if _squeezed(q) == _squeezed(literal)]
            if not alike or not _squeezed(literal) or any(q.strip() == literal.strip() for q in alike) or literal in raw:
                continue
            case = any(q.strip().casefold() == literal.strip().casefold() for q in alike)
            c.note(
                "wrong_filter_value",
                f"'{literal}' is quoted as '{alike[0]}'.",
                question_part=alike[0],
                sql_part=f"'{literal}'",
                kind="value_case" if case else "value_spelling",
                severity="major",
            )


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _whole(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _words_of(text: str) -> set[str]:
    return set(words(text))


# words of asking, counting and ordering name nothing that a table or column could carry
_ASKING = frozenset(
    "list show find give return tell display provide identify name get compute calculate count number many much "
    "total average mean sum maximum minimum max min most least high low highest lowest large small big great old "
    "young long short top first last different distinct unique order descending ascending sort alphabetical "
    "alphabetically each every per all any both either also corresponding along together respectively information "
    "detail state mention specify please value record result there who what which where when how do does have has "
    "with without than more less over under above below between before after at exactly only same other one two "
    "three four five six seven eight nine ten percentage ratio rate difference group kind type whose their them "
    "they it its he she his her use belong contain include refer exist want need know see look describe determine "
    "indicate".split()
)


def compare_words(c: Comparison) -> None:
    """How much of what the question names the SQL touches, and how much of what the SQL touches the question names."""
    question, sql = c.question, c.sql
    if question.language != "en":
        return
    named = question.mentions.lemmas | frozenset().union(*(set(words(h.text)) for h in _relevant_hints(c)))
    content = {w for w in question.mentions.lemmas if w not in _ASKING and len(w) > 2 and not w.isdigit()}
    identifiers = [*sql.tables, *(n for _, n in sql.columns)]
    touched = {w for name in identifiers for w in identifier_words(name)} | _words_of(" ".join(sql.literals))
    for hint in _relevant_hints(c):
        if hint.column and any(column_similarity(hint.column, n) >= 0.85 for _, n in sql.columns):
            touched |= set(words(hint.text))
    if content:
        covered = sum(1 for w in content if w in touched or any(word_similarity(w, t) >= 0.85 for t in touched))
        c.support["words_covered"] = covered / len(content)
    raw = f"{c.record.user_question or ''} {c.record.enriched_question or ''}".casefold()
    keys = {(e.left_table, e.left_column) for e in sql.joins} | {(e.right_table, e.right_column) for e in sql.joins}
    used = {n for t, n in sql.columns if (t, n) not in keys}
    if used:
        explained = sum(1 for n in used if _explained_by(n, named) or n in raw)
        c.support["columns_explained"] = explained / len(used)
    _unexplained(c, named, raw, keys)


def compare_witness(c: Comparison) -> None:
    """What the rest of the log shows of owners, joins and tables against what this SQL takes for granted."""
    if c.witness is None:
        return
    for part in (c.sql, *c.sql.branches):
        _owners_seen(c, c.witness, part)
        _joins_seen(c, c.witness, part)
    _values_seen(c, c.witness)
    _better_columns(c, c.witness)
    touched = {w for name in (*c.sql.tables, *(n for _, n in c.sql.columns)) for w in identifier_words(name)}
    touched |= _words_of(" ".join(c.sql.literals))
    absent = {
        word: table
        for word, table in c.witness.tables_named(c.question.mentions.lemmas - _ASKING).items()
        if not any(word_similarity(word, t) >= 0.85 for t in touched)
    }
    for table in sorted(set(absent.values())):
        word = next(w for w, t in sorted(absent.items()) if t == table)
        c.note(
            "wrong_join",
            f"The question speaks of {word}; other answers read table {table} for it, this one does not.",
            question_part=word,
            kind="log_table_absent" if len(absent) == 1 else "log_tables_absent",
        )


def _values_seen(c: Comparison, witness: Witness) -> None:
    """Texts that other answers compare with another column."""
    conditions = [*c.sql.filters, *c.sql.join_filters, *(f for b in c.sql.branches for f in b.filters)]
    for column, literal in dict.fromkeys(compared_texts(conditions)):
        known = witness.others("literal", literal)
        if witness.others("value", f"{column}={literal}"):
            c.found("log_value_seen")
        elif known >= 2:
            c.note(
                "wrong_filter_column",
                f"The other answers of the log look for this value in another column than {column}.",
                sql_part=column,
                kind="log_value_elsewhere",
                strength=min(1.0, 0.4 + known / 6),
                severity="major",
            )


def _better_columns(c: Comparison, witness: Witness) -> None:
    """A column of the log that fits the words better than any that this SQL uses."""
    question = c.question
    asked = [(p, "wrong_output") for p in question.projections]
    asked += [(a.column, "wrong_aggregation") for a in question.aggregations if a.column != "*"]
    asked += [(f.column, "wrong_filter_column") for f in _leaves(question.filters) if f.column is not None]
    asked += [(k.column, "wrong_order_direction") for k in question.order_by if k.column not in (None, "*")]
    used = {n for _, n in c.sql.columns}
    for column, code in dict.fromkeys(asked):
        name = base_name(column)
        if not name or len(identifier_words(name)) < 2:
            continue
        here = max((c.similar(name, n, _owner(c.sql, n)) for n in used), default=0.0)
        if here >= 0.95:
            continue
        better = next((n for n in witness.names if n not in used and column_similarity(name, n) >= 0.97), None)
        if better is not None and witness.others("name", better) >= 1:
            c.note(
                code,
                f"The question speaks of {name}; other answers use the column {better} for it.",
                question_part=name,
                sql_part=better,
                kind="log_better_column",
                severity="major",
                strength=min(1.0, 1.1 - here / 2),
            )


def _owners_seen(c: Comparison, witness: Witness, sql: SqlSpec) -> None:
    known = [t for t in sql.tables if witness.others("table", t) >= 1]
    for table in dict.fromkeys(sql.tables):
        if table not in known and witness.questions >= 12:
            c.note(
                "wrong_join",
                f"No other answer of the log reads a table {table}.",
                sql_part=table,
                kind="log_table_unseen",
                severity="minor",
            )
    for source, column in dict.fromkeys(sql.columns):
        elsewhere = witness.others("name", column)
        if elsewhere < 2:
            seen = witness.others("table", source) if source and source in sql.tables else 0
            if elsewhere == 0 and seen >= 4 and column != "*":
                c.note(
                    "wrong_output" if column in {base_name(p) for p in sql.projections} else "wrong_filter_column",
                    f"No other answer of the log reads a column {column}, though {seen} or more read {source}.",
                    sql_part=f"{source}.{column}",
                    kind="log_column_unseen",
                    severity="minor",
                    strength=min(1.0, seen / 12),
                )
            continue
        owners = [source] if source and source in sql.tables else sql.tables if len(known) == len(sql.tables) else ()
        if not owners or any(witness.others("column", f"{t}.{column}") for t in owners):
            continue
        shown = column in {base_name(p) for p in sql.projections}
        c.note(
            "wrong_output" if shown else "wrong_join",
            f"{column} is read from {' or '.join(dict.fromkeys(owners))}; other answers of the log find it elsewhere.",
            sql_part=f"{owners[0]}.{column}",
            kind="log_column_elsewhere",
            # a name that several tables own may well be owned by one more
            strength=min(1.0, 0.4 + elsewhere / 6) * (0.4 if witness.owners(column) >= 2 else 1.0),
        )


def _joins_seen(c: Comparison, witness: Witness, sql: SqlSpec) -> None:
    for edge in dict.fromkeys(sql.joins):
        tied = witness.others("pair", f"{edge.left_table}={edge.right_table}")
        text = f"{edge.left_table}.{edge.left_column}={edge.right_table}.{edge.right_column}"
        if witness.others("edge", text):
            c.found("log_join_seen")
        elif tied >= 2:
            c.note(
                "wrong_join",
                f"The other answers of the log tie {edge.left_table} and {edge.right_table} by other columns.",
                sql_part=text.replace("=", " = "),
                kind="log_join_unseen",
                strength=min(1.0, 0.4 + tied / 6),
            )
        elif min(witness.others("table", edge.left_table), witness.others("table", edge.right_table)) >= 4:
            c.note(
                "wrong_join",
                f"No other answer of the log ties {edge.left_table} and {edge.right_table} directly.",
                sql_part=text.replace("=", " = "),
                kind="log_pair_unseen",
                severity="minor",
            )


def _unexplained(c: Comparison, named: frozenset[str], raw: str, keys: set[tuple[str, str]]) -> None:
    """Columns and tables that no word of the question or its reformulation leads to, by the part they play."""
    sql = c.sql
    parts = {
        "output": [base_name(p) for p in sql.projections],
        "filter_column": [base_name(f.column) for f in _leaves(sql.filters) if f.op != "is_not_null" and not _of_its_kind(f)],
        "measure": [base_name(a.column) for a in sql.aggregations],
        "order_column": [base_name(k.column) for k in sql.order_by],
    }
    for part, names in parts.items():
        strange = [n for n in names if n and re.fullmatch(r"\w+", n) and n not in raw and not _explained_by(n, named)]
        if strange:
            c.note(
                "wrong_output"
                if part == "output"
                else "wrong_filter_column"
                if part == "filter_column"
                else "extra_transformation",
                f"Nothing in the question leads to {strange[0]}.",
                sql_part=strange[0],
                kind=f"{part}_unexplained",
                severity="minor",
            )
    own: dict[str, int] = {}
    for table, name in sql.columns:
        if table and (table, name) not in keys:
            own[table] = own.get(table, 0) + 1
    degree = Counter(t for e in dict.fromkeys(sql.joins) for t in (e.left_table, e.right_table))
    tables = [t for t in dict.fromkeys(sql.tables) if own.get(t) or degree[t] < 2]  # bridges need no word of their own
    odd = [t for t in tables if t not in raw and not _explained_by(t, named)]
    if odd:
        c.note(
            "wrong_join",
            f"Nothing in the question leads to table {odd[0]}.",
            sql_part=odd[0],
            kind="table_unexplained",
            severity="minor",
            strength=len(odd) / len(tables),
        )


def _of_its_kind(f: Filter) -> bool:
    """A value that leads to its column by itself: a country to ``country``, open to ``status``."""
    parts = set(identifier_words(base_name(f.column) or ""))
    values = f.value if isinstance(f.value, tuple) else (f.value,)
    return any(isinstance(v, str) and set(attribute_of(v)) & parts for v in values)


def _relevant_hints(c: Comparison) -> list[Hint]:
    hints = (*c.question.hints, *(c.enriched.hints if c.enriched else ()))
    return [h for h in hints if h.relevant]


def _explained_by(column: str, named: frozenset[str] | set[str]) -> bool:
    parts = set(identifier_words(column)) - {"id", "code", "name"}
    if any(len(w) >= 4 and w in column for w in named):
        return True  # names lose their capitals, and with them the seams between their words
    return not parts or any(p in named or any(word_similarity(p, w) >= 0.85 for w in named) for p in parts)


STEPS: tuple[Callable[[Comparison], None], ...] = (
    compare_defects,
    compare_outputs,
    compare_output_count,
    compare_aggregates,
    compare_grouping,
    compare_grouped_total,
    compare_order,
    compare_hinted_extremes,
    compare_limit,
    compare_sets,
    compare_distinct,
    compare_joins,
    compare_types,
    compare_ratio,
    compare_literals,
    compare_words,
    compare_witness,
)


# --- helpers --------------------------------------------------------------------------------------------------------


def base_name(column: Column | None) -> str | None:
    """The column under a date part or truncation."""
    return column.column if isinstance(column, DatePart | DateTrunc) else column


def _owner(sql: SqlSpec, column: Column) -> str | None:
    name = base_name(column)
    owners = {t for t, n in sql.columns if n == name and t}
    return next(iter(owners)) if len(owners) == 1 else None


def _in_expression(column: Column, expression: str) -> bool:
    wanted = set(identifier_words(base_name(column) or ""))
    return bool(wanted) and wanted <= {
        w for token in re.findall(r"[a-z_][a-z0-9_]*", expression) for w in identifier_words(token)
    }


def _leaves(conditions: Iterable[Condition]) -> Iterator[Filter]:
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from _leaves(condition.conditions)
        else:
            yield condition
            if isinstance(condition.value, SubQuery | ScalarQuery):
                yield from _leaves(condition.value.filters)


def _all_aggregates(sql: SqlSpec) -> Iterator[Aggregation]:
    """Aggregates anywhere: outputs, order, HAVING, scalar subqueries, windows, branches."""
    yield from sql.aggregations
    for key in sql.order_by:
        if key.agg:
            yield Aggregation(func=key.agg, column=key.column or "*")
    for f in _leaves(sql.filters):
        if f.agg:
            yield Aggregation(func=f.agg, column=f.column or "*", distinct=f.distinct)
        if isinstance(f.value, ScalarQuery):
            yield Aggregation(func=f.value.func, column=f.value.column)
            for func in re.findall(_CALLS, str(f.value.column)):
                yield Aggregation(func=func, column=f.value.column)
        if isinstance(f.value, SubQuery) and f.value.spec is not None:
            yield from _all_aggregates(f.value.spec)
        if isinstance(f.value, ColumnValue) and isinstance(f.value.column, str):
            for func in re.findall(_CALLS, f.value.column):
                yield Aggregation(func=func, column=f.value.column)
    for window in sql.windows:
        yield Aggregation(func=window.func, column=window.column or "*")
    for expression in sql.expressions:
        for func in re.findall(_CALLS, expression):
            if not any(a.func == func for a in sql.aggregations):
                yield Aggregation(func=func, column=expression)
        average = re.search(r"\bsum\(([^()]*(?:\([^()]*\)[^()]*)*)\).{0,20}/.{0,20}\bcount\(", expression)
        if average:
            yield Aggregation(func="avg", column=average[1])
    for branch in sql.branches:
        yield from _all_aggregates(branch)


def describe_missing(alignment: Alignment) -> list[str]:
    """Missing conditions in words, for messages and prompts."""
    return [condition_text(c) for c in alignment.missing]
