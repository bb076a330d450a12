"""What a verdict may say of a row with text that addresses the evaluator: no more than a judge who reads no text would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stef_core.records import Alignment, Verdict
from stef_core.scoring import VERDICT_POINTS, compose

# where what addresses the evaluator cannot be told apart from the question, nobody knows what was asked
UNTOLD = Verdict(grade="potentially_incorrect", confidence=0.5, judge="rule")


def capped(verdict: Verdict, alignment: Alignment, allowed: Sequence[tuple[Alignment, Verdict]]) -> Verdict:
    """Lower a verdict until it exceeds none of those allowed, in grade and in Φ.

    Args:
        verdict: A judge's answer with grade and confidence.
        alignment: What Φ is composed with.
        allowed: Verdicts of judges that cannot be talked to, each with the alignment that it rests on; at least one.

    Returns:
        The lowest grade, with the confidence of who gave it, or a lower one where Φ would exceed an allowed Φ or the verdict's
        own; the last reason says so. `p_right`, where there is one, is the lowest.

    Raises:
        ValueError: A verdict carries no grade or no confidence.
    """
    given = [verdict, *(v for _, v in allowed)]
    limit = min(compose(a, v).phi for a, v in ((alignment, verdict), *allowed))
    lowest = min((v for v in given if v.grade is not None), key=lambda v: (_points(v), v.confidence or 0.0))
    final = replace(lowest, confidence=lowest.confidence)
    if compose(alignment, final).phi > limit:
        final = replace(final, confidence=min(v.confidence or 0.0 for v in given))
    probabilities = [v.p_right for v in given if v.p_right is not None]
    reason = (
        f"The row carries text that addresses the evaluator, so the verdict may not exceed {_said(allowed)}; "
        f"the judge said {_shown(verdict)}."
    )
    return replace(
        verdict,
        grade=final.grade,
        confidence=final.confidence,
        reasons=(*verdict.reasons, reason),
        p_right=min(probabilities) if verdict.p_right is not None else None,
    )


def _points(verdict: Verdict) -> int:
    assert verdict.grade is not None
    return VERDICT_POINTS[verdict.grade]


def _said(allowed: Sequence[tuple[Alignment, Verdict]]) -> str:
    lowest = min((v for _, v in allowed), key=lambda v: (_points(v), v.confidence or 0.0))
    if lowest is UNTOLD:
        return f"{_shown(lowest)}, as that text cannot be told apart from the question"
    return f"what the symbolic judge allows, {_shown(lowest)}"


def _shown(verdict: Verdict) -> str:
    return f"{verdict.grade} at {verdict.confidence or 0.0:.2f}"
