"""Execution accuracy: gold and prediction are run, and what they return is compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from stef_core.experiments.compare_results import CompareOptions, Comparison, ResultSet, Window, same_result
from stef_core.experiments.statements import Ordering, ordering, spelled_out, split_statements, why_not_one_query
from stef_core.experiments.values import same_cell

logger = logging.getLogger(__name__)

Label: TypeAlias = Literal["correct", "incorrect", "not_run", "gold_failed"]
FailureKind: TypeAlias = Literal["syntax", "timeout", "refused", "error", "unavailable"]


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """A query that returned nothing.

    Args:
        kind: ``syntax`` (not SQL of this engine, or names that do not exist), ``timeout``, ``refused`` (writes, reads files,
            several statements), ``error`` (division by zero, out of memory, …), ``unavailable`` (no database was reached).
        message: One line for a person.
    """

    kind: FailureKind
    message: str


RunSql: TypeAlias = Callable[[str], ResultSet | QueryFailure]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The execution label of one row, always with its reason.

    Args:
        label: ``correct`` and ``incorrect`` count in the accuracy; ``not_run`` (no prediction, or no database) and
            ``gold_failed`` (a fault of the data set) lower the coverage.
        flags: Those of `Comparison`; ``tie`` (gold's LIMIT cuts rows that tie, so several answers are right);
            ``gold_partly_failed`` (some of several accepted queries failed); ``prediction_failed``, and with it the kind of
            failure, as in ``prediction_timeout``.
        gold_index: Which accepted query, counted from 0 after `split_statements`, the prediction agrees with.
        gold_rows, predicted_rows: Rows that were read; None where the query returned nothing.
    """

    label: Label
    reason: str
    flags: frozenset[str] = frozenset()
    gold_index: int | None = None
    gold_rows: int | None = None
    predicted_rows: int | None = None


@dataclass(frozen=True, slots=True)
class GoldResult:
    """What one accepted query returned, and which of its rows tie.

    Args:
        sql: The accepted query.
        result: Its rows, or how it failed. With a `window`, the rows that tie with the first and the last stand in it as well.
        ordered: The outermost query has an ORDER BY.
        groups: For each row the number of its tie, or None if every row stands for itself.
        window: The rows that a LIMIT kept, if it cuts a tie.
    """

    sql: str
    result: ResultSet | QueryFailure
    ordered: bool = False
    groups: tuple[int, ...] | None = None
    window: Window | None = None


def accepted_queries(gold: Sequence[str], dialect: str | None) -> list[str]:
    """Every accepted query: each text may hold several, divided by ``;``, or choices of columns (`spelled_out`).

    The text of each stays as it is.
    """
    return [
        query for text in gold for statement in split_statements(text, dialect) for query in spelled_out(statement, dialect)
    ]


def execution_accuracy(
    gold: Sequence[str],
    predicted: str | None,
    run_sql: RunSql,
    dialect: str | None,
    options: CompareOptions | None = None,
) -> Outcome:
    """Run the accepted queries and the predicted one, and label the prediction.

    Order counts only if the outermost gold query has an ORDER BY (``options.ordered`` is not read), and then rows that tie may
    swap. Where gold's LIMIT cuts a tie, or has no order at all, any of the tied rows is right. One accepted query that agrees
    is enough.

    Args:
        gold: Accepted queries; each text may hold several, divided by ``;``.
        predicted: The agent's SQL as it wrote it; None if the agent gave none, which is ``not_run``.
        run_sql: Runs one query; its SQL reaches the database unchanged.
        dialect: The database's SQL dialect, to tell statements and ORDER BY.
        options: How strictly results are compared.

    Source:
        experiments.md, "Execution accuracy" and "Comparing results".
    """
    if predicted is None:
        return Outcome("not_run", "there is no prediction")
    return judge_prediction(
        [run_gold(query, run_sql, dialect, options) for query in accepted_queries(gold, dialect)],
        predicted,
        run_sql,
        dialect,
        options,
    )


def run_gold(sql: str, run_sql: RunSql, dialect: str | None, options: CompareOptions | None = None) -> GoldResult:
    """Run one accepted query and find its ties; worth keeping where several predictions are judged against it."""
    refused = why_not_one_query(sql, dialect)
    if refused:
        return GoldResult(sql, QueryFailure("refused", refused))
    result = run_sql(sql)
    if isinstance(result, QueryFailure):
        return GoldResult(sql, result)
    if result.truncated:
        message = f"it returns more than {len(result.rows):,} rows, the limit of the run; raise the limit"
        return GoldResult(sql, QueryFailure("error", message))
    order = ordering(sql, dialect)
    if order is None or not (order.keys or order.limited) or len(result.rows) == 0:
        return GoldResult(sql, result, ordered=bool(order and order.keys))
    plain = GoldResult(sql, result, ordered=bool(order.keys))
    if len(result.rows) == 1 and not order.limited:
        return plain
    return _with_ties(plain, result, order, run_sql, options or CompareOptions())


def _with_ties(plain: GoldResult, result: ResultSet, order: Ordering, run_sql: RunSql, options: CompareOptions) -> GoldResult:
    """The same gold with its order keys in sight and without its LIMIT; `plain` where the database will not give them."""
    for query in order.with_keys:
        full = run_sql(query.sql)
        if isinstance(full, QueryFailure):
            logger.debug("ties of a gold query are not known: %s", full.message)
            continue
        width = len(result.columns)
        added = iter(range(width, len(full.columns)))
        places = [next(added, len(full.columns)) if place is None else place for place in query.places]
        if any(place >= len(full.columns) for place in places) or len(full.columns) < width:
            continue
        groups = _groups(full, places, options)
        rows = [row[:width] for row in full.rows]
        pool = ResultSet(result.columns, rows)
        window = Window(order.offset, len(result.rows)) if order.limited else None
        if window is not None and window.start + window.size > len(rows):
            continue
        if full.truncated and (window is None or groups[min(window.start + window.size, len(rows)) - 1] == groups[-1]):
            continue
        # what was run must be what gold says: the rows that gold returned have to be one of the choices
        check = same_result(pool, result, replace(options, ordered=True, columns="exact"), groups=groups, window=window)
        if not check.same:
            continue
        if window is None or not _cuts(groups, window):
            inside = slice(window.start, window.start + window.size) if window else slice(None)
            return replace(plain, groups=tuple(groups[inside])) if plain.ordered else plain
        return replace(plain, result=pool, groups=tuple(groups), window=window)
    return plain


def _groups(full: ResultSet, places: Sequence[int], options: CompareOptions) -> list[int]:
    """The number of each row's tie; neighbours tie if their keys are equal. Without keys all rows are one tie."""
    groups = [0]
    for before, row in pairwise(full.rows):
        tied = all(
            same_cell(before[k], row[k], abs_tol=options.abs_tol, rel_tol=options.rel_tol, ignore_case=False) for k in places
        )
        groups.append(groups[-1] + (not tied))
    return groups


def _cuts(groups: Sequence[int], window: Window) -> bool:
    start, end = window.start, window.start + window.size
    before = start > 0 and groups[start - 1] == groups[start]
    return before or (end < len(groups) and groups[end - 1] == groups[end])


def judge_prediction(
    golds: Sequence[GoldResult],
    predicted: str | None,
    run_sql: RunSql,
    dialect: str | None,
    options: CompareOptions | None = None,
) -> Outcome:
    """The label of a prediction against accepted queries that were run already; see `execution_accuracy`."""
    options = options or CompareOptions()
    if predicted is None:
        return Outcome("not_run", "there is no prediction")
    failed = [gold for gold in golds if isinstance(gold.result, QueryFailure)]
    if len(failed) == len(golds):
        return _no_gold(failed)
    flags = frozenset({"gold_partly_failed"} if failed else ())
    if not predicted.strip():
        return Outcome("incorrect", "the prediction is empty", flags | {"prediction_failed"})
    refused = why_not_one_query(predicted, dialect)
    if refused:
        return Outcome(
            "incorrect", f"the prediction was not run: {refused}", flags | {"prediction_failed", "prediction_refused"}
        )
    result = run_sql(predicted)
    if isinstance(result, QueryFailure):
        if result.kind == "unavailable":
            return Outcome("not_run", f"the database could not be reached: {result.message}", flags)
        how = {"timeout": "ran out of time", "refused": "was refused"}.get(result.kind, "failed")
        return Outcome(
            "incorrect", f"the prediction {how}: {result.message}", flags | {"prediction_failed", f"prediction_{result.kind}"}
        )
    first: tuple[int, GoldResult, Comparison] | None = None
    for index, gold in enumerate(golds):
        if isinstance(gold.result, QueryFailure):
            continue
        compared = _compare(gold, result, options)
        if compared.same or first is None:
            first = index, gold, compared
        if compared.same:
            break
    if first is None:
        raise AssertionError("a gold query that ran was counted above")
    return _labelled(*first, result, len(golds) - len(failed), flags)


def _compare(gold: GoldResult, result: ResultSet, options: CompareOptions) -> Comparison:
    if isinstance(gold.result, QueryFailure):
        raise AssertionError("a gold query that failed has no rows")
    return same_result(gold.result, result, replace(options, ordered=gold.ordered), groups=gold.groups, window=gold.window)


def _labelled(
    index: int, gold: GoldResult, compared: Comparison, result: ResultSet, ran: int, flags: frozenset[str]
) -> Outcome:
    tie = gold.window is not None
    reason = compared.reason
    if tie:
        reason += "; gold's LIMIT cuts a tie, of which any rows are right"
    if not compared.same and ran > 1:
        reason += f" (and none of the other {ran - 1} accepted queries agrees)"
    rows = gold.window.size if gold.window else len(gold.result.rows) if isinstance(gold.result, ResultSet) else None
    label: Label = "correct" if compared.same else "not_run" if "truncated" in compared.flags else "incorrect"
    return Outcome(
        label,
        reason,
        flags | compared.flags | ({"tie"} if tie else set()),
        index if compared.same else None,
        rows,
        len(result.rows),
    )


def _no_gold(failed: Sequence[GoldResult]) -> Outcome:
    if not failed:
        return Outcome("gold_failed", "there is no gold query")
    results = [gold.result for gold in failed if isinstance(gold.result, QueryFailure)]
    if all(result.kind == "unavailable" for result in results):
        return Outcome("not_run", f"the database could not be reached: {results[0].message}")
    first = next(result for result in results if result.kind != "unavailable")
    which = "the gold query" if len(results) == 1 else f"each of {len(results)} gold queries"
    return Outcome("gold_failed", f"{which} failed ({first.kind}): {first.message}")
