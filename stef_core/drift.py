"""What got worse on a day beyond what chance explains: falls of Φ and of coverage, findings that rose, versions that are worse.

Each is one question to `stef_core.noise`: is the mean of some rows further below that of others than rows and days explain? A
fall asks it of Φ, or of the share of rows that were scored, for the day alone and for three days together, since a fall too
small to show in one day may show in three; a rise asks it of the share of answers without the finding; a change of version of
all answers of the new version against those of the old one. All questions of a day are corrected together, and an event is told
once, under the name that says most (docs/alerts.md).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stef_core.alert_text import Told, detail_of, message_of
from stef_core.frames import AGENT_ALERTS, compact_json, frame_of
from stef_core.noise import DAY_SHARE, Days, Fall, Floats, holm, learn_day_share, measure_fall, measure_paired_fall, screen

ALERTS = pl.Schema({name: kind for name, kind in AGENT_ALERTS.items() if name != "run_id"})
ALL = "*"  # app_id of an agent as a whole
BASELINE_DAYS = 3  # with fewer, the scatter between days is unknown
RESTART_DAYS = 7  # a version that has been there this long is what its agent is compared with, whatever came before it
QUIET_DAYS = 7  # what was told is news again after this time
SPANS = {1: 0.25, 3: 0.75}  # days up to and with the day that are tested together, and their share of the error
EVENTS = (("version_worse", "phi_fall", "finding_rise"), ("coverage_fall",))  # what is one event, the name that says most first
WEIGHTS = {"phi_fall": 1.0, "version_worse": 1.0, "coverage_fall": 0.15, "finding_rise": 0.3}  # shares of an agent's error
APPLICATIONS = 0.5  # what all applications of an agent together may spend, beside the agent's own 1.0
TOLD_RISE = 0.02  # share of answers by which a finding rose from which on the alert that names it has told of it
CARRIERS = 5  # answers with a finding, in day and window, below which a rise cannot be told from chance
SCREEN = 0.03  # a chance above it is not looked at closer: it alerts in no family
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """An agent, or one application of it: rows `start` to before `stop` of the window."""

    agent_id: str
    app_id: str
    start: int
    stop: int
    weight: float
    appeared: tuple[int, ...]  # the first day of each version in the window


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The rows of the window, sorted by agent, application, day and query, and what is asked of them."""

    frame: pl.DataFrame
    day: Indices  # 0 is the first day of the window
    last: int  # the day that is tested
    phi: Floats
    scored: NDArray[np.bool_]
    version: Indices  # into `versions`; -1 is null
    versions: list[str]
    codes: list[str]
    carrier: Indices  # rows with a finding, one a row and code, in order
    code: Indices  # into `codes`, of each carrier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Some rows against others. Means are in 0-100 and lower is worse."""

    unit: _Unit
    kind: str
    weight: float
    days: Days
    baseline: Days
    since: int  # the first day that is compared with
    first: int  # the first day that is tested
    code: int = -1
    versions: tuple[int, int] = (-1, -1)  # new and old
    side_by_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    question: _Question
    fall: Fall
    p_value: float  # corrected


def find_alerts(
    scores: pl.DataFrame,
    day: dt.date,
    *,
    findings: pl.DataFrame | None = None,
    recent_alerts: pl.DataFrame | None = None,
    window_days: int = 28,
    min_rows: int = 20,
    alpha: float = 0.03,
    agent_alpha: float = 0.0015,
    min_fall: float = 5.0,
) -> pl.DataFrame:
    """The agents, and single applications of them, that got worse on a day.

    Args:
        scores: Rows of ``query_scores`` of the day and of the days before it: ``dt agent_id agent_version app_id query_id
            status phi``, and ``p_right`` and ``reason`` where known. Rows outside the window are ignored.
        day: The day that is tested.
        findings: Rows of ``query_findings`` (``dt query_id code``); None asks for no rise of a finding and names none.
        recent_alerts: Rows of ``agent_alerts`` of the window; what they told is not told again (see `QUIET_DAYS`).
        window_days: Length of the window before the day, in days; it must hold 3 days with rows.
        min_rows: Rows that either side of a comparison needs.
        alpha: Chance of any false alert on a day, 0-1; divided over all questions of the day by Holm's method, weighted.
        agent_alpha: Chance of a false alert for one agent on a day: where agents are few, `alpha` is this times their number.
        min_fall: Smallest change that counts, in points of Φ, or in percentage points of coverage or of a finding's share.

    Returns:
        Rows of ``agent_alerts`` without ``run_id``. ``phi_fall`` and ``version_worse`` are in points of Φ (0-100),
        ``coverage_fall`` and ``finding_rise`` in shares (0-1); ``p_value`` is the corrected one.
    """
    window = _window(scores, day, findings, window_days)
    questions = list(_questions(window, min_rows))
    falls = _answers(window, questions)
    agents = len({question.unit.agent_id for question in questions})
    level = min(alpha, agent_alpha * agents)
    adjusted = holm([fall.p_value for fall in falls], [question.weight for question in questions])
    found = [
        _Candidate(question=question, fall=fall, p_value=p_value)
        for question, fall, p_value in zip(questions, falls, adjusted, strict=True)
        # three days below are no news on a day that has recovered
        if p_value <= level and fall.expected - fall.observed >= min_fall and _last_fall(question, fall) >= min_fall / 2
    ]
    found.sort(key=lambda c: (c.p_value, c.fall.p_value, c.question.code))
    earlier = _earlier(recent_alerts, day, max(window_days, QUIET_DAYS))
    alerts = [_alert(window, candidate, found, day) for candidate in _news(window, found, earlier, day)]
    kinds = [kind for event in EVENTS for kind in event]
    order = sorted(alerts, key=lambda a: (kinds.index(a["kind"]), -abs(a["change"]), a["agent_id"], a["app_id"]))
    return frame_of(order, ALERTS)


# --- the rows -------------------------------------------------------------------------------------------------------


def _window(scores: pl.DataFrame, day: dt.date, findings: pl.DataFrame | None, window_days: int) -> _Window:
    first = day - dt.timedelta(days=window_days)
    # sorted, since a sum in another order differs in its last digit
    frame = (
        scores.filter((pl.col("dt") >= first) & (pl.col("dt") <= day))
        .with_columns(pl.col("app_id").fill_null("default"))
        .sort("agent_id", "app_id", "dt", "query_id")
    )
    carriers = pl.DataFrame(schema={"row": pl.Int64, "code": pl.String})
    if findings is not None:
        rows = frame.select("dt", "query_id", pl.int_range(pl.len()).alias("row")).filter(frame["status"] == "scored")
        found = findings.select("dt", "query_id", "code").unique()
        carriers = (
            found.join(rows, on=["dt", "query_id"], how="inner", validate="m:1").sort("row", "code").select("row", "code")
        )
    codes = carriers["code"].unique().sort().to_list()
    versions = frame["agent_version"].drop_nulls().unique().sort().to_list()
    return _Window(
        frame=frame,
        day=(frame["dt"] - first).dt.total_days().to_numpy().astype(np.intp),
        last=window_days,
        phi=frame["phi"].fill_null(0.0).to_numpy(),
        scored=(frame["status"] == "scored").to_numpy(),
        version=_numbers(frame["agent_version"], versions),
        versions=versions,
        codes=codes,
        carrier=carriers["row"].to_numpy().astype(np.intp),
        code=_numbers(carriers["code"], codes),
    )


def _numbers(values: pl.Series, names: Sequence[str]) -> Indices:
    places = pl.DataFrame({"name": pl.Series(names, dtype=pl.String), "place": range(len(names))})
    placed = pl.DataFrame({"name": values}).join(places, on="name", how="left", validate="m:1", maintain_order="left")
    return placed["place"].fill_null(-1).to_numpy().astype(np.intp)


def _units(window: _Window) -> Iterator[_Unit]:
    """Each agent, and its applications where it has several: an agent with one application is that application."""
    agents, apps = window.frame["agent_id"], window.frame["app_id"]
    changes = ((agents != agents.shift(1)) | (apps != apps.shift(1))).fill_null(True).arg_true().to_list()
    spans = list(pairwise([*changes, window.frame.height]))
    by_agent: dict[str, list[tuple[int, int]]] = {}
    for span in spans:
        by_agent.setdefault(agents[span[0]], []).append(span)
    for agent_id, parts in by_agent.items():
        yield _unit(window, agent_id, ALL, parts[0][0], parts[-1][1], 1.0)
        for start, stop in parts if len(parts) > 1 else ():
            yield _unit(window, agent_id, apps[start], start, stop, APPLICATIONS / len(parts))


def _unit(window: _Window, agent_id: str, app_id: str, start: int, stop: int, weight: float) -> _Unit:
    day, version = window.day[start:stop], window.version[start:stop]
    appeared = tuple(sorted(int(day[version == each].min()) for each in np.unique(version)))
    return _Unit(agent_id=agent_id, app_id=app_id, start=start, stop=stop, weight=weight, appeared=appeared)


# --- the questions --------------------------------------------------------------------------------------------------


def _questions(window: _Window, min_rows: int) -> Iterator[_Question]:
    for unit in _units(window):
        rows = slice(unit.start, unit.stop)
        day, scored = window.day[rows], window.scored[rows]
        if not (day == window.last).any():
            continue
        answers, size = _counts(day[scored], window), _counts(day, window)
        phi = window.phi[rows][scored]
        values = Days(rows=answers, total=_counts(day[scored], window, phi), squares=_counts(day[scored], window, phi**2))
        yield from _spans(window, unit, "phi_fall", values, min_rows)
        yield from _spans(window, unit, "coverage_fall", _shares(answers, size), min_rows)
        yield from _rises(window, unit, answers, min_rows)
        yield from _changes(window, unit, min_rows)


def _spans(
    window: _Window, unit: _Unit, kind: str, values: Days, min_rows: int, *, weight: float = 1.0, code: int = -1
) -> Iterator[_Question]:
    total = values.total.sum()
    if values.squares.sum() * values.rows.sum() <= total**2 * (1 + 1e-12):
        return  # rows that are all alike: a test that cannot fail is none, and costs the others nothing (Tarone 1990)
    for span, share in SPANS.items():
        first = window.last - span + 1
        since = _restart(window, unit, first)
        days, baseline = values.only(slice(first, None)), values.only(slice(since, first))
        if days.rows[-1] == 0 or days.rows.sum() < min_rows or (span > 1 and days.count == 1):
            continue
        if baseline.count < BASELINE_DAYS or baseline.rows.sum() < min_rows:
            continue
        yield _Question(
            unit=unit,
            kind=kind,
            weight=unit.weight * WEIGHTS[kind] * weight * share,
            days=days,
            baseline=baseline,
            since=since,
            first=first,
            code=code,
        )


def _restart(window: _Window, unit: _Unit, first: int) -> int:
    """The day from which rows are compared with: a change of version does not weigh on the comparisons of weeks."""
    return max((day for day in unit.appeared if unit.appeared[0] < day <= first - RESTART_DAYS), default=0)


def _rises(window: _Window, unit: _Unit, answers: Floats, min_rows: int) -> Iterator[_Question]:
    """A finding rises when the answers without it fall."""
    start, stop = np.searchsorted(window.carrier, (unit.start, unit.stop))
    carrier, code = window.carrier[start:stop], window.code[start:stop]
    days = window.last + 1
    carried = np.bincount(code * days + window.day[carrier], minlength=len(window.codes) * days).reshape(-1, days)
    (testable,) = np.nonzero(carried.sum(axis=1) >= CARRIERS)
    for number in testable:
        values = _shares(answers - carried[number], answers)
        yield from _spans(window, unit, "finding_rise", values, min_rows, weight=1 / len(testable), code=int(number))


def _changes(window: _Window, unit: _Unit, min_rows: int) -> Iterator[_Question]:
    """Each version that appeared within the window and still answers, against the one that it follows."""
    rows = slice(unit.start, unit.stop)
    day, version, scored = window.day[rows], window.version[rows], window.scored[rows]
    there = np.unique(version[(day == window.last) & scored])
    appeared = {int(new): int(day[version == new].min()) for new in there if new >= 0}
    changes = [(new, first) for new, first in appeared.items() if first > day.min()]
    for new, first in changes:
        before = np.unique(day[day < first])[-BASELINE_DAYS:]
        usual = np.bincount(version[np.isin(day, before)] + 1)
        old = int(usual.argmax()) - 1
        if old in (new, -1):
            continue
        ours, theirs = (_phis(window, unit, which) for which in (new, old))
        shared = (ours.rows > 0) & (theirs.rows > 0) & (np.arange(window.last + 1) >= first)
        both = [values.only(shared).rows.sum() for values in (ours, theirs)]
        side_by_side = bool(min(both) >= min_rows and both[0] >= ours.rows.sum() / 2)
        days = ours.only(shared) if side_by_side else ours.only(slice(first, None))
        baseline = theirs.only(shared) if side_by_side else theirs.only(slice(first))
        if min(days.rows.sum(), baseline.rows.sum()) < min_rows or (not side_by_side and baseline.count < BASELINE_DAYS):
            continue
        yield _Question(
            unit=unit,
            kind="version_worse",
            weight=unit.weight * WEIGHTS["version_worse"] / len(changes),
            days=days,
            baseline=baseline,
            since=0,
            first=first,
            versions=(new, old),
            side_by_side=side_by_side,
        )


def _counts(day: Indices, window: _Window, weights: Floats | None = None) -> Floats:
    return np.bincount(day, weights, window.last + 1).astype(float)


def _shares(with_it: Floats, size: Floats) -> Days:
    """Rows that count 100 or 0."""
    return Days(rows=size, total=100 * with_it, squares=10_000 * with_it)


def _phis(window: _Window, unit: _Unit, version: int) -> Days:
    rows = slice(unit.start, unit.stop)
    mine = window.scored[rows] & (window.version[rows] == version)
    day, phi = window.day[rows][mine], window.phi[rows][mine]
    return Days(rows=_counts(day, window), total=_counts(day, window, phi), squares=_counts(day, window, phi**2))


# --- the answers ----------------------------------------------------------------------------------------------------


def _answers(window: _Window, questions: Sequence[_Question]) -> list[Fall]:
    """The fall of each question: measured closely where a first look does not explain it."""
    shares = {kind: _day_share(questions, kind) for kind in WEIGHTS}
    falls: dict[int, Fall] = {}
    for kind in WEIGHTS:
        numbers = [n for n, q in enumerate(questions) if q.kind == kind and not q.side_by_side]
        if not numbers:
            continue
        days = _stacked([questions[n].days for n in numbers])
        baseline = _stacked([questions[n].baseline for n in numbers])
        errors, chances = screen(days, baseline, shares[kind])
        observed, expected = days.mean, baseline.mean
        for place, number in enumerate(numbers):
            falls[number] = Fall(
                observed=float(observed[place]),
                expected=float(expected[place]),
                error=float(errors[place]),
                p_value=float(chances[place]),
                rows=int(days.rows[place].sum()),
                baseline_rows=int(baseline.rows[place].sum()),
                days=int(days.count[place]),
                baseline_days=int(baseline.count[place]),
            )
    for number, question in enumerate(questions):
        if question.side_by_side or falls[number].p_value < SCREEN:
            falls[number] = _measured(window, question, shares[question.kind])
    return [falls[number] for number in range(len(questions))]


def _measured(window: _Window, question: _Question, day_share: float) -> Fall:
    now, before = _sides(window, question)
    values = _values(window, question)

    def of_day(rows: Indices, day: int) -> Floats:
        return np.asarray(values[rows[window.day[rows] == day]])

    if question.side_by_side:
        shared = np.intersect1d(window.day[now], window.day[before])
        return measure_paired_fall([(of_day(now, day), of_day(before, day)) for day in shared])
    days, baseline = ([of_day(rows, day) for day in np.unique(window.day[rows])] for rows in (now, before))
    return measure_fall(days, baseline, day_share=day_share)


def _sides(window: _Window, question: _Question) -> tuple[Indices, Indices]:
    """Rows of the window on either side of a question."""
    unit = question.unit
    rows = np.arange(unit.start, unit.stop)
    if question.kind != "coverage_fall":
        rows = rows[window.scored[unit.start : unit.stop]]
    late = window.day[rows] >= question.first
    if question.kind != "version_worse":
        return rows[late], rows[~late & (window.day[rows] >= question.since)]
    new, old = (window.version[rows] == version for version in question.versions)
    if not question.side_by_side:
        return rows[new & late], rows[old & ~late]
    shared = np.intersect1d(window.day[rows[new & late]], window.day[rows[old & late]])
    both = np.isin(window.day[rows], shared)
    return rows[new & both], rows[old & both]


def _values(window: _Window, question: _Question) -> Floats:
    """What is averaged, of every row of the window, 0-100."""
    if question.kind == "coverage_fall":
        return np.where(window.scored, 100.0, 0.0)
    if question.kind != "finding_rise":
        return window.phi
    values = np.full(len(window.phi), 100.0)
    values[window.carrier[window.code == question.code]] = 0.0
    return values


def _last_fall(question: _Question, fall: Fall) -> float:
    """How far the last day alone lies below what it is compared with."""
    rows, total = question.days.rows[-1], question.days.total[-1]
    if question.side_by_side:
        return float(question.baseline.total[-1] / question.baseline.rows[-1] - total / rows)
    return fall.expected - float(total / rows)


def _day_share(questions: Sequence[_Question], kind: str) -> float:
    """How much days differ: from the longest window of each agent as a whole, recent days left out."""
    longest: dict[tuple[str, int], _Question] = {}
    for question in questions:
        if question.kind == kind and question.unit.app_id == ALL:
            longest[question.unit.agent_id, question.code] = question  # the last span is the longest
    if kind == "version_worse":
        return _day_share(questions, "phi_fall")
    if not longest:
        return DAY_SHARE
    return learn_day_share(_stacked([question.baseline for question in longest.values()]))


def _stacked(series: Sequence[Days]) -> Days:
    def stack(arrays: Sequence[Floats]) -> Floats:
        out = np.zeros((len(arrays), max(map(len, arrays))))
        for row, values in zip(out, arrays, strict=True):
            row[: len(values)] = values
        return out

    return Days(
        rows=stack([s.rows for s in series]), total=stack([s.total for s in series]), squares=stack([s.squares for s in series])
    )


# --- what is news ---------------------------------------------------------------------------------------------------


def _news(
    window: _Window, found: Sequence[_Candidate], earlier: Sequence[dict[str, Any]], day: dt.date
) -> Iterator[_Candidate]:
    """One candidate for each event: the agent as a whole before its applications, the name that says most before others."""
    agents = dict.fromkeys(candidate.question.unit.agent_id for candidate in found)
    for agent_id in agents:
        for event in EVENTS:
            mine = [c for c in found if c.question.unit.agent_id == agent_id and c.question.kind in event]
            whole = [c for c in mine if c.question.unit.app_id == ALL]
            for app_id in [ALL] if whole else dict.fromkeys(c.question.unit.app_id for c in mine):
                here = [c for c in mine if c.question.unit.app_id == app_id]
                kind = min((c.question.kind for c in here), key=event.index)
                for candidate in (c for c in here if c.question.kind == kind):
                    if not any(_tells(window, old, candidate, day) for old in earlier):
                        yield candidate
                        break
                    if kind != "finding_rise":  # the surest of a kind stands for the others
                        break


def _earlier(recent: pl.DataFrame | None, day: dt.date, days: int) -> list[dict[str, Any]]:
    if recent is None or recent.is_empty():
        return []
    age = (pl.lit(day) - pl.col("dt")).dt.total_days()
    rows = recent.filter((age > 0) & (age <= days))
    return [row | {"codes": _codes(row.get("detail"))} for row in rows.iter_rows(named=True)]


def _codes(detail: str | None) -> set[str]:
    """Findings that an alert told of as rising, those by the way left out."""
    findings = json.loads(detail or "{}").get("findings", [])
    return {finding["code"] for finding in findings if finding["share"] - finding["share_before"] >= TOLD_RISE}


def _tells(window: _Window, old: dict[str, Any], candidate: _Candidate, day: dt.date) -> bool:
    """Whether an earlier alert has told this already."""
    question = candidate.question
    if old["agent_id"] != question.unit.agent_id or old["app_id"] not in (question.unit.app_id, ALL):
        return False
    version, previous = _versions(window, candidate)
    same_change = (old["agent_version"], old["previous_version"]) == (version, previous)
    pair = (old["kind"], question.kind)
    if pair == ("version_worse", "version_worse"):
        return same_change  # once for each change: the window holds it no longer than it is quiet
    if (day - old["dt"]).days > QUIET_DAYS:
        return False
    if question.kind == "finding_rise":
        return old["kind"] in EVENTS[0] and window.codes[question.code] in old["codes"]
    if pair == ("phi_fall", "version_worse"):
        return same_change
    if pair == ("version_worse", "phi_fall"):
        return bool(old["agent_version"] == version)
    return pair[0] == pair[1] and (old["agent_version"] == version or _there(window, question.unit, version, old["dt"]))


def _there(window: _Window, unit: _Unit, version: str | None, day: dt.date) -> bool:
    """Whether a version answered on or before a day."""
    rows = window.frame[unit.start : unit.stop]
    return not rows.filter((pl.col("dt") <= day) & pl.col("agent_version").eq_missing(pl.lit(version))).is_empty()


# --- the alert ------------------------------------------------------------------------------------------------------


def _versions(window: _Window, candidate: _Candidate) -> tuple[str | None, str | None]:
    """The version that answers, and the one before where it is another."""
    question = candidate.question
    if question.kind == "version_worse":
        new, old = (window.versions[version] for version in question.versions)
        return new, old
    now, before = _sides(window, question)
    version = _usual(window, now[window.day[now] == window.last])
    previous = _usual(window, before)
    return version, previous if previous != version else None


def _usual(window: _Window, rows: Indices) -> str | None:
    counts = np.bincount(window.version[rows] + 1)
    # of equally many, the later name
    most = len(counts) - 1 - int(counts[::-1].argmax())
    return window.versions[most - 1] if most else None


def _alert(window: _Window, candidate: _Candidate, found: Sequence[_Candidate], day: dt.date) -> dict[str, Any]:
    question, fall = candidate.question, candidate.fall
    now, before = _sides(window, question)
    version, previous = _versions(window, candidate)
    risen = [
        window.codes[c.question.code] for c in found if c.question.kind == "finding_rise" and c.question.unit == question.unit
    ]
    applications: dict[str, Fall] = {}
    for other in found if question.unit.app_id == ALL else ():
        theirs = other.question
        if (theirs.kind, theirs.unit.agent_id) == (question.kind, question.unit.agent_id) and theirs.unit.app_id != ALL:
            applications.setdefault(theirs.unit.app_id, other.fall)  # the surest first
    told = Told(
        kind=question.kind,
        agent_id=question.unit.agent_id,
        app_id=None if question.unit.app_id == ALL else question.unit.app_id,
        version=version,
        previous=previous,
        fall=fall,
        code=window.codes[question.code] if question.kind == "finding_rise" else None,
        side_by_side=question.side_by_side,
    )
    detail = detail_of(
        told,
        window.frame[now],
        window.frame[before],
        carriers=_carriers(window, np.concatenate([now, before])),
        risen=risen,
        applications=applications,
    )
    observed, expected = told.observed, told.expected
    return {
        "dt": day,
        "agent_id": question.unit.agent_id,
        "app_id": question.unit.app_id,
        "kind": question.kind,
        "agent_version": version,
        "previous_version": previous,
        "observed": observed,
        "expected": expected,
        "change": observed - expected,
        "p_value": candidate.p_value,
        "rows": fall.rows,
        "baseline_rows": fall.baseline_rows,
        "message": message_of(told, detail),
        "detail": compact_json(detail),
    }


def _carriers(window: _Window, rows: Indices) -> pl.DataFrame:
    mine = np.isin(window.carrier, rows)
    named = window.frame[window.carrier[mine]].select("dt", "query_id")
    return named.with_columns(pl.Series("code", [window.codes[code] for code in window.code[mine]], dtype=pl.String))
