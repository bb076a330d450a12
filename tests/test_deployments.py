"""Every deployment names a flow that loads for real and takes its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with Prefect, without types

HERE = Path(__file__).parent.parent / "deployments"
FILE = yaml.safe_load((HERE / "prefect.yaml").read_text(encoding="utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = FILE["deployments"]
SCHEDULED = {"daily", "report"}  # the others want to know what to work on, so a person starts them


@pytest.fixture(params=DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_entrypoint_loads_and_takes_its_parameters(deployment: dict[str, Any]) -> None:
    from prefect.flows import load_flow_from_entrypoint

    flow: Any = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)

    asked_for_at_the_start = {name: "x" for name in flow.parameters.required or [] if not deployment["schedules"]}
    assert set(deployment["parameters"]) <= set(flow.parameters.properties)
    flow.validate_parameters({**asked_for_at_the_start, **deployment["parameters"]})


def test_entrypoint_is_a_module_path(deployment: dict[str, Any]) -> None:
    assert ":" not in deployment["entrypoint"]
    assert deployment["entrypoint"].startswith("flows.")


def test_schedule_is_one_that_prefect_takes(deployment: dict[str, Any]) -> None:
    from prefect.client.schemas.schedules import CronSchedule

    schedules = deployment["schedules"]

    assert len(schedules) == (1 if deployment["name"] in SCHEDULED else 0)
    assert all(CronSchedule(cron=s["cron"], timezone=s["timezone"]).timezone == "UTC" for s in schedules)


def test_code_is_installed_and_not_pulled() -> None:
    assert FILE["pull"] == []
    assert {deployment["work_pool"]["name"] for deployment in DEPLOYMENTS} == {"stef"}


def test_parameters_of_the_daily_flow_are_typed_and_documented() -> None:
    from flows.daily_scoring import daily_scoring

    properties = daily_scoring.parameters.properties

    assert properties["date"]["anyOf"][0]["format"] == "date"
    assert all(found.get("description") for found in properties.values())


def test_runbook_names_every_deployment() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")

    assert all(f"`{deployment['name']}`" in text for deployment in DEPLOYMENTS)
