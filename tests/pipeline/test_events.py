"""What a run tells Prefect: events that an automation can act on, and tables of what its gates found."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.events.clients import AssertingEventsClient
from prefect.events.worker import EventsWorker

from flows.backfill import backfill
from flows.daily_scoring import daily_scoring, day_before
from stef_core.errors import GateError, RuleError
from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, frame_of
from stef_core.rows import JUDGED
from tasks import events
from tasks.artifacts import gate_rows
from tasks.batches import Asked, judged_of
from tasks.settings import Settings
from tests.logs import DAY, table, write
from tests.openai_server import Reply, answer, serving

pytestmark = pytest.mark.usefixtures("prefect_server")
QUESTION, SQL = "How many orders did Zanzibar place?", "SELECT COUNT(*) FROM zanzibar_orders"
Told = Callable[[], dict[str, list[dict[str, Any]]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """Payloads of STEF's events by name, kept by Prefect's own client for tests."""
    AssertingEventsClient.reset()
    worker = EventsWorker.instance(AssertingEventsClient)
    monkeypatch.setattr(EventsWorker, "instance", lambda *_: worker)

    def found() -> dict[str, list[dict[str, Any]]]:
        worker.drain()
        by_name: dict[str, list[dict[str, Any]]] = {}
        for client in AssertingEventsClient.all:
            for event in client.events or ():
                if event.event.startswith("stef."):
                    assert not [text for text in (QUESTION, SQL, "anzibar") if text in event.model_dump_json()]
                    by_name.setdefault(event.event, []).append({"resource": event.resource.id} | event.payload)
        return by_name

    yield found
    worker.drain()  # ends it, so that the next test starts one with a client of its own
    AssertingEventsClient.reset()


def score(root: Path, **parameters: Any) -> Any:
    return daily_scoring(date=DAY, logs=str(root / "logs"), warehouse=f"duckdb:///{root / 'w.duckdb'}", **parameters)


def asked(rows: int, /, **columns: Any) -> Any:
    return table(rows, user_question=[QUESTION] * rows, generated_sql=[SQL] * rows, **columns)


def artifact(key: str) -> list[dict[str, Any]]:
    """The rows of the newest table of a key."""
    asked = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=[key]))
    with get_client(sync_client=True) as client:
        (found,) = client.read_latest_artifacts(artifact_filter=asked)
    rows: list[dict[str, Any]] = json.loads(str(found.data))
    return rows


def test_a_published_day_is_told_of_in_figures(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "logs", asked(3))

    (run,) = score(tmp_path)

    (day,) = told()["stef.day.published"]
    assert (day["resource"], day["day"], day["run_id"]) == (f"stef.day.{DAY}", str(DAY), run["run_id"])
    assert (day["rows_in"], day["rows_scored"], day["alerts"], day["judge"]) == (3, 3, 0, "symbolic")
    assert day["message"] == "2026-03-02 is published: 3 of 3 rows scored"


def test_a_refused_day_is_told_of_with_agent_observed_and_required(told: Told, tmp_path: Path) -> None:
    unreadable = ["SELECT * FROM zanzibar_orders WHERE id === 3"] * 2 + [SQL] * 2
    write(tmp_path / "logs", table(4, user_question=[QUESTION] * 4, generated_sql=unreadable, agent_id=["scout", "clerk"] * 2))

    with pytest.raises(GateError) as refusal:
        score(tmp_path)

    (failed,) = told()["stef.gate.failed"]
    assert failed["agent"] == "clerk, scout"
    assert failed["message"] in str(refusal.value)
    assert {f["agent"]: (f["observed"], f["required"]) for f in failed["failures"]} == {
        "clerk": ("0.5", "at least 0.95"),
        "scout": ("0.5", "at least 0.95"),
    }
    assert "stef.day.published" not in told()
    rows = artifact(f"gates-{DAY}")
    assert [(row["gate"], row["agent"], row["observed"], row["outcome"]) for row in rows if row["outcome"] == "failed"] == [
        ("scores", "clerk", "0.5", "failed"),
        ("scores", "scout", "0.5", "failed"),
    ]
    assert {row["gate"] for row in rows if row["outcome"] == "passed"} >= {"query_log", "scores", "agent_daily"}


def test_a_refused_day_of_a_backfill_is_told_of_too(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "logs", asked(3, agent_id=["clerk", None, "clerk"]))

    with pytest.raises(GateError):
        backfill(first=DAY, last=DAY, logs=str(tmp_path / "logs"), warehouse=f"duckdb:///{tmp_path / 'w.duckdb'}")

    (failed,) = told()["stef.gate.failed"]
    assert (failed["kind"], failed["failures"][0]["column"]) == ("backfill", "agent_id")


def test_a_dry_run_of_a_backfill_leaves_its_plan_and_tells_nobody(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "logs", asked(3))
    score(tmp_path)
    before = told()
    (tmp_path / "rules.json").write_text(json.dumps({"app_id": "shop", "safety_limit_min": 7}))

    (day,) = backfill(
        logs=str(tmp_path / "logs"),
        warehouse=f"duckdb:///{tmp_path / 'w.duckdb'}",
        rules=str(tmp_path / "rules.json"),
        dry_run=True,
    )

    causes = ", ".join(f"{cause} {count}" for cause, count in day["causes"].items())
    planned = {"day": str(DAY), "rows": 3, "to do": day["redone"], "causes": causes, "calls": 0, "tokens": 0, "cost": 0.0}
    assert artifact(f"backfill-plan-{DAY}-to-{DAY}") == [planned]
    assert told() == before


def test_an_error_that_may_quote_a_row_stays_out_of_the_event(told: Told) -> None:
    failure = {"expectation": "E", "column": "reason", "agent": None, "observed": SQL, "required": "x", "severity": "critical"}
    gates = [{"gate": "scores", "passed": False, "failures": [failure | {"message": SQL, "evaluated": False}]}]

    events.day_ended({"outcome": "gate_failed", "dt": DAY, "run_id": "r", "kind": "score", "gates": json.dumps(gates)})

    (failed,) = told()["stef.gate.failed"]
    assert failed["message"] == "gate scores: reason on 2026-03-02 could not be evaluated (E)"


@pytest.mark.parametrize(("kind", "count"), [("score", 1), ("backfill", 0)])
def test_alerts_of_a_day_are_told_of_but_those_of_a_backfill_are_no_news(told: Told, kind: str, count: int) -> None:
    alert = dict.fromkeys(AGENT_ALERTS) | {"dt": DAY, "agent_id": "clerk", "app_id": "*", "message": "clerk: mean Φ fell."}
    run = dict.fromkeys(("judge", "model", "llm_calls", "cache_hits", "cost")) | {"outcome": "published", "dt": DAY}
    run |= {"run_id": "r", "kind": kind, "rows_in": 9, "rows_scored": 9, "rows_unscored": 0}

    events.day_ended(run, pl.DataFrame([alert], schema=AGENT_ALERTS))

    raised = told().get("stef.alert.raised", [])
    assert [(event["resource"], event["day"], event["message"]) for event in raised] == [
        ("stef.agent.clerk", str(DAY), "clerk: mean Φ fell.")
    ] * count
    assert told()["stef.day.published"][0]["alerts"] == count


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    """What a model that finds everything right would say."""
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    return answer({"question": {"projections": [], "aggregations": [], "filters": [], "group_by": []}})


def test_a_budget_that_is_used_up_is_told_of(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [f"{QUESTION} Those of {year}?" for year in range(1990, 1996)]
    write(tmp_path / "logs", table(6, user_question=questions, generated_sql=[SQL] * 6))
    with serving(model_answer) as server:
        settings = {"BASE_URL": server.base_url, "MODEL": "m", "CACHE": str(tmp_path / "c.sqlite"), "MAX_CALLS": "3"}
        for name, value in settings.items():
            monkeypatch.setenv(f"STEF_{name}", value)

        score(tmp_path, judge="openai", coverage_min=0.0)

    (used_up,) = told()["stef.budget.used_up"]
    assert used_up["resource"] == f"stef.day.{DAY}"
    assert 3 <= used_up["rows_unjudged"] <= 6
    assert used_up["message"].endswith("of 6 rows of 2026-03-02 were not judged: the run's budget was used up")


def test_an_endpoint_that_is_down_is_told_of(told: Told) -> None:
    reasons: list[str | None] = ["judge_unavailable", "question_reader_unavailable", None, "judge_refused"]
    rows = [dict.fromkeys(JUDGED) | {"query_id": str(n), "reason": reason} for n, reason in enumerate(reasons)]
    batch = judged_of(0, frame_of(rows, JUDGED), frame_of([], QUERY_FINDINGS), Asked(judge="openai", model="m"))

    events.rows_judged([batch], Settings(judge="openai", model="m"), DAY, "r")

    (down,) = told()["stef.endpoint.down"]
    assert down["message"] == "2 of 4 rows of 2026-03-02 were not judged: the endpoint of m did not answer"
    assert (down["rows_unjudged"], down["run_id"]) == (2, "r")


def test_a_row_of_the_gates_table_tells_what_was_seen_and_what_was_done_about_it() -> None:
    failure = {"expectation": "E", "column": "c", "agent": "clerk", "observed": "2", "required": "at least 3", "message": ""}
    kinds = ({"severity": "critical", "evaluated": True}, {"severity": "warning", "evaluated": True})
    gate = {"gate": "scores", "expectations": 9, "passed": False}

    failed, warned, rest = gate_rows([gate | {"failures": [failure | kinds[0], failure | kinds[1] | {"column": None}]}])

    assert failed == {
        "gate": "scores",
        "expectation": "E c",
        "severity": "critical",
        "agent": "clerk",
        "observed": "2",
        "required": "at least 3",
        "outcome": "failed",
    }
    assert (warned["expectation"], warned["outcome"]) == ("E", "reported")
    assert (rest["expectation"], rest["outcome"]) == ("7 of 9 expectations", "passed")


@pytest.mark.parametrize("delay_days", [0, 1, 3])
def test_the_day_is_counted_back_from_the_day_of_the_run(delay_days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.runtime import flow_run

    late = dt.datetime(2026, 3, 5, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))  # the 4th in UTC
    monkeypatch.setattr(flow_run, "scheduled_start_time", late, raising=False)

    assert day_before(delay_days) == dt.date(2026, 3, 4) - dt.timedelta(days=delay_days)


def test_a_delay_into_the_future_is_refused() -> None:
    with pytest.raises(RuleError, match="delay_days is -1; it counts days back"):
        day_before(-1)
