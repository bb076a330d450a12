"""What an alert says: its figures, the findings and answers behind it, and one sentence for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stef_core.noise import Fall

FINDINGS = 5  # that an alert names
EXAMPLES = 5
INTERVAL = 1.645  # standard errors on either side: 90 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an alert is about. Means of `fall` are in 0-100, lower is worse."""

    kind: str
    agent_id: str
    app_id: str | None  # None: the agent as a whole
    version: str | None
    previous: str | None
    fall: Fall
    code: str | None  # the finding that rose
    side_by_side: bool

    @property
    def observed(self) -> float:
        """As ``agent_alerts`` has it: points of Φ, else a share 0-1."""
        return self.scaled(self.fall.observed)

    @property
    def expected(self) -> float:
        """Likewise."""
        return self.scaled(self.fall.expected)

    def scaled(self, mean: float) -> float:
        """A mean of the fall in the unit of the alert."""
        if self.kind == "finding_rise":
            return (100.0 - mean) / 100
        return mean / 100 if self.kind == "coverage_fall" else mean


def detail_of(
    told: Told,
    now: pl.DataFrame,
    before: pl.DataFrame,
    *,
    carriers: pl.DataFrame,
    risen: Sequence[str],
    applications: Mapping[str, Fall],
) -> dict[str, Any]:
    """What drives an alert.

    Args:
        told: What it is about.
        now: Rows of ``query_scores`` that got worse.
        before: Rows that they are compared with.
        carriers: ``dt query_id code`` of either, each once.
        risen: Codes whose rise alone is more than chance, the surest first.
        applications: Falls of single applications that are more than chance.

    Returns:
        ``findings`` (up to 5, with shares of answers now and before), ``examples`` (up to 5 ``query_id`` of the day itself),
        ``interval`` (90 %, of the change), ``days`` and ``baseline_days``, and where known ``p_right``, ``code``, ``reasons``,
        ``applications`` and ``compared``.
    """
    day = now["dt"].max()
    today = now.filter(pl.col("dt") == day)
    findings = _rises(told, now, before, carriers, risen)
    driving = carriers.filter(pl.col("code").is_in([f["code"] for f in findings[:1]])).select("dt", "query_id", driven=True)
    marked = today.join(driving, on=["dt", "query_id"], how="left", validate="1:1").with_columns(
        pl.col("driven").fill_null(False)
    )
    # examples are of the day itself, so that its partition has them
    if told.kind == "coverage_fall":
        examples = marked.filter(pl.col("status") != "scored").sort("query_id")
    elif told.kind == "finding_rise":
        examples = marked.filter("driven").sort("phi", "query_id")
    else:
        examples = marked.sort("phi", "driven", "query_id", descending=[False, True, False])
    margin = INTERVAL * told.fall.error / (1 if told.kind in ("phi_fall", "version_worse") else 100)
    change = told.observed - told.expected
    detail: dict[str, Any] = {
        "findings": findings,
        "examples": examples["query_id"].head(EXAMPLES).to_list(),
        "interval": [round(change - margin, 4), round(change + margin, 4)],
        "days": told.fall.days,
        "baseline_days": told.fall.baseline_days,
    }
    if told.kind == "coverage_fall" and "reason" in now.columns:
        reasons = (
            now.filter(pl.col("status") != "scored").group_by("reason").len().sort("len", "reason", descending=[True, False])
        )
        detail["reasons"] = {reason or "unknown": rows for reason, rows in reasons.iter_rows()}
    if told.kind == "version_worse":
        detail["compared"] = "same_days" if told.side_by_side else "days_before"
    if told.code:
        detail["code"] = told.code
    if applications:
        worst = sorted(applications.items(), key=lambda item: (item[1].observed - item[1].expected, item[0]))
        detail["applications"] = [
            {"app_id": app_id, "observed": told.scaled(f.observed), "expected": told.scaled(f.expected), "rows": f.rows}
            for app_id, f in worst[:FINDINGS]
        ]
    if "p_right" in now.columns:
        detail["p_right"] = {"observed": now["p_right"].mean(), "expected": before["p_right"].mean()}
    return detail


def message_of(told: Told, detail: Mapping[str, Any]) -> str:
    """One sentence: who, what, from where to where, over how many answers, and what drives it."""
    fall = told.fall
    where = told.agent_id if told.app_id is None else f"{told.agent_id} on {told.app_id}"
    days = f" in {fall.days} days" if fall.days > 1 else ""
    change = f", with version {told.version or 'unknown'} instead of {told.previous}" if told.previous is not None else ""
    if told.kind == "version_worse":
        against = "on the same days" if told.side_by_side else "before"
        sentence = (
            f"{where}: version {told.version} is worse than {told.previous}: mean Φ {fall.observed:.1f} over {fall.rows} "
            f"answers{days}, against {fall.expected:.1f} over {fall.baseline_rows} {against}"
        )
    elif told.kind == "phi_fall":
        sentence = (
            f"{where}: mean Φ fell from {fall.expected:.1f} to {fall.observed:.1f} over {fall.rows} answers{days}{change}"
        )
    elif told.kind == "finding_rise":
        name = (told.code or "").replace("_", " ")
        sentence = (
            f"{where}: {name} rose from {told.expected:.1%} to {told.observed:.1%} of answers, "
            f"over {fall.rows} answers{days}{change}"
        )
    else:
        sentence = (
            f"{where}: coverage fell from {fall.expected:.1f} % to {fall.observed:.1f} % of {fall.rows} answers{days}{change}"
        )
    if detail["findings"] and told.kind in ("phi_fall", "version_worse"):
        top = detail["findings"][0]
        name = top["code"].replace("_", " ")
        sentence += f"; most of all {name}, from {top['share_before']:.0%} to {top['share']:.0%} of answers"
    elif detail.get("reasons"):
        reason, count = next(iter(detail["reasons"].items()))
        sentence += f"; most often {reason.replace('_', ' ')} ({count})"
    return sentence + "."


def _rises(
    told: Told, now: pl.DataFrame, before: pl.DataFrame, carriers: pl.DataFrame, risen: Sequence[str]
) -> list[dict[str, Any]]:
    if told.kind == "coverage_fall":
        return []

    def shares(rows: pl.DataFrame) -> dict[str, float]:
        found = carriers.join(rows.select("dt", "query_id"), on=["dt", "query_id"], how="semi")
        return {code: n / rows.height for code, n in found.group_by("code").len().iter_rows()}

    here, there = shares(now), shares(before)
    rises = sorted(((share - there.get(code, 0.0), code) for code, share in here.items()), key=lambda r: (-r[0], r[1]))
    named = [told.code] if told.code else []
    largest = [code for rise, code in rises if rise > 0]
    # what is more than chance is named even where something common rose by more
    chosen = dict.fromkeys([*named, *largest[:1], *(code for code in risen if code in largest), *largest])
    return [
        {"code": code, "share": round(here.get(code, 0.0), 4), "share_before": round(there.get(code, 0.0), 4)}
        for code in list(chosen)[:FINDINGS]
    ]
