"""What a condition lets through, and how two of them relate: sets, ranges, periods, patterns, nulls.

A domain forgets how a condition is spelled: ``BETWEEN '2024-01-01' AND '2024-12-31'``, a half-open range, ``YEAR(d) = 2024``
and ``LIKE '2024-%'`` are one period. `relate` says how the domain of the SQL stands to the one that was asked for.

Source: method.md sections 2 and 3.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from stef_core.lexicon import same_value
from stef_core.records import (
    Column,
    ColumnValue,
    DatePart,
    DateTrunc,
    Filter,
    Now,
    Parameter,
    ScalarQuery,
    SubQuery,
    Value,
)

Kind: TypeAlias = Literal[
    "set",
    "not_set",
    "range",
    "period",
    "part",
    "like",
    "not_like",
    "null",
    "not_null",
    "relative",
    "column",
    "scalar",
    "query",
    "other",
]
Relation: TypeAlias = Literal[
    "equal",  # the same rows pass
    "alike",  # the same in all likelihood: one value spells the other out
    "boundary",  # the same bound, but open for closed
    "direction",  # the same bound from the other side
    "negated",  # what should pass does not, and the reverse
    "subset",  # only some of what was asked passes
    "superset",  # all that was asked passes, and more
    "value",  # another value
    "incomparable",
]
SAME: frozenset[Relation] = frozenset({"equal", "alike"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The values that pass. `low`/`high` bound ranges and periods (None: open end); periods are half-open in days."""

    kind: Kind
    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    op: str = ""
    unit: str = ""  # of parts and relative bounds


_RANGE_OPS = {"<", "<=", ">", ">="}
_DATE = re.compile(r"^(\d{4})-(\d{1,2})-(\d{1,2})(?:[ t]\d{1,2}:.*)?$")
_MONTH = re.compile(r"^(\d{4})-?(0[1-9]|1[0-2])$")
_YEAR = re.compile(r"^(1[5-9]\d{2}|20\d{2}|21\d{2})$")


@lru_cache(maxsize=8192)
def period_of_text(value: Any) -> tuple[dt.date, dt.date] | None:
    """Half-open span of days that a date text covers: a day, ``YYYY-MM`` or ``YYYY``; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        if not float(value).is_integer():
            return None
        if 150001 <= value <= 219912 and 1 <= value % 100 <= 12:
            return month_span(int(value) // 100, int(value) % 100)
        return _year(int(value)) if 1500 <= value <= 2199 else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if match := _DATE.match(text):
        year, month, day = (int(g) for g in match.groups())
        try:
            start = dt.date(year, month, day)
        except ValueError:
            return None
        return start, start + dt.timedelta(days=1)
    if match := _MONTH.match(text):
        return month_span(int(match[1]), int(match[2]))
    if _YEAR.match(text):
        return _year(int(text))
    return None


def month_span(year: int, month: int) -> tuple[dt.date, dt.date]:
    """First day of a month and of the next one."""
    start = dt.date(year, month, 1)
    return start, start + dt.timedelta(days=calendar.monthrange(year, month)[1])


def _year(year: int) -> tuple[dt.date, dt.date] | None:
    return (dt.date(year, 1, 1), dt.date(year + 1, 1, 1)) if 1 <= year <= 9998 else None


def domain_of(filters: Sequence[Filter]) -> Domain:
    """The domain of one filter, or of several on one column that must hold together."""
    filters = [_cut_text(f) for f in filters]
    if len(filters) == 1:
        return _single(filters[0])
    period = _merge_periods(filters)
    if period is not None:
        return period
    merged = _merge_ranges([_single(f) for f in filters])
    return merged if merged is not None else Domain(kind="other", values=tuple(filters))


def mergeable(filters: Sequence[Filter]) -> bool:
    """Whether several filters on one column make one range or period together, and one that lets something through."""
    domain = domain_of(filters)
    if domain.kind == "range" and domain.low is not None and domain.high is not None:
        low, high = _number(domain.low), _number(domain.high)
        return low is None or high is None or (low <= high and not (low == high and (domain.low_open or domain.high_open)))
    return domain.kind != "other"


def dated(column: object) -> DatePart | DateTrunc | None:
    """The part of a date that a cut of its text is: ``substring(date, 1, 4)`` is the year; None for any other column."""
    match = _CUT.match(column) if isinstance(column, str) else None
    if match is None:
        return None
    cut = (int(match[2]), int(match[3]))
    if cut in _CUT_PARTS:
        return DatePart(part=_CUT_PARTS[cut], column=match[1])
    return DateTrunc(unit="month", column=match[1]) if cut in ((1, 6), (1, 7)) else None


_CUT = re.compile(r"^substr(?:ing)?\((\w+), (\d+), (\d+)\)$")
_CUT_PARTS = {(1, 4): "year", (5, 2): "month", (6, 2): "month", (7, 2): "day", (9, 2): "day"}


def _cut_text(f: Filter) -> Filter:
    column = dated(f.column)
    if column is None:
        return f
    value = tuple(_digits(v) for v in f.value) if isinstance(f.value, tuple) else _digits(f.value)
    return Filter(column=column, op=f.op, value=value, raw=f.raw, text=f.text, table=f.table)


def _digits(value: Value) -> Value:
    """``'08'`` of a text cut is the month 8; a year and month stay together."""
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) <= 4 else value


def _unit(column: Column | None) -> str | None:
    """The unit that a column is cut to: the month of ``DATE_TRUNC``, the year of ``YEAR``."""
    if isinstance(column, DateTrunc):
        return column.unit
    return column.part if isinstance(column, DatePart) and column.part == "year" else None


def _plain_name(column: Column | None) -> Column | None:
    return column.column if isinstance(column, DateTrunc | DatePart) else column


def _single(f: Filter) -> Domain:
    value: Value = f.value
    op = f.op
    if op == "is_null":
        return Domain(kind="null")
    if op == "is_not_null":
        return Domain(kind="not_null")
    if isinstance(value, ColumnValue):
        return Domain(kind="column", values=(value.column,), op=op)
    if isinstance(value, ScalarQuery):
        return Domain(kind="scalar", values=(value,), op=op)
    if isinstance(value, SubQuery):
        return Domain(kind="query", values=(value,), op=op)
    if isinstance(value, Now) and op == "=" and value.unit == "day" and value.amount in (0, 1) and value.trunc in (None, "day"):
        return _relative(replace(f, column=_plain_name(f.column), op=">="))  # today, yesterday
    if isinstance(value, Now) and op == "=" and value.trunc == _unit(f.column) is not None:
        return _relative(replace(f, column=_plain_name(f.column), op=">="))  # "this month": nothing lies after it yet
    if isinstance(value, Now) or (isinstance(value, tuple) and any(isinstance(v, Now) for v in value)):
        return _relative(f)
    if isinstance(f.column, DatePart | DateTrunc):
        period = _merge_periods([f])
        if period is not None:
            return period
        if isinstance(f.column, DatePart):
            values = value if isinstance(value, tuple) else (value,)
            if op == "between" and len(values) == 2:
                return Domain(kind="part", low=values[0], high=values[1], op=op, unit=f.column.part)
            return Domain(kind="part", values=tuple(sorted(values, key=repr)), op=op, unit=f.column.part)
    if op in ("=", "in"):
        return Domain(kind="set", values=value if isinstance(value, tuple) else (value,))
    if op in ("!=", "not_in"):
        return Domain(kind="not_set", values=value if isinstance(value, tuple) else (value,))
    if op == "like" and isinstance(value, str) and value.endswith("%") and _DATE.match(value.rstrip("%")):
        span = period_of_text(value.rstrip("%"))  # a day at any time
        if span:
            return Domain(kind="period", low=span[0], high=span[1])
    if op in ("like", "regexp"):
        return Domain(kind="like", values=(value,), op=op)
    if op in ("not_like", "not_regexp"):
        return Domain(kind="not_like", values=(value,), op=op)
    if op == "between" and isinstance(value, tuple) and len(value) == 2:
        low, high = value
        spans = period_of_text(low), period_of_text(high)
        if isinstance(low, str) and spans[0] and spans[1]:
            return Domain(kind="period", low=spans[0][0], high=spans[1][1])
        return Domain(kind="range", low=low, high=high)
    if op in _RANGE_OPS and not isinstance(value, tuple):
        if isinstance(value, str) and (span := period_of_text(value)):
            return _open_period(op, span)
        if op in (">", ">="):
            return Domain(kind="range", low=value, low_open=op == ">")
        return Domain(kind="range", high=value, high_open=op == "<")
    return Domain(kind="other", values=(f,), op=op)


def _open_period(op: str, span: tuple[dt.date, dt.date]) -> Domain:
    start, end = span
    low, high = {"<": (None, start), "<=": (None, end), ">": (end, None), ">=": (start, None)}[op]
    return Domain(kind="period", low=low, high=high)


def _relative(f: Filter) -> Domain:
    values = f.value if isinstance(f.value, tuple) else (f.value,)
    moments = [v for v in values if isinstance(v, Now)]
    # the far end of the window says how long it is; now itself as the other end adds nothing
    far = max(moments, key=lambda m: (abs(m.amount), m.trunc or ""))
    op = ">=" if f.op == "between" else f.op
    return Domain(kind="relative", values=(far,), op=op, unit=far.unit)


def _merge_periods(filters: Sequence[Filter]) -> Domain | None:
    """Parts and bounds of one date column as one period; None where they are no dates or do not fix a period."""
    parts: dict[str, int] = {}
    span_of_months: tuple[int, int] | None = None
    low: dt.date | None = None
    high: dt.date | None = None
    dated = False
    for f in filters:
        column, value = f.column, f.value
        if isinstance(column, DatePart):
            if column.part == "year" and f.op in (*_RANGE_OPS, "between"):
                bound = _year_bounds(f.op, value)
                if bound is None:
                    return None
                low, high, dated = _later(low, bound[0]), _earlier(high, bound[1]), True
                continue
            if column.part == "month" and f.op == "between" and isinstance(value, tuple) and len(value) == 2:
                months = [_number(v) for v in value]
                if None in months:
                    return None
                span_of_months = (int(months[0] or 0), int(months[1] or 0))
                continue
            if f.op != "=" or isinstance(value, bool) or not isinstance(value, int | float | str):
                return None
            try:
                parts[column.part] = int(value)
            except ValueError:
                return None
            continue
        if isinstance(column, DateTrunc):
            span = _trunc_span(column.unit, value) if f.op == "=" else None
            if span is None:
                domain = _single(Filter(column=column.column, op=f.op, value=value))
                if domain.kind != "period":
                    return None
                span = (domain.low, domain.high)
            low, high, dated = _later(low, span[0]), _earlier(high, span[1]), True
            continue
        if f.op in ("like",) and isinstance(value, str) and value.endswith("%"):
            like_span = period_of_text(value.rstrip("%").rstrip("-"))
            if like_span is None or "%" in value.rstrip("%"):
                return None
            low, high, dated = _later(low, like_span[0]), _earlier(high, like_span[1]), True
            continue
        if f.op == "=" and isinstance(value, str) and len(filters) > 1:
            eq_span = period_of_text(value)
            if eq_span is None:
                return None
            low, high, dated = _later(low, eq_span[0]), _earlier(high, eq_span[1]), True
            continue
        if f.op in (*_RANGE_OPS, "between") and len(filters) > 1:
            domain = _single(f)
            if domain.kind != "period":
                return None
            low, high, dated = _later(low, domain.low), _earlier(high, domain.high), True
            continue
        return None
    whole_year = low.year if low and high and (low.month, low.day) == (1, 1) and high == dt.date(low.year + 1, 1, 1) else None
    if whole_year is not None and "year" not in parts and (parts or span_of_months):
        parts["year"] = whole_year  # the year as a text cut or pattern, the month as a part
    if span_of_months is not None:
        year, (first, last) = parts.pop("year", None), span_of_months
        if year is None or parts or not (1 <= first <= last <= 12 and 1 <= year <= 9998):
            return None
        return Domain(kind="period", low=month_span(year, first)[0], high=month_span(year, last)[1])
    if parts:
        span = _parts_span(parts)
        if span is None:
            return None
        low, high, dated = _later(low, span[0]), _earlier(high, span[1]), True
    return Domain(kind="period", low=low, high=high) if dated else None


def _year_bounds(op: str, value: Value) -> tuple[dt.date | None, dt.date | None] | None:
    years = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(y, int) and 1500 <= y <= 2199 for y in years):
        return None
    spans = [_year(int(y)) for y in years if isinstance(y, int)]
    if op == "between" and len(spans) == 2 and spans[0] and spans[1]:
        return spans[0][0], spans[1][1]
    if len(spans) != 1 or spans[0] is None:
        return None
    domain = _open_period(op, spans[0])
    return domain.low, domain.high


def _trunc_span(unit: str, value: Value) -> tuple[dt.date, dt.date] | None:
    span = period_of_text(value) if isinstance(value, str | int) else None
    if span is None:
        return None
    start = span[0]
    if unit == "day":
        return start, start + dt.timedelta(days=1)
    if unit == "month":
        return month_span(start.year, start.month)
    if unit == "year":
        return _year(start.year)
    if unit == "quarter":
        first = 3 * ((start.month - 1) // 3) + 1
        return dt.date(start.year, first, 1), month_span(start.year, first + 2)[1]
    return span


def _parts_span(parts: dict[str, int]) -> tuple[dt.date, dt.date] | None:
    year = parts.get("year")
    if year is None or not 1 <= year <= 9998:
        return None
    try:
        if set(parts) == {"year"}:
            return _year(year)
        if set(parts) == {"year", "month"}:
            return month_span(year, parts["month"])
        if set(parts) == {"year", "quarter"}:
            first = 3 * parts["quarter"] - 2
            return dt.date(year, first, 1), month_span(year, first + 2)[1]
        if set(parts) == {"year", "month", "day"}:
            day = dt.date(year, parts["month"], parts["day"])
            return day, day + dt.timedelta(days=1)
    except ValueError:
        return None
    return None


def _merge_ranges(domains: Sequence[Domain]) -> Domain | None:
    if all(d.kind == "relative" for d in domains):
        # two bounds relative to now: the lower one says how far back
        lows = [d for d in domains if d.op in (">", ">=")]
        return lows[0] if len(lows) == 1 else None
    if not all(d.kind == "range" for d in domains):
        return None
    low, low_open, high, high_open = None, False, None, False
    for d in domains:
        try:
            if d.low is not None and (low is None or d.low > low or _closer(d.low, d.low_open, low, low_open)):
                low, low_open = d.low, d.low_open
            if d.high is not None and (high is None or d.high < high or _closer(d.high, d.high_open, high, high_open)):
                high, high_open = d.high, d.high_open
        except TypeError:
            return None
    return Domain(kind="range", low=low, low_open=low_open, high=high, high_open=high_open)


def _closer(new: Any, new_open: bool, old: Any, old_open: bool) -> bool:
    """Of two equal bounds the open one lets less through; of 0 and FALSE the number is kept, in whatever order they stand."""
    return bool(new == old) and (new_open, not isinstance(new, bool)) > (old_open, not isinstance(old, bool))


def _later(a: dt.date | None, b: dt.date | None) -> dt.date | None:
    return b if a is None else a if b is None else max(a, b)


def _earlier(a: dt.date | None, b: dt.date | None) -> dt.date | None:
    return b if a is None else a if b is None else min(a, b)


# --- relations ------------------------------------------------------------------------------------------------------


def relate(asked: Domain, applied: Domain, same: Callable[[Any, Any], bool] = same_value) -> Relation:
    """How the domain that the SQL applies stands to the one that was asked for.

    Args:
        asked: Domain of the question's condition.
        applied: Domain of the SQL's condition.
        same: Equality of two values in normal form (mappings included).
    """
    a, b = _comparable(asked, applied)
    if a.kind in ("null", "not_null") and b.kind in ("null", "not_null"):
        return "equal" if a.kind == b.kind else "negated"
    rule = _RULES.get((a.kind, b.kind))
    return rule(a, b, same) if rule else "incomparable"


def _comparable(a: Domain, b: Domain) -> tuple[Domain, Domain]:
    """Read a year or date text as a period, and a numeric range of years as one, where the other side is a period."""
    if a.kind == "period" and b.kind != "period":
        return a, _as_period(b) or b
    if b.kind == "period" and a.kind != "period":
        return _as_period(a) or a, b
    if a.kind == "set" and b.kind == "set" and len(a.values) == len(b.values) == 1 and a.values != b.values:
        left, right = _as_period(a), _as_period(b)
        if left and right and (isinstance(a.values[0], str) or isinstance(b.values[0], str)):
            return left, right
    return a, b


def _as_period(d: Domain) -> Domain | None:
    if d.kind == "set" and len(d.values) == 1:
        span = period_of_text(d.values[0])
        return Domain(kind="period", low=span[0], high=span[1]) if span else None
    if d.kind == "range":
        low = period_of_text(d.low) if d.low is not None else None
        high = period_of_text(d.high) if d.high is not None else None
        if (d.low is not None and low is None) or (d.high is not None and high is None):
            return None
        start = (low[1] if d.low_open else low[0]) if low else None
        end = (high[0] if d.high_open else high[1]) if high else None
        return Domain(kind="period", low=start, high=end)
    if d.kind == "part" and d.unit == "year" and d.op == "=" and len(d.values) == 1:
        span = period_of_text(d.values[0])
        return Domain(kind="period", low=span[0], high=span[1]) if span else None
    if d.kind == "like" and isinstance(d.values[0], str):
        span = period_of_text(d.values[0].strip("%").rstrip("-"))
        return Domain(kind="period", low=span[0], high=span[1]) if span and d.values[0].endswith("%") else None
    return None


def _sets(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    if any(isinstance(v, Parameter) for v in b.values):
        return "alike" if len(b.values) == 1 and len(a.values) == 1 else "incomparable"
    missing = [v for v in a.values if not any(same(v, w) for w in b.values)]
    more = [w for w in b.values if not any(same(v, w) for v in a.values)]
    if not missing and not more:
        return "equal"
    if len(a.values) == len(b.values) == 1 and _spells_out(a.values[0], b.values[0]):
        return "alike"
    negative = a.kind == "not_set"
    if not missing:
        return "subset" if negative else "superset"
    if not more:
        return "superset" if negative else "subset"
    return "value"


def _spells_out(a: Any, b: Any) -> bool:
    """One text holds all words of the other: 'new york' and 'new york city'."""
    if not (isinstance(a, str) and isinstance(b, str)):
        return False
    left, right = set(re.findall(r"\w+", a.casefold())), set(re.findall(r"\w+", b.casefold()))
    return bool(left and right) and (left <= right or right <= left)


def _negated_sets(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    # a <> x where x is one of two values of a flag says the other value; without a schema only booleans are known
    if {_truth(v) for v in a.values} | {_truth(v) for v in b.values} == {True, False} and len(a.values) == len(b.values) == 1:
        return "equal"
    return "negated" if any(same(v, w) for v in a.values for w in b.values) else "value"


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _bounds(d: Domain) -> tuple[float | None, float | None, bool, bool] | None:
    """Closed bounds of whole numbers are written as open ones: ``>= 6`` is ``> 5``."""
    low, high = _number(d.low), _number(d.high)
    if (d.low is not None and low is None) or (d.high is not None and high is None):
        return None
    low_open, high_open = d.low_open, d.high_open
    if low is not None and low.is_integer() and not low_open:
        low, low_open = low - 1, True
    if high is not None and high.is_integer() and not high_open:
        high, high_open = high + 1, True
    return low, high, low_open, high_open


def _ranges(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    if (a.low, a.high, a.low_open, a.high_open) == (b.low, b.high, b.low_open, b.high_open):
        return "equal"
    left, right = _bounds(a), _bounds(b)
    if left is None or right is None:
        return "value" if (a.low is None) == (b.low is None) else "direction"
    if left == right:
        return "equal"
    if {_number(a.low), _number(a.high)} == {_number(b.low), _number(b.high)}:
        return "boundary" if (a.low is None) == (b.low is None) else "direction"
    one_sided = (a.low is None) != (a.high is None) and (b.low is None) != (b.high is None)
    if one_sided:
        return "value" if (a.low is None) == (b.low is None) else "direction"
    if b.low is None or b.high is None:
        return (
            "superset" if _number(b.low) in (None, _number(a.low)) and _number(b.high) in (None, _number(a.high)) else "value"
        )
    return "value"


def _periods(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    if (a.low, a.high) == (b.low, b.high):
        return "equal"
    day = dt.timedelta(days=1)

    def near(x: dt.date | None, y: dt.date | None) -> bool:
        return x == y or (x is not None and y is not None and abs(x - y) <= day)

    if near(a.low, b.low) and near(a.high, b.high):
        return "boundary"
    open_sided = (a.low is None) != (b.low is None) and (a.high is None) != (b.high is None)
    if open_sided:
        return "direction"
    low = dt.date.min
    high = dt.date.max
    if (b.low or low) <= (a.low or low) and (b.high or high) >= (a.high or high):
        return "superset"
    if (b.low or low) >= (a.low or low) and (b.high or high) <= (a.high or high):
        return "subset"
    return "value"


def _parts(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    if a.unit != b.unit:
        return "incomparable"
    if a.op == b.op and (a.low, a.high) == (b.low, b.high) and len(a.values) == len(b.values):
        return "equal" if all(same(v, w) for v, w in zip(a.values, b.values, strict=True)) else "value"
    return "value" if a.op == b.op else "direction"


def _part_of_period(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    """A month of every year lets through the month of one year, and more."""
    if a.low is None or a.high is None or b.op != "=" or len(b.values) != 1:
        return "incomparable"
    have = {"month": a.low.month, "day": a.low.day, "quarter": (a.low.month + 2) // 3}.get(b.unit)
    return "incomparable" if have is None else "superset" if have == _number(b.values[0]) else "value"


def _core(pattern: Any) -> str:
    return re.sub(r"[%_^$.*\\]+", " ", str(pattern)).casefold().strip()


def _patterns(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    if a.values == b.values:
        return "equal"
    return "alike" if _core(a.values[0]) == _core(b.values[0]) else "value"


def _pattern_of_value(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    core = _core(b.values[0])
    if len(a.values) == 1 and core and (same(a.values[0], core) or _spells_out(a.values[0], core)):
        return "alike"
    return "value"


def _value_of_pattern(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    core = _core(a.values[0])
    if len(b.values) == 1 and core and same(b.values[0], core):
        return "alike"
    return "subset" if len(b.values) == 1 and core and core in str(b.values[0]) else "value"


def _negated_pattern(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    return "negated" if _core(a.values[0]) == _core(b.values[0]) else "value"


def _relatives(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    left, right = a.values[0], b.values[0]
    if (a.op in (">", ">=")) != (b.op in (">", ">=")):
        return "direction"
    if (left.amount, left.unit) == (right.amount, right.unit):
        return "equal" if left.trunc == right.trunc else "alike"
    if abs(_days(left) - _days(right)) <= 1.5 * max(1.0, _days(left) / 30):
        return "alike"
    return "value"


def _days(moment: Now) -> float:
    sizes = {"hour": 1 / 24, "day": 1, "week": 7, "month": 30.4, "quarter": 91.3, "year": 365.2, "minute": 1 / 1440}
    return moment.amount * sizes.get(moment.unit, 1)


def _value_in_range(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    values = {_number(v) for v in a.values}
    return "direction" if values & {_number(b.low), _number(b.high)} - {None} else "value"


def _range_for_value(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    values = {_number(v) for v in b.values}
    return "direction" if values & {_number(a.low), _number(a.high)} - {None} else "value"


def _scalars(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    left, right = a.values[0], b.values[0]
    if left.func != right.func:
        return "value"
    return "equal" if a.op == b.op else "direction" if {a.op, b.op} <= {"<", "<=", ">", ">="} else "value"


def _columns(a: Domain, b: Domain, same: Callable[[Any, Any], bool]) -> Relation:
    return "equal" if a.op == b.op else "direction"


_RULES: dict[tuple[Kind, Kind], Callable[[Domain, Domain, Callable[[Any, Any], bool]], Relation]] = {
    ("set", "set"): _sets,
    ("set", "not_set"): _negated_sets,
    ("not_set", "set"): _negated_sets,
    ("not_set", "not_set"): _sets,
    ("range", "range"): _ranges,
    ("period", "period"): _periods,
    ("part", "part"): _parts,
    ("period", "part"): _part_of_period,
    ("like", "like"): _patterns,
    ("not_like", "not_like"): _patterns,
    ("set", "like"): _pattern_of_value,
    ("like", "set"): _value_of_pattern,
    ("not_set", "not_like"): _pattern_of_value,
    ("set", "not_like"): _negated_pattern,
    ("not_set", "like"): _negated_pattern,
    ("like", "not_like"): _negated_pattern,
    ("not_like", "like"): _negated_pattern,
    ("relative", "relative"): _relatives,
    ("set", "range"): _value_in_range,
    ("range", "set"): _range_for_value,
    ("scalar", "scalar"): _scalars,
    ("column", "column"): _columns,
}
