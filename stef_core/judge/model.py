"""The fitted model behind the symbolic judge: a sum of log-odds over named findings, readable as a file.

Each finding kind has a weight that is never positive, each supporting signal one that is never negative: the sign follows from
what it means. Kinds that the labelled data showed too rarely keep the prior of their severity.

Source: method.md section 6 ("Beyond the paper: p_right").
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from stef_core.records import Evidence, Finding, Grade

PRIORS: dict[str, float] = {"critical": -2.2, "major": -1.1, "minor": -0.3, "info": 0.0}
FATAL_PRIOR = -3.0
# noted, never weighed: a fault of the reformulation counts where the SQL followed it, as a finding of the alignment
UNWEIGHED = frozenset({"injection_suspected", "enrichment_adds", "enrichment_drops", "enrichment_contradicts"})


CONTEXTS = ("plain", "enriched")  # without and with a reformulation: evidence weighs differently beside one


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of one context, in log-odds."""

    intercept: float
    against: Mapping[str, float]
    support: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicModel:
    """Weights for each context. `steps` maps p_right to a grade: (lowest p, grade), highest first."""

    name: str
    contexts: Mapping[str, Weights]
    steps: tuple[tuple[float, Grade], ...]

    def terms(self, evidence: Evidence) -> dict[str, float]:
        """Every term of the sum, by name, in log-odds; the intercept is the term ``""``."""
        weights = self.contexts[context_of(evidence)]
        terms: dict[str, float] = {"": weights.intercept}
        for name, (strength, prior) in finding_features(evidence.findings).items():
            terms[name] = weights.against.get(name, prior) * strength
        for name, value in support_features(evidence.alignment.support).items():
            weight = weights.support.get(name, 0.0)
            if weight:
                terms[name] = weight * value
        return terms

    def p_right(self, terms: Mapping[str, float]) -> float:
        """Probability that the SQL answers the question."""
        return 1 / (1 + math.exp(-math.fsum(terms.values())))

    def grade(self, p_right: float) -> Grade:
        """Grade of a probability."""
        return next(grade for lowest, grade in self.steps if p_right >= lowest)


def context_of(evidence: Evidence) -> str:
    """Which weights apply to a row."""
    return "enriched" if (evidence.record.enriched_question or "").strip() else "plain"


def finding_features(findings: Iterable[Finding]) -> dict[str, tuple[float, float]]:
    """Per finding kind: the strongest reading of it (0-1), and the prior weight of its severity."""
    out: dict[str, tuple[float, float]] = {}
    for f in findings:
        if f.code in UNWEIGHED:
            continue
        kind = f.kind or f.code
        prior = FATAL_PRIOR if kind.startswith("defect_") and f.severity == "critical" else PRIORS[f.severity]
        strength = max(out[kind][0] if kind in out else 0.0, min(1.0, f.strength))
        out[kind] = (strength, prior)
    return out


def support_features(support: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Supporting signals, each at most 1: how often something was found is a matter of the question's length."""
    return {name: min(1.0, value) for name, value in support}


@cache
def load_model(name: str = "symbolic_v1") -> SymbolicModel:
    """A model that ships with the package (``stef_core/judge/<name>.json``).

    Raises:
        FileNotFoundError: There is no such model.
    """
    data: dict[str, Any] = json.loads((resources.files("stef_core.judge") / f"{name}.json").read_text(encoding="utf-8"))
    contexts = {
        name: Weights(intercept=entry["intercept"], against=entry["weights"], support=entry["support"])
        for name, entry in data["contexts"].items()
    }
    steps = tuple((step["from"], step["grade"]) for step in data["grades"])
    return SymbolicModel(name=data["name"], contexts=contexts, steps=steps)
