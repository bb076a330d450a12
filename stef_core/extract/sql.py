"""The SQL side: one query text to its specification (method.md sections 1, 2 and 7). Deterministic; no schema, no database."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sqlglot import exp

from stef_core.errors import RowLimitError
from stef_core.extract.sql_defects import check_filters
from stef_core.extract.sql_malformed import malformed
from stef_core.extract.sql_parse import Parsed, parse
from stef_core.extract.sql_scope import Reader, open_query
from stef_core.extract.sql_spec import add_subqueries, build_spec, count_queries
from stef_core.extract.sql_text import NUL_NOTE, Unpacked, misplaced_clause, too_large, unpack
from stef_core.guard import guarded
from stef_core.limits import ROW_LIMIT, weigh_sql
from stef_core.records import SqlSpec

# arguments that say how to write, cut or skip, and are no values of the data
_FORMATTING = tuple(
    getattr(exp, n)
    for n in "TimeToStr ToChar StrToTime StrToDate DateTrunc TimestampTrunc WindowSpec".split()
    if hasattr(exp, n)
)

REMEMBERED = 10_000  # characters of SQL whose specification is kept for the next row with the same

_BARE = (exp.Limit, exp.Offset, exp.Fetch, exp.Parameter, exp.Group, exp.Ordered)


def extract_sql(sql: str | None, dialect: str | None = None) -> SqlSpec:
    """Read one SQL text into its specification.

    Args:
        sql: The text as the agent wrote it; None and blank text give ``no_sql``.
        dialect: Name of the dialect, as logs write it; None is ANSI. An unknown name is noted and read as ANSI.

    Returns:
        The specification. Never raises: `parse_status` says how the text was read, `error` why it could not be. Text that is no
        single read-only query gives ``not_a_query``; a query that no dialect reads gives ``unparseable``, and so does one that
        exceeds a limit of `stef_core.limits`, with the note ``row_limit``.

    Source:
        method.md sections 1, 2 and 7; canonical form of cases/README.md.
    """
    return _read_once(sql, dialect) if sql is not None and len(sql) <= REMEMBERED else _extract(sql, dialect)


def _extract(sql: str | None, dialect: str | None) -> SqlSpec:
    if sql is None or not sql.strip():
        return SqlSpec(parse_status="no_sql", dialect=dialect, error="there is no SQL", statements=0)
    weight, why = weigh_sql(sql)
    if weight == "plain":
        return read_in_place(sql, dialect)
    try:
        if weight == "beyond":
            raise RowLimitError(why)
        spec: SqlSpec = guarded("sql", sql, dialect)
    except RowLimitError as error:
        return SqlSpec(parse_status="unparseable", dialect=dialect, notes=(ROW_LIMIT,), error=str(error))
    return spec


def read_heavy(sql: str, dialect: str | None = None) -> SqlSpec:
    """Read one SQL text that is heavy, in the process for such; as `extract_sql`."""
    large = too_large(sql)
    if large:
        return SqlSpec(parse_status="unparseable", dialect=dialect, notes=(ROW_LIMIT,), error=large)
    return read_in_place(sql, dialect)


def read_in_place(sql: str, dialect: str | None = None) -> SqlSpec:
    """Read one SQL text that is not blank, whatever its size; as `extract_sql`."""
    unpacked = unpack(sql)
    if unpacked.error:
        return SqlSpec(parse_status="not_a_query", dialect=dialect, error=unpacked.error, notes=unpacked.notes)
    parsed = parse(unpacked.sql, dialect)
    notes = (*unpacked.notes, *parsed.notes)
    fault = malformed(unpacked.sql) if parsed.status == "unparseable" else None
    if fault:
        return SqlSpec(parse_status="not_a_query", dialect=dialect, notes=notes, error=fault)
    if parsed.tree is None:
        count = 0 if parsed.status == "no_sql" else parsed.statements
        return SqlSpec(
            parse_status=parsed.status, dialect=parsed.dialect or dialect, statements=count, notes=notes, error=parsed.error
        )
    try:
        return _read(parsed.tree, unpacked, parsed, notes)
    except RecursionError:
        return SqlSpec(
            parse_status="unparseable",
            dialect=parsed.dialect,
            notes=(*notes, ROW_LIMIT),
            error="the SQL is nested more deeply than can be read",
        )
    except MemoryError:
        raise  # of a process that a limit bounds
    except Exception as error:  # noqa: BLE001 - whatever a log holds, the rest of the day is scored
        return SqlSpec(
            parse_status="unparseable",
            dialect=parsed.dialect,
            notes=notes,
            error=f"the query tree could not be read ({type(error).__name__}: {error})"[:300],
        )


_read_once = lru_cache(maxsize=4_096)(_extract)  # the same question often has the same answer, of several agents too


def _read(tree: exp.Expr, unpacked: Unpacked, parsed: Parsed, notes: tuple[str, ...]) -> SqlSpec:
    reader = Reader(dialect=parsed.dialect or "", text=unpacked.sql, quotes_names=_quotes_names(tree, unpacked.sql))
    for node in list(tree.find_all(exp.Convert)):
        if isinstance(node.this, exp.DataType):  # T-SQL's other spelling of CAST
            node.replace(exp.Cast(this=node.expression, to=node.this))
    relation = open_query(reader, tree)
    if relation is None:
        return SqlSpec(
            parse_status=parsed.status, dialect=parsed.dialect or None, notes=(*notes, "the query reads no table"), one_row=True
        )
    spec = build_spec(relation, reader)
    _check_misspelt(tree, reader)
    if NUL_NOTE in unpacked.notes:
        reader.defect(
            "nul_byte",
            "extra_transformation",
            "the SQL holds a NUL byte: a database refuses it, or reads no further, so what stands behind it is hidden",
            fatal=True,
        )
    misplaced = misplaced_clause(unpacked.sql)
    if misplaced:
        reader.defect(
            "clause_order",
            "extra_transformation",
            f"{misplaced}: clauses in this order are a syntax error in every database",
            part=misplaced,
            fatal=True,
        )
    check_filters(spec.filters + spec.join_filters, reader)
    spec = add_subqueries(spec, reader)
    status = "repaired" if unpacked.repaired and parsed.status == "ok" else parsed.status
    return replace(
        spec,
        parse_status=status,
        dialect=parsed.dialect or None,
        tables=tuple(sorted(reader.tables)),
        columns=tuple(sorted(reader.columns, key=lambda c: (c[0] or "", c[1]))),
        literals=_literals(tree, reader),
        subqueries=count_queries(reader),
        defects=tuple(reader.defects),
        notes=(*notes, *dict.fromkeys(reader.notes)),
    )


def _quotes_names(tree: exp.Expr, text: str) -> bool:
    """Whether the author puts every table and column in double quotes, or else what stands in them may be texts."""
    if '"' not in text:
        return False
    tables = [t.this for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    columns = [c.this for c in tree.find_all(exp.Column) if isinstance(c.this, exp.Identifier)]
    return bool(tables) and all(n.args.get("quoted") and f'"{n.name}"' in text for n in (*tables, *columns))


def _literals(tree: exp.Expr, reader: Reader) -> tuple[str, ...]:
    """Every literal as written, in order of the text, without limits, formats and lengths of time."""
    out = dict(reader.literals)
    for node in tree.walk(bfs=False, prune=lambda n: isinstance(n, _FORMATTING) and not isinstance(n.this, exp.Expr)):
        if isinstance(node, exp.Literal):
            parent = node.parent
            if isinstance(parent, _BARE) or (isinstance(parent, _FORMATTING) and parent.this is not node):
                continue
            written = str(node.this)
            # sqlglot adds literals of its own, e.g. the day that T-SQL counts months from
            if written.lower() != "now" and (written in reader.text or "'" in written):
                out[written] = None
        elif isinstance(node, exp.National):
            out[node.name] = None
    return tuple(out)


def _check_misspelt(tree: exp.Expr, reader: Reader) -> None:
    """``SELECT DISTNCT a`` parses as a column with an alias."""
    first = tree.expressions[0] if isinstance(tree, exp.Select) and tree.expressions else None
    if not isinstance(first, exp.Alias) or not isinstance(first.this, exp.Column) or first.this.table:
        return
    name = first.this.name
    if _near(name.lower(), "distinct") and re.search(rf"\bselect\s+{re.escape(name)}\s+(?!as\b)", reader.text, re.I):
        reader.defect(
            "misspelt_keyword",
            "extra_transformation",
            f"{name} is a misspelt DISTINCT: it is read as a column that does not exist",
            part=name,
            fatal=True,
        )


def _near(word: str, keyword: str) -> bool:
    """Whether one edit, or a swap of neighbours, makes `keyword` of `word`."""
    if word == keyword or abs(len(word) - len(keyword)) > 1:
        return False
    start = 0
    while start < min(len(word), len(keyword)) and word[start] == keyword[start]:
        start += 1
    a, b = word[start:], keyword[start:]
    return (
        a[1:] == b
        or a == b[1:]
        or a[1:] == b[1:]
        or (len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0] and a[2:] == b[2:])
    )
