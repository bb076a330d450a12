"""Negation, combination of results, repeats, and tables read without need."""

from __future__ import annotations

import re
from collections import Counter

from stef_core.comparison.common import (
    NEGATIONS,
    Comparison,
    all_aggregates,
    base_name,
    leaves,
    names_used,
)
from stef_core.lexicon import identifier_words
from stef_core.records import (
    AnyOf,
)


def compare_sets(c: Comparison) -> None:
    """Negation and combination of results."""
    sql, question = c.sql, c.question
    if question.negated:
        negative = sql.set_op in ("except", "minus") or any(j.kind in ("anti", "left") for j in sql.joins)
        negative = negative or any(
            f.op in ("!=", "not_in", "not_like", "is_null", "not_exists", "not_regexp") for f in leaves(sql.filters)
        )
        negative = negative or any(f.value in (0, False) or (f.op in ("<", "<=", "=") and f.agg) for f in leaves(sql.filters))
        negative = negative or any(
            isinstance(f.value, str) and f.value in ("no", "n", "none", "f") for f in leaves(sql.filters)
        )
        explained = any(NEGATIONS & set(re.findall(r"[a-z']+", x.casefold())) and names_used(c, x) for x in c.clauses)
        if not negative and not explained:
            c.note(
                "wrong_set_operation",
                "Something is asked to be absent; the SQL asks for nothing absent.",
                kind="negation_absent",
            )
        elif negative:
            c.found("negation_found")
    if question.set_op == "intersect" and not sql.set_op and sql.subqueries == 0:
        merged = [f for f in leaves(sql.filters) if f.op == "in" and isinstance(f.value, tuple)]
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
    elif question.distinct and (distinct or (not sql.aggregations and set(sql.group_by) == set(sql.projections))):
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
        counts = [a for a in all_aggregates(sql) if a.func == "count"]
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
