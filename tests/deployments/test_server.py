"""The deployments on a real Prefect server with a real process worker: what ends well, what a gate refuses, and who is told."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.logs import DAY, NOON, table, write
from tests.prefect_house import PrefectHouse, Webhook, closing, until

pytestmark = pytest.mark.slow
BAD_DAY = DAY + dt.timedelta(days=1)
ROWS = 40
RUN_S = 240.0  # generous: the machine may be busy
DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
QUESTION, SQL = "How many orders are there?", "SELECT COUNT(*) FROM orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the server knows after three runs: a good day, its backfill under other rules, and a day that its gate refuses."""

    house: PrefectHouse
    posted: list[Any]
    deployed: dict[str, Any]
    good: dict[str, Any]
    again: dict[str, Any]
    refused: dict[str, Any]

    def lines(self, run: dict[str, Any]) -> list[str]:
        """The log of a flow run, as the server has it."""
        found = self.house.post(
            "/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        )
        return [line["message"] for line in found]

    def artifact(self, key: str) -> dict[str, Any]:
        """The newest artifact of a key."""
        found: dict[str, Any] = self.house.get(f"/artifacts/{key}/latest")
        return found

    def events(self, name: str, count: int) -> list[dict[str, Any]]:
        """The events of a name, once there are so many: the server writes them some seconds after it acts on them."""
        asked = {"filter": {"event": {"name": [name]}}}

        def found() -> list[dict[str, Any]] | None:
            events: list[dict[str, Any]] = self.house.post("/events/filter", asked)["events"]
            return events if len(events) >= count else None

        return until(f"there are {count} of {name}", found, 60, self.house.log("server"))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    root = tmp_path_factory.mktemp("server")
    (root / "rules").mkdir()
    (root / "rules" / "shop.json").write_text('{"app_id": "shop"}')
    write(root / "logs", table(ROWS, generated_sql=[SQL + " WHERE tenant_id = 7" if n % 10 == 0 else SQL for n in range(ROWS)]))
    nameless = ["clerk"] * (ROWS - 1) + [None]
    write(root / "logs", table(ROWS, agent_id=nameless, asked_at=noon_of(BAD_DAY)), day=BAD_DAY)
    with ExitStack() as stack:
        hook, house = stack.enter_context(closing(Webhook())), stack.enter_context(closing(PrefectHouse(root)))
        house.prefect("work-pool", "create", "stef", "--type", "process")
        house.start(
            "worker",
            *("worker", "start", "--pool", "stef"),
            STEF_LOGS=str(root / "logs"),
            STEF_WAREHOUSE=f"duckdb:///{root / 'w.duckdb'}",
            STEF_RULES=str(root / "rules"),
            STEF_BATCH_SIZE="10",
            PREFECT_WORKER_QUERY_SECONDS="1",
        )
        house.prefect("--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS / "prefect.yaml"), "--all")
        (root / "url.txt").write_text(f"{hook.url}\n")
        house.python(str(DEPLOYMENTS / "automations.py"), "--url-file", str(root / "url.txt"))
        deployed = {each["name"]: each for each in house.post("/deployments/filter")}

        good = ended(house, started(house, deployed["daily"], date=str(DAY)))
        benign = {"app_id": "shop", "benign_filters": [{"column": "tenant_id", "op": "=", "value": "*"}]}
        (root / "rules" / "shop.json").write_text(json.dumps(benign))
        runs = [
            started(house, deployed["backfill"], first=str(DAY), last=str(DAY)),
            started(house, deployed["daily"], date=str(BAD_DAY)),
        ]
        again, refused = (ended(house, run) for run in runs)
        until("the webhook was called", lambda: hook.bodies, 60, house.log("server"))
        yield Seen(house=house, posted=hook.bodies, deployed=deployed, good=good, again=again, refused=refused)


def noon_of(day: dt.date) -> pa.Array:
    return pa.array([NOON + (day - DAY)] * ROWS, pa.timestamp("us", "UTC"))


def started(house: PrefectHouse, deployment: dict[str, Any], **parameters: Any) -> str:
    run: str = house.post(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})["id"]
    return run


def ended(house: PrefectHouse, run: str) -> dict[str, Any]:
    def is_over() -> dict[str, Any] | None:
        found: dict[str, Any] = house.get(f"/flow_runs/{run}")
        return found if found["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

    return until(f"flow run {run} ended", is_over, RUN_S, house.log("worker"), house.log("server"))


def test_a_day_is_scored_and_scored_again(seen: Seen) -> None:
    assert (seen.good["state_type"], seen.again["state_type"]) == ("COMPLETED", "COMPLETED"), seen.lines(seen.good)


def test_deployments_are_there_with_their_schedules(seen: Seen) -> None:
    schedules = {name: [(s["active"], s["schedule"]["cron"]) for s in d["schedules"]] for name, d in seen.deployed.items()}

    assert schedules == {
        "daily": [(True, "0 6 * * *")],
        "report": [(True, "0 7 * * *")],
        "calibration": [(False, "0 8 * * 1")],
        "backfill": [],
        "experiment": [],
    }


def test_runs_leave_their_artifacts(seen: Seen) -> None:
    gates, agents = (json.loads(seen.artifact(f"{key}-{DAY}")["data"]) for key in ("gates", "agents"))

    assert {row["gate"] for row in gates} >= {"query_log", "scores", "agent_daily"}
    assert {row["outcome"] for row in gates} == {"passed"}
    assert [(row["agent"], row["rows"]) for row in agents] == [("clerk", ROWS)]
    assert f"Scores of {DAY}" in seen.artifact(f"summary-{DAY}")["data"]
    assert seen.artifact("backfill-progress")["data"] == 100.0
    assert seen.artifact("daily-scoring-progress")["type"] == "progress"
    (moved,) = json.loads(seen.artifact(f"backfill-{DAY}-to-{DAY}")["data"])
    assert (moved["agent"], moved["rows"], moved["moved"], moved["up"]) == ("clerk", ROWS, 4, 4)


def test_a_refused_day_fails_in_words_a_person_understands(seen: Seen) -> None:
    message = seen.refused["state"]["message"]
    (row, *_) = json.loads(seen.artifact(f"gates-{BAD_DAY}")["data"])

    assert seen.refused["state_type"] == "FAILED"
    assert "gate query_log: agent_id of agent null on 2026-03-03 is null" in message
    assert "required a value (ExpectColumnValuesToNotBeNull agent_id)" in message
    assert (row["expectation"], row["severity"], row["observed"], row["required"], row["outcome"]) == (
        "ExpectColumnValuesToNotBeNull agent_id",
        "critical",
        "null",
        "a value",
        "failed",
    )


def test_a_refused_day_and_a_published_one_emit_events(seen: Seen) -> None:
    (failed,), published = seen.events("stef.gate.failed", 1), seen.events("stef.day.published", 2)

    assert failed["resource"]["prefect.resource.id"] == f"stef.day.{BAD_DAY}"
    assert failed["payload"]["day"] == str(BAD_DAY)
    assert failed["payload"]["failures"][0]["required"] == "a value"
    assert {event["resource"]["prefect.resource.id"] for event in published} == {f"stef.day.{DAY}"}
    assert {event["payload"]["kind"] for event in published} == {"score", "backfill"}
    assert {event["payload"]["rows_scored"] for event in published} == {ROWS}
    assert not [text for text in (QUESTION, SQL) if text in json.dumps([failed, *published])]


def test_an_automation_tells_a_person_of_the_refused_day(seen: Seen) -> None:
    texts = [body["text"] for body in seen.posted if body["text"].startswith("stef.")]

    assert len(texts) == 1
    assert texts[0].startswith(f"stef.gate.failed: gate query_log: agent_id of agent null on {BAD_DAY} is null")


def test_an_automation_tells_a_person_of_a_run_that_crashed(seen: Seen) -> None:
    deployment = seen.deployed["backfill"]["id"]
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2999-01-01T00:00:00Z"}}
    run = seen.house.post(f"/deployments/{deployment}/create_flow_run", {"state": later})

    seen.house.post(f"/flow_runs/{run['id']}/set_state", {"state": {"type": "CRASHED", "name": "Crashed"}, "force": True})

    told = {"text": f"STEF: flow run {run['name']} ended as prefect.flow-run.Crashed"}
    until("the webhook was told of the crash", lambda: told in seen.posted, 60, seen.house.log("server"))
    assert seen.posted.count(told) == 1


def test_lines_of_a_day_name_its_run_and_day_and_say_how_far_it_is(seen: Seen) -> None:
    lines = seen.lines(seen.good)

    placed = re.compile(rf"^\[[0-9a-f]{{8}} {DAY}\] ")
    ours = [line for line in lines if "rows" in line]
    assert [line for line in ours if not placed.match(line)] == []
    assert any(re.search(r"judged 10 of 40 rows \(25%\), [\d.,]+ rows/s, \d+ s left$", line) for line in ours)
    assert any("scored 40 of 40 rows of" in line for line in ours)


def test_what_runs_leave_in_relative_paths_stays_with_the_worker(seen: Seen) -> None:
    run = ended(seen.house, started(seen.house, seen.deployed["report"]))

    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert (seen.house.workplace / "stef-report.html").is_file()


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_the_variant_deploys_to_a_pool_of_its_kind(seen: Seen, kind: str) -> None:
    template = ["--base-job-template", str(DEPLOYMENTS / "kubernetes-job-template.json")] if kind == "kubernetes" else []

    seen.house.prefect("work-pool", "create", f"stef-{kind}", "--type", kind, *template)
    seen.house.prefect("--no-prompt", "deploy", "--prefect-file", str(DEPLOYMENTS / f"prefect.{kind}.yaml"), "--all")

    there = {each["name"]: each for each in seen.house.post("/deployments/filter")}
    assert there.keys() == seen.deployed.keys()
    assert {each["work_pool_name"] for each in there.values()} == {f"stef-{kind}"}
    assert there["daily"]["job_variables"]["env"]["PREFECT_LOGGING_EXTRA_LOGGERS"] == "flows,tasks,stef_core"
