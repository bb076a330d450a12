"""Every deployment names a flow that loads for real and takes its parameters, on each kind of work pool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with Prefect, without types

from tasks.settings import PREFIX, Settings

HERE = Path(__file__).parents[1] / "deployments"
KINDS = {"process": "prefect.yaml", "docker": "prefect.docker.yaml", "kubernetes": "prefect.kubernetes.yaml"}
FILES: dict[str, Any] = {kind: yaml.safe_load((HERE / name).read_text(encoding="utf-8")) for kind, name in KINDS.items()}
DEPLOYMENTS: list[dict[str, Any]] = FILES["process"]["deployments"]
SCHEDULED = {"daily": True, "report": True, "calibration": False}  # and whether the schedule runs; people start the others


@pytest.fixture(params=DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def flow_of(deployment: dict[str, Any]) -> Any:
    from prefect.flows import load_flow_from_entrypoint

    return load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)


def job_variables(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = FILES[kind]["definitions"]["pool"]["job_variables"]
    return found


def base_job_template(kind: str) -> dict[str, Any]:
    """What Prefect makes a work pool of this kind from; for Kubernetes, ours."""
    import prefect

    if kind == "kubernetes":
        found: dict[str, Any] = json.loads((HERE / "kubernetes-job-template.json").read_text(encoding="utf-8"))
        return found
    known = Path(prefect.__file__).parent / "server/api/collections_data/views/aggregate-worker-metadata.json"
    package = {"process": "prefect", "docker": "prefect-docker"}[kind]
    template: dict[str, Any] = json.loads(known.read_text())[package][kind]["default_base_job_configuration"]
    return template


def test_entrypoint_loads_and_takes_its_parameters(deployment: dict[str, Any]) -> None:
    flow = flow_of(deployment)

    asked_for_at_the_start = {name: "x" for name in flow.parameters.required or [] if "schedules" not in deployment}
    assert set(deployment["parameters"]) <= set(flow.parameters.properties)
    flow.validate_parameters({**asked_for_at_the_start, **deployment["parameters"]})


def test_every_parameter_has_a_type_and_a_description(deployment: dict[str, Any]) -> None:
    schema = flow_of(deployment).parameters.model_dump()["properties"]

    assert schema
    for name, found in schema.items():
        kinds = found.get("anyOf", [found])
        assert all("type" in kind for kind in kinds), name
        assert len(found["description"]) > 10, name


def test_days_are_picked_as_days() -> None:
    daily, backfill = (flow_of(d).parameters.properties for d in DEPLOYMENTS if d["name"] in ("daily", "backfill"))

    days = [daily["date"], daily["to"], backfill["first"], backfill["last"]]
    assert {day["anyOf"][0]["format"] for day in days} == {"date"}
    assert (daily["delay_days"]["type"], daily["delay_days"]["default"]) == ("integer", 1)


def test_entrypoint_is_a_module_path(deployment: dict[str, Any]) -> None:
    assert ":" not in deployment["entrypoint"]
    assert deployment["entrypoint"].startswith("flows.")


def test_schedule_is_one_that_prefect_takes(deployment: dict[str, Any]) -> None:
    from prefect.client.schemas.schedules import CronSchedule

    schedules = deployment.get("schedules", [])

    active = [s.get("active", True) for s in schedules]
    assert active == [runs for name, runs in SCHEDULED.items() if name == deployment["name"]]
    assert all(CronSchedule(cron=s["cron"], timezone=s["timezone"]).timezone == "UTC" for s in schedules)


@pytest.mark.parametrize("kind", KINDS)
def test_variants_differ_in_where_they_run_alone(kind: str) -> None:
    def essence(deployment: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in deployment.items() if name != "work_pool"}

    assert FILES[kind]["pull"] == []  # the code is installed
    assert [essence(d) for d in FILES[kind]["deployments"]] == [essence(d) for d in DEPLOYMENTS]
    pool = "stef" if kind == "process" else f"stef-{kind}"
    assert {d["work_pool"]["name"] for d in FILES[kind]["deployments"]} == {pool}


@pytest.mark.parametrize("kind", KINDS)
def test_job_variables_are_those_of_the_pool(kind: str) -> None:
    known = base_job_template(kind)["variables"]["properties"]

    assert set(job_variables(kind)) <= set(known)


@pytest.mark.parametrize("kind", KINDS)
def test_environment_is_text_names_settings_and_holds_no_secret(kind: str) -> None:
    env = job_variables(kind)["env"]

    assert all(isinstance(value, str) for value in env.values())
    assert {name for name in env if name.startswith(PREFIX)} <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert env["PREFECT_LOGGING_EXTRA_LOGGERS"] == "flows,tasks,stef_core"
    assert not {f"{PREFIX}API_KEY", "OPENAI_API_KEY", "PGPASSWORD"} & set(env)
    assert "{{" not in str(env)  # Prefect would put the value of a Secret block here as it deploys


def test_template_of_kubernetes_jobs_is_prefects_own_and_asks_for_what_it_declares() -> None:
    template = base_job_template("kubernetes")

    asked = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert asked == set(template["variables"]["properties"])
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "{{ secret_name }}"}}]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {v["name"] for v in template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["volumes"]}


def test_image_is_of_this_version() -> None:
    import tomllib

    version = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    texts = {path.name: path.read_text(encoding="utf-8") for path in HERE.iterdir() if path.is_file()}
    named = {(name, found) for name, text in texts.items() for found in re.findall(r"stef-pipeline:([\w.]+)", text)}
    assert len(named) >= 4
    assert {found for _, found in named} == {version}


def test_runbook_names_every_deployment() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")

    assert all(f"`{deployment['name']}`" in text for deployment in DEPLOYMENTS)
