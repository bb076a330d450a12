"""Falls that the noise of a day does not explain: one day of scores against the days before it.

A day's mean moves for two reasons that are no news: few rows, and days that differ (other questions, other people). The first
is measured by permuting rows between the day and its window, the second by the scatter of the window's own daily means beyond
what their rows explain. A day alerts when its fall exceeds what both explain, after correction for all tests of that day.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stef_core.frames import AGENT_ALERTS, compact_json, frame_of

ALERTS = pl.Schema({name: kind for name, kind in AGENT_ALERTS.items() if name != "run_id"})
ALL = "*"  # app_id of an agent as a whole
BASELINE_DAYS = 3  # with fewer, the scatter between days is unknown
QUIET_DAYS = 7  # a fall of one agent and version is news once in this time
DRAWS = 20_000
TAIL = 0.005  # below this share of the draws the p-value is extrapolated
DAY_NOISE = 1.5  # points of Φ by which an ordinary day may differ, assumed until the window says more
DAY_NOISE_WEIGHT = 4  # how many days of evidence that assumption is worth
SEED = 20260302
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A day below its window. `observed` and `expected` are means on a 0-100 scale."""

    observed: float
    expected: float
    p_value: float
    rows: int
    baseline_rows: int
    baseline_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    agent_id: str
    app_id: str
    kind: str
    fall: Fall
    today: pl.DataFrame
    before: pl.DataFrame


def find_alerts(
    scores: pl.DataFrame,
    day: dt.date,
    *,
    findings: pl.DataFrame | None = None,
    recent_alerts: pl.DataFrame | None = None,
    window_days: int = 14,
    min_rows: int = 20,
    alpha: float = 0.001,
    min_fall: float = 5.0,
) -> pl.DataFrame:
    """The agents, and single applications of them, that fell on a day.

    Args:
        scores: Rows of ``query_scores`` of the day and of the days before it: ``dt agent_id agent_version app_id query_id
            status phi``, and ``p_right`` and ``reason`` where known. Rows outside the window are ignored.
        day: The day that is tested.
        findings: Rows of ``query_findings`` (``dt query_id code``) that say what rose; None leaves that out.
        recent_alerts: Rows of ``agent_alerts``; a fall of the same agent, application, kind and version within the 7 days
            before `day` is not raised again.
        window_days: Length of the window before the day, in days; it must hold 3 days with rows.
        min_rows: Rows that the day and the window each need.
        alpha: Chance of any false alert on a day, 0-1; divided over the tests of the day by Holm's method.
        min_fall: Smallest fall that counts, in points of Φ, or in percentage points of coverage.

    Returns:
        Rows of ``agent_alerts`` without ``run_id``, the largest fall first. ``phi_fall`` is in points of Φ (0-100),
        ``coverage_fall`` in shares (0-1); ``p_value`` is the corrected one.
    """
    first = day - dt.timedelta(days=window_days)
    # sorted, since a sum in another order differs in its last digit
    window = scores.filter((pl.col("dt") >= first) & (pl.col("dt") <= day)).sort("dt", "query_id")
    window = window.with_columns(pl.col("app_id").fill_null("default"))
    tests = list(_tests(window, day, min_rows))
    alerts = [
        _alert(test, adjusted, day, findings)
        for test, adjusted in zip(tests, _holm([t.fall.p_value for t in tests]), strict=True)
        if adjusted <= alpha and test.fall.expected - test.fall.observed >= min_fall
    ]
    news = [alert for alert in alerts if not _is_known(alert, recent_alerts)]
    return frame_of(sorted(news, key=lambda a: (a["kind"] != "phi_fall", a["change"], a["agent_id"], a["app_id"])), ALERTS)


def measure_fall(day: Floats, baseline: list[Floats], *, draws: int = DRAWS) -> Fall:
    """How far a day lies below its window, and how often chance alone does that.

    The null distribution of the difference is simulated: rows are permuted between day and window, and a day effect is added,
    drawn from Student's t with the variance that the window's daily means show beyond their rows (method of moments, shrunk
    towards `DAY_NOISE`). Beyond the reach of the draws the tail is continued exponentially (peaks over threshold).

    Args:
        day: Values of the day, 0-100, at least one.
        baseline: Values of each earlier day, each with at least one.
        draws: Size of the simulation.
    """
    base = np.concatenate(baseline)
    observed, expected = float(day.mean()), float(base.mean())
    rng = np.random.default_rng(SEED)

    levels, inverse = np.unique(np.concatenate([day, base]), return_inverse=True)
    counts = np.bincount(inverse.ravel(), minlength=len(levels))
    picked = rng.multivariate_hypergeometric(counts, len(day), size=draws, method="marginals")
    sums = picked @ levels
    differences = sums / len(day) - (float(counts @ levels) - sums) / len(base)

    days = len(baseline)
    freedom = DAY_NOISE_WEIGHT + days - 1
    variance = (DAY_NOISE_WEIGHT * DAY_NOISE**2 + (days - 1) * _between_days(baseline)) / freedom
    differences = differences + np.sqrt(variance * (1 + 1 / days)) * rng.standard_t(freedom, size=draws)
    return Fall(
        observed=observed,
        expected=expected,
        p_value=_lower_tail(differences, observed - expected),
        rows=len(day),
        baseline_rows=len(base),
        baseline_days=days,
    )


def _between_days(baseline: list[Floats]) -> float:
    sizes = np.array([len(d) for d in baseline], dtype=float)
    means = np.array([d.mean() for d in baseline])
    spare = sizes.sum() - len(baseline)
    within = sum(float(((d - d.mean()) ** 2).sum()) for d in baseline) / spare if spare > 0 else 0.0
    centre = float(sizes @ means / sizes.sum())
    scatter = float(sizes @ (means - centre) ** 2)
    weight = float(sizes.sum() - (sizes**2).sum() / sizes.sum())
    return max(0.0, (scatter - (len(baseline) - 1) * within) / weight)


def _lower_tail(draws: Floats, value: float) -> float:
    below = int((draws <= value).sum())
    if below >= TAIL * len(draws):
        return (below + 1) / (len(draws) + 1)
    edge = float(np.quantile(draws, TAIL))
    scale = float((edge - draws[draws < edge]).mean())
    return TAIL * float(np.exp((value - edge) / scale))


def _tests(window: pl.DataFrame, day: dt.date, min_rows: int) -> Iterator[_Test]:
    apps_of = window.group_by("agent_id").agg(pl.col("app_id").unique().sort()).sort("agent_id")
    for agent_id, apps in apps_of.iter_rows():
        # an agent with one application is that application: one test, one alert
        for app_id in (ALL, *(apps if len(apps) > 1 else ())):
            mine = window.filter((pl.col("agent_id") == agent_id) & ((app_id == ALL) | (pl.col("app_id") == app_id)))
            today, before = mine.filter(pl.col("dt") == day), mine.filter(pl.col("dt") < day)
            scored = pl.col("status") == "scored"
            coverage = pl.when(scored).then(100.0).otherwise(0.0).alias("value")
            for kind, value, rows in (("phi_fall", pl.col("phi").alias("value"), scored), ("coverage_fall", coverage, True)):
                values = today.filter(rows).select(value)["value"].to_numpy()
                history = before.filter(rows).select("dt", value).sort("dt")
                days = [part["value"].to_numpy() for part in history.partition_by("dt", maintain_order=True)]
                if len(values) >= min_rows and history.height >= min_rows and len(days) >= BASELINE_DAYS:
                    fall = measure_fall(values, days)
                    yield _Test(agent_id=agent_id, app_id=app_id, kind=kind, fall=fall, today=today, before=before)


def _holm(p_values: list[float]) -> list[float]:
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def _alert(test: _Test, p_value: float, day: dt.date, findings: pl.DataFrame | None) -> dict[str, Any]:
    fall = test.fall
    scale = 1.0 if test.kind == "phi_fall" else 0.01
    version, earlier = _usual_version(test.today), _usual_version(test.before)
    previous = earlier if earlier != version else None
    rises = _rises(test, findings) if test.kind == "phi_fall" else []
    worst = test.today.filter(pl.col("status") == "scored").sort("phi", "query_id")
    if test.kind == "coverage_fall":
        worst = test.today.filter(pl.col("status") != "scored").sort("query_id")
    detail: dict[str, Any] = {
        "findings": rises,
        "examples": worst["query_id"].head(5).to_list(),
        "baseline_days": fall.baseline_days,
    }
    if test.kind == "coverage_fall" and "reason" in worst.columns:
        detail["reasons"] = dict(worst["reason"].value_counts(sort=True).iter_rows())
    if "p_right" in test.today.columns:
        detail["p_right"] = {"observed": test.today["p_right"].mean(), "expected": test.before["p_right"].mean()}
    return {
        "dt": day,
        "agent_id": test.agent_id,
        "app_id": test.app_id,
        "kind": test.kind,
        "agent_version": version,
        "previous_version": previous,
        "observed": fall.observed * scale,
        "expected": fall.expected * scale,
        "change": (fall.observed - fall.expected) * scale,
        "p_value": p_value,
        "rows": fall.rows,
        "baseline_rows": fall.baseline_rows,
        "message": _message(test, version, previous, detail),
        "detail": compact_json(detail),
    }


def _usual_version(rows: pl.DataFrame) -> str | None:
    counts = rows.group_by("agent_version").len().sort("len", "agent_version", descending=True)
    version: str | None = counts["agent_version"][0]
    return version


def _rises(test: _Test, findings: pl.DataFrame | None) -> list[dict[str, Any]]:
    if findings is None:
        return []

    def shares(rows: pl.DataFrame) -> dict[str, float]:
        found = findings.select("dt", "query_id", "code").unique().join(rows, on=["dt", "query_id"], how="semi")
        return {code: n / rows.height for code, n in found.group_by("code").len().iter_rows()}

    now, before = shares(test.today), shares(test.before)
    rises = sorted(((share - before.get(code, 0.0), code) for code, share in now.items()), key=lambda r: (-r[0], r[1]))
    return [
        {"code": code, "share": round(now[code], 4), "share_before": round(before.get(code, 0.0), 4)}
        for rise, code in rises[:5]
        if rise > 0
    ]


def _message(test: _Test, version: str | None, previous: str | None, detail: dict[str, Any]) -> str:
    fall = test.fall
    where = test.agent_id if test.app_id == ALL else f"{test.agent_id} on {test.app_id}"
    if test.kind == "phi_fall":
        sentence = f"{where}: mean Φ fell from {fall.expected:.1f} to {fall.observed:.1f} over {fall.rows} answers"
    else:
        sentence = f"{where}: coverage fell from {fall.expected:.1f} % to {fall.observed:.1f} % of {fall.rows} answers"
    if previous is not None:
        sentence += f", with version {version or 'unknown'} instead of {previous}"
    if detail["findings"]:
        top = detail["findings"][0]
        sentence += (
            f"; most of all {top['code'].replace('_', ' ')}, from {top['share_before']:.0%} to {top['share']:.0%} of answers"
        )
    elif detail.get("reasons"):
        reason, count = next(iter(detail["reasons"].items()))
        sentence += f"; most often {(reason or 'unknown').replace('_', ' ')} ({count})"
    return sentence + "."


def _is_known(alert: dict[str, Any], recent: pl.DataFrame | None) -> bool:
    if recent is None or recent.is_empty():
        return False
    same = pl.all_horizontal(pl.col(n).eq_missing(pl.lit(alert[n])) for n in ("agent_id", "app_id", "kind", "agent_version"))
    age = (pl.lit(alert["dt"]) - pl.col("dt")).dt.total_days()
    return not recent.filter(same & (age > 0) & (age <= QUIET_DAYS)).is_empty()
