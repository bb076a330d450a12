"""SQL to specification: golden cases in sixteen dialects, and laws that hold for any spelling of a query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from stef_core.canonical import sql_spec_json
from stef_core.dialects import sqlglot_dialect
from stef_core.extract.sql import extract_sql
from stef_core.findings import CODES
from stef_core.records import Filter, SqlSpec

GOLDEN = Path(__file__).parents[1] / "golden" / "extract_sql.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
SHARED = Path(__file__).parents[3] / "shared" / "cases" / "cases_shared.jsonl"
DIALECTS = (
    "ansi snowflake bigquery postgres redshift mysql sqlite tsql oracle spark databricks duckdb clickhouse trino hive teradata"
)
# lists whose order means something
ORDERED = ("order_by", "inner_limits", "joins")


def spec_of(sql: str | None, dialect: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(sql_spec_json(extract_sql(sql, dialect))))
    return spec


def comparable(value: Any) -> Any:
    """Lists without order, as AND, OR and IN have none."""
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items()}
    if isinstance(value, list):
        return sorted((comparable(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    return value


def meaning(spec: dict[str, Any]) -> Any:
    """The parts of a specification in which two spellings of one query may not differ."""
    kept = "aggregations filters join_filters group_by grouping_sets order_by limit offset distinct set_op windows projections"
    return comparable({k: spec[k] for k in kept.split()} | {"branches": [meaning(b) for b in spec.get("branches", ())]})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_query_is_read_as_the_golden_case_says(case: dict[str, Any]) -> None:
    read = extract_sql(case["sql"], case["dialect"])
    spec = json.loads(json.dumps(sql_spec_json(read)))

    for part, wanted in case["expect"].items():
        found = spec.get(part)
        assert found == wanted if part in ORDERED else comparable(found) == comparable(wanted), part
    assert read.parse_status == case.get("status", "ok")
    if "defects" in case:
        assert sorted(d.kind for d in read.defects) == sorted(case["defects"])


@pytest.mark.parametrize("case", [c for c in CASES if "same_as" in c], ids=lambda case: case["id"])
def test_another_spelling_of_a_query_means_the_same(case: dict[str, Any]) -> None:
    spec = spec_of(case["sql"], case["dialect"])

    for other in case["same_as"]:
        assert meaning(spec_of(other, case["dialect"])) == meaning(spec), other


@pytest.mark.parametrize("case", [c for c in CASES if "differs_from" in c], ids=lambda case: case["id"])
def test_a_query_that_differs_on_some_data_reads_otherwise(case: dict[str, Any]) -> None:
    spec = spec_of(case["sql"], case["dialect"])

    for other in case["differs_from"]:
        assert comparable(spec_of(other, case["dialect"])) != comparable(spec), other


def test_golden_cases_cover_every_dialect_and_name_known_codes() -> None:
    assert {c["dialect"] for c in CASES} == set(DIALECTS.split())
    assert {d.code for c in CASES for d in extract_sql(c["sql"], c["dialect"]).defects} <= set(CODES)


# --- laws -------------------------------------------------------------------------------------------------------------

# queries whose packaging is their point, and one that sqlglot reads only in two pieces, cannot be printed anew
_READABLE = [
    c
    for c in CASES
    if c.get("status", "ok") == "ok" and c["expect"] and not any(mark in c["sql"] for mark in ("```", "--", "LIMIT 2 BY"))
]


def _renamed(tree: exp.Expr, prefix: str) -> exp.Expr:
    """Every table alias and CTE under another name."""
    names = {e.alias.lower() for e in tree.find_all(exp.CTE, exp.Subquery, exp.Table, exp.Lateral) if e.alias}
    tables = {t.name.lower() for t in tree.find_all(exp.Table)} - {c.alias.lower() for c in tree.find_all(exp.CTE)}
    names -= tables
    for node in tree.find_all(exp.Identifier):
        parent = node.parent
        owner = isinstance(parent, exp.TableAlias) or (isinstance(parent, exp.Column) and parent.args.get("table") is node)
        if (owner or isinstance(parent, exp.Table)) and str(node.this).lower() in names:
            node.set("this", prefix + str(node.this))
    return tree


def _upper(sql: str) -> str:
    """Everything but literals and quoted names in capitals."""
    out, quote = [], ""
    for char in sql:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`[":
            quote = "]" if char == "[" else char
        out.append(char if quote else char.upper())
    return "".join(out)


def _loose(sql: str) -> str:
    return (
        "\n\n  " + sql.replace(" ", "\n\t") + " ;\n-- as asked\n"
        if "'" not in sql and '"' not in sql
        else f"/* asked */ {sql} ;;"
    )


CHANGES: dict[str, Callable[[str, str], str]] = {
    "in capitals": lambda sql, dialect: _upper(sql),
    "spread over lines": lambda sql, dialect: _loose(sql),
    "printed anew": lambda sql, dialect: sqlglot.transpile(sql, read=dialect, write=dialect, pretty=True)[0],
    "under other aliases": lambda sql, dialect: _renamed(sqlglot.parse_one(sql, read=dialect), "zz_").sql(dialect=dialect),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", _READABLE, ids=lambda case: case["id"])
def test_layout_case_and_aliases_change_nothing(case: dict[str, Any], change: str) -> None:
    respelt = CHANGES[change](case["sql"], sqlglot_dialect(case["dialect"]) or "")

    assert comparable(spec_of(respelt, case["dialect"])) == comparable(spec_of(case["sql"], case["dialect"])), respelt


_COLUMNS = st.sampled_from(["city", "pages", "lent_on", "status"])
_VALUES = st.sampled_from(["'Mill'", "3", "'2024-05-01'", "'0042'", "1.5", "NULL", "TRUE"])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """A condition over one table, as text."""
    kind = draw(
        st.sampled_from(
            ["compare", "in", "null", "between", "like", "and", "or", "not"] if depth else ["compare", "in", "null"]
        )
    )
    column = draw(_COLUMNS)
    if kind == "compare":
        return f"{column} {draw(st.sampled_from(['=', '<>', '<', '>=']))} {draw(_VALUES)}"
    if kind == "in":
        return (
            f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(draw(st.lists(_VALUES, min_size=1, max_size=3)))})"
        )
    if kind == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "between":
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN 1 AND 9"
    if kind == "like":
        return f"{column} LIKE {draw(st.sampled_from([chr(39) + p + chr(39) for p in ('a%', 'abc', '_b')]))}"
    left, right = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
    return f"NOT ({left})" if kind == "not" else f"({left}) {kind.upper()} ({right})"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conditions())
def test_double_negation_and_derived_tables_leave_a_condition_what_it_is(condition: str) -> None:
    plain = spec_of(f"SELECT id FROM loans WHERE {condition}", "postgres")["filters"]

    negated = spec_of(f"SELECT id FROM loans WHERE NOT (NOT ({condition}))", "postgres")["filters"]
    renamed = ", ".join(f"{c} AS {c}_0" for c in ("city", "pages", "lent_on", "status"))
    above = condition
    for column in ("city", "pages", "lent_on", "status"):
        above = above.replace(column, f"{column}_0")
    derived = spec_of(f"SELECT q.id FROM (SELECT id, {renamed} FROM loans) q WHERE {above}", "postgres")["filters"]

    assert comparable(negated) == comparable(plain)
    assert comparable(derived) == comparable(plain)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=80) | st.binary(max_size=40).map(lambda b: b.decode("utf-8", "surrogateescape")),
    st.text(max_size=8) | st.none(),
)
def test_any_text_in_any_dialect_is_answered(text: str, dialect: str | None) -> None:
    read = extract_sql(text, dialect)

    assert read.parse_status in ("ok", "other_dialect", "repaired", "unparseable", "no_sql", "not_a_query")
    assert (read.error is None) == (read.parse_status in ("ok", "other_dialect", "repaired"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CASES), st.data())
def test_a_query_cut_anywhere_is_answered(case: dict[str, Any], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(case["sql"])))

    read = extract_sql(case["sql"][:at], case["dialect"])

    assert isinstance(read, SqlSpec)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "200"),
        ("SELECT " + "CASE WHEN a THEN " * 400 + "1" + " END" * 400 + " FROM t", "200"),
        ("SELECT a FROM t WHERE " + "NOT " * 5000 + "b", "prefix operators"),
        ("SELECT '" + "x" * 1_000_001 + "'", "1,000,000"),
    ],
)
def test_text_beyond_the_limits_is_refused_with_the_limit(sql: str, limit: str) -> None:
    read = extract_sql(sql, "postgres")

    assert read.parse_status == "unparseable"
    assert limit in (read.error or "")


def test_brackets_in_literals_and_comments_are_no_nesting() -> None:
    sql = f"SELECT a FROM t WHERE b = '{'(' * 5000}' /* {'(' * 5000} */"

    assert extract_sql(sql, "postgres").parse_status == "ok"


def test_a_list_of_five_thousand_is_one_condition() -> None:
    spec = spec_of(f"SELECT COUNT(*) FROM t WHERE id IN ({', '.join(map(str, range(5000)))})", "postgres")

    assert len(spec["filters"]) == 1
    assert len(spec["filters"][0]["value"]) == 5000


def test_ctes_that_double_at_every_step_are_read_in_bounded_time() -> None:
    steps = ", ".join(f"c{i} AS (SELECT a.x + b.x AS x FROM c{i - 1} a JOIN c{i - 1} b ON a.x = b.x)" for i in range(1, 30))

    started = time.perf_counter()
    read = extract_sql(f"WITH c0 AS (SELECT x FROM t), {steps} SELECT x FROM c29", "postgres")

    assert read.parse_status == "ok"
    assert time.perf_counter() - started < 20


def test_names_that_stand_for_each_other_end() -> None:
    for sql in (
        "SELECT a + 1 AS b, b + 1 AS a FROM t WHERE a > 1",
        "WITH x AS (SELECT * FROM x) SELECT a FROM x",
        "WITH RECURSIVE x AS (SELECT a FROM x UNION ALL SELECT a FROM x) SELECT a FROM x WHERE a = 1",
    ):
        assert extract_sql(sql, "snowflake").parse_status == "ok"


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_a_filter_remembers_its_table_its_literal_and_its_clause() -> None:
    read = extract_sql(
        "SELECT m.name FROM members m JOIN loans l ON l.member_id = m.id AND l.status = 'LATE' WHERE m.city = 'Lima'",
        "postgres",
    )

    evidence = {(f.column, f.table, f.raw, f.clause) for f in read.filters if isinstance(f, Filter)}

    assert evidence == {("status", "loans", ("LATE",), "on"), ("city", "members", ("Lima",), "where")}


def test_tables_columns_and_literals_are_listed_for_the_catalogue() -> None:
    read = extract_sql(
        "SELECT m.name FROM members m WHERE m.id IN (SELECT member_id FROM loans WHERE fine > 2.50) LIMIT 7", "postgres"
    )

    assert read.tables == ("loans", "members")
    assert read.columns == (("loans", "fine"), ("loans", "member_id"), ("members", "id"), ("members", "name"))
    assert read.literals == ("2.50",)
    assert read.subqueries == 1


def test_missing_sql_is_said_to_be_missing() -> None:
    assert extract_sql(None).parse_status == extract_sql(" \n").parse_status == "no_sql"
    assert extract_sql(None).statements == 0


def test_an_unknown_dialect_is_noted_and_read_all_the_same() -> None:
    read = extract_sql("SELECT TOP 5 [title] FROM [books]", "klingon")

    assert (read.parse_status, read.dialect, read.limit) == ("other_dialect", "tsql", 5)
    assert any("klingon" in note for note in read.notes)


def test_a_specification_equals_itself_and_hashes() -> None:
    one, two = (extract_sql("SELECT a FROM t WHERE b IN (SELECT c FROM u WHERE d = 1)", "postgres") for _ in range(2))

    assert one == two
    assert hash(one) == hash(two)
    assert {f.name for f in fields(one)} >= {"defects", "branches"}


# --- the shared conformance cases -------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.exists(), reason="the shared conformance cases are not beside this repository")
def test_shared_cases_are_read_as_they_expect() -> None:
    wrong = []
    for line in SHARED.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case.get("sql") is None:
            continue
        spec = spec_of(case["sql"], case["dialect"])
        for part, wanted in case["expect"].get("sql_spec", {}).items():
            found = spec.get(part.removesuffix("_contain"))
            if part.endswith("_contain"):
                ok = all(comparable(w) in comparable(found) for w in wanted)
            else:
                ok = comparable(found) == comparable(wanted)
            if not ok:
                wrong.append((case["id"], part, wanted, found))

    assert wrong == []


def test_a_cross_join_names_the_same_tables_on_every_run() -> None:
    """The first table in FROM order stands for the ones tied to it, whatever order a set of names comes in."""
    for at in range(24):
        first, tied, alone = f"orders_{at}", f"customer_{at}", f"store_{at}"
        spec = extract_sql(f"SELECT {first}.id FROM {first} JOIN {tied} ON {tied}.id = {first}.customer_id, {alone}")
        assert [d.sql_part for d in spec.defects if d.kind == "cross_join"] == [f"{first}, {alone}"]
