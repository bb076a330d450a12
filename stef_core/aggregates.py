"""Figures of one agent and day: how many rows were scored, and how well.

Source: method.md section 7; data-contract.md, ``agent_daily``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, get_args

import polars as pl

from stef_core.frames import AGENT_DAILY, compact_json, frame_of
from stef_core.records import Band, EnrichmentStatus, FilterStatus, Grade

ALL_APPLICATIONS = "*"
_GROUP = ["dt", "agent_id", "agent_version", "app_id"]
# (name of the dimension, its column in query_scores, values that are told even when no row has them)
_DIMENSIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("band", "band", get_args(Band)),
    ("filter_status", "filter_status", get_args(FilterStatus)),
    ("verdict", "verdict", get_args(Grade)),
    ("enrichment", "enrichment_status", get_args(EnrichmentStatus)),
)
_Key: TypeAlias = tuple[Any, ...]
_Counts: TypeAlias = Mapping[_Key, Mapping[str, int]]


def agent_daily(scores: pl.DataFrame | pl.LazyFrame, findings: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Aggregate scored queries per day, agent, version and application, and per version over all its applications (``*``).

    Args:
        scores: Columns of ``QUERY_SCORES``, one row a dt and query_id.
        findings: Columns of ``QUERY_FINDINGS``; those of unscored or unknown queries count for nothing.

    Returns:
        ``AGENT_DAILY``, sorted by its grain. Every row weighs the same. Mean, median and P90 (linear interpolation) of Φ are
        in 0-100 over scored rows only, and null where none is. ``shares`` are fractions 0-1, rounded to 6 places: of scored
        rows by band, filter status, verdict and enrichment (``none`` where a scored row has no such value; all 0 where none is
        scored), of scored rows that carry a finding at least once, and of all rows by the reason they are unscored for.

    Raises:
        polars.exceptions.ComputeError: A query stands twice in `scores`.
    """
    # an application that is itself called * must not pass for all of them
    named = pl.col("app_id").fill_null("default")
    scores = scores.lazy()
    each = scores.with_columns(app_id=pl.when(named == ALL_APPLICATIONS).then(pl.lit('"*"')).otherwise(named))
    both = pl.concat([each, scores.with_columns(app_id=pl.lit(ALL_APPLICATIONS))])
    scored = both.filter(pl.col("status") == "scored")

    by_value = {name: _counts(scored.with_columns(pl.col(column).fill_null("none")), column) for name, column, _ in _DIMENSIONS}
    by_reason = _counts(both.filter(pl.col("status") != "scored").with_columns(pl.col("reason").fill_null("unknown")), "reason")
    by_finding = _counts(_carriers(scored, findings.lazy()), "code")

    is_scored = pl.col("status") == "scored"
    phi = pl.col("phi").filter(is_scored).drop_nulls()
    groups = both.group_by(_GROUP).agg(
        pl.len().alias("rows"),
        is_scored.sum().alias("scored"),
        phi.alias("phi"),
        phi.median().alias("median_phi"),
        phi.quantile(0.9, interpolation="linear").alias("p90_phi"),
        pl.col("p_right").filter(is_scored).drop_nulls().alias("p_right"),
        pl.col("tokens_in", "tokens_out", "llm_calls").sum(),
        pl.col("cost").drop_nulls(),
        pl.col("run_id").max(),
    )
    rows = []
    for group in groups.collect(engine="streaming").iter_rows(named=True):
        key = tuple(group[name] for name in _GROUP)
        shares: dict[str, dict[str, float]] = {
            name: _shares(by_value[name], key, group["scored"], always) for name, _, always in _DIMENSIONS
        }
        shares["finding"] = _shares(by_finding, key, group["scored"])
        shares["reason"] = _shares(by_reason, key, group["rows"])
        rows.append(
            {name: group[name] for name in AGENT_DAILY if name in group}
            | {
                "coverage": group["scored"] / group["rows"],
                "mean_phi": _mean(group["phi"]),
                "mean_p_right": _mean(group["p_right"]),
                "shares": compact_json(shares),
                "cost": math.fsum(group["cost"]),
            }
        )
    return frame_of(rows, AGENT_DAILY).sort(_GROUP)


def _carriers(scored: pl.LazyFrame, findings: pl.LazyFrame) -> pl.LazyFrame:
    """One row a scored query, finding code and group; the query's own row says which agent and application it belongs to."""
    codes = findings.select("dt", "query_id", "code").unique()
    keyed = scored.select(*_GROUP, "query_id")
    parts = [
        codes.join(part, on=["dt", "query_id"], how="inner", validate="m:1")
        for part in (
            keyed.filter(pl.col("app_id") == ALL_APPLICATIONS),
            keyed.filter(pl.col("app_id") != ALL_APPLICATIONS),
        )
    ]
    return pl.concat(parts)


def _counts(frame: pl.LazyFrame, column: str) -> _Counts:
    """Rows of each group by the value of a column."""
    counts: dict[_Key, dict[str, int]] = defaultdict(dict)
    for *key, value, rows in frame.group_by([*_GROUP, column]).len().collect(engine="streaming").iter_rows():
        counts[tuple(key)][value] = rows
    return counts


def _shares(counts: _Counts, key: _Key, total: int, always: Iterable[str] = ()) -> dict[str, float]:
    """Counts of one group as fractions of `total`, rounded to 6 places."""
    found = dict.fromkeys(always, 0) | dict(counts.get(key, {}))
    return {value: round(count / total, 6) if total else 0.0 for value, count in found.items()}


def _mean(values: list[float]) -> float | None:
    """The mean, the same in whatever order the rows come: `fsum` rounds once, so scoring a day twice gives the same bits."""
    return math.fsum(values) / len(values) if values else None
