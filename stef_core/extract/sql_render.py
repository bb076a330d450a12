"""Expressions as canonical lower-case text: names resolved, one spelling whatever the dialect, case or layout."""

from __future__ import annotations

from sqlglot import exp

from stef_core.extract.sql_scope import Base, Scope, SetQuery, deref, open_subquery
from stef_core.extract.sql_values import IMPLICIT, date_form, is_quoted_text
from stef_core.normalize import normal_text, normal_value

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "//",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "and",
    exp.Or: "or",
    exp.Like: "like",
    exp.ILike: "like",
    exp.Is: "is",
    exp.DPipe: "||",
    exp.NullSafeEQ: "is not distinct from",
}
_MAX = 1500  # a longer text is cut: chains of CTEs can double it at every step
_SKIPPED = {
    "big_int",
    "safe",
    "is_nvl",
    "typed",
    "nulls_first",
    "_type",
    "return_type",
    "input_type_preserved",
    "sysdate",
    "wrapped",
}
_TYPES = {
    "int": "int",
    "bigint": "int",
    "smallint": "int",
    "tinyint": "int",
    "float": "float",
    "double": "float",
    "real": "float",
    "decimal": "float",
    "numeric": "float",
    "bigdecimal": "float",
    "varchar": "text",
    "char": "text",
    "nvarchar": "text",
    "nchar": "text",
    "text": "text",
}


def type_name(node: exp.Expr) -> str:
    """A data type by its family: ``int``, ``float``, ``text`` or its own lower-case name."""
    kind = node.this
    name = str(kind.value if isinstance(kind, exp.DType) else kind).lower()
    return _TYPES.get(name, name)


def text(node: exp.Expr | Base, scope: Scope) -> str:
    """Canonical lower-case text of an expression, at most some 1,500 characters long."""
    if isinstance(node, Base):
        return node.name
    key = (id(node), scope.id, scope.mode)
    known = scope.reader.texts.get(key)
    if known is None:
        known = _text(node, scope)
        if len(known) > _MAX:
            known = known[:_MAX] + "…"
        scope.reader.texts[key] = known
    return known


def _text(node: exp.Expr, scope: Scope) -> str:
    if isinstance(node, exp.Column):
        if isinstance(node.this, exp.Star):
            return "*"
        if is_quoted_text(node, scope):
            return _quoted(node.name)
        hit = deref(node, scope)
        if isinstance(hit.node, exp.Column):
            return normal_text(hit.node.name)
        return _inner(hit.node, hit.scope)
    if isinstance(node, exp.Literal):
        value = normal_value(str(node.this))
        return _quoted(node.this) if node.is_string and isinstance(value, str) else str(value)
    if isinstance(node, exp.Alias | exp.Paren | exp.Distinct) and not node.args.get("on"):
        if isinstance(node, exp.Distinct):
            return "distinct " + ", ".join(text(e, scope) for e in node.expressions)
        return text(node.this, scope)
    operator = _BINARY.get(type(node))
    if operator is not None:
        return _chain(node, operator, scope)
    if isinstance(node, exp.Query | exp.Subquery):
        return _query_text(node, scope)
    if isinstance(node, IMPLICIT) and node.this is not None:
        return text(node.this, scope)
    form = date_form(node)
    if form is not None:
        kind, unit, inner = form
        return f"{unit}({text(inner, scope)})" if kind == "part" else f"{unit}_of({text(inner, scope)})"
    return _function(node, scope)


def _quoted(value: object) -> str:
    return "'" + normal_text(str(value)).replace("'", "''") + "'"


def _inner(node: exp.Expr | Base, scope: Scope) -> str:
    """An operand, in parentheses where it is an operation itself."""
    out = text(node, scope)
    if isinstance(node, Base):
        return out
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    return f"({out})" if type(node) in _BINARY else out


def _chain(node: exp.Expr, operator: str, scope: Scope) -> str:
    kind = type(node)
    parts: list[str] = []
    at = node
    while type(at) is kind:  # left-leaning chains are walked without recursion
        parts.append(_inner(at.expression, scope))
        at = at.this
    parts.append(_inner(at, scope))
    parts.reverse()
    if kind in (exp.And, exp.Or):
        parts.sort()
    return f" {operator} ".join(parts)


def _query_text(node: exp.Expr, scope: Scope) -> str:
    relation = open_subquery(node, scope)
    first = relation
    while isinstance(first, SetQuery):
        first = first.operands[0]
    if first is None:
        return "(query)"
    outputs = ", ".join(_inner(item, first) for _, item in first.outputs) or "*"
    tables = ", ".join(s.table or "(query)" for s in first.sources.values())
    where, group = first.node.args.get("where"), first.node.args.get("group")
    out = f"({outputs}" + (f" from {tables}" if tables else "")
    out += f" where {text(where.this, first)}" if where is not None else ""
    out += f" group by {', '.join(text(e, first) for e in group.expressions)}" if group is not None else ""
    return out + ")"


def function_name(node: exp.Expr) -> str:
    """The lower-case name of a function, the same in every dialect that sqlglot reads."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return node.name.lower()
    if isinstance(node, exp.Func):
        return node.sql_names()[0].lower()
    return type(node).__name__.lower()


def _function(node: exp.Expr, scope: Scope) -> str:
    if isinstance(node, exp.Star):
        return "*"
    if isinstance(node, exp.Null):
        return "null"
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if isinstance(node, exp.Neg):
        return f"-{_inner(node.this, scope)}"
    if isinstance(node, exp.Not):
        return f"not {_inner(node.this, scope)}"
    if isinstance(node, exp.Cast):
        return f"cast({text(node.this, scope)} as {type_name(node.to)})"
    if isinstance(node, exp.Case | exp.If):
        return _case(node, scope)
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar) and isinstance(node.expression, exp.JSONPath):
        steps = [str(step.this).lower() for step in node.expression.expressions if step.args.get("this") is not None]
        return ".".join([text(node.this, scope), *steps])
    if isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Literal)):
        return "count(*)"
    if isinstance(node, exp.Filter):
        return f"{text(node.this, scope)} filter ({text(node.expression.this, scope)})"
    if isinstance(node, exp.Tuple):
        return "(" + ", ".join(text(e, scope) for e in node.expressions) + ")"
    if isinstance(node, exp.Window):
        return _window(node, scope)
    if isinstance(node, exp.Ordered):
        return text(node.this, scope) + (" desc" if node.args.get("desc") else "")
    if isinstance(node, exp.Var | exp.Identifier | exp.Placeholder | exp.Parameter | exp.DataType):
        return normal_text(node.name)
    if isinstance(node, exp.Dot):
        return f"{text(node.this, scope)}.{normal_text(node.name)}"
    return f"{function_name(node)}({', '.join(_arguments(node, scope))})"


def _arguments(node: exp.Expr, scope: Scope) -> list[str]:
    out: list[str] = []
    for key, value in node.args.items():
        if (
            key in _SKIPPED
            or value is None
            or value is False
            or (isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and key == "this")
        ):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr):
                out.append(text(item, scope))
            elif item is not True:
                out.append(str(item).lower())
    return out


def _case(node: exp.Expr, scope: Scope) -> str:
    branches = node.args.get("ifs") or [node]
    subject = text(node.this, scope) + " = " if isinstance(node, exp.Case) and node.this is not None else ""
    out = "case"
    for branch in branches:
        out += f" when {subject}{text(branch.this, scope)} then {text(branch.args['true'], scope)}"
    default = node.args.get("default" if isinstance(node, exp.Case) else "false")
    return out + (f" else {text(default, scope)}" if default is not None and not isinstance(default, exp.Null) else "") + " end"


def _window(node: exp.Window, scope: Scope) -> str:
    named = scope.windows.get(normal_text(node.alias)) if node.alias else None
    spec = named or node
    parts = []
    if spec.args.get("partition_by"):
        parts.append("partition by " + ", ".join(text(e, scope) for e in spec.args["partition_by"]))
    if spec.args.get("order") is not None:
        parts.append("order by " + ", ".join(text(e, scope) for e in spec.args["order"].expressions))
    return f"{text(node.this, scope)} over ({' '.join(parts)})"
