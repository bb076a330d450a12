"""What is wrong or doubtful in a SELECT whatever was asked."""

from __future__ import annotations

import re

from sqlglot import exp

from stef_core.extract.sql_render import text
from stef_core.extract.sql_scope import Base, Reader, Scope, Source, deref, open_subquery, source_of
from stef_core.extract.sql_terms import Parts, is_aggregate
from stef_core.extract.sql_values import constant
from stef_core.records import AllOf, AnyOf, Column, Condition, Filter

# dialects in which 1 / 2 is 0
INTEGER_DIVISION = frozenset(
    "postgres redshift sqlite tsql fabric trino presto athena teradata materialize risingwave dune db2 drill".split()
)
_TIMESTAMP_NAME = re.compile(r"(_at$|_ts$|time|timestamp|datetime)")
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}")


def check_select(scope: Scope, parts: Parts, groups: tuple[Column, ...]) -> None:
    """Note the defects of one SELECT."""
    own = [node for node, where in parts.aggregates if where.id == scope.id]
    _check_grouping(scope, parts, own)
    for item in scope.node.expressions:
        for node in item.find_all(exp.Div, exp.Avg, exp.Count, exp.Sum):
            if node.find_ancestor(exp.Select) is not scope.node:
                continue
            if isinstance(node, exp.Div):
                _check_division(node, scope)
            else:
                _check_else(node, scope)
                _check_average(node, scope)
    _check_count_star(scope, own, groups)


def _check_grouping(scope: Scope, parts: Parts, own: list[exp.Expr]) -> None:
    if not own or scope.node.args.get("group") is not None or scope.node.args.get("distinct") is not None:
        return
    plain = []
    for item in scope.node.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        hit = deref(inner, scope)
        if isinstance(hit.node, Base | exp.Star) or (
            hit.node.find(exp.Column) is not None and not any(_counts_or_asks(n) for n in hit.node.walk())
        ):
            plain.append(text(inner, scope))
    if not plain or not scope.sources:
        return
    # SQLite takes the bare columns from the row that holds the one MIN or MAX
    if scope.reader.dialect == "sqlite" and len(own) == 1 and isinstance(own[0], exp.Min | exp.Max):
        return
    # SQLite and MySQL run it: where an equality pins the rows, the arbitrary row is often the only one
    where = scope.node.args.get("where")
    pinned = scope.reader.dialect in ("sqlite", "mysql") and where is not None and _pins(where, scope)
    scope.reader.defect(
        "missing_group_by",
        "missing_group_by",
        f"{', '.join(plain[:3])} stands beside an aggregate without GROUP BY: an error, or one arbitrary row",
        part=", ".join(plain[:3]),
        fatal=not pinned,
    )


def _pins(where: exp.Expr, scope: Scope) -> bool:
    """Whether an equality holds a column to a value; one that ties two tables pins nothing."""
    return any(not (_is_base(e.this, scope) and _is_base(e.expression, scope)) for e in where.find_all(exp.EQ))


def _is_base(node: exp.Expr, scope: Scope) -> bool:
    return isinstance(node, exp.Column) and constant(node, scope) is None


def _counts_or_asks(node: exp.Expr) -> bool:
    return is_aggregate(node) or isinstance(node, exp.Window | exp.Query)


def _check_division(node: exp.Div, scope: Scope) -> None:
    dialect = scope.reader.dialect
    if dialect not in INTEGER_DIVISION:
        return
    top, bottom = _integer(node.this, scope), _integer(node.expression, scope)
    if top is None or bottom is None or not (top and bottom) or "aggregate" not in (top, bottom):
        return
    scaled = node.this.find(exp.Mul) is not None
    scope.reader.defect(
        "integer_division",
        "extra_transformation",
        f"{text(node, scope)} divides whole numbers in {dialect}: the fraction is cut off",
        part=text(node, scope)[:200],
        fatal=not scaled,
    )


def _integer(node: exp.Expr, scope: Scope) -> str | None:
    """``aggregate`` or ``literal`` where an expression is surely a whole number, else None."""
    hit = deref(node, scope)
    at, where = hit.node, hit.scope
    if isinstance(at, Base):
        return None
    if isinstance(at, exp.Filter | exp.Coalesce | exp.Nullif | exp.Abs):
        return _integer(at.this, where)
    if isinstance(at, exp.Count | exp.CountIf | exp.ApproxDistinct):
        return "aggregate"
    if isinstance(at, exp.Sum):
        inner = deref(at.this, where)
        return "aggregate" if not isinstance(inner.node, Base) and _whole_case(inner.node, inner.scope) else None
    if isinstance(at, exp.Literal):
        return "literal" if not at.is_string and str(at.this).isdigit() else None
    if isinstance(at, exp.Mul | exp.Add | exp.Sub):
        left, right = _integer(at.this, where), _integer(at.expression, where)
        if left and right:
            return "aggregate" if "aggregate" in (left, right) else "literal"
        return None
    if isinstance(at, exp.Cast):
        return "aggregate" if at.to.this in exp.DataType.INTEGER_TYPES else None
    if isinstance(at, exp.Subquery | exp.Select):
        query = open_subquery(at, where)
        if isinstance(query, Scope) and len(query.node.expressions) == 1:
            item = deref(query.node.expressions[0], query).node
            return "aggregate" if isinstance(item, exp.Count) else None
    return None


def _whole_case(node: exp.Expr, scope: Scope) -> bool:
    if not isinstance(node, exp.Case | exp.If):
        return isinstance(node, exp.Predicate) and not isinstance(node, exp.Query)
    branches = node.args.get("ifs") or [node]
    values = [b.args.get("true") for b in branches] + [node.args.get("default" if isinstance(node, exp.Case) else "false")]
    for value in values:
        found = constant(value, scope) if value is not None else None
        if value is not None and (found is None or (found.value is not None and not isinstance(found.value, int))):
            return False
        if found is not None and any("." in raw for raw in found.raw):
            return False
    return True


def _check_else(node: exp.Expr, scope: Scope) -> None:
    inner = node.this
    distinct = False
    if isinstance(inner, exp.Distinct):
        distinct = True
        inner = inner.expressions[0]
    if not isinstance(inner, exp.Expr):
        return
    hit = deref(inner, scope)
    at = hit.node
    if not isinstance(at, exp.Case | exp.If):
        return
    default = at.args.get("default" if isinstance(at, exp.Case) else "false")
    fixed = constant(default, hit.scope) if default is not None else None
    if fixed is None or fixed.value is None:
        return
    then = (at.args.get("ifs") or [at])[0].args.get("true")
    then_fixed = constant(then, hit.scope) if then is not None else None
    part = text(node, scope)[:200]
    if isinstance(node, exp.Count):
        what = f"counts {fixed.value!r} as one more value" if distinct else "counts every row, those of ELSE too"
        scope.reader.defect("else_in_count", "wrong_aggregation", f"{part} {what}: ELSE is not NULL", part=part, fatal=True)
    elif isinstance(node, exp.Avg) and then_fixed is None and fixed.value == 0:
        scope.reader.defect(
            "else_in_count",
            "wrong_aggregation",
            f"{part} averages the rows of ELSE in as {fixed.value!r}",
            part=part,
            fatal=True,
        )


def _check_average(node: exp.Expr, scope: Scope) -> None:
    if not isinstance(node, exp.Avg):
        return
    hit = deref(node.this, scope)
    if isinstance(hit.node, exp.Avg) and hit.scope.id != scope.id:
        scope.reader.defect(
            "avg_of_avg",
            "wrong_aggregation",
            "an average of averages weighs every group alike, however many rows it has",
            part=text(node, scope)[:200],
        )


def _check_count_star(scope: Scope, own: list[exp.Expr], groups: tuple[Column, ...]) -> None:
    optional = [s for s in scope.sources.values() if s.optional]
    group = scope.node.args.get("group")
    if not optional or group is None or not groups or len(optional) == len(scope.sources):
        return
    stars = [n for n in own if isinstance(n, exp.Count) and isinstance(n.this, exp.Star | exp.Literal)]
    if not stars or not all(_of_preserved(item, scope) for item in group.expressions):
        return
    where = scope.node.args.get("where")
    if where is not None and any(_source(c, scope) in optional for c in where.find_all(exp.Column)):
        return
    scope.reader.defect(
        "count_star_outer_join",
        "wrong_aggregation",
        "COUNT(*) over an outer join counts 1 where there is no match; counting a column of the joined table gives 0",
        part="count(*)",
        fatal=True,
    )


def _source(column: exp.Column, scope: Scope) -> Source | None:
    return source_of(column, scope)


def _of_preserved(item: exp.Expr, scope: Scope) -> bool:
    columns = list(item.find_all(exp.Column))
    if not columns:
        return False
    for column in columns:
        source = source_of(column, scope)
        if source is None or source.optional:
            return False
    return True


def check_filters(conditions: tuple[Condition, ...], reader: Reader) -> None:
    """Note upper bounds that may cut off the last day of a period."""
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            check_filters(condition.conditions, reader)
        elif isinstance(condition, Filter):
            _check_upper_bound(condition, reader)


def _check_upper_bound(condition: Filter, reader: Reader) -> None:
    column = condition.column
    if not isinstance(column, str) or not _TIMESTAMP_NAME.search(column) or condition.agg:
        return
    value = condition.value
    upper = (
        value[1]
        if condition.op == "between" and isinstance(value, tuple) and len(value) == 2
        else value
        if condition.op == "<="
        else None
    )
    if isinstance(upper, str) and _DATE_ONLY.fullmatch(upper):
        reader.defect(
            "date_upper_bound",
            "wrong_filter_value",
            f"{column} looks like a point in time: up to {upper} ends at midnight, and the rest of that day is cut off",
            part=condition.text or f"{column} <= {upper}",
        )
