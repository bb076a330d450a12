"""The daily flow from the command line down: what is published, what is refused, and in which words."""

from __future__ import annotations

import datetime as dt
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from flows import cli
from stef_core.frames import AGENT_DAILY, QUERY_SCORES
from stef_core.trailing import input_counts
from tasks.publish import read_window
from tasks.settings import load_settings
from tasks.warehouse import connect
from tests.logs import DAY, NOON, table, write
from tests.openai_server import DROP, REFUSAL, Reply, answer, serving

pytestmark = pytest.mark.usefixtures("prefect_server")
NEXT = DAY + dt.timedelta(days=1)
ROWS = 40  # one unscored row of an agent leaves its coverage at 0.975
PER_RUN = ("run_id", "scored_at")


class House:
    """A query log, a warehouse and the command line over them, in a folder of their own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.logs, self.capsys = root, root / "logs", capsys
        self.url = f"duckdb:///{root / 'w.duckdb'}"

    def score(self, *arguments: str, date: dt.date = DAY) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of ``stef score``."""
        given = ["--logs", str(self.logs), "--date", str(date), "--warehouse", self.url, *arguments]
        code = cli.run(["score", *given])
        out, err = self.capsys.readouterr()
        return code, out, err

    def refused(self, *arguments: str, code: int) -> str:
        """The one line that a refused run leaves on stderr."""
        got, out, err = self.score("--quiet", *arguments)
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert got == code, (got, out, err)
        assert len(errors) == len(err.splitlines()) == 1, err
        return errors[0].removeprefix("error: ")

    def read(self, name: str) -> pl.DataFrame:
        with connect(self.url, read_only=True) as store:
            return store.read(name)

    def staged(self, run_id: str) -> pl.DataFrame:
        with connect(self.url, read_only=True) as store:
            return store.staged("query_scores", run_id)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Everything published, without what differs from run to run."""
        names = ("query_scores", "query_findings", "agent_daily", "agent_alerts")
        return {name: (frame := self.read(name)).drop(set(PER_RUN) & set(frame.columns)) for name in names}


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.chdir(tmp_path)
    return House(tmp_path, capsys)


def day_of(rows: int = ROWS, /, *, day: dt.date = DAY, **columns: Any) -> pa.Table:
    moment = dt.datetime.combine(day, dt.time(12), dt.UTC)
    return table(rows, asked_at=pa.array([moment] * rows, pa.timestamp("us", "UTC")), **columns)


def test_a_day_is_published_whole(house: House) -> None:
    write(house.logs, day_of(user_feedback=[True] * ROWS, session=["s"] * ROWS))

    code, out, _ = house.score()

    assert code == 0
    scores, (run,) = house.read("query_scores"), house.read("scoring_runs").to_dicts()
    assert scores.schema == QUERY_SCORES
    assert sorted(scores["query_id"]) == sorted(f"q{i}" for i in range(ROWS))
    assert scores["status"].unique().to_list() == ["scored"]
    assert json.loads(scores["extra"][0]) == {"session": "s"}
    assert (run["outcome"], run["rows_in"], run["rows_scored"], run["rows_unscored"]) == ("published", ROWS, ROWS, 0)
    assert {gate["gate"] for gate in json.loads(run["gates"])} >= {"query_log", "scores", "agent_daily"}
    assert json.loads(run["files"])[0]["path"].endswith("part-0.parquet")
    daily = house.read("agent_daily")
    assert daily.schema == AGENT_DAILY
    assert daily.filter(pl.col("app_id") == "*").select("agent_id", "rows", "coverage").rows() == [("clerk", ROWS, 1.0)]
    assert "clerk" in out
    assert max(map(len, out.splitlines())) <= 100


def test_scoring_a_day_twice_leaves_identical_tables(house: House) -> None:
    questions = [f"How many orders are there in {1990 + i}?" for i in range(ROWS)]
    answers = [f"SELECT COUNT(*) FROM orders WHERE year = {1990 + i % 7}" for i in range(ROWS)]
    write(house.logs, day_of(user_question=questions, generated_sql=answers))
    house.score()
    first = house.tables()

    house.score()

    second = house.tables()
    for name, frame in first.items():
        assert frame.equals(second[name]), name
    assert house.read("scoring_runs").height == 2


def test_batches_of_any_size_give_the_same_tables(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    write(house.logs, day_of(generated_sql=[f"SELECT {i} FROM t" for i in range(ROWS)]))
    house.score()
    whole = house.tables()
    monkeypatch.setenv("STEF_BATCH_SIZE", "7")

    house.score()

    assert all(frame.equals(whole[name]) for name, frame in house.tables().items())


def test_absent_partition_is_refused_and_nothing_is_published(house: House) -> None:
    write(house.logs, day_of(day=NEXT), day=NEXT)

    message = house.refused(code=2)

    assert message == f"{house.logs}/dt=2026-03-02: no such partition; partitions there: 2026-03-03 to 2026-03-03"
    assert house.read("query_scores").is_empty()
    assert house.read("scoring_runs").select("outcome", "message").rows() == [("failed", message)]


def test_file_cut_in_half_is_refused_and_what_was_published_stays(house: House) -> None:
    file = write(house.logs, day_of()) / "part-0.parquet"
    house.score()
    before = house.tables()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    message = house.refused(code=2)

    assert message.startswith(f"{file}: no readable Parquet file")
    assert all(frame.equals(before[name]) for name, frame in house.tables().items())


def test_missing_required_column_is_refused(house: House) -> None:
    file = write(house.logs, day_of(generated_sql=None)) / "part-0.parquet"

    assert house.refused(code=2).startswith(f"{file}: column generated_sql is missing")
    assert house.read("query_scores").is_empty()


def test_null_question_leaves_its_row_unscored_with_the_reason_and_the_day_goes_on(house: House) -> None:
    write(house.logs, day_of(user_question=[None] + ["How many orders are there?"] * (ROWS - 1)))

    code, _, _ = house.score()

    assert code == 0
    unscored = house.read("query_scores").filter(pl.col("status") == "unscored")
    assert unscored.select("query_id", "reason", "phi").rows() == [("q0", "question_missing", None)]
    assert house.read("query_scores").height == ROWS


def test_unknown_application_gets_default_rules_and_is_reported_once(house: House) -> None:
    write(house.logs, day_of(app_id=["shop", "crm"] * (ROWS // 2)))

    code, out, _ = house.score()

    note = "applications without rules of their own, scored by the default rules: crm, shop"
    assert code == 0
    assert json.loads(house.read("scoring_runs")["notes"][0]) == [note]
    assert " ".join(out.split()).count(note) == 1
    assert house.read("query_scores")["rules_app"].unique().to_list() == ["default"]


def test_row_that_the_evaluator_fails_on_costs_neither_its_batch_nor_the_day(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stef_core.align import align

    def fail(record: Any, *rest: Any) -> Any:
        if record.query_id == "q7":
            raise KeyError("planted")
        return align(record, *rest)

    monkeypatch.setattr(sys.modules["stef_core.evaluate"], "align", fail)  # the name in the package is the function
    monkeypatch.setattr(logging, "raiseExceptions", False)  # Prefect's handler holds the stderr of an earlier test
    write(house.logs, day_of(user_question=[f"How many orders has customer {n}?" for n in range(ROWS)]))  # no two are one

    code, _, err = house.score()

    unscored = house.read("query_scores").filter(pl.col("status") == "unscored")
    assert (code, house.read("query_scores").height) == (0, ROWS)
    assert unscored.select("query_id", "reason", "phi").rows() == [("q7", "evaluator_error", None)]
    assert json.loads(unscored["verdict_reasons"][0])[0].startswith("The evaluator failed on this row: KeyError in ")
    assert "Traceback" not in err


def test_rules_of_an_application_are_used_for_its_rows(house: House) -> None:
    write(house.logs, day_of(app_id=["shop", None] * (ROWS // 2)))
    rules = house.root / "rules"
    rules.mkdir()
    (rules / "shop.json").write_text('{"app_id": "shop", "safety_limit_min": 50}')

    house.score("--rules", str(rules))

    scores = house.read("query_scores")
    assert sorted(scores.select("app_id", "rules_app").unique().rows()) == [("default", "default"), ("shop", "shop")]
    assert json.loads(house.read("scoring_runs")["notes"][0]) == []


def test_rules_with_an_unknown_key_stop_before_anything_is_written(house: House) -> None:
    write(house.logs, day_of())
    rules = house.root / "rules"
    rules.mkdir()
    (rules / "shop.json").write_text('{"app_id": "shop", "benign_filter": []}')

    message = house.refused("--rules", str(rules), code=2)

    assert message.startswith(f"{rules / 'shop.json'}: benign_filter: unknown key; known keys: ")
    assert not (house.root / "w.duckdb").exists()


def test_warehouse_held_by_another_process_is_told_in_words(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    write(house.logs, day_of())
    house.score()
    before = house.tables()
    monkeypatch.setenv("STEF_WAREHOUSE_WAIT_S", "0.3")
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", hold, str(house.root / "w.duckdb")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()

        message = house.refused(code=3)

        holder.communicate()
    assert "w.duckdb" in message
    assert all(frame.equals(before[name]) for name, frame in house.tables().items())


def test_a_day_of_sql_that_is_not_sql_is_scored_zero(house: House) -> None:
    said = ["Sorry, I cannot answer that.", "DROP TABLE orders", "", None]
    write(house.logs, day_of(generated_sql=said * (ROWS // 4)))

    code, _, _ = house.score()

    scores = house.read("query_scores")
    assert code == 0
    assert scores.select("status", "verdict", "phi", "band").unique().rows() == [("scored", "incorrect", 0.0, "poor")]
    assert scores.height == ROWS


def test_repeated_query_ids_are_reported_and_counted(house: House) -> None:
    write(house.logs, day_of(query_id=["a", "a", *(f"q{i}" for i in range(2, ROWS))]))

    house.score()

    (run,) = house.read("scoring_runs").to_dicts()
    assert (run["rows_in"], run["duplicates"]) == (ROWS - 1, 1)
    assert "repeated query_ids, the first row of each kept: a" in json.loads(run["notes"])


def test_row_asked_on_another_day_is_kept_and_reported(house: House) -> None:
    moments = [NOON] * (ROWS - 1) + [NOON + dt.timedelta(days=3)]
    write(house.logs, table(ROWS, asked_at=pa.array(moments, pa.timestamp("us", "UTC"))))

    code, _, _ = house.score()

    (run,) = house.read("scoring_runs").to_dicts()
    assert (code, run["out_of_day"], house.read("query_scores").height) == (0, 1, ROWS)
    (warning,) = [f for gate in json.loads(run["gates"]) for f in gate["failures"]]
    assert (warning["severity"], warning["column"]) == ("warning", "asked_at")


def test_null_query_id_fails_the_gate_and_names_file_and_rows(house: House) -> None:
    file = write(house.logs, day_of(query_id=[None, None, *(f"q{i}" for i in range(2, ROWS))])) / "part-0.parquet"

    message = house.refused(code=1)

    assert message.startswith("gate query_log: query_id of agent clerk on 2026-03-02 is null")
    assert message.endswith(f"{file}: query_id is null in 2 of {ROWS} rows")


def declining(house: House, *, declined: int) -> list[str]:
    """A day in which the agent declines to answer some questions, under rules that leave those unscored."""
    write(house.logs, day_of(generated_sql=[None] * declined + ["SELECT 1 FROM orders"] * (ROWS - declined)))
    rules = house.root / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "shop.json").write_text('{"app_id": "shop", "no_sql": "exclude"}')
    return ["--rules", str(rules)]


def test_failed_gate_publishes_nothing_and_keeps_the_staged_rows(house: House) -> None:
    write(house.logs, day_of())
    house.score()
    before = house.tables()
    arguments = declining(house, declined=4)

    message = house.refused(*arguments, code=1)

    assert message == (
        "gate scores: coverage of agent clerk on 2026-03-02 is 0.9, required at least 0.95"
        " (ExpectColumnValuesToBeBetween coverage)"
    )
    assert all(frame.equals(before[name]) for name, frame in house.tables().items())
    (run,) = house.read("scoring_runs").filter(pl.col("outcome") != "published").to_dicts()
    assert (run["outcome"], run["message"], run["rows_unscored"]) == ("gate_failed", message, 4)
    assert house.staged(run["run_id"]).filter(pl.col("reason") == "declined").height == 4


def test_coverage_that_is_required_can_be_set(house: House) -> None:
    arguments = declining(house, declined=4)

    code, _, _ = house.score("--coverage-min", "0.9", *arguments)

    assert (code, house.read("query_scores").height) == (0, ROWS)


def test_a_day_that_fails_does_not_stop_the_days_after_it(house: House) -> None:
    last = DAY + dt.timedelta(days=2)
    for day in (DAY, last):
        write(house.logs, day_of(day=day), day=day)

    code, out, err = house.score("--to", str(last))

    assert code == 2
    assert f"1 of 3 days failed: {NEXT}: {house.logs}/dt={NEXT}: no such partition" in err
    assert house.read("query_scores")["dt"].unique().sort().to_list() == [DAY, last]
    assert house.read("scoring_runs").sort("dt")["outcome"].to_list() == ["published", "failed", "published"]
    assert "published" in out


def test_endpoint_that_does_not_answer_exits_3_and_publishes_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.extract import extract_batch
    from tasks.judge import judge_batch

    write(house.logs, day_of(2))
    monkeypatch.setenv("STEF_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("STEF_TIMEOUT_S", "0.2")
    for task in (extract_batch, judge_batch):
        monkeypatch.setattr(task, "retry_delay_seconds", [0.0, 0.0, 0.0])
    monkeypatch.setattr("stef_core.openai_model.BACKOFF_S", 0.001)

    message = house.refused("--judge", "openai", "--model", "m", code=3)

    assert message == "the endpoint answered for none of 2 rows; see that STEF_BASE_URL is up and run the day again"
    assert house.read("query_scores").is_empty()


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    """What a model that finds everything right would say."""
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    return answer({"question": {"projections": [], "aggregations": [], "filters": [], "group_by": []}})


def test_a_model_judges_a_day_and_a_second_run_pays_for_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    write(house.logs, day_of(generated_sql=[f"SELECT {i} FROM orders" for i in range(ROWS - 1)] + [None]))
    with serving(model_answer) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        code, out, err = house.score("--judge", "openai", "--model", "m")
        asked = server.requests

        again, _, _ = house.score("--judge", "openai", "--model", "m")

        asked_again = server.requests - asked
    assert (code, again, asked_again) == (0, 0, 0), (out, err)
    first, second = house.read("scoring_runs").sort("started_at").to_dicts()
    assert (first["judge"], first["model"], first["llm_calls"]) == ("openai", "m", asked)
    assert first["tokens_in"] == 100 * asked
    assert first["prompt_version"]
    assert (second["llm_calls"], second["tokens_in"], second["cache_hits"] > 0) == (0, 0, True)
    scores = house.read("query_scores")
    assert scores.filter(pl.col("generated_sql").is_null())["phi"].to_list() == [0.0]
    assert scores.filter(pl.col("generated_sql").is_not_null()).select("verdict", "judge").unique().rows() == [
        ("correct", "openai")
    ]


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks and calls that do not wait before they try again."""
    from tasks.extract import extract_batch
    from tasks.judge import judge_batch

    for task in (extract_batch, judge_batch):
        monkeypatch.setattr(task, "retry_delay_seconds", [0.0, 0.0, 0.0])
    monkeypatch.setattr("stef_core.openai_model.BACKOFF_S", 0.001)


@pytest.mark.usefixtures("quick_retries")
def test_an_endpoint_that_goes_away_in_the_middle_of_a_day_is_told_and_the_next_run_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(house.logs, day_of(user_question=[f"How many orders are in lane {i}?" for i in range(ROWS)]))
    for name, value in {"BATCH_SIZE": "10", "TIMEOUT_S": "0.5", "CONCURRENCY": "4"}.items():
        monkeypatch.setenv(f"STEF_{name}", value)
    with serving(lambda body, seen: model_answer(body, seen) if len(server.bodies) <= 60 else DROP) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        message = house.refused("--judge", "openai", "--model", "m", code=3)
        server.script = model_answer
        asked = len(server.bodies)

        code, _, _ = house.score("--judge", "openai", "--model", "m")

        assert code == 0
        assert 2 * ROWS - 60 <= len(server.bodies) - asked <= 2 * ROWS - 60 + 3  # what was in flight as it went
    assert "rows were not judged" in message
    assert "run the day again when the endpoint is back" in message
    assert house.read("query_scores").filter(pl.col("status") == "scored").height == ROWS


def test_a_budget_that_is_used_up_ends_a_day_in_order_and_the_next_run_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(house.logs, day_of(user_question=[f"How many orders are in lane {i}?" for i in range(ROWS)]))
    with serving(model_answer) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        monkeypatch.setenv("STEF_MAX_CALLS", "30")
        message = house.refused("--judge", "openai", "--model", "m", code=1)
        asked = server.requests
        monkeypatch.setenv("STEF_MAX_CALLS", "50")
        code, _, _ = house.score("--judge", "openai", "--model", "m")

        assert (asked, code, server.requests) == (30, 0, 2 * ROWS)
    assert (
        "the run's budget of 30 calls (STEF_MAX_CALLS) is used up; raise it and run again: answers so far are kept" in message
    )
    assert house.read("query_scores").filter(pl.col("status") == "scored").height == ROWS


def test_model_that_refuses_leaves_rows_unscored_rather_than_wrong(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_verdicts(body: dict[str, Any], seen: int = 0) -> Reply:
        return REFUSAL if body["response_format"]["json_schema"]["name"] == "verdict" else model_answer(body, seen)

    write(house.logs, day_of(5))
    with serving(refuse_verdicts) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        message = house.refused("--judge", "openai", "--model", "m", code=1)

    (run,) = house.read("scoring_runs").to_dicts()
    staged = house.staged(run["run_id"])
    assert "coverage of agent clerk on 2026-03-02 is 0, required at least 0.95" in message
    assert staged.select("status", "reason", "phi").unique().rows() == [("unscored", "judge_refused", None)]


@pytest.mark.parametrize(
    ("harm", "codes", "outcomes"),
    [
        ("refusals", [1, 1], ["gate_failed", "gate_failed"]),  # a refusal is settled, and shared as what it is
        ("crash", [70, 0], ["failed", "published"]),
    ],
)
def test_what_a_failed_day_paid_for_no_other_machine_pays_for(
    house: House, monkeypatch: pytest.MonkeyPatch, harm: str, codes: list[int], outcomes: list[str]
) -> None:
    def script(body: dict[str, Any], seen: int) -> Reply:
        is_verdict = body["response_format"]["json_schema"]["name"] == "verdict"
        return REFUSAL if is_verdict and harm == "refusals" else model_answer(body, seen)

    def crash(*_: Any) -> None:
        raise ZeroDivisionError

    write(house.logs, day_of(generated_sql=[f"SELECT {i} FROM orders" for i in range(ROWS)]))
    monkeypatch.setenv("STEF_CACHE_SHARED", "1")
    monkeypatch.setenv("STEF_MARKER_KEY", "k" * 32)
    with serving(script) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        monkeypatch.setenv("STEF_CACHE", "one.sqlite")
        with monkeypatch.context() as first:
            if harm == "crash":
                first.setattr("flows.stages.aggregate_day", crash)
            failed, _, _ = house.score("--judge", "openai", "--model", "m")
        asked = server.requests

        monkeypatch.setenv("STEF_CACHE", "another.sqlite")
        code, _, _ = house.score("--judge", "openai", "--model", "m")

        assert server.requests == asked > ROWS
    assert [failed, code] == codes
    assert house.read("scoring_runs").sort("started_at")["outcome"].to_list() == outcomes


def test_a_day_is_published_though_its_answers_cannot_be_shared(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(house.logs, day_of(2))
    connect(house.url).close()
    with duckdb.connect(house.root / "w.duckdb") as store:
        store.execute("DROP TABLE staging.llm_answers")
    monkeypatch.setenv("STEF_CACHE_SHARED", "1")
    monkeypatch.setenv("STEF_MARKER_KEY", "k" * 32)
    with serving(model_answer) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        code, _, _ = house.score("--judge", "openai", "--model", "m", "--quiet")

    assert code == 0
    assert house.read("scoring_runs")["outcome"].to_list() == ["published"]
    assert "answers paid for on 2026-03-02 are not shared yet" in caplog.text


def test_judge_without_a_model_is_told_before_anything_is_written(house: House) -> None:
    write(house.logs, day_of())

    assert "STEF_MODEL" in house.refused("--judge", "openai", code=2)
    assert not (house.root / "w.duckdb").exists()


def test_json_is_one_object_and_nothing_else(house: House) -> None:
    write(house.logs, day_of())

    code, out, err = house.score("--json")

    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["outcome"], told["exit_code"], told["error"], told["alerts"]) == ("published", 0, None, [])
    assert told["runs"][0]["rows_scored"] == ROWS
    assert {agent["app_id"] for agent in told["agents"]} == {"*", "shop"}
    assert told["agents"][0]["shares"]["band"]


def test_json_of_a_failed_run_says_why(house: House) -> None:
    code, out, _ = house.score("--json")

    told = json.loads(out)
    assert (code, told["exit_code"], told["outcome"]) == (2, 2, "failed")
    assert "there are no dt=YYYY-MM-DD folders under it" in told["error"]


def test_last_day_before_the_first_is_refused(house: House) -> None:
    assert house.refused("--to", "2026-03-01", code=2) == "--to 2026-03-01 lies before --date 2026-03-02"


def test_redacted_literals_are_stored_nowhere(house: House) -> None:
    question, sql = (
        "How many orders did jane@example.org place?",
        "SELECT COUNT(*) FROM orders WHERE email = 'jane@example.org'",
    )
    write(house.logs, day_of(user_question=[question] * ROWS, generated_sql=[sql] * ROWS))
    rules = house.root / "rules"
    rules.mkdir()
    (rules / "shop.json").write_text('{"app_id": "shop", "redact": ["email"]}')

    house.score("--rules", str(rules))

    stored = "".join(frame.write_json() for frame in house.tables().values())
    assert "[redacted]" in stored
    assert "jane@example.org" not in stored


def test_days_unlike_those_before_them_are_told_and_published(house: House) -> None:
    days = [DAY + dt.timedelta(days=n) for n in range(4)]
    for day in days[:3]:
        write(house.logs, day_of(agent_id=["clerk", "sales"] * 20, day=day), day=day)
    write(house.logs, day_of(12, day=days[3]), day=days[3])
    house.score("--to", str(days[2]))

    code, out, _ = house.score(date=days[3])

    (run,) = house.read("scoring_runs").filter(pl.col("dt") == days[3]).to_dicts()
    told = [failure["message"] for gate in json.loads(run["gates"]) for failure in gate["failures"]]
    assert (code, run["outcome"]) == (0, "published")
    assert [message.partition(" (")[0] for message in told] == [
        "gate volume: row count of the log on 2026-03-05 is 12, usual is at least 14.7",
        "gate agent_drift: row count of agent sales on 2026-03-05 is 0, usual is at least 1",
    ]
    assert all(f"! {message}"[:90] in " ".join(out.split()) for message in told)
    assert {failure["severity"] for gate in json.loads(run["gates"]) for failure in gate["failures"]} == {"warning"}


def test_inputs_are_counted_in_the_warehouse_as_in_the_day(house: House) -> None:
    questions = ["", "x" * 20, "x" * 21, "ä" * 40, "x" * 80, "x" * 81, "x" * 321, None]
    columns: dict[str, Any] = {
        "user_question": [questions[n % 8] for n in range(ROWS)],
        "enriched_question": [None, "", "How many?", None] * 10,
        "dialect": [None, "duckdb"] * 20,
        "app_id": [None, "shop", "crm", "shop"] * 10,
    }
    write(house.logs, day_of(**columns))
    house.score("--quiet", "--coverage-min", "0")

    window = read_window.fn(load_settings({"warehouse": house.url}), NEXT)

    scores = house.read("query_scores")
    assert scores.height == window["latest"]["rows"].item()
    assert window["input_counts"].equals(input_counts(scores))
    assert window["latest"]["latest"].item() == scores["asked_at"].max()
    assert read_window.fn(load_settings({"warehouse": house.url}), DAY)["input_counts"].is_empty()


def test_pages_of_the_gates_are_kept_and_named_in_the_run_record(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEF_DATA_DOCS", "docs")
    write(house.logs, day_of())
    write(house.logs, day_of(query_id=[None] * ROWS, day=NEXT), day=NEXT)

    house.score()
    house.score("--quiet", date=NEXT)

    runs = {run["dt"]: run for run in house.read("scoring_runs").to_dicts()}
    for run in runs.values():
        index = Path(run["data_docs"])
        assert index.is_absolute()
        assert index.parent.name == run["run_id"]
        assert index.parent.parent == house.root / "docs"
    assert len(list(Path(runs[DAY]["data_docs"]).parent.iterdir())) == len(json.loads(runs[DAY]["gates"])) + 1
    assert runs[NEXT]["outcome"] == "gate_failed"
    assert "query_id" in Path(runs[NEXT]["data_docs"]).read_text(encoding="utf-8")


def test_without_a_folder_no_pages_are_kept(house: House) -> None:
    write(house.logs, day_of())

    house.score("--quiet")

    assert house.read("scoring_runs")["data_docs"].to_list() == [None]
