"""Fit the symbolic judge's model on labelled rows, and say how far it can be trusted on folds that did not fit it.

    python benchmarks/fit_symbolic.py [--write]

Signs are forced: no finding can speak for an SQL, no supporting signal against it. Weights are drawn to the prior of their
severity, so that a kind which the data shows too rarely keeps its meaning. Folds are grouped by database and by question.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from benchmarks.labelled import SHARED, Labelled, labelled_rows, spider_rows
from stef_core.catalogue import catalogue_of, mine
from stef_core.evaluate import examine, read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.model import finding_features, support_features
from stef_core.rules import DEFAULT_RULES

OUT = Path(__file__).resolve().parents[1] / "stef_core" / "judge" / "symbolic_v1.json"
SOURCES = frozenset({"nl2sql_bugs", "nl2sql360_spider", "defog_sqlite_executed", "defog_postgres_executed"})
DATA = "NL2SQL-BUGS, NL2SQL360 and Spider agents, defog: expert or execution labels, grouped by database and question"
SPIDER_SHARE = 6  # one spider row in six is enough for a fit
FOLDS = 5
RIDGE = 3.0  # pull of the prior, in rows
GRADES = ((0.66, "correct"), (0.52, "likely_correct"), (0.3, "potentially_incorrect"), (0.0, "incorrect"))


@dataclass(slots=True, kw_only=True)
class Row:
    """One labelled row as features."""

    item: Labelled
    against: dict[str, tuple[float, float]]
    support: dict[str, float]
    agents: tuple[str, ...] = ()


def featurise(
    items: Sequence[Labelled], agents: Sequence[tuple[str, ...]] | None = None, *, catalogue: bool = True
) -> list[Row]:
    """Features of every row that reaches a judge.

    Args:
        items: Labelled answers.
        agents: The agents that gave each, where known.
        catalogue: Also hold each row against what the other rows of its database show.
    """
    read = read_many([i.record for i in items], [DEFAULT_RULES] * len(items), OfflineReader())
    log = catalogue_of(mine(((r.record, r.reading.sql) for r in read), dt.date(2026, 1, 1))) if catalogue else None
    rows = []
    for index, (item, row) in enumerate(zip(items, read, strict=True)):
        e = examine(row, DEFAULT_RULES, log)
        if e.evidence is not None:
            rows.append(
                Row(
                    item=item,
                    against=finding_features(e.evidence.findings),
                    support=support_features(e.evidence.alignment.support),
                    agents=agents[index] if agents else (),
                )
            )
    return rows


@dataclass(slots=True, kw_only=True)
class Fit:
    """A fitted sum of log-odds."""

    names: list[str]
    kinds: list[str]  # against | support
    coefficients: np.ndarray[Any, Any]
    intercept: float

    def predict(self, rows: Sequence[Row]) -> np.ndarray[Any, Any]:
        """Probability that each row is right."""
        x, _ = matrix(rows, self.names, self.kinds)
        known = set(self.names)
        z = x @ self.coefficients + self.intercept
        for i, row in enumerate(rows):
            z[i] += sum(prior * s for name, (s, prior) in row.against.items() if name not in known)
        return np.asarray(1 / (1 + np.exp(-z)))


def matrix(rows: Sequence[Row], names: list[str], kinds: list[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
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


def fit(rows: Sequence[Row], *, min_count: int = 3) -> Fit:
    """Penalised logistic regression with forced signs; rows of a corpus weigh alike in sum, so that none rules."""
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
    support = sorted(n for n, c in supports.items() if c >= 20)
    names, kinds = against + support, ["against"] * len(against) + ["support"] * len(support)
    x, y = matrix(rows, names, kinds)
    corpora = np.array([r.item.corpus for r in rows])
    # an answer that many agents gave stands often in a log
    weight = np.array([float(max(1, len(r.agents))) for r in rows])
    for corpus in set(corpora):
        mask = corpora == corpus
        weight[mask] *= {"bugs": 1000.0, "spider": 2000.0}.get(corpus, 100.0) / weight[mask].sum()
    prior = np.array([priors[n] for n in against] + [0.1] * len(support))

    def loss(theta: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        z = x @ theta[:-1] + theta[-1]
        p = 1 / (1 + np.exp(-z))
        value = float(-(weight * (y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12))).sum())
        value += RIDGE / 2 * float(((theta[:-1] - prior) ** 2).sum())
        gradient = np.append(x.T @ (weight * (p - y)) + RIDGE * (theta[:-1] - prior), (weight * (p - y)).sum())
        return value, gradient

    bounds = [(-4.0, 0.0)] * len(against) + [(0.0, 1.5)] * len(support) + [(-3.0, 3.0)]
    result = minimize(loss, np.append(prior, 1.0), jac=True, bounds=bounds, method="L-BFGS-B")
    return Fit(names=names, kinds=kinds, coefficients=result.x[:-1], intercept=float(result.x[-1]))


def cross_validate(rows: Sequence[Row], *, seed: int = 7) -> np.ndarray[Any, Any]:
    """Probability of every row from a fit that saw neither its database nor its question."""
    databases = sorted({r.item.database for r in rows})
    order = np.random.default_rng(seed).permutation(len(databases))
    fold_of = {databases[d]: i % FOLDS for i, d in enumerate(order)}
    folds = np.array([fold_of[r.item.database] for r in rows])
    out = np.zeros(len(rows))
    for k in range(FOLDS):
        held = [r for r, f in zip(rows, folds, strict=True) if f == k]
        questions = {r.item.question for r in held}
        model = fit([r for r, f in zip(rows, folds, strict=True) if f != k and r.item.question not in questions])
        out[folds == k] = model.predict(held)
    return out


def figures(rows: Sequence[Row], p: np.ndarray[Any, Any]) -> dict[str, float]:
    """AUROC, accuracy, pairwise accuracy on one question, within-agent AUROC, expected calibration error.

    Where agents are known, each counts: accuracy and calibration are those of a log that holds every agent's answers.
    """
    y = np.array([r.item.right for r in rows])
    weight = np.array([float(max(1, len(r.agents))) for r in rows])
    weight /= weight.sum()
    result = {
        "rows": float(len(rows)),
        "base": float((weight * y).sum()),
        "auroc": float(roc_auc_score(y, p)),
        "accuracy": float((weight * ((p >= 0.5) == y)).sum()),
    }
    by_question: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        by_question.setdefault(row.item.question, []).append(i)
    won = total = 0.0
    for members in by_question.values():
        for a in members:
            for b in members:
                if y[a] and not y[b]:
                    total += 1
                    won += 1.0 if p[a] > p[b] else 0.5 if p[a] == p[b] else 0.0
    result["pairwise"] = won / total if total else float("nan")
    within = counted = 0.0
    for agent in {r.item.agent for r in rows}:
        mask = np.array([r.item.agent == agent for r in rows])
        if 0 < y[mask].sum() < mask.sum():
            within += float(roc_auc_score(y[mask], p[mask])) * float(mask.sum())
            counted += float(mask.sum())
    result["within_agent"] = within / counted if counted else float("nan")
    bins = np.clip((p * 10).astype(int), 0, 9)
    error = 0.0
    for b in set(bins):
        mask = bins == b
        error += abs(float((weight[mask] * (p[mask] - y[mask])).sum()))
    result["ece"] = error
    return {k: round(v, 4) for k, v in result.items()}


def main() -> int:
    """Fit, report, and with ``--write`` replace the shipped model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the shipped model file")
    parser.add_argument("--kinds", action="store_true", help="print the share of right rows for each finding kind")
    args = parser.parse_args()
    if not SHARED.is_dir():
        print(f"{SHARED.name}: the labelled data is not here; nothing to fit", file=sys.stderr)
        return 2
    labelled = list(labelled_rows(sources=SOURCES))
    spider = [pair for i, pair in enumerate(spider_rows()) if i % SPIDER_SHARE == 0]
    rows = featurise(labelled) + featurise([s for s, _ in spider], [a for _, a in spider])
    p = cross_validate(rows)
    report: dict[str, dict[str, float]] = {}
    for corpus in ("bugs", "spider", "other"):
        mask = [r.item.corpus == corpus for r in rows]
        report[corpus] = figures([r for r, m in zip(rows, mask, strict=True) if m], p[np.array(mask)])
        print(corpus, report[corpus])
    model = fit(rows)
    if args.kinds:
        print_kinds(rows, model)
    if args.write:
        weights = {
            n: round(float(c), 3)
            for n, k, c in zip(model.names, model.kinds, model.coefficients, strict=True)
            if k == "against"
        }
        support = {
            n: round(float(c), 3)
            for n, k, c in zip(model.names, model.kinds, model.coefficients, strict=True)
            if k == "support"
        }
        OUT.write_text(
            json.dumps(
                {
                    "name": "symbolic-v1",
                    "date": dt.datetime.now(dt.UTC).date().isoformat(),
                    "data": DATA,
                    "figures": report,
                    "intercept": round(model.intercept, 3),
                    "weights": weights,
                    "support": {k: v for k, v in support.items() if v > 0},
                    "grades": [{"from": low, "grade": grade} for low, grade in GRADES],
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
        print("written", OUT.name)
    return 0


def print_kinds(rows: Sequence[Row], model: Fit) -> None:
    """For each kind and corpus: rows, share that is right, weight."""
    weights = dict(zip(model.names, model.coefficients, strict=True))
    seen: dict[str, dict[str, list[bool]]] = {}
    for row in rows:
        for name in (*row.against, *(f"+{s}" for s in row.support)):
            seen.setdefault(name, {}).setdefault(row.item.corpus, []).append(row.item.right)
    for name, by in sorted(seen.items(), key=lambda kv: -sum(len(v) for v in kv[1].values())):
        cells = "  ".join(
            f"{c} {len(by[c]):5d} {100 * sum(by[c]) / len(by[c]):3.0f}%" if c in by else f"{c}     -    -"
            for c in ("bugs", "spider", "other")
        )
        print(f"{name:32s} {weights.get(name.lstrip('+'), float('nan')):6.2f}  {cells}")


if __name__ == "__main__":
    sys.exit(main())
