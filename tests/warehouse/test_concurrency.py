"""Several processes at one warehouse: what readers see while a day is published, and what a killed publisher leaves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from tasks.warehouse import connect
from tasks.warehouse.sql import migrations
from tests.processes import other_process

DAY = dt.date(2026, 3, 2)
Rows = Callable[..., pl.DataFrame]
SIZES = (300, 900)
SEEN = """
    SELECT
        (SELECT count(*) FROM query_scores) AS scores,
        (SELECT count(*) FROM query_findings) AS findings,
        (SELECT max(rows) FROM agent_daily) AS daily,
        (SELECT count(DISTINCT run_id) FROM query_scores) AS runs
"""
PUBLISH = """
    import datetime as dt, sys
    import polars as pl
    from stef_core.frames import TABLES, frame_of
    from tasks.warehouse import connect

    def publish(warehouse, run, size):
        day = {"dt": dt.date(2026, 3, 2), "agent_id": "ann", "run_id": run}
        score = frame_of([day | {"query_id": "", "status": "scored"}], TABLES["query_scores"])
        finding = frame_of([day | {"query_id": "", "ordinal": 0, "code": "missing_filter"}], TABLES["query_findings"])
        daily = day | {"app_id": "*", "rows": size, "scored": size, "coverage": 1.0}
        numbered = pl.int_range(size).cast(pl.String)
        tables = {
            "query_scores": pl.concat([score] * size).with_columns(query_id=numbered),
            "query_findings": pl.concat([finding] * size).with_columns(query_id=numbered),
            "agent_daily": frame_of([daily], TABLES["agent_daily"]),
        }
        warehouse.stage(run, day["dt"], tables)
        warehouse.publish(run, day["dt"], list(tables), {"run_id": run, "outcome": "published"})
"""
ALTERNATE = (
    PUBLISH
    + """
    with connect(sys.argv[1]) as warehouse:
        for number in range(1000):
            publish(warehouse, f"run-{number:03}", (300, 900)[number % 2])
            if number == 0:
                print("ready", flush=True)
"""
)
STOP_INSIDE = (
    PUBLISH
    + """
    import time
    with connect(sys.argv[1]) as warehouse:
        publish(warehouse, "run-old", 300)

        def stop(row):
            print("ready", flush=True)
            time.sleep(120)

        warehouse._upsert_run = stop  # the last thing within the transaction
        publish(warehouse, "run-new", 900)
"""
)


def test_a_reader_never_sees_a_part_of_a_day_during_20_publishes(url: str, published_url: str) -> None:
    seen: list[tuple[int, ...]] = []
    runs = {"run-000"}

    with other_process(ALTERNATE, url) as writer:
        while max(runs) < "run-020" or len(seen) < 100:
            with connect(published_url, read_only=True, wait_s=5) as reader:
                seen.append(reader.query(SEEN).row(0))
                runs |= set(reader.query("SELECT max(run_id) AS run FROM query_scores")["run"])
            assert writer.poll() is None

    assert set(seen) == {(size, size, size, 1) for size in SIZES}


def test_a_publisher_that_is_killed_inside_its_transaction_leaves_the_old_day_whole(url: str, published_url: str) -> None:
    with other_process(STOP_INSIDE, url) as writer:
        with connect(published_url, read_only=True, wait_s=5) as reader:
            assert reader.query(SEEN).row(0) == (300, 300, 300, 1)
        writer.kill()
        writer.wait()

    with connect(url, wait_s=10) as warehouse:
        assert warehouse.query(SEEN).row(0) == (300, 300, 300, 1)
        assert warehouse.read("query_scores")["run_id"].unique().to_list() == ["run-old"]
        assert warehouse.read("scoring_runs")["run_id"].to_list() == ["run-old"]
        assert warehouse.staged("query_scores", "run-new").height == 900

        warehouse.publish("run-new", DAY, ["query_scores", "query_findings", "agent_daily"], {"run_id": "run-new"})

        assert warehouse.query(SEEN).row(0) == (900, 900, 900, 1)
        assert warehouse.staged("query_scores", "run-new").is_empty()


def test_workers_that_start_at_once_make_the_tables_once(url: str) -> None:
    def start(number: int) -> list[str]:
        with connect(url, wait_s=60) as warehouse:
            warehouse.record_run({"run_id": f"run-{number}"})
            return warehouse.query("SELECT name FROM schema_migrations ORDER BY version")["name"].to_list()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(start, range(6)))

    assert found == [["views", *(name for _, name, _ in migrations())]] * 6
    with connect(url, read_only=True) as reader:
        assert reader.read("scoring_runs").height == 6


def test_what_is_read_within_a_snapshot_is_of_one_moment(url: str, published_url: str, rows: Rows) -> None:
    with connect(url) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})
        warehouse.publish("run-1", DAY, ["query_scores"])

    with connect(published_url, read_only=True) as reader, reader.snapshot():
        assert reader.read("query_scores")["query_id"].to_list() == ["a"]
        with connect(url) as warehouse:
            later = rows("query_scores", {"query_id": "b"}, run_id="run-2", day=DAY + dt.timedelta(days=1))
            warehouse.stage("run-2", DAY + dt.timedelta(days=1), {"query_scores": later})
            warehouse.publish("run-2", DAY + dt.timedelta(days=1), ["query_scores"])

        assert reader.days() == [DAY]
        assert reader.query("SELECT query_id FROM query_scores")["query_id"].to_list() == ["a"]
        assert reader.read("v_worst_queries")["query_id"].to_list() == ["a"]

    with connect(published_url, read_only=True) as reader:
        assert len(reader.days()) == 2
