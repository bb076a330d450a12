"""Sixteen days of two made-up agents with all that BI asks about: a fall, silent days, a refused day, a backfill, cost."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import polars as pl

from stef_core.aggregates import agent_daily
from stef_core.frames import TABLES, frame_of
from stef_core.scoring import BANDS
from tasks.warehouse import Warehouse

FIRST = dt.date(2026, 3, 1)
DAYS, UNPUBLISHED, SILENT, SLIP = 16, 5, (7, 8), 12  # counted from 0; SLIP is where v6 takes over
SHOP, HR = "shop-analyst", "people-helper"


def fill(warehouse: Warehouse) -> None:
    """Publish the days; day 5 was refused by its gate, and people-helper is silent on days 7 and 8."""
    for n in range(DAYS):
        day, run_id = FIRST + dt.timedelta(days=n), f"run-{n:02}"
        ran = {"run_id": run_id, "kind": "score", "dt": day, "started_at": dt.datetime(2026, 3, 1 + n, 6, tzinfo=dt.UTC)}
        if n == UNPUBLISHED:
            failure = {"severity": "critical", "message": "people-helper: coverage is 0.5, below 0.95"}
            gates = [{"gate": "scores", "passed": False, "expectations": 3, "failures": [failure]}]
            warehouse.record_run(ran | {"outcome": "gate_failed", "gates": json.dumps(gates)})
            continue
        rows = [row | {"dt": day, "run_id": run_id} for row in _answers(n)]
        scores = frame_of([dict.fromkeys(TABLES["query_scores"]) | row for row in rows], TABLES["query_scores"])
        findings = _findings(scores)
        daily = agent_daily(scores, findings).select(list(TABLES["agent_daily"]))
        tables = {
            "query_scores": scores,
            "query_findings": findings,
            "agent_daily": daily,
            "agent_alerts": _alerts(n, day, run_id),
        }
        warehouse.stage(run_id, day, tables)
        gates = [{"gate": "scores", "passed": True, "expectations": 31, "failures": []}]
        warehouse.publish(run_id, day, list(tables), ran | {"outcome": "published", "gates": json.dumps(gates)})
    _backfill(warehouse)


def _answers(n: int) -> list[dict[str, Any]]:
    slipped = n >= SLIP
    shop = [
        _answer(f"s{n}-{k}", SHOP, "v6" if slipped else "v5", (20.0, 40.0) if slipped else (95.0, 80.0), k) for k in range(6)
    ]
    hr = [] if n in SILENT else [_answer(f"h{n}-{k}", HR, "2026-01", (60.0, 100.0), k) for k in range(4)]
    if hr:
        unscored = {"status": "unscored", "reason": "sql_unparseable" if n % 2 else "judge_unavailable", "phi": None}
        hr[0] |= unscored | {"band": None, "verdict": None, "p_right": None, "cost": None}
    return shop + hr


def _answer(query_id: str, agent_id: str, version: str, phis: tuple[float, float], k: int) -> dict[str, Any]:
    phi = phis[k % 2]
    return {
        "query_id": query_id,
        "agent_id": agent_id,
        "agent_version": version,
        "app_id": "shop" if agent_id == SHOP else "hr",
        "user_question": f"How many orders of week {k}?",
        "generated_sql": "SELECT count(*) FROM orders",
        "user_feedback": phi > 50 if k < 4 else None,
        "status": "scored",
        "phi": phi,
        "band": next(name for lowest, name in BANDS if phi >= lowest),
        "p_right": phi / 100,
        "verdict": "correct" if phi > 75 else "incorrect",
        "filter_status": "fully_applied" if phi > 75 else "not_applied",
        "enrichment_status": "faithful",
        "judge": "openai",
        "model": "large" if agent_id == SHOP else "small",
        "llm_calls": 2,
        "tokens_in": 1_000,
        "tokens_out": 200,
        "cost": 0.01,
    }


def _findings(scores: pl.DataFrame) -> pl.DataFrame:
    made = [
        {
            **{name: row[name] for name in ("dt", "query_id", "agent_id", "agent_version", "app_id", "run_id")},
            "ordinal": ordinal,
            "code": code,
            "dimension": "filters",
            "severity": severity,
            "stage": stage,
            "message": f"{code}: the condition on the week is missing",
        }
        for row in scores.filter(pl.col("phi") < 90).iter_rows(named=True)
        for ordinal, (code, severity, stage) in enumerate(
            [("missing_filter", "critical", "generation"), ("enrichment_drops", "minor", "enrichment")]
        )
    ]
    return frame_of([dict.fromkeys(TABLES["query_findings"]) | row for row in made], TABLES["query_findings"])


def _alerts(n: int, day: dt.date, run_id: str) -> pl.DataFrame:
    fall = {
        "dt": day,
        "agent_id": SHOP,
        "app_id": "*",
        "kind": "phi_fall",
        "change": -57.5,
        "p_value": 0.0001,
        "message": f"{SHOP}: mean Φ fell from 87.5 to 30.0",
        "run_id": run_id,
    }
    made = [fall] if n == SLIP else []
    return frame_of([dict.fromkeys(TABLES["agent_alerts"]) | row for row in made], TABLES["agent_alerts"])


def _backfill(warehouse: Warehouse) -> None:
    moved = [
        {
            "run_id": "backfill-1",
            "dt": FIRST,
            "query_id": f"s0-{k}",
            "agent_id": SHOP,
            "old_phi": 70.0,
            "new_phi": 80.0,
            "old_band": "marginal",
            "new_band": "good",
            "old_status": "scored",
            "new_status": "scored",
            "changed": '["rules"]',
        }
        for k in (1, 3)
    ]
    schema = TABLES["score_changes"]
    warehouse.stage("backfill-1", FIRST, {"score_changes": frame_of([dict.fromkeys(schema) | row for row in moved], schema)})
    warehouse.publish("backfill-1", FIRST, ["score_changes"])
