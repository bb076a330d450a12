"""Φ, its terms and bands, against the worked values and point tables of method.md section 6."""

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stef_core.records import Alignment, Filter, Verdict
from stef_core.scoring import (
    BANDS,
    CONFIDENCE_STEPS,
    FILTER_POINTS,
    VERDICT_POINTS,
    band_of,
    compose,
    compose_frame,
    confidence_factor,
    rejected,
)

CASES = json.loads((Path(__file__).parents[1] / "golden" / "score.json").read_text(encoding="utf-8"))
EXTRA = Filter(column="tenant_id", op="=", value=7)


def alignment(status: str, lenient: int) -> Alignment:
    extra = (EXTRA,) if status == "fully_applied_with_extras" else ()
    return Alignment(filter_status=status, extra=extra, benign=extra if lenient else ())  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_score_matches_golden_case(case: dict[str, Any]) -> None:
    verdict = Verdict(grade=case["grade"], confidence=case["confidence"])

    score = compose(alignment(case["filter_status"], case["lenient"]), verdict)

    assert score.phi == case["phi"]
    assert score.band == case["band"]


def test_point_tables_are_those_of_the_method() -> None:
    assert FILTER_POINTS == {"fully_applied": 5, "fully_applied_with_extras": 4, "partially_applied": 3, "not_applied": 0}
    assert VERDICT_POINTS == {"correct": 5, "likely_correct": 3, "potentially_incorrect": 2, "incorrect": 0}
    assert CONFIDENCE_STEPS == ((0.85, 1.0), (0.65, 0.8), (0.0, 0.5))
    assert BANDS == ((90, "excellent"), (75, "good"), (50, "marginal"), (0, "poor"))


@pytest.mark.parametrize(
    ("phi", "band"),
    [(90, "excellent"), (89.99, "good"), (75, "good"), (74.99, "marginal"), (50, "marginal"), (49.99, "poor"), (0, "poor")],
)
def test_a_band_starts_at_its_lowest_score(phi: float, band: str) -> None:
    assert band_of(phi) == band


@pytest.mark.parametrize("confidence", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_confidence_outside_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="not within 0-1"):
        confidence_factor(confidence)


def test_an_absent_verdict_is_never_scored() -> None:
    with pytest.raises(ValueError, match="judge_unavailable"):
        compose(alignment("fully_applied", 0), Verdict(grade=None, reason="judge_unavailable"))


def test_rejected_sql_scores_nothing() -> None:
    assert rejected().phi == 0
    assert rejected().band == "poor"


def test_one_extra_that_is_not_benign_takes_the_boost_away() -> None:
    other = Filter(column="currency", op="=", value="eur")
    both = Alignment(filter_status="fully_applied_with_extras", extra=(EXTRA, other), benign=(EXTRA,))

    score = compose(both, Verdict(grade="correct", confidence=0.9))

    assert score.lenient == 0
    assert score.phi == 90


@given(
    status=st.sampled_from(sorted(FILTER_POINTS)),
    grade=st.sampled_from(sorted(VERDICT_POINTS)),
    confidence=st.floats(0, 1),
    lenient=st.integers(0, 1),
)
@example(status="fully_applied", grade="correct", confidence=1.0, lenient=1)
def test_phi_stays_within_0_and_100_and_its_terms_redo_the_sum(
    status: str, grade: Any, confidence: float, lenient: int
) -> None:
    score = compose(alignment(status, lenient), Verdict(grade=grade, confidence=confidence))

    assert 0 <= score.phi <= 100
    assert score.base == min(10, score.filters + score.verdict + score.lenient)
    assert score.phi == pytest.approx(score.base / 10 * 100 * score.gamma_factor)


def test_a_frame_is_composed_like_its_rows() -> None:
    grid = list(itertools.product(FILTER_POINTS, VERDICT_POINTS, (0.0, 0.64, 0.65, 0.84, 0.85, 1.0), (0, 1)))
    scores = [compose(alignment(s, lenient), Verdict(grade=g, confidence=c)) for s, g, c, lenient in grid]
    frame = pl.DataFrame(
        {
            "status": ["scored"] * len(grid),
            "filter_status": [s for s, _, _, _ in grid],
            "verdict": [g for _, g, _, _ in grid],
            "confidence": [c for _, _, c, _ in grid],
            "delta_lenient": [score.lenient for score in scores],
        }
    )

    composed = compose_frame(frame)

    assert composed["phi"].to_list() == [score.phi for score in scores]
    assert composed["band"].to_list() == [score.band for score in scores]
    assert composed["base"].to_list() == [score.base for score in scores]


def test_an_unscored_row_of_a_frame_keeps_no_score() -> None:
    frame = pl.DataFrame(
        {
            "status": ["unscored"],
            "filter_status": ["fully_applied"],
            "verdict": [None],
            "confidence": [None],
            "delta_lenient": [0],
        },
        schema_overrides={"verdict": pl.String, "confidence": pl.Float64},
    )

    composed = compose_frame(frame)

    assert composed.select("phi", "band", "base", "sigma_filters", "sigma_verdict", "gamma_factor").row(0) == (None,) * 6
