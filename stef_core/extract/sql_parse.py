"""One text to one query tree: the stated dialect first, others where it fails, and a plain reason where none reads it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import SqlglotError

from stef_core.dialects import dialect_of, sqlglot_dialect
from stef_core.extract.sql_text import cut_off, without_comments
from stef_core.limits import ROW_LIMIT
from stef_core.records import ParseStatus

TOO_DEEP = "it is nested more deeply than can be read"
_LATER = ("trino", "clickhouse", "hive", "teradata", "databricks")
_ORDER = (
    "",
    "postgres",
    "snowflake",
    "bigquery",
    "mysql",
    "tsql",
    "spark",
    "duckdb",
    "sqlite",
    "oracle",
    "redshift",
    "trino",
    *_LATER,
)
# what is tried first where the stated dialect fails: the relatives that it borrows syntax from
_RELATIVES = {
    "redshift": ("postgres", "snowflake"),
    "sqlite": ("", "mysql", "postgres"),
    "spark": ("databricks", "hive"),
    "databricks": ("spark", "hive"),
    "hive": ("spark", "trino"),
    "trino": ("presto", "postgres"),
    "mysql": ("starrocks", "sqlite"),
    "tsql": ("fabric", "snowflake"),
    "duckdb": ("postgres",),
    "oracle": ("postgres", "teradata"),
}
_BACKSLASH = frozenset({"mysql", "bigquery", "spark", "databricks", "hive", "clickhouse", "snowflake", "doris", "starrocks"})
_QUERY_START = re.compile(r"[\s(]*(select|with|from|values|table)\b", re.I)
_STATEMENT = re.compile(
    r"\s*(insert|update|delete|merge|create|drop|alter|truncate|grant|revoke|replace|call|exec|execute|explain|describe|desc|show|use"
    r"|set|pragma|begin|commit|rollback|declare|copy|load|unload|analyze|vacuum|do|kill|lock|attach|detach|refresh|optimize|rename)\b",
    re.I,
)
_WRITES = re.compile(r"\b(insert|update|delete|merge|truncate|drop|create|alter)\b", re.I)
_ENGLISH = frozenset("the are please you i we there that your their should".split())
# sqlglot warns about syntax it drops; whether a query reads is told by its tree
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@dataclass(slots=True)
class Parsed:
    """A query tree, or why there is none."""

    status: ParseStatus
    dialect: str | None = None
    tree: exp.Expr | None = None
    statements: int = 1
    error: str | None = None
    notes: list[str] = field(default_factory=list)


def parse(sql: str, dialect: str | None) -> Parsed:
    """Parse one query. Never raises; a text that is no query says what it is instead."""
    notes: list[str] = []
    stated = sqlglot_dialect(dialect)
    if stated is None:
        notes.append(f"dialect {dialect!r} is unknown; read as ANSI SQL")
        stated = ""
    bare = without_comments(sql).strip().strip(";").strip()
    if not bare:
        return Parsed("no_sql", error="there is no SQL", notes=notes)
    trees, error = _attempt(sql, stated)
    if trees is None and bare != sql.strip():
        # GROUP /* by */ BY: sqlglot knows a keyword of two words only where nothing stands between them
        sql = without_comments(sql, backslash=stated in _BACKSLASH)
        trees, error = _attempt(sql, stated)
    if trees is not None:
        return _judged(trees, sql, bare, stated, stated, dialect, notes)
    if not _QUERY_START.match(bare):
        return Parsed("not_a_query", stated, error=_other_statement(bare), notes=notes)
    if _prose(bare):
        return Parsed("not_a_query", stated, error=f"the text is prose, not SQL: {_start(bare)!r}", notes=notes)
    broken = cut_off(sql, backslash=stated in _BACKSLASH)
    if broken:
        return Parsed("not_a_query", stated, error=broken, notes=notes)
    if error == TOO_DEEP:  # for any dialect
        return Parsed("unparseable", stated, error=f"the SQL cannot be read: {error}", notes=[*notes, ROW_LIMIT])
    for other in _others(stated, sql):
        trees, _ = _attempt(sql, other)
        if trees is not None and len(trees) == 1 and isinstance(trees[0], exp.Query):
            return _judged(trees, sql, bare, other, stated, dialect, notes)
    rescued = _rescued(sql, stated)
    if rescued is not None:
        notes.append("a second LIMIT after LIMIT BY was read apart")
        return _judged([rescued], sql, bare, stated, stated, dialect, notes)
    return Parsed("unparseable", stated, error=f"no SQL dialect reads it: {error}", notes=notes)


def _others(stated: str, sql: str) -> list[str]:
    """Dialects to try, the likeliest first: bracketed names and TOP are T-SQL's, backticks MySQL's and BigQuery's."""
    first: tuple[str, ...] = ()
    if re.search(r"\[[A-Za-z_][\w ]*\]|\bselect\s+top\b", sql, re.I):
        first = ("tsql",)
    elif "`" in sql:
        first = ("mysql", "bigquery")
    return [d for d in dict.fromkeys((*first, *_RELATIVES.get(stated, ()), *_ORDER)) if d != stated]


def _attempt(sql: str, dialect: str) -> tuple[list[exp.Expr] | None, str]:
    try:
        parsed = dialect_of(dialect).parse(sql)
    except RecursionError:
        return None, TOO_DEEP
    except MemoryError:
        raise  # of a process that a limit bounds
    except SqlglotError as error:
        return None, _first_line(str(error))
    except Exception as error:  # noqa: BLE001 - compiled sqlglot raises TypeError and others on broken input
        return None, _first_line(f"{type(error).__name__}: {error}")
    trees: list[exp.Expr] = []
    for tree in parsed:
        if tree is None or isinstance(tree, exp.Semicolon):
            continue
        trees += [t for t in tree.expressions if not isinstance(t, exp.Semicolon)] if isinstance(tree, exp.Block) else [tree]
    return trees, ""


def _first_line(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n")[0][:200]


def _judged(
    trees: list[exp.Expr], sql: str, bare: str, used: str, stated: str, dialect: str | None, notes: list[str]
) -> Parsed:
    """Whether what was parsed is one query that only reads."""
    count = len(trees)
    if count == 0:
        return Parsed("no_sql", error="there is no SQL", notes=notes)
    if count > 1:
        return Parsed("not_a_query", used, statements=count, error=f"there are {count} statements, not one query", notes=notes)
    tree = trees[0]
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if not isinstance(tree, exp.Query | exp.Values) or (
        isinstance(tree, exp.Subquery) and not isinstance(tree.unnest(), exp.Query)
    ):
        if isinstance(tree, exp.Command | exp.DDL | exp.DML) or _STATEMENT.match(bare):
            return Parsed("not_a_query", used, error=_other_statement(bare), notes=notes)
        return Parsed("not_a_query", used, error=f"the text is no query: {_start(bare)!r}", notes=notes)
    broken = cut_off(sql, backslash=used in _BACKSLASH) if _ends_open(bare) else None
    if broken:
        return Parsed("not_a_query", used, error=broken, notes=notes)
    written = _writes(tree, bare)
    if written:
        return Parsed("not_a_query", used, error=written, notes=notes)
    status: ParseStatus = "ok" if used == stated else "other_dialect"
    if used != stated:
        notes.append(f"not readable as {dialect or 'ANSI SQL'}; read as {used or 'ANSI SQL'}")
    return Parsed(status, used, tree, notes=notes)


def _ends_open(bare: str) -> bool:
    last = bare[-9:].lower().split()
    return bool(last) and not (last[-1].endswith((")", "'", '"', "`", "]")) or last[-1].isdigit())


def _writes(tree: exp.Expr, bare: str) -> str | None:
    """What a tree that looks like a query would write, or None."""
    into = tree.args.get("into")
    if into is not None:
        return f"SELECT … INTO writes the rows to {into.this.name if into.this is not None else 'a table'}"
    if not _WRITES.search(bare):
        return None
    for node in tree.find_all(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop):
        return f"it contains {type(node).__name__.upper()}, which changes data"
    return None


def _other_statement(bare: str) -> str:
    match = _STATEMENT.match(bare)
    if match:
        return f"{match.group(1).upper()} is a statement of another kind, not a query"
    return f"the text is no SQL query: {_start(bare)!r}"


def _start(bare: str) -> str:
    line = " ".join(bare.split())
    return line if len(line) <= 60 else line[:57] + "…"


def _prose(bare: str) -> bool:
    """Text that begins with a word of SQL by chance: "With regards to …", "Select the rows where …"."""
    lowered = bare.lower()
    if lowered.startswith("with"):
        return not re.search(r"\bas\b\s*(?:not\s+)?(?:materialized\s*)?\(", lowered)
    if lowered.startswith(("from", "table", "values")):
        return not re.search(r"[(=*]", lowered) or "select" not in lowered
    return not re.search(r"[(=*,'\"]", lowered) and bool(_ENGLISH & set(re.findall(r"[a-z]+", lowered)))


def _rescued(sql: str, dialect: str) -> exp.Expr | None:
    """ClickHouse's ``LIMIT n BY c LIMIT m``, which sqlglot does not read: the last LIMIT is put on the tree."""
    tail = re.search(r"(?<!\s)\s+limit\s+(\d+)$", sql.rstrip().removesuffix(";").rstrip(), re.I)
    head = sql[: tail.start()] if tail else ""
    names = re.search(r"(?<![\w\s,.`\"])[\w\s,.`\"]++$", head)
    if tail is None or names is None or re.search(r"\blimit\s+\d+\s+by\s+\S", names.group(), re.I) is None:
        return None
    trees, _ = _attempt(head, dialect)
    if not trees or len(trees) != 1 or not isinstance(trees[0], exp.Select):
        return None
    trees[0].meta["limit"] = int(tail.group(1))
    return trees[0]
