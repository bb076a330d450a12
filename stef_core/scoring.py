"""Φ: the accuracy score of one answered question, and of a frame of them.

Source: method.md section 6 (arXiv 2604.28049).
"""

from __future__ import annotations

import polars as pl

from stef_core.records import Alignment, Band, FilterStatus, Grade, Score, Verdict

FILTER_POINTS: dict[FilterStatus, int] = {
    "fully_applied": 5,
    "fully_applied_with_extras": 4,
    "partially_applied": 3,
    "not_applied": 0,
}
VERDICT_POINTS: dict[Grade, int] = {"correct": 5, "likely_correct": 3, "potentially_incorrect": 2, "incorrect": 0}
# (lowest γ, Γ), highest first
CONFIDENCE_STEPS: tuple[tuple[float, float], ...] = ((0.85, 1.0), (0.65, 0.8), (0.0, 0.5))
# (lowest Φ, band), highest first
BANDS: tuple[tuple[float, Band], ...] = ((90, "excellent"), (75, "good"), (50, "marginal"), (0, "poor"))


def confidence_factor(confidence: float) -> float:
    """Γ of a confidence γ in 0-1.

    Raises:
        ValueError: `confidence` lies outside 0-1 or is not a number.
    """
    if not 0.0 <= confidence <= 1.0:
        raise ValueError(f"confidence {confidence!r} is not within 0-1")
    return next(factor for lowest, factor in CONFIDENCE_STEPS if confidence >= lowest)


def band_of(phi: float) -> Band:
    """Band of a Φ in 0-100."""
    return next(band for lowest, band in BANDS if phi >= lowest)


def compose(alignment: Alignment, verdict: Verdict) -> Score:
    """Compose the accuracy score Φ of one answered question.

    Args:
        alignment: Filter status and extras of the query.
        verdict: Grade, and confidence in 0-1.

    Returns:
        ``phi`` in 0-100 with every term that made it, so that a reader can redo the sum.

    Raises:
        ValueError: The verdict carries no grade or no confidence; such a row is unscored, not zero.
    """
    if verdict.grade is None or verdict.confidence is None:
        raise ValueError(f"a verdict without grade or confidence cannot be scored: {verdict.reason}")
    filters = FILTER_POINTS[alignment.filter_status]
    grade = VERDICT_POINTS[verdict.grade]
    lenient = alignment.lenient
    base = min(10, filters + grade + lenient)
    factor = confidence_factor(verdict.confidence)
    # 10 * base * factor stays exact on this grid, so bands never flip on an ulp; 100 * (base / 10) * factor does not
    phi = 10 * base * factor
    return Score(
        filters=filters,
        verdict=grade,
        lenient=lenient,
        base=base,
        gamma_factor=factor,
        phi=phi,
        band=band_of(phi),
        p_right=verdict.p_right,
    )


def rejected() -> Score:
    """The score of SQL that is missing or not one query: Φ = 0 whatever a judge says (method.md section 7)."""
    return Score(filters=0, verdict=0, lenient=0, base=0, gamma_factor=1.0, phi=0.0, band="poor", p_right=0.0)


def compose_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """`compose` for a frame: the columns of a day after alignments and verdicts are joined.

    Args:
        frame: At least ``filter_status`` (null for SQL that was rejected), ``delta_lenient``, ``verdict``, ``confidence``
            and ``status``; unscored rows keep null terms.

    Returns:
        The frame with ``sigma_filters``, ``sigma_verdict``, ``base``, ``gamma_factor``, ``phi`` and ``band`` added.
    """
    scored = pl.col("status") == "scored"
    gamma = pl.col("confidence")
    factor: pl.Expr = pl.lit(None, pl.Float64)
    for lowest, value in reversed(CONFIDENCE_STEPS):
        factor = pl.when(gamma >= lowest).then(value).otherwise(factor)
    band: pl.Expr = pl.lit(None, pl.String)
    for lowest, name in reversed(BANDS):
        band = pl.when(pl.col("phi") >= lowest).then(pl.lit(name)).otherwise(band)
    return (
        frame.with_columns(
            pl.when(scored)
            .then(pl.col("filter_status").replace_strict(FILTER_POINTS, default=0, return_dtype=pl.Int64))
            .alias("sigma_filters"),
            pl.when(scored)
            .then(pl.col("verdict").replace_strict(VERDICT_POINTS, return_dtype=pl.Int64))
            .alias("sigma_verdict"),
            pl.when(scored).then(factor).alias("gamma_factor"),
        )
        .with_columns(
            pl.min_horizontal(pl.lit(10), pl.col("sigma_filters") + pl.col("sigma_verdict") + pl.col("delta_lenient")).alias(
                "base"
            )
        )
        .with_columns(pl.when(scored).then(pl.col("base")).alias("base"))
        .with_columns((10 * pl.col("base") * pl.col("gamma_factor")).alias("phi"))
        .with_columns(band.alias("band"))
    )
