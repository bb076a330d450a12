"""One query's specification, gathered from its SELECTs, derived tables, CTEs and set operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from stef_core.extract.sql_conditions import FALSE, all_of, any_of, as_list, check_contradictions, read_condition, read_list
from stef_core.extract.sql_defects import check_select
from stef_core.extract.sql_render import text
from stef_core.extract.sql_scope import (
    Base,
    Reader,
    Relation,
    Scope,
    SetQuery,
    Source,
    deref,
    is_semi,
    open_subquery,
    source_of,
    source_output,
)
from stef_core.extract.sql_terms import Operand, Parts, aggregate, column_of, core, is_aggregate, order_key, parts_of, window
from stef_core.extract.sql_values import constant
from stef_core.normalize import normal_name
from stef_core.records import (
    Aggregation,
    Column,
    ColumnValue,
    Condition,
    Filter,
    JoinEdge,
    OrderKey,
    ScalarQuery,
    SqlSpec,
    SubQuery,
    Value,
    Window,
)
from stef_core.wording import condition_text

_MANY = 64  # lists this short are left alone; longer ones are freed of repeats


@dataclass(slots=True)
class Collected:
    """What a query and all that it reads in FROM contribute to the specification of the query that reads it."""

    filters: list[Condition] = field(default_factory=list)
    join_filters: list[Condition] = field(default_factory=list)
    joins: list[JoinEdge] = field(default_factory=list)
    inner_limits: list[tuple[int, tuple[OrderKey, ...]]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    row_limit: int | None = None  # Oracle's ROWNUM
    limited_by: tuple[Column, ...] = ()


def build_spec(relation: Relation, reader: Reader) -> SqlSpec:
    """The specification of an opened query."""
    if isinstance(relation, SetQuery):
        return _set_spec(relation, reader)
    return _select_spec(relation)


# --- SELECT ---------------------------------------------------------------------------------------------------------


def _select_spec(scope: Scope) -> SqlSpec:
    found = collect(scope)
    outputs = _Outputs()
    for term in _output_terms(scope):
        _add_output(term, scope, outputs)
    groups, sets = _groups(scope, outputs)
    order = _order(scope.node, scope, outputs)
    limit, offset = _limit(scope.node, scope)
    if found.row_limit is not None and limit is None:
        limit = found.row_limit
        order = order or _inner_order(scope)
        found.inner_limits[:] = [i for i in found.inner_limits if i[0] >= 0]
    limited = scope.node.args.get("limit")
    if isinstance(limited, exp.Limit) and limited.expressions:
        limit = scope.node.meta.get("limit")  # ClickHouse: LIMIT n BY … is read as a condition on the rank
    windows = outputs.windows + found.windows
    for key in scope.node.args["order"].expressions if scope.node.args.get("order") else ():
        windows += [window(w, s) for w, s in parts_of(key, scope.view("order")).windows]
    distinct, distinct_on = _distinct(scope)
    if scope.node.find(exp.TableSample) is not None:
        scope.reader.defect("sample", "unrequested_limit", "only a sample of the rows is read, another one each time")
    check_select(scope, outputs.parts, groups)
    return SqlSpec(
        parse_status="ok",
        projections=tuple(outputs.projections),
        aggregations=tuple(outputs.aggregations),
        filters=_unique(found.filters),
        join_filters=_unique(found.join_filters),
        group_by=groups,
        grouping_sets=sets,
        order_by=order,
        limit=limit,
        offset=offset,
        distinct=distinct,
        distinct_on=distinct_on,
        windows=tuple(dict.fromkeys(windows)),
        expressions=tuple(outputs.expressions),
        joins=tuple(sorted(set(found.joins), key=repr)),
        inner_limits=tuple(found.inner_limits),
        inner_groups=tuple(g for g in _inner_groups(scope) if g != groups),
        tables=tuple(sorted(_tables(scope))),
        one_row=_one_row(scope),
        branches=_inner_branches(scope),
    )


def _unique(conditions: list[Condition]) -> tuple[Condition, ...]:
    return tuple(dict.fromkeys(conditions))


@dataclass(slots=True)
class _Outputs:
    projections: list[Column] = field(default_factory=list)
    aggregations: list[Aggregation] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    expressions: list[str] = field(default_factory=list)
    parts: Parts = field(default_factory=Parts)
    plain: list[Column] = field(default_factory=list)


def _output_terms(scope: Scope) -> list[tuple[exp.Expr | Base, Scope] | str]:
    """Every output in order; a star over base tables is ``"*"``."""
    out: list[tuple[exp.Expr | Base, Scope] | str] = []
    reach = 0
    for item in scope.node.expressions:
        star = item.this if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else item
        if not isinstance(star, exp.Star):
            out.append((item, scope.view("select", reach) if reach else scope))
            reach += isinstance(item, exp.Alias)
            continue
        qualifier = normal_name(item.table) if isinstance(item, exp.Column) else ""
        chosen = [scope.sources[qualifier]] if qualifier in scope.sources else list(scope.sources.values())
        dropped = {normal_name(e.name) for e in star.args.get("except_") or ()}
        open_star = False
        for source in chosen:
            if is_semi(source):
                continue
            terms = _star_terms(source, scope, dropped)
            if terms is None:
                open_star = True
            else:
                out += terms
        if open_star or not chosen:
            out.append("*")
    return out


def _star_terms(source: Source, scope: Scope, dropped: set[str]) -> list[tuple[exp.Expr | Base, Scope] | str] | None:
    names = source.names()
    if names is None:
        relation = source.relation
        if isinstance(relation, Scope) and not dropped:
            return _output_terms(relation)
        return None
    out: list[tuple[exp.Expr | Base, Scope] | str] = []
    for name in names:
        hit = source_output(source, name, scope) if name not in dropped else None
        if isinstance(hit, Base):
            out.append((hit, scope))
        elif hit is not None:
            out.append(hit)
    return out


def _add_output(term: tuple[exp.Expr | Base, Scope] | str, scope: Scope, out: _Outputs) -> None:
    if isinstance(term, str):
        out.projections.append(term)
        out.plain.append(term)
        out.expressions.append(term)
        return
    node, where = term
    out.expressions.append(text(node, where))
    if not isinstance(node, Base) and constant(node, where) is not None:
        return
    parts = parts_of(node, where)
    out.parts.columns += parts.columns
    out.parts.aggregates += parts.aggregates
    if not (parts.aggregates or parts.windows or parts.queries):
        if parts.columns or isinstance(node, Base) or not parts.literals:
            out.projections.append(column_of(node, where))
            out.plain.append(out.projections[-1])
        return
    for at, inner in parts.aggregates:
        out.aggregations.append(_aggregation(at, inner, scope))
    out.windows += [window(at, inner) for at, inner in parts.windows]
    for at, inner in parts.queries:
        value = query_value(at, inner)
        if isinstance(value, ScalarQuery):
            distinct = isinstance(value.column, str) and value.column.startswith("distinct ")
            column = value.column.removeprefix("distinct ") if isinstance(value.column, str) else value.column
            out.aggregations.append(
                Aggregation(func=value.func, column=column, distinct=distinct, filter=value.filters, text=text(at, inner))
            )
        elif isinstance(value, SubQuery):
            out.projections += value.projections


def _aggregation(node: exp.Expr, where: Scope, scope: Scope) -> Aggregation:
    made = aggregate(node, where, read_list)
    if where.id in where.reader.detached:
        # another query's total beside this one's rows: its conditions are its own
        own = where.reader.detached[where.id]
        made = replace(made, filter=made.filter + tuple(c for c in own if c not in made.filter))
    if made.func == "count" and made.column == "*" and not made.filter:
        counted = _counted_rows(where)
        if counted is not None:
            return replace(made, column=counted, distinct=True)
    return made


def _counted_rows(scope: Scope) -> Column | None:
    """The column whose different values COUNT(*) counts: rows of ``SELECT DISTINCT c`` or of ``SELECT c … GROUP BY c``."""
    sources = list(scope.sources.values())
    if len(sources) != 1 or not isinstance(sources[0].relation, Scope):
        return None
    inner = sources[0].relation
    node = inner.node
    if len(node.expressions) != 1 or inner.star_sources or node.args.get("limit") or node.args.get("having"):
        return None
    item = node.expressions[0]
    group = node.args.get("group")
    plain = node.args.get("distinct") is not None and not node.args["distinct"].args.get("on")
    grouped = (
        group is not None and len(group.expressions) == 1 and column_of(group.expressions[0], inner) == column_of(item, inner)
    )
    parts = parts_of(item, inner)
    if parts.aggregates or parts.windows or parts.queries or not parts.columns:
        return None
    return column_of(item, inner) if (plain and group is None) or grouped else None


# --- GROUP BY -------------------------------------------------------------------------------------------------------


def _groups(scope: Scope, outputs: _Outputs) -> tuple[tuple[Column, ...], tuple[tuple[Column, ...], ...]]:
    group = scope.node.args.get("group")
    if group is not None:
        return own_groups(scope, outputs.plain)
    own = [s for _, s in outputs.parts.aggregates if s.id == scope.id]
    if own:
        return (), ()
    below: dict[Column, None] = {}
    sets: tuple[tuple[Column, ...], ...] = ()
    if outputs.parts.aggregates:
        for _, inner in outputs.parts.aggregates:
            if inner.id != scope.id:
                columns, sets_below = own_groups(inner, [])
                below |= dict.fromkeys(columns)
                sets = sets or sets_below
        return tuple(below), sets
    source = single_source(scope)
    if source is not None and isinstance(source.relation, Scope):
        return _groups(source.relation, _Outputs())
    return (), ()


def single_source(scope: Scope) -> Source | None:
    """The derived table or CTE that is all this SELECT reads, or None."""
    sources = list(scope.sources.values())
    return sources[0] if len(sources) == 1 and sources[0].relation is not None else None


def own_groups(scope: Scope, plain: list[Column]) -> tuple[tuple[Column, ...], tuple[tuple[Column, ...], ...]]:
    """GROUP BY columns of this SELECT and the sets of ROLLUP, CUBE and GROUPING SETS."""
    group = scope.node.args.get("group")
    if group is None:
        return (), ()
    if group.args.get("all"):
        if not plain:
            outputs = _Outputs()
            for term in _output_terms(scope):
                _add_output(term, scope, outputs)
            plain = outputs.plain
        return tuple(dict.fromkeys(plain)), ()
    fixed: list[Column] = []
    special: list[list[tuple[Column, ...]]] = []
    items = list(group.expressions)
    for key in ("rollup", "cube", "grouping_sets"):
        extra = group.args.get(key)
        items += extra if isinstance(extra, list) else [extra] if isinstance(extra, exp.Expr) else []
    for item in items:
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            if item.expressions:
                special.append(_sets(item, scope))
            else:  # MySQL: GROUP BY a, b WITH ROLLUP
                columns: list[tuple[Column, ...]] = [(c,) for c in fixed]
                special.append(_rolled(columns) if isinstance(item, exp.Rollup) else _cubed(columns))
                fixed = []
        else:
            fixed += _group_columns(item, scope)
    sets: list[tuple[Column, ...]] = []
    if special:
        sets = [tuple(fixed)]
        for group_sets in special:
            sets = [(*a, *b) for a in sets for b in group_sets][:512]
    columns_all = dict.fromkeys(fixed) | {c: None for s in sets for c in s}
    return tuple(columns_all), tuple(sets)


def _group_columns(item: exp.Expr, scope: Scope) -> list[Column]:
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Tuple):
        return [c for e in item.expressions for c in _group_columns(e, scope)]
    ordinal = _ordinal(item, scope)
    if ordinal is not None:
        return [column_of(*ordinal)]
    view = scope.view("group")
    return [] if constant(item, view) is not None else [column_of(item, view)]


def _sets(item: exp.Expr, scope: Scope) -> list[tuple[Column, ...]]:
    if isinstance(item, exp.GroupingSets):
        out: list[tuple[Column, ...]] = []
        for entry in item.expressions:
            out += (
                _sets(entry, scope)
                if isinstance(entry, exp.Rollup | exp.Cube | exp.GroupingSets)
                else [tuple(_group_columns(entry, scope))]
            )
        return out
    columns = [tuple(_group_columns(e, scope)) for e in item.expressions]
    return _rolled(columns) if isinstance(item, exp.Rollup) else _cubed(columns)


def _rolled(columns: list[tuple[Column, ...]]) -> list[tuple[Column, ...]]:
    return [tuple(c for g in columns[:n] for c in g) for n in range(len(columns), -1, -1)]


def _cubed(columns: list[tuple[Column, ...]]) -> list[tuple[Column, ...]]:
    columns = columns[:8]  # 256 sets
    picks = range(2 ** len(columns) - 1, -1, -1)
    return [tuple(c for i, g in enumerate(columns) if mask >> (len(columns) - 1 - i) & 1 for c in g) for mask in picks]


def _ordinal(item: exp.Expr, scope: Scope) -> tuple[exp.Expr | Base, Scope] | None:
    """The output that a bare number in GROUP BY or ORDER BY means."""
    if not (isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit()):
        return None
    terms = _output_terms(scope)
    position = int(str(item.this)) - 1
    if 0 <= position < len(terms):
        term = terms[position]
        return None if isinstance(term, str) else term
    return None


# --- ORDER BY, LIMIT, DISTINCT ----------------------------------------------------------------------------------------


def _order(node: exp.Expr, scope: Scope, outputs: _Outputs | None = None) -> tuple[OrderKey, ...]:
    clause = node.args.get("order")
    if clause is None:
        return ()
    out: list[OrderKey] = []
    view = scope.view("order")
    for item in clause.expressions:
        inner = item.this if isinstance(item, exp.Ordered) else item
        ordinal = _ordinal(inner, scope)
        if ordinal is not None and not isinstance(ordinal[0], Base):
            out.append(replace(order_key(ordinal[0], ordinal[1]), dir="desc" if item.args.get("desc") else "asc"))
        elif ordinal is not None:
            out.append(OrderKey(column=ordinal[0].name, dir="desc" if item.args.get("desc") else "asc"))
        elif not isinstance(inner, exp.Null | exp.Boolean):
            out.append(order_key(item, view))
    return tuple(out)


def _limit(node: exp.Expr, scope: Scope | None) -> tuple[int | None, int | None]:
    clause = node.args.get("limit")
    limit: int | None = None
    if isinstance(clause, exp.Limit | exp.Fetch):
        count = clause.args.get("count") if isinstance(clause, exp.Fetch) else clause.expression
        options = clause.args.get("limit_options")
        limit = _whole(count, scope) if count is not None else 1
        if options is not None and options.args.get("percent"):
            if scope is not None:
                scope.reader.notes.append(f"the limit is {limit} percent of the rows")
            limit = None
        elif limit is None and count is not None and scope is not None:
            scope.reader.notes.append("the limit is not a constant")
        if options is not None and options.args.get("with_ties") and scope is not None:
            scope.reader.notes.append("rows that tie with the last one come out too")
    offset = node.args.get("offset")
    return limit, _whole(offset.expression, scope) if offset is not None else None


def _whole(node: exp.Expr | None, scope: Scope | None) -> int | None:
    if node is None:
        return None
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal):
        digits = str(node.this)
        return int(digits) if digits.isdigit() and len(digits) < 19 else None
    if scope is None:
        return None
    found = constant(node, scope)
    return found.value if found is not None and isinstance(found.value, int) and not isinstance(found.value, bool) else None


def _inner_order(scope: Scope) -> tuple[OrderKey, ...]:
    source = single_source(scope)
    if source is None or not isinstance(source.relation, Scope):
        return ()
    return _order(source.relation.node, source.relation) or _inner_order(source.relation)


def _distinct(scope: Scope) -> tuple[bool, bool]:
    clause = scope.node.args.get("distinct")
    if clause is not None:
        return True, clause.args.get("on") is not None
    source = single_source(scope)
    passes = source is not None and isinstance(source.relation, Scope) and not scope.node.args.get("group")
    if not passes or source is None or not isinstance(source.relation, Scope):
        return False, False
    if any(parts_of(item, scope).aggregates for _, item in scope.outputs):
        return False, False
    return _distinct(source.relation)


def _one_row(relation: Relation | None) -> bool:
    """Whether exactly one row comes out: aggregates without grouping, or no table at all."""
    if not isinstance(relation, Scope):
        return False
    known = relation.reader.one_row.get(relation.id)
    if known is None:
        known = relation.reader.one_row[relation.id] = _is_one_row(relation)
    return known


def _is_one_row(relation: Scope) -> bool:
    node = relation.node
    if node.args.get("group") is not None or node.args.get("having") is not None:
        return False
    if not relation.sources:
        return True
    if relation.star_sources and not relation.outputs:
        source = single_source(relation)
        return source is not None and _one_row(source.relation)
    aggregates = [s for _, item in relation.outputs for _, s in parts_of(item, relation).aggregates]
    if any(s.id == relation.id for s in aggregates):
        return True
    return bool(relation.sources) and all(s.relation is not None and _one_row(s.relation) for s in relation.sources.values())


# --- set operations -------------------------------------------------------------------------------------------------


def _set_spec(relation: SetQuery, reader: Reader) -> SqlSpec:
    branches = tuple(build_spec(operand, reader) for operand in relation.operands)
    first = branches[0]
    found = collect_set(relation, top=True)
    scope = _first(relation)
    if relation.op.startswith("except") and branches[1:]:
        scope.reader.notes.append(f"taken away: the rows of {_told(branches[1])}")
    limit, offset = _limit(relation.node, scope)
    return SqlSpec(
        parse_status="ok",
        projections=first.projections,
        aggregations=first.aggregations,
        filters=_unique(found.filters),
        join_filters=_unique(found.join_filters),
        group_by=first.group_by,
        grouping_sets=first.grouping_sets,
        order_by=_order(relation.node, scope),
        limit=limit,
        offset=offset,
        distinct=False,
        set_op=relation.op,
        windows=first.windows,
        expressions=first.expressions,
        joins=tuple(sorted({j for b in branches for j in b.joins}, key=repr)),
        inner_limits=tuple(i for b in branches for i in _limits_of(b)),
        inner_groups=tuple(g for b in branches for g in b.inner_groups),
        tables=tuple(sorted(t for b in branches for t in b.tables)),
        branches=branches,
    )


def _told(spec: SqlSpec) -> str:
    """A SELECT in a few words: its tables and its conditions."""
    conditions = " and ".join(condition_text(c) for c in spec.filters[:3])
    return (", ".join(spec.tables) + (f" where {conditions}" if conditions else ""))[:200]


def _below(relation: Relation) -> list[Scope]:
    """SELECTs read in FROM, at any depth; a CTE that is shared between its uses stands once."""
    out: list[Scope] = []
    seen: set[int] = set()
    stack: list[Relation] = [relation]
    while stack:
        at = stack.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, SetQuery):
            stack += at.operands
        else:
            out.append(at)
            stack += [s.relation for s in at.sources.values() if s.relation is not None and s.kind == "query"]
    return out


def _inner_groups(scope: Scope) -> list[tuple[Column, ...]]:
    return [own_groups(s, [])[0] for s in _below(scope)[1:] if s.node.args.get("group") is not None]


def _tables(scope: Scope) -> list[str]:
    return [source.table for s in _below(scope) for source in s.sources.values() if source.table is not None]


def _limits_of(spec: SqlSpec) -> tuple[tuple[int, tuple[OrderKey, ...]], ...]:
    own = ((spec.limit, spec.order_by),) if spec.limit is not None else ()
    return own + spec.inner_limits


def _first(relation: Relation) -> Scope:
    while isinstance(relation, SetQuery):
        relation = relation.operands[0]
    return relation


def _inner_branches(scope: Scope) -> tuple[SqlSpec, ...]:
    """Operands of the set operation that is all this SELECT reads."""
    source = single_source(scope)
    if source is None or source.kind != "query":
        return ()
    if isinstance(source.relation, SetQuery) and not source.relation.recursive:
        return tuple(build_spec(o, scope.reader) for o in source.relation.operands)
    return _inner_branches(source.relation) if isinstance(source.relation, Scope) else ()


# --- what a query and its sources apply --------------------------------------------------------------------------------


def collect(relation: Relation) -> Collected:
    """Conditions, joins and inner limits of a query with everything that it reads in FROM; computed once."""
    if isinstance(relation, SetQuery):
        return collect_set(relation, top=False)
    known = relation.reader.collected.get(relation.id)
    if not isinstance(known, Collected):
        known = _collect(relation)
        relation.reader.collected[relation.id] = known
    return known


def collect_set(relation: SetQuery, *, top: bool) -> Collected:
    """Conditions of a set operation: those of every operand once; read in FROM, the others too, joined by OR under UNION."""
    parts = [collect(operand) for operand in relation.operands]
    out = Collected()
    for part in parts:
        out.joins += part.joins
        out.inner_limits += part.inner_limits
    if relation.recursive:
        out.filters = [c for part in parts for c in part.filters]
        out.join_filters = [c for part in parts for c in part.join_filters]
        return out
    first = parts[0]
    out.filters = [c for c in first.filters if all(c in p.filters for p in parts[1:])]
    out.join_filters = [c for c in first.join_filters if all(c in p.join_filters for p in parts[1:])]
    if not top:
        rest = [[c for c in p.filters if c not in out.filters] for p in parts]
        if relation.op.startswith("union"):
            if all(rest):
                scope = _first(relation)
                joined = any_of([all_of(r, scope) for r in rest], scope)
                out.filters += as_list(joined)
        elif relation.op.startswith("intersect"):
            out.filters += [c for r in rest for c in r]
        else:
            out.filters += rest[0]
    return out


def _collect(scope: Scope) -> Collected:
    out = Collected()
    node = scope.node
    for source in scope.sources.values():
        _add_join(source, scope, out)
    for clause in ("prewhere", "where"):
        at = node.args.get(clause)
        if at is not None:
            _add_where(at.this, scope.view("where") if scope.aliases else scope, out, "where")
    for clause in ("having", "qualify"):
        at = node.args.get(clause)
        if at is not None:
            _add_where(at.this, scope.view("having"), out, clause)
    if _is_limit_by(node):
        _limit_by(scope, out)
    _add_sources(scope, out)  # last: whether a source's conditions are this query's depends on how it is used above
    if len(scope.sources) > 1:
        _check_joined(scope, out)
    check_contradictions(tuple(out.filters), scope)
    # a CTE read many times brings the same each time; unchecked, a chain of such CTEs doubles the lists at every step
    out.joins = list(dict.fromkeys(out.joins))
    out.inner_limits = out.inner_limits[:_MANY]
    if len(out.filters) > _MANY:
        out.filters = list(dict.fromkeys(out.filters))
    if len(out.join_filters) > _MANY:
        out.join_filters = list(dict.fromkeys(out.join_filters))
    return out


def _add_where(node: exp.Expr, scope: Scope, out: Collected, clause: str) -> None:
    if scope.reader.dialect in ("oracle", "redshift", "snowflake") and any(
        c.args.get("join_mark") for c in node.find_all(exp.Column)
    ):
        _add_marked(node, scope, out)
        return
    edges: list[JoinEdge] = []
    read = read_condition(node, scope, clause=clause, edges=edges)
    out.joins += edges
    if read == FALSE:
        scope.reader.defect(
            "contradiction",
            "wrong_filter_operator",
            "the condition is never true: no row comes out",
            part=text(node, scope)[:200],
            fatal=True,
        )
        out.filters.append(Filter(column="false", op="=", value=True, clause=clause, level=scope.level))
    else:
        for condition in as_list(read):
            limit = _row_number_limit(condition)
            if limit is not None:
                out.row_limit = limit
            else:
                out.filters.append(condition)
    if node.find(exp.Window) is not None or scope.sources:
        parts = parts_of(node, scope)
        out.windows += [window(w, s) for w, s in parts.windows]


def _add_marked(node: exp.Expr, scope: Scope, out: Collected) -> None:
    """Oracle's old outer joins: a conjunct with ``c(+)`` is an ON condition of a left join."""
    stack = [node]
    while stack:
        at = stack.pop()
        while isinstance(at, exp.Paren):
            at = at.this
        if isinstance(at, exp.And):
            stack += [at.expression, at.this]
            continue
        marked = [c for c in at.find_all(exp.Column) if c.args.get("join_mark")]
        if not marked:
            _add_where(at, scope, out, "where")
            continue
        for column in marked:
            source = source_of(column, scope)
            if source is not None:
                source.optional = True
        edges: list[JoinEdge] = []
        out.join_filters += as_list(read_condition(at, scope, clause="on", edges=edges))
        out.joins += [replace(e, kind="left") for e in edges]


def _row_number_limit(condition: Condition) -> int | None:
    """Oracle: ``ROWNUM <= 5``."""
    if not isinstance(condition, Filter) or condition.column != "rownum" or not isinstance(condition.value, int):
        return None
    return {"<=": condition.value, "<": condition.value - 1, "=": condition.value}.get(condition.op)


def _add_join(source: Source, scope: Scope, out: Collected) -> None:
    """The ON conditions of one source: edges between tables, and filters or, beside an outer join, join filters."""
    join = source.join
    if join is None:
        return
    kind, side = (join.kind or "").upper(), (join.side or "").upper()
    on = join.args.get("on")
    edges: list[JoinEdge] = []
    read = as_list(read_condition(on, scope, clause="on", edges=edges)) if on is not None else ()
    conditions = [c for c in read if c != FALSE]
    edge_kind = kind.lower() if kind in ("SEMI", "ANTI") else side.lower() or "inner"
    out.joins += [replace(e, kind=edge_kind) if e.kind == "inner" else e for e in edges]
    out.joins += _using(join, source, scope, edge_kind)
    if kind in ("SEMI", "ANTI"):
        inner = collect(source.relation).filters if source.relation is not None and source.kind == "query" else []
        value = SubQuery(filters=tuple(conditions) + tuple(inner))
        op = "exists" if kind == "SEMI" else "not_exists"
        out.filters.append(Filter(op=op, value=value, clause="join", level=scope.level, table=source.table))
    elif side in ("LEFT", "RIGHT", "FULL"):
        out.join_filters += conditions
    else:
        out.filters += conditions


def _add_sources(scope: Scope, out: Collected) -> None:
    """What derived tables and CTEs of this SELECT apply."""
    several = len(scope.sources) > 1
    aggregated: list[tuple[Source, Scope, Collected]] = []
    for source in scope.sources.values():
        relation = source.relation
        if relation is None or source.kind != "query":
            continue
        inner = collect(relation)
        _add_inner_limit(relation, inner, out)
        out.inner_limits += inner.inner_limits
        out.joins += inner.joins
        if is_semi(source):
            continue
        if several and isinstance(relation, Scope):
            if _one_row(relation):
                _detach(relation, inner.filters)
                continue
            outputs = {s.id for _, item in scope.outputs for _, s in parts_of(item, scope).aggregates}
            if relation.id in outputs:
                aggregated.append((source, relation, inner))
                continue
            if relation.id in scope.reader.compared:
                continue  # read for its aggregate alone, and only to compare with it: a scalar subquery in other words
        _hoist(source, inner, inner.filters, out)
    common = (
        [c for c in aggregated[0][2].filters if all(c in inner.filters for _, _, inner in aggregated)] if aggregated else []
    )
    for source, relation, inner in aggregated:
        own = [c for c in inner.filters if c not in common]
        if len(aggregated) > 1:
            # two groupings with different conditions side by side: each belongs to its own aggregates
            _detach(relation, own)
            own = []
        _hoist(source, inner, common + own, out)


def _hoist(source: Source, inner: Collected, filters: list[Condition], out: Collected) -> None:
    if source.optional:
        out.join_filters += filters + inner.join_filters
    else:
        out.filters += filters
        out.join_filters += inner.join_filters


def _add_inner_limit(relation: Relation, inner: Collected, out: Collected) -> None:
    first = _first(relation)
    limit, _ = _limit(relation.node, first)
    limit = inner.row_limit if inner.row_limit is not None else limit
    if limit is not None and not _is_limit_by(relation.node):
        order = _order(relation.node, first) or (_inner_order(first) if isinstance(relation, Scope) else ())
        out.inner_limits.append((limit, order))


def _detach(relation: Relation | None, filters: list[Condition]) -> None:
    """Leave the conditions of a query to the aggregates that it computes."""
    while isinstance(relation, Scope):
        relation.reader.detached[relation.id] = tuple(filters)
        source = single_source(relation)
        relation = source.relation if source is not None else None


def _is_limit_by(node: exp.Expr) -> bool:
    limit = node.args.get("limit")
    return isinstance(limit, exp.Limit) and bool(limit.expressions)


def _using(join: exp.Join, source: Source, scope: Scope, kind: str) -> list[JoinEdge]:
    out: list[JoinEdge] = []
    for item in join.args.get("using") or ():
        name = normal_name(item.name)
        owner = None
        for other in scope.sources.values():
            if other is source:
                break
            names = other.names()
            if names is None or name in names:
                owner = other
                break
        if owner is None:
            continue
        sides = []
        for side in (owner, source):
            hit = source_output(side, name, scope)
            resolved = deref(*hit).node if hit is not None and not isinstance(hit, Base) else hit
            sides.append((resolved.table or "", resolved.name) if isinstance(resolved, Base) else ("", name))
        sides.sort()
        out.append(
            JoinEdge(
                left_table=sides[0][0], left_column=sides[0][1], right_table=sides[1][0], right_column=sides[1][1], kind=kind
            )
        )
    return out


def _limit_by(scope: Scope, out: Collected) -> None:
    """ClickHouse's ``LIMIT n BY c``: the first n rows of each c, as a condition on the row number."""
    clause = scope.node.args["limit"]
    count = _whole(clause.expression, scope)
    view = scope.view("group")
    made = Window(
        func="row_number",
        partition_by=tuple(column_of(e, view) for e in clause.expressions),
        order_by=_order(scope.node, scope),
    )
    out.windows.append(made)
    out.filters.append(
        Filter(window="row_number", op="<=" if count != 1 else "=", value=count, clause="qualify", level=scope.level)
    )


def _check_joined(scope: Scope, out: Collected) -> None:
    """Note tables that nothing ties to the others."""
    alone = {alias: alias for alias in scope.sources}
    place = {alias: at for at, alias in enumerate(scope.sources)}

    def root(alias: str) -> str:
        while alone[alias] != alias:
            alias = alone[alias]
        return alias

    def tie(aliases: set[str]) -> None:
        # the first in FROM order stands for the group: the message names the same tables on every run
        roots = sorted({root(a) for a in aliases if a in alone}, key=place.__getitem__)
        for other in roots[1:]:
            alone[other] = roots[0]

    names = list(scope.sources)
    explicit = True
    for source in scope.sources.values():
        join = source.join
        if source.kind in ("function", "recursive") or _one_row(source.relation):
            tie(set(names[:1]) | {source.alias})
        if join is None:
            continue
        if join.args.get("using") or join.method or isinstance(join.this, exp.Lateral | exp.Unnest):
            tie({names[0], source.alias})
        on = join.args.get("on")
        if on is not None:
            tie_conditions(on, scope, tie)
        if on is None and (join.kind or "").upper() != "CROSS" and not join.args.get("using"):
            explicit = False
    for clause in ("where", "having"):
        at = scope.node.args.get(clause)
        if at is not None:
            tie_conditions(at.this, scope, tie)
    roots = {root(a) for a in names}
    if len(roots) < 2:
        return
    shown = ", ".join(sorted(scope.sources[r].table or r.lstrip("#") for r in roots))
    # who ties some of the tables, in ON or in WHERE, forgot the others
    many = [s.alias for s in scope.sources.values() if s.kind in ("table", "query") and not _one_row(s.relation)]
    explicit = explicit and len({root(a) for a in many}) == len(many)
    explicit = explicit and all(s.join is None or s.join.args.get("on") is None for s in scope.sources.values())
    scope.reader.defect(
        "cross_join",
        "wrong_join",
        f"nothing joins {shown}: every row of one is paired with every row of the other",
        part=shown,
        fatal=not explicit,
    )


def tie_conditions(node: exp.Expr, scope: Scope, tie: Callable[[set[str]], None]) -> None:
    """Tie the sources whose columns stand together in one conjunct."""
    stack = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, exp.And):
            stack += [at.this, at.expression]
        elif isinstance(at, exp.Paren):
            stack.append(at.this)
        else:
            touched: set[str] = set()
            for column in at.find_all(exp.Column):
                source = source_of(column, scope)
                if source is not None:
                    touched.add(source.alias)
                elif not column.table:
                    # a name whose table is unknown may belong to any of them
                    touched |= {s.alias for s in scope.sources.values() if s.names() is None}
            tie(touched)


# --- subqueries -----------------------------------------------------------------------------------------------------


def query_value(node: exp.Expr, scope: Scope, *, as_set: bool = False) -> Value:
    """A subquery as a value: one aggregate (`ScalarQuery`), a constant, or a set of values."""
    relation = open_subquery(node, scope)
    if relation is None:
        return ColumnValue(column=text(node, scope))
    if isinstance(relation, Scope) and len(relation.node.expressions) == 1 and not as_set:
        item = relation.node.expressions[0]
        fixed = constant(item, relation)
        if fixed is not None and not relation.sources:
            return fixed.value
        value = _scalar(item, relation)
        if value is not None:
            return value
    return query_set(node, scope)


def _scalar(item: exp.Expr, relation: Scope) -> ScalarQuery | None:
    if relation.node.args.get("group") is not None or (relation.node.args.get("limit") is not None and not _one_row(relation)):
        return None
    at, where, _ = core(item, relation)
    found = collect(relation)
    if not isinstance(at, Base) and is_aggregate(at) and own_groups(where, []) == ((), ()):
        made = _aggregation(at, where, relation)
        column: Column = f"distinct {made.column}" if made.distinct else made.column
        filters = made.filter + tuple(c for c in found.filters if c not in made.filter)
        return ScalarQuery(func=made.func, column=column, filters=filters, correlated=_correlated(relation))
    if isinstance(at, Base):
        return None
    parts = parts_of(item, relation)
    if parts.aggregates and _one_row(relation):
        return ScalarQuery(
            func="expression", column=text(item, relation), filters=tuple(found.filters), correlated=_correlated(relation)
        )
    return None


def _correlated(relation: Relation) -> tuple[str, ...]:
    return tuple(sorted({name for s in _below(relation) for name in s.reader.correlated.get(s.id, ())}))


def query_set(node: exp.Expr, scope: Scope, *, existence: bool = False) -> SubQuery:
    """A subquery as a set of values, or as an existence test, with its own specification."""
    relation = open_subquery(node, scope)
    if relation is None:
        return SubQuery(projections=(text(node, scope),))
    if not existence:
        scope.reader.valued.append(relation)
    spec = build_spec(relation, scope.reader)
    projections: tuple[Column, ...] = ()
    if not existence:
        projections = spec.projections or tuple(spec.expressions)
    return SubQuery(projections=projections, filters=spec.filters + spec.join_filters, spec=spec)


def scalar_of(operand: Operand, scope: Scope) -> Value:
    """An aggregate of a joined derived table as the scalar subquery that it stands in for."""
    inner = operand.scope
    if inner is None:
        return ColumnValue(column=str(operand.column))
    groups, _ = own_groups(inner, [])
    scope.reader.compared.add(inner.id)
    column: Column = operand.column if operand.column is not None else "*"
    if operand.distinct:
        column = f"distinct {column}"
    return ScalarQuery(
        func=operand.agg or "",
        column=column,
        filters=operand.agg_filter + tuple(collect(inner).filters),
        correlated=tuple(sorted(str(g) if isinstance(g, str) else text_of(g) for g in groups)),
    )


def text_of(column: Column) -> str:
    """A column as text, for lists of names."""
    return (
        column
        if isinstance(column, str)
        else f"{getattr(column, 'part', None) or getattr(column, 'unit', '')}({column.column})"
    )


def add_subqueries(spec: SqlSpec, reader: Reader) -> SqlSpec:
    """The specification with the ties and limits of the subqueries inside its expressions."""
    joins = set(spec.joins)
    limits = list(spec.inner_limits)
    for inner in reader.relations.values():
        if inner is not None:
            joins.update(collect(inner).joins)
    for relation in {id(r): r for r in reader.valued}.values():
        found = Collected()
        _add_inner_limit(relation, collect(relation), found)
        limits += found.inner_limits + collect(relation).inner_limits
    return replace(spec, joins=tuple(sorted(joins, key=repr)), inner_limits=tuple(limits[:_MANY]))


def count_queries(reader: Reader) -> int:
    """How many SELECTs were read below the outermost one."""
    return max(0, reader.scopes - 1)
