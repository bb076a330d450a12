"""Constants in SQL: numbers, texts, dates and moments relative to now, whatever function spells them."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from typing import NamedTuple

from sqlglot import exp

from stef_core.extract.sql_scope import Base, Scope, deref
from stef_core.normalize import folded_number, normal_date, normal_value
from stef_core.records import DatePart, DateTrunc, Now, Parameter, Value


class Constant(NamedTuple):
    """A value and the literals it was written with."""

    value: Value
    raw: tuple[str, ...] = ()


_NOW = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentDatetime, exp.CurrentTime)
_NOW_NAMES = frozenset(
    "now today getdate sysdate current_date current_timestamp localtimestamp curdate getutcdate sysdatetime "
    "sysutcdatetime utc_timestamp utc_date statement_timestamp transaction_timestamp clock_timestamp systimestamp "
    "current_datetime localtime".split()
)
_ADD = tuple(
    getattr(exp, name)
    for name in ("DateAdd", "TsOrDsAdd", "DatetimeAdd", "TimestampAdd", "DateSub", "DatetimeSub", "TimestampSub")
    if hasattr(exp, name)
)
_SUB = tuple(getattr(exp, name) for name in ("DateSub", "DatetimeSub", "TimestampSub") if hasattr(exp, name))
# functions that read a date or a moment out of what they are given
_DATE_WRAPPERS = tuple(
    getattr(exp, name)
    for name in (
        "Date TsOrDsToDate TsOrDsToTimestamp TimeStrToTime TimeStrToDate DateStrToDate StrToDate StrToTime TsOrDsToDatetime "
        "Timestamp Datetime ToDays TsOrDsToTime TimestampFromParts"
    ).split()
    if hasattr(exp, name)
)
# conversions that sqlglot writes around an argument, or that leave a date the date it is
IMPLICIT = tuple(
    getattr(exp, name)
    for name in "TsOrDsToTimestamp TimeStrToTime TimeStrToDate StrToDate StrToTime Timestamp Datetime DateStrToDate".split()
    if hasattr(exp, name)
)
_TRUNCS = tuple(getattr(exp, name) for name in ("DateTrunc", "TimestampTrunc", "DatetimeTrunc") if hasattr(exp, name))
_PARTS: dict[type[exp.Expr], str] = {
    getattr(exp, name): part
    for name, part in (
        ("Year", "year"),
        ("Quarter", "quarter"),
        ("Month", "month"),
        ("Week", "week"),
        ("WeekOfYear", "week"),
        ("Day", "day"),
        ("DayOfMonth", "day"),
        ("DayOfWeek", "dow"),
        ("DayOfWeekIso", "isodow"),
        ("DayOfYear", "doy"),
        ("Hour", "hour"),
        ("Minute", "minute"),
        ("Second", "second"),
        ("Monthname", "monthname"),
        ("Dayname", "dayname"),
    )
    if hasattr(exp, name)
}
_PART_NAMES = {
    "toyear": "year",
    "toquarter": "quarter",
    "tomonth": "month",
    "todayofmonth": "day",
    "todayofweek": "isodow",
    "tohour": "hour",
    "tominute": "minute",
    "year": "year",
    "month": "month",
    "day": "day",
    "dayname": "dayname",
    "monthname": "monthname",
}
_TRUNC_NAMES = {
    "tostartofyear": "year",
    "tostartofquarter": "quarter",
    "tostartofmonth": "month",
    "tostartofweek": "week",
    "tostartofday": "day",
    "tostartofhour": "hour",
    "todate": "day",
    "to_date": "day",
    "trunc": "day",
    "date": "day",
}
# what a format keeps of a date: a part, or the date cut to a unit
_FORMATS: dict[str, tuple[str, str]] = {
    "%Y": ("part", "year"),
    "%m": ("part", "month"),
    "%-m": ("part", "month"),
    "%c": ("part", "month"),
    "%d": ("part", "day"),
    "%-d": ("part", "day"),
    "%H": ("part", "hour"),
    "%M": ("part", "minute"),
    "%w": ("part", "dow"),
    "%j": ("part", "doy"),
    "%Y-%m": ("trunc", "month"),
    "%Y%m": ("trunc", "month"),
    "%Y/%m": ("trunc", "month"),
    "%Y-%m-%d": ("trunc", "day"),
    "%Y%m%d": ("trunc", "day"),
    "%Y/%m/%d": ("trunc", "day"),
    "%F": ("trunc", "day"),
    "YYYY": ("part", "year"),
    "MM": ("part", "month"),
    "DD": ("part", "day"),
    "Q": ("part", "quarter"),
    "YYYY-MM": ("trunc", "month"),
    "YYYYMM": ("trunc", "month"),
    "YYYY/MM": ("trunc", "month"),
    "YYYY-MM-DD": ("trunc", "day"),
    "YYYYMMDD": ("trunc", "day"),
}
_TRUNC_FORMATS = {
    "mm": "month",
    "mon": "month",
    "yyyy": "year",
    "yy": "year",
    "q": "quarter",
    "dd": "day",
    "ddd": "day",
    "hh": "hour",
}
_UNIT = {
    "d": "day",
    "dd": "day",
    "m": "month",
    "mm": "month",
    "yy": "year",
    "yyyy": "year",
    "y": "year",
    "wk": "week",
    "ww": "week",
}
_UNIT |= {
    "q": "quarter",
    "qq": "quarter",
    "hh": "hour",
    "h": "hour",
    "mi": "minute",
    "n": "minute",
    "ss": "second",
    "s": "second",
}
_UNIT |= {
    "mon": "month",
    "dy": "doy",
    "weekday": "dow",
    "dayofweek": "dow",
    "dayofyear": "doy",
    "dayofmonth": "day",
    "dow": "dow",
}
_INTERVAL = re.compile(r"\s*+([+-]?\d++(?:\.\d++)?)\s*+([a-z]++)?\s*+(ago)?\s*+", re.I)
_TEXT_TYPES = exp.DataType.TEXT_TYPES
_DATE_TYPES = {exp.DType.DATE, exp.DType.DATE32} if hasattr(exp.DType, "DATE32") else {exp.DType.DATE}


def unit_name(text: str) -> str:
    """A unit of time as a singular word: ``DAYS``, ``dd`` and ``day`` are ``day``."""
    folded = text.strip("'\" ").lower()
    folded = folded.split("(")[0]
    if folded in _UNIT:
        return _UNIT[folded]
    return folded[:-1] if folded.endswith("s") and len(folded) > 3 else folded


# --- columns cut to a part or a unit ----------------------------------------------------------------------------------


def date_form(node: exp.Expr) -> tuple[str, str, exp.Expr] | None:
    """``(part | trunc, unit, inner)`` of an expression that keeps a part of a date or cuts it to a unit, else None."""
    part = _PARTS.get(type(node))
    if part is not None:
        return "part", part, _unwrapped(node.this)
    if isinstance(node, exp.Extract):
        return "part", unit_name(node.name), _unwrapped(node.expression)
    if isinstance(node, _TRUNCS):
        unit = node.args.get("unit")
        name = unit_name(unit.name if unit is not None else "day")
        return "trunc", _TRUNC_FORMATS.get(name, name), _unwrapped(node.this)
    if isinstance(node, exp.TimeToStr | exp.ToChar):
        form = _format(node.args.get("format"))
        return (*form, _unwrapped(node.this)) if form else None
    if isinstance(node, exp.Cast):
        if node.to.this in _DATE_TYPES:
            return "trunc", "day", _unwrapped(node.this)
        inner = node.this
        while isinstance(inner, exp.Paren | exp.Cast):
            inner = inner.this
        return date_form(inner) if not isinstance(inner, exp.Column) else None
    if isinstance(node, exp.Date | exp.TsOrDsToDate) and node.this is not None and not node.args.get("expressions"):
        return "trunc", "day", _unwrapped(node.this)
    if isinstance(node, exp.Anonymous):
        return _anonymous_form(node)
    return None


def _anonymous_form(node: exp.Anonymous) -> tuple[str, str, exp.Expr] | None:
    name, arguments = node.name.lower(), node.expressions
    if name in _PART_NAMES and len(arguments) == 1:
        return "part", _PART_NAMES[name], _unwrapped(arguments[0])
    if name in _TRUNC_NAMES and arguments and not (len(arguments) > 1 and name in ("trunc", "date")):
        return "trunc", _TRUNC_NAMES[name], _unwrapped(arguments[0])
    if name in ("datepart", "date_part", "datename") and len(arguments) == 2:
        return "part", unit_name(arguments[0].name), _unwrapped(arguments[1])
    if (
        name in ("to_char", "format", "formatdatetime", "format_datetime", "date_format", "strftime", "format_date")
        and len(arguments) == 2
    ):
        first = arguments[0] if isinstance(arguments[0], exp.Literal) else arguments[1]
        form = _format(first)
        return (*form, _unwrapped(arguments[1] if first is arguments[0] else arguments[0])) if form else None
    if name == "toyyyymm" and len(arguments) == 1:
        return "trunc", "month", _unwrapped(arguments[0])
    return None


def _format(node: exp.Expr | None) -> tuple[str, str] | None:
    if node is None:
        return None
    text = node.name.replace("strict", "")
    return _FORMATS.get(text) or _FORMATS.get(text.upper())


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """Without the conversions that a date function implies: ``YEAR(CAST(c AS DATE))`` reads `c`."""
    while True:
        if (
            isinstance(node, exp.Paren)
            or (isinstance(node, exp.Cast) and node.to.this not in _TEXT_TYPES)
            or (isinstance(node, _DATE_WRAPPERS) and node.this is not None and not isinstance(node, exp.TimestampFromParts))
        ):
            node = node.this
        else:
            return node


def form_value(form: DatePart | DateTrunc, value: Value) -> Value:
    """A constant compared with a date part or a truncated date: ``'03'`` of a month is 3, ``'2024-03'`` its first day."""
    if isinstance(form, DatePart):
        if isinstance(value, str) and value.strip().isdigit():
            return int(value)
        return value
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"(\d{4})[-/]?(\d{2})[-/]?(\d{2})?", text)
    if match and form.unit in ("month", "quarter", "year", "week", "day"):
        return f"{match[1]}-{match[2]}-{match[3] or '01'}"
    return value


# --- constants ------------------------------------------------------------------------------------------------------


def constant(node: exp.Expr | Base, scope: Scope) -> Constant | None:
    """The constant an expression stands for, or None if it depends on a row."""
    if isinstance(node, Base):
        return None
    if isinstance(node, exp.Literal):
        return _literal(node)
    if isinstance(node, exp.Column):
        return _named(node, scope)
    if isinstance(node, exp.Paren | exp.Alias):
        return constant(node.this, scope)
    if isinstance(node, exp.Null):
        return Constant(None, ("NULL",))
    if isinstance(node, exp.Boolean):
        return Constant(bool(node.this))
    if isinstance(node, exp.National | exp.RawString | exp.UnicodeString | exp.ByteString):
        return Constant(normal_value(node.name), (node.name,))
    if isinstance(node, exp.Parameter | exp.Placeholder | exp.SessionParameter):
        return Constant(Parameter(name=node.name.lower() or "?"))
    if isinstance(node, exp.Neg):
        inner = constant(node.this, scope)
        if inner is not None and isinstance(inner.value, int | float) and not isinstance(inner.value, bool):
            return Constant(-inner.value, tuple(f"-{r}" for r in inner.raw))
        return None
    if isinstance(node, _NOW):
        return Constant(Now())
    if isinstance(node, exp.Interval):
        return None
    if isinstance(node, _ADD):
        return _date_add(node, scope)
    if isinstance(node, exp.Trunc) and node.args.get("decimals") is None:
        inner = constant(node.this, scope)  # Redshift: TRUNC(SYSDATE) is today
        return inner if inner is not None and isinstance(inner.value, Now) else None
    if isinstance(node, exp.AddMonths):
        return _shift(constant(node.this, scope), constant(node.expression, scope), "month", 1)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        return _arithmetic(node, scope)
    if isinstance(node, exp.DPipe | exp.Concat):
        parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
        found: list[Constant | None] = []
        for part in reversed(parts):
            found.insert(0, constant(part, scope))
            if found[0] is None:
                return None
        return _concatenated(found)
    if isinstance(node, exp.Upper | exp.Lower | exp.Trim):
        inner = constant(node.this, scope)
        if inner is None or not inner.raw:
            return inner
        change = str.upper if isinstance(node, exp.Upper) else str.lower if isinstance(node, exp.Lower) else str.strip
        return Constant(inner.value, tuple(change(r) for r in inner.raw))
    if isinstance(node, exp.DateFromParts):
        return _from_parts(node, scope)
    if isinstance(node, exp.LastDay):
        return _last_day(constant(node.this, scope))
    if isinstance(node, exp.Anonymous):
        return _anonymous(node, scope)
    if isinstance(node, exp.UnixToTime | exp.UnixToStr | exp.StrToUnix):
        inner = constant(node.this, scope)  # Hive: from_unixtime(unix_timestamp())
        return inner if inner is not None and isinstance(inner.value, Now) else None
    return _converted(node, scope)


def _named(node: exp.Column, scope: Scope) -> Constant | None:
    key = (id(node), scope.id, scope.mode)
    known = scope.reader.constants.get(key, scope)
    if known is None or isinstance(known, Constant):
        return known
    found = _named_constant(node, scope)
    scope.reader.constants[key] = found
    return found


def _named_constant(node: exp.Column, scope: Scope) -> Constant | None:
    name = node.name
    if not node.table and name.lower() in ("sysdate", "systimestamp", "current_date", "current_timestamp", "today", "getdate"):
        return Constant(Now())
    if is_quoted_text(node, scope):
        scope.reader.literals[name] = None
        return Constant(normal_value(name), (name,))
    hit = deref(node, scope)
    if isinstance(hit.node, Base | exp.Column):
        return None
    found = constant(hit.node, hit.scope)
    # a NULL or a label in a UNION's first operand says nothing about the others
    return found if found is not None and found.value is not None else None


def is_quoted_text(node: exp.Expr, scope: Scope) -> bool:
    """Whether SQLite would take a double-quoted name for a text: no column of that name is known here."""
    if scope.reader.dialect != "sqlite" or not isinstance(node, exp.Column) or node.table:
        return False
    identifier = node.this
    if not (isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")):
        return False
    name = node.name
    if f'"{name}"' not in scope.reader.text and f'"{name}'.rstrip() not in scope.reader.text:
        return False
    side, parent = _unfolded(node)
    if isinstance(parent, exp.In | exp.Between):
        compared = parent.this is not side
    elif isinstance(parent, exp.Predicate | exp.Binary):
        compared = parent.args.get("expression") is side
    elif isinstance(parent, exp.If | exp.Case):
        compared = parent.args.get("true") is side or parent.args.get("default") is side
    elif isinstance(parent, exp.Func | exp.Anonymous):
        compared = parent.this is not side and not isinstance(parent, exp.AggFunc)
    else:
        compared = False
    if not compared or (scope.reader.quotes_names and _named_by_habit(name, parent, scope)):
        return False
    folded = name.casefold()
    for source in scope.sources.values():
        if folded in (source.names() or ()):
            return False
    if folded in scope.aliases:
        return False
    root = scope.node
    return not any(
        other.name.casefold() == folded
        and (other.table or not other.this.args.get("quoted") or (scope.reader.quotes_names and not _is_second(other)))
        for other in root.find_all(exp.Column)
        if other is not node and isinstance(other.this, exp.Identifier)
    )


def _unfolded(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """A node with the brackets and conversions around it, and what these stand in."""
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Upper | exp.Lower | exp.Trim | exp.Date | exp.Collate):
        node, parent = parent, parent.parent
    return node, parent


def _is_second(node: exp.Expr) -> bool:
    """Whether a name stands where a text can: behind an operator, in a list."""
    side, parent = _unfolded(node)
    return isinstance(parent, exp.Predicate | exp.In) and parent.this is not side


def _named_by_habit(name: str, parent: exp.Expr | None, scope: Scope) -> bool:
    """Whether an author who puts every name in double quotes means a column by this one too."""
    if not isinstance(parent, exp.Predicate | exp.Func | exp.Anonymous):
        return True  # nobody reckons with a text
    return name.isidentifier() and ("_" in name or "'" in scope.reader.text)  # texts stand in single quotes


def _literal(node: exp.Literal) -> Constant:
    text = str(node.this)
    if node.is_string:
        return Constant(normal_value(text), (text,))
    value = normal_value(text)
    if isinstance(value, str):
        try:
            value = folded_number(float(text))
        except ValueError:
            return Constant(value, (text,))
    return Constant(value, (text,))


def _converted(node: exp.Expr, scope: Scope) -> Constant | None:
    """A constant inside conversions and truncations."""
    form = date_form(node)
    if form is not None:
        kind, unit, inner_node = form
        inner = constant(inner_node, scope)
        return None if inner is None else Constant(_cut(inner.value, kind, unit), inner.raw)
    if isinstance(node, exp.Cast | exp.TryCast):
        return constant(node.this, scope)
    if isinstance(node, exp.StrToDate | exp.StrToTime) and isinstance(node.this, exp.Literal):
        return _parsed(node)
    if isinstance(node, _DATE_WRAPPERS) and node.this is not None:
        return constant(node.this, scope)
    if isinstance(node, exp.Collate):
        return constant(node.this, scope)
    return None


def _parsed(node: exp.Expr) -> Constant:
    text, form = node.this.name, node.args.get("format")
    pattern = form.name if form is not None else ""
    for candidate in (pattern, pattern.replace("%-", "%")):
        try:
            moment = dt.datetime.strptime(text, candidate)  # noqa: DTZ007
        except ValueError:
            continue
        return Constant(normal_date(moment.strftime("%Y-%m-%d %H:%M:%S")) or normal_value(text), (text,))
    return Constant(normal_value(text), (text,))


def _cut(value: Value, kind: str, unit: str) -> Value:
    if isinstance(value, Now):
        return Now(amount=value.amount, unit=value.unit if value.amount else unit, trunc=unit) if unit != "day" else value
    date = _as_date(value)
    if date is None:
        return value
    if kind == "part":
        parts = {"year": date.year, "month": date.month, "day": date.day, "quarter": (date.month + 2) // 3}
        return parts.get(unit, value)
    if unit == "year":
        return f"{date.year:04d}-01-01"
    if unit == "quarter":
        return f"{date.year:04d}-{(date.month - 1) // 3 * 3 + 1:02d}-01"
    if unit == "month":
        return f"{date.year:04d}-{date.month:02d}-01"
    if unit == "week":
        return (date - dt.timedelta(days=date.weekday())).isoformat()
    return date.isoformat() if unit == "day" else value


def _as_date(value: Value) -> dt.date | None:
    if not isinstance(value, str):
        return None
    try:
        return dt.date.fromisoformat(value[:10]) if re.fullmatch(r"\d{4}-\d\d-\d\d( .*)?", value) else None
    except ValueError:
        return None


def interval(node: exp.Expr, scope: Scope) -> tuple[int, str] | None:
    """Amount and unit of an interval, or None."""
    if isinstance(node, exp.Paren):
        return interval(node.this, scope)
    if isinstance(node, exp.Neg):
        inner = interval(node.this, scope)
        return (-inner[0], inner[1]) if inner else None
    if isinstance(node, exp.Cast) and node.to.this == exp.DType.INTERVAL:
        match = _INTERVAL.fullmatch(node.this.name)
        return _counted(match[1], match[2]) if match and match[2] else None
    if isinstance(node, exp.Mul):
        for amount, unit in ((node.this, node.expression), (node.expression, node.this)):
            length, factor = interval(unit, scope), constant(amount, scope)
            if length and factor and isinstance(factor.value, int):
                return length[0] * factor.value, length[1]
        return None
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    unit = node.args.get("unit")
    amount = constant(node.this, scope)
    if amount is None:
        return None
    text = amount.raw[0] if amount.raw else str(amount.value)
    match = _INTERVAL.fullmatch(text)
    if not match:
        return None
    return _counted(match[1], match[2] or (unit.name if unit is not None else "day"))


def _counted(amount: str, unit: str) -> tuple[int, str] | None:
    number = float(amount)
    return (int(number), unit_name(unit)) if number.is_integer() else None


def _date_add(node: exp.Expr, scope: Scope) -> Constant | None:
    unit = node.args.get("unit")
    amount_node = node.expression
    sign = -1 if isinstance(node, _SUB) else 1
    length = interval(amount_node, scope)
    if length is not None:
        return _shift(constant(node.this, scope), Constant(length[0]), length[1], sign)
    return _shift(
        constant(node.this, scope), constant(amount_node, scope), unit_name(unit.name) if unit is not None else "day", sign
    )


def _shift(start: Constant | None, amount: Constant | None, unit: str, sign: int) -> Constant | None:
    """`start` moved by `amount` units; towards the future where `sign` is 1."""
    if start is None or amount is None or not isinstance(amount.value, int) or isinstance(amount.value, bool):
        return None
    return Constant(shifted(start.value, sign * amount.value, unit), start.raw)


def shifted(value: Value, amount: int, unit: str) -> Value:
    """A date or moment moved by `amount` units of time (negative: back); an unreadable start is left as it is."""
    if isinstance(value, Now):
        if value.amount and value.unit != unit:
            return Now(amount=value.amount, unit=value.unit, trunc=value.trunc)
        return Now(amount=value.amount - amount, unit=unit, trunc=value.trunc)
    date = _as_date(value)
    if date is None or not isinstance(value, str):
        return value
    months = amount * {"month": 1, "quarter": 3, "year": 12}.get(unit, 0)
    days = amount * {"day": 1, "week": 7}.get(unit, 0)
    if not months and not days:
        return value
    try:
        total = date.year * 12 + date.month - 1 + months
        year, month = divmod(total, 12)
        day = min(date.day, calendar.monthrange(year, month + 1)[1])
        moved = dt.date(year, month + 1, day) + dt.timedelta(days=days)
    except (ValueError, OverflowError):
        return value
    return moved.isoformat() + value[10:]


def _arithmetic(node: exp.Expr, scope: Scope) -> Constant | None:
    if isinstance(node, exp.Add | exp.Sub):
        sign = -1 if isinstance(node, exp.Sub) else 1
        length = interval(node.expression, scope)
        if length is not None:
            return _shift(constant(node.this, scope), Constant(length[0]), length[1], sign)
        length = interval(node.this, scope)
        if length is not None and sign == 1:
            return _shift(constant(node.expression, scope), Constant(length[0]), length[1], 1)
    right = constant(node.expression, scope)  # first: a long chain leans left and usually ends in a column
    if right is None:
        return None
    left = constant(node.this, scope)
    if left is None:
        return None
    a, b = left.value, right.value
    if isinstance(node, exp.Add | exp.Sub) and isinstance(b, int) and not isinstance(b, bool):
        amount = b if isinstance(node, exp.Add) else -b
        if isinstance(a, Now):
            # YEAR(now) - 1 counts years, CURRENT_DATE - 30 counts days
            return Constant(shifted(a, amount, a.trunc or "day"))
        if isinstance(a, str) and _as_date(a):
            return Constant(shifted(a, amount, "day"), left.raw)
    if not isinstance(a, int | float) or not isinstance(b, int | float) or isinstance(a, bool) or isinstance(b, bool):
        return None
    try:
        if isinstance(node, exp.Add):
            result: int | float = a + b
        elif isinstance(node, exp.Sub):
            result = a - b
        elif isinstance(node, exp.Mul):
            result = a * b
        elif isinstance(node, exp.Div):
            result = a / b
        else:
            result = a % b
        return Constant(folded_number(float(result)) if isinstance(result, float) else result, left.raw + right.raw)
    except (ZeroDivisionError, OverflowError):
        return None


def _concatenated(parts: list[Constant | None]) -> Constant | None:
    raw = ""
    for part in parts:
        if part is None or not part.raw:
            return None
        raw += part.raw[0]
    return Constant(normal_value(raw), (raw,))


def _from_parts(node: exp.Expr, scope: Scope) -> Constant | None:
    numbers = [constant(node.args[k], scope) for k in ("year", "month", "day") if node.args.get(k) is not None]
    if len(numbers) != 3 or not all(n is not None and isinstance(n.value, int) for n in numbers):
        return None
    text = "-".join(str(n.value) for n in numbers if n is not None)
    return Constant(normal_date(text) or text, (text,))


def _last_day(inner: Constant | None) -> Constant | None:
    date = _as_date(inner.value) if inner is not None else None
    if inner is None or date is None:
        return None
    return Constant(date.replace(day=calendar.monthrange(date.year, date.month)[1]).isoformat(), inner.raw)


def _anonymous(node: exp.Anonymous, scope: Scope) -> Constant | None:
    name, arguments = node.name.lower(), node.expressions
    if name in _NOW_NAMES and len(arguments) <= 1:
        return Constant(Now())
    if name in ("date", "datetime", "julianday", "strftime", "timestamp", "unixepoch", "time") and arguments:
        if name == "strftime" and len(arguments) > 1:
            return _modified(arguments[1:], scope)
        return _modified(arguments, scope)
    if name in ("makedate", "make_date", "datefromparts", "date_from_parts") and len(arguments) == 3:
        values = [constant(a, scope) for a in arguments]
        if all(v is not None and isinstance(v.value, int) for v in values):
            text = "-".join(str(v.value) for v in values if v is not None)
            return Constant(normal_date(text) or text, (text,))
        return None
    if name in ("to_date", "todate", "todatetime", "to_timestamp", "str_to_date", "parsedatetimebesteffort") and arguments:
        return constant(arguments[0], scope)
    if name in ("dateadd", "date_add", "timestampadd") and len(arguments) == 3:
        return _shift(constant(arguments[2], scope), constant(arguments[1], scope), unit_name(arguments[0].name), 1)
    if (
        name in ("subtractdays", "subtractmonths", "subtractyears", "subtractweeks", "adddays", "addmonths", "addyears")
        and len(arguments) == 2
    ):
        sign = -1 if name.startswith("sub") else 1
        return _shift(
            constant(arguments[0], scope), constant(arguments[1], scope), unit_name(name[8:] if sign < 0 else name[3:]), sign
        )
    return _converted(node, scope)


def _modified(arguments: list[exp.Expr], scope: Scope) -> Constant | None:
    """SQLite's ``date(start, modifier, …)``."""
    first = constant(arguments[0], scope)
    if first is None:
        return None
    value: Value = Now() if first.value == "now" else first.value
    for modifier in arguments[1:]:
        if not isinstance(modifier, exp.Literal):
            return None
        text = modifier.name.strip().lower()
        if text.startswith("start of "):
            value = _cut(value, "trunc", text[9:])
            continue
        match = _INTERVAL.fullmatch(text)
        length = _counted(match[1], match[2]) if match and match[2] else None
        if length is not None:
            value = shifted(value, *length)
        elif text not in ("localtime", "utc", "auto", "unixepoch", "subsec"):
            return None
    return Constant(value, first.raw)
