"""Experiments from the command line down: data sets, runs, resuming, analysis, comparison, and what users get wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from flows import cli
from stef_core.errors import BusyError
from stef_core.experiments.compare_results import ResultSet
from tasks.databases import open_database
from tasks.demo_experiment import PROMPTS, questions, write_demo_experiment
from tasks.experiment_journal import Journal, key_of, open_journal
from tasks.experiments import COLUMNS, read_results
from tasks.settings import shown_url
from tasks.warehouse import connect
from tests.openai_server import Reply, answer, error, serving

ROOT = Path(__file__).parents[2]
DATASET = "question,gold_sql,level\nHow many?,SELECT COUNT(*) FROM t,easy\nWhich?,SELECT a FROM t ORDER BY a,hard\n"
AGENT = """
from pathlib import Path

def answer(question):
    with Path("asked.txt").open("a") as file:
        file.write(question + "\\n")
    if question == "Which?" and Path("broken").exists():
        raise ConnectionError("no route to the model")
    return {"How many?": "SELECT COUNT(a) AS n FROM t;", "Which?": "SELECT a FROM t"}[question]

async def later(question, context):
    assert "CREATE TABLE t" in context.schema
    return {"sql": answer(question), "tokens_in": 5, "tokens_out": 2, "enriched_question": question + " Exactly?"}

def three(a, b, c):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)
    monkeypatch.setenv("STEF_DEBUG", "")
    connection = sqlite3.connect("t.sqlite")
    connection.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (2), (1), (NULL);")
    connection.close()
    Path("set.csv").write_text(DATASET)
    Path("my_agent.py").write_text(AGENT)
    return tmp_path


def stef(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The object that ``stef experiment … --json`` prints."""
    code = cli.run(["experiment", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = cli.run(["experiment", *arguments])
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (code, out) == (2, "")
    return line.removeprefix("error: ")


def ran(name: str = "v1", *more: str, agent: str = "my_agent:answer") -> list[str]:
    return ["run", "--name", name, "--dataset", "set.csv", "--database", "sqlite:///t.sqlite", "--agent", agent, *more]


def rows_of(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- a run ----------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_csv_for_people_and_rows_in_the_warehouse(capsys: pytest.CaptureFixture[str]) -> None:
    told = stef(capsys, *ran("v1"))

    many, which = rows_of(told["results"])
    assert list(many) == list(COLUMNS)
    assert list(many)[:8] == "query expected_sql predicted_sql level execution_accuracy accuracy_reason latency tokens".split()
    assert (many["execution_accuracy"], which["execution_accuracy"]) == ("incorrect", "incorrect")
    assert many["predicted_sql"] == "SELECT COUNT(a) AS n FROM t"
    assert many["accuracy_reason"]
    assert float(many["latency"]) >= 0
    assert 0 <= float(many["phi"]) <= 100
    assert many["verdict"]
    assert (told["accuracy"]["accuracy"], told["accuracy"]["coverage"]) == (0.0, 1.0)
    with connect("duckdb:///stef.duckdb", read_only=True) as store:
        run, results = store.read("experiment_runs").to_dicts()[0], store.read("experiment_results")
    assert (run["name"], run["agent"], run["rows"], run["incorrect"]) == ("v1", "my_agent:answer", 2, 2)
    assert results["query_id"].to_list() == [many["query_id"], which["query_id"]]
    assert results["phi"].to_list() == [float(many["phi"]), float(which["phi"])]


def test_a_run_shown_to_people_says_accuracy_interval_levels_and_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["experiment", *ran("v1", "--no-record")])

    out, err = capsys.readouterr()
    assert code == 0
    assert re.search(r"easy +0 +1 +0\.00%", out)
    assert re.search(r"all +0 +2 +0\.00% +0\.0%–65\.8% +0 +0 +100\.00%", out)
    assert "running: 2 of 2 rows" in err
    assert not Path("stef.duckdb").exists()


def test_an_agent_that_fails_is_not_wrong_and_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken").touch()
    first = stef(capsys, *ran())
    told = rows_of(first["results"])[1]["accuracy_reason"]
    Path("broken").unlink()

    second = stef(capsys, *ran())

    assert (first["accuracy"]["not_run"], first["accuracy"]["coverage"], first["accuracy"]["rows"]) == (1, 0.5, 2)
    assert told == "agent_failed: my_agent:answer raised ConnectionError: no route to the model"
    assert (second["accuracy"]["not_run"], second["resumed"]) == (0, 1)
    assert sorted(Path("asked.txt").read_text().splitlines()) == ["How many?", "Which?", "Which?"]


def test_a_second_start_asks_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    first = stef(capsys, *ran())
    before = Path(first["results"]).read_text()

    second = stef(capsys, *ran())

    assert second["resumed"] == 2
    assert len(Path("asked.txt").read_text().splitlines()) == 2
    assert Path(second["results"]).read_text() == before


def test_comparing_in_another_way_runs_the_rows_anew_without_asking(capsys: pytest.CaptureFixture[str]) -> None:
    stef(capsys, *ran())

    again = stef(capsys, *ran("v1", "--columns", "subset", "--ignore-case"))

    assert again["resumed"] == 0
    assert len(Path("asked.txt").read_text().splitlines()) == 2


def test_a_first_look_counts_as_done_in_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    look = stef(capsys, *ran("v1", "--limit", "1"))

    whole = stef(capsys, *ran())

    assert (look["accuracy"]["rows"], whole["accuracy"]["rows"], whole["resumed"]) == (1, 2, 1)


def test_another_agent_under_the_same_name_takes_its_place_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    stef(capsys, *ran())

    told = stef(capsys, *ran(agent="my_agent:later"))

    assert told["notes"] == ["This run takes the place of one of the same name with agent my_agent:answer."]
    many, _ = rows_of(told["results"])
    assert (many["tokens"], many["enriched_question"], told["resumed"]) == ("7", "How many? Exactly?", 0)


def test_a_changed_database_is_asked_of_anew(capsys: pytest.CaptureFixture[str]) -> None:
    before = stef(capsys, *ran())
    connection = sqlite3.connect("t.sqlite")
    connection.executescript("DELETE FROM t WHERE a IS NULL")
    connection.close()

    after = stef(capsys, *ran())

    assert (before["accuracy"]["correct"], after["accuracy"]["correct"]) == (0, 1)
    assert len(Path("asked.txt").read_text().splitlines()) == 2


def test_gold_that_fails_is_the_data_sets_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Path("set.csv").write_text(DATASET.replace("COUNT(*) FROM t", "COUNT(*) FROM nowhere"))

    told = stef(capsys, *ran())

    assert (told["accuracy"]["gold_failed"], told["accuracy"]["incorrect"], told["accuracy"]["coverage"]) == (1, 1, 0.5)


def test_predictions_stand_in_for_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.csv").write_text("question,predicted_sql\n how   many? ,```sql SELECT COUNT(*) FROM t;```\n")
    command = [*ran()[:-2], "--predictions", "p.csv"]

    told = stef(capsys, *command)

    many, which = rows_of(told["results"])
    assert (many["execution_accuracy"], many["latency"]) == ("correct", "")
    assert which["execution_accuracy"] == "not_run"
    assert which["accuracy_reason"] == "no_prediction: p.csv has no prediction for this question"


def test_two_predictions_for_one_question_need_ids(capsys: pytest.CaptureFixture[str]) -> None:
    Path("set.csv").write_text(
        "query_id,question,sql\n1,How many?,SELECT COUNT(*) FROM t\n2,How many?,SELECT COUNT(a) FROM t\n"
    )
    lines = [(1, "SELECT COUNT(*) FROM t"), (2, "SELECT COUNT(a) FROM t")]
    Path("q.csv").write_text("question,sql\n" + "".join(f"How many?,{sql}\n" for _, sql in lines))
    Path("p.csv").write_text("query_id,sql\n" + "".join(f"{n},{sql}\n" for n, sql in lines))

    by_question = stef(capsys, *ran("q")[:-2], "--predictions", "q.csv")
    by_id = stef(capsys, *ran("i")[:-2], "--predictions", "p.csv")

    assert by_question["accuracy"]["not_run"] == 2
    assert "several predictions" in rows_of(by_question["results"])[0]["accuracy_reason"]
    assert by_id["accuracy"]["correct"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (ran("a/b"), "--name 'a/b': takes letters"),
        (ran(agent="nowhere:f"), "--agent nowhere:f: nowhere cannot be imported: ModuleNotFoundError"),
        (ran(agent="my_agent"), "--agent my_agent: write module:function"),
        (ran(agent="my_agent:nothing"), "--agent my_agent:nothing: my_agent has no function nothing"),
        (ran(agent="my_agent:three"), r"--agent my_agent:three: must take \(question\) or \(question, context\)"),
        (ran()[:-2], "nobody is named who answers: give --model"),
        (ran("v1", "--predictions", "p.csv"), "--agent and --predictions exclude each other"),
        ([*ran()[:-2], "--predictions", "absent.csv"], "absent.csv: no such file"),
        (ran("v1", "--limit", "0"), "--limit 0: takes 1 or more"),
        (ran("v1", "--max-rows", "0"), "--max-rows 0: takes 1 or more"),
        (ran("v1", "--timeout-s", "0"), "--timeout-s 0: takes more than 0"),
        (ran("v1", "--columns", "some"), "--columns some: takes exact or subset"),
        (ran("v1", "--map", "question"), "--map question: write COLUMN=NAME"),
        (ran("v1", "--prompt", "absent.md"), "--prompt absent.md: cannot be read"),
        (ran("v1", "--prompt", "set.csv"), "--prompt set.csv: has no {schema}"),
        ([*ran()[:6], "sqlite:///absent.sqlite", *ran()[7:]], "absent.sqlite"),
        ([*ran()[:4], "absent.csv", *ran()[5:]], "absent.csv: no such file"),
        (["analyze", "v9"], "v9: no run of that name in experiments; there: none"),
        (["analyze", "set.csv"], r"set.csv: no column for (predicted_sql|execution_accuracy)"),
        (["compare", "v1"], "compare takes two runs or more"),
        (["dataset", "--from", "set.csv", "--database", "sqlite:///t.sqlite", "--out", "x.txt"], "--out x.txt: is neither"),
        (
            ["dataset", "--from", "set.csv", "--database", "sqlite:///t.sqlite", "--out", "x.csv", "--per-level", "0"],
            "--per-level 0: takes 1 or more",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert re.search(message, refused(capsys, *arguments))
    assert not list(Path("experiments").glob("*/results.csv"))


def test_an_endpoint_that_nobody_answers_is_told_and_every_row_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEF_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("stef_core.openai_model.BACKOFF_MAX_S", 0.0)

    code = cli.run(["experiment", *ran("v1", "--model", "m")[:-4], "--model", "m", "--quiet"])

    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert err.startswith("error: the agent's endpoint answered for no row: ")
    assert [row["execution_accuracy"] for row in rows_of("experiments/v1/results.csv")] == ["not_run", "not_run"]


def test_a_wrong_key_is_tried_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda *_: error(401, "no such key")) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        monkeypatch.setenv("STEF_CONCURRENCY", "1")
        told = stef(capsys, *ran()[:-2], "--model", "m")

        assert server.requests == 1
    assert (told["accuracy"]["not_run"], told["accuracy"]["accuracy"], told["accuracy"]["coverage"]) == (2, None, 0.0)


def test_two_processes_do_not_run_one_experiment_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with open_journal(Path("experiments/v1")):
        code = cli.run(["experiment", *ran()])

    assert code == 3
    assert "another process is running this experiment" in capsys.readouterr().err


def test_a_run_goes_the_same_way_on_every_engine(
    capsys: pytest.CaptureFixture[str], engine: str, database_urls: dict[str, str]
) -> None:
    Path("set.jsonl").write_text(
        json.dumps({"question": "How many?", "gold_sql": ["SELECT COUNT(*) FROM visits", "SELECT 7 -- or so"], "level": "easy"})
        + json.dumps({"question": "Where?", "gold_sql": "SELECT site FROM visits ORDER BY id", "level": "hard"}).join("\n\n")
        + json.dumps({"question": "Who?", "gold_sql": "SELECT nurse FROM visits", "level": "hard"})
    )
    Path("p.csv").write_text(
        "question,predicted_sql\nHow many?,SELECT 7\nWhere?,SELECT site FROM visits ORDER BY id DESC\nWho?,DELETE FROM visits\n"
    )
    command = ["run", "--name", engine, "--dataset", "set.jsonl", "--database", database_urls[engine], "--no-record"]

    told = stef(capsys, *command, "--predictions", "p.csv")
    analysed = stef(capsys, "analyze", engine)

    rows = rows_of(told["results"])
    assert [row["execution_accuracy"] for row in rows] == ["correct", "incorrect", "incorrect"]
    assert rows[0]["expected_sql"].count(";") == 1
    assert "prediction_refused" in rows[2]["flags"]
    assert analysed["incorrect"] == 2
    assert not Path("stef.duckdb").exists()  # a run that was not recorded is not recorded by its analysis either


def test_a_row_that_the_judge_did_not_answer_for_is_scored_by_the_next_start_without_asking_the_agent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stef_core.openai_model.BACKOFF_MAX_S", 0.0)
    up = threading.Event()

    def script(body: dict[str, Any], _: int) -> Reply:
        if not up.is_set():
            return error(503, "not today")
        return answer({"reasons": ["so"], "grade": "correct", "confidence": 0.9})

    with serving(script) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        command = ran("v1", "--judge", "openai", "--judge-model", "m")
        before = rows_of(stef(capsys, *command)["results"])
        up.set()
        asked = server.requests

        again = stef(capsys, *command)

        assert server.requests > asked
    assert {row["status"] for row in before} == {"unscored"}
    assert {row["execution_accuracy"] for row in before} == {"incorrect"}
    assert again["resumed"] == 0
    assert len(Path("asked.txt").read_text().splitlines()) == 2


def test_a_database_is_opened_once_for_each_thread_of_one_process(database_urls: dict[str, str]) -> None:
    with open_database(database_urls["duckdb"]), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(_count, [database_urls["duckdb"]] * 16))

    assert found == [[(6, "UTC")]] * 16


def _count(url: str) -> list[tuple[Any, ...]]:
    with open_database(url) as opened:
        result = opened.run("SELECT COUNT(*), current_setting('TimeZone') FROM visits")
    assert isinstance(result, ResultSet), result
    return result.rows


def test_a_query_with_a_parameter_is_wrong_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_agent.py").write_text("def answer(question):\n    return 'SELECT a FROM t WHERE a = ?'\n")

    told = stef(capsys, *ran())

    assert (told["accuracy"]["incorrect"], told["accuracy"]["coverage"]) == (2, 1.0)


def test_text_that_is_no_unicode_does_not_stop_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_agent.py").write_text("def answer(question):\n    return 'SELECT \\ud800\\x00'\n")

    told = stef(capsys, *ran())

    assert [row["predicted_sql"].startswith("SELECT ?") for row in rows_of(told["results"])] == [True, True]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:s3:cr@t@host", "postgresql://ann:***@host"),
        ("postgresql://host/db?user=ann&password=s3cret&x=1", "postgresql://host/db?user=ann&password=***&x=1"),
        ("sqlite:////data/a.sqlite", "sqlite:////data/a.sqlite"),
    ],
)
def test_no_password_is_written(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_an_agent_without_a_key_is_told_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(capsys, *ran()[:-2], "--model", "m")

    assert message.startswith("the baseline agent asks a model, but there is no key; set STEF_API_KEY or OPENAI_API_KEY")
    assert "STEF_JUDGE" not in message


# --- the journal ----------------------------------------------------------------------------------------------------


def test_a_line_that_a_kill_cut_off_is_dropped_and_the_next_stands_alone(folder: Path) -> None:
    path = folder / "journal.jsonl"
    journal = Journal(path)
    journal.add("row", "a", {"n": 1})
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"kind": "row", "key": "b", "val')

    with_rest = Journal(path)
    with_rest.add("row", "c", {"n": 3})
    with_rest.close()

    again = Journal(path)
    assert [again.find("row", key) for key in "abc"] == [{"n": 1}, None, {"n": 3}]
    assert again.find("answer", "a") is None
    again.close()


def test_a_journal_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("experiments/v1").mkdir(parents=True)
    Path("experiments/v1/journal.jsonl").write_text("hello\n")

    assert "journal.jsonl: line 1: is no entry of a journal" in refused(capsys, *ran())


def test_a_journal_that_another_holds_is_busy(folder: Path) -> None:
    with open_journal(folder / "x"), pytest.raises(BusyError), open_journal(folder / "x"):
        pass


def test_keys_tell_values_apart() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of(["a"], None) != key_of("a", None)
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})


# --- building a data set --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_data_set_is_built_in_steps_and_loads_again(capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    lines = [("How many?", "SELECT COUNT(*) FROM t", "easy"), ("How many?", "SELECT COUNT(*)  FROM t", "easy")]
    lines += [("Whose?", "SELECT b FROM t", "hard"), ("Which above 9?", "SELECT a FROM t WHERE a > 9", "hard")]
    lines += [(f"Is it {n}?", f"SELECT {n} FROM t; SELECT {n}.0 FROM t", "hard") for n in range(6)]
    Path("raw.csv").write_text("Query,SQL,Levels\n" + "".join(f"{q},{s},{level}\n" for q, s, level in lines))
    command = ["dataset", "--from", "raw.csv", "--database", "sqlite:///t.sqlite", "--per-level", "3", "--seed", "5"]

    told = stef(capsys, *command, "--out", f"built{suffix}")

    assert [(step["rows"], step["levels"]) for step in told["steps"]] == [
        (10, {"easy": 2, "hard": 8}),
        (9, {"easy": 1, "hard": 8}),
        (7, {"easy": 1, "hard": 6}),
        (4, {"easy": 1, "hard": 3}),
    ]
    assert [fault.partition(":")[0] for fault in told["faults"]] == ["row 3", "row 4"]
    assert told["faults"][1] == "row 4: gold SQL returns nothing"
    again = stef(capsys, *command[:2], f"built{suffix}", *command[3:], "--out", "again.csv")
    assert [step["rows"] for step in again["steps"]] == [4, 4, 4, 4]


def test_a_data_set_that_keeps_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("raw.csv").write_text("Query,SQL\nWhose?,SELECT b FROM t\n")

    message = refused(capsys, "dataset", "--from", "raw.csv", "--database", "sqlite:///t.sqlite", "--out", "x.csv", "--quiet")

    assert message.startswith("raw.csv: no row is left; row 1: gold SQL fails: ")
    assert not Path("x.csv").exists()


# --- analysing and comparing ----------------------------------------------------------------------------------------


def test_analysis_names_a_code_and_a_sentence_for_each_wrong_row(capsys: pytest.CaptureFixture[str]) -> None:
    stef(capsys, *ran())

    told = stef(capsys, "analyze", "v1")

    rows = rows_of(told["analysis"])
    assert [row["query"] for row in rows] == ["How many?", "Which?"]
    assert all(row["error_codes"] and row["error_analysis"] and row["analysed_by"] == "trees" for row in rows)
    assert sum(code["rows"] for code in told["codes"]) >= told["incorrect"] == 2
    with connect("duckdb:///stef.duckdb", read_only=True) as store:
        stored = store.read("experiment_results")
    assert stored["error_analysis"].to_list() == [row["error_analysis"] for row in rows]
    assert json.loads(stored["error_codes"][0]) == rows[0]["error_codes"].split("; ")


def test_a_model_analyses_when_one_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stef(capsys, *ran())
    with serving(lambda *_: answer({"analysis": "It is off.", "error_codes": ["GENERIC_VALUE_MISMATCH"]})) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)

        told = stef(capsys, "analyze", "v1", "--model", "m")

        assert server.requests == 2
    assert [(code["code"], code["rows"]) for code in told["codes"]] == [("GENERIC_VALUE_MISMATCH", 2)]
    assert {row["analysed_by"] for row in rows_of(told["analysis"])} == {"m"}


def test_a_csv_of_others_is_analysed_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    head = "query,expected_sql,predicted_sql,level,execution_accuracy,accuracy_reason\n"
    Path("a.csv").write_text(
        f"{head}q1,SELECT a FROM t,SELECT b FROM t,easy,incorrect,differs\nq2,SELECT 1,SELECT 1,hard,correct,\n"
    )
    Path("b.csv").write_text(f"{head}q1,SELECT a FROM t,SELECT a FROM t,easy,correct,\nq2,SELECT 1,,hard,not_run,timeout\n")

    analysed = stef(capsys, "analyze", "a.csv")
    compared = stef(capsys, "compare", "a.csv", "b.csv")

    assert [code["code"] for code in analysed["codes"]] == ["WRONG_SOURCE_TABLE_OR_COLUMN"]
    assert analysed["analysis"] == "a.analysis.csv"
    (pair,) = compared["pairs"]
    assert (pair["pairs"], pair["fixed"], pair["broke"], pair["only_first"], pair["only_second"]) == (1, ["q1"], [], 1, 1)


def test_runs_without_a_common_question_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    head = "query,expected_sql,predicted_sql,execution_accuracy\n"
    Path("a.csv").write_text(f"{head}q1,SELECT 1,SELECT 1,correct\n")
    Path("b.csv").write_text(f"{head}q2,SELECT 1,SELECT 1,correct\n")

    assert "a.csv and b.csv have no question in common" in refused(capsys, "compare", "a.csv", "b.csv")


def test_a_label_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("query,expected_sql,predicted_sql,execution_accuracy\nq1,SELECT 1,SELECT 1,perhaps\n")

    message = refused(capsys, "analyze", "a.csv")

    assert message.startswith("a.csv: row 1: column execution_accuracy is 'perhaps'; it must be one of correct, incorrect")


def test_list_names_runs_oldest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert stef(capsys, "list") == {"runs": []}
    stef(capsys, *ran("b"))
    stef(capsys, *ran("a"))

    told = stef(capsys, "list")

    assert [run["name"] for run in told["runs"]] == ["b", "a"]
    assert cli.run(["experiment", "list"]) == 0
    assert "my_agent:answer" in capsys.readouterr().out


def test_a_run_is_labelled_data_for_a_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    files = write_demo_experiment(Path("demo"))
    command = ["--dataset", str(files.questions), "--database", f"sqlite:///{files.database}", "--no-record"]
    agent = ["--agent", "tasks.demo_experiment:agent", "--prompt", str(files.prompts[1])]
    told = stef(capsys, "run", "--name", "v2", *command, *agent)

    code = cli.run(["calibrate", "--labelled", told["results"], "--json", "--resamples", "20"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["rows"] == told["accuracy"]["correct"] + told["accuracy"]["incorrect"]
    assert found["base_rate"]["value"] == pytest.approx(told["accuracy"]["accuracy"])
    assert any("left out" in note for note in found["notes"])  # the row whose gold fails


# --- three prompt versions, killed and started again ----------------------------------------------------------------


def test_killed_and_started_again_nothing_is_asked_twice_and_the_table_can_be_redone_by_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_demo_experiment(Path("demo"))
    by_question = {each.ask: each for each in questions()}
    gate, answered, turn = threading.Event(), [0], threading.Lock()

    def script(body: dict[str, Any], _: int) -> Reply:
        system, asked = (message["content"] for message in body["messages"])
        with turn:
            answered[0] += 1
            held = answered[0] > len(by_question_built) + 17
        if held:
            gate.wait(60)  # the run is killed while these wait
        return answer(f"```sql\n{by_question[asked].answer(system)};\n```")

    dataset = ["dataset", "--from", str(files.questions), "--database", f"sqlite:///{files.database}", "--out", "set.csv"]
    by_question_built = range(stef(capsys, *dataset)["steps"][-1]["rows"])
    with serving(script) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        monkeypatch.setenv("STEF_CONCURRENCY", "4")

        def command(prompt: Path) -> list[str]:
            base = ["run", "--dataset", "set.csv", "--database", f"sqlite:///{files.database}", "--model", "m", "--no-record"]
            return [*base, "--name", prompt.stem, "--prompt", str(prompt)]

        stef(capsys, *command(files.prompts[0]))
        program = "import sys; from flows import cli; sys.exit(cli.run(sys.argv[1:]))"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-c", program, "experiment", *command(files.prompts[1])],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        journal = Path("experiments") / PROMPTS[1] / "journal.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and journal.read_text().count('"kind":"row"') == 17 and server.in_flight == 4:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        before = server.requests
        gate.set()

        second = stef(capsys, *command(files.prompts[1]))
        third = stef(capsys, *command(files.prompts[2]))

        rows = len(by_question_built)
        assert (before, second["resumed"]) == (rows + 17 + 4, 17)
        assert server.distinct == 3 * rows
        # the four that had no answer yet when the process died are the only ones that came twice
        assert server.requests == 3 * rows + 4
    assert third["accuracy"]["rows"] == rows

    told = stef(capsys, "compare", *PROMPTS)

    labels = [
        {row["query"]: (row["execution_accuracy"], row["level"]) for row in rows_of(f"experiments/{name}/results.csv")}
        for name in PROMPTS
    ]
    for run, by_hand in zip(told["runs"], labels, strict=True):
        correct = sum(label == "correct" for label, _ in by_hand.values())
        interval = binomtest(correct, rows).proportion_ci(0.95, method="wilson")
        assert (run["correct"], run["accuracy"], run["coverage"]) == (correct, correct / rows, 1.0)
        assert (run["low"], run["high"]) == pytest.approx((interval.low, interval.high))
        for level in ("easy", "medium", "hard"):
            of_level = [label for label, its in by_hand.values() if its == level]
            assert run["levels"][level]["accuracy"] == of_level.count("correct") / len(of_level)
    for pair, (a, b) in zip(told["pairs"], [(0, 1), (1, 2), (0, 2)], strict=True):
        fixed = [q for q in labels[b] if labels[a][q][0] == "incorrect" and labels[b][q][0] == "correct"]
        broke = [q for q in labels[b] if labels[a][q][0] == "correct" and labels[b][q][0] == "incorrect"]
        assert (pair["pairs"], pair["fixed"], pair["broke"]) == (rows, fixed, broke)
        assert pair["p_value"] == pytest.approx(binomtest(len(fixed), len(fixed) + len(broke)).pvalue)
    assert [run["accuracy"] for run in told["runs"]] == pytest.approx([0.3, 0.63, 0.81], abs=0.03)


def test_results_read_back_as_they_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    told = stef(capsys, *ran())

    rows = read_results(Path(told["results"]))

    assert [row["execution_accuracy"] for row in rows] == ["incorrect", "incorrect"]
    assert rows[0]["expected_sql"] == "SELECT COUNT(*) FROM t"
    assert isinstance(rows[0]["findings"], list)
