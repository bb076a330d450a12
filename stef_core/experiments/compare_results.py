"""Whether two results are the same: rows as a multiset and kept whole, columns matched by what they hold."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stef_core.experiments.values import (
    Codes,
    Column,
    Flags,
    canonical,
    integers_are_exact,
    mixed,
    number_codes,
    read_column,
    same_cell,
)

_START = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD1B54A32D192ED03)
_SEARCH_CELLS = 200_000_000  # cells that the checks of a search for columns may read, some seconds' worth
_CHECK_CELLS = 4_000  # what a check costs beside its cells, in cells
_MATCHED_WHOLE = 400  # rows of one group, up to which every pairing is tried
_PIECE = 500
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ResultSet:
    """What a query returned.

    Args:
        columns: Names as the database gave them; they may repeat.
        rows: Cells as the driver gave them.
        truncated: The query had more rows than were read.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How strictly two results are compared.

    Args:
        ordered: Rows must come in gold's order.
        columns: ``exact`` refuses predicted columns that gold does not have; ``subset`` lets them be.
        abs_tol: Numbers this far apart are equal.
        rel_tol: So are numbers that differ by this share of the greater one. Under 1e-6 it stands for rounding, and two
            integers are equal only if they are the same.
        ignore_case: Texts that differ only in case are equal.
        max_rows: Results of more rows are compared by 128-bit hashes and not cell by cell (flag ``by_hash``).
    """

    ordered: bool = False
    columns: Literal["exact", "subset"] = "exact"
    abs_tol: float = 1e-10
    rel_tol: float = 1e-10
    ignore_case: bool = False
    max_rows: int = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict on two results and its reason.

    Flags: ``both_empty``, ``by_hash``, ``truncated`` (a result was cut off, so that nothing could be proved),
    ``order_differs`` (the same rows in another order), ``search_ended`` (columns so alike that not every assignment was tried).
    """

    same: bool
    reason: str
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Window:
    """The part of gold's rows that a LIMIT keeps: which rows stand at its edges is open where they tie."""

    start: int
    size: int


def same_result(
    gold: ResultSet,
    predicted: ResultSet,
    options: CompareOptions,
    *,
    groups: Sequence[int] | None = None,
    window: Window | None = None,
) -> Comparison:
    """Whether a prediction returned what gold returned.

    Rows are a multiset unless ``options.ordered``; a row is never taken apart. Columns are matched by their values: there must
    be an assignment of predicted columns to gold's under which the rows agree. Names count only where a single row could agree
    by luck: with the same names on both sides, (lo 1, hi 2) is not (lo 2, hi 1). NULL equals NULL alone, true and false are 1
    and 0, moments are instants (those without a zone in UTC, a text that is an ISO 8601 date or timestamp included), NaN equals
    NaN, infinities by their sign.

    Args:
        groups: For each of gold's rows the number of its tie, rising by its order: rows of one tie may swap. Without it every
            row of an ordered gold is a tie of its own.
        window: `gold` holds more rows than the query returns: those ranked ``start`` to ``start + size``. Rows that tie with
            the first or last of them stand in `gold` too, and any choice among them is right.

    Source:
        experiments.md, "Comparing results".
    """
    expected = window.size if window else len(gold.rows)
    early = _by_shape(gold, predicted, options, expected)
    if early is not None:
        return early
    ties = _Ties.of(len(gold.rows), groups, window) if options.ordered or window else None
    flags = frozenset({"by_hash"} if max(len(gold.rows), expected) > options.max_rows else ())
    how = " in gold's order" if options.ordered and not (ties and ties.is_one) else ""
    agreed = Comparison(True, f"the same {_rows(expected)} and {_columns(len(gold.columns))}{how}", flags)
    if window is None and _plainly_same(gold, predicted, options.ordered):
        return agreed
    sides = _Sides(gold, predicted, options, ties)
    if sides.match():
        return agreed
    if ties is not None and not ties.is_one and len(gold.rows) == expected:
        free = _Sides(gold, predicted, options, None)
        if free.match():
            return Comparison(False, _order_reason(gold, predicted, free, ties), flags | {"order_differs"})
        sides = free
    return Comparison(False, sides.reason(), flags | ({"search_ended"} if sides.left_open else set()))


def _plainly_same(gold: ResultSet, predicted: ResultSet, ordered: bool) -> bool:
    """Whether rows agree cell by cell with the columns as they stand, by Python's own equality, which is stricter than ours."""
    if len(gold.columns) != len(predicted.columns) or len(gold.rows) < 2:
        return False  # the names of a single row have a say
    try:
        if ordered:
            return gold.rows == predicted.rows
        # Counter's own equality hashes every row twice more, in Python
        return dict.__eq__(Counter(gold.rows), Counter(predicted.rows)) is True
    except (TypeError, ArithmeticError):  # lists have no hash, and a signalling NaN compares with nothing
        return False


# --- what can be told without looking at cells ----------------------------------------------------------------------


def _by_shape(gold: ResultSet, predicted: ResultSet, options: CompareOptions, expected: int) -> Comparison | None:
    have, need = len(predicted.columns), len(gold.columns)
    if have < need or (have > need and options.columns == "exact"):
        names = _names(predicted.columns), _names(gold.columns)
        return Comparison(False, f"the prediction has {_columns(have)} ({names[0]}), gold has {_columns(need)} ({names[1]})")
    got = len(predicted.rows)
    if gold.truncated or predicted.truncated:
        if predicted.truncated and not gold.truncated and got >= expected:
            return Comparison(False, f"the prediction has more than {_rows(got)}, gold has {expected:,}")
        if gold.truncated and not predicted.truncated and expected >= got:
            return Comparison(False, f"the prediction has {_rows(got)}, gold has more than {expected:,}")
        return Comparison(False, f"not decided: only the first {_rows(max(got, expected))} were read", frozenset({"truncated"}))
    if got != expected:
        return Comparison(
            False, f"the prediction has {_rows(got)}, gold has {expected:,}" + _count_detail(gold, predicted, options)
        )
    if not got:
        return Comparison(True, "both results are empty, which proves little", frozenset({"both_empty"}))
    return None


def _count_detail(gold: ResultSet, predicted: ResultSet, options: CompareOptions) -> str:
    """Which row makes the difference in number, when the columns stand as in gold and there are few rows."""
    if (
        not gold.rows
        or max(len(gold.rows), len(predicted.rows)) > options.max_rows
        or len(gold.columns) != len(predicted.columns)
    ):
        return ""
    wanted, found = (
        Counter(tuple(canonical(cell, ignore_case=options.ignore_case) for cell in row) for row in side.rows)
        for side in (gold, predicted)
    )
    if wanted.keys() == found.keys():
        for row, key in ((row, tuple(canonical(c, ignore_case=options.ignore_case) for c in row)) for row in gold.rows):
            if wanted[key] != found[key]:
                return f"; the row {_row(row)} comes {found[key]} times, in gold {wanted[key]} times"
    return ""


# --- ties -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ties:
    """Which tie each row of gold and each row of the prediction must belong to, as codes."""

    gold: Codes
    predicted: Codes
    kept: slice  # gold's rows that can stand in the window

    @classmethod
    def of(cls, count: int, groups: Sequence[int] | None, window: Window | None) -> _Ties:
        ranks = np.arange(count, dtype=np.uint64) if groups is None else np.asarray(groups, dtype=np.uint64)
        if window is None:
            return cls(ranks, ranks, slice(0, count))
        inside = ranks[window.start : window.start + window.size]
        kept = slice(0, 0)
        if len(inside):
            first, last = np.searchsorted(ranks, inside[0], "left"), np.searchsorted(ranks, inside[-1], "right")
            kept = slice(int(first), int(last))
        return cls(ranks[kept], inside, kept)

    @property
    def is_one(self) -> bool:
        """All rows tie, so that no order is left."""
        return len(self.gold) == 0 or bool(self.gold[0] == self.gold[-1])


# --- the search for columns -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clusters:
    """Numbers of all columns, gathered where a tolerance makes them equal."""

    codes: dict[int, Codes]  # by id() of the column
    loose: dict[int, Flags]  # cells of clusters wider than the tolerance, where equality does not carry over


class _Sides:
    """Gold and prediction in columns, and the assignment between them once it is found."""

    def __init__(self, gold: ResultSet, predicted: ResultSet, options: CompareOptions, ties: _Ties | None) -> None:
        self.gold, self.predicted, self.options, self.ties = gold, predicted, options, ties
        self.gold_rows = gold.rows[ties.kept] if ties else gold.rows
        self.predicted_rows = predicted.rows
        self.left = _read(self.gold_rows, len(gold.columns), options)
        self.right = _read(self.predicted_rows, len(predicted.columns), options)
        self.left_start = mixed(ties.gold + _START) if ties else np.full(len(self.gold_rows), _START)
        self.right_start = mixed(ties.predicted + _START) if ties else np.full(len(self.predicted_rows), _START)
        self.whole = len(self.gold_rows) == len(self.predicted_rows)
        strict = integers_are_exact(options.abs_tol, options.rel_tol)
        self.exact = {id(c): c.is_whole and (strict or not c.integers.any()) for c in (*self.left, *self.right)}
        self.candidates: list[list[int]] = []
        self.assigned: list[int] = []
        self.clusters: _Clusters | None = None
        self.named = _by_name(gold.columns, predicted.columns) if len(predicted.rows) == 1 else None
        self.left_open = False  # the search ended before every assignment was tried

    def match(self) -> bool:
        """Find columns under which the rows agree: exactly first, which is fast, and then within the tolerance."""
        if self._search(None):
            return True
        if all(map(self._exact, (*self.left, *self.right))):
            return False
        self.clusters = _cluster(self.left, self.right, self.options)
        return self._search(self.clusters)

    def _exact(self, column: Column) -> bool:
        """No cell of the column needs a tolerance."""
        return self.exact[id(column)]

    def _codes(self, i: int, j: int, clusters: _Clusters | None) -> tuple[Codes, Codes]:
        a, b = self.left[i], self.right[j]
        if clusters is None or (self._exact(a) and self._exact(b)):
            return a.codes, b.codes
        return clusters.codes[id(a)], clusters.codes[id(b)]

    def _search(self, clusters: _Clusters | None) -> bool:
        self.candidates = self._candidates(clusters)
        if _matching(self.candidates) is None:
            return False
        order = sorted(range(len(self.left)), key=lambda i: len(self.candidates[i]))
        several = {j for candidates in self.candidates if len(candidates) > 1 for j in candidates}
        twins = {j: _positional(self.right[j].codes) if j in several else j for j in range(len(self.right))}
        budget = _SEARCH_CELLS
        chosen: dict[int, int] = {}
        hashes = [(self.left_start, self.right_start)]
        options = [iter(self.candidates[order[0]])] if order else []
        tried: list[set[int]] = [set()]
        # depth first without recursion: a table may have more columns than Python has frames
        while options:
            level = len(options) - 1
            i = order[level]
            chosen.pop(i, None)
            used = set(chosen.values())
            for j in options[-1]:
                if j in used or twins[j] in tried[-1]:
                    continue
                tried[-1].add(twins[j])
                a, b = self._codes(i, j, clusters)
                longer = _extended(hashes[-1][0], a), _extended(hashes[-1][1], b)
                # a column without a choice is checked with the next one that has a choice, or at the end
                if len(self.candidates[i]) > 1 or level + 1 == len(order):
                    budget -= 2 * len(b) + _CHECK_CELLS
                    if budget < 0:
                        self.left_open = True
                        return False
                    if not self._contained(*longer):
                        continue
                chosen[i] = j
                if level + 1 == len(order):
                    if self._agree(chosen, *longer, clusters):
                        self.assigned = [chosen[i] for i in range(len(self.left))]
                        return True
                    continue
                hashes.append(longer)
                options.append(iter(self.candidates[order[level + 1]]))
                tried.append(set())
                break
            else:
                chosen.pop(i, None)
                options.pop()
                hashes.pop()
                tried.pop()
        return not order

    def _candidates(self, clusters: _Clusters | None) -> list[list[int]]:
        """For each of gold's columns the predicted ones that hold its values, order and rows aside."""
        if not self.whole:
            return [
                [
                    j
                    for j in self._allowed(i)
                    if self._contained(*map(_extended, (self.left_start, self.right_start), self._codes(i, j, clusters)))
                ]
                for i in range(len(self.left))
            ]
        digests = {
            exact: [
                [
                    _digest(_extended(start, column.codes if exact or clusters is None else clusters.codes[id(column)]))
                    for column in side
                ]
                for start, side in ((self.left_start, self.left), (self.right_start, self.right))
            ]
            for exact in ((True,) if clusters is None else (True, False))
        }
        exact = [[clusters is None or self._exact(column) for column in side] for side in (self.left, self.right)]
        return [
            [
                j
                for j in self._allowed(i)
                if digests[exact[0][i] and exact[1][j]][0][i] == digests[exact[0][i] and exact[1][j]][1][j]
            ]
            for i in range(len(self.left))
        ]

    def _allowed(self, i: int) -> Sequence[int]:
        """One row proves no order of columns: where both sides use the same names, (lo 1, hi 2) is not (lo 2, hi 1)."""
        return range(len(self.right)) if self.named is None else (self.named[self.gold.columns[i].casefold()],)

    def _contained(self, left: Codes, right: Codes) -> bool:
        """Whether the right multiset lies in the left one; both are of one size unless a limit cuts a tie."""
        if self.whole:
            return _digest(left) == _digest(right)
        kinds, counts = np.unique(left, return_counts=True)
        wanted, needed = np.unique(right, return_counts=True)
        at = np.minimum(np.searchsorted(kinds, wanted), len(kinds) - 1)
        return bool((kinds[at] == wanted).all() and (counts[at] >= needed).all())

    def _agree(self, chosen: dict[int, int], left: Codes, right: Codes, clusters: _Clusters | None) -> bool:
        """The last word on an assignment whose row hashes agree: cell by cell for few rows, or where tolerance needs it."""
        loose = self._loose(chosen, clusters)
        if loose is None and len(right) > self.options.max_rows:
            return True
        a, b = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
        pairs = [(i, chosen[i]) for i in chosen]
        if loose is None and self.whole:
            return all(self._equal(int(x), int(y), pairs) for x, y in zip(a, b, strict=True))
        return all(
            self._pair_up(rows, others, pairs) for rows, others in _groups(left, right, a, b, loose, self.options.max_rows)
        )

    def _loose(self, chosen: dict[int, int], clusters: _Clusters | None) -> tuple[Flags, Flags] | None:
        if clusters is None:
            return None
        left, right = np.zeros(len(self.gold_rows), np.bool_), np.zeros(len(self.predicted_rows), np.bool_)
        for i, j in chosen.items():
            if not (self._exact(self.left[i]) and self._exact(self.right[j])):
                left |= clusters.loose[id(self.left[i])]
                right |= clusters.loose[id(self.right[j])]
        return (left, right) if left.any() or right.any() else None

    def _pair_up(self, rows: npt.NDArray[np.intp], others: npt.NDArray[np.intp], pairs: list[tuple[int, int]]) -> bool:
        """Whether each of the prediction's rows `others` finds a row of gold of its own among `rows`."""
        if len(others) > len(rows):
            return False
        if len(rows) > _MATCHED_WHOLE:
            x = sorted(rows.tolist(), key=lambda row: [_rank(self.gold_rows[row][i]) for i, _ in pairs])
            y = sorted(others.tolist(), key=lambda row: [_rank(self.predicted_rows[row][j]) for _, j in pairs])
            return all(self._equal(a, b, pairs) for a, b in zip(x, y, strict=False))
        fits = [[k for k, row in enumerate(rows.tolist()) if self._equal(row, other, pairs)] for other in others.tolist()]
        return _matching(fits) is not None

    def _equal(self, row: int, other: int, pairs: list[tuple[int, int]]) -> bool:
        a, b, options = self.gold_rows[row], self.predicted_rows[other], self.options
        return all(
            same_cell(a[i], b[j], abs_tol=options.abs_tol, rel_tol=options.rel_tol, ignore_case=options.ignore_case)
            for i, j in pairs
        )

    # --- why not ---

    def reason(self) -> str:
        """In words, what keeps two results of as many rows from being the same."""
        if self.left_open:
            return "columns hold values so alike that no assignment was found under which the rows agree"
        for i, candidates in enumerate(self.candidates):
            if not candidates:
                return self._swapped_names() or self._missing_column(i)
        chosen = _matching(self.candidates)
        if chosen is None:
            return self._too_few_alike()
        left, right = self.left_start, self.right_start
        for i, j in enumerate(chosen):
            a, b = self._codes(i, j, self.clusters)
            left, right = _extended(left, a), _extended(right, b)
        strange = np.flatnonzero(~np.isin(right, left))
        text = "each column agrees on its own, but the rows do not"
        if len(strange):
            k = int(strange[0])
            row = tuple(self.predicted_rows[k][j] for j in chosen)
            return f"{text}: row {k + 1} of the prediction, {_row(row)}, is not in gold"
        return f"{text}: some rows come more often, others less often than in gold"

    def _swapped_names(self) -> str | None:
        if self.named is None:
            return None
        self.named = None
        if not all(self._candidates(self.clusters)):
            return None
        return (
            f"one row with gold's values under each other's names: {_row(self.predicted_rows[0])} as"
            f" ({_names(self.predicted.columns)}), in gold {_row(self.gold_rows[0])} as ({_names(self.gold.columns)})"
        )

    def _missing_column(self, i: int) -> str:
        name = f"gold's column {i + 1} ({self.gold.columns[i]})"
        j = self._counterpart(i)
        a, b = self._codes(i, j, self.clusters)
        other = f"predicted column {j + 1} ({self.predicted.columns[j]})"
        extra, lacking = np.flatnonzero(~np.isin(b, a)), np.flatnonzero(~np.isin(a, b))
        text = f"no predicted column holds the values of {name}"
        if len(lacking) and len(extra):
            gold, found = self.gold_rows[int(lacking[0])][i], self.predicted_rows[int(extra[0])][j]
            return f"{text}: {other} has {_cell(found)}, which gold has not, and lacks {_cell(gold)}"
        if len(lacking):
            return f"{text}: {other} lacks {_cell(self.gold_rows[int(lacking[0])][i])}"
        if len(extra):
            return f"{text}: {other} has {_cell(self.predicted_rows[int(extra[0])][j])}, which gold has not"
        return f"{text}: {other} has the same values, another number of times or in another place"

    def _counterpart(self, i: int) -> int:
        """The predicted column that a reader would set beside gold's: of its name, else at its place."""
        named = [j for j, name in enumerate(self.predicted.columns) if name.casefold() == self.gold.columns[i].casefold()]
        return named[0] if len(named) == 1 else min(i, len(self.right) - 1)

    def _too_few_alike(self) -> str:
        return "several of gold's columns are alike, and the prediction has too few columns of those values"


def _by_name(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, int] | None:
    """Places of predicted columns by name, if both sides have the same distinct names."""
    places = {name.casefold(): j for j, name in enumerate(predicted)}
    wanted = {name.casefold() for name in gold}
    return places if len(places) == len(predicted) and len(wanted) == len(gold) and places.keys() == wanted else None


def _read(rows: Sequence[tuple[Any, ...]], width: int, options: CompareOptions) -> list[Column]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    # in pieces that fit the processor's cache, three times as fast as at once
    for start in range(0, len(rows), _PIECE):
        for column, piece in zip(columns, zip(*rows[start : start + _PIECE], strict=True), strict=True):
            column.extend(piece)
    return [read_column(values, ignore_case=options.ignore_case) for values in columns]


def _extended(hashes: Codes, codes: Codes) -> Codes:
    """Row hashes with one more column; the place of the column counts."""
    return mixed(hashes * _SECOND + codes)


def _digest(codes: Codes) -> tuple[int, int]:
    """128 bits of a multiset, whatever its order."""
    return int(mixed(codes ^ _SECOND).sum()), int(mixed(codes + _START).sum())


def _positional(codes: Codes) -> int:
    return int(mixed(codes + mixed(np.arange(len(codes), dtype=np.uint64))).sum())


def _cluster(left: list[Column], right: list[Column], options: CompareOptions) -> _Clusters:
    """Gather numbers: neighbours within the tolerance share a cluster, so that numbers of two clusters never are equal."""
    columns = [*left, *right]
    parts = [column.numbers[~np.isnan(column.numbers)] for column in columns]
    values = np.unique(np.concatenate(parts)) + 0.0
    if not len(values):
        return _Clusters({id(c): c.codes for c in columns}, {id(c): np.zeros(len(c.codes), np.bool_) for c in columns})
    greater = np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    apart = np.diff(values) > np.maximum(options.abs_tol, options.rel_tol * greater)
    number = np.concatenate([[0], np.cumsum(apart)])
    first = np.searchsorted(number, np.arange(number[-1] + 1), "left")
    last = np.searchsorted(number, np.arange(number[-1] + 1), "right") - 1
    low, high = values[first], values[last]
    wide = high - low > np.maximum(options.abs_tol, options.rel_tol * np.maximum(np.abs(low), np.abs(high)))
    if integers_are_exact(options.abs_tol, options.rel_tol):
        whole = np.unique(np.concatenate([column.numbers[column.integers] for column in columns]))
        held = np.bincount(number[np.searchsorted(values, whole)], minlength=len(first))
        wide |= (held > 1) | ((held > 0) & (np.abs(high) > 2**53))
    codes, loose = {}, {}
    for column in columns:
        cells = ~np.isnan(column.numbers)
        at = number[np.searchsorted(values, column.numbers[cells])]
        codes[id(column)], loose[id(column)] = column.codes.copy(), np.zeros(len(column.codes), np.bool_)
        codes[id(column)][cells] = number_codes(low[at])
        loose[id(column)][cells] = wide[at]
    return _Clusters(codes, loose)


def _groups(
    left: Codes,
    right: Codes,
    a: npt.NDArray[np.intp],
    b: npt.NDArray[np.intp],
    loose: tuple[Flags, Flags] | None,
    max_rows: int,
) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Rows of both sides that share a hash; of many rows, only those whose hash does not settle it."""
    kinds, starts, counts = np.unique(right[b], return_index=True, return_counts=True)
    lows, highs = np.searchsorted(left[a], kinds, "left"), np.searchsorted(left[a], kinds, "right")
    for start, count, low, high in zip(starts.tolist(), counts.tolist(), lows.tolist(), highs.tolist(), strict=True):
        rows, others = a[low:high], b[start : start + count]
        if loose is not None and len(right) > max_rows and not (loose[0][rows].any() or loose[1][others].any()):
            continue
        yield rows, others


def _matching(fits: Sequence[Sequence[int]]) -> list[int] | None:
    """For each member a partner of its own among those that fit, or None (augmenting paths, breadth first)."""
    taken: dict[int, int] = {}
    for member in range(len(fits)):
        reached: dict[int, int] = {}  # partner -> the member that reached it
        holds: dict[int, int] = {}  # member -> the partner it would give up
        queue, free = deque([member]), None
        while queue and free is None:
            current = queue.popleft()
            for partner in fits[current]:
                if partner not in reached:
                    reached[partner] = current
                    if partner not in taken:
                        free = partner
                        break
                    holds[taken[partner]] = partner
                    queue.append(taken[partner])
        if free is None:
            return None
        while True:
            current = reached[free]
            taken[free] = current
            if current == member:
                break
            free = holds[current]
    return sorted(taken, key=taken.__getitem__)


def _rank(cell: Any) -> tuple[int, float, str]:
    value = canonical(cell)
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")


def _order_reason(gold: ResultSet, predicted: ResultSet, free: _Sides, ties: _Ties) -> str:
    options = replace(free.options, ordered=False)
    for k, row in enumerate(predicted.rows):
        same = [g for g in range(len(gold.rows)) if ties.gold[g] == ties.predicted[k]]
        cells = tuple(row[j] for j in free.assigned)
        if not any(
            all(
                same_cell(a, b, abs_tol=options.abs_tol, rel_tol=options.rel_tol, ignore_case=options.ignore_case)
                for a, b in zip(gold.rows[g], cells, strict=True)
            )
            for g in same
        ):
            return f"the same rows in another order: row {k + 1} is {_row(cells)}, in gold {_row(gold.rows[k])}"
        if k > 1_000:
            break
    return "the same rows in another order than gold's ORDER BY gives"


# --- words ----------------------------------------------------------------------------------------------------------


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"


def _names(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 2 * _SHOWN else text[: 2 * _SHOWN] + "…"


def _cell(value: Any) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _row(cells: Sequence[Any]) -> str:
    text = "(" + ", ".join(_cell(cell) for cell in cells[:8]) + (", …)" if len(cells) > 8 else ")")
    return text if len(text) <= 4 * _SHOWN else text[: 4 * _SHOWN] + "…"
