"""A backfill does again what a change touches, and ends with the tables of a run that scored everything anew."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows import cli
from tasks.warehouse import connect
from tests.logs import DAY, NOON, table, write
from tests.openai_server import OpenAIServer, Reply, answer, serving

pytestmark = pytest.mark.usefixtures("prefect_server")
NEXT = DAY + dt.timedelta(days=1)
ROWS = 30
PER_RUN = ("run_id", "scored_at")
TABLES = ("query_scores", "query_findings", "agent_daily", "agent_alerts", "log_catalogue")


def day_of(day: dt.date = DAY, **columns: Any) -> Any:
    """Every tenth answer carries a tenant that nobody asked for."""
    base: dict[str, Any] = {
        "user_question": [f"How many orders over {n} euros are open?" for n in range(ROWS)],
        "generated_sql": [
            f"SELECT COUNT(*) FROM orders WHERE amount > {n} AND status = 'open'"
            + (" AND tenant_id = 7" if n % 10 == 0 else "")
            for n in range(ROWS)
        ],
        "asked_at": [NOON + (day - DAY)] * ROWS,
        "agent_id": ["clerk", "scout"] * (ROWS // 2),
    }
    return table(ROWS, **base | columns)


class House:
    """A log of two days, rules that can change, and a warehouse."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        self.logs, self.rules = root / "logs", root / "rules"
        self.url = self.warehouse("w")
        self.rules.mkdir()
        self.rule()
        for day in (DAY, NEXT):
            write(self.logs, day_of(day), day=day)

    def warehouse(self, name: str) -> str:
        return f"duckdb:///{self.root / name}.duckdb"

    def rule(self, **fields: Any) -> None:
        (self.rules / "shop.json").write_text(json.dumps({"app_id": "shop", **fields}))

    def run(self, command: str, *arguments: str, url: str | None = None) -> tuple[int, str, str]:
        given = ["--logs", str(self.logs), "--warehouse", url or self.url, "--rules", str(self.rules), *arguments]
        code = cli.run([command, *given])
        out, err = self.capsys.readouterr()
        return code, out, err

    def score(self, url: str | None = None, *arguments: str) -> None:
        code, out, err = self.run("score", "--date", str(DAY), "--to", str(NEXT), "--quiet", *arguments, url=url)
        assert code == 0, (out, err)

    def backfill(self, *arguments: str) -> dict[str, Any]:
        code, out, err = self.run("backfill", "--json", *arguments)
        assert code == 0, (out, err)
        told = json.loads(out)
        assert isinstance(told, dict)
        return told

    def read(self, name: str, url: str | None = None) -> pl.DataFrame:
        with connect(url or self.url, read_only=True) as store:
            return store.read(name)

    def tables(self, url: str | None = None) -> dict[str, pl.DataFrame]:
        return {name: self.read(name, url).drop(PER_RUN, strict=False) for name in TABLES}

    def equals_scoring_anew(self, *arguments: str) -> None:
        """The warehouse is what scoring everything under the rules of now gives."""
        anew = self.warehouse("anew")
        self.score(anew, *arguments)
        for name, frame in self.tables(anew).items():
            assert frame.equals(self.tables()[name]), name


@pytest.fixture(autouse=True)
def _several_parts_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("stef_core.backfill", "tasks.backfill"):
        monkeypatch.setattr(f"{module}.ROWS_AT_ONCE", 7)


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> House:
    return House(tmp_path, capsys)


def test_a_change_of_rules_scores_only_the_rows_it_bears_on(house: House) -> None:
    house.score()
    before = house.read("query_scores")
    house.rule(benign_filters=[{"column": "tenant_id", "op": "=", "value": "*"}])

    told = house.backfill()

    assert [(day["rows"], day["redone"], day["causes"]) for day in told["days"]] == [(ROWS, 3, {"rules": 3})] * 2
    changes = house.read("score_changes")
    assert changes.height == 6
    assert set(changes["query_id"]) == {"q0", "q10", "q20"}
    assert json.loads(changes["changed"][0]) == ['rules: benign_filters: tenant_id: added tenant_id = "*"']
    assert (changes["new_phi"] > changes["old_phi"]).all()
    moved = {row["agent_id"]: row for row in told["days"][0]["moved"]}
    assert (moved["clerk"]["moved"], moved["clerk"]["up"], moved["scout"]["moved"]) == (3, 3, 0)
    kept = house.read("query_scores").join(changes, on=["dt", "query_id"], how="anti")
    assert kept["scored_at"].to_list() == before.join(changes, on=["dt", "query_id"], how="anti")["scored_at"].to_list()
    assert house.read("scoring_runs")["kind"].to_list() == ["score"] * 2 + ["backfill"] * 2
    house.equals_scoring_anew()


def test_nothing_changed_writes_nothing(house: House) -> None:
    house.score()
    runs = house.read("scoring_runs").height

    told = house.backfill()

    assert [(day["redone"], day["run_id"]) for day in told["days"]] == [(0, None)] * 2
    assert house.read("scoring_runs").height == runs


def test_a_change_that_bears_on_no_row_renews_the_version_alone(house: House) -> None:
    house.score()
    house.rule(critical_filters=["region_of_the_moon"])

    told = house.backfill()

    assert [day["redone"] for day in told["days"]] == [0, 0]
    assert house.read("score_changes").is_empty()
    house.equals_scoring_anew()


def test_rows_that_came_changed_or_went_are_told_apart(house: House) -> None:
    house.score()
    log = pl.from_arrow(day_of())
    assert isinstance(log, pl.DataFrame)
    other = pl.when(pl.col("query_id") == "q4").then(pl.lit("SELECT 1")).otherwise(pl.col("generated_sql"))
    late = log.filter(pl.col("query_id") == "q5").with_columns(pl.lit("late").alias("query_id"))
    write(
        house.logs,
        pl.concat([log.filter(pl.col("query_id") != "q6").with_columns(other.alias("generated_sql")), late]).to_arrow(),
    )

    told = house.backfill("--from", str(DAY), "--to", str(DAY))

    causes = told["days"][0]["causes"]
    assert (causes["input"], causes["new"]) == (1, 1)
    ids = house.read("query_scores").filter(pl.col("dt") == DAY)["query_id"]
    assert ("late" in ids, "q6" in ids, len(ids)) == (True, False, ROWS)
    house.backfill()  # the day after looks back at the day that changed
    house.equals_scoring_anew()


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    return answer({"question": {"projections": [], "aggregations": [], "filters": [], "group_by": []}})


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    with serving(model_answer) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        monkeypatch.setenv("STEF_CACHE", str(tmp_path / "answers.sqlite"))
        monkeypatch.setenv("STEF_PRICES", '{"m": {"input": 1000, "output": 0}}')
        yield server


def test_a_backfill_asks_a_model_only_about_rows_that_are_touched(house: House, endpoint: OpenAIServer) -> None:
    model = ("--judge", "openai", "--model", "m")
    house.score(None, *model)
    asked = endpoint.requests
    house.rule(benign_filters=[{"column": "tenant_id", "op": "=", "value": "*"}])

    planned = house.backfill("--dry-run", *model)
    asked_by_plan = endpoint.requests - asked
    house.backfill(*model)

    assert asked_by_plan == 0
    estimates = [day["estimate"] for day in planned["days"]]
    assert [e["calls"] for e in estimates] == [3, 3]  # both days hold the same rows, and are planned one by one
    assert all(e["cost"] > 0 for e in estimates)
    assert endpoint.requests - asked == 3
    house.equals_scoring_anew(*model)


def test_another_judge_scores_every_row_again(house: House, endpoint: OpenAIServer) -> None:
    house.score()

    told = house.backfill("--judge", "openai", "--model", "m")

    assert [day["causes"].get("judge") for day in told["days"]] == [ROWS, ROWS]
    assert house.read("query_scores")["judge"].unique().to_list() == ["openai"]
    assert json.loads(house.read("score_changes")["changed"][0])[0] == "judge"


def test_a_day_that_fails_its_gate_stays_as_it_was(house: House) -> None:
    house.score()
    before = house.tables()
    house.rule(no_sql="exclude")
    write(house.logs, day_of(generated_sql=[None] * ROWS))

    code, _, err = house.run("backfill", "--from", str(DAY), "--to", str(DAY))

    assert code == 1
    assert "coverage of agent clerk" in err
    assert all(frame.equals(before[name]) for name, frame in house.tables().items())


def test_an_empty_warehouse_has_nothing_to_score_again(house: House) -> None:
    code, _, err = house.run("backfill")

    assert code == 2
    assert "nothing is published yet" in err


def test_the_terminal_says_what_would_be_done_and_what_moved(house: House) -> None:
    house.score()
    house.rule(benign_filters=[{"column": "tenant_id", "op": "=", "value": "*"}])

    _, planned, _ = house.run("backfill", "--dry-run")
    assert house.read("score_changes").is_empty()
    code, done, _ = house.run("backfill")

    assert code == 0
    assert "rules 6" in planned
    assert "Nothing was written" in planned
    assert "6 of 60 rows of 2 days scored anew; 2 days written." in done
    assert max(map(len, (planned + done).splitlines())) <= 100


def test_rules_diff_names_the_rows_a_change_can_touch(house: House) -> None:
    house.score()
    old = house.root / "old"
    old.mkdir()
    (old / "shop.json").write_text((house.rules / "shop.json").read_text())
    house.rule(benign_filters=[{"column": "tenant_id", "op": "=", "value": "*"}], safety_limit_min=10)

    code = cli.run(["rules", "diff", str(old), str(house.rules), "--warehouse", house.url, "--json"])
    told = json.loads(house.capsys.readouterr()[0])

    assert code == 0
    assert told["applications"] == [
        {"app_id": "shop", "changes": ["safety_limit_min: 1000 → 10", 'benign_filters: tenant_id: added tenant_id = "*"']}
    ]
    assert (told["rows"], told["touched"], told["unknown"]) == (60, 6, 0)
    assert told["agents"][0]["examples"][:2] == [f"{DAY} q0", f"{DAY} q10"]
    assert [cause["rows"] for cause in told["causes"]] == [6]
