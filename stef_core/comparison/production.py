"""The four production rules: what correct, idiomatic SQL may do unasked (method.md section 2)."""

from __future__ import annotations

from stef_core.comparison.common import (
    aggregated,
)
from stef_core.records import (
    Column,
    Filter,
    Reading,
    SqlSpec,
)
from stef_core.rules import Rules


def group_by_required(sql: SqlSpec) -> bool:
    """Plain outputs beside aggregates need a GROUP BY (window functions and literals do not count)."""
    if not sql.projections:
        return False
    if sql.aggregations:
        return True
    return bool(sql.group_by) and any(aggregated(e) for e in sql.expressions)


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
    limit, question = reading.sql.limit, reading.question
    if question.language != "en" and limit in question.mentions.numbers:
        return False  # read by no grammar: the figure alone says that it was asked for
    return limit is not None and limit >= rules.safety_limit_min and not question.asks_limit
