"""What stands in a SELECT item or on one side of a comparison: columns, date parts, aggregates, windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from stef_core.extract.sql_render import function_name, text
from stef_core.extract.sql_scope import Base, Resolved, Scope, deref, made_pair
from stef_core.extract.sql_values import constant, date_form
from stef_core.records import Aggregation, Column, Condition, DatePart, DateTrunc, OrderKey, ScalarQuery, Window

ReadConditions: TypeAlias = Callable[[exp.Expr, Scope], tuple[Condition, ...]]

_AGGREGATES = {
    "approx_distinct": "count",
    "approx_count_distinct": "count",
    "uniq": "count",
    "uniqexact": "count",
    "uniqcombined": "count",
    "uniqhll12": "count",
    "hll": "count",
    "count_big": "count",
    "total": "sum",
    "sumorzero": "sum",
    "mean": "avg",
    "average": "avg",
    "array_unique_agg": "array_agg",
    "listagg": "group_concat",
    "string_agg": "group_concat",
    "stddev_samp": "stddev",
    "stdev": "stddev",
    "var_samp": "variance",
    "any_value": "any_value",
    "any": "any_value",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "max_by": "arg_max",
    "min_by": "arg_min",
}
_DISTINCT = frozenset({"approx_distinct", "approx_count_distinct", "uniq", "uniqexact", "uniqcombined", "uniqhll12", "hll"})
_ANONYMOUS = frozenset(
    "total count_big uniq uniqexact uniqcombined approx_count_distinct median mode listagg string_agg group_concat bool_or "
    "bool_and every stdev stdevp var varp percentile_cont percentile_disc any_value sumorzero max_by min_by mean average count "
    "sum avg min max argmax argmin grouparray sumif avgif countif minif maxif uniqif uniqexactif".split()
)
# wrappers that leave an aggregate the aggregate it is
_TRANSPARENT = (exp.Coalesce, exp.Cast, exp.TryCast, exp.Round, exp.Paren, exp.Alias, exp.Nullif)
NUMBER_TYPES = exp.DataType.NUMERIC_TYPES
_CASTS_DROPPED = NUMBER_TYPES | exp.DataType.TEXT_TYPES | exp.DataType.TEMPORAL_TYPES


@dataclass(slots=True)
class Operand:
    """One side of a comparison, resolved. ``key`` names the use of the base table that owns the column."""

    column: Column | None = None
    key: tuple[int, str] | None = None
    table: str | None = None
    agg: str | None = None
    distinct: bool = False
    agg_filter: tuple[Condition, ...] = ()
    window: str | None = None
    case: str = ""  # upper or lower, where the comparison folds the column
    outer: bool = False
    scope: Scope | None = None  # of the aggregate, where there is one
    plain: bool = False  # nothing but one base column


@dataclass(slots=True)
class Parts:
    """Leaves of an expression after every name was followed."""

    columns: list[Base] = field(default_factory=list)
    aggregates: list[tuple[exp.Expr, Scope]] = field(default_factory=list)
    windows: list[tuple[exp.Expr, Scope]] = field(default_factory=list)
    queries: list[tuple[exp.Expr, Scope]] = field(default_factory=list)
    literals: int = 0


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate call."""
    if isinstance(node, exp.AggFunc | exp.CountIf):
        return True
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        return is_aggregate(node.this)
    return isinstance(node, exp.Anonymous) and node.name.lower() in _ANONYMOUS


def parts_of(node: exp.Expr | Base, scope: Scope) -> Parts:
    """Base columns, aggregates, windows and subqueries of an expression; what an aggregate or a window holds is its own.

    The answer is shared between calls: it is not to be changed.
    """
    key = (id(node), scope.id, scope.mode)
    known = scope.reader.parts.get(key)
    if not isinstance(known, Parts) or isinstance(node, Base):
        known = _parts_of(node, scope)
        scope.reader.parts[key] = known
    return known


def _parts_of(node: exp.Expr | Base, scope: Scope) -> Parts:
    out = Parts()
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[exp.Expr | Base, Scope]] = [(node, scope)]
    while stack:
        at, where = stack.pop()
        if isinstance(at, Base):
            out.columns.append(at)
            continue
        mark = (id(at), where.id)
        if mark in seen:
            continue
        seen.add(mark)
        if isinstance(at, exp.Column):
            if isinstance(at.this, exp.Star) or constant(at, where) is not None:
                continue
            hit = deref(at, where)
            if hit.node is not at:
                stack.append((hit.node, hit.scope))
        elif isinstance(at, exp.Window):
            out.windows.append((at, where))
        elif is_aggregate(at):
            out.aggregates.append((at, where))
        elif isinstance(at, exp.Query):
            out.queries.append((at, where))
        elif isinstance(at, exp.Literal):
            out.literals += 1
        else:
            stack += [(child, where) for child in reversed(list(at.iter_expressions()))]
    return out


def column_of(node: exp.Expr | Base, scope: Scope) -> Column:
    """A column name, a date part, a truncated date, or the canonical text of an expression."""
    if isinstance(node, Base):
        return node.name
    hit = deref(node, scope)
    if isinstance(hit.node, Base):
        return hit.node.name
    form = date_form(hit.node)
    if form is not None:
        kind, unit, inner = form
        name = text(inner, hit.scope)
        return DatePart(part=unit, column=name) if kind == "part" else DateTrunc(unit=unit, column=name)
    inner_node = hit.node
    if isinstance(inner_node, exp.Cast) and inner_node.to.this in _CASTS_DROPPED:
        inner_hit = deref(inner_node.this, hit.scope)
        if isinstance(inner_hit.node, Base):
            return inner_hit.node.name
        if isinstance(inner_hit.node, exp.JSONExtract | exp.JSONExtractScalar):
            return text(inner_hit.node, inner_hit.scope)
    return text(hit.node, hit.scope)


def owner_of(node: exp.Expr | Base, scope: Scope) -> Base | None:
    """The one base column that an expression is about, or None if it is about several or none."""
    if isinstance(node, Base):
        return node
    parts = parts_of(node, scope)
    first = parts.columns[0] if parts.columns else None
    if first is None or parts.aggregates or parts.windows or parts.queries or any(c[1:] != first[1:] for c in parts.columns):
        return None
    return first


# --- aggregates -----------------------------------------------------------------------------------------------------


def core(node: exp.Expr, scope: Scope) -> Resolved:
    """`node` without the wrappers that leave an aggregate or a window what it is (NVL, CAST, ROUND)."""
    start = deref(node, scope)
    at, where, outer = start
    while not isinstance(at, Base) and isinstance(at, _TRANSPARENT):
        at, where, deeper = deref(at.this, where)
        outer = outer or deeper
    if not isinstance(at, Base) and (is_aggregate(at) or isinstance(at, exp.Window)):
        return Resolved(at, where, outer)
    return start


def aggregate(node: exp.Expr, scope: Scope, read: ReadConditions) -> Aggregation:
    """The aggregate that a call computes; SUM(CASE … 1 ELSE 0), COUNT(CASE …), FILTER and countIf are one thing."""
    written = text(node, scope)
    extra: tuple[Condition, ...] = ()
    order: exp.Expr | None = None
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(node, exp.Filter):
            extra += read(node.expression.this, scope)
        elif isinstance(node, exp.WithinGroup):
            order = node.expression
        node = node.this
    name = function_name(node)
    func = _AGGREGATES.get(name, name)
    if isinstance(node, exp.CountIf):
        return _made("count", "*", False, extra + read(node.this, scope), scope, written)
    arguments = _arguments(node)
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and name.endswith("if") and arguments:
        func = _AGGREGATES.get(name[:-2], name[:-2])
        extra += read(arguments[-1], scope)
        arguments = arguments[:-1]
        if not arguments:
            return _made("count", "*", False, extra, scope, written)
        return _made(func, arguments[0], name[:-2] in _DISTINCT, extra, scope, written)
    if order is not None and isinstance(order, exp.Order) and order.expressions:
        arguments = [order.expressions[0].this]
    argument = arguments[0] if arguments else None
    distinct = name in _DISTINCT
    if isinstance(argument, exp.Distinct):
        distinct = True
        items = argument.expressions
        argument = items[0]
        if len(items) > 1:
            argument = exp.Tuple(expressions=[e.copy() for e in items])
            scope.reader.made.append(argument)
    while isinstance(argument, exp.Order | exp.Limit | exp.HavingMax):
        argument = argument.this
        if isinstance(argument, exp.Distinct):
            distinct, argument = True, argument.expressions[0]
    if func == "count":
        return _count(argument, distinct, extra, scope, read, written)
    if argument is None:
        return _made(func, "*", distinct, extra, scope, written)
    if func == "sum" and not distinct:
        return _sum(argument, extra, scope, read, written)
    condition, kept, other = _conditional(argument, scope)
    if condition is not None and kept is not None and other is None:
        return _made(func, kept, distinct, extra + read(condition[0], condition[1]), scope, written)
    if func in ("min", "max"):
        distinct = False
    return _made(func, argument, distinct, extra, scope, written)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return list(node.expressions)
    first = node.args.get("this")
    return [first] if isinstance(first, exp.Expr) else list(node.expressions)


def _made(
    func: str, argument: exp.Expr | str, distinct: bool, conditions: tuple[Condition, ...], scope: Scope, written: str
) -> Aggregation:
    if isinstance(argument, str):
        return Aggregation(func=func, column=argument, distinct=distinct, filter=conditions, text=written)
    column = column_of(argument, scope)
    owner = owner_of(argument, scope)
    table = owner.table if owner is not None else None
    return Aggregation(func=func, column=column, distinct=distinct, filter=conditions, table=table, text=written)


def _number(node: exp.Expr | None, scope: Scope) -> int | float | None:
    if node is None:
        return None
    found = constant(node, scope)
    return found.value if found is not None and isinstance(found.value, int | float) else None


def _conditional(node: exp.Expr, scope: Scope) -> tuple[tuple[exp.Expr, Scope] | None, exp.Expr | None, exp.Expr | None]:
    """``(condition, THEN, ELSE)`` of a CASE or IF with one branch; ELSE NULL is no ELSE."""
    hit = deref(node, scope)
    at = hit.node
    if isinstance(at, exp.Case) and len(at.args["ifs"]) == 1:
        branch, default = at.args["ifs"][0], at.args.get("default")
        condition = branch.this if at.this is None else made_pair(exp.EQ, at.this, branch.this, hit.scope)
        return (condition, hit.scope), branch.args["true"], None if isinstance(default, exp.Null) else default
    if isinstance(at, exp.If):
        default = at.args.get("false")
        return (at.this, hit.scope), at.args["true"], None if isinstance(default, exp.Null) else default
    return None, None, None


def _count(
    argument: exp.Expr | None, distinct: bool, extra: tuple[Condition, ...], scope: Scope, read: ReadConditions, written: str
) -> Aggregation:
    if argument is None or isinstance(argument, exp.Star):
        return _made("count", "*", distinct, extra, scope, written)
    if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
        return _made("count", "*", distinct, extra, scope, written)
    fixed = constant(argument, scope)
    if fixed is not None and fixed.value is not None:
        return _made("count", "*", distinct, extra, scope, written)
    condition, kept, other = _conditional(argument, scope)
    if condition is not None and kept is not None and other is None:
        conditions = extra + read(*condition)
        if constant(kept, condition[1]) is not None:
            return _made("count", "*", distinct, conditions, scope, written)
        return _made("count", kept, distinct, conditions, condition[1], written)
    hit = deref(argument, scope)
    if isinstance(hit.node, exp.Or) and isinstance(hit.node.expression, exp.Null):
        return _made("count", "*", distinct, extra + read(hit.node.this, hit.scope), scope, written)
    return _made("count", argument, distinct, extra, scope, written)


def _sum(argument: exp.Expr, extra: tuple[Condition, ...], scope: Scope, read: ReadConditions, written: str) -> Aggregation:
    inner = deref(argument, scope)
    node, where = inner.node, inner.scope
    while isinstance(node, exp.Cast | exp.TryCast | exp.Coalesce):
        node, where, _ = deref(node.this, where)
    if not isinstance(node, Base):
        condition, kept, other = _conditional(node, where)
        if condition is not None and kept is not None and (other is None or _number(other, condition[1]) == 0):
            one = _number(kept, condition[1])
            if one == 1:
                return _made("count", "*", False, extra + read(*condition), scope, written)
            if one is None:
                return _made("sum", kept, False, extra + read(*condition), condition[1], written)
        if isinstance(node, exp.Predicate | exp.Not | exp.Connector) and not isinstance(node, exp.Query):
            return _made("count", "*", False, extra + read(node, where), scope, written)  # MySQL: SUM(status = 'open')
        fixed = _number(node, where)
        if fixed == 1:
            return _made("count", "*", False, extra, scope, written)
    return _made("sum", argument, False, extra, scope, written)


# --- windows and order ------------------------------------------------------------------------------------------------


def window(node: exp.Expr, scope: Scope) -> Window:
    """A window function with its partition, order and frame; the frame that is the default is left out."""
    call = node.this
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        call = call.this
    spec = scope.windows.get(node.alias.lower(), node) if node.alias else node
    partition = spec.args.get("partition_by") or node.args.get("partition_by") or ()
    order = spec.args.get("order") or node.args.get("order")
    name = function_name(call)
    func = _AGGREGATES.get(name, name)
    arguments = _arguments(call) if not isinstance(call, exp.RowNumber | exp.Rank | exp.DenseRank) else []
    column: Column | None = None
    if arguments:
        first = arguments[0]
        if isinstance(first, exp.Distinct):
            first = first.expressions[0]
        fixed = constant(first, scope)
        column = "*" if isinstance(first, exp.Star) or (func == "count" and fixed is not None) else column_of(first, scope)
        if func == "ntile":
            column = None
    return Window(
        func=func,
        column=column,
        partition_by=tuple(column_of(e, scope) for e in partition),
        order_by=tuple(order_key(o, scope) for o in order.expressions) if order is not None else (),
        frame=_frame(spec.args.get("spec") or node.args.get("spec"), order is not None),
    )


def _frame(spec: exp.Expr | None, ordered: bool) -> str | None:
    if spec is None:
        return None
    start, end = (
        _bound(spec.args.get("start"), spec.args.get("start_side")),
        _bound(spec.args.get("end"), spec.args.get("end_side")),
    )
    kind = str(spec.args.get("kind") or "rows").lower()
    frame = f"{kind} between {start} and {end or 'current row'}"
    if ordered and frame == "range between unbounded preceding and current row":
        return None
    return frame


def _bound(value: object, side: object) -> str:
    if value is None:
        return ""
    word = value.sql() if isinstance(value, exp.Expr) else str(value)
    return f"{word} {side}".lower() if side else word.lower()


def order_key(node: exp.Expr, scope: Scope) -> OrderKey:
    """One ORDER BY key; ``desc`` only where it is said."""
    direction: Literal["asc", "desc"] = "desc" if isinstance(node, exp.Ordered) and node.args.get("desc") else "asc"
    inner = node.this if isinstance(node, exp.Ordered) else node
    return replace(_key(inner, scope), dir=direction, text=text(inner, scope))


def _key(node: exp.Expr, scope: Scope) -> OrderKey:
    at, where, _ = core(node, scope)
    if isinstance(at, Base):
        return OrderKey(column=at.name)
    if isinstance(at, exp.Window):
        found = window(at, where)
        return OrderKey(window=found.func, column=found.column)
    if is_aggregate(at):
        from stef_core.extract.sql_conditions import (
            read_list,
        )  # conditions need terms, and a CASE in an aggregate needs conditions

        found_agg = aggregate(at, where, read_list)
        if not found_agg.filter:
            return OrderKey(
                agg="count_distinct" if found_agg.distinct and found_agg.func == "count" else found_agg.func,
                column=found_agg.column,
            )
        return OrderKey(column=text(at, where))
    if isinstance(at, exp.Query):
        from stef_core.extract.sql_spec import query_value  # a subquery is a query

        found_value = query_value(at, where)
        if isinstance(found_value, ScalarQuery):
            return OrderKey(agg=found_value.func, column=found_value.column)
    return OrderKey(column=column_of(at, where))
