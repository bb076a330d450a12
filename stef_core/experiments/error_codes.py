"""Why a wrong answer is wrong, told from the two syntax trees: differences, error codes, and their Pareto table.

Offline and deterministic. Each difference is a finding code; `stef_core.findings.CODES` maps it to an error code.

Source: experiments.md, "The loop" 5.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from stef_core.canonical import column_json, condition_json, value_json
from stef_core.dialects import sqlglot_dialect
from stef_core.extract.sql import extract_sql
from stef_core.extract.sql_text import unpack
from stef_core.findings import CODES
from stef_core.records import Aggregation, Column, Condition, DatePart, DateTrunc, Filter, SqlSpec
from stef_core.wording import aggregation_text, column_text, condition_text

ErrorCode: TypeAlias = Literal[
    "AGGR_DISTINCT_MISSING",
    "WRONG_FILTER_COLUMN",
    "WRONG_SOURCE_TABLE_OR_COLUMN",
    "EXTRA_TRANSFORMATION_OR_CONDITION",
    "OUTPUT_COLUMN_ALIAS_MISMATCH",
    "NULL_OR_EMPTY_RESULT",
    "GENERIC_VALUE_MISMATCH",
    "OTHER",
]
_LITERAL = re.compile(r"'(?:[^']|'')*'")
ERROR_CODES: tuple[ErrorCode, ...] = get_args(ErrorCode)
EMPTY_FLAGS = frozenset({"prediction_empty", "prediction_failed"})  # of an outcome: nothing came back to compare
DIFFERENCES_TOLD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which the predicted query departs from the gold query."""

    finding: str  # a key of `stef_core.findings.CODES`, or "" where none says it
    error_code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Why one answer is wrong."""

    codes: tuple[ErrorCode, ...]  # one at least, the weightiest first
    text: str  # one or a few sentences
    differences: tuple[Difference, ...] = ()
    by: str = "trees"  # trees, or the model that told it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One line of the Pareto table."""

    code: str
    rows: int
    share: float  # of the analysed rows, 0-1; a row may carry several codes
    cumulative: float  # share of rows that carry this code or one above it, 0-1
    examples: tuple[int, ...] = field(default=())  # indices of the first rows that carry it


def analyse(gold: Sequence[str], predicted: str | None, dialect: str | None = None, *, flags: Iterable[str] = ()) -> Analysis:
    """Tell from the syntax trees why a predicted query gives another result than gold.

    Args:
        gold: Accepted queries; the nearest one is held against the prediction.
        predicted: What the agent wrote.
        dialect: Of all of them, by sqlglot's name.
        flags: Of the execution; one of `EMPTY_FLAGS` adds ``NULL_OR_EMPTY_RESULT``.
    """
    found = min((differences(one, predicted, dialect) for one in gold), key=len, default=[])
    empty = EMPTY_FLAGS & set(flags)
    if empty and not any(d.error_code == "NULL_OR_EMPTY_RESULT" for d in found):
        message = "the query failed" if "prediction_failed" in empty else "no rows came back"
        found.append(Difference(finding="", error_code="NULL_OR_EMPTY_RESULT", message=message))
    codes = tuple(dict.fromkeys(d.error_code for d in found)) or ("OTHER",)
    if not found:
        return Analysis(codes=codes, text="The two queries differ in nothing that their syntax trees show.")
    told = [d.message for d in found[:DIFFERENCES_TOLD]]
    more = len(found) - len(told)
    text = "; ".join(told) + (f"; and {more} more" if more else "") + "."
    return Analysis(codes=codes, text=text[0].upper() + text[1:], differences=tuple(found))


def differences(gold: str, predicted: str | None, dialect: str | None = None) -> list[Difference]:
    """In what a predicted query departs from one gold query, weightiest first; empty where their trees say the same."""
    spec = extract_sql(predicted, dialect)
    if spec.parse_status in ("no_sql", "not_a_query", "unparseable"):
        code = "no_sql" if spec.parse_status == "no_sql" else "not_a_query"
        return [_of(code, spec.error or CODES[code].meaning)]
    wanted = extract_sql(gold, dialect)
    if wanted.parse_status in ("no_sql", "not_a_query", "unparseable"):
        return []
    found = list(_compare(wanted, spec))
    if not found:
        found = list(_leftovers(wanted, spec, gold, predicted or "", dialect))
    return list({(d.finding, d.message): d for d in found}.values())


def pareto(codes: Sequence[Sequence[str]], *, examples: int = 3) -> list[Tally]:
    """How often each code stands in some rows, most frequent first.

    Args:
        codes: Codes of each row.
        examples: Rows that each line names at most.
    """
    counts = Counter(code for row in codes for code in set(row))
    order = sorted(counts, key=lambda code: (-counts[code], code))
    tallies: list[Tally] = []
    for n, code in enumerate(order, 1):
        covered = sum(bool(set(row) & set(order[:n])) for row in codes)
        tallies.append(
            Tally(
                code=code,
                rows=counts[code],
                share=counts[code] / len(codes),
                cumulative=covered / len(codes),
                examples=tuple(i for i, row in enumerate(codes) if code in row)[:examples],
            )
        )
    return tallies


# --- one specification against the other ----------------------------------------------------------------------------


def _compare(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    """Differences by what they weigh: sources, conditions, aggregates, groups, outputs, order, the rest."""
    if gold.set_op != spec.set_op:
        yield _of(
            "wrong_set_operation", f"combines results by {spec.set_op or 'no set operation'}, gold by {gold.set_op or 'none'}"
        )
    elif gold.branches and len(gold.branches) == len(spec.branches):
        for one, other in zip(gold.branches, spec.branches, strict=True):
            yield from _compare(one, other)
    yield from _tables(gold, spec)
    yield from _conditions(gold, spec)
    yield from _distinct(gold, spec)
    yield from _aggregations(gold, spec)
    yield from _groups(gold, spec)
    yield from _outputs(gold, spec)
    yield from _order(gold, spec)
    yield from _windows(gold, spec)
    yield from _joins(gold, spec)
    yield from _spellings(gold, spec)
    known = {(d.kind, d.sql_part) for d in gold.defects}
    for defect in spec.defects:
        if (defect.kind, defect.sql_part) not in known:
            yield _of(defect.code, defect.message)


def _tables(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    missing = sorted(set(gold.tables) - set(spec.tables))
    extra = sorted(set(spec.tables) - set(gold.tables))
    if missing and extra:
        yield _of("wrong_join", f"reads {', '.join(extra)} where gold reads {', '.join(missing)}")
    elif missing:
        yield _of("wrong_join", f"does not read {', '.join(missing)}")
    elif extra:
        yield _of("wrong_join", f"reads {', '.join(extra)}, which gold does not need")


def _conditions(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    wanted, there = _all_conditions(gold), _all_conditions(spec)
    missing, extra = _apart(wanted, there, lambda c: json.dumps(condition_json(c), sort_keys=True, default=str))
    for alike, code, say in _PAIRINGS:
        for condition in list(missing):
            other = next((c for c in extra if alike(condition, c)), None)
            if other is not None:
                missing.remove(condition)
                extra.remove(other)
                yield _of(code, say.format(condition_text(other), condition_text(condition)))
    for condition in missing:
        nested = any(_is_nested(c) for c in _leaves(condition))
        yield _of(
            "missing_subquery_condition" if nested else "missing_filter", f"lacks the condition {condition_text(condition)}"
        )
    for condition in extra:
        yield _of("extra_filter", f"adds the condition {condition_text(condition)}")


def _all_conditions(spec: SqlSpec) -> list[Condition]:
    return [*spec.filters, *spec.join_filters]


def _leaves(condition: Condition) -> Iterator[Filter]:
    if isinstance(condition, Filter):
        yield condition
        return
    for inner in condition.conditions:
        yield from _leaves(inner)


def _is_nested(condition: Filter) -> bool:
    return type(condition.value).__name__ in ("SubQuery", "ScalarQuery")


def _same(*parts: str) -> Callable[[Condition, Condition], bool]:
    def alike(one: Condition, other: Condition) -> bool:
        if not isinstance(one, Filter) or not isinstance(other, Filter) or (one.agg is None) != (other.agg is None):
            return False
        return all(_part(one, part) == _part(other, part) for part in parts)

    return alike


def _part(condition: Filter, part: str) -> Any:
    if part == "value":
        return json.dumps(value_json(condition.value), sort_keys=True, default=str)
    if part == "nested":
        return _is_nested(condition)
    return getattr(condition, part)


def _matching(one: Condition, other: Condition) -> bool:
    """One column matched with other values, by whichever of ``= IN LIKE``."""
    if not isinstance(one, Filter) or not isinstance(other, Filter) or _is_nested(one) or _is_nested(other):
        return False
    families = [next((n for n, family in enumerate(_MATCHING) if each.op in family), None) for each in (one, other)]
    same = families[0] is not None and families[0] == families[1] and _same("column", "agg")(one, other)
    return same and _part(one, "value") != _part(other, "value")


def _regrouped(one: Condition, other: Condition) -> bool:
    """The same conditions tied by another AND or OR."""
    if isinstance(one, Filter) and isinstance(other, Filter):
        return False
    columns = [{str(leaf.column) for leaf in _leaves(c)} for c in (one, other)]
    return bool(columns[0] & columns[1])


_MATCHING = (("=", "in", "like"), ("!=", "not_in", "not_like"))
# what a missing condition and an extra one have in common, tried in this order, and what the pair then is
_PAIRINGS: tuple[tuple[Callable[[Condition, Condition], bool], str, str], ...] = (
    (_same("column", "op", "agg", "nested"), "wrong_filter_value", "compares {} where gold has {}"),
    (_matching, "wrong_filter_value", "compares {} where gold has {}"),
    (_same("op", "value", "agg"), "wrong_filter_column", "sets {} where gold has {}"),
    (_same("column", "value", "agg"), "wrong_filter_operator", "compares {} where gold has {}"),
    (_same("column", "agg", "nested"), "wrong_filter_operator", "compares {} where gold has {}"),
    (_same("column", "agg"), "missing_subquery_condition", "compares {} where gold has {}"),
    (_same("op", "nested"), "wrong_filter_column", "sets {} where gold has {}"),
    (_regrouped, "wrong_filter_operator", "ties conditions as {} where gold has {}"),
)


def _distinct(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    # GROUP BY over what is output removes repeats as well
    if gold.distinct and not spec.distinct and not spec.group_by:
        yield _of("missing_distinct", "lists repeats, gold removes them with DISTINCT")
    elif spec.distinct and not gold.distinct and not gold.group_by:
        yield _of("extra_distinct", "removes repeats with DISTINCT, gold keeps them")


def _aggregations(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    missing, extra = _apart(gold.aggregations, spec.aggregations, _aggregation_key)
    for wanted in list(missing):
        for other in extra:
            if (wanted.func, _key(wanted.column)) == (other.func, _key(other.column)) and wanted.distinct != other.distinct:
                code = "missing_distinct" if wanted.distinct else "extra_distinct"
            elif _but_filter(wanted) == _but_filter(other):
                code = "wrong_filter_value" if len(wanted.filter) == len(other.filter) else "wrong_aggregation"
            elif wanted.func == other.func:
                if wanted.distinct and not other.distinct:
                    yield _of(
                        "missing_distinct", f"{aggregation_text(other)} counts repeats, gold has {aggregation_text(wanted)}"
                    )
                code = "wrong_output"
            elif len(missing) == len(extra) == 1 or _key(wanted.column) == _key(other.column):
                code = "wrong_aggregation"
            else:
                continue
            missing.remove(wanted)
            extra.remove(other)
            yield _of(code, f"computes {aggregation_text(other)} where gold has {aggregation_text(wanted)}")
            break
    for wanted in missing:
        yield _of("missing_aggregation", f"does not compute {aggregation_text(wanted)}")
    for other in extra:
        yield _of("extra_aggregation", f"computes {aggregation_text(other)}, which gold does not")


def _but_filter(aggregation: Aggregation) -> tuple[str, str, bool]:
    return aggregation.func, _key(aggregation.column), aggregation.distinct


def _aggregation_key(aggregation: Aggregation) -> str:
    filters = [condition_json(c) for c in aggregation.filter]
    return json.dumps(
        [aggregation.func, column_json(aggregation.column), aggregation.distinct, filters], sort_keys=True, default=str
    )


def _groups(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    missing, extra = _apart(gold.group_by, spec.group_by, _key)
    if missing and extra:
        yield _of("wrong_group_by", f"groups by {_names(extra)} where gold groups by {_names(missing)}")
    elif missing and not (spec.distinct and not gold.aggregations):
        yield _of("missing_group_by", f"does not group by {_names(missing)}")
    elif extra and not (gold.distinct and not spec.aggregations):
        yield _of("extra_group_by", f"groups by {_names(extra)}, gold does not")


def _outputs(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    missing, extra = _apart(gold.projections, spec.projections, _key)
    if missing and extra:
        same = {_base(c) for c in missing} & {_base(c) for c in extra}
        bare = [sorted(_LITERAL.sub("'…'", column_text(c)) for c in columns) for columns in (missing, extra)]
        code = "wrong_filter_value" if bare[0] == bare[1] else ("extra_transformation" if same else "wrong_output")
        yield _of(code, f"outputs {_names(extra)} where gold outputs {_names(missing)}")
    elif missing:
        yield _of("missing_output", f"does not output {_names(missing)}")
    elif extra:
        yield _of("extra_output", f"outputs {_names(extra)}, which gold does not")
    else:
        wanted, other = _apart(gold.expressions, spec.expressions, str)
        aggregates = list(map(_aggregation_key, gold.aggregations)) == list(map(_aggregation_key, spec.aggregations))
        if wanted and other and aggregates:
            yield _of("extra_transformation", f"computes {', '.join(other)} where gold has {', '.join(wanted)}")
        elif len(gold.expressions) < len(spec.expressions) and aggregates:
            yield _of("extra_output", f"outputs {len(spec.expressions)} columns, gold {len(gold.expressions)}")
        elif len(gold.expressions) > len(spec.expressions) and aggregates:
            yield _of("missing_output", f"outputs {len(spec.expressions)} columns, gold {len(gold.expressions)}")


def _order(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    picks = gold.limit is not None or spec.limit is not None
    wanted = [(_key(k.column), k.agg, k.window) for k in gold.order_by]
    there = [(_key(k.column), k.agg, k.window) for k in spec.order_by]
    if wanted and not there:
        yield _of("missing_order", "has no ORDER BY, gold has one")
    elif wanted == there and [k.dir for k in gold.order_by] != [k.dir for k in spec.order_by]:
        yield _of("wrong_order_direction", "orders in the other direction than gold")
    elif wanted and there and wanted != there:
        yield _of("wrong_output", "orders by something else than gold")
    elif there and not wanted and picks:
        yield _of("extra_transformation", "picks rows by an ORDER BY that gold does not have")
    if gold.limit is not None and spec.limit is None:
        yield _of("missing_limit", f"returns all rows, gold {gold.limit}")
    elif gold.limit is None and spec.limit is not None:
        yield _of("unrequested_limit", f"returns {spec.limit} rows at most, gold all")
    elif (gold.limit, gold.offset) != (spec.limit, spec.offset):
        yield _of("wrong_limit", f"returns {_limit(spec)}, gold {_limit(gold)}")


def _limit(spec: SqlSpec) -> str:
    return f"{'all' if spec.limit is None else spec.limit} rows" + (f" from row {spec.offset + 1}" if spec.offset else "")


def _windows(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    missing, extra = _apart(gold.windows, spec.windows, repr)
    if missing or extra:
        yield _of("wrong_window", f"has {len(spec.windows)} window functions, gold {len(gold.windows)}, not the same ones")
    inner, other = len(gold.inner_limits), len(spec.inner_limits)
    if inner != other:
        yield _of("missing_subquery_condition", f"has {other} limits inside subqueries, gold {inner}")


def _joins(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    if set(gold.tables) != set(spec.tables):
        return  # told already, and the joins follow from it
    missing, extra = _apart(
        gold.joins, spec.joins, lambda e: f"{e.left_table}.{e.left_column}={e.right_table}.{e.right_column}"
    )
    if missing and extra:
        yield _of("wrong_join", f"joins on {_edge(extra[0])} where gold joins on {_edge(missing[0])}")
    elif missing:
        yield _of("wrong_join", f"lacks the join on {_edge(missing[0])}")
    elif extra:
        yield _of("wrong_join", f"joins on {_edge(extra[0])}, gold does not")
    else:
        kinds = [sorted(e.kind for e in each.joins) for each in (gold, spec)]
        if kinds[0] != kinds[1]:
            yield _of("wrong_join", f"joins as {', '.join(kinds[1])}, gold as {', '.join(kinds[0])}")


def _spellings(gold: SqlSpec, spec: SqlSpec) -> Iterator[Difference]:
    """Literals that are one in the canonical form, and another text to most databases."""
    written = {" ".join(text.split()).casefold(): text for text in spec.literals}
    for text in gold.literals:
        other = written.get(" ".join(text.split()).casefold())
        if other is not None and text not in spec.literals and other not in gold.literals:
            yield _of("wrong_filter_value", f"writes {other!r} where gold writes {text!r}")


def _edge(edge: Any) -> str:
    return f"{edge.left_table}.{edge.left_column} = {edge.right_table}.{edge.right_column}"


# --- what the specifications do not hold ----------------------------------------------------------------------------


def _leftovers(wanted: SqlSpec, spec: SqlSpec, gold: str, predicted: str, dialect: str | None) -> Iterator[Difference]:
    """Differences of two queries whose specifications agree: columns used, literals, then the trees themselves."""
    missing, extra = _apart(wanted.columns, spec.columns, repr)
    if missing or extra:
        names = [", ".join(".".join(filter(None, c)) for c in columns) or "no other column" for columns in (extra, missing)]
        yield _of("wrong_output", f"uses {names[0]} where gold uses {names[1]}")
        return
    missing, extra = _apart(wanted.literals, spec.literals, str)
    if missing or extra:
        yield _of("wrong_filter_value", f"has the literals {', '.join(extra) or 'none'}, gold {', '.join(missing) or 'none'}")
        return
    if wanted.literals != spec.literals and wanted.filters == spec.filters:  # the order of conditions means nothing
        yield _of("extra_transformation", f"puts {', '.join(spec.literals)} in another order than gold")
        return
    if wanted.expressions != spec.expressions:
        yield Difference(finding="", error_code="OUTPUT_COLUMN_ALIAS_MISMATCH", message="outputs its columns in another order")
        return
    if sorted(wanted.tables) != sorted(spec.tables):
        yield _of("wrong_join", f"reads a table {len(spec.tables)} times, gold {len(wanted.tables)} times")
        return
    trees = [_tree(text, dialect) for text in (gold, predicted)]
    if trees[0] is None or trees[1] is None:
        return
    kinds = [Counter(type(n).__name__ for n in tree.walk() if not isinstance(n, _PACKAGING)) for tree in trees if tree]
    more, less = kinds[1] - kinds[0], kinds[0] - kinds[1]
    if more or less:
        code = "missing_subquery_condition" if {"Select", "Subquery"} & (set(more) | set(less)) else "extra_transformation"
        parts = [f"has {', '.join(sorted(more))} that gold has not"] if more else []
        parts += [f"lacks {', '.join(sorted(less))} of gold"] if less else []
        yield _of(code, " and ".join(parts))


_PACKAGING = (exp.Alias, exp.TableAlias, exp.Identifier, exp.Paren, exp.Column, exp.Table)


def _tree(sql: str, dialect: str | None) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(unpack(sql).sql.rstrip("; \n"), read=sqlglot_dialect(dialect) or "")
    except (SqlglotError, ValueError, RecursionError):
        return None


# --- small helpers --------------------------------------------------------------------------------------------------


def _of(code: str, message: str) -> Difference:
    error_code = CODES[code].error_code
    assert error_code in ERROR_CODES  # held by a test over all codes
    return Difference(finding=code, error_code=error_code, message=message)


def _apart(wanted: Iterable[Any], there: Iterable[Any], key: Callable[[Any], str]) -> tuple[list[Any], list[Any]]:
    """What only one side holds, repeats counted, in order."""
    left, right = list(wanted), list(there)
    common = Counter(map(key, left)) & Counter(map(key, right))
    return _without(left, common, key), _without(right, common, key)


def _without(values: list[Any], taken: Counter[str], key: Callable[[Any], str]) -> list[Any]:
    remaining = Counter(taken)
    out = []
    for value in values:
        if remaining[key(value)] > 0:
            remaining[key(value)] -= 1
        else:
            out.append(value)
    return out


def _key(column: Column | None) -> str:
    return json.dumps(None if column is None else column_json(column), sort_keys=True)


def _base(column: Column) -> str:
    return column.column if isinstance(column, DatePart | DateTrunc) else column


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(map(column_text, columns))
