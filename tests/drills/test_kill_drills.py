"""Runs over three days that are killed at random moments: a restart gives the tables of a run that was never killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drills.llm_days import Runs, write_day
from tests.logs import DAY
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.drill
DAYS, ROWS, KILLS = 3, 1200, 15


Urls = Callable[[str], str]


@pytest.fixture(params=["duckdb", "postgresql"])
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    """An empty warehouse of one kind for each name."""
    if request.param == "duckdb":
        return lambda name: f"duckdb:///{tmp_path / name}.duckdb"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda name: server(f"drill_{name}")


def test_kills_at_random_moments_leave_the_tables_of_an_undisturbed_run(url_of: Urls, tmp_path: Path) -> None:
    last = str(DAY.replace(day=DAY.day + DAYS - 1))
    for number in range(DAYS):
        write_day(tmp_path / "logs", ROWS, DAY.replace(day=DAY.day + number))
    chance, kills, rounds = random.Random(20261130), 0, 0

    def runs(name: str) -> Runs:
        made = Runs(tmp_path / name, tmp_path / "logs", "http://127.0.0.1:9/v1", judge="symbolic", processes=2)
        made.url = url_of(name)
        return made

    whole = runs("whole")
    assert whole.finish("--to", last)[0] == 0
    expected = whole.tables()
    while kills < KILLS:  # a run that ended before its kill ends a round, and the next begins with an empty warehouse
        rounds += 1
        killed = runs(f"killed_{rounds}")
        while kills < KILLS and killed.kill_after(chance.uniform(3.0, 20.0), "--to", last, "--missing"):
            kills += 1
        code, said = killed.finish("--to", last, "--missing")
        assert code == 0, said
        tables = killed.tables()
        assert all(frame.equals(tables[name]) for name, frame in expected.items())
    print(f"\n{kills} kills in {rounds} rounds")
