"""A row that is too much to read costs its own score, within the limits of time and memory, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stef_core import QueryRecord, evaluate, evaluate_many, guard
from stef_core.errors import RowLimitError
from stef_core.evaluate import read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.limits import ROW_LIMIT, row_limits, size_of_sql, weigh_question, weigh_sql
from stef_core.records import Evaluation
from stef_core.rules import DEFAULT_RULES
from tasks import batches
from tasks.settings import Settings
from tasks.spool import Spool
from tests.fuzz.hostile import NESTED, QUESTIONS, sized
from tests.logs import DAY

QUESTION = "How many open orders are there?"
HUGE = "SELECT a FROM t WHERE a IN (" + ", ".join(map(str, range(200_000))) + ")"
WIDE = NESTED["numbers in IN"](50_000)


def row(sql: str | None, question: str | None = QUESTION, query_id: str = "q") -> QueryRecord:
    return QueryRecord(query_id=query_id, user_question=question, generated_sql=sql)


def told(evaluation: Evaluation) -> str:
    (found,) = (f for f in evaluation.findings if f.code == ROW_LIMIT)
    return found.message


def test_usual_sql_is_plain() -> None:
    assert weigh_sql("SELECT region, SUM(amount) FROM sales WHERE year = 2024 GROUP BY region")[0] == "plain"
    assert weigh_question(QUESTION, None)[0] == "plain"


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
def test_what_repeats_ten_thousand_times_is_never_plain(make: Any) -> None:
    assert weigh_sql(make(10_000))[0] in ("heavy", "beyond")


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("characters", [350, 1_150])
def test_short_sql_is_weighed_as_its_size_says(kind: str, characters: int) -> None:
    sql = sized(NESTED[kind], characters)

    size = size_of_sql(sql)

    within = (size.tokens <= 3_000, size.depth <= 150, size.chain <= 400, size.items <= 2_000)
    assert (weigh_sql(sql)[0] == "plain") == all(within)


def test_depth_counts_brackets_wherever_they_stand() -> None:
    # what one dialect takes for a literal is nesting in another
    assert size_of_sql(NESTED["brackets hidden by a backslash"](300)).depth >= 300


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        (HUGE, "characters long; at most 1,000,000 are read"),
        (NESTED["brackets"](10_000), "nested 10,000 levels deep; at most 200 are read"),
        (NESTED["NOT"](10_000), "prefix operators"),
    ],
    ids=["long", "deep", "prefixes"],
)
def test_row_beyond_the_limits_is_unscored_with_the_limit_and_its_size(sql: str, limit: str) -> None:
    evaluation = evaluate(row(sql))

    assert (evaluation.status, evaluation.reason, evaluation.score) == ("unscored", ROW_LIMIT, None)
    assert limit in told(evaluation)
    assert f"SQL {len(sql):,} characters" in told(evaluation)


def test_question_beyond_the_limits_is_unscored_with_the_limit_and_its_size() -> None:
    evaluation = evaluate(row("SELECT COUNT(*) FROM orders", "orders " * 700_000))

    assert (evaluation.status, evaluation.reason) == ("unscored", ROW_LIMIT)
    assert "4,900,000 characters long; at most 1,000,000 are read" in told(evaluation)


def test_heavy_row_within_its_limits_is_scored() -> None:
    evaluation = evaluate(row(WIDE))

    assert weigh_sql(WIDE)[0] == "heavy"
    assert evaluation.status == "scored"
    assert evaluation.reading is not None
    assert len(evaluation.reading.sql.literals) == 50_000


def test_heavy_row_reads_like_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT COUNT(*) FROM orders WHERE status = 'open' AND city IN ('Lima', 'Cusco') GROUP BY year"
    plain = evaluate(row(sql))

    monkeypatch.setattr("stef_core.limits.PLAIN_SQL", 10)

    assert weigh_sql(sql)[0] == "heavy"
    assert evaluate(row(sql)) == plain


def test_row_that_takes_too_long_is_unscored_with_the_setting() -> None:
    with row_limits(seconds=0.05, memory_mb=1024):
        evaluation = evaluate(row(WIDE))

    assert evaluation.reason == ROW_LIMIT
    assert "takes longer than the 0.05 seconds of STEF_ROW_SECONDS" in told(evaluation)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is bounded on Linux")
def test_row_that_needs_too_much_memory_is_unscored_with_the_setting() -> None:
    with row_limits(seconds=60, memory_mb=64):
        evaluation = evaluate(row(NESTED["columns"](80_000)))

    assert evaluation.reason == ROW_LIMIT
    assert "64 MB" in told(evaluation)
    assert "STEF_ROW_MEMORY_MB" in told(evaluation)


def test_process_that_is_killed_is_replaced() -> None:
    evaluate(row(WIDE))
    first = guard._process._child
    assert first is not None

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    evaluation = evaluate(row(WIDE + " -- again"))

    assert evaluation.status == "scored"
    assert guard._process._child is not first


def test_process_that_dies_while_it_reads_costs_the_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    guard._process.close()
    dying = "import os; from stef_core import guard; from stef_core.extract import sql; sql.read_heavy = lambda *a: os.abort()"
    monkeypatch.setattr(guard, "_PROGRAM", f"import sys, json; sys.path[:] = json.loads(sys.argv[1]); {dying}; guard.serve()")

    with pytest.raises(RowLimitError, match="the process that reads it ended"):
        guard.guarded("sql", WIDE + " -- dies", None)

    guard._process.close()


def test_one_process_serves_many_rows() -> None:
    evaluations = list(evaluate_many([row(NESTED["texts in IN"](3_000 + n), query_id=str(n)) for n in range(5)]))
    first = guard._process._child
    evaluations += evaluate_many([row(NESTED["AND"](700), query_id="and")])

    assert {e.status for e in evaluations} == {"scored"}
    assert guard._process._child is first


def test_rest_of_a_batch_is_scored_as_if_the_row_were_not_there() -> None:
    others = [row(f"SELECT COUNT(*) FROM orders WHERE year = {2000 + n}", query_id=str(n)) for n in range(6)]
    hostile = [row(HUGE, query_id="long"), row(WIDE, query_id="wide"), row(NESTED["CASE"](5_000), query_id="deep")]

    with row_limits(seconds=0.05, memory_mb=1024):
        every = list(evaluate_many([*others[:3], *hostile, *others[3:]]))

    assert [e for e in every if e.status == "scored"] == list(evaluate_many(others))
    assert [e.reason for e in every if e.status != "scored"] == [ROW_LIMIT] * 3


def test_question_that_takes_too_long_is_unscored_with_the_setting() -> None:
    question = sized(QUESTIONS["homoglyphs"], 990_000)

    with row_limits(seconds=0.001, memory_mb=1024):
        (read,) = read_many([row("SELECT 1", question)], [DEFAULT_RULES], OfflineReader())

    assert read.reason == ROW_LIMIT
    assert "STEF_ROW_SECONDS" in read.message


def test_batch_with_such_a_row_leaves_its_reason_in_the_warehouses_rows(tmp_path: Path) -> None:
    spool, settings = Spool(tmp_path / "day"), Settings(row_seconds=0.05)
    names = ["fine", "wide", "huge", "question"]
    sqls = ["SELECT COUNT(*) FROM orders", WIDE, HUGE, "SELECT COUNT(*) FROM orders"]
    log = pl.DataFrame(
        {
            "query_id": names,
            "agent_id": ["a"] * 4,
            "agent_version": [None] * 4,
            "app_id": ["default"] * 4,
            "asked_at": [None] * 4,
            "user_question": [QUESTION] * 3 + ["orders " * 700_000],
            "enriched_question": [None] * 4,
            "generated_sql": sqls,
            "dialect": [None] * 4,
            "user_feedback": [None] * 4,
            "extra": [None] * 4,
        },
        schema_overrides=dict.fromkeys(["agent_version", "enriched_question", "dialect", "extra"], pl.String)
        | {"asked_at": pl.Datetime("us", "UTC"), "user_feedback": pl.Boolean},
    )
    spool.write(batches.LOG, 0, log)
    spool.within("c").write(batches.CATALOGUE, 0, catalogue_rows())

    batches.extract(spool, 0, {}, settings, last_try=True)
    judged = batches.judge(spool, 0, "c", {}, settings, DAY, last_try=True)

    scores = {r["query_id"]: (r["status"], r["reason"]) for r in spool.within("c").read(batches.SCORES, 0).to_dicts()}
    findings = spool.within("c").read(batches.FINDINGS, 0).filter(pl.col("code") == ROW_LIMIT)
    assert scores == {"fine": ("scored", None)} | dict.fromkeys(names[1:], ("unscored", ROW_LIMIT))
    assert (judged.scored, judged.reasons) == (1, {ROW_LIMIT: 3})
    assert sorted(findings["query_id"]) == ["huge", "question", "wide"]


def catalogue_rows() -> pl.DataFrame:
    from stef_core.frames import LOG_CATALOGUE

    return LOG_CATALOGUE.to_frame()


def test_explain_shows_the_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import cli

    monkeypatch.chdir(tmp_path)

    code = cli.run(["explain", "-q", QUESTION, "-s", NESTED["brackets"](300)])

    shown = capsys.readouterr().out
    assert code == 0
    assert "row_limit" in shown
    assert "300 levels deep" in " ".join(shown.split())


def test_explain_takes_the_limits_of_the_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_ROW_SECONDS", "0.05")

    code = cli.run(["explain", "-q", QUESTION, "-s", WIDE, "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["reason"]) == (0, ROW_LIMIT)
    assert "STEF_ROW_SECONDS" in answer["findings"][0]["message"]


PLAIN = [(kind, "SQL") for kind in NESTED] + [(kind, "question") for kind in QUESTIONS]


@pytest.mark.parametrize(("kind", "side"), PLAIN, ids=lambda value: value)
def test_plain_row_is_read_in_less_than_a_second(kind: str, side: str) -> None:
    make = NESTED[kind] if side == "SQL" else QUESTIONS[kind]
    evaluate(row("SELECT COUNT(*) FROM orders WHERE year = 2020"))  # what is loaded late
    texts = [text for text in (sized(make, size) for size in (9_900, 7_900, 4_000, 2_000)) if weight_of(text, side) == "plain"]
    largest = texts[0] if texts else make(100)

    start = time.process_time()
    evaluation = evaluate(row(largest) if side == "SQL" else row("SELECT a, COUNT(*) FROM t GROUP BY a", largest))

    assert time.process_time() - start < 1
    assert evaluation.reason in (None, "sql_unparseable", ROW_LIMIT)


def weight_of(text: str, side: str) -> str:
    return (weigh_sql(text) if side == "SQL" else weigh_question(text))[0]
