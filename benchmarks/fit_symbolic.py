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
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.labelled import SHARED, labelled_rows, spider_rows
from stef_core.catalogue import witness_of
from stef_core.judge.fitting import Fit, Row, cross_validate, featurise, fit

OUT = Path(__file__).resolve().parents[1] / "stef_core" / "judge" / "symbolic_v1.json"
QUESTIONS = OUT.with_suffix(".questions")  # hashes of the questions that the fit saw: figures on them are in-sample
SOURCES = frozenset({"nl2sql_bugs", "nl2sql360_spider", "defog_sqlite_executed", "defog_postgres_executed"})
DATA = "NL2SQL-BUGS, NL2SQL360 and Spider agents, defog: expert or execution labels, grouped by database and question"
SPIDER_SHARE = 6  # one spider row in six is enough for a fit
# what each corpus weighs in sum, in rows, so that none rules; defog is nearly all right and says little of what goes wrong
TOTALS = {"bugs": 1000.0, "spider": 2000.0, "other": 5.0}
GRADES = ((0.52, "correct"), (0.5, "likely_correct"), (0.35, "potentially_incorrect"), (0.0, "incorrect"))


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
    p = cross_validate(rows, totals=TOTALS)
    report: dict[str, dict[str, float]] = {}
    for corpus in ("bugs", "spider", "other"):
        mask = [r.item.corpus == corpus for r in rows]
        report[corpus] = figures([r for r, m in zip(rows, mask, strict=True) if m], p[np.array(mask)])
        print(corpus, report[corpus])
    model = fit(rows, totals=TOTALS)
    if args.kinds:
        print_kinds(rows, model)
    if args.write:
        contexts = {
            name: {
                "intercept": round(w.intercept, 3),
                "weights": {k: round(v, 3) for k, v in sorted(w.against.items())},
                "support": {k: round(v, 3) for k, v in sorted(w.support.items()) if round(v, 3) > 0},
            }
            for name, w in ((c, part.weights()) for c, part in model.parts.items())
        }
        OUT.write_text(
            json.dumps(
                {
                    "name": "symbolic-v1",
                    "date": dt.datetime.now(dt.UTC).date().isoformat(),
                    "data": DATA,
                    "figures": report,
                    "contexts": contexts,
                    "grades": [{"from": low, "grade": grade} for low, grade in GRADES],
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
        questions = sorted({witness_of(r.item.record.user_question) for r in rows})
        QUESTIONS.write_text("\n".join(questions) + "\n", encoding="ascii")
        print("written", OUT.name, QUESTIONS.name)
    return 0


def print_kinds(rows: Sequence[Row], model: Fit) -> None:
    """For each kind and corpus: rows, share that is right, weight."""
    weights = {
        c: {**w.against, **{f"+{k}": v for k, v in w.support.items()}}
        for c, w in ((c, p.weights()) for c, p in model.parts.items())
    }
    seen: dict[str, dict[str, list[bool]]] = {}
    for row in rows:
        for name in (*row.against, *(f"+{s}" for s in row.support)):
            seen.setdefault(name, {}).setdefault(row.item.corpus, []).append(row.item.right)
    for name, by in sorted(seen.items(), key=lambda kv: -sum(len(v) for v in kv[1].values())):
        cells = "  ".join(
            f"{c} {len(by[c]):5d} {100 * sum(by[c]) / len(by[c]):3.0f}%" if c in by else f"{c}     -    -"
            for c in ("bugs", "spider", "other")
        )
        shown = "  ".join(f"{weights[c].get(name, float('nan')):6.2f}" for c in weights)
        print(f"{name:32s} {shown}  {cells}")


if __name__ == "__main__":
    sys.exit(main())
