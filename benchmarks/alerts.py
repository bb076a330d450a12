"""How often alerts are false, and how soon they come: simulated logs without and with something planted.

    python -m benchmarks.alerts [--logs 400] [--stable-logs 50] [--processes 2] [--json FILE]

A log has 20 agents of 10 to 200 answers a day, numbers that vary by more than chance. Scores take the values and shares that a
judge gives: `symbolic` as the symbolic judge spreads them (standard deviation of a row about 18), `graded` as a model does that
often says "correct" (about 23). Days differ (standard deviation in points of Φ, correlated from day to day), weekends are lower
and thinner, and 1.5 % of rows are unscored. Every alert of whatever kind on a stable log is false. In a log with something
planted up to three of the 20 agents are struck, each by another change, and stay so; a change is found when an alert names its
agent.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.results import keep
from stef_core.drift import find_alerts

Floats = NDArray[np.float64]

FIRST = dt.date(2026, 6, 1)  # a Monday
AGENTS = 20
VOLUMES = (10, 20, 40, 80, 200)
WARM_UP = 28
WATCHED = 28  # days of a stable log that are tested
MONTH = 30
# values of Φ and how often, of answers that are right and that are not
SCORES = {
    "symbolic": (
        ((80.0, 0.98), (100.0, 0.02)),
        ((50.0, 0.48), (35.0, 0.22), (40.0, 0.16), (30.0, 0.06), (24.0, 0.05), (0.0, 0.03)),
    ),
    "graded": (
        ((100.0, 0.45), (90.0, 0.15), (80.0, 0.40)),
        ((50.0, 0.30), (40.0, 0.35), (24.0, 0.15), (35.0, 0.12), (0.0, 0.08)),
    ),
}
CODES = (
    "missing_filter", "wrong_join", "wrong_output", "extra_filter", "wrong_filter_value", "missing_aggregation",
    "wrong_filter_operator", "missing_group_by", "wrong_limit", "extra_distinct", "wrong_aggregation", "missing_output",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """How a log behaves. `day_noise`: standard deviation of ordinary days, in points of Φ."""

    name: str
    scores: str = "symbolic"
    day_noise: float = 1.0
    memory: float = 0.5  # correlation from day to day
    tails: float | None = None  # degrees of freedom of Student's t; None: normal
    weekend: float = 1.0  # points of Φ by which weekends are lower
    applications: int = 1
    warm_up: int = WARM_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What strikes one agent on the first day after the warm-up."""

    name: str
    rows: int  # answers a day
    points: float = 0.0  # of Φ that it loses
    finding: float = 0.0  # by how much the share of one finding rises, 0-1
    new_version: float = 0.0  # share of answers that a new version gives, 0-1; the loss is of that version alone


STABLE = (
    Log(name="ordinary days"),
    Log(name="model as judge", scores="graded"),
    Log(name="equal days", day_noise=0.0, weekend=0.0),
    Log(name="restless days", day_noise=3.0),
    Log(name="long memory", day_noise=2.0, memory=0.8),
    Log(name="odd days", day_noise=2.0, tails=3.0),
    Log(name="five applications", applications=5),
    Log(name="first weeks", warm_up=3),
)
PLANTED = {
    "symbolic": (
        *(Plant(name=f"{points:g} points", rows=rows, points=points) for points in (5, 10, 15) for rows in (20, 40, 100)),
        Plant(name="10 points", rows=10, points=10),
        Plant(name="10 points", rows=200, points=10),
        *(Plant(name=f"finding +{rise:.0%}", rows=40, finding=rise) for rise in (0.1, 0.2)),
        Plant(name="new version, -10 points", rows=40, points=10, new_version=1.0),
        Plant(name="half of it a version of -10", rows=80, points=10, new_version=0.5),
        Plant(name="a fifth of it a version of -15", rows=200, points=15, new_version=0.2),
    ),
    "graded": tuple(Plant(name=f"{points:g} points", rows=rows, points=points) for points in (10, 15) for rows in (40, 100)),
}
STRUCK = 3  # agents of a log that something is planted in


def simulate(log: Log, days: int, rng: np.random.Generator, plants: Sequence[Plant] = ()) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of ``query_scores`` and ``query_findings`` of a log, as `find_alerts` reads them."""
    right, wrong = (np.array(values) for values in SCORES[log.scores])
    gap = float(right[:, 0] @ right[:, 1] - wrong[:, 0] @ wrong[:, 1])
    weekend = np.arange(days) % 7 >= 5
    scores, carriers = [], []
    rows = 0
    for number in range(AGENTS):
        planted = plants[number] if number < len(plants) else None
        volume = planted.rows if planted else VOLUMES[number % len(VOLUMES)]
        sizes = rng.negative_binomial(20, 20 / (20 + volume * np.where(weekend, 0.6, 1.0)))
        day = np.repeat(np.arange(days), sizes)
        size = len(day)
        share = (rng.uniform(0.7, 0.88) + (day_effects(log, days, rng) - log.weekend * weekend) / gap)[day]
        new, hit = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        if planted:
            struck = day >= log.warm_up
            new = struck & (rng.random(size) < planted.new_version)
            hit = struck & (rng.random(size) < planted.finding)
            share = share - planted.points / gap * (new if planted.new_version else struck)
        good = rng.random(size) < np.clip(share, 0.02, 0.995)
        phi = np.where(good, rng.choice(right[:, 0], size, p=right[:, 1]), rng.choice(wrong[:, 0], size, p=wrong[:, 1]))
        carried = rng.random((size, 2)) < np.where(good[:, None], (0.12, 0.0), (1.0, 0.35))
        code = rng.choice(len(CODES), (size, 2), p=rng.dirichlet(np.full(len(CODES), 0.7)))
        carriers += [
            (rows + np.nonzero(carried)[0], code[carried]),
            (rows + np.nonzero(hit)[0], np.zeros(hit.sum(), dtype=int)),
        ]
        app = rng.integers(0, log.applications, size)
        scores.append((np.full(size, number), day, new, app, phi, rng.random(size) > 0.015))
        rows += size
    agent, day, new, app, phi, scored = (np.concatenate(column) for column in zip(*scores, strict=True))
    row, code = (np.concatenate(column) for column in zip(*carriers, strict=True))
    whole = pl.DataFrame({"agent": agent, "day": day, "new": new, "app": app, "phi": phi, "scored": scored}).select(
        pl.int_range(pl.len()).cast(pl.String).alias("query_id"),
        (pl.lit(FIRST) + pl.duration(days="day")).alias("dt"),
        pl.format("agent-{}", pl.col("agent").cast(pl.String).str.zfill(2)).alias("agent_id"),
        pl.format("app-{}", "app").alias("app_id"),
        pl.when("new").then(pl.lit("v2")).otherwise(pl.lit("v1")).alias("agent_version"),
        pl.when("scored").then(pl.lit("scored")).otherwise(pl.lit("unscored")).alias("status"),
        pl.when("scored").then("phi").alias("phi"),
    )
    findings = whole.select("dt", "query_id")[row].with_columns(pl.Series("code", CODES)[code])
    return whole, findings


def day_effects(log: Log, days: int, rng: np.random.Generator) -> Floats:
    """Effects of days in points of Φ, each with the correlation of the log to the one before."""
    shocks = rng.standard_normal(days)
    if log.tails is not None:
        shocks = rng.standard_t(log.tails, days) / np.sqrt(log.tails / (log.tails - 2))
    effects = np.zeros(days)
    effects[0] = shocks[0]
    for day in range(1, days):
        effects[day] = log.memory * effects[day - 1] + np.sqrt(1 - log.memory**2) * shocks[day]
    return log.day_noise * effects


def watch(log: Log, seed: Sequence[int], plants: Sequence[Plant] = ()) -> list[dict[str, Any]]:
    """Alerts of a log, each with how many days after the warm-up it came: 0 is the first day."""
    watched = 3 if plants else WATCHED
    scores, findings = simulate(log, log.warm_up + watched, np.random.default_rng(list(seed)), plants)
    raised: pl.DataFrame | None = None
    for after in range(watched):
        day = FIRST + dt.timedelta(days=log.warm_up + after)
        alerts = find_alerts(scores, day, findings=findings, recent_alerts=raised)
        raised = alerts if raised is None else pl.concat([raised, alerts])
    assert raised is not None
    return [
        {"agent": a["agent_id"], "kind": a["kind"], "after": (a["dt"] - FIRST).days - log.warm_up, "p": a["p_value"]}
        for a in raised.iter_rows(named=True)
    ]


def false_alarms(log: Log, logs: int, number: int, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """False alarms of all kinds together, per 20 agent-months, with the exact 95 % interval of a Poisson count."""
    from scipy.stats import chi2

    alerts = [a for found in pool.map(partial(watch, log), [(1, number, n) for n in range(logs)], chunksize=1) for a in found]
    months = logs * AGENTS * WATCHED / MONTH
    count = len(alerts)
    low, high = (chi2.ppf(0.025, 2 * count) / 2 if count else 0.0), chi2.ppf(0.975, 2 * count + 2) / 2
    return {
        "log": asdict(log),
        "agent_months": months,
        "false_alarms": count,
        "kinds": dict(Counter(a["kind"] for a in alerts).most_common()),
        "per_20_agent_months": [round(20 * x / months, 2) for x in (count, low, high)],
    }


def detection(log: Log, plants: Sequence[Plant], logs: int, number: int, pool: ProcessPoolExecutor) -> list[dict[str, Any]]:
    """How often each planted change is found within 1, 2 and 3 days; of the last with the 95 % Wilson interval."""
    seeds = [(2, number, n) for n in range(logs)]
    found = list(pool.map(partial(watch, log, plants=plants), seeds, chunksize=4))
    rows = []
    for place, plant in enumerate(plants):
        ours = [[a for a in alerts if a["agent"] == f"agent-{place:02d}"] for alerts in found]
        soonest = [min((a["after"] for a in alerts), default=99) for alerts in ours]
        rows.append(
            {
                "scores": log.scores,
                "plant": asdict(plant),
                "logs": logs,
                "within": [round(sum(s < days for s in soonest) / logs, 3) for days in (1, 2, 3)],
                "within_3_interval": wilson(sum(s < 3 for s in soonest), logs),
                "kinds": dict(Counter(alerts[0]["kind"] for alerts in ours if alerts).most_common()),
            }
        )
    return rows


def wilson(hits: int, trials: int, z: float = 1.96) -> list[float]:
    """95 % interval of a share (Wilson 1927)."""
    share = hits / trials
    centre = share + z * z / (2 * trials)
    margin = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    return [round((centre + sign * margin) / (1 + z * z / trials), 3) for sign in (-1, 1)]


def main() -> None:
    """Run all scenarios and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=400, help="logs for each planted change")
    parser.add_argument("--stable-logs", type=int, default=50, help="logs of 4 weeks for each stable scenario")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # a process a core; read by polars as it starts in each
    told: dict[str, Any] = {"stable": [], "planted": []}
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        print(f"{'stable log':<20}{'agent-months':>13}{'false':>7}{'per 20 agent-months (95 %)':>29}  kinds")
        for number, log in enumerate(STABLE):
            row = false_alarms(log, options.stable_logs, number, pool)
            told["stable"].append(row)
            rate, low, high = row["per_20_agent_months"]
            shown = f"{rate:.2f} ({low:.2f}-{high:.2f})"
            print(f"{log.name:<20}{row['agent_months']:>13.0f}{row['false_alarms']:>7}{shown:>29}  {row['kinds']}", flush=True)
        print(f"\n{'scores':<10}{'planted':<31}{'rows':>5}{'1 day':>7}{'2 days':>8}{'3 days (95 %)':>22}  told by")
        for judge, plants in PLANTED.items():
            log = replace(STABLE[0], scores=judge)
            for start in range(0, len(plants), STRUCK):
                for row in detection(log, plants[start : start + STRUCK], options.logs, start, pool):
                    told["planted"].append(row)
                    (one, two, three), (low, high) = row["within"], row["within_3_interval"]
                    shown, plant = f"{three:.1%} ({low:.1%}-{high:.1%})", row["plant"]
                    print(
                        f"{judge:<10}{plant['name']:<31}{plant['rows']:>5}{one:>7.0%}{two:>8.0%}{shown:>22}  {row['kinds']}",
                        flush=True,
                    )
    told["seconds"] = round(time.monotonic() - started)
    print(f"\n{told['seconds']} s")
    keep(options.json, told)


if __name__ == "__main__":
    main()
