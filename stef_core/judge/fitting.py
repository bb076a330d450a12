"""Fits the symbolic judge's model on labelled answers: signs forced, weights drawn to the prior of their severity.

No finding can speak for an SQL, no supporting signal against it. A kind that the data shows too rarely keeps its prior. Folds
are grouped by database and by question, so that no row is judged by a fit that saw either.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stef_core.catalogue import Catalogue, catalogue_of, mine
from stef_core.evaluate import QuestionReader, Read, examine, read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.model import CONTEXTS, SymbolicModel, Weights, context_of, finding_features, support_features
from stef_core.records import Evidence, Grade, QueryRecord
from stef_core.rules import DEFAULT_RULES, Rules

FOLDS = 5
RIDGE = 3.0  # pull of the prior, in rows
MIN_CONTEXT = 150  # rows that a context needs for a fit of its own
MIN_SUPPORT = 20  # rows that must show a supporting signal before it is weighed

Array = np.ndarray[Any, Any]


class LabelledAnswer(Protocol):
    """One labelled answer, and the groups that a fit may not split."""

    @property
    def record(self) -> QueryRecord:
        """The row of the log."""

    @property
    def right(self) -> bool:
        """The label."""

    @property
    def corpus(self) -> str:
        """Where it comes from; a fit may let corpora weigh alike."""

    @property
    def database(self) -> str:
        """Database asked."""

    @property
    def agent(self) -> str:
        """Who wrote the SQL."""

    @property
    def question(self) -> str:
        """Name of the question; answers to one question share it."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One labelled row as features."""

    item: LabelledAnswer
    against: dict[str, tuple[float, float]]
    support: dict[str, float]
    context: str = "plain"
    agents: tuple[str, ...] = ()


def own_catalogue(read: Sequence[Read]) -> Catalogue:
    """What the rows show to each other; of no day, as it is not kept."""
    return catalogue_of(mine(((r.record, r.reading.sql) for r in read), dt.date.min))


def featurise(
    items: Sequence[LabelledAnswer],
    agents: Sequence[tuple[str, ...]] | None = None,
    *,
    catalogue: bool = True,
    rules: Rules = DEFAULT_RULES,
    reader: QuestionReader | None = None,
) -> list[Row]:
    """Features of every row that reaches a judge.

    Args:
        items: Labelled answers.
        agents: The agents that gave each, where known.
        catalogue: Also hold each row against what the other rows of its database show.
        rules: R_app of all rows.
        reader: Reads the questions; the built-in offline reader where None.
    """
    read = read_many([i.record for i in items], [rules] * len(items), reader or OfflineReader())
    log = own_catalogue(read) if catalogue else None
    rows = []
    for index, (item, row) in enumerate(zip(items, read, strict=True)):
        evidence = examine(row, rules, log).evidence
        if evidence is not None:
            rows.append(row_of(item, evidence, agents[index] if agents else ()))
    return rows


def row_of(item: LabelledAnswer, evidence: Evidence, agents: tuple[str, ...] = ()) -> Row:
    """One labelled answer with the features of its evidence."""
    return Row(
        item=item,
        against=finding_features(evidence.findings),
        support=support_features(evidence.alignment.support),
        context=context_of(evidence),
        agents=agents,
    )


@dataclass(slots=True, kw_only=True)
class Part:
    """The fitted sum of log-odds of one context."""

    names: list[str]
    kinds: list[str]  # against | support
    coefficients: Array
    intercept: float

    def log_odds(self, rows: Sequence[Row]) -> Array:
        """Log-odds that each row is right; kinds the fit has not seen weigh their prior."""
        x, _ = matrix(rows, self.names, self.kinds)
        known = set(self.names)
        z = np.asarray(x @ self.coefficients + self.intercept)
        for i, row in enumerate(rows):
            z[i] += sum(prior * s for name, (s, prior) in row.against.items() if name not in known)
        return z

    def weights(self) -> Weights:
        """The same as the model file holds it."""
        by: dict[str, dict[str, float]] = {"against": {}, "support": {}}
        for feature, kind, coefficient in zip(self.names, self.kinds, self.coefficients, strict=True):
            by[kind][feature] = float(coefficient)
        return Weights(intercept=self.intercept, against=by["against"], support=by["support"])


@dataclass(slots=True, kw_only=True)
class Fit:
    """A fitted model: one sum of log-odds for each context."""

    parts: dict[str, Part]

    def predict(self, rows: Sequence[Row]) -> Array:
        """Probability that each row is right."""
        z = np.zeros(len(rows))
        for context, part in self.parts.items():
            mask = np.array([r.context == context for r in rows], dtype=bool)
            if mask.any():
                z[mask] = part.log_odds([r for r, m in zip(rows, mask, strict=True) if m])
        return np.asarray(1 / (1 + np.exp(-z)))

    def model(self, name: str, steps: tuple[tuple[float, Grade], ...]) -> SymbolicModel:
        """The fit as the model of a `SymbolicJudge`; `steps` map p_right to a grade."""
        return SymbolicModel(name=name, contexts={c: p.weights() for c, p in self.parts.items()}, steps=steps)


def matrix(rows: Sequence[Row], names: list[str], kinds: list[str]) -> tuple[Array, Array]:
    """Feature matrix and labels."""
    index = {(k, n): j for j, (k, n) in enumerate(zip(kinds, names, strict=True))}
    x = np.zeros((len(rows), len(names)))
    for i, row in enumerate(rows):
        for name, (strength, _) in row.against.items():
            if (j := index.get(("against", name))) is not None:
                x[i, j] = strength
        for name, value in row.support.items():
            if (j := index.get(("support", name))) is not None:
                x[i, j] = value
    return x, np.array([r.item.right for r in rows], dtype=float)


def fit(rows: Sequence[Row], *, min_count: int = 3, totals: Mapping[str, float] | None = None) -> Fit:
    """Penalised logistic regression with forced signs for each context, its spread set by rows that it did not see.

    Args:
        rows: Labelled rows. A context with fewer than `MIN_CONTEXT` rows is fitted on all of them.
        min_count: Rows that must show a finding kind before its weight leaves the prior.
        totals: What the rows of each corpus weigh together at most, in rows, so that none rules; no limit where None.
    """
    parts = {}
    for context in CONTEXTS:
        own = [r for r in rows if r.context == context]
        parts[context] = _calibrated(own if len(own) >= MIN_CONTEXT else rows, min_count=min_count, totals=totals)
    return Fit(parts=parts)


def _calibrated(rows: Sequence[Row], *, min_count: int, totals: Mapping[str, float] | None) -> Part:
    """A fit whose log-odds are stretched and moved so that folds it did not see are calibrated (Platt scaling)."""
    from scipy.optimize import minimize  # slow import: pay when a model is fitted

    part = _fit_part(rows, min_count=min_count, totals=totals)
    questions = [r.item.question for r in rows]
    of = grouped_folds([r.item.database for r in rows], questions, seed=11)
    unseen = np.zeros(len(rows))
    for k in sorted(set(of.tolist())):
        side = [r for r, s in zip(rows, fit_side(of, questions, k), strict=True) if s]
        if not side:
            return part
        held = _fit_part(side, min_count=min_count, totals=totals)
        unseen[of == k] = held.log_odds([r for r, f in zip(rows, of, strict=True) if f == k])
    y = np.array([r.item.right for r in rows], dtype=float)
    weight = _row_weights(rows, totals)

    def loss(theta: Array) -> float:
        p = 1 / (1 + np.exp(-(theta[0] * unseen + theta[1])))
        return float(-(weight * (y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12))).sum())

    stretch, shift = minimize(loss, np.array([1.0, 0.0]), bounds=[(0.2, 1.5), (-2.0, 2.0)], method="L-BFGS-B").x
    return Part(
        names=part.names,
        kinds=part.kinds,
        coefficients=part.coefficients * stretch,
        intercept=float(part.intercept * stretch + shift),
    )


def _row_weights(rows: Sequence[Row], totals: Mapping[str, float] | None) -> Array:
    # an answer that many agents gave stands often in a log
    weight = np.array([float(max(1, len(r.agents))) for r in rows])
    if totals is not None:
        corpora = np.array([r.item.corpus for r in rows])
        for corpus in set(corpora):
            mask = corpora == corpus
            weight[mask] *= min(totals[corpus], float(mask.sum())) / weight[mask].sum()
    return weight


def _fit_part(rows: Sequence[Row], *, min_count: int, totals: Mapping[str, float] | None) -> Part:
    from scipy.optimize import minimize  # slow import: pay when a model is fitted

    counts: dict[str, int] = {}
    priors: dict[str, float] = {}
    supports: dict[str, int] = {}
    for row in rows:
        for name, (_, prior) in row.against.items():
            counts[name] = counts.get(name, 0) + 1
            priors[name] = prior
        for name in row.support:
            supports[name] = supports.get(name, 0) + 1
    against = sorted(n for n, c in counts.items() if c >= min_count)
    support = sorted(n for n, c in supports.items() if c >= MIN_SUPPORT)
    names, kinds = against + support, ["against"] * len(against) + ["support"] * len(support)
    x, y = matrix(rows, names, kinds)
    weight = _row_weights(rows, totals)
    drawn_to = np.array([priors[n] for n in against] + [0.1] * len(support))

    def loss(theta: Array) -> tuple[float, Array]:
        z = x @ theta[:-1] + theta[-1]
        p = 1 / (1 + np.exp(-z))
        value = float(-(weight * (y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12))).sum())
        value += RIDGE / 2 * float(((theta[:-1] - drawn_to) ** 2).sum())
        gradient = np.append(x.T @ (weight * (p - y)) + RIDGE * (theta[:-1] - drawn_to), (weight * (p - y)).sum())
        return value, gradient

    bounds = [(-4.0, 0.0)] * len(against) + [(0.0, 1.5)] * len(support) + [(-3.0, 3.0)]
    result = minimize(loss, np.append(drawn_to, 1.0), jac=True, bounds=bounds, method="L-BFGS-B")
    return Part(names=names, kinds=kinds, coefficients=result.x[:-1], intercept=float(result.x[-1]))


def grouped_folds(databases: Sequence[str], questions: Sequence[str], *, folds: int = FOLDS, seed: int = 7) -> Array:
    """Fold of each row, 0 up: all rows of a database stand in one fold; of a question, where there is only one database.

    Args:
        databases: Database of each row.
        questions: Question of each row. One that several databases share still stands on both sides: see `fit_side`.
        folds: How many; fewer where there are fewer groups.
        seed: Of the order in which groups are dealt out.
    """
    keys = databases if len(set(databases)) > 1 else questions
    groups = sorted(set(keys))
    order = np.random.default_rng(seed).permutation(len(groups))
    fold_of = {groups[g]: i % folds for i, g in enumerate(order)}
    return np.array([fold_of[key] for key in keys], dtype=int)


def fit_side(folds: Array, questions: Sequence[str], k: int) -> Array:
    """Mask of the rows that a fit for fold `k` may see: those of the other folds whose question is not in it."""
    held = {q for q, f in zip(questions, folds, strict=True) if f == k}
    return np.array([f != k and q not in held for q, f in zip(questions, folds, strict=True)], dtype=bool)


def fold_fits(
    rows: Sequence[Row], *, seed: int = 7, folds: int = FOLDS, totals: Mapping[str, float] | None = None
) -> Iterator[tuple[Array, Fit]]:
    """For each fold: its rows as a mask, and the fit that saw neither their databases nor their questions."""
    questions = [r.item.question for r in rows]
    of = grouped_folds([r.item.database for r in rows], questions, folds=folds, seed=seed)
    for k in sorted(set(of.tolist())):
        seen = fit_side(of, questions, k)
        yield of == k, fit([r for r, s in zip(rows, seen, strict=True) if s], totals=totals)


def cross_validate(
    rows: Sequence[Row], *, seed: int = 7, folds: int = FOLDS, totals: Mapping[str, float] | None = None
) -> Array:
    """Probability of every row from a fit that saw neither its database nor its question."""
    out = np.zeros(len(rows))
    for mask, model in fold_fits(rows, seed=seed, folds=folds, totals=totals):
        out[mask] = model.predict([r for r, m in zip(rows, mask, strict=True) if m])
    return out
