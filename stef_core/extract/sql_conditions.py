"""Conditions of SQL in normal form: NOT pushed inwards, one spelling for what means the same (method.md section 2)."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from stef_core.extract.sql_render import text
from stef_core.extract.sql_scope import Base, Scope, SetQuery, deref, made_pair, open_subquery
from stef_core.extract.sql_terms import Operand, aggregate, column_of, core, is_aggregate, owner_of, parts_of, window
from stef_core.extract.sql_values import IMPLICIT, Constant, constant, date_form, form_value
from stef_core.normalize import normal_name, normal_text, normal_value
from stef_core.records import (
    AllOf,
    AnyOf,
    ColumnValue,
    Condition,
    DatePart,
    DateTrunc,
    Filter,
    JoinEdge,
    Now,
    Parameter,
    ScalarQuery,
    SubQuery,
    Value,
)

TRUE = AllOf(conditions=())
FALSE = AnyOf(conditions=())

_OPS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<!>",
    exp.EqualNull: "<=>",
}
_NEGATED = {"=": "!=", "!=": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<", "<=>": "<!>", "<!>": "<=>"}
_FLIPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_BACKSLASH = frozenset(
    {"mysql", "postgres", "redshift", "bigquery", "spark", "databricks", "hive", "clickhouse", "doris", "starrocks"}
)
# text comparisons that ignore case by default: LIKE everywhere in SQLite, all of them under the usual collations of the others
_EQUALITY_FOLDS = frozenset({"mysql", "tsql", "fabric", "doris", "starrocks"})
_LIKE_FOLDS = _EQUALITY_FOLDS | {"sqlite"}
_FINDERS = ("instr", "charindex", "locate", "strpos", "position", "positioncaseinsensitive")


def read_list(node: exp.Expr, scope: Scope) -> tuple[Condition, ...]:
    """The conditions of an expression, as a list joined by AND."""
    return as_list(read_condition(node, scope))


def as_list(condition: Condition) -> tuple[Condition, ...]:
    """A condition as a list joined by AND; a constant truth is the empty list."""
    if isinstance(condition, AllOf):
        return condition.conditions
    return (condition,)


def read_condition(
    node: exp.Expr, scope: Scope, *, negated: bool = False, clause: str = "where", edges: list[JoinEdge] | None = None
) -> Condition:
    """One condition in normal form.

    Args:
        node: The expression.
        scope: Where its names are read.
        negated: Read NOT of it.
        clause: Kept as evidence.
        edges: Where equalities between two tables go; None inside OR and CASE, where they are conditions.
    """
    node, negated = _stripped(node, negated)
    if isinstance(node, exp.And | exp.Or):
        return _connected(node, scope, negated, clause, edges)
    op = _OPS.get(type(node))
    if op is not None:
        return _compared(node, _NEGATED[op] if negated else op, scope, clause, edges)
    if isinstance(node, exp.In):
        return _in(node, scope, negated, clause)
    if isinstance(node, exp.Is):
        return _is(node, scope, negated, clause)
    if isinstance(node, exp.Between):
        return _between(node, scope, negated, clause)
    if isinstance(node, exp.Exists):
        return _exists(node, scope, negated, clause)
    if isinstance(node, exp.Boolean):
        return TRUE if bool(node.this) != negated else FALSE
    if isinstance(node, exp.Null):
        return FALSE
    pattern = _pattern(node, scope, negated, clause)
    if pattern is not None:
        return pattern
    return _truth(node, scope, negated, clause)


def _stripped(node: exp.Expr, negated: bool) -> tuple[exp.Expr, bool]:
    while True:
        if isinstance(node, exp.Paren | exp.Where | exp.Having | exp.Qualify):
            node = node.this
        elif isinstance(node, exp.Not):
            node, negated = node.this, not negated
        else:
            return node, negated


def _connected(node: exp.Expr, scope: Scope, negated: bool, clause: str, edges: list[JoinEdge] | None) -> Condition:
    kind = exp.And if isinstance(node, exp.And) else exp.Or
    conjunctive = (kind is exp.And) != negated
    leaves: list[exp.Expr] = []
    stack = [node]
    while stack:  # chains of thousands lean left: no recursion
        at = stack.pop()
        inner = at
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, kind):
            stack += [inner.expression, inner.this]
        else:
            leaves.append(at)
    inner_edges = edges if conjunctive and not negated else None
    read = [read_condition(leaf, scope, negated=negated, clause=clause, edges=inner_edges) for leaf in leaves]
    return all_of(read, scope) if conjunctive else any_of(read, scope)


# --- AND and OR -----------------------------------------------------------------------------------------------------


def _flat(conditions: list[Condition], kind: type[AllOf] | type[AnyOf]) -> list[Condition]:
    out: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, kind):
            out += condition.conditions
        else:
            out.append(condition)
    return out


def all_of(conditions: list[Condition], scope: Scope) -> Condition:
    """AND: nested ANDs flattened, truths dropped, ``!=`` on one column gathered into ``not_in``."""
    if FALSE in conditions:
        return FALSE
    flat = _unique(_merged(_flat(conditions, AllOf), scope, "!=", "not_in"), scope)
    return flat[0] if len(flat) == 1 else AllOf(conditions=tuple(flat))


def any_of(conditions: list[Condition], scope: Scope) -> Condition:
    """OR: nested ORs flattened, falsehoods dropped, ``=`` on one column gathered into ``in``."""
    if TRUE in conditions:
        if any(c != TRUE for c in conditions):
            scope.reader.defect(
                "always_true",
                "wrong_filter_operator",
                "OR with a condition that is always true lets every row pass",
                fatal=True,
            )
        return TRUE
    flat = _unique(_merged(_flat(conditions, AnyOf), scope, "=", "in"), scope)
    _check_always_true(flat, scope)
    common = _common(flat)
    if common:
        rest = [tuple(c for c in as_list(f) if c not in common) for f in flat]
        if not all(rest):
            return all_of(common, scope)  # (a AND b) OR a
        return all_of([*common, any_of([all_of(list(r), scope) for r in rest], scope)], scope)
    return flat[0] if len(flat) == 1 else AnyOf(conditions=tuple(flat))


def _common(conditions: list[Condition]) -> list[Condition]:
    """What every alternative demands: ``(a AND b) OR (a AND c)`` is ``a AND (b OR c)``."""
    if len(conditions) < 2 or not any(isinstance(c, AllOf) for c in conditions):
        return []
    shared = set(as_list(conditions[0])).intersection(*(as_list(other) for other in conditions[1:]))
    return [c for c in as_list(conditions[0]) if c in shared]


def _unique(conditions: list[Condition], scope: Scope) -> list[Condition]:
    if len(conditions) < 2:
        return conditions
    owners = scope.reader.owners
    # of two uses of one table, the same condition on each is two conditions
    return list({(c, owners.get(id(c), (None, None))[0]): c for c in conditions}.values())


def _same_operand(condition: Condition, scope: Scope) -> tuple[object, ...] | None:
    if not isinstance(condition, Filter):
        return None
    key = scope.reader.owners.get(id(condition), (None, None))[0]
    return (condition.column, condition.agg, condition.window, condition.distinct, key)


def _listable(value: Value) -> bool:
    return value is not None and not isinstance(value, ColumnValue | ScalarQuery | SubQuery | Now)


def _merged(conditions: list[Condition], scope: Scope, single: str, several: str) -> list[Condition]:
    """``=`` joined by OR into ``in``, or ``!=`` joined by AND into ``not_in``."""
    groups: dict[tuple[object, ...], list[Filter]] = {}
    for condition in conditions:
        key = _same_operand(condition, scope)
        if key is None or not isinstance(condition, Filter) or condition.op not in (single, several):
            continue
        if isinstance(condition.value, tuple) or _listable(condition.value):
            groups.setdefault(key, []).append(condition)
    if not any(len(g) > 1 for g in groups.values()):
        return conditions
    heads = {id(g[0]): g for g in groups.values() if len(g) > 1}
    followers = {id(item) for g in heads.values() for item in g[1:]}
    out: list[Condition] = []
    for condition in conditions:
        if id(condition) in heads:
            out.append(_gathered(heads[id(condition)], several, single, scope))
        elif id(condition) not in followers:
            out.append(condition)
    return out


def _gathered(group: list[Filter], several: str, single: str, scope: Scope) -> Filter:
    values: list[Value] = []
    for item in group:
        values += item.value if isinstance(item.value, tuple) else (item.value,)
    listed = _sorted(values)
    raw = tuple(r for item in group for r in item.raw)
    first = group[0]
    op, value = (several, listed) if len(listed) > 1 else (single, listed[0])
    made = replace(first, op=op, value=value, raw=raw, text=" / ".join(g.text for g in group[:20])[:400])
    return keep(made, scope, *scope.reader.owners.get(id(first), ((-1, ""), None)))


def _sorted(values: list[Value]) -> tuple[Value, ...]:
    """Values of a list: each once, in one order (OR has none). ``1`` and ``True`` stay apart."""
    kept = {(type(v) is bool, v if v != Parameter() else i): v for i, v in enumerate(values)}  # each `?` is a value of its own
    return tuple(sorted(kept.values(), key=repr))


def _check_always_true(conditions: list[Condition], scope: Scope) -> None:
    unequal: dict[tuple[object, ...], set[Value]] = {}
    for condition in conditions:
        if isinstance(condition, Filter) and condition.op == "!=" and _listable(condition.value):
            key = _same_operand(condition, scope)
            if key is not None:
                unequal.setdefault(key, set()).add(condition.value)
    for key, values in unequal.items():
        if len(values) > 1:
            scope.reader.defect(
                "always_true",
                "wrong_filter_operator",
                f"{_shown(key[0])} always differs from one of {_listed(values)}: OR between the two lets every row pass",
                part=str(_shown(key[0])),
                fatal=True,
            )


def check_contradictions(conditions: tuple[Condition, ...], scope: Scope) -> None:
    """Note conditions of one AND that no row can meet together."""
    if len(conditions) < 2:
        return
    groups: dict[tuple[object, ...], list[Filter]] = {}
    for condition in conditions:
        key = _same_operand(condition, scope)
        if key is not None and isinstance(condition, Filter) and (condition.agg or key[4] is not None):
            groups.setdefault(key, []).append(condition)
    for key, group in groups.items():
        if len(group) > 1:
            problem = _contradiction(group)
            if problem:
                scope.reader.defect(
                    "contradiction", "wrong_filter_operator", f"no row can meet {problem}", part=str(_shown(key[0])), fatal=True
                )


def _contradiction(group: list[Filter]) -> str | None:
    name = _shown(group[0].column)
    allowed: set[Value] | None = None
    for item in group:
        if item.op in ("=", "in"):
            values: set[Value] = set(item.value) if isinstance(item.value, tuple) else {item.value}
            if not all(_listable(v) for v in values):
                continue
            before, allowed = allowed, values if allowed is None else allowed & values
            if not allowed:
                return f"{name} {_shown_in(before or set())} and {name} {_shown_in(values)} at once"
    low = high = None
    strict = False
    for item in group:
        bounds = [(item.op, item.value)]
        if item.op == "between" and isinstance(item.value, tuple) and len(item.value) == 2:
            bounds = [(">=", item.value[0]), ("<=", item.value[1])]
        for op, value in bounds:
            if not isinstance(value, int | float | str) or isinstance(value, bool):
                continue
            if op in (">", ">=") and (low is None or _less(low, value)):
                low = value
            if op in ("<", "<=") and (high is None or _less(value, high)):
                high = value
            strict = strict or op in ("<", ">")
    if low is not None and high is not None and (_less(high, low) or (strict and low == high)):
        return f"{name} from {low} and up to {high} at once"
    if allowed:
        for value in allowed:
            inside = (low is None or not _less(value, low)) and (high is None or not _less(high, value))
            if inside and not any(i.op in ("!=", "not_in") and _among(value, i.value) for i in group):
                return None
        return f"{name} {_shown_in(allowed)} together with its other conditions"
    return None


def _among(value: Value, values: Value) -> bool:
    return value in values if isinstance(values, tuple) else value == values


def _less(a: Value, b: Value) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        # texts are compared only as dates: collations differ
        return bool(re.match(r"\d{4}-", a) and re.match(r"\d{4}-", b)) and a < b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a < b
    return False


def _shown(column: object) -> str:
    if isinstance(column, DatePart):
        return f"{column.part}({column.column})"
    if isinstance(column, DateTrunc):
        return f"{column.column} by {column.unit}"
    return str(column)


def _listed(values: set[Value]) -> str:
    return " and ".join(sorted(repr(v) for v in values))


def _shown_in(values: set[Value]) -> str:
    return ("= " if len(values) == 1 else "in ") + ", ".join(sorted(repr(v) for v in values)[:4])


# --- operands -------------------------------------------------------------------------------------------------------


def keep(made: Filter, scope: Scope, key: tuple[int, str] | None, table: str | None) -> Filter:
    """Remember which use of a table a filter is about, for as long as this reading lasts."""
    if key is not None:
        scope.reader.owners[id(made)] = (key, table)
        scope.reader.kept.append(made)
    return made


def operand(node: exp.Expr, scope: Scope) -> Operand:
    """One side of a comparison, resolved; case folding and casts around a plain column fall away."""
    at, where, outer = core(node, scope)
    case = ""
    while not isinstance(at, Base):
        if isinstance(at, exp.Upper | exp.Lower | exp.Trim | exp.Collate):
            case = "upper" if isinstance(at, exp.Upper) else "lower" if isinstance(at, exp.Lower) else case
        elif isinstance(at, exp.Cast) and isinstance(at.this, exp.JSONExtract | exp.JSONExtractScalar):
            at = at.this
            break
        elif not ((isinstance(at, exp.Cast) and date_form(at) is None) or (isinstance(at, IMPLICIT) and at.this is not None)):
            break
        inner = core(at.this, where)
        if not isinstance(inner.node, Base | exp.Upper | exp.Lower | exp.Trim | exp.Cast | exp.Collate) and not isinstance(
            inner.node, IMPLICIT
        ):
            break
        at, where, deeper = inner
        outer = outer or deeper
    if isinstance(at, Base):
        return Operand(column=at.name, key=at.key, table=at.table, case=case, outer=outer, plain=True)
    if isinstance(at, exp.Window):
        found = window(at, where)
        return Operand(window=found.func, outer=outer, scope=where, key=(where.id, "window"))
    if is_aggregate(at):
        made = aggregate(at, where, read_list)
        column = made.column if not made.filter else text(at, where)
        return Operand(
            column=column,
            agg=made.func,
            distinct=made.distinct,
            agg_filter=made.filter,
            table=made.table,
            outer=outer,
            scope=where,
            key=(where.id, "agg"),
        )
    parts = parts_of(at, where)
    owner = owner_of(at, where)
    if owner is None and (parts.aggregates or parts.windows):
        return Operand(column=text(at, where), outer=outer, key=(where.id, "having"), scope=where)
    key = owner.key if owner is not None else None
    return Operand(column=column_of(at, where), key=key, table=owner.table if owner else None, outer=outer, case=case)


def _filter(
    left: Operand, op: str, value: Value, scope: Scope, *, raw: tuple[str, ...] = (), part: str = "", clause: str = "where"
) -> Filter:
    if isinstance(left.column, DatePart | DateTrunc):
        value = tuple(form_value(left.column, v) for v in value) if isinstance(value, tuple) else form_value(left.column, value)
    if left.agg and clause == "where":
        clause = "having"
    elif left.window:
        clause = "qualify"
    made = Filter(
        column=None if left.window else left.column,
        op=op,
        value=value,
        agg=left.agg,
        window=left.window,
        distinct=left.distinct,
        table=left.table,
        raw=raw,
        text=part,
        clause=clause,
        level=scope.level,
    )
    return keep(made, scope, left.key, left.table)


# --- comparisons ----------------------------------------------------------------------------------------------------


def _compared(node: exp.Expr, op: str, scope: Scope, clause: str, edges: list[JoinEdge] | None) -> Condition:
    left, right = node.this, node.expression
    named = isinstance(right, exp.Anonymous) and right.name.lower() in ("any", "all", "some") and len(right.expressions) == 1
    if named or isinstance(right, exp.Any | exp.All):
        return _quantified(left, op, right, scope, clause)
    if (
        isinstance(left, exp.Tuple)
        and isinstance(right, exp.Tuple)
        and op in ("=", "!=")
        and len(left.expressions) == len(right.expressions)
    ):
        pairs = [made_pair(exp.EQ, a, b, scope) for a, b in zip(left.expressions, right.expressions, strict=True)]
        read = [read_condition(p, scope, negated=op == "!=", clause=clause) for p in pairs]
        return all_of(read, scope) if op == "=" else any_of(read, scope)
    b = constant(right, scope)
    a = constant(left, scope)
    if a is not None and b is not None:
        return _constant_truth(a, op, b)
    if a is not None:
        left, right, op = right, left, _FLIPPED.get(op, op)
        b = a
    part = f"{text(left, scope)} {op} {text(right, scope)}"[:400]
    if b is not None:
        return _with_constant(left, op, b, scope, clause, part)
    return _with_expression(left, op, right, scope, clause, part, edges)


def _constant_truth(a: Constant, op: str, b: Constant) -> Condition:
    if a.value is None or b.value is None:
        return FALSE if op in _FLIPPED or op in ("=", "!=") else TRUE if (a.value is b.value) == (op == "<=>") else FALSE
    known = isinstance(a.value, int | float | str) and isinstance(b.value, int | float | str)
    if not known:
        return TRUE
    same = a.value == b.value
    if op in ("=", "<=>"):
        return TRUE if same else FALSE
    if op in ("!=", "<!>"):
        return FALSE if same else TRUE
    holds = same if op in (">=", "<=") else False
    holds = holds or (_less(b.value, a.value) if op in (">", ">=") else _less(a.value, b.value))
    return TRUE if holds else FALSE


def _with_constant(node: exp.Expr, op: str, value: Constant, scope: Scope, clause: str, part: str) -> Condition:
    hit = deref(node, scope)
    if not isinstance(hit.node, Base):
        special = _special(hit.node, hit.scope, op, value, clause)
        if special is None and isinstance(hit.node, exp.Query):
            special = _computed(hit.node, hit.scope, op, value, clause)
        if special is not None:
            return special
    left = operand(node, scope)
    if value.value is None:
        if op in ("<=>", "<!>"):
            return _filter(left, "is_null" if op == "<=>" else "is_not_null", None, scope, part=part, clause=clause)
        scope.reader.defect(
            "null_comparison",
            "wrong_filter_operator",
            f"{_shown(left.column)} {op} NULL is never true; IS {'NOT ' if op == '!=' else ''}NULL tests for a missing value",
            part=part,
            fatal=True,
        )
    op = {"<=>": "=", "<!>": "!="}.get(op, op)
    _check_case(left, value, scope, part)
    return _filter(left, op, value.value, scope, raw=value.raw, part=part, clause=clause)


def _computed(node: exp.Expr, scope: Scope, op: str, value: Constant, clause: str) -> Condition | None:
    """``(SELECT COUNT(*) FROM o WHERE o.k = t.k AND o.x = 1) > 3`` as HAVING says it: the aggregate and its conditions."""
    from stef_core.extract.sql_spec import query_value

    found = query_value(node, scope)
    if not isinstance(found, ScalarQuery):
        return None
    distinct = isinstance(found.column, str) and found.column.startswith("distinct ")
    column = found.column.removeprefix("distinct ") if isinstance(found.column, str) else found.column
    made = Filter(
        column=column,
        op=op,
        value=value.value,
        agg=found.func,
        distinct=distinct,
        raw=value.raw,
        clause=clause,
        level=scope.level,
    )
    return all_of([made, *found.filters], scope)


def _check_case(left: Operand, value: Constant, scope: Scope, part: str) -> None:
    if scope.reader.dialect in _EQUALITY_FOLDS:
        return
    for raw in value.raw:
        folded = raw.upper() if left.case == "upper" else raw.lower() if left.case == "lower" else raw
        if folded != raw:
            scope.reader.defect(
                "case_fold_mismatch",
                "wrong_filter_value",
                f"{left.case}({_shown(left.column)}) can never be {raw!r}: the value is not written in {left.case} case",
                part=part,
                fatal=True,
            )


def _special(node: exp.Expr, scope: Scope, op: str, value: Constant, clause: str) -> Condition | None:
    """Comparisons whose left side is a condition, a search in a text or a distance of dates."""
    plain = value.value
    if isinstance(node, exp.Case | exp.If) and isinstance(plain, int | bool) and op in ("=", "!="):
        branches = node.args.get("ifs") or [node]
        default = node.args.get("default" if isinstance(node, exp.Case) else "false")
        if len(branches) == 1 and getattr(node, "this", None) is (None if isinstance(node, exp.Case) else node.this):
            then = constant(branches[0].args["true"], scope)
            other = constant(default, scope) if default is not None else Constant(None)
            if then is not None and other is not None and then.value == plain and other.value != plain:
                return read_condition(branches[0].this, scope, negated=op == "!=", clause=clause)
            if then is not None and other is not None and then.value != plain and other.value == plain and default is not None:
                return read_condition(branches[0].this, scope, negated=op == "=", clause=clause)
    if (
        isinstance(plain, bool)
        and op in ("=", "!=", "<=>", "<!>")
        and isinstance(node, exp.Predicate | exp.Connector | exp.Not)
    ):
        return read_condition(node, scope, negated=plain != (op in ("=", "<=>")), clause=clause)
    if plain == 1 and op == "=" and isinstance(node, exp.Predicate | exp.Connector | exp.Not) and not isinstance(plain, bool):
        return read_condition(node, scope, clause=clause)
    if plain == 0 and op in (">", "!=", "=") and not isinstance(plain, bool):
        found = _finder(node)
        if found is not None:
            needle = constant(found[1], scope)
            if needle is not None and isinstance(needle.value, str | int):
                word = needle.raw[0] if needle.raw else str(needle.value)
                left = operand(found[0], scope)
                return _filter(
                    left, "not_like" if op == "=" else "like", f"%{normal_text(word)}%", scope, raw=(word,), clause=clause
                )
    return (
        _beginning(node, scope, op, value, clause)
        or _defaulted(node, scope, op, value, clause)
        or _distance(node, scope, op, value, clause)
    )


def _beginning(node: exp.Expr, scope: Scope, op: str, value: Constant, clause: str) -> Condition | None:
    """``SUBSTR(c, 1, 4) = '2024'`` and ``LEFT(c, 4) = '2024'`` as ``c LIKE '2024%'``."""
    if op not in ("=", "!=") or len(value.raw) != 1 or "%" in value.raw[0] or "_" in value.raw[0]:
        return None
    if isinstance(node, exp.Substring):
        start, length = node.args.get("start"), node.args.get("length")
        if start is None or _number(start, scope) not in (0, 1):
            return None
    elif isinstance(node, exp.Left):
        length = node.expression
    else:
        return None
    if length is None or _number(length, scope) != len(value.raw[0]):
        return None
    pattern = normal_text(value.raw[0]) + "%"
    return _filter(operand(node.this, scope), "like" if op == "=" else "not_like", pattern, scope, raw=value.raw, clause=clause)


def _number(node: exp.Expr, scope: Scope) -> Value:
    found = constant(node, scope)
    return found.value if found is not None else None


def _defaulted(node: exp.Expr, scope: Scope, op: str, value: Constant, clause: str) -> Condition | None:
    """``COALESCE(c, 0) > 3`` as ``c > 3``, and ``COALESCE(c, 0) = 0`` as ``c = 0 OR c IS NULL``."""
    if not isinstance(node, exp.Coalesce) or len(node.expressions) != 1 or value.value is None or op not in _NEGATED:
        return None
    left, other = operand(node.this, scope), constant(node.expressions[0], scope)
    if (
        not left.plain
        or other is None
        or not isinstance(other.value, str | int | float)
        or not isinstance(value.value, str | int | float)
    ):
        return None
    if isinstance(other.value, str) != isinstance(value.value, str):
        return None
    op = {"<=>": "=", "<!>": "!="}.get(op, op)
    made = _filter(left, op, value.value, scope, raw=value.raw, part=text(node, scope)[:200], clause=clause)
    if _constant_truth(other, op, value) == FALSE:
        return made
    missing = _filter(left, "is_null", None, scope, clause=clause)
    return AnyOf(conditions=(made, missing))


def _finder(node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """``(haystack, needle)`` of INSTR, CHARINDEX, POSITION and their kin."""
    if isinstance(node, exp.StrPosition):
        return node.this, node.args["substr"]
    if isinstance(node, exp.Anonymous) and node.name.lower() in _FINDERS and len(node.expressions) >= 2:
        first, second = node.expressions[:2]
        return (second, first) if node.name.lower() in ("charindex", "locate") else (first, second)
    return None


def _distance(node: exp.Expr, scope: Scope, op: str, value: Constant, clause: str) -> Condition | None:
    """``DATEDIFF(day, c, now) <= 30`` and ``now - c <= 30`` as ``c >= now minus 30 days``."""
    if not isinstance(value.value, int) or isinstance(value.value, bool) or op not in _FLIPPED:
        return None
    if isinstance(node, exp.DateDiff | exp.TimestampDiff | exp.DatetimeDiff):
        later, earlier = node.this, node.expression
        unit_node = node.args.get("unit")
        unit = unit_node.name.lower() if unit_node is not None else "day"
    elif isinstance(node, exp.Sub):
        later, earlier, unit = node.this, node.expression, "day"
    else:
        return None
    end, start = constant(later, scope), constant(earlier, scope)
    if end is not None and isinstance(end.value, Now) and start is None:
        moment = Now(amount=end.value.amount + value.value, unit=unit.rstrip("s"), trunc=end.value.trunc)
        if isinstance(earlier, exp.Anonymous) and len(earlier.expressions) == 1:
            earlier = earlier.expressions[0]  # julianday(c), to_days(c)
        return _filter(operand(earlier, scope), _FLIPPED[op], moment, scope, clause=clause)
    return None


def _with_expression(
    left: exp.Expr, op: str, right: exp.Expr, scope: Scope, clause: str, part: str, edges: list[JoinEdge] | None
) -> Condition:
    query = _query(right, scope)
    if query is not None:
        return _with_query(left, op, query, scope, clause, part)
    query = _query(left, scope)
    if query is not None:
        return _with_query(right, _FLIPPED.get(op, op), query, scope, clause, part)
    a, b = operand(left, scope), operand(right, scope)
    if op in ("<=>", "<!>"):
        op = "=" if op == "<=>" else "!="
    if edges is not None and op == "=" and not (a.agg or b.agg or a.window or b.window) and a.key and b.key:
        edge = _edge(left, a, right, b, scope)
        if edge is not None:
            edges.append(edge)
            return TRUE
    if _reversed(a, b, scope):
        a, b, op = b, a, _FLIPPED.get(op, op)
    if a.key is not None and a.key == b.key and a.column == b.column and a.plain and b.plain and op in ("=", ">=", "<="):
        scope.reader.defect(
            "always_true",
            "wrong_filter_operator",
            f"{_shown(a.column)} {op} {_shown(b.column)} compares a column with itself: every row with a value passes",
            part=part,
        )
    value = _other_side(b, scope)
    return _filter(a, op, value, scope, part=part, clause=clause)


def _reversed(a: Operand, b: Operand, scope: Scope) -> bool:
    """Whether to write ``b op a``, so that a comparison has one spelling whichever side was written first.

    The inner query's column comes before the outer one's, a row's column before another query's aggregate, and of two
    columns of one name the one whose table stands first in FROM: without a qualifier nothing else tells their direction.
    """
    if a.outer != b.outer:
        return a.outer
    if a.agg and not b.agg:
        return a.scope is not None and a.scope.id != scope.id
    if a.agg or b.agg or a.key is None or b.key is None or a.key == b.key or a.column != b.column:
        return False
    aliases = list(scope.sources)
    if not (a.key[0] == b.key[0] == scope.id and a.key[1] in aliases and b.key[1] in aliases):
        return False
    return aliases.index(a.key[1]) > aliases.index(b.key[1])


def _other_side(b: Operand, scope: Scope) -> Value:
    if b.agg and b.scope is not None and b.scope.id != scope.id:
        from stef_core.extract.sql_spec import scalar_of  # the filters of another query

        return scalar_of(b, scope)
    if b.window:
        return ColumnValue(column=f"{b.window}() over", table=None)
    column: object = b.column if not b.agg else f"{b.agg}({'distinct ' if b.distinct else ''}{_shown(b.column)})"
    return ColumnValue(column=column if isinstance(column, str | DatePart | DateTrunc) else str(column), table=b.table)


def _edge(left: exp.Expr, a: Operand, right: exp.Expr, b: Operand, scope: Scope) -> JoinEdge | None:
    """The join of two columns that belong to two uses of tables, or to this query and an enclosing one."""
    if a.key == b.key and a.outer == b.outer:
        return None
    if a.outer and b.outer:
        return None
    sides = sorted([(a.table or "", _shown(a.column)), (b.table or "", _shown(b.column))])
    kind = "correlated" if a.outer != b.outer else "inner"
    if kind == "correlated":
        inner = b if a.outer else a
        scope.reader.correlated.setdefault(scope.id, {})[_shown(inner.column)] = None
    elif (
        a.key is not None
        and b.key is not None
        and a.key[0] == b.key[0]
        and "?" in (a.key[1], b.key[1])
        and a.column == b.column
    ):
        return None
    return JoinEdge(
        left_table=sides[0][0], left_column=sides[0][1], right_table=sides[1][0], right_column=sides[1][1], kind=kind
    )


# --- subqueries -----------------------------------------------------------------------------------------------------


def _query(node: exp.Expr, scope: Scope) -> tuple[exp.Expr, Scope] | None:
    """The subquery that an expression is, wrappers and names aside."""
    hit = deref(node, scope)
    at, where = hit.node, hit.scope
    while isinstance(at, exp.Cast | exp.Coalesce | exp.Round | exp.Paren):
        at = at.this
    return (at, where) if isinstance(at, exp.Query) else None


def _with_query(left: exp.Expr, op: str, query: tuple[exp.Expr, Scope], scope: Scope, clause: str, part: str) -> Condition:
    from stef_core.extract.sql_spec import query_value  # a subquery is a query

    value = query_value(query[0], query[1])
    return _filter(operand(left, scope), {"<=>": "=", "<!>": "!="}.get(op, op), value, scope, part=part, clause=clause)


def _quantified(left: exp.Expr, op: str, right: exp.Expr, scope: Scope, clause: str) -> Condition:
    from stef_core.extract.sql_spec import query_value

    named = isinstance(right, exp.Anonymous)
    inner = right.expressions[0] if named else right.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    every = right.name.lower() == "all" if named else isinstance(right, exp.All)
    if isinstance(inner, exp.Array | exp.Tuple):
        if op in ("=", "!=") and (op == "=") != every:
            return _listed_in(left, inner.expressions, scope, op == "!=", clause)
        read = [_compared(made_pair(_OP_NODE[op], left, e, scope), op, scope, clause, None) for e in inner.expressions]
        return all_of(read, scope) if every else any_of(read, scope)
    if not isinstance(inner, exp.Query):
        fixed = constant(inner, scope)
        value: Value = fixed.value if fixed is not None else ColumnValue(column=text(inner, scope))
        return _filter(operand(left, scope), {"=": "in", "!=": "not_in"}.get(op, op), value, scope, clause=clause)
    if op in ("=", "!=") and (op == "=") != every:
        return _filter(
            operand(left, scope), "in" if op == "=" else "not_in", query_value(inner, scope, as_set=True), scope, clause=clause
        )
    func = ("max" if every else "min") if op in (">", ">=") else ("min" if every else "max")
    found = query_value(inner, scope, as_set=True)
    if isinstance(found, SubQuery) and op in _FLIPPED and found.projections:
        return _filter(
            operand(left, scope),
            op,
            ScalarQuery(func=func, column=found.projections[0], filters=found.filters),
            scope,
            clause=clause,
        )
    return _filter(operand(left, scope), op, found, scope, clause=clause)


_OP_NODE: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "!=": exp.NEQ,
    ">": exp.GT,
    ">=": exp.GTE,
    "<": exp.LT,
    "<=": exp.LTE,
}


def _exists(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition:
    from stef_core.extract.sql_spec import query_set

    value = query_set(node.this, scope, existence=True)
    if scope.sources and not _reads_outside(node.this, scope):
        scope.reader.defect(
            "uncorrelated_exists",
            "missing_subquery_condition",
            "EXISTS is not tied to the row it stands for: it holds for every row or for none",
            part=text(node.this, scope)[:200],
            fatal=True,
        )
    return Filter(
        op="not_exists" if negated else "exists",
        value=value,
        clause=clause,
        level=scope.level,
        text=text(node.this, scope)[:400],
    )


def _reads_outside(node: exp.Expr, scope: Scope) -> bool:
    """Whether a subquery names anything of the query around it, or reads no table that could be tied to it."""
    inner = first_select(node, scope)
    if inner is None or not inner.sources:
        return True
    for column in inner.node.find_all(exp.Column):
        if column.table and normal_name(column.table) in scope.sources and normal_name(column.table) not in inner.sources:
            return True
        if column.find_ancestor(exp.Select) is inner.node and deref(column, inner).outer:
            return True
    return False


def _in(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition:
    query = node.args.get("query")
    if query is None and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
        query = node.expressions[0]
    if query is not None:
        from stef_core.extract.sql_spec import query_value

        value = query_value(query, scope, as_set=True)
        return _filter(
            operand(node.this, scope), "not_in" if negated else "in", value, scope, part=text(node, scope)[:400], clause=clause
        )
    items = node.expressions
    if not items:
        unnest = node.args.get("unnest") or node.args.get("field")
        inner = unnest.expressions[0] if isinstance(unnest, exp.Unnest) and unnest.expressions else unnest
        if isinstance(inner, exp.Array):
            items = inner.expressions
        elif inner is None:
            return FALSE if not negated else TRUE
        else:
            found = constant(inner, scope)
            value = found.value if found is not None else ColumnValue(column=text(inner, scope))
            return _filter(operand(node.this, scope), "not_in" if negated else "in", value, scope, clause=clause)
    return _listed_in(node.this, items, scope, negated, clause)


def _listed_in(node: exp.Expr, items: list[exp.Expr], scope: Scope, negated: bool, clause: str) -> Condition:
    if isinstance(node, exp.Tuple):
        pairs = [made_pair(exp.EQ, node, item, scope) for item in items]
        read = [read_condition(p, scope, negated=negated, clause=clause) for p in pairs]
        return all_of(read, scope) if negated else any_of(read, scope)
    values: list[Value] = []
    raw: list[str] = []
    others: list[Condition] = []
    for item in items:
        found = constant(item, scope)
        if found is None:
            pair = made_pair(exp.EQ, node, item, scope)
            others.append(read_condition(pair, scope, negated=negated, clause=clause))
        else:
            values.append(found.value)
            raw += found.raw
    if constant(node, scope) is not None and others:  # 'x' IN (a, b)
        read = [read_condition(made_pair(exp.EQ, item, node, scope), scope, negated=negated, clause=clause) for item in items]
        return all_of(read, scope) if negated else any_of(read, scope)
    left = operand(node, scope)
    part = f"{_shown(left.column)} {'not ' if negated else ''}in ({', '.join(raw[:20])})"[:400]
    if None in values and negated:
        scope.reader.defect(
            "null_comparison",
            "wrong_filter_operator",
            f"{_shown(left.column)} NOT IN a list with NULL is never true",
            part=part,
            fatal=True,
        )
    if left.case:
        _check_case(left, Constant(None, tuple(raw)), scope, part)
    if isinstance(left.column, DatePart | DateTrunc):
        column = left.column
        values = [form_value(column, v) for v in values]
    listed = _sorted(values)
    made: list[Condition] = list(others)
    if len(listed) == 1:
        made.append(_filter(left, "!=" if negated else "=", listed[0], scope, raw=tuple(raw), part=part, clause=clause))
    elif listed:
        made.append(_filter(left, "not_in" if negated else "in", listed, scope, raw=tuple(raw), part=part, clause=clause))
    return all_of(made, scope) if negated else any_of(made, scope)


# --- the rest -------------------------------------------------------------------------------------------------------


def _is(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition:
    right = node.expression
    if node.args.get("negate"):  # how the PostgreSQL parser writes IS NOT
        negated = not negated
    if isinstance(right, exp.Not):
        right, negated = right.this, not negated
    if isinstance(right, exp.Null):
        fixed = constant(node.this, scope)
        if fixed is not None and not isinstance(node.this, exp.Column):
            return TRUE if (fixed.value is None) != negated else FALSE
        left = operand(node.this, scope)
        return _filter(left, "is_not_null" if negated else "is_null", None, scope, part=text(node, scope)[:400], clause=clause)
    if isinstance(right, exp.Boolean):
        wanted = bool(right.this)
        hit = deref(node.this, scope)
        if isinstance(hit.node, exp.Predicate | exp.Connector | exp.Not):
            return read_condition(hit.node, hit.scope, negated=negated == wanted, clause=clause)
        left = operand(node.this, scope)
        return _filter(left, "!=" if negated else "=", wanted, scope, part=text(node, scope)[:400], clause=clause)
    op = "<!>" if negated else "<=>"
    return _compared(node, op, scope, clause, None)


def _between(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition:
    low, high = node.args["low"], node.args["high"]
    a, b = constant(low, scope), constant(high, scope)
    if constant(node.this, scope) is not None or a is None or b is None:
        pairs: list[exp.Expr] = [
            made_pair(exp.GTE, node.this, low, scope),
            made_pair(exp.LTE, node.this, high, scope),
        ]
        for pair in pairs:
            pair.parent = node.parent
        read = [read_condition(p, scope, negated=negated, clause=clause) for p in pairs]
        return any_of(read, scope) if negated else all_of(read, scope)
    if (
        node.args.get("symmetric")
        and isinstance(a.value, int | float)
        and isinstance(b.value, int | float)
        and b.value < a.value
    ):
        a, b = b, a
    left = operand(node.this, scope)
    part = f"{_shown(left.column)} between {a.value} and {b.value}"
    raw = a.raw + b.raw
    if negated:
        below = _filter(left, "<", a.value, scope, raw=a.raw, part=part, clause=clause)
        above = _filter(left, ">", b.value, scope, raw=b.raw, part=part, clause=clause)
        return AnyOf(conditions=(below, above))
    if _less(b.value, a.value):
        scope.reader.defect(
            "contradiction",
            "wrong_filter_value",
            f"no value lies between {a.value} and {b.value}: the bounds are swapped",
            part=part,
            fatal=True,
        )
    return _filter(left, "between", (a.value, b.value), scope, raw=raw, part=part, clause=clause)


def _pattern(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition | None:
    escape: str | None = None
    if isinstance(node, exp.Escape):
        escape = node.expression.name
        node = node.this
    if isinstance(node, exp.Like | exp.ILike | exp.SimilarTo | exp.Glob):
        if node.args.get("negate"):
            negated = not negated
        return _like(node, escape, scope, negated, clause)
    if isinstance(node, exp.RegexpLike | exp.RegexpILike) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "regexp_contains"
    ):
        subject, pattern = (node.this, node.expression) if not isinstance(node, exp.Anonymous) else node.expressions[:2]
        found = constant(pattern, scope)
        raw = found.raw if found is not None else ()
        value: Value = normal_text(raw[0]) if raw else ColumnValue(column=text(pattern, scope))
        return _filter(operand(subject, scope), "not_regexp" if negated else "regexp", value, scope, raw=raw, clause=clause)
    shapes: dict[type[exp.Expr], str] = {exp.StartsWith: "{}%", exp.EndsWith: "%{}", exp.Contains: "%{}%"}
    shape = shapes.get(type(node))
    subject, needle = (node.this, node.args.get("expression")) if shape else (None, None)
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 2:
        shape = {"startswith": "{}%", "endswith": "%{}", "ends_with": "%{}", "contains": "%{}%"}.get(node.name.lower())
        subject, needle = node.expressions
    if shape and subject is not None and needle is not None:
        found = constant(needle, scope)
        if found is not None and found.raw:
            value = shape.format(normal_text(found.raw[0]))
            return _filter(
                operand(subject, scope), "not_like" if negated else "like", value, scope, raw=found.raw, clause=clause
            )
    return None


def _like(node: exp.Expr, escape: str | None, scope: Scope, negated: bool, clause: str) -> Condition:
    left = operand(node.this, scope)
    part = text(node, scope)[:400]
    right = node.expression
    if isinstance(right, exp.Any | exp.All):
        inner = right.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        items = inner.expressions if isinstance(inner, exp.Tuple | exp.Array) else [inner]
        read = [_like(made_pair(exp.Like, node.this, e, scope), escape, scope, negated, clause) for e in items]
        return all_of(read, scope) if isinstance(right, exp.All) != negated else any_of(read, scope)
    found = constant(right, scope)
    if found is None or not found.raw:
        op = "not_like" if negated else "like"
        value: Value = found.value if found is not None else ColumnValue(column=text(right, scope))
        return _filter(left, op, value, scope, part=part, clause=clause)
    pattern = "".join(found.raw) if len(found.raw) > 1 else found.raw[0]
    if isinstance(node, exp.Glob):
        pattern = pattern.replace("*", "%").replace("?", "_")
    if escape is None and scope.reader.dialect in _BACKSLASH:
        escape = "\\"
    if isinstance(node, exp.SimilarTo) and re.search(r"[|*+?()\[\]{}]", pattern):
        op = "not_regexp" if negated else "regexp"
        return _filter(left, op, normal_text(pattern), scope, raw=(pattern,), part=part, clause=clause)
    plain = _without_wildcards(pattern, escape, scope.reader.dialect)
    if not isinstance(node, exp.ILike) and scope.reader.dialect not in _LIKE_FOLDS:
        _check_case(left, Constant(None, (re.sub(r"[%_]", "", pattern),)), scope, part)
    if plain is not None:
        return _filter(left, "!=" if negated else "=", normal_value(plain), scope, raw=(plain,), part=part, clause=clause)
    return _filter(
        left, "not_like" if negated else "like", normal_text(pattern), scope, raw=(pattern,), part=part, clause=clause
    )


def _without_wildcards(pattern: str, escape: str | None, dialect: str) -> str | None:
    """The text that a pattern without live wildcards stands for, or None."""
    out = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if escape and char == escape and i + 1 < len(pattern):
            i += 1
            out.append(pattern[i])
        elif char in "%_" or (char == "[" and dialect == "tsql"):
            return None
        else:
            out.append(char)
        i += 1
    return "".join(out)


def _truth(node: exp.Expr, scope: Scope, negated: bool, clause: str) -> Condition:
    """A bare column or expression as a condition."""
    fixed = constant(node, scope)
    if fixed is not None:
        if isinstance(fixed.value, bool | int | float):
            return TRUE if bool(fixed.value) != negated else FALSE
        return FALSE if fixed.value is None else TRUE
    hit = deref(node, scope)
    if (
        not isinstance(hit.node, Base)
        and hit.node is not node
        and isinstance(hit.node, exp.Predicate | exp.Connector | exp.Not | exp.Paren)
    ):
        return read_condition(hit.node, hit.scope, negated=negated, clause=clause)
    if isinstance(node, exp.Coalesce) and len(node.expressions) == 1:
        other = constant(node.expressions[0], scope)
        if other is not None and other.value in (False, 0):
            return read_condition(node.this, scope, negated=negated, clause=clause)
    if isinstance(node, exp.Case | exp.If):
        special = _special(node, scope, "=", Constant(not negated), clause) or _special(
            node, scope, "=", Constant(int(not negated)), clause
        )
        if special is not None:
            return special
    return _filter(operand(node, scope), "=", not negated, scope, part=text(node, scope)[:400], clause=clause)


def first_select(node: exp.Expr, scope: Scope) -> Scope | None:
    """The first SELECT of a subquery."""
    relation = open_subquery(node, scope)
    while isinstance(relation, SetQuery):
        relation = relation.operands[0]
    return relation
