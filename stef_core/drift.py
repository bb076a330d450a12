"""Falls that the noise of a day does not explain: one day of scores against the days before it.

A day's mean moves for two reasons that are no news: few rows, and days that differ (other questions, other people). The first
is measured by permuting rows between the day and its window, the second by the scatter of the window's own daily means beyond
what their rows explain. A day alerts when its fall exceeds what both explain, after correction for all tests of that day. The
day is tested alone and together with the two days before it, since a fall too small to show in one day may show in three.
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
SPANS = (1, 3)  # days up to and with the day that are tested together
DRAWS = 20_000
TAIL = 0.005  # below this share of the draws the p-value is extrapolated
DAY_NOISE = 1.5  # points of Φ by which an ordinary day may differ, assumed until the window says more
DAY_NOISE_WEIGHT = 4  # how many days of evidence that assumption is worth
SEED = 20260302
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A day, or a few days, below the window. `observed` and `expected` are means on a 0-100 scale."""

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
    span: int
    last: float  # mean of the day itself, 0-100
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
    alpha: float = 0.005,
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
    adjusted = _holm([test.fall.p_value for test in tests])
    surest: dict[tuple[str, str, str], dict[str, Any]] = {}
    for p_value, test in sorted(zip(adjusted, tests, strict=True), key=lambda pair: pair[0]):
        # three days below are no news on a day that has recovered
        if p_value <= alpha and test.fall.expected - max(test.fall.observed, test.last) >= min_fall:
            key = (test.agent_id, test.app_id, test.kind)
            surest[key] = surest.get(key) or _alert(test, p_value, day, findings)
    alerts = surest.values()
    news = [alert for alert in alerts if not _is_known(alert, recent_alerts)]
    return frame_of(sorted(news, key=lambda a: (a["kind"] != "phi_fall", a["change"], a["agent_id"], a["app_id"])), ALERTS)


def measure_fall(days: list[Floats], baseline: list[Floats], *, draws: int = DRAWS) -> Fall:
    """How far some days lie below the window before them, and how often chance alone does that.

    The null distribution of the difference is simulated: rows are permuted between the days and the window, and day effects are
    added, drawn from Student's t with the variance that the window's daily means show beyond their rows (method of moments,
    shrunk towards `DAY_NOISE`). Beyond the reach of the draws the tail is continued exponentially (peaks over threshold).

    Args:
        days: Values of each day that is tested, 0-100, each with at least one.
        baseline: Values of each earlier day, likewise.
        draws: Size of the simulation.
    """
    now, base = np.concatenate(days), np.concatenate(baseline)
    observed, expected = float(now.mean()), float(base.mean())
    rng = np.random.default_rng(SEED)

    levels, inverse = np.unique(np.concatenate([now, base]), return_inverse=True)
    counts = np.bincount(inverse.ravel(), minlength=len(levels))
    picked = rng.multivariate_hypergeometric(counts, len(now), size=draws, method="marginals")
    sums = picked @ levels
    differences = sums / len(now) - (float(counts @ levels) - sums) / len(base)

    freedom = DAY_NOISE_WEIGHT + len(baseline) - 1
    variance = (DAY_NOISE_WEIGHT * DAY_NOISE**2 + (len(baseline) - 1) * _between_days(baseline)) / freedom
    effect = np.sqrt(variance * (1 / len(days) + 1 / len(baseline)))
    differences = differences + effect * rng.standard_t(freedom, size=draws)
    return Fall(
        observed=observed,
        expected=expected,
        p_value=_lower_tail(differences, observed - expected),
        rows=len(now),
        baseline_rows=len(base),
        baseline_days=len(baseline),
    )


def _between_days(baseline: list[Floats]) -> float:
    sizes = np.array([len(d) for d in baseline], dtype=float)
    means = np.array([d.mean() for d in baseline])
    spare = sizes.sum() - len(baseline)
    within = sum(float(((d - d.mean()) ** 2).sum()) for d in baseline) / spare if spare > 0 else 0.0
    centre = float(sizes @ means / sizes.sum())
    scatter = float(sizes @ (means - centre) ** 2)
    weight = float(sizes.sum()) - float((sizes**2).sum()) / float(sizes.sum())
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
    scored = pl.col("status") == "scored"
    covered = pl.when(scored).then(100.0).otherwise(0.0)
    for agent_id, apps in apps_of.iter_rows():
        # an agent with one application is that application: one test, one alert
        for app_id in (ALL, *(apps if len(apps) > 1 else ())):
            mine = window.filter((pl.col("agent_id") == agent_id) & ((app_id == ALL) | (pl.col("app_id") == app_id)))
            for kind, rows in (
                ("phi_fall", mine.filter(scored).with_columns(value=pl.col("phi"))),
                ("coverage_fall", mine.with_columns(value=covered)),
            ):
                own = rows.filter(pl.col("dt") == day)["value"]
                # a test that cannot fail on these rows in any order is none, and costs the others nothing (Tarone 1990)
                if len(own) < min_rows or rows["value"].n_unique() == 1:
                    continue
                last = float(own.to_numpy().mean())
                for span in SPANS:
                    start = day - dt.timedelta(days=span - 1)
                    now, before = _by_day(rows.filter(pl.col("dt") >= start)), _by_day(rows.filter(pl.col("dt") < start))
                    if len(before) < BASELINE_DAYS or sum(map(len, before)) < min_rows or (span > 1 and len(now) == 1):
                        continue
                    fall = measure_fall(now, before)
                    today, earlier = mine.filter(pl.col("dt") >= start), mine.filter(pl.col("dt") < start)
                    yield _Test(
                        agent_id=agent_id,
                        app_id=app_id,
                        kind=kind,
                        span=span,
                        last=last,
                        fall=fall,
                        today=today,
                        before=earlier,
                    )


def _by_day(rows: pl.DataFrame) -> list[Floats]:
    return [part["value"].to_numpy() for part in rows.sort("dt").partition_by("dt", maintain_order=True)]


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
    version, earlier = _usual_version(test.today.filter(pl.col("dt") == day)), _usual_version(test.before)
    previous = earlier if earlier != version else None
    rises = _rises(test, findings) if test.kind == "phi_fall" else []
    # examples are of the day itself, so that its partition has them
    worst = test.today.filter((pl.col("status") == "scored") & (pl.col("dt") == day)).sort("phi", "query_id")
    if test.kind == "coverage_fall":
        worst = test.today.filter((pl.col("status") != "scored") & (pl.col("dt") == day)).sort("query_id")
    detail: dict[str, Any] = {
        "findings": rises,
        "examples": worst["query_id"].head(5).to_list(),
        "baseline_days": fall.baseline_days,
        "days": test.span,
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
    if test.span > 1:
        sentence += f" in {test.span} days"
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
