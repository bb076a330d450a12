"""Runs over three days that are killed at random moments: a restart gives the tables of a run that was never killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.llm_days import Runs, write_day
from tests.logs import DAY
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.drill
DAYS, ROWS, KILLS = 3, 1200, 15


@pytest.fixture(params=["duckdb", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty warehouses of one kind."""
    if request.param == "duckdb":
        yield f"duckdb:///{tmp_path / 'whole'}.duckdb", f"duckdb:///{tmp_path / 'killed'}.duckdb"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server("drill_whole"), server("drill_killed")


def test_fifteen_kills_at_random_moments_leave_the_tables_of_an_undisturbed_run(urls: tuple[str, str], tmp_path: Path) -> None:
    last = DAY.replace(day=DAY.day + DAYS - 1)
    for number in range(DAYS):
        write_day(tmp_path / "logs", ROWS, DAY.replace(day=DAY.day + number))
    whole, killed = (
        Runs(tmp_path / name, tmp_path / "logs", "http://127.0.0.1:9/v1", judge="symbolic", warehouse=url)
        for name, url in zip(("a", "b"), urls, strict=True)
    )
    whole.url, killed.url = urls
    assert whole.finish("--to", str(last))[0] == 0
    chance = random.Random(20261130)

    alive = [killed.kill_after(chance.uniform(3.0, 25.0), "--to", str(last), "--missing") for _ in range(KILLS)]
    code, said = killed.finish("--to", str(last), "--missing")

    assert code == 0, said
    print(f"\nkilled while running {sum(alive)} of {KILLS}")
    for name, frame in whole.tables().items():
        assert frame.equals(killed.tables()[name]), name
