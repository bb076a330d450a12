"""What people read: conditions, columns and values as short SQL-like text, and strangers' text made harmless."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    Now,
    Parameter,
    ScalarQuery,
    SubQuery,
    Value,
)

# control characters, and those that turn the reading direction of what follows; line ends and tabs stay
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LIST_ITEMS = 6  # longer lists are cut
_OPERATORS = {
    "in": "IN",
    "not_in": "NOT IN",
    "like": "LIKE",
    "not_like": "NOT LIKE",
    "regexp": "REGEXP",
    "not_regexp": "NOT REGEXP",
    "is_null": "IS NULL",
    "is_not_null": "IS NOT NULL",
    "!=": "≠",
    "<=": "≤",
    ">=": "≥",
}


def condition_text(condition: Condition) -> str:
    """One condition, e.g. ``country = 'lima'``, ``count(*) > 3``, ``a = 1 OR b = 2``."""
    if isinstance(condition, AnyOf):
        return " OR ".join(_nested(c) for c in condition.conditions)
    if isinstance(condition, AllOf):
        return conditions_text(condition.conditions)
    if condition.op in ("exists", "not_exists"):
        inner = condition.value.filters if isinstance(condition.value, SubQuery) else ()
        word = "EXISTS" if condition.op == "exists" else "NOT EXISTS"
        return f"{word} ({conditions_text(inner) or 'any row'})"
    left = _left_side(condition)
    if condition.op in ("between", "not_between") and isinstance(condition.value, tuple) and len(condition.value) == 2:
        low, high = condition.value
        return f"{left} {'NOT ' if condition.op == 'not_between' else ''}BETWEEN {value_text(low)} AND {value_text(high)}"
    operator = _OPERATORS.get(condition.op, condition.op)
    return (
        f"{left} {operator}"
        if condition.op in ("is_null", "is_not_null")
        else f"{left} {operator} {value_text(condition.value)}"
    )


def conditions_text(conditions: Sequence[Condition]) -> str:
    """Conditions joined by AND; an empty text for none."""
    return " AND ".join(_nested(c) if len(conditions) > 1 else condition_text(c) for c in conditions)


def column_text(column: Column) -> str:
    """A column, its part or its truncation: ``amount``, ``year(ordered_at)``, ``month of ordered_at``."""
    if isinstance(column, DatePart):
        return f"{column.part}({column.column})"
    if isinstance(column, DateTrunc):
        return f"{column.unit} of {column.column}"
    return column


def aggregation_text(aggregation: Aggregation) -> str:
    """An aggregate, e.g. ``count(distinct customer_id)``, ``sum(amount) where status = 'paid'``."""
    text = _call(aggregation.func, aggregation.column, distinct=aggregation.distinct)
    return f"{text} where {conditions_text(aggregation.filter)}" if aggregation.filter else text


def value_text(value: Value) -> str:
    """A value; text in quotes, long lists cut after six items."""
    if isinstance(value, tuple):
        shown = ", ".join(value_text(v) for v in value[:LIST_ITEMS])
        return f"({shown}, … {len(value) - LIST_ITEMS} more)" if len(value) > LIST_ITEMS else f"({shown})"
    if isinstance(value, Now):
        return _now_text(value)
    if isinstance(value, ColumnValue):
        return column_text(value.column)
    if isinstance(value, ScalarQuery):
        text = _call(value.func, value.column)
        return f"({text} where {conditions_text(value.filters)})" if value.filters else f"({text} of all)"
    if isinstance(value, SubQuery):
        outputs = ", ".join(column_text(c) for c in value.projections) or "rows"
        return f"({outputs} where {conditions_text(value.filters)})" if value.filters else f"({outputs})"
    if isinstance(value, Parameter):
        return value.name if value.name.startswith(("?", ":", "@", "$", "%")) else f":{value.name}"
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else str(value)


def plain_text(text: str | None) -> str:
    """Text of a stranger, each control and direction-turning character a visible �, every line end one line feed."""
    return _UNSAFE.sub("\ufffd", (text or "").replace("\r\n", "\n").replace("\r", "\n"))


def _nested(condition: Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, AnyOf | AllOf) and len(condition.conditions) > 1 else text


def _left_side(condition: Filter) -> str:
    if condition.window:
        over = "" if condition.column is None else column_text(condition.column)
        return condition.window if "(" in condition.window else f"{condition.window}({over})"
    column: Column = "(some column)" if condition.column is None else condition.column
    return _call(condition.agg, column, distinct=condition.distinct) if condition.agg else column_text(column)


def _call(func: str, column: Column, *, distinct: bool = False) -> str:
    return f"{func}({'distinct ' if distinct else ''}{column_text(column)})"


def _now_text(value: Now) -> str:
    if value.amount == 0:
        text = "now"
    else:
        plural = "" if abs(value.amount) == 1 else "s"
        text = f"{abs(value.amount)} {value.unit}{plural} {'ago' if value.amount > 0 else 'ahead'}"
    return f"{text}, start of {value.trunc}" if value.trunc else text
