"""The symbolic judge: grade, γ and p_right from the alignment alone; no network, no cost, the same answer every time.

Source: method.md sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from stef_core.judge.model import UNWEIGHED, SymbolicModel, load_model
from stef_core.records import Evidence, Finding, Grade, Verdict
from stef_core.rules import Rules

SHOWN_REASONS = 6
CERTAIN = 0.9  # strength from which on a reading counts as certain


class SymbolicJudge:
    """A `Judge` (evaluate.py) over a fitted sum of log-odds."""

    def __init__(self, model: SymbolicModel | None = None) -> None:
        self._model = model or load_model()

    @property
    def name(self) -> str:
        """``symbolic``."""
        return "symbolic"

    @property
    def model(self) -> str | None:
        """Name of the fitted model file."""
        return self._model.name

    @property
    def prompt_version(self) -> str | None:
        """There is no prompt."""
        return None

    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        """One verdict a row; the rules have already done their work in the alignment."""
        return [self.judge(e) for e in evidence]

    def judge(self, evidence: Evidence) -> Verdict:
        """Grade one row: the sum of what its findings weigh, as a probability, as a grade."""
        model = self._model
        terms = model.terms(evidence)
        p_right = model.p_right(terms)
        return Verdict(
            grade=_grade(evidence, model.grade(p_right)),
            confidence=round(max(p_right, 1 - p_right), 4),
            judge=self.name,
            model=model.name,
            reasons=_reasons(evidence, terms),
            p_right=round(p_right, 4),
        )


def _grade(evidence: Evidence, grade: Grade) -> Grade:
    """A critical departure that was read with certainty is never called right, however often such readings err."""
    certain = any(f.severity == "critical" and f.strength >= CERTAIN and f.code not in UNWEIGHED for f in evidence.findings)
    return "potentially_incorrect" if certain and grade in ("correct", "likely_correct") else grade


def _reasons(evidence: Evidence, terms: dict[str, float]) -> tuple[str, ...]:
    """The findings that moved the verdict, the heaviest first, each with its weight in log-odds."""
    strongest: dict[str, Finding] = {}
    for f in evidence.findings:
        kind = f.kind or f.code
        if kind not in strongest or f.strength > strongest[kind].strength:
            strongest[kind] = f
    moved = sorted((weight, kind) for kind, weight in terms.items() if kind in strongest and weight < -0.005)
    lines = [f"{strongest[kind].message} ({weight:+.2f})" for weight, kind in moved[:SHOWN_REASONS]]
    return tuple(lines) or ("The SQL departs from the question nowhere that can be read.",)
