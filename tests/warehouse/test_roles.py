"""Least privilege on PostgreSQL: the owner makes tables, a writer scores days, a reader reads what is published."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import psycopg
import pytest

from stef_core.errors import RuleError
from tasks.report import write_report
from tasks.warehouse import connect
from tasks.warehouse.sql import ORDER
from tests.postgres_server import PostgresServer

ROLES = Path(__file__).parents[2] / "deployments" / "postgres-roles.sql"
DAY = dt.date(2026, 3, 2)
Rows = Callable[..., pl.DataFrame]


class House:
    """A database with an owner, and a login for each group."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._key = server, uuid.uuid4().hex
        self.database = f"house_{self._key}"
        self.owner, self.writer, self.reader = (
            server.url(self.database, user=f"{kind}_{self._key}") for kind in ("owner", "writer", "reader")
        )

    def build(self) -> None:
        """Make it, with the roles' grants before there are tables."""
        for kind in ("owner", "writer", "reader"):
            self._server.sql(f"CREATE ROLE {kind}_{self._key} LOGIN {'CREATEROLE' if kind == 'owner' else ''}")
        self._server.sql(f"CREATE DATABASE {self.database} OWNER owner_{self._key}")
        self.grant()
        for kind in ("writer", "reader"):
            self._server.sql(f"GRANT stef_{kind} TO {kind}_{self._key}")

    def grant(self) -> None:
        """Run the file of roles as the owner."""
        self.run(self.owner, ROLES.read_text(encoding="utf-8"))

    def run(self, url: str, sql: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def pull_down(self) -> None:
        self._server.drop(self.database)
        for kind in ("reader", "writer", "owner"):
            # the groups were granted things by the first owner that made them
            self._server.sql(f"REASSIGN OWNED BY {kind}_{self._key} TO postgres; DROP OWNED BY {kind}_{self._key}")
            self._server.sql(f"DROP ROLE {kind}_{self._key}")


@pytest.fixture
def house(postgres_server: PostgresServer) -> Iterator[House]:
    house = House(postgres_server)
    house.build()
    yield house
    house.pull_down()


def publish(url: str, rows: Rows, run_id: str = "run-1") -> None:
    with connect(url, wait_s=5) as warehouse:
        tables = {
            "query_scores": rows("query_scores", {"query_id": "a", "phi": 50.0}, run_id=run_id),
            "query_findings": rows("query_findings", {"query_id": "a"}, run_id=run_id),
        }
        warehouse.stage(run_id, DAY, tables)
        assert warehouse.staged("query_scores", run_id).height == 1
        warehouse.publish(run_id, DAY, list(tables), {"run_id": run_id})


def test_a_writer_scores_days_into_tables_that_the_owner_made(house: House, rows: Rows) -> None:
    connect(house.owner).close()

    for run_id in ("run-1", "run-2"):
        publish(house.writer, rows, run_id)
    with connect(house.writer) as warehouse:
        warehouse.record_experiment({"name": "v1"}, warehouse.read("experiment_results"))
        with warehouse.claim(DAY):
            warehouse.discard("run-2")

    with connect(house.owner, read_only=True) as owner:
        assert owner.read("query_scores")["run_id"].to_list() == ["run-2"]


def test_a_writer_makes_and_drops_nothing(house: House) -> None:
    with pytest.raises(RuleError, match="by the role that owns them: run `stef migrate` as that role"):
        connect(house.writer)

    connect(house.owner).close()

    for sql in ("DROP TABLE stef.query_scores", "CREATE TABLE stef.mine (a INT)", "TRUNCATE stef.query_scores"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            house.run(house.writer, sql)


def test_a_reader_reads_every_table_and_view_and_the_report(house: House, rows: Rows, tmp_path: Path) -> None:
    connect(house.owner).close()
    publish(house.writer, rows)

    with connect(house.reader, read_only=True) as reader:
        heights = {name: reader.read(name).height for name in ORDER}
    write_report(house.reader, tmp_path / "report.html")

    assert heights["query_scores"] == heights["v_worst_queries"] == heights["scoring_runs"] == 1
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_reader_writes_nothing_and_sees_no_staging(house: House, rows: Rows) -> None:
    connect(house.owner).close()
    with connect(house.writer) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})

    with connect(house.reader) as reader:
        attempts: list[Callable[[], object]] = [
            lambda: reader.stage("run-2", DAY, {"query_scores": rows("query_scores", {"query_id": "b"}, run_id="run-2")}),
            lambda: reader.record_run({"run_id": "run-2"}),
            lambda: reader.staged("query_scores", "run-1"),
            lambda: reader.query("SELECT * FROM staging.manifest"),
        ]
        for attempt in attempts:
            with pytest.raises(RuleError, match="permission denied"):
                attempt()
        assert reader.read("scoring_runs").is_empty()


def test_what_the_owner_makes_later_is_granted_too(house: House, rows: Rows) -> None:
    connect(house.owner).close()
    house.run(house.owner, "UPDATE stef.schema_migrations SET checksum = 'old' WHERE version = 0")
    house.run(house.owner, "CREATE TABLE stef.later (a BIGINT)")

    connect(house.owner).close()  # makes the views anew

    publish(house.writer, rows)
    with connect(house.reader, read_only=True) as reader:
        assert reader.read("v_worst_queries").height == 1
        assert reader.query("SELECT * FROM later").is_empty()
    house.run(house.writer, "INSERT INTO stef.later VALUES (1)")


def test_the_file_of_roles_grants_what_was_made_before_it_and_may_run_again(
    postgres_server: PostgresServer, rows: Rows, house: House
) -> None:
    connect(house.owner).close()
    house.run(house.owner, "REVOKE ALL ON ALL TABLES IN SCHEMA stef, stef_staging FROM stef_writer, stef_reader")
    with pytest.raises(RuleError, match="permission denied"):
        connect(house.reader, read_only=True)

    for _ in range(2):
        house.grant()

    publish(house.writer, rows)
    with connect(house.reader, read_only=True) as reader:
        assert reader.read("query_scores").height == 1
