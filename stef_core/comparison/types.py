"""Values and columns of different kinds held against each other."""

from __future__ import annotations

import re

from stef_core.comparison.common import (
    Comparison,
    base_name,
    leaves,
    whole,
)
from stef_core.lexicon import attribute_of, identifier_words, word_similarity
from stef_core.records import (
    ColumnValue,
)
from stef_core.wording import column_text, condition_text


def compare_types(c: Comparison) -> None:
    """Values and columns of different kinds held against each other, and ids where names were asked for."""
    sql = c.sql
    for f in leaves(sql.filters):
        name = base_name(f.column) if isinstance(f.column, str) else None
        values = f.value if isinstance(f.value, tuple) else (f.value,)
        if name is None or f.agg or f.window:
            continue
        if (
            _names_date(name)
            and any(_bare_year(v) for v in values)
            and f.op in ("=", "in", "!=", "<", "<=", ">", ">=", "between")
        ):
            c.note(
                "wrong_filter_value",
                f"{name} is a date and is compared with the bare year {values[0]}.",
                sql_part=condition_text(f),
                kind="date_against_year",
                severity="major",
            )
        if f.op in ("=", "like") and any(_means(clause, name, v) for v in values for clause in c.clauses):
            c.note(
                "wrong_filter_value",
                f"{values[0]} belongs to what {name} means; it is no value of it.",
                sql_part=condition_text(f),
                kind="meaning_as_value",
            )
        if isinstance(f.value, ColumnValue) and f.op == "=" and f.table and f.value.table == f.table:
            asked_for = any(
                name in x.casefold() and str(base_name(f.value.column)) in x.casefold() and "=" in x for x in c.clauses
            )
            if not asked_for and not {"same", "equal", "both", "identical", "match"} & c.spoken:
                c.note(
                    "extra_filter",
                    f"Nobody asked for {condition_text(f)}.",
                    sql_part=condition_text(f),
                    kind="extra_column_equality",
                )
        other = next((v for v in values if isinstance(v, str) and _of_other_kind(v, name)), None)
        if other is not None:
            c.note(
                "wrong_filter_column",
                f"'{other}' is a {attribute_of(other)[0]}; the SQL looks for it in {name}.",
                sql_part=condition_text(f),
                kind="value_of_other_kind",
                severity="major",
            )
    for edge in dict.fromkeys(sql.joins):
        text = f"{edge.left_table}.{edge.left_column}={edge.right_table}.{edge.right_column}"
        seen = c.witness is not None and c.witness.others("edge", text) > 0
        if edge.left_column == edge.right_column == "id" and edge.left_table != edge.right_table and not seen:
            c.note(
                "wrong_join",
                f"{edge.left_table} and {edge.right_table} are tied by the ids of two different things.",
                sql_part=f"{edge.left_table}.id = {edge.right_table}.id",
                kind="join_id_id",
                severity="major",
            )
    for expression in sql.expressions:
        match = re.search(r"\b([a-z_][\w]*) - \1\b", expression)
        if match:
            c.note(
                "extra_transformation",
                f"{match[0]} is always 0.",
                sql_part=match[0],
                kind="self_difference",
                severity="critical",
            )
    for a in sql.aggregations:
        parts = identifier_words(base_name(a.column) or "")
        if a.func in ("sum", "avg") and parts and parts[-1] in ("id", "uuid", "key"):
            text = f"{a.func}({column_text(a.column)})"
            c.note("wrong_aggregation", f"{text} adds up identifiers.", sql_part=text, kind="sum_of_id")
    counted = [a for a in sql.aggregations if a.func == "count" and not a.distinct and a.column != "*"]
    if counted and len(set(sql.tables)) >= 2 and not sql.group_by:
        held = {f.table for f in leaves(sql.filters) if f.table}
        if any(a.table and held - {a.table} for a in counted):
            c.note(
                "missing_distinct",
                "Rows of a joined table decide what is counted; one thing may be counted more than once.",
                kind="count_over_join",
                severity="minor",
            )


def _means(clause: str, name: str, value: object) -> bool:
    """Whether a clause explains a column by a phrase that holds this value, and compares nothing."""
    text = clause.casefold()
    if not isinstance(value, int | float) or isinstance(value, bool) or re.search(r"[=<>]|between|like", text):
        return False
    return bool(re.search(rf"\b{re.escape(name)}\b", text)) and bool(re.search(rf"\b{re.escape(whole(value))}\b", text))


def _names_date(name: str) -> bool:
    parts = set(identifier_words(name))
    return bool(parts & {"date", "dob", "birthday", "birthdate", "timestamp", "datetime"}) or name.endswith(("_at", "date"))


def _bare_year(value: object) -> bool:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return bool(re.fullmatch(r"1[89]\d\d|20\d\d", text))


_KINDS = frozenset("country city continent state language color colour gender sex nationality weekday month".split())


def _of_other_kind(value: str, name: str) -> bool:
    """A value of one well-known kind in a column that names another one: a continent in ``country``."""
    kinds = set(attribute_of(value)) & _KINDS
    have = set(identifier_words(name)) & _KINDS
    return bool(kinds and have) and not any(word_similarity(k, h) >= 0.85 for k in kinds for h in have)
