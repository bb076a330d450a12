"""The metric: function, column, distinct, ratio."""

from __future__ import annotations

import re

from stef_core.comparison.common import (
    EXTREMES,
    Comparison,
    base_name,
    in_expression,
    leaves,
    names_used,
)
from stef_core.lexicon import column_similarity, identifier_words, words
from stef_core.records import (
    Aggregation,
    ScalarQuery,
    SqlSpec,
)
from stef_core.wording import column_text


def compare_aggregates(c: Comparison) -> None:
    """The metric: function, column, distinct."""
    asked = [a for a in c.question.aggregations if a.certain and not _part_of_a_name(c, a)]
    have = c.aggregates
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
        if names_used(c, clause) and (not target or target & set(words(clause))):
            return True
    return False


def _explained(c: Comparison, aggregation: Aggregation, lemmas: frozenset[str]) -> bool:
    expected = _FUNCTION_WORDS.get(aggregation.func)
    if expected is None or expected & lemmas or c.question.superlative or c.question.ratio:
        return True
    if any(f.agg == aggregation.func for f in leaves(c.sql.filters)) and "extra_having" not in {f.kind for f in c.findings}:
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


def _repeated(c: Comparison, counted: list[Aggregation]) -> bool:
    """``COUNT(customer_id) FROM orders`` for a number of customers, or customers joined to their orders and counted."""
    target = c.question.target
    if target is None or c.sql.group_by or c.sql.limit is not None or len(c.sql.aggregations) != 1 or c.sql.branches:
        return False
    key = f"{target}_id"
    if any(a.distinct or a.filter or a.column not in ("*", key) for a in counted) or _grouped_inside(c.sql):
        return False
    others = [t for t in c.sql.tables if target not in identifier_words(t)]
    own = [t for t in c.sql.tables if identifier_words(t) == (target,)]
    if len(c.sql.tables) == 1:
        return bool(others) and counted[0].column == key
    if len(c.sql.tables) != 2 or len(own) != 1 or len(others) != 1 or len(c.sql.joins) != 1:
        return False
    join = c.sql.joins[0]
    return (
        join.kind == "inner"
        and {join.left_table, join.right_table} == {own[0], others[0]}
        and {join.left_column, join.right_column} == {key}
    )


def _compare_distinct(c: Comparison, wanted: Aggregation, have: list[Aggregation]) -> None:
    counted = [a for a in have if a in c.sql.aggregations] or have
    if wanted.func != "count" or not counted:
        return
    if not wanted.distinct and wanted.column == "*" and _repeated(c, counted):
        c.note(
            "missing_distinct",
            f"Each {c.question.target} is to be counted once; the SQL counts one for each row that names it.",
            question_part=wanted.text or None,
            kind="missing_distinct_count",
            severity="critical",
        )
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
    if any(in_expression(wanted.column, e) for e in c.sql.expressions):
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
    if wanted.func in EXTREMES and (
        (sql.order_by and (sql.limit is not None)) or sql.inner_limits or any(w.order_by for w in sql.windows)
    ):
        return True
    name = base_name(wanted.column) or ""
    outputs = [base_name(p) or "" for p in sql.projections]
    both = {"count", "sum"} <= {a.func for a in c.question.aggregations if a.certain}
    if not both and wanted.func in ("count", "sum") and "sum" in funcs | {"count"} and {"sum", "count"} & funcs:
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
    if wanted.func in EXTREMES:
        return any(isinstance(f.value, ScalarQuery) and f.value.func == wanted.func for f in leaves(sql.filters))
    return False


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
    divides = divides or any("/" in str(base_name(f.column)) for f in leaves(c.sql.filters))
    divides = divides or any(a.func == "avg" for a in c.aggregates)
    if hinted and not divides:
        c.note("missing_aggregation", "A ratio is defined and the SQL divides nothing.", kind="hint_ratio_absent")
    elif c.question.ratio and not divides and not hinted:
        named = any(_RATIOS & set(identifier_words(n)) for _, n in c.sql.columns)
        named = named or any(_RATIOS & set(words(clause)) and names_used(c, clause) for clause in c.clauses)
        if not named:
            c.note("missing_aggregation", "A share or rate is asked for and the SQL divides nothing.", kind="ratio_absent")
    elif (hinted or c.question.ratio) and divides:
        c.found("ratio_found")
