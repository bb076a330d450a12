"""Days that were missed are found and scored; one day is scored by one run at a time."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows import cli
from tasks.warehouse import connect
from tests.logs import DAY, NOON, table, write

pytestmark = pytest.mark.usefixtures("prefect_server")
ROWS = 30


def day_after(days: int) -> dt.date:
    return DAY + dt.timedelta(days=days)


class House:
    """A log of some days, and a warehouse."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.logs, self.url, self.capsys = root / "logs", f"duckdb:///{root / 'w.duckdb'}", capsys

    def log(self, days: int, **columns: Any) -> None:
        shifted = [NOON + dt.timedelta(days=days)] * ROWS
        write(self.logs, table(ROWS, asked_at=shifted, **columns), day=day_after(days))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = cli.run(["score", "--logs", str(self.logs), "--warehouse", self.url, *arguments])
        out, err = self.capsys.readouterr()
        return code, out, err

    def missing(self, to: int) -> tuple[int, list[str], str]:
        """Exit code, the days that were scored, and what was told."""
        code, out, err = self.run("--missing", "--date", str(DAY), "--to", str(day_after(to)), "--json")
        return code, [run["dt"] for run in json.loads(out)["runs"]], err

    def read(self, name: str) -> pl.DataFrame:
        with connect(self.url, read_only=True) as store:
            return store.read(name)


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> House:
    return House(tmp_path, capsys)


def test_missing_failed_and_changed_days_are_scored_oldest_first_and_no_others(house: House) -> None:
    for days in (0, 2, 3):
        house.log(days)
    assert house.run("--date", str(DAY), "--to", str(day_after(3)), "--quiet")[0] == 2  # day 1 has no log yet
    house.log(1)  # failed before
    house.log(2, user_question=["How many orders are open?"] * ROWS)  # another file than the one scored
    house.log(4)  # never tried

    code, scored, _ = house.missing(to=6)

    assert (code, scored) == (0, [str(day_after(n)) for n in (1, 2, 4)])
    assert house.read("query_scores")["dt"].n_unique() == 5
    assert house.missing(to=6)[:2] == (0, [])


def test_a_late_file_scores_its_day_again(house: House) -> None:
    house.log(0)
    house.run("--date", str(DAY), "--quiet")
    late = table(5, query_id=[f"late{n}" for n in range(5)], asked_at=[NOON] * 5)
    write(house.logs, table(ROWS, asked_at=[NOON] * ROWS), late)

    _, scored, _ = house.missing(to=0)

    assert scored == [str(DAY)]
    assert house.read("query_scores").height == ROWS + 5


def test_without_a_date_as_many_days_are_looked_at_as_the_settings_say(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for days in range(5):
        house.log(days)
    monkeypatch.setenv("STEF_CATCH_UP_DAYS", "2")

    code, _, err = house.run("--missing", "--to", str(day_after(4)))

    assert code == 0
    assert f"2 days to score: {day_after(3)} (missing), {day_after(4)} (missing)" in err
    assert house.read("agent_daily")["dt"].unique().sort().to_list() == [day_after(3), day_after(4)]
    assert "no day is missing" in house.run("--missing", "--to", str(day_after(4)))[2]


HOLD = """
import sys, datetime as dt
from tasks.warehouse import connect
with connect(sys.argv[1]) as store:
    claim = store.claim(dt.date.fromisoformat(sys.argv[2]))
with claim:
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_day_that_another_run_holds_is_left_to_it(house: House) -> None:
    house.log(0)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", HOLD, house.url, str(DAY)]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        code, _, err = house.run("--date", str(DAY), "--quiet")
        holder.kill()
    assert code == 3
    assert str(DAY) in err
    assert house.read("scoring_runs").is_empty()  # who left has nothing to record

    assert house.run("--date", str(DAY), "--quiet")[0] == 0  # the hold ended with its holder
