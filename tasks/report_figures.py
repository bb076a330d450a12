"""The figures of the report: what is shown of how many, and the sums that the page's filters add up again.

A page has a size that a mail takes, whatever the warehouse holds. So agents, applications and versions beyond a number are told
as one, and time is cut more coarsely, until the sums fit; every total stays what it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stef_core.intervals import Sums, difference_interval, mean_interval
from tasks.report_data import AGENTS_SHOWN, BAND_COUNTS, GRAINS, ReportData, ranked_agents
from tasks.report_page import short

APPS_SHOWN, VERSIONS_SHOWN = 60, 6
CELLS_MOST = 15_000
FAULTS_MOST = 36_000
SIDE_MOST = 12_000  # rows of each other table beside the cells
ANY = -1  # of an application: not told apart
_TRUNCATED = {"day": "1d", "week": "1w", "month": "1mo", "year": "1y"}
_SUMS = ("rows", "scored", "phi", "phi_squares", "p_right", "p_right_rows", *BAND_COUNTS)
_STAGES = ("reformulated", "in_enrichment", "in_generation", "in_both")
# how many agents, versions of each and applications are told apart, and how coarsely time is cut at least
_LIMITS = [
    (AGENTS_SHOWN, VERSIONS_SHOWN, APPS_SHOWN, "day"),
    (AGENTS_SHOWN, VERSIONS_SHOWN, APPS_SHOWN, "week"),
    (AGENTS_SHOWN, VERSIONS_SHOWN, 20, "week"),
    (AGENTS_SHOWN, 3, 8, "month"),
    (40, 2, 4, "month"),
    (40, 2, 4, "year"),
    (20, 1, 1, "year"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Counts beside the cells: frame columns ``d a p``, what is counted, and the counts."""

    frame: pl.DataFrame
    grain: str
    buckets: tuple[dt.date, ...]
    by_app: bool

    def for_script(self, columns: Iterable[str]) -> dict[str, Any]:
        """As the page's script reads it."""
        return _for_script(self.frame, columns, self.grain, self.buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that is added up. Agents, applications and versions are numbers from 0, by their place in the lists."""

    grain: str
    buckets: tuple[dt.date, ...]
    agents: tuple[str, ...]
    other_agents: int  # told as one, the last of `agents`
    apps: tuple[str, ...]
    other_apps: int
    versions: tuple[tuple[str, ...], ...]  # of each agent, the earliest first
    agent_of: dict[str, int]
    app_of: dict[str, int]
    version_of: dict[tuple[str, str | None], int]
    cells: pl.DataFrame  # d a v p, and sums
    codes: tuple[str, ...]
    faults: Side  # d a p c stage occurrences
    reason_names: tuple[str, ...]
    reasons: Side  # d a p reason rows
    costs: Side  # d a p judged llm_calls tokens_in tokens_out cost

    def agent(self, name: str) -> int:
        """The number of an agent; of the others together where it is not told apart."""
        return self.agent_of.get(name, len(self.agents) - 1)

    def app(self, name: str | None) -> int:
        """The number of an application, likewise."""
        return self.app_of.get(name or "default", len(self.apps) - 1)

    def for_script(self) -> dict[str, Any]:
        """The sums as the page's script reads them: a list for each column."""
        cells = self.cells.with_columns(pl.col("phi", "phi_squares", "p_right").round(3))
        return {
            "agents": self.agents,
            "apps": self.apps,
            "versions": self.versions,
            "codes": [code.replace("_", " ") for code in self.codes],
            "reasons": [reason.replace("_", " ") for reason in self.reason_names],
            "cells": _for_script(cells, ("d", "a", "v", "p", *_SUMS, *_STAGES), self.grain, self.buckets),
            "faults": self.faults.for_script(("d", "a", "p", "c", "stage", "occurrences")),
            "unscored": self.reasons.for_script(("d", "a", "p", "reason", "rows")),
            "costs": self.costs.for_script(("d", "a", "p", "judged", "llm_calls", "tokens_in", "tokens_out", "cost")),
        }


def figures_of(data: ReportData, *, agents_most: int = AGENTS_SHOWN) -> Figures:
    """The figures of what was read; pure.

    Args:
        agents_most: How many agents are told apart, at most.
    """
    for agents, versions, apps, coarsest in _LIMITS:
        figures = _within(data, min(agents, agents_most), versions, apps, coarsest)
        if figures.cells.height <= CELLS_MOST:
            break
    return figures


def end_of(bucket: dt.date, grain: str) -> dt.date:
    """The last day of a bucket."""
    if grain == "day":
        return bucket
    if grain == "week":
        return bucket + dt.timedelta(days=6)
    months = 1 if grain == "month" else 12
    following = dt.date(bucket.year + (bucket.month - 1 + months) // 12, (bucket.month - 1 + months) % 12 + 1, 1)
    return following - dt.timedelta(days=1)


# --- tables of the page ---------------------------------------------------------------------------------------------


def sums_of(row: dict[str, Any]) -> Sums:
    """Of one row of sums of cells."""
    return Sums(row["scored"], row["phi"], row["phi_squares"])


def totals(figures: Figures) -> dict[str, Any]:
    """All cells together."""
    row = figures.cells.select(pl.col(*_SUMS, *_STAGES).sum()).row(0, named=True)
    return _told(row)


def by_agent(figures: Figures) -> list[dict[str, Any]]:
    """One row an agent, in their order."""
    found = _grouped(figures.cells, ["a"])
    return [_told(row) | {"a": row["a"], "agent": figures.agents[row["a"]]} for row in found.iter_rows(named=True)]


def by_version(figures: Figures, data: ReportData) -> list[dict[str, Any]]:
    """One row an agent and version, each compared with the version before it."""
    spreads = {(s["agent_id"], s["agent_version"]): s for s in data.spreads.iter_rows(named=True)}
    spread_at = {
        (figures.agent(agent), number): spreads[agent, version]
        for (agent, version), number in figures.version_of.items()
        if (agent, version) in spreads and figures.versions[figures.agent(agent)][number] == short(version or "–")
    }
    found = figures.cells.group_by("a", "v").agg(
        pl.col("first_day").min(), pl.col("last_day").max(), pl.col(*_SUMS, *_STAGES).sum()
    )
    rows: list[dict[str, Any]] = []
    for row in found.sort("a", "v").iter_rows(named=True):
        told = _told(row) | {name: row[name] for name in ("a", "v", "first_day", "last_day")}
        told |= {"agent": figures.agents[row["a"]], "version": figures.versions[row["a"]][row["v"]]}
        spread = spread_at.get((row["a"], row["v"]), {})
        told |= {"median": spread.get("median_phi"), "p90": spread.get("p90_phi")}
        before = rows[-1] if rows and rows[-1]["a"] == row["a"] else None
        told |= compared(sums_of(row), before["sums"] if before else None)
        rows.append(told | {"sums": sums_of(row)})
    return rows


def compared(new: Sums, old: Sums | None) -> dict[str, Any]:
    """The difference of two means, its interval, and what it says."""
    if old is None or new.mean is None or old.mean is None:
        return {"change": None, "change_span": None, "verdict": ""}
    span = difference_interval(new, old)
    verdict = "too few" if span is None else "better" if span[0] > 0 else "worse" if span[1] < 0 else "not clear"
    return {"change": new.mean - old.mean, "change_span": span, "verdict": verdict}


def by_bucket(figures: Figures) -> dict[int, list[dict[str, Any]]]:
    """Of each agent its buckets with rows, and at the grain of a day the mean of the seven calendar days up to it."""
    out: dict[int, list[dict[str, Any]]] = {}
    for row in _grouped(figures.cells, ["a", "d"]).iter_rows(named=True):
        out.setdefault(row["a"], []).append(_told(row) | {"day": figures.buckets[row["d"]], "sums": sums_of(row)})
    for rows in out.values():
        for at, row in enumerate(rows):
            row["week"] = _week_mean(rows[: at + 1]) if figures.grain == "day" else None
    return out


def _week_mean(rows: Sequence[dict[str, Any]]) -> float | None:
    since = rows[-1]["day"] - dt.timedelta(days=6)
    week = [row["sums"] for row in rows[-7:] if row["day"] >= since]
    n = sum(sums.n for sums in week)
    return sum(sums.total for sums in week) / n if n else None


def pareto(figures: Figures) -> list[dict[str, Any]]:
    """Codes by how often they occur, with their running share."""
    found = (
        figures.faults.frame.group_by("c").agg(pl.col("occurrences").sum()).sort("occurrences", "c", descending=[True, False])
    )
    total, running, out = int(found["occurrences"].sum()), 0, []
    most = int(found["occurrences"].max() or 1)  # type: ignore[arg-type]
    for number, occurrences in found.iter_rows():
        running += occurrences
        of_most = occurrences / most
        out.append(
            {
                "c": number,
                "code": figures.codes[number],
                "occurrences": occurrences,
                "cumulative": running / total,
                "bar": of_most,
            }
        )
    return out


def leading_codes(figures: Figures, stage: str, most: int = 3) -> dict[int, list[tuple[str, int]]]:
    """Of each agent the most frequent codes of a stage."""
    found = figures.faults.frame.filter(pl.col("stage") == _STAGE[stage]).group_by("a", "c").agg(pl.col("occurrences").sum())
    out: dict[int, list[tuple[str, int]]] = {}
    for agent, code, n in found.sort("a", "occurrences", "c", descending=[False, True, False]).iter_rows():
        if len(out.setdefault(agent, [])) < most:
            out[agent].append((figures.codes[code], n))
    return out


def reasons_by_agent(figures: Figures) -> dict[int, list[tuple[str, int]]]:
    """Of each agent why answers are unscored, the most frequent first."""
    found = figures.reasons.frame.group_by("a", "reason").agg(pl.col("rows").sum())
    out: dict[int, list[tuple[str, int]]] = {}
    for agent, reason, n in found.sort("a", "rows", "reason", descending=[False, True, False]).iter_rows():
        out.setdefault(agent, []).append((figures.reason_names[reason], n))
    return out


def costs(figures: Figures, keys: Sequence[str]) -> list[dict[str, Any]]:
    """What the judge took, by agent (``a``), by bucket (``d``) or both."""
    found = figures.costs.frame.group_by(keys).agg(pl.col("judged", "llm_calls", "tokens_in", "tokens_out", "cost").sum())
    rows = []
    for row in found.sort(keys).iter_rows(named=True):
        told = dict(row)
        if "a" in row:
            told["agent"] = figures.agents[row["a"]]
        if "d" in row:
            told["day"] = figures.costs.buckets[row["d"]]
        rows.append(told)
    return rows


# --- fitting --------------------------------------------------------------------------------------------------------

_STAGE = {"generation": 0, "enrichment": 1, "evaluation": 2}


def _within(data: ReportData, agents: int, versions: int, apps: int, coarsest: str) -> Figures:
    grain = max(data.grain, coarsest, key=list(GRAINS).index)
    cells = _coarser(data.cells, grain)
    agent_names, agent_of, other_agents = _told_apart(ranked_agents(cells, data.alerts), agents, "agents")
    ranked = [
        name for name, _ in sorted(cells.group_by("app_id").agg(pl.col("rows").sum()).rows(), key=lambda e: (-e[1], e[0]))
    ]
    app_names, app_of, other_apps = _told_apart(ranked, apps, "applications")
    version_names, version_of = _versions(cells, agent_of, len(agent_names), versions)

    def placed(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(
            a=_numbered("agent_id", agent_of, len(agent_names) - 1), p=_numbered("app_id", app_of, len(app_names) - 1)
        )

    buckets = tuple(sorted(set(cells["bucket"])))
    numbers = pl.DataFrame(
        [(agent, version, number) for (agent, version), number in version_of.items()],
        schema={"agent_id": pl.String(), "agent_version": pl.String(), "v": pl.Int64()},
        orient="row",
    )
    numbered = placed(cells).join(
        numbers, on=["agent_id", "agent_version"], how="left", nulls_equal=True, validate="m:1", maintain_order="left"
    )
    summed = (
        numbered.with_columns(pl.col("v").fill_null(0), d=_numbered("bucket", {b: n for n, b in enumerate(buckets)}, 0))
        .group_by("d", "a", "v", "p")
        .agg(pl.col("first_day").min(), pl.col("last_day").max(), pl.col(*_SUMS, *_STAGES).sum())
        .sort("d", "a", "v", "p")
    )
    codes = sorted(set(data.faults["code"]))
    reasons = sorted(set(data.reasons["reason"]))
    faults = placed(data.faults).with_columns(
        c=_numbered("code", {code: n for n, code in enumerate(codes)}, 0), stage=_numbered("stage", _STAGE, 0)
    )
    unscored = placed(data.reasons).with_columns(reason=_numbered("reason", {r: n for n, r in enumerate(reasons)}, 0))
    return Figures(
        grain=grain,
        buckets=buckets,
        agents=agent_names,
        other_agents=other_agents,
        apps=app_names,
        other_apps=other_apps,
        versions=version_names,
        agent_of=agent_of,
        app_of=app_of,
        version_of=version_of,
        cells=summed,
        codes=tuple(codes),
        faults=_side(faults, ["c", "stage"], ["occurrences"], grain, FAULTS_MOST),
        reason_names=tuple(reasons),
        reasons=_side(unscored, ["reason"], ["rows"], grain),
        costs=_side(placed(data.costs), [], ["judged", "llm_calls", "tokens_in", "tokens_out", "cost"], grain),
    )


def _told_apart(ranked: Sequence[str], most: int, kind: str) -> tuple[tuple[str, ...], dict[str, int], int]:
    """The names that are told apart, in the order of the alphabet; the others come last, as one."""
    kept = sorted(ranked[:most]) if len(ranked) > most else sorted(ranked)
    labels: dict[str, str] = {}
    for name in kept:
        label, n = short(name) or "(blank)", 2
        while label in labels:  # cut names may be equal
            label, n = f"{short(name)} ({n})", n + 1
        labels[label] = name
    others = len(ranked) - len(kept)
    names = (*labels, *((f"({others} other {kind})",) if others else ()))
    return names, {name: number for number, name in enumerate(labels.values())}, others


def _versions(
    cells: pl.DataFrame, agent_of: dict[str, int], agents: int, most: int
) -> tuple[tuple[tuple[str, ...], ...], dict[tuple[str, str | None], int]]:
    """Of each agent its last versions by name, those before them as one."""
    ages = cells.group_by("agent_id", "agent_version").agg(pl.col("first_day").min(), pl.col("last_day").max())
    ages = ages.sort("agent_id", "first_day", "last_day", "agent_version")
    names: list[tuple[str, ...]] = [("–",)] * agents
    numbers: dict[tuple[str, str | None], int] = {}
    for part in ages.partition_by("agent_id", maintain_order=True):
        agent = part["agent_id"][0]
        if agent not in agent_of:
            continue
        versions = part["agent_version"].to_list()
        early = max(0, len(versions) - most)
        folded = early if early > 1 else 0  # one alone keeps its name
        names[agent_of[agent]] = (
            *((f"({folded} earlier)",) if folded else ()),
            *(short(version or "–") for version in versions[folded:]),
        )
        for place, version in enumerate(versions):
            numbers[agent, version] = max(0, place - folded + bool(folded))
    return tuple(names), numbers


def _side(frame: pl.DataFrame, keys: Sequence[str], counts: Sequence[str], grain: str, most: int = SIDE_MOST) -> Side:
    grains = list(GRAINS)[list(GRAINS).index(grain) :]
    attempts = [(each, True) for each in grains] + [(grains[-1], False)]
    for each, by_app in attempts:
        cut = _coarser(frame, each)
        if not by_app:
            cut = cut.with_columns(p=pl.lit(ANY, dtype=pl.Int64))
        buckets = tuple(sorted(set(cut["bucket"])))
        summed = (
            cut.with_columns(d=_numbered("bucket", {b: n for n, b in enumerate(buckets)}, 0))
            .group_by("d", "a", "p", *keys)
            .agg(pl.col(*counts).sum())
            .sort("d", "a", "p", *keys)
        )
        if summed.height <= most:
            break
    return Side(frame=summed, grain=each, buckets=buckets, by_app=by_app)


def _coarser(frame: pl.DataFrame, grain: str) -> pl.DataFrame:
    return frame.with_columns(pl.col("bucket").dt.truncate(_TRUNCATED[grain]))


def _numbered(column: str, numbers: dict[Any, int], default: int) -> pl.Expr:
    if not numbers:
        return pl.lit(default, dtype=pl.Int64).alias(column)
    return pl.col(column).replace_strict(list(numbers), list(numbers.values()), default=max(0, default), return_dtype=pl.Int64)


def _grouped(cells: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return cells.group_by(keys).agg(pl.col(*_SUMS, *_STAGES).sum()).sort(keys)


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Sums as the figures that are read."""
    sums, rows, scored = sums_of(row), row["rows"], row["scored"]
    bands = {band: row[band] / scored for band in BAND_COUNTS} if scored else {}
    at_fault = row["in_enrichment"] + row["in_generation"] - row["in_both"]
    return {
        "rows": rows,
        "scored": scored,
        "unscored": rows - scored,
        "coverage": scored / rows if rows else None,
        "mean": sums.mean,
        "interval": mean_interval(sums),
        "p_right": row["p_right"] / row["p_right_rows"] if row["p_right_rows"] else None,
        "bands": bands,
        "reformulated": row["reformulated"],
        "in_enrichment": row["in_enrichment"],
        "in_generation": row["in_generation"],
        "in_both": row["in_both"],
        "faultless": scored - at_fault,
    }


def _for_script(frame: pl.DataFrame, columns: Iterable[str], grain: str, buckets: Sequence[dt.date]) -> dict[str, Any]:
    lists = {name: frame[name].to_list() for name in columns}
    whole = {name: [int(v) if isinstance(v, float) and v.is_integer() else v for v in values] for name, values in lists.items()}
    ends = [end_of(bucket, grain).isoformat() for bucket in buckets]
    return whole | {"grain": grain, "from": [bucket.isoformat() for bucket in buckets], "to": ends}
