"""The compose file and the Dockerfile hold together: the form of the Compose specification, and names that lead somewhere.

Nothing here starts a container; that the images build and run is for a machine with Docker.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with Prefect, without types

from tasks.settings import PREFIX, Settings

HERE = Path(__file__).parents[2] / "deployments"
TEXT = (HERE / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (HERE / ".env.example").read_text(encoding="utf-8")
DOCKERFILE = (HERE / "Dockerfile").read_text(encoding="utf-8")
# of the Compose specification, those that are used
TOP = {"name", "services", "volumes"}
SERVICE_KEYS = {
    "image",
    "build",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "ports",
    "profiles",
    "restart",
    "shm_size",
    "stop_grace_period",
    "volumes",
}
ONE_SHOT = {"migrate", "deploy"}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SERVICES[request.param]


def environment(name: str) -> dict[str, str]:
    found: dict[str, str] = SERVICES[name]["environment"]
    return found


def test_keys_are_those_of_the_specification(service: dict[str, Any]) -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == TOP
    assert set(service) <= SERVICE_KEYS
    assert "image" in service or "build" in service
    assert all(isinstance(value, str) for value in service["environment"].values())


def test_what_stays_is_watched_and_started_again() -> None:
    for name, service in SERVICES.items():
        if name in ONE_SHOT:
            assert service["restart"] == "on-failure"
        else:
            assert service["restart"] == "unless-stopped", name
            assert {"test", "interval", "timeout", "retries"} <= set(service["healthcheck"]), name


def test_services_wait_for_what_can_come(service: dict[str, Any]) -> None:
    for name, how in service.get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[name]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert name in ONE_SHOT


def test_volumes_are_declared_and_mounted_files_are_there(service: dict[str, Any]) -> None:
    for volume in service.get("volumes", []):
        source = re.sub(r"\$\{[^}]*\}", "$", volume).split(":")[0]
        if source.startswith("./"):
            assert (HERE / source).is_file()
        elif source != "$":
            assert source in COMPOSE["volumes"]


def test_ports_are_those_of_this_machine_alone(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_variables_are_those_of_the_example_and_no_secret_stands_in_the_file() -> None:
    used = set(re.findall(r"\$\{(\w+)", TEXT))
    told = set(re.findall(r"^(\w+)=", EXAMPLE, flags=re.MULTILINE))

    assert used == told
    secret = re.compile(r"PASSWORD|API_KEY|SECRET")
    values = {value for s in SERVICES.values() for name, value in s["environment"].items() if secret.search(name)}
    assert all(value.startswith("${") for value in values)
    assert not re.findall(r"^\w*(?:PASSWORD|KEY)\w*=.+", EXAMPLE, flags=re.MULTILINE)
    assert "deployments/.env" in (HERE.parent / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_settings_of_the_worker_are_settings() -> None:
    for name in ("migrate", "worker"):
        named = {variable for variable in environment(name) if variable.startswith(PREFIX)}
        assert named <= {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}


def test_telemetry_is_off_wherever_prefect_runs() -> None:
    for name in ("prefect", "deploy", "worker"):
        assert environment(name)["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert environment(name)["DO_NOT_TRACK"] == "1"
    assert "GX_ANALYTICS_ENABLED=false" in DOCKERFILE


def test_prefect_reads_its_database_from_these_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import Settings as PrefectSettings

    for name, value in environment("prefect").items():
        monkeypatch.setenv(name, value if not value.startswith("${") else "p@ss/word")

    found = PrefectSettings().server.database.connection_url

    assert found is not None
    assert found.get_secret_value() == "postgresql+asyncpg://prefect:p%40ss%2Fword@prefect-db:5432/prefect"


def test_each_role_of_the_warehouse_has_its_own_password_and_may_what_it_must() -> None:
    logins = (HERE / "postgres-logins.sh").read_text(encoding="utf-8")

    users = {
        name: re.findall(r"//(\w+)@", environment(name)["STEF_WAREHOUSE"])[0] for name in ("migrate", "worker", "superset")
    }
    assert users == {"migrate": "stef_owner", "worker": "stef_worker", "superset": "bi"}
    assert len({environment(name)["PGPASSWORD"] for name in users}) == 3
    assert "GRANT stef_writer TO stef_worker" in logins
    assert "GRANT stef_reader TO bi" in logins


@pytest.mark.parametrize("name", ["postgres-logins.sh"])
def test_shell_scripts_are_shell(name: str) -> None:
    shell = shutil.which("sh")
    assert shell is not None

    assert subprocess.run([shell, "-n", str(HERE / name)], check=False).returncode == 0


def test_image_copies_what_there_is_and_drops_its_rights() -> None:
    copied = [
        source for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, flags=re.MULTILINE) for source in line.split()[:-1]
    ]
    ignored = (HERE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert copied
    assert all((HERE.parent / source).exists() for source in copied)
    assert {f"!{source}" for source in copied} <= set(ignored)
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE) == ["python:3.12-slim"] * 2
    assert DOCKERFILE.index("USER 10001") > DOCKERFILE.index("pip install")
    assert "://" not in DOCKERFILE
