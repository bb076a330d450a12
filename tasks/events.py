"""Events of Prefect that an automation can act on: a gate that failed, an alert, a published day, a budget, an endpoint.

None carries text of a question or of SQL: figures, names, ids and the sentences of gates and alerts only.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from prefect.events import emit_event

from stef_core.rows import UNANSWERED
from tasks.batches import Judged
from tasks.settings import Settings

GATE_FAILED = "stef.gate.failed"
ALERT_RAISED = "stef.alert.raised"
DAY_PUBLISHED = "stef.day.published"
BUDGET_USED_UP = "stef.budget.used_up"
ENDPOINT_DOWN = "stef.endpoint.down"

FAILURES_MAX = 20  # of a gate that an event names; scoring_runs.gates has all
MESSAGE_MAX = 2_000  # characters
_FACTS = ("rows_in", "rows_scored", "rows_unscored", "judge", "model", "llm_calls", "cache_hits", "cost")
_FAILURE = ("gate", "expectation", "column", "agent", "observed", "required")
_ALERT = ("agent_id", "agent_version", "app_id", "kind", "observed", "expected", "change", "p_value", "rows", "message")


def day_ended(run: Mapping[str, Any], alerts: pl.DataFrame | None = None) -> None:
    """Tell that a day was published, with its alerts, or that a gate refused it; of other ends Prefect tells itself.

    Args:
        run: The day's row of ``scoring_runs``.
        alerts: Its rows of ``agent_alerts``. Those of a backfill are no news, so nobody is told of them.
    """
    if run["outcome"] == "gate_failed":
        _emit(GATE_FAILED, run["dt"], run["run_id"], _refusal(json.loads(run["gates"]), run["dt"]) | {"kind": run["kind"]})
    if run["outcome"] != "published":
        return
    raised = [] if alerts is None or run["kind"] == "backfill" else alerts.select(_ALERT).to_dicts()
    facts = {name: run[name] for name in _FACTS} | {"alerts": len(raised), "kind": run["kind"]}
    told = f"{run['dt']} is published: {run['rows_scored']:,} of {run['rows_in']:,} rows scored"
    _emit(DAY_PUBLISHED, run["dt"], run["run_id"], facts | {"agent": None, "message": told})
    for alert in raised:
        agent = alert.pop("agent_id")
        _emit(ALERT_RAISED, run["dt"], run["run_id"], alert | {"agent": agent}, agent=agent)


def rows_judged(batches: Sequence[Judged], settings: Settings, day: dt.date, run_id: str) -> None:
    """Tell that an endpoint or a budget left rows of a day unjudged, where they did.

    Args:
        batches: All rows of the day that were to be judged.
        settings: Name the model.
        day: The partition.
        run_id: The run that scores it.
    """
    reasons: Counter[str] = sum((Counter(batch.reasons) for batch in batches), Counter())
    rows = sum(batch.rows for batch in batches)
    for name, missed, why in (
        (BUDGET_USED_UP, reasons["budget_exhausted"], "the run's budget was used up"),
        (ENDPOINT_DOWN, sum(reasons[reason] for reason in UNANSWERED), f"the endpoint of {settings.model} did not answer"),
    ):
        if missed:
            told = f"{missed:,} of {rows:,} rows of {day} were not judged: {why}"
            payload = {"agent": None, "message": told, "rows": rows, "rows_unjudged": missed, "model": settings.model}
            _emit(name, day, run_id, payload)


def _refusal(gates: Iterable[Mapping[str, Any]], day: dt.date) -> dict[str, Any]:
    failures = [
        failure | {"gate": gate["gate"]}
        for gate in gates
        if not gate["passed"]
        for failure in gate["failures"]
        if failure["severity"] == "critical"
    ]
    for failure in failures:
        if not failure["evaluated"]:  # what it observed is an error of another program, which may quote a row
            where = f"gate {failure['gate']}: {failure['column'] or 'table'} on {day}"
            failure |= {"observed": None, "message": f"{where} could not be evaluated ({failure['expectation']})"}
    agents = sorted({failure["agent"] for failure in failures if failure["agent"]})
    return {
        "agent": ", ".join(agents) or None,
        "message": "; ".join(failure["message"] for failure in failures)[:MESSAGE_MAX],
        "failures": [{name: failure[name] for name in _FAILURE} for failure in failures[:FAILURES_MAX]],
    }


def _emit(name: str, day: dt.date, run_id: str, payload: Mapping[str, Any], *, agent: str | None = None) -> None:
    whole = {"prefect.resource.id": f"stef.day.{day}", "prefect.resource.name": str(day), "stef.run": run_id}
    resource, related = whole, []
    if agent is not None:
        resource = {"prefect.resource.id": f"stef.agent.{agent}", "prefect.resource.name": agent}
        related = [whole | {"prefect.resource.role": "day"}]
    emit_event(name, resource, related=related, payload={"day": str(day), "run_id": run_id, **payload})
