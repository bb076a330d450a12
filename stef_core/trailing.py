"""A day against the days before it: how many rows, how late the last, who is silent, how inputs and bands are spread.

Nothing here says that a day is wrong; it says that a day is unlike the days before it, which a person should know when reading
its scores. Each bound is the usual value with room on either side: a stated least room, more where the days before differ more,
and never less than few rows explain.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stef_core.drift import QUIET_DAYS
from stef_core.frames import frame_of
from stef_core.records import Band

DAYS = 3  # published days that "usual" needs
DAILY = 7  # an agent that answered on each of the last days with rows, up to so many, is missed when it is silent
ROWS = 20  # answers that either side of a comparison of shares needs
SPREADS = 5.0  # standard deviations of room, by the median absolute deviation
MAD_TO_DEVIATION = 1.4826  # of normal values
QUIET_HOURS = 12.0  # that a day may end with, where nothing is known of the days before
QUIET_ROOM = 3.0  # hours of room beyond the usual
COVERAGE_ROOM = 0.05  # share of rows that coverage may lose
DEVIATIONS = 4.0  # standard errors of a share, or of a count, that chance may explain
CHANCE = 0.001  # how often an index may exceed its bound by chance alone
RARE = 0.01  # values of a smaller share count as one
OTHER = "\0other"
LENGTHS = (20, 40, 80, 160, 320)  # characters of a question: upper bounds of the classes of its length
FEATURES = ("application", "dialect", "sql", "reformulation", "question length")

# rows of a day by the value of one feature; grain: dt, feature, value
INPUT_COUNTS = pl.Schema({"dt": pl.Date(), "feature": pl.String(), "value": pl.String(), "rows": pl.Int64()})
# grain: dt
LATEST = pl.Schema({"dt": pl.Date(), "rows": pl.Int64(), "latest": pl.Datetime("us", "UTC")})

VOLUME = pl.Schema(
    {
        "subject": pl.String(),
        "rows": pl.Int64(),
        "rows_least": pl.Float64(),
        "rows_most": pl.Float64(),
        "quiet_hours": pl.Float64(),  # from the last row to the end of the day
        "quiet_hours_most": pl.Float64(),
    }
)
INPUTS = pl.Schema({"subject": pl.String(), "psi": pl.Float64(), "psi_most": pl.Float64()})
# bounds are null where too little is known
AGENTS = pl.Schema(
    {
        "subject": pl.String(),
        "agent_id": pl.String(),
        "rows": pl.Int64(),
        "rows_least": pl.Float64(),
        "coverage": pl.Float64(),  # 0-1
        "coverage_least": pl.Float64(),
        "band_psi": pl.Float64(),
        "band_psi_most": pl.Float64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How far a day may be from the usual. `volume`: share of the usual rows; `psi`: population stability index."""

    volume: float = 0.5
    psi: float = 0.25


def input_counts(scores: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """How the inputs of each day are spread, as a frame of `INPUT_COUNTS`.

    Args:
        scores: ``dt app_id dialect generated_sql enriched_question user_question`` of ``query_scores``.
    """
    length = pl.col("user_question").fill_null("").str.len_chars()
    classes = pl.lit("more")
    for bound in reversed((0, *LENGTHS)):
        classes = pl.when(length <= bound).then(pl.lit(str(bound))).otherwise(classes)
    values = {
        "application": pl.col("app_id").fill_null("default"),
        "dialect": pl.col("dialect").fill_null(""),
        "sql": _presence("generated_sql"),
        "reformulation": _presence("enriched_question"),
        "question length": classes,
    }
    parts = [
        scores.lazy().select("dt", feature=pl.lit(feature), value=value).group_by("dt", "feature", "value").len("rows")
        for feature, value in values.items()
    ]
    return pl.concat(parts).collect(engine="streaming").cast(INPUT_COUNTS).sort("dt", "feature", "value")


def volume(day: dt.date, rows: int, latest: dt.datetime | None, before: pl.DataFrame, room: Room) -> pl.DataFrame:
    """The day's number of rows and the time of its last, with their bounds, as a frame of `VOLUME`.

    Args:
        day: The partition.
        rows: Its rows.
        latest: When its last row was asked, in UTC.
        before: `LATEST` of the days before.
        room: How far a day may be from the usual.
    """
    least, most = _range_of_rows(day, before, room)
    quiet = [_quiet_hours(date, asked) for date, asked in before.select("dt", "latest").iter_rows() if asked is not None]
    usual = QUIET_HOURS
    if len(quiet) >= DAYS:
        usual = float(np.median(quiet)) + max(QUIET_ROOM, SPREADS * _deviation(quiet))
    row = {
        "subject": "the log",
        "rows": rows,
        "rows_least": least,
        "rows_most": most,
        "quiet_hours": None if latest is None else _quiet_hours(day, latest),
        "quiet_hours_most": usual,
    }
    return frame_of([row], VOLUME)


def input_drift(today: pl.DataFrame, before: pl.DataFrame, room: Room) -> pl.DataFrame:
    """How far the inputs of a day are spread otherwise than before, as a frame of `INPUTS`; empty where little is known.

    Args:
        today: `INPUT_COUNTS` of the day.
        before: Those of the days before.
        room: How far a day may be from the usual.
    """
    rows = []
    for feature in FEATURES:
        now = dict(today.filter(pl.col("feature") == feature).select("value", "rows").iter_rows())
        days = [
            dict(part.select("value", "rows").iter_rows())
            for part in before.filter(pl.col("feature") == feature).partition_by("dt", maintain_order=True)
        ]
        index, most = _drift(now, days, room)
        if index is not None:
            rows.append({"subject": f"input {feature}", "psi": index, "psi_most": most})
    return frame_of(rows, INPUTS)


def agent_drift(
    agent_daily: pl.DataFrame, before: pl.DataFrame, alerts: Iterable[pl.DataFrame], day: dt.date, room: Room
) -> pl.DataFrame:
    """Each agent's day against its days before, as a frame of `AGENTS`; an agent without rows today has 0.

    Args:
        agent_daily: ``dt agent_id app_id rows scored shares`` of the day.
        before: Those of the days before.
        alerts: ``dt agent_id kind`` of alerts; what one has told in the last days has no bound here, so that it is told once.
        day: The partition.
        room: How far a day may be from the usual.
    """
    known = _told(alerts, day)
    now, then = _agent_days(agent_daily), _agent_days(before)
    days = sorted({date for _, date in then})[-DAILY:]
    rows = []
    for agent in sorted({agent for agent, _ in (*now, *then)}):
        mine = next((day for (name, _), day in now.items() if name == agent), _AgentDay(rows=0, scored=0, bands={}))
        earlier = {date: day for (name, date), day in then.items() if name == agent}
        daily = len(days) >= DAYS and all(date in earlier for date in days)
        index, most = _drift(mine.bands, [day.bands for day in earlier.values()], room)
        rows.append(
            {
                "subject": f"agent {agent}",
                "agent_id": agent,
                "rows": mine.rows,
                "rows_least": 1.0 if daily else None,
                "coverage": mine.scored / mine.rows if mine.rows else None,
                "coverage_least": None if (agent, "coverage") in known else _least_coverage(mine, list(earlier.values())),
                "band_psi": index,
                "band_psi_most": None if (agent, "bands") in known else most,
            }
        )
    return frame_of(rows, AGENTS)


def stability_index(now: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Population stability index of two counts by value: Σ (p - q) ln(p / q); 0 when they are spread alike.

    Half a row is added to each value, so that one that is absent on a side is no infinite change.
    """
    p, q = _spread(now, before)
    return float(((p - q) * np.log(p / q)).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgentDay:
    rows: int
    scored: int
    bands: dict[str, float]


def _presence(column: str) -> pl.Expr:
    absent = pl.col(column).fill_null("") == ""
    return pl.when(absent).then(pl.lit("absent")).otherwise(pl.lit("present"))


def _range_of_rows(day: dt.date, before: pl.DataFrame, room: Room) -> tuple[float | None, float | None]:
    weekday = [rows for date, rows in before.select("dt", "rows").iter_rows() if date.weekday() == day.weekday()]
    # a Sunday is like other Sundays, where there are some
    usual = weekday if len(weekday) >= DAYS else before["rows"].to_list()
    if len(usual) < DAYS:
        return None, None
    centre = float(np.median(usual))
    margin = max(SPREADS * _deviation(usual), room.volume * centre, DEVIATIONS * math.sqrt(centre))
    return round(max(0.0, centre - margin), 1), round(centre + margin, 1)


def _quiet_hours(day: dt.date, latest: dt.datetime) -> float:
    end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), dt.UTC)
    return round(max(0.0, (end - latest).total_seconds() / 3600), 2)  # a row of another day is reported elsewhere


def _deviation(values: Sequence[float]) -> float:
    return MAD_TO_DEVIATION * float(np.median(np.abs(np.array(values) - np.median(values))))


def _drift(now: Mapping[str, float], days: Sequence[Mapping[str, float]], room: Room) -> tuple[float | None, float | None]:
    """Index of a day against all days before, and its bound: no further than any of them, than chance, or than the room."""
    whole = _sum(days)
    if len(days) < DAYS or min(sum(now.values()), sum(whole.values())) < ROWS:
        return None, None
    common = _common(whole)
    earlier = [_merged(day, common) for day in days]
    total = _sum(earlier)
    bounds = [room.psi, _by_chance(len(total), sum(now.values()), sum(total.values()))]
    for day in earlier:
        rest = {value: rows - day.get(value, 0.0) for value, rows in total.items()}
        if min(sum(day.values()), sum(rest.values())) >= ROWS:
            bounds.append(stability_index(day, rest))
    return round(stability_index(_merged(now, common), total), 4), round(max(bounds), 4)


def _common(whole: Mapping[str, float]) -> frozenset[str]:
    rows = sum(whole.values())
    return frozenset(value for value, count in whole.items() if count >= RARE * rows)


def _merged(counts: Mapping[str, float], common: frozenset[str]) -> dict[str, float]:
    """Counts with everything that is not common as one value."""
    return _sum({value if value in common else OTHER: rows} for value, rows in counts.items())


def _sum(days: Iterable[Mapping[str, float]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for day in days:
        for value, rows in day.items():
            out[value] = out.get(value, 0.0) + rows
    return out


def _spread(now: Mapping[str, float], before: Mapping[str, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = sorted({*now, *before})
    p, q = (np.array([counts.get(value, 0.0) + 0.5 for value in values]) for counts in (now, before))
    return p / p.sum(), q / q.sum()


def _by_chance(values: int, now: float, before: float) -> float:
    """What rows alone exceed with a chance of `CHANCE`: the index is χ², a degree less than values (Yurdakul 2018)."""
    if values < 2:
        return 0.0
    from scipy.special import chdtri  # slow import: pay when a day is gated

    return float(chdtri(values - 1, CHANCE)) * (1 / now + 1 / before)


def _least_coverage(now: _AgentDay, before: Sequence[_AgentDay]) -> float | None:
    rows, scored = sum(day.rows for day in before), sum(day.scored for day in before)
    if len(before) < DAYS or min(now.rows, rows) < ROWS:
        return None
    likely = (scored + 1) / (rows + 2)
    error = math.sqrt(likely * (1 - likely) * (1 / now.rows + 1 / rows))
    return round(scored / rows - max(COVERAGE_ROOM, DEVIATIONS * error), 4)


def _told(alerts: Iterable[pl.DataFrame], day: dt.date) -> set[tuple[str, str]]:
    since = day - dt.timedelta(days=QUIET_DAYS)
    return {
        (agent, "coverage" if kind == "coverage_fall" else "bands")
        for frame in alerts
        for agent, kind in frame.filter((pl.col("dt") >= since) & (pl.col("dt") <= day)).select("agent_id", "kind").iter_rows()
    }


def _agent_days(agent_daily: pl.DataFrame) -> dict[tuple[str, dt.date], _AgentDay]:
    """Each agent's days over all its versions and applications."""
    out: dict[tuple[str, dt.date], _AgentDay] = {}
    whole = agent_daily.filter(pl.col("app_id") == "*").select("agent_id", "dt", "rows", "scored", "shares")
    for agent, date, rows, scored, shares in whole.iter_rows():
        bands = json.loads(shares or "{}").get("band", {})
        mine = {band: round(bands.get(band, 0.0) * scored) for band in get_args(Band)}
        old = out.get((agent, date), _AgentDay(rows=0, scored=0, bands={}))
        out[agent, date] = _AgentDay(rows=old.rows + rows, scored=old.scored + scored, bands=_sum([old.bands, mine]))
    return out
