"""Rewrites each SQL in another style, its meaning untouched, and counts the rows whose score changes with it.

    python -m benchmarks.style [--examples N] [--only REWRITE] [--every N]

A score that letter case, aliases, layout, quotes, comments, brackets or a CTE in place of a subquery can move tells the habits
of the author, not the meaning. Every answer is read, aligned and judged as written and as rewritten; the question is read once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp

from benchmarks.labelled import SHARED, labelled_rows, spider_rows
from stef_core.catalogue import Catalogue
from stef_core.dialects import sqlglot_dialect
from stef_core.evaluate import EVALUATOR_ERROR, Read, conclude_many, examine, read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.extract.sql import extract_sql
from stef_core.judge.fitting import own_catalogue
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import Evaluation, QueryRecord
from stef_core.rules import DEFAULT_RULES

BOUND = 0.01  # share of rows whose Φ a rewrite may change
SPIDER_ROWS = 3000
PARTS = ("Φ", "filter status", "grade", "p_right")
_WORDS = (
    "amber birch cedar dune elm fjord grove heath iris junco kelp larch moss nettle oak pine quail reed sorrel thyme".split()
)


# --- the tree -------------------------------------------------------------------------------------------------------


def tree_of(sql: str, dialect: str) -> exp.Expr | None:
    """The one query in a text, or None where sqlglot reads no single query in it."""
    try:
        trees = [t for t in sqlglot.parse(sql, read=dialect or None) if t is not None and not isinstance(t, exp.Semicolon)]
    except (sqlglot.errors.SqlglotError, RecursionError, TypeError):
        return None
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def sources_of(select: exp.Expr) -> list[exp.Expr]:
    """Tables and derived tables that a SELECT reads itself, in order."""
    start = select.args.get("from_")
    found = [start.this] if start is not None else []
    found += [join.this for join in select.args.get("joins") or ()]
    return [s for s in found if isinstance(s, exp.Table | exp.Subquery)]


def visible_name(source: exp.Expr) -> str:
    """The name under which columns speak of a source; empty for a derived table without one."""
    return (source.alias or (source.name if isinstance(source, exp.Table) else "")).casefold()


def owners_of(tree: exp.Expr) -> dict[int, exp.Expr]:
    """For each qualified column, by id: the source that its qualifier names, innermost first."""
    names = {id(s): {visible_name(t): t for t in reversed(sources_of(s))} for s in tree.find_all(exp.Select)}
    owners: dict[int, exp.Expr] = {}
    for column in tree.find_all(exp.Column):
        select = column.find_ancestor(exp.Select)
        while column.table and select is not None:
            source = names[id(select)].get(column.table.casefold())
            if source is not None:
                owners[id(column)] = source
                break
            select = select.find_ancestor(exp.Select)
    return owners


def renamed(tree: exp.Expr, name: Callable[[exp.Expr, int], str | None]) -> exp.Expr | None:
    """The tree with another alias for each source.

    Args:
        tree: Changed in place.
        name: The alias of a source, given it and its number within its SELECT from 1; None takes an alias away.

    Returns:
        The tree; None where a column would speak of another source than before.
    """
    columns = list(tree.find_all(exp.Column))
    before = owners_of(tree)
    if any(c.table and id(c) not in before for c in columns):
        return None  # a qualifier that is no source of a SELECT: UNNEST, a struct
    for select in list(tree.find_all(exp.Select)):
        for number, source in enumerate(sources_of(select), 1):
            alias = name(source, number)
            if source.args.get("pivots") or source.args.get("joins"):
                return None
            old = source.args.get("alias")
            if old is not None and old.args.get("columns"):
                continue
            source.set("alias", exp.TableAlias(this=exp.to_identifier(alias)) if alias else None)
    for column in columns:
        if column.table:
            source = before[id(column)]
            column.set("table", exp.to_identifier(source.alias or source.name))
    return tree if {k: id(v) for k, v in owners_of(tree).items()} == {k: id(v) for k, v in before.items()} else None


# --- rewrites -------------------------------------------------------------------------------------------------------


def outside_quotes(sql: str, change: Callable[[str], str]) -> str:
    """A text with everything changed that stands in no literal, quoted name or comment."""
    out: list[str] = []
    plain: list[str] = []
    i = 0
    closing = {"'": "'", '"': '"', "`": "`", "[": "]"}

    def flush() -> None:
        out.append(change("".join(plain)))
        plain.clear()

    while i < len(sql):
        end = -1
        if sql[i] in closing:
            end = sql.find(closing[sql[i]], i + 1)
            end = end + 1 if end >= 0 else len(sql)
        elif sql.startswith("--", i):
            end = sql.find("\n", i)
            end = end if end >= 0 else len(sql)
        elif sql.startswith("/*", i):
            end = sql.find("*/", i)
            end = end + 2 if end >= 0 else len(sql)
        if end < 0:
            plain.append(sql[i])
            i += 1
            continue
        flush()
        out.append(sql[i:end])
        i = end
    flush()
    return "".join(out)


def in_capitals(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Keywords and unquoted names in capitals."""
    return outside_quotes(sql, str.upper)


def in_small_letters(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Keywords and unquoted names in small letters."""
    return outside_quotes(sql, str.lower)


def spread(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Every gap a line break and an indent, a semicolon behind."""
    return outside_quotes(sql.rstrip().rstrip(";"), lambda text: text.replace(" ", "\n\t ")) + "\n;\n"


def commented(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Comments in front, behind, and in one gap of four."""
    body = outside_quotes(
        sql.rstrip().rstrip(";"),
        lambda text: "".join(" /* see below */ " if c == " " and rng.random() < 0.25 else c for c in text),
    )
    return f"-- weekly report\n{body}\n-- end\n"


def _by_tree(change: Callable[[exp.Expr, str, random.Random], exp.Expr | None]) -> Callable[..., str | None]:
    def rewrite(sql: str, dialect: str, rng: random.Random) -> str | None:
        tree = tree_of(sql, dialect)
        changed = change(tree, dialect, rng) if tree is not None else None
        return changed.sql(dialect=dialect or None) if changed is not None else None

    rewrite.__doc__ = change.__doc__
    return rewrite


def _numbered(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """T1, T2, … for every table and derived table, counted through the whole query."""
    count = iter(range(1, 1000))
    return renamed(tree, lambda source, number: f"T{next(count)}")


def _random_names(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Aliases and names of CTEs that mean nothing."""
    words = iter(rng.sample(_WORDS, len(_WORDS)) + [f"{w}_{n}" for n in range(9) for w in _WORDS])
    taken = {i.name.casefold() for i in tree.find_all(exp.Identifier)}
    free = (w for w in words if w not in taken)
    changed = renamed(tree, lambda source, number: next(free))
    if changed is None:
        return None
    names = {cte.alias.casefold() for cte in changed.find_all(exp.CTE)}
    for name in sorted(names):
        uses = [t for t in changed.find_all(exp.Table) if t.name.casefold() == name and not t.db]
        ctes = [c for c in changed.find_all(exp.CTE) if c.alias.casefold() == name]
        if len(ctes) != 1 or any(u.find_ancestor(exp.CTE) is ctes[0] for u in uses):
            continue  # two of one name, or one that reads a table of its own name
        other = next(free)
        ctes[0].args["alias"].set("this", exp.to_identifier(other))
        for use in uses:
            use.set("this", exp.to_identifier(other))
    return changed


def _full_names(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """No aliases: columns named by their tables."""

    def name(source: exp.Expr, number: int) -> str | None:
        select = source.find_ancestor(exp.Select)
        twins = [s for s in sources_of(select) if s.name.casefold() == source.name.casefold()] if select is not None else []
        return source.alias or None if isinstance(source, exp.Subquery) or len(twins) > 1 or source.args.get("db") else None

    return renamed(tree, name)


def _qualified(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Every column of a query over one table named by that table."""
    selects = list(tree.find_all(exp.Select))
    if len(selects) != 1 or len(sources_of(selects[0])) != 1 or selects[0].args.get("laterals"):
        return None
    source = sources_of(selects[0])[0]
    own = {p.alias.casefold() for p in selects[0].expressions if isinstance(p, exp.Alias)}
    if not isinstance(source, exp.Table) or not visible_name(source):
        return None
    for column in tree.find_all(exp.Column):
        name = column.this
        # SQLite reads a quoted name that is no column as text; an alias of the outputs has no table
        if isinstance(name, exp.Identifier) and not column.table and not name.quoted and name.name.casefold() not in own:
            column.set("table", exp.to_identifier(source.alias or source.name))
    return tree


def _printed(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Printed anew by sqlglot, in one line."""
    return tree


def pretty(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Printed anew by sqlglot, over many lines."""
    tree = tree_of(sql, dialect)
    return tree.sql(dialect=dialect or None, pretty=True) if tree is not None else None


def quoted(sql: str, dialect: str, rng: random.Random) -> str | None:
    """Every name in quotes, in the case that the database gives it without."""
    tree = tree_of(sql, dialect)
    if tree is None:
        return None
    if dialect in ("postgres", "redshift"):
        for name in tree.find_all(exp.Identifier):
            if not name.quoted:
                name.set("this", name.name.lower())
    return tree.sql(dialect=dialect or None, identify=True)


_OPERATIONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def _bracketed(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Brackets around every condition, its sides, and computed outputs."""
    for comparison in list(tree.find_all(*_OPERATIONS)):
        for side in ("this", "expression"):
            value = comparison.args.get(side)
            if isinstance(value, exp.Column | exp.Literal | exp.Binary):
                comparison.set(side, exp.Paren(this=value.copy()))
    for place in list(tree.find_all(exp.Where, exp.Having)):
        condition = place.this
        for part in list(condition.flatten()) if isinstance(condition, exp.And) else []:
            if not isinstance(part, exp.Paren | exp.And):
                part.replace(exp.Paren(this=part.copy()))
        place.set("this", exp.Paren(this=place.this.copy()))
    for join in list(tree.find_all(exp.Join)):
        if join.args.get("on") is not None:
            join.set("on", exp.Paren(this=join.args["on"].copy()))
    for select in list(tree.find_all(exp.Select)):
        for output in list(select.expressions):
            value = output.this if isinstance(output, exp.Alias) else output
            if isinstance(value, exp.Div | exp.Mul | exp.Sub | exp.Add):
                value.replace(exp.Paren(this=value.copy()))
    return tree


def _with_clause(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Derived tables and uncorrelated subqueries moved into a WITH clause."""
    if any(w is not tree.args.get("with_") for w in tree.find_all(exp.With)):
        return None  # a WITH inside a subquery: what it reads is not visible above
    names = {i.name.casefold() for i in tree.find_all(exp.Identifier)}
    free = (n for n in (f"part_{i}" for i in range(1, 100)) if n not in names)
    found = [s for s in tree.find_all(exp.Subquery) if s.find_ancestor(exp.CTE) is None and isinstance(s.this, exp.Query)]
    moved: list[exp.CTE] = []
    for subquery in sorted(found, key=lambda s: -s.depth):  # the innermost first: what is moved may read what was
        if not _is_closed(tree, subquery):
            continue
        name, query, parent = next(free), subquery.this, subquery.parent
        if isinstance(parent, exp.From | exp.Join):
            if not subquery.alias or subquery.args["alias"].args.get("columns"):
                continue
            moved.append(exp.CTE(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier(name))))
            subquery.replace(exp.to_table(name).as_(subquery.alias))
            continue
        first = query.selects[0] if len(query.selects) == 1 else None
        if first is None or first.is_star or isinstance(parent, exp.SetOperation | exp.Subquery):
            continue
        if isinstance(first, exp.Column | exp.Alias):
            output = first.output_name
        else:
            output = "value_1"
            first.replace(first.copy().as_(output))
        moved.append(exp.CTE(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier(name))))
        subquery.set("this", exp.select(exp.column(output)).from_(name))
    if not moved:
        return None
    clause = tree.args.get("with_")
    before = list(clause.expressions) if clause is not None else []
    tree.set("with_", exp.With(expressions=before + moved, recursive=bool(clause and clause.args.get("recursive"))))
    return tree


def _is_closed(tree: exp.Expr, subquery: exp.Expr) -> bool:
    """Whether a subquery speaks of no source outside itself."""
    owners = owners_of(tree)
    for column in subquery.find_all(exp.Column):
        if not column.table:
            continue
        source = owners.get(id(column))
        if source is None or source.find_ancestor(exp.Subquery) is None or not _within(source, subquery):
            return False
    return all(s.args.get("from_") is not None for s in subquery.find_all(exp.Select))


def _within(node: exp.Expr, ancestor: exp.Expr) -> bool:
    parent: exp.Expr | None = node.parent
    while parent is not None and parent is not ancestor:
        parent = parent.parent
    return parent is ancestor


def _inlined(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Every CTE put where it is read, as a derived table."""
    clause = tree.args.get("with_")
    if clause is None or clause.args.get("recursive") or len(list(tree.find_all(exp.With))) > 1:
        return None
    bodies: dict[str, exp.Expr] = {}
    for cte in clause.expressions:
        if cte.args["alias"].args.get("columns") or cte.alias.casefold() in bodies:
            return None
        if any(t.name.casefold() == cte.alias.casefold() for t in cte.this.find_all(exp.Table)):
            return None
        _inline(cte.this, bodies)
        bodies[cte.alias.casefold()] = cte.this
    tree.set("with_", None)
    _inline(tree, bodies)
    return tree


def _inline(tree: exp.Expr, bodies: dict[str, exp.Expr]) -> None:
    for table in list(tree.find_all(exp.Table)):
        body = bodies.get(table.name.casefold()) if not table.db else None
        if body is not None:
            joins = table.args.get("joins")
            made = exp.Subquery(this=body.copy(), alias=exp.TableAlias(this=exp.to_identifier(table.alias or table.name)))
            made.set("joins", joins)
            table.replace(made)


def _output_names(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Other names for the outputs, where nothing speaks of them."""
    if not isinstance(tree, exp.Select):
        return None
    named = {c.name.casefold() for c in tree.find_all(exp.Column) if not c.table}
    for number, output in enumerate(list(tree.expressions), 1):
        value = output.this if isinstance(output, exp.Alias) else output
        if value.is_star or (isinstance(output, exp.Alias) and output.alias.casefold() in named):
            continue
        output.replace(exp.alias_(value.copy(), f"output_{number}"))
    return tree


def _commas(tree: exp.Expr, dialect: str, rng: random.Random) -> exp.Expr | None:
    """Inner joins as a list of tables, their conditions in WHERE."""
    changed = False
    for select in list(tree.find_all(exp.Select)):
        joins = select.args.get("joins") or []
        plain = joins and all(
            j.args.get("on") is not None and not j.side and (j.kind or "").upper() in ("", "INNER") and not j.method
            for j in joins
        )
        if not plain or not all(isinstance(j.this, exp.Table) for j in joins):
            continue
        conditions = [j.args["on"].copy() for j in joins]
        for join in joins:
            join.set("on", None)
            join.set("kind", None)
        select.where(*conditions, copy=False)
        changed = True
    return tree if changed else None


def everything(sql: str, dialect: str, rng: random.Random) -> str | None:
    """All of it at once."""
    for step in (REWRITES["random aliases"], REWRITES["WITH for subquery"], REWRITES["brackets"], pretty):
        sql = step(sql, dialect, rng) or sql
    sql = in_capitals(sql, dialect, rng) or sql
    return commented(sql, dialect, rng)


Rewrite = Callable[[str, str, random.Random], str | None]
REWRITES: dict[str, Rewrite] = {
    "capitals": in_capitals,
    "small letters": in_small_letters,
    "line breaks": spread,
    "comments": commented,
    "T1, T2 aliases": _by_tree(_numbered),
    "random aliases": _by_tree(_random_names),
    "no aliases": _by_tree(_full_names),
    "qualified columns": _by_tree(_qualified),
    "printed anew": _by_tree(_printed),
    "pretty": pretty,
    "quoted names": quoted,
    "brackets": _by_tree(_bracketed),
    "WITH for subquery": _by_tree(_with_clause),
    "subquery for WITH": _by_tree(_inlined),
    "output names": _by_tree(_output_names),
    "commas for JOIN": _by_tree(_commas),
    "all together": everything,
}


def rewritten(sql: str | None, dialect: str | None, rewrite: str, *, seed: int = 0) -> str | None:
    """One SQL in another style; None where the rewrite has nothing to change, or cannot be sure to keep the meaning.

    Args:
        sql: The query.
        dialect: As logs name it.
        rewrite: A key of `REWRITES`.
        seed: Of the random names and places.
    """
    if not sql:
        return None
    changed = REWRITES[rewrite](sql, sqlglot_dialect(dialect) or "", random.Random(seed))
    return changed if changed != sql else None


# --- what changes ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Rows that a rewrite applies to, those whose score it changes, and the pairs of readings behind them."""

    rows: int = 0
    changed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    examples: list[tuple[Evaluation, Evaluation, str, str]] = field(default_factory=list)

    def share(self, part: str = "Φ") -> float:
        """Share of rows whose Φ, filter status, grade or p_right changes."""
        return self.changed[part] / self.rows if self.rows else 0.0


def differences(before: Evaluation, after: Evaluation) -> set[str]:
    """The `PARTS` in which two evaluations differ; p_right beyond 1e-9."""

    def parts(e: Evaluation) -> tuple[object, ...]:
        return (
            e.score.phi if e.score else e.reason,
            e.alignment.filter_status if e.alignment else e.reason,
            e.verdict.grade if e.verdict else None,
        )

    found = {name for name, a, b in zip(PARTS, parts(before), parts(after), strict=False) if a != b}
    old, new = (e.verdict.p_right if e.verdict else None for e in (before, after))
    if (old is None) != (new is None) or (old is not None and new is not None and abs(old - new) > 1e-9):
        found.add("p_right")
    return found


def measure(read: Sequence[Read], catalogue: Catalogue | None, rewrite: str) -> Tally:
    """Judge rows as written and as rewritten.

    Args:
        read: Rows with both sides read.
        catalogue: What the rows as written show; None without the witness.
        rewrite: A key of `REWRITES`.
    """
    tally = Tally()
    before, after, texts = [], [], []
    for index, row in enumerate(read):
        sql = rewritten(row.record.generated_sql, row.record.dialect, rewrite, seed=index)
        if sql is None:
            continue
        record = replace(row.record, generated_sql=sql)
        other = replace(row, record=record, reading=replace(row.reading, sql=extract_sql(sql, record.dialect)))
        before.append(row)
        after.append(other)
        texts.append((row.record.generated_sql or "", sql))
    tally.rows = len(before)
    for old, new, (as_was, as_is) in zip(judged(before, catalogue), judged(after, catalogue), texts, strict=True):
        found = differences(old, new)
        for part in found:
            tally.changed[part] += 1
        if found:
            tally.examples.append((old, new, as_was, as_is))
    return tally


def judged(read: Sequence[Read], catalogue: Catalogue | None) -> list[Evaluation]:
    """Rows that were read, to the end.

    Raises:
        RuntimeError: The evaluator failed on a row; two failures would count as no change.
    """
    rules = [DEFAULT_RULES] * len(read)
    done = conclude_many([examine(r, DEFAULT_RULES, catalogue) for r in read], rules, SymbolicJudge())
    failed = next((e for e in done if e.reason == EVALUATOR_ERROR), None)
    if failed is not None:
        raise RuntimeError(f"the evaluator failed on {failed.query_id}: {failed.verdict.reasons if failed.verdict else ''}")
    return done


def read_rows(records: Sequence[QueryRecord]) -> list[Read]:
    """Both sides of each row, with the offline reader and the default rules."""
    return read_many(records, [DEFAULT_RULES] * len(records), OfflineReader())


def explained(old: Evaluation, new: Evaluation, before: str, after: str) -> Iterator[str]:
    """One changed row for a person: both texts and what is found on one side only."""
    yield f"  {old.query_id}"
    yield f"    as was  {' '.join(before.split())}"
    yield f"    as is   {' '.join(after.split())}"
    sides = []
    for e in (old, new):
        phi = e.score.phi if e.score else None
        p = e.verdict.p_right if e.verdict else None
        yield f"    Φ {phi}  p_right {p}  {e.alignment.filter_status if e.alignment else e.reason}"
        found = {f"{f.kind} {f.strength:.2f} {f.message}" for f in e.findings}
        sides.append(found | {f"+{n} {v:.3f}" for n, v in (e.alignment.support if e.alignment else ())})
    yield from (f"    only as was: {line}" for line in sorted(sides[0] - sides[1]))
    yield from (f"    only as is:  {line}" for line in sorted(sides[1] - sides[0]))


def main() -> int:
    """Measure every rewrite on labelled rows, without and with the catalogue, and on Spider rows; exit 1 over the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="print this many changed rows of each rewrite")
    parser.add_argument("--only", choices=REWRITES, help="one rewrite")
    parser.add_argument("--every", type=int, default=1, help="take one row in so many")
    args = parser.parse_args()
    if not SHARED.is_dir():
        print(f"{SHARED.name}: the labelled data is not here; nothing to measure", file=sys.stderr)
        return 2
    start = time.monotonic()
    labelled = read_rows([i.record for i in labelled_rows()])
    spider = [i.record for i, _ in spider_rows()]
    spiders = read_rows(spider[:: max(1, len(spider) // SPIDER_ROWS)][:SPIDER_ROWS])
    catalogue = own_catalogue(labelled)
    worst = 0.0
    print(f"{'share of rows changed, %':34s}{'rows':>7s}" + "".join(f"{p:>15s}" for p in PARTS))
    for name, rows, witness in (
        ("labelled", labelled, None),
        ("labelled, catalogue", labelled, catalogue),
        ("Spider", spiders, None),
    ):
        for rewrite in [args.only] if args.only else REWRITES:
            tally = measure(rows[:: args.every], witness, rewrite)
            worst = max(worst, tally.share())
            cells = "".join(f"{100 * tally.share(p):15.2f}" for p in PARTS)
            print(f"{name + ': ' + rewrite:34s}{tally.rows:7d}{cells}", flush=True)
            for example in tally.examples[: args.examples]:
                print("\n".join(explained(*example)))
    print(f"worst {100 * worst:.2f} % of Φ, bound {100 * BOUND:.0f} %; {time.monotonic() - start:.0f} s")
    return 0 if worst < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
