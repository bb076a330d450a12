"""The demo week: query logs of three made-up agents, with the rules of their applications and the truth about every row."""

from __future__ import annotations

import datetime as dt
import json
import random
import tomllib
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from stef_core.frames import QUERY_LOG

FIRST = dt.date(2026, 3, 2)  # a Monday
DAYS = 7
SLIP_DAY = 4  # shop-analyst changes its version on this day, counted from 0
SLIP_FAULTS = ("dropped_date_filter", "or_for_and")  # what its new version gets wrong
ALL_FAULTS = (
    *SLIP_FAULTS,
    "dropped_filter",
    "missing_distinct",
    "unasked_filter",
    "unjoined_table",
    "wrong_aggregate",
    "wrong_boundary",
    "wrong_direction",
    "wrong_grouping",
    "wrong_join",
    "wrong_k",
    "wrong_output",
    "wrong_set_operation",
    "wrong_value",
)
REFUSALS = (
    "I'm sorry, I can't answer that with the tables I know about.",
    "Could you tell me which period you mean?",
    "The requested figure is not available in this data set.",
)
LOG = pl.Schema({**QUERY_LOG, "user_feedback": pl.Boolean(), "session_id": pl.String()})
TRUTH = pl.Schema({"dt": pl.Date(), "query_id": pl.String(), "right": pl.Boolean(), "fault": pl.String()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent of the demo: how much it answers a day, how often rightly, and which versions it goes through."""

    name: str
    app_id: str
    rows: tuple[int, ...]  # a day
    versions: tuple[str, ...]  # a day
    right_share: dict[str, float]  # by version, 0-1
    slips: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by version: the faults it mostly makes


AGENTS = (
    Agent(
        name="shop-analyst",
        app_id="shop",
        rows=(78, 82, 76, 80, 79, 58, 54),
        versions=("v2",) * SLIP_DAY + ("v3",) * (DAYS - SLIP_DAY),
        right_share={"v2": 0.88, "v3": 0.52},
        slips={"v3": SLIP_FAULTS},
    ),
    Agent(
        name="people-helper",
        app_id="hr",
        rows=(36, 38, 35, 37, 36, 24, 23),
        versions=("2026-01",) * DAYS,
        right_share={"2026-01": 0.82},
    ),
    Agent(
        name="fleet-bot",
        app_id="fleet",
        rows=(38, 36, 39, 37, 38, 29, 27),
        versions=("1.4",) * DAYS,
        right_share={"1.4": 0.86},
    ),
)

RULES: dict[str, dict[str, Any]] = {
    "shop": {
        "dialect": "postgres",
        "column_mappings": {"order_count": "number_of_orders", "order_amount": "total_amount"},
        "benign_filters": [
            {"column": "tenant_id", "op": "=", "value": "*"},
            {"column": "is_deleted", "op": "=", "value": False},
            {"column": "is_active", "op": "=", "value": True},
        ],
        "metric_definitions": {"revenue": {"func": "sum", "column": "total_amount"}},
        "safety_limit_min": 5000,
        "judge_notes": ["A shop sees the orders of its own tenant only; the filter on tenant_id is always right."],
    },
    "hr": {
        "dialect": "tsql",
        "column_mappings": {"employee_name": "full_name", "pay": "salary", "department": "department_name"},
        "benign_filters": [{"column": "record_status", "op": "=", "value": "A"}],
        "metric_definitions": {"headcount": {"func": "count", "column": "*"}},
        "redact": ["salary"],
        "judge_notes": ["Records with a status other than A are closed and never meant."],
    },
    "fleet": {
        "dialect": "bigquery",
        "column_mappings": {"litre": "liters", "distance": "distance_km", "duration": "duration_min"},
        "benign_filters": [
            {"column": "is_test", "op": "=", "value": False},
            {"column": "region", "op": "=", "value": "*"},
        ],
        "safety_limit_min": 10000,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWeek:
    """Where the demo week was written, and what it holds."""

    logs: Path  # root of the partitions dt=YYYY-MM-DD
    rules: Path  # folder of the rules, one file an application
    truth: Path  # Parquet: dt, query_id, right, fault; never an input of scoring
    first: dt.date
    last: dt.date
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an agent answered to one question, and what is wrong with it (`fault` is None where nothing is)."""

    question: str
    enriched: str | None
    sql: str | None
    dialect: str
    fault: str | None


def write_demo_week(root: Path) -> DemoWeek:
    """Write the demo week: the same rows each time, on fixed dates.

    Args:
        root: Folder to write into; made where absent, files of an earlier demo in it are replaced.

    Returns:
        The places of ``logs/dt=…/part-0.parquet``, ``rules/<app>.json`` and ``truth.parquet``.
    """
    logs, rules, truth = root / "logs", root / "rules", root / "truth.parquet"
    days = [FIRST + dt.timedelta(days=n) for n in range(DAYS)]
    log, right = demo_frames()
    for day in days:
        folder = logs / f"dt={day}"
        folder.mkdir(parents=True, exist_ok=True)
        log.filter(pl.col("asked_at").dt.date() == day).write_parquet(folder / "part-0.parquet")
    right.write_parquet(truth)
    rules.mkdir(parents=True, exist_ok=True)
    for app_id, content in RULES.items():
        text = json.dumps({"app_id": app_id, "version": "1", **content}, indent=2)
        (rules / f"{app_id}.json").write_text(text + "\n", encoding="utf-8")
    agents = tuple(agent.name for agent in AGENTS)
    return DemoWeek(logs=logs, rules=rules, truth=truth, first=days[0], last=days[-1], agents=agents)


def demo_frames() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the week (query-log columns, `user_feedback`, `session_id`) and the truth about them, in order of time."""
    rows: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    applications = load_applications()
    for agent in AGENTS:
        rng = random.Random(f"stef demo {agent.name}")  # noqa: S311  # made-up rows, the same each time
        for n in range(DAYS):
            day = FIRST + dt.timedelta(days=n)
            answers = _answers(agent, n, applications[agent.app_id], rng)
            times = sorted(_working_time(day, rng) for _ in answers)
            for position, (answer, asked_at) in enumerate(zip(answers, times, strict=True)):
                query_id = f"{agent.app_id}-{day:%m%d}-{position:03d}"
                rows.append(_row(query_id, agent, n, answer, asked_at, rng))
                facts.append({"dt": day, "query_id": query_id, "right": answer.fault is None, "fault": answer.fault})
    return pl.DataFrame(rows, schema=LOG).sort("asked_at", "query_id"), pl.DataFrame(facts, schema=TRUTH)


def load_applications() -> dict[str, dict[str, Any]]:
    """The question templates by application: ``dialect``, ``params`` and ``questions`` of ``data/demo_questions.toml``."""
    return tomllib.loads((files("tasks") / "data" / "demo_questions.toml").read_text(encoding="utf-8"))


def fill(template: dict[str, Any], application: dict[str, Any], rng: random.Random, fault: str | None = None) -> Answer:
    """Answer one question template, rightly or with one of its faults.

    Args:
        template: One of the application's ``questions``.
        application: Its ``dialect`` and ``params``.
        rng: Picks the wording and the parameters.
        fault: A key of the template's ``faults``; None answers rightly.
    """
    values: dict[str, Any] = {}
    for name, choices in application["params"].items():
        values[name], values[f"{name}_"] = rng.sample(choices, 2)
    values["next_year"] = values["year"] + 1
    sql, enriched = template["sql"].strip(), template.get("enriched")
    if fault is not None:
        old, new, *misled = template["faults"][fault]
        sql = sql.replace(old, new)
        enriched = misled[0] if misled else enriched
    return Answer(
        question=rng.choice(template["ask"]).format(**values),
        enriched=enriched and enriched.format(**values),
        sql=sql.format(**values),
        dialect=template.get("dialect", application["dialect"]),
        fault=fault,
    )


def _answers(agent: Agent, n: int, application: dict[str, Any], rng: random.Random) -> list[Answer]:
    templates: list[dict[str, Any]] = application["questions"]
    slips = agent.slips.get(agent.versions[n], ())
    count = agent.rows[n] - 2  # the two unusual rows at the end
    wrong = round(count * (1 - agent.right_share[agent.versions[n]]) + rng.uniform(-1, 1))
    answers = [fill(t, application, rng) for t in _spread(templates, count - wrong, rng)]
    for _ in range(wrong):
        usual = slips if slips and rng.random() < 0.8 else ALL_FAULTS
        template = rng.choice([t for t in templates if any(f in usual for f in t["faults"])])
        fault = rng.choice([f for f in template["faults"] if f in usual])
        answers.append(fill(template, application, rng, fault))

    answers[0] = _packaged(answers[0], rng)
    answers.append(answers[1])  # the same question asked again, answered alike
    missing = fill(rng.choice(templates), application, rng)
    refused = rng.random() < 0.5
    answers.append(
        Answer(
            question=missing.question,
            enriched=missing.enriched,
            sql=rng.choice(REFUSALS) if refused else None,
            dialect=missing.dialect,
            fault="prose_refusal" if refused else "no_sql",
        )
    )
    rng.shuffle(answers)
    return answers


def _spread(templates: list[dict[str, Any]], count: int, rng: random.Random) -> list[dict[str, Any]]:
    # every template before any comes again, so that a day's mean does not hang on which questions were drawn
    picked: list[dict[str, Any]] = []
    while len(picked) < count:
        picked += rng.sample(templates, min(len(templates), count - len(picked)))
    return picked


def _packaged(answer: Answer, rng: random.Random) -> Answer:
    wrapping = rng.choice(("```sql\n{}\n```", "{};", "{};\n-- counts each row once", "/* answer */\n{}"))
    return replace(answer, sql=wrapping.format(answer.sql))


def _working_time(day: dt.date, rng: random.Random) -> dt.datetime:
    hour = min(20, max(6, round(rng.gauss(13, 3))))
    moment = dt.time(hour, rng.randrange(60), rng.randrange(60), tzinfo=dt.UTC)
    return dt.datetime.combine(day, moment)


def _row(query_id: str, agent: Agent, n: int, answer: Answer, asked_at: dt.datetime, rng: random.Random) -> dict[str, Any]:
    right = answer.fault is None
    feedback = None
    if rng.random() < 0.15:  # few people press a button, and one in ten of them errs
        feedback = right if rng.random() < 0.9 else not right
    return {
        "query_id": query_id,
        "agent_id": agent.name,
        "agent_version": agent.versions[n],
        "app_id": agent.app_id,
        "asked_at": asked_at,
        "user_question": answer.question,
        "enriched_question": answer.enriched,
        "generated_sql": answer.sql,
        "dialect": answer.dialect,
        "user_feedback": feedback,
        "session_id": f"s-{agent.app_id}-{asked_at:%m%d}-{rng.randrange(12):02d}",
    }
