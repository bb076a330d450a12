"""What the report shows, read from the warehouse: sums are made there, and of single answers only those that are shown come."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, QUERY_SCORES, SCORE_CHANGES, SCORING_RUNS

if TYPE_CHECKING:
    from tasks.warehouse import Warehouse

Key: TypeAlias = tuple[dt.date, str]  # dt, query_id

AGENTS_SHOWN = 60  # told apart by name
WORST = 10
WORST_OF_A_KIND = 3  # ten times "no SQL" would teach nothing
WORST_OF_AGENT = 3
EXAMPLES = 3  # of a finding
CHANGED = 10
CHANGED_OF_AGENT = 2
ALERTS_SHOWN = 30
ALERT_EXAMPLES = 3
RUNS_SHOWN = 60
REFUSED_SHOWN = 20  # older runs that published nothing
CHANGE_RUNS_SHOWN = 10
_ALERTS_READ = 2_000  # marks of the trends
_CANDIDATES, _CANDIDATES_OF_AGENT = 500, 12
# the longest period that is shown by day, week and month; a mean of few answers, drawn a thousand times, is noise
GRAINS = {"day": 92, "week": 731, "month": 3_660, "year": 10**9}

_GROUP = {"bucket": pl.Date(), "agent_id": pl.String(), "agent_version": pl.String(), "app_id": pl.String()}
_PLACE = {name: kind for name, kind in _GROUP.items() if name != "agent_version"}
BAND_COUNTS = ("excellent", "good", "marginal", "poor")
# answers, and sums over those that are scored; grain: bucket, agent_id, agent_version, app_id
CELLS = pl.Schema(
    _GROUP
    | {"first_day": pl.Date(), "last_day": pl.Date(), "rows": pl.Int64(), "scored": pl.Int64()}
    | {"phi": pl.Float64(), "phi_squares": pl.Float64(), "p_right": pl.Float64(), "p_right_rows": pl.Int64()}
    | dict.fromkeys(BAND_COUNTS, pl.Int64())
    # scored answers with a reformulation, with a finding of the stage, and with both
    | dict.fromkeys(("reformulated", "in_enrichment", "in_generation", "in_both"), pl.Int64())
)
FAULTS = pl.Schema(_PLACE | {"code": pl.String(), "stage": pl.String(), "occurrences": pl.Int64()})
REASONS = pl.Schema(_PLACE | {"reason": pl.String(), "rows": pl.Int64()})
# of answers for which a model was called
COSTS = pl.Schema(
    _PLACE
    | {"judged": pl.Int64(), "llm_calls": pl.Int64(), "tokens_in": pl.Int64(), "tokens_out": pl.Int64(), "cost": pl.Float64()}
)
SPREADS = pl.Schema(
    {"agent_id": pl.String(), "agent_version": pl.String(), "median_phi": pl.Float64(), "p90_phi": pl.Float64()}
)
CHANGE_RUNS = pl.Schema(
    {"run_id": pl.String(), "started_at": pl.Datetime("us", "UTC"), "changed": pl.String()}
    | dict.fromkeys(("rows", "rose", "fell", "newly_scored", "newly_unscored"), pl.Int64())
    | {"mean_change": pl.Float64(), "first_day": pl.Date(), "last_day": pl.Date()}
)
_ANSWER = (
    "dt query_id agent_id agent_version app_id phi band p_right user_question enriched_question generated_sql filter_status "
    "enrichment_status verdict confidence verdict_reasons sigma_filters sigma_verdict delta_lenient base gamma_factor alignment"
).split()
ANSWERS = pl.Schema({name: QUERY_SCORES[name] for name in _ANSWER})
ANSWER_FINDINGS = pl.Schema(
    {n: QUERY_FINDINGS[n] for n in "dt query_id ordinal code severity stage question_part sql_part message".split()}
)
_RUN = (
    "run_id kind dt started_at outcome message judge model rows_in rows_scored rows_unscored llm_calls cache_hits tokens_in "
    "tokens_out cost gates notes"
).split()
RUNS = pl.Schema({name: SCORING_RUNS[name] for name in _RUN})

_SEVERITY = "CASE {0}.severity WHEN 'critical' THEN 1 WHEN 'major' THEN 2 WHEN 'minor' THEN 3 ELSE 4 END"
_LOWEST = "s.phi, s.p_right NULLS LAST, s.dt DESC, s.query_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What the report shows; each frame has the columns of the schema named beside it, and any may be empty."""

    grain: str = "day"  # of GRAINS: how long a bucket is
    cells: pl.DataFrame = field(default_factory=CELLS.to_frame)
    spreads: pl.DataFrame = field(default_factory=SPREADS.to_frame)
    faults: pl.DataFrame = field(default_factory=FAULTS.to_frame)
    reasons: pl.DataFrame = field(default_factory=REASONS.to_frame)
    costs: pl.DataFrame = field(default_factory=COSTS.to_frame)
    alerts: pl.DataFrame = field(default_factory=AGENT_ALERTS.to_frame)  # the newest first
    alert_count: int = 0
    day_count: int = 0
    worst: tuple[Key, ...] = ()
    worst_of_agents: tuple[Key, ...] = ()
    examples: tuple[tuple[str, Key], ...] = ()  # of a finding code
    changes: pl.DataFrame = field(default_factory=SCORE_CHANGES.to_frame)  # the largest first
    change_count: int = 0
    change_runs: pl.DataFrame = field(default_factory=CHANGE_RUNS.to_frame)  # the newest first
    answers: pl.DataFrame = field(default_factory=ANSWERS.to_frame)  # all that the keys above, changes and alerts name
    answer_findings: pl.DataFrame = field(default_factory=ANSWER_FINDINGS.to_frame)
    runs: pl.DataFrame = field(default_factory=RUNS.to_frame)  # the newest first
    run_count: int = 0

    @classmethod
    def empty(cls) -> ReportData:
        """Of a warehouse in which nothing has been published."""
        return cls()


def load_report_data(warehouse: Warehouse) -> ReportData:
    """Read what the report shows."""
    span = warehouse.query("SELECT min(dt) AS first, max(dt) AS last, count(DISTINCT dt) AS days FROM query_scores")
    first, last, day_count = span.row(0)
    grain = "day" if first is None else grain_of(first, last)
    alerts = warehouse.query(_ALERTS).cast(AGENT_ALERTS)
    changes = warehouse.query(_CHANGES).cast(SCORE_CHANGES)
    cells = _sums(warehouse, _CELLS, CELLS, grain)
    worst, worst_of_agents = _worst(warehouse, set(ranked_agents(cells, alerts)[:AGENTS_SHOWN]))
    examples = _examples(warehouse)
    shown = [*worst, *worst_of_agents, *(key for _, key in examples), *changes.select("dt", "query_id").rows()]
    for alert in alerts.head(ALERTS_SHOWN).iter_rows(named=True):
        shown += example_keys(alert)
    keys = list(dict.fromkeys(shown))
    return ReportData(
        grain=grain,
        cells=cells,
        spreads=warehouse.query(_SPREADS).cast(SPREADS),
        faults=_sums(warehouse, _FAULTS, FAULTS, grain),
        reasons=_sums(warehouse, _REASONS, REASONS, grain),
        costs=_sums(warehouse, _COSTS, COSTS, grain),
        alerts=alerts,
        alert_count=_count(warehouse, "agent_alerts"),
        day_count=day_count,
        worst=worst,
        worst_of_agents=worst_of_agents,
        examples=examples,
        changes=changes,
        change_count=_count(warehouse, "score_changes"),
        change_runs=_change_runs(warehouse),
        answers=_by_key(warehouse, "query_scores", ANSWERS, keys),
        answer_findings=_by_key(warehouse, "query_findings", ANSWER_FINDINGS, keys).sort("dt", "query_id", "ordinal"),
        runs=warehouse.query(_RUNS).cast(RUNS),
        run_count=_count(warehouse, "scoring_runs"),
    )


def grain_of(first: dt.date, last: dt.date) -> str:
    """How a period is cut: by day, week, month or year."""
    days = (last - first).days + 1
    return next(grain for grain, longest in GRAINS.items() if days <= longest)


def ranked_agents(cells: pl.DataFrame, alerts: pl.DataFrame) -> list[str]:
    """Agents by how much they matter: those with alerts, then those with most answers."""
    alerting = set(alerts["agent_id"])
    counted = cells.group_by("agent_id").agg(pl.col("rows").sum()).rows()
    return [name for name, rows in sorted(counted, key=lambda each: (each[0] not in alerting, -each[1], each[0]))]


def example_keys(alert: dict[str, Any]) -> list[Key]:
    """The answers that an alert points at, a few of them."""
    detail = json.loads(alert["detail"]) if alert["detail"] else {}
    return [(alert["dt"], query_id) for query_id in detail.get("examples", [])[:ALERT_EXAMPLES]]


# --- sums -----------------------------------------------------------------------------------------------------------

_AT = "CAST(date_trunc('{grain}', s.dt) AS DATE) AS bucket, s.agent_id"
_APP = "coalesce(s.app_id, 'default') AS app_id"

_CELLS = f"""
WITH faults AS (
    SELECT
        dt,
        query_id,
        max(CASE stage WHEN 'enrichment' THEN 1 ELSE 0 END) AS in_enrichment,
        max(CASE stage WHEN 'generation' THEN 1 ELSE 0 END) AS in_generation
    FROM query_findings
    GROUP BY dt, query_id
)
SELECT
    {_AT}, s.agent_version, {_APP},
    min(s.dt) AS first_day,
    max(s.dt) AS last_day,
    count(*) AS rows,
    count(s.phi) FILTER (WHERE s.status = 'scored') AS scored,
    coalesce(sum(s.phi) FILTER (WHERE s.status = 'scored'), 0) AS phi,
    coalesce(sum(s.phi * s.phi) FILTER (WHERE s.status = 'scored'), 0) AS phi_squares,
    coalesce(sum(s.p_right) FILTER (WHERE s.status = 'scored'), 0) AS p_right,
    count(s.p_right) FILTER (WHERE s.status = 'scored') AS p_right_rows,
    {", ".join(f"count(*) FILTER (WHERE s.status = 'scored' AND s.band = '{band}') AS {band}" for band in BAND_COUNTS)},
    count(*) FILTER (WHERE s.status = 'scored' AND coalesce(s.enrichment_status, 'absent') <> 'absent') AS reformulated,
    count(*) FILTER (WHERE s.status = 'scored' AND faults.in_enrichment = 1) AS in_enrichment,
    count(*) FILTER (WHERE s.status = 'scored' AND faults.in_generation = 1) AS in_generation,
    count(*) FILTER (WHERE s.status = 'scored' AND faults.in_enrichment = 1 AND faults.in_generation = 1) AS in_both
FROM query_scores AS s
LEFT JOIN faults ON faults.dt = s.dt AND faults.query_id = s.query_id
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
"""  # noqa: S608

_FAULTS = f"""
SELECT {_AT}, {_APP}, f.code, coalesce(f.stage, 'generation') AS stage, count(*) AS occurrences
FROM query_findings AS f
JOIN query_scores AS s ON s.dt = f.dt AND s.query_id = f.query_id AND s.status = 'scored'
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
"""  # noqa: S608

_REASONS = f"""
SELECT {_AT}, {_APP}, coalesce(s.reason, 'unknown') AS reason, count(*) AS rows
FROM query_scores AS s
WHERE s.status <> 'scored'
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
"""  # noqa: S608

_COSTS = f"""
SELECT
    {_AT}, {_APP},
    count(*) AS judged,
    coalesce(sum(s.llm_calls), 0) AS llm_calls,
    coalesce(sum(s.tokens_in), 0) AS tokens_in,
    coalesce(sum(s.tokens_out), 0) AS tokens_out,
    coalesce(sum(s.cost), 0) AS cost
FROM query_scores AS s
WHERE s.llm_calls > 0 OR s.tokens_in > 0 OR s.tokens_out > 0 OR s.cost > 0
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
"""  # noqa: S608

_SPREADS = """
SELECT
    agent_id,
    agent_version,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY phi) AS median_phi,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY phi) AS p90_phi
FROM query_scores
WHERE status = 'scored'
GROUP BY agent_id, agent_version
"""

_ALERTS = f"""
SELECT {", ".join(AGENT_ALERTS)}
FROM agent_alerts
ORDER BY dt DESC, change, agent_id, app_id, kind
LIMIT {_ALERTS_READ}
"""  # noqa: S608

_RUNS = f"""
WITH newest AS (
    SELECT
        {", ".join(RUNS)},
        row_number() OVER (ORDER BY started_at DESC NULLS LAST, dt DESC NULLS LAST, run_id) AS place,
        row_number() OVER (
            PARTITION BY CASE outcome WHEN 'published' THEN 1 ELSE 0 END
            ORDER BY started_at DESC NULLS LAST, dt DESC NULLS LAST, run_id
        ) AS place_of_kind
    FROM scoring_runs
)
SELECT {", ".join(RUNS)}
FROM newest
WHERE place <= {RUNS_SHOWN} OR (outcome <> 'published' AND place_of_kind <= {REFUSED_SHOWN})
ORDER BY place
"""  # noqa: S608

# changes of the score by their size, then of the status, which has none, then of what is behind an equal score
_BY_CHANGE = """
nullif(abs(new_phi - old_phi), 0) DESC NULLS LAST,
CASE WHEN old_status <> new_status THEN 0 ELSE 1 END,
dt DESC, query_id, run_id
"""
_CHANGES = f"""
WITH ordered AS (
    SELECT
        {", ".join(SCORE_CHANGES)},
        row_number() OVER (ORDER BY {_BY_CHANGE}) AS place,
        row_number() OVER (PARTITION BY agent_id ORDER BY {_BY_CHANGE}) AS place_of_agent
    FROM score_changes
)
SELECT {", ".join(SCORE_CHANGES)}
FROM ordered
WHERE place <= {CHANGED} OR (place_of_agent <= {CHANGED_OF_AGENT} AND place <= 2000)
ORDER BY place
LIMIT 100
"""  # noqa: S608

_CHANGE_RUNS = f"""
WITH runs AS (SELECT run_id, min(started_at) AS started_at FROM scoring_runs GROUP BY run_id),
moved AS (
    SELECT
        c.run_id,
        c.changed,
        count(*) AS rows,
        count(*) FILTER (WHERE c.new_phi > c.old_phi) AS rose,
        count(*) FILTER (WHERE c.new_phi < c.old_phi) AS fell,
        count(*) FILTER (WHERE c.new_status = 'scored' AND c.old_status <> 'scored') AS newly_scored,
        count(*) FILTER (WHERE c.new_status <> 'scored' AND c.old_status = 'scored') AS newly_unscored,
        avg(c.new_phi - c.old_phi) AS mean_change,
        min(c.dt) AS first_day,
        max(c.dt) AS last_day
    FROM score_changes AS c
    GROUP BY c.run_id, c.changed
)
SELECT moved.*, runs.started_at
FROM moved
LEFT JOIN runs ON runs.run_id = moved.run_id
ORDER BY runs.started_at DESC NULLS LAST, moved.run_id, moved.changed
LIMIT {CHANGE_RUNS_SHOWN}
"""  # noqa: S608


def _sums(warehouse: Warehouse, sql: str, schema: pl.Schema, grain: str) -> pl.DataFrame:
    return warehouse.query(sql.format(grain=grain)).select(schema.names()).cast(schema)


def _count(warehouse: Warehouse, table: str) -> int:
    return int(warehouse.query(f"SELECT count(*) AS n FROM {table}")["n"].item())  # noqa: S608


def _change_runs(warehouse: Warehouse) -> pl.DataFrame:
    return warehouse.query(_CHANGE_RUNS).select(CHANGE_RUNS.names()).cast(CHANGE_RUNS)


# --- single answers -------------------------------------------------------------------------------------------------

# the text is compared, not shown
_CANDIDATE = "s.dt, s.query_id, s.agent_id, substr(s.user_question, 1, 200) AS question, substr(s.generated_sql, 1, 400) AS sql"

_LEADING = f"""
SELECT w.*, led.code
FROM lowest AS w
LEFT JOIN (
    SELECT
        f.dt,
        f.query_id,
        f.code,
        row_number() OVER (PARTITION BY f.dt, f.query_id ORDER BY {_SEVERITY.format("f")}, f.ordinal) AS importance
    FROM query_findings AS f
    JOIN lowest AS l ON l.dt = f.dt AND l.query_id = f.query_id
) AS led ON led.dt = w.dt AND led.query_id = w.query_id AND led.importance = 1
ORDER BY w.place
"""  # noqa: S608

_WORST = f"""
WITH lowest AS (
    SELECT {_CANDIDATE}, row_number() OVER (ORDER BY {_LOWEST}) AS place
    FROM query_scores AS s
    WHERE s.status = 'scored'
    ORDER BY {_LOWEST}
    LIMIT {_CANDIDATES}
)
{_LEADING}
"""  # noqa: S608

_WORST_OF_AGENTS = f"""
WITH ranked AS (
    SELECT s.dt, s.query_id, row_number() OVER (PARTITION BY s.agent_id ORDER BY {_LOWEST}) AS place
    FROM query_scores AS s
    WHERE s.status = 'scored'
),
lowest AS (
    SELECT {_CANDIDATE}, ranked.place
    FROM ranked
    JOIN query_scores AS s ON s.dt = ranked.dt AND s.query_id = ranked.query_id
    WHERE ranked.place <= {_CANDIDATES_OF_AGENT}
)
{_LEADING}
"""  # noqa: S608

_EXAMPLES = f"""
WITH carrying AS (
    SELECT
        f.code,
        f.dt,
        f.query_id,
        s.agent_id,
        s.phi,
        row_number() OVER (PARTITION BY f.code, s.agent_id ORDER BY {_SEVERITY.format("f")}, {_LOWEST}, f.ordinal) AS place
    FROM query_findings AS f
    JOIN query_scores AS s ON s.dt = f.dt AND s.query_id = f.query_id AND s.status = 'scored'
)
SELECT c.code, c.dt, c.query_id, c.agent_id, c.place, substr(s.user_question, 1, 200) AS question
FROM carrying AS c
JOIN query_scores AS s ON s.dt = c.dt AND s.query_id = c.query_id
WHERE c.place <= 2 * {EXAMPLES}
ORDER BY c.code, c.place, c.phi, c.agent_id, c.dt, c.query_id
"""  # noqa: S608


def _worst(warehouse: Warehouse, agents: set[str]) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """The worst answers of all, and of each of these agents those that are not among them."""
    worst = _varied(warehouse.query(_WORST).iter_rows(named=True), WORST)
    of_agents: list[Key] = []
    each = warehouse.query(_WORST_OF_AGENTS).filter(pl.col("agent_id").is_in(agents))
    for part in each.partition_by("agent_id", maintain_order=True):
        of_agents += _varied(part.iter_rows(named=True), WORST_OF_AGENT, of_a_kind=1)
    return tuple(worst), tuple(key for key in of_agents if key not in set(worst))


def _varied(candidates: Iterable[dict[str, Any]], wanted: int, *, of_a_kind: int = WORST_OF_A_KIND) -> list[Key]:
    """The first answers, each question once and few of a kind while there are others, so that they show more than one fault."""
    seen: set[tuple[Any, ...]] = set()
    kinds: dict[str | None, int] = {}
    picked: list[tuple[int, Key]] = []
    spare: list[tuple[int, Key]] = []
    for rank, row in enumerate(candidates):
        answer = (row["agent_id"], row["question"], row["sql"])
        if answer in seen:
            continue
        seen.add(answer)
        kind = "no_sql" if row["code"] == "not_a_query" else row["code"]
        kinds[kind] = kinds.get(kind, 0) + 1
        (picked if kinds[kind] <= of_a_kind else spare).append((rank, (row["dt"], row["query_id"])))
    chosen = picked[:wanted] + spare[: max(0, wanted - len(picked))]
    return [key for _, key in sorted(chosen)]


def _examples(warehouse: Warehouse) -> tuple[tuple[str, Key], ...]:
    """Up to three answers of each finding code, each question once, of different agents while there are some."""
    picked: list[tuple[str, Key]] = []
    for part in warehouse.query(_EXAMPLES).partition_by("code", maintain_order=True):
        questions: set[str | None] = set()
        # in the order of their place, so the worst of every agent comes before the second of any
        for row in part.iter_rows(named=True):
            if row["question"] not in questions and len(questions) < EXAMPLES:
                questions.add(row["question"])
                picked.append((row["code"], (row["dt"], row["query_id"])))
    return tuple(picked)


def _by_key(warehouse: Warehouse, table: str, schema: pl.Schema, keys: Sequence[Key]) -> pl.DataFrame:
    """Rows of these answers."""
    if not keys:
        return schema.to_frame()
    values = ", ".join(f"(CAST(${2 * n + 1} AS DATE), CAST(${2 * n + 2} AS TEXT))" for n in range(len(keys)))
    sql = (
        f"SELECT {', '.join(f't.{name}' for name in schema)} FROM (VALUES {values}) AS k (dt, query_id) "  # noqa: S608
        f"JOIN {table} AS t ON t.dt = k.dt AND t.query_id = k.query_id"
    )
    return warehouse.query(sql, [value for key in keys for value in key]).select(schema.names()).cast(schema)
