"""Names in a query: which table, derived table, CTE or alias a column stands for.

A *term* is a node of the tree and the scope that its names are read in. Following a column through derived tables, CTEs
and aliases moves from term to term until a base column or another expression is met: nothing is copied or rewritten, and
no name is resolved twice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from stef_core.normalize import normal_name
from stef_core.records import Condition, Defect, Filter

# dialects whose WHERE, and whose later select items, may name an alias of the select list
LATERAL_ALIASES = frozenset({"snowflake", "duckdb", "clickhouse", "teradata", "databricks", "spark", "redshift", "sqlite"})
# reading one CTE many times opens it anew each time; beyond this many the first reading is shared
MAX_SCOPES = 150
_MAX_HOPS = 200


class Base(NamedTuple):
    """A column of a base table. ``key`` names the use of the table, so that two uses of one table are told apart."""

    name: str
    table: str | None
    key: tuple[int, str]


class Resolved(NamedTuple):
    """What a term stands for; ``outer`` when it was found in an enclosing query (a correlation)."""

    node: exp.Expr | Base
    scope: Scope
    outer: bool


@dataclass(slots=True, eq=False)
class Reader:
    """What one reading gathers on its way through the tree."""

    dialect: str
    text: str
    quotes_names: bool = False  # every table and column stands in double quotes
    scopes: int = 0
    defects: list[Defect] = field(default_factory=list)
    columns: dict[tuple[str | None, str], None] = field(default_factory=dict)
    literals: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    owners: dict[int, tuple[tuple[int, str], str | None]] = field(default_factory=dict)
    kept: list[Filter] = field(default_factory=list)  # keeps the ids in `owners` alive
    valued: list[Relation] = field(default_factory=list)  # subqueries read for their values
    relations: dict[tuple[int, int], Relation | None] = field(default_factory=dict)
    texts: dict[tuple[int, int, str], str] = field(default_factory=dict)
    correlated: dict[int, dict[str, None]] = field(default_factory=dict)
    collected: dict[int, object] = field(default_factory=dict)
    detached: dict[int, tuple[Condition, ...]] = field(
        default_factory=dict
    )  # conditions that belong to a scope's aggregates alone
    made: list[exp.Expr] = field(default_factory=list)  # nodes made while reading: what is remembered by id must stay alive
    one_row: dict[int, bool] = field(default_factory=dict)
    parts: dict[tuple[int, int, str], object] = field(default_factory=dict)
    constants: dict[tuple[int, int, str], object] = field(default_factory=dict)
    resolved: dict[tuple[int, int, str, int], Resolved] = field(default_factory=dict)
    compared: set[int] = field(default_factory=set)  # scopes whose aggregate something is compared with

    def defect(self, kind: str, code: str, message: str, *, part: str = "", fatal: bool = False) -> None:
        """Note one defect, once."""
        found = Defect(kind=kind, code=code, message=message, sql_part=part, fatal=fatal)
        if found not in self.defects:
            self.defects.append(found)


@dataclass(slots=True, eq=False)
class SetQuery:
    """A set operation: ``op`` over two or more operands; ORDER BY and LIMIT stand on ``node``."""

    op: str
    node: exp.Expr
    operands: list[Relation]
    recursive: bool = False
    names_given: list[str] = field(default_factory=list)

    def names(self) -> list[str] | None:
        """Output names, or None where a star leaves them open."""
        return self.names_given or relation_names(self.operands[0])

    def output(self, name: str) -> Hit:
        """What output `name` stands for: that of the first operand."""
        first = self.operands[0]
        if name in self.names_given and not isinstance(first, SetQuery):
            return first.output_at(self.names_given.index(name))
        return first.output(name)


@dataclass(slots=True, eq=False)
class Source:
    """One item of FROM. ``relation`` is None for a base table; ``open`` sources may own any column name."""

    alias: str
    kind: str  # table query function recursive
    table: str | None = None
    relation: Relation | None = None
    join: exp.Join | None = None
    optional: bool = False  # rows may be missing: its side of an outer join
    preserved: bool = True
    names_given: list[str] = field(default_factory=list)

    def names(self) -> list[str] | None:
        """Output names, or None where they cannot be known."""
        if self.relation is None:
            return self.names_given or None
        return self.names_given or relation_names(self.relation)


@dataclass(slots=True, eq=False)
class Cte:
    """A WITH entry: its query, the entries it can see, and whether it is being opened (then a reference to it is recursive)."""

    node: exp.Expr
    visible: dict[str, Cte]
    columns: list[str]
    parent: Scope | None
    opening: Relation | None = None
    is_opening: bool = False
    shared: Relation | None = None


class Scope:
    """One SELECT with the sources its names are read from."""

    __slots__ = (
        "aliases",
        "ctes",
        "id",
        "level",
        "mode",
        "node",
        "outputs",
        "parent",
        "reach",
        "reader",
        "sources",
        "star_sources",
        "windows",
    )

    def __init__(self, reader: Reader, node: exp.Select, parent: Scope | None, ctes: dict[str, Cte], level: int) -> None:
        self.reader = reader
        self.node = node
        self.parent = parent
        self.ctes = ctes
        self.level = level
        self.id = reader.scopes
        reader.scopes += 1
        self.sources: dict[str, Source] = {}
        self.outputs: list[tuple[str, exp.Expr]] = []
        self.star_sources: list[Source] = []
        self.aliases: dict[str, exp.Expr] = {}
        self.windows: dict[str, exp.Expr] = {}
        self.mode = ""
        self.reach = 0

    def view(self, mode: str, reach: int | None = None) -> Scope:
        """This scope with select aliases in reach, as ``order``, ``group``, ``having``, ``where`` or ``select`` may see them.

        `reach` is how many of the aliases, from the left, can be seen; all where it is not given.
        """
        seen = copy.copy(self)
        seen.mode = mode
        seen.reach = len(self.aliases) if reach is None else reach
        return seen

    def names(self) -> list[str] | None:
        """Output names, or None where a star over base tables leaves them open."""
        out = [name for name, _ in self.outputs]
        for source in self.star_sources:
            inner = source.names()
            if inner is None:
                return None
            out += inner
        return out

    def output(self, name: str) -> Hit:
        """What output `name` stands for."""
        for given, node in self.outputs:
            if given == name:
                return node, self
        for source in self.star_sources:
            known = source.names()
            if known is None or name in known:
                return source_output(source, name, self)
        return None

    def output_at(self, position: int) -> Hit:
        """What the output at `position` (from 0) stands for, where no star shifts positions."""
        if not self.star_sources and position < len(self.outputs):
            return self.outputs[position][1], self
        names = self.names()
        return self.output(names[position]) if names and position < len(names) else None


Relation: TypeAlias = Scope | SetQuery
Hit: TypeAlias = "tuple[exp.Expr, Scope] | Base | None"


def relation_names(relation: Relation) -> list[str] | None:
    """Output names of a query, or None where they are open."""
    return relation.names()


def source_output(source: Source, name: str, scope: Scope) -> Hit:
    """What column `name` of a source stands for."""
    if source.relation is not None:
        if name in source.names_given:
            position = source.names_given.index(name)
            first: Relation = source.relation
            while isinstance(first, SetQuery):
                first = first.operands[0]
            return first.output_at(position)
        hit = source.relation.output(name)
        if hit is not None:
            return hit
    return Base(name, source.table, (scope.id, source.alias))


# --- opening --------------------------------------------------------------------------------------------------------


def open_query(
    reader: Reader,
    node: exp.Expr,
    parent: Scope | None = None,
    ctes: dict[str, Cte] | None = None,
    level: int = 0,
    cte: Cte | None = None,
) -> Relation | None:
    """Open a query: scopes for every SELECT that is read below it in FROM. None if the node is no query."""
    ctes = dict(ctes or {})
    while isinstance(node, exp.Subquery | exp.Paren) or (isinstance(node, exp.Table) and isinstance(node.this, exp.Subquery)):
        _add_ctes(node, ctes, parent)
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            return None
        node = node.this
    if isinstance(node, exp.SetOperation):
        return _open_set(reader, node, parent, ctes, level, cte)
    if not isinstance(node, exp.Select):
        return None
    _add_ctes(node, ctes, parent)
    scope = Scope(reader, node, parent, ctes, level)
    if cte is not None and cte.opening is None:
        cte.opening = scope
    _open_sources(scope)
    for window in node.args.get("windows") or ():
        scope.windows[normal_name(window.this.name)] = window
    _open_outputs(scope)
    return scope


def _add_ctes(node: exp.Expr, ctes: dict[str, Cte], parent: Scope | None) -> None:
    clause = node.args.get("with_")
    for entry in clause.expressions if clause else ():
        alias = entry.args.get("alias")
        name = normal_name(entry.alias)
        columns = [normal_name(c.name) for c in alias.args.get("columns") or ()] if alias else []
        visible = dict(ctes)
        made = Cte(entry.this, visible, columns, parent)
        # ClickHouse and others accept recursion without the word; a reference to itself is a base table of that name elsewhere
        if clause and (clause.args.get("recursive") or isinstance(entry.this, exp.SetOperation)):
            visible[name] = made
        ctes[name] = made


def set_operation_name(node: exp.Expr) -> str:
    """``union``, ``union_all``, ``intersect``, ``except`` …"""
    name = type(node).__name__.lower()
    return name if node.args.get("distinct", True) is not False else f"{name}_all"


def _open_set(
    reader: Reader, node: exp.SetOperation, parent: Scope | None, ctes: dict[str, Cte], level: int, cte: Cte | None
) -> Relation | None:
    name = set_operation_name(node)
    parts: list[exp.Expr] = []
    at: exp.Expr = node
    while True:  # a chain of one operation leans left; it is read without recursion
        _add_ctes(at, ctes, parent)
        parts.append(at.expression)
        left = at.this
        plain = isinstance(left, exp.SetOperation) and not (left.args.get("limit") or left.args.get("offset"))
        if not (plain and set_operation_name(left) == name and name != "except"):
            parts.append(left)
            break
        at = left
    made = SetQuery(name, node, [])
    for part in reversed(parts):
        operand = open_query(reader, part, parent, ctes, level, cte)
        if operand is not None:
            made.operands.append(operand)
            if cte is not None and not isinstance(cte.opening, SetQuery):
                cte.opening = operand
    return made if made.operands else None


def _open_sources(scope: Scope) -> None:
    node = scope.node
    clause = node.args.get("from_")
    if clause is not None:
        _add_source(scope, clause.this, None)
    for join in node.args.get("joins") or ():
        _add_join(scope, join)
    for lateral in node.args.get("laterals") or ():
        _add_source(scope, lateral, None)


def _add_join(scope: Scope, join: exp.Join) -> None:
    side = (join.side or "").upper()
    if side in ("RIGHT", "FULL"):
        for source in scope.sources.values():
            source.optional = True
    before = set(scope.sources)
    _add_source(scope, join.this, join)
    for alias in scope.sources.keys() - before:
        if side in ("LEFT", "FULL") and (join.kind or "").upper() not in ("SEMI", "ANTI"):
            scope.sources[alias].optional = True


def _add_source(scope: Scope, node: exp.Expr, join: exp.Join | None) -> None:
    while isinstance(node, exp.Subquery | exp.Paren) and not isinstance(node.this, exp.Query) and node.this is not None:
        for inner in node.args.get("joins") or ():
            _add_source(scope, inner.this, inner)
        node = node.this  # FROM (t1 JOIN t2 ON …)
    source = _source(scope, node, join)
    alias, number = source.alias, 2
    while alias in scope.sources:
        alias = f"{source.alias}#{number}"
        number += 1
    source.alias = alias
    scope.sources[alias] = source
    for inner in node.args.get("joins") or ():
        _add_join(scope, inner)


def _source(scope: Scope, node: exp.Expr, join: exp.Join | None) -> Source:
    alias_node = node.args.get("alias")
    alias = normal_name(node.alias) if alias_node else ""
    columns = (
        [normal_name(c.name) for c in (alias_node.args.get("columns") or ())] if isinstance(alias_node, exp.TableAlias) else []
    )
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        name = normal_name(node.name)
        cte = None if node.args.get("db") else scope.ctes.get(name)
        if cte is not None:
            return _cte_source(scope, cte, alias or name, columns, join)
        if not node.args.get("pivots"):
            scope.reader.tables.append(name)
            return Source(alias or name, "table", table=name, join=join, names_given=columns)
        scope.reader.tables.append(name)
        scope.reader.notes.append("columns made by PIVOT or UNPIVOT are read as columns of the table")
        return Source(alias or name, "table", table=name, join=join)
    if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
        node = node.this
    if isinstance(node, exp.Subquery | exp.Query):
        relation = open_query(scope.reader, node, scope, scope.ctes, scope.level + 1)
        if relation is not None:
            return Source(alias or f"#{len(scope.sources)}", "query", relation=relation, join=join, names_given=columns)
    if not alias and len(columns) == 1:
        alias = columns[0]
    return Source(alias or f"#{len(scope.sources)}", "function", join=join, names_given=columns)


def _cte_source(scope: Scope, cte: Cte, alias: str, columns: list[str], join: exp.Join | None) -> Source:
    names = columns or cte.columns
    if cte.is_opening:
        return Source(alias, "recursive", relation=cte.opening, join=join, names_given=names)
    if scope.reader.scopes > MAX_SCOPES and cte.shared is not None:
        return Source(alias, "query", relation=cte.shared, join=join, names_given=names)
    cte.is_opening, cte.opening = True, None
    relation = open_query(scope.reader, cte.node, cte.parent, cte.visible, scope.level + 1, cte)
    cte.is_opening = False
    if relation is None:
        return Source(alias, "function", join=join, names_given=names)
    if isinstance(relation, SetQuery):
        relation.recursive = any(s.kind == "recursive" for s in all_sources(relation))
    cte.shared = relation
    return Source(alias, "query", relation=relation, join=join, names_given=names)


def all_sources(relation: Relation) -> Iterator[Source]:
    """Sources of a query's own SELECTs, not those below them."""
    if isinstance(relation, SetQuery):
        for operand in relation.operands:
            yield from all_sources(operand)
    else:
        yield from relation.sources.values()


def _open_outputs(scope: Scope) -> None:
    for item in scope.node.expressions:
        star = item.this if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else item
        if isinstance(star, exp.Star):
            qualifier = normal_name(item.table) if isinstance(item, exp.Column) else ""
            chosen = [scope.sources[qualifier]] if qualifier in scope.sources else list(scope.sources.values())
            scope.star_sources += [s for s in chosen if not is_semi(s)]
            continue
        name = normal_name(item.alias_or_name)
        scope.outputs.append((name, item))
        if isinstance(item, exp.Alias):
            scope.aliases.setdefault(name, item.this)


def is_semi(source: Source) -> bool:
    """Whether the source stands in a semi or anti join: it tests rows and yields no columns."""
    return source.join is not None and (source.join.kind or "").upper() in ("SEMI", "ANTI")


# --- following names ------------------------------------------------------------------------------------------------


def deref(node: exp.Expr, scope: Scope) -> Resolved:
    """Follow parentheses, aliases and columns to a base column or to the expression that the name stands for."""
    if not isinstance(node, _NAMING):
        return Resolved(node, scope, False)
    known = scope.reader.resolved
    key = (id(node), scope.id, scope.mode, scope.reach)
    if key not in known:
        known[key] = _follow(node, scope)
    return known[key]


_NAMING = (exp.Column, exp.Paren, exp.Alias)


def _follow(node: exp.Expr, scope: Scope) -> Resolved:
    outer = False
    for _ in range(_MAX_HOPS):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            hit, found_in = _find(node, scope)
            outer = outer or (found_in is not None and found_in.id != scope.id)
            if hit is None or isinstance(hit, Base):
                base = hit or Base(normal_name(node.name), None, (-1, normal_name(node.table)))
                scope.reader.columns[base.table, base.name] = None
                return Resolved(base, scope, outer)
            if hit[0] is node:
                break
            node, scope = hit
        elif isinstance(node, exp.Paren | exp.Alias):
            node = node.this
        else:
            break
    return Resolved(node, scope, outer)


def source_of(column: exp.Column, scope: Scope) -> Source | None:
    """The source of this scope that a column is read from; None if it is another scope's, an alias or unknown."""
    qualifier = normal_name(column.table)
    if qualifier:
        return scope.sources.get(qualifier)
    return _owner(normal_name(column.name), scope)


def _find(column: exp.Column, scope: Scope) -> tuple[Hit, Scope | None]:
    name, qualifier = normal_name(column.name), normal_name(column.table)
    if not qualifier and scope.mode in ("order", "group", "having", "where", "select"):
        node = _alias(column, name, scope)
        if node is not None:
            return (node, scope.view("select", list(scope.aliases).index(name))), scope
    at: Scope | None = scope
    while at is not None:
        if qualifier:
            source = at.sources.get(qualifier) or next(
                (s for s in at.sources.values() if s.table == qualifier and s.alias.split("#")[0] == qualifier), None
            )
            if source is not None:
                return source_output(source, name, at), at
        else:
            source = _owner(name, at)
            if source is not None:
                return source_output(source, name, at), at
            if any(s.names() is None for s in at.sources.values()):
                return Base(name, None, (at.id, "?")), at
            if at is scope and not at.mode and name in at.aliases and at.sources:
                return (at.aliases[name], at), at  # nothing else can own the name
        at = at.parent
    return None, None


def _owner(name: str, scope: Scope) -> Source | None:
    """The source that an unqualified name belongs to, where that can be told without a schema."""
    unknown: list[Source] = []
    for source in scope.sources.values():
        names = source.names()
        if names is None:
            if not is_semi(source):
                unknown.append(source)
        elif name in names:
            return source
    if len(unknown) == 1:
        return unknown[0]
    if unknown:
        for source in scope.sources.values():
            if source.join is not None and any(normal_name(c.name) == name for c in source.join.args.get("using") or ()):
                return unknown[0]
    return None


def _alias(column: exp.Column, name: str, scope: Scope) -> exp.Expr | None:
    """The select item that a bare name means in ORDER BY, GROUP BY, HAVING or, in some dialects, WHERE."""
    node = scope.aliases.get(name)
    if node is None or (scope.reach < len(scope.aliases) and list(scope.aliases).index(name) >= scope.reach):
        return None
    own = {normal_name(c.name) for c in node.find_all(exp.Column)}
    if scope.mode == "order":
        parent = column.parent
        return node if isinstance(parent, exp.Ordered | exp.Order) or name not in own else None
    if scope.mode == "having":
        inside = column.find_ancestor(exp.AggFunc, exp.Select)
        if name not in own or (not isinstance(inside, exp.AggFunc) and node.find(exp.AggFunc) is not None):
            return node
        return None
    if name in own and not (scope.mode == "group" and scope.reader.dialect == "clickhouse"):
        return None  # the column comes before the alias, except in ClickHouse
    if scope.mode in ("where", "select"):
        known = all(s.names() is not None for s in scope.sources.values()) and _owner(name, scope) is None
        return node if known or scope.reader.dialect in LATERAL_ALIASES else None
    return node


def made_pair(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, scope: Scope) -> exp.Expr:
    """A comparison that the query implies but does not spell, kept for as long as the reading lasts."""
    node = kind(this=left.copy(), expression=right.copy())
    scope.reader.made.append(node)
    return node


def open_subquery(node: exp.Expr, scope: Scope) -> Relation | None:
    """The relation of a subquery inside an expression of `scope`; opened once."""
    key = (id(node), scope.id)
    reader = scope.reader
    if key not in reader.relations:
        reader.relations[key] = _without_passages(open_query(reader, node, scope, scope.ctes, scope.level + 1))
    return reader.relations[key]


_PLAIN_SELECT = frozenset({"expressions", "from_", "with_", "kind"})


def _without_passages(relation: Relation | None) -> Relation | None:
    """The query that a subquery hands on as it is: ``(SELECT a FROM part)`` is `part` where that outputs `a` alone."""
    while isinstance(relation, Scope) and not any(v for k, v in relation.node.args.items() if k not in _PLAIN_SELECT):
        sources = list(relation.sources.values())
        if len(sources) != 1 or sources[0].kind != "query" or sources[0].names_given:
            break
        inner = sources[0].relation
        if inner is None or (isinstance(inner, SetQuery) and inner.names_given):
            break
        plain = all(
            isinstance(n, exp.Column) or (isinstance(n, exp.Alias) and isinstance(n.this, exp.Column))
            for _, n in relation.outputs
        )
        asked = [normal_name(n.unalias().name) for _, n in relation.outputs]
        if not plain or relation.star_sources or asked != inner.names():
            break
        relation = inner
    return relation
