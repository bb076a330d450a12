"""A day that was interrupted is taken up where it stood; a day that ended leaves nothing behind."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows import cli
from stef_core.errors import TransientError
from stef_core.frames import LOG_CATALOGUE, frame_of
from stef_core.rules import Rules
from tasks import batches
from tasks.extract import keep_catalogue
from tasks.query_log import PARTITION_LOG
from tasks.spool import open_spool
from tests.logs import DAY, table, write
from tests.openai_server import error, serving
from tests.pipeline.test_daily_scoring import House, day_of
from tests.pipeline.test_models import model_answer, rows, settings

pytestmark = pytest.mark.usefixtures("prefect_server")
NUMBERS = range(40)


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.chdir(tmp_path)
    return House(tmp_path, capsys)


@pytest.fixture(autouse=True)
def _batches_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEF_BATCH_SIZE", "10")


def log_of(house: House, day: dt.date = DAY) -> None:
    sqls = [f"SELECT COUNT(*) FROM orders WHERE customer = 'c{n}' AND day = '{day}'" for n in NUMBERS]
    questions = [f"How many orders did c{n} place on {day}?" for n in NUMBERS]
    write(house.logs, day_of(len(sqls), day=day, user_question=questions, generated_sql=sqls), day=day)


def left(house: House) -> list[Path]:
    return sorted((house.root / ".stef" / "spool").glob("*"))


def counting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often batches are read and judged from now on."""
    counts = {"extract": 0, "judge": 0}

    def counted(name: str, true: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return true(*arguments, **named)

        return call

    monkeypatch.setattr("tasks.extract.extract", counted("extract", batches.extract))
    monkeypatch.setattr("tasks.judge.judge", counted("judge", batches.judge))
    return counts


def away(*_: Any) -> None:
    raise TransientError("the warehouse went away")


def whole(house: House, *arguments: str) -> dict[str, pl.DataFrame]:
    """Tables of a run that nothing disturbed, in another warehouse."""
    url, house.url = house.url, house.url.replace("w.duckdb", "whole.duckdb")
    assert house.score(*arguments)[0] == 0
    tables, house.url = house.tables(), url
    return tables


def test_a_day_that_ended_leaves_nothing_behind(house: House) -> None:
    log_of(house)

    assert house.score()[0] == 0
    assert house.score("--coverage-min", "1.0")[0] == 0
    assert left(house) == []


def test_a_day_that_a_gate_refuses_leaves_nothing_behind(house: House) -> None:
    write(house.logs, table(4, user_question=["How many?", None, None, None]))

    assert house.score()[0] == 1
    assert house.read("scoring_runs")["outcome"].to_list() == ["gate_failed"]
    assert left(house) == []


def test_batches_that_were_done_are_not_done_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(house)
    undisturbed = whole(house)
    with monkeypatch.context() as first:
        first.setattr("flows.stages.publish_day", away)
        assert house.score()[0] == 3
    assert len(left(house)) == 1
    counts = counting(monkeypatch)

    code, out, _ = house.score()

    assert (code, counts) == (0, {"extract": 0, "judge": 0})
    assert "4 of 4 batches were read, and 4 judged, by a run that was interrupted" in " ".join(out.split())
    assert left(house) == []
    tables = house.tables()
    assert all(frame.equals(tables[name]) for name, frame in undisturbed.items())


def test_what_was_not_done_is_done(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(house)
    undisturbed = whole(house)
    with monkeypatch.context() as first:
        first.setattr("flows.stages.publish_day", away)
        assert house.score()[0] == 3
    (spool,) = left(house)
    (spool / "read-000002.json").unlink()  # as if killed while batch 2 was read
    for name in ("scores-000001.json", "scores-000003.json"):
        (judged,) = spool.glob(f"*/{name}")
        judged.unlink()
    counts = counting(monkeypatch)

    assert house.score()[0] == 0

    assert counts == {"extract": 1, "judge": 2}
    assert all(frame.equals(house.tables()[name]) for name, frame in undisturbed.items())


def test_other_rules_begin_anew(house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log_of(house)
    with monkeypatch.context() as first:
        first.setattr("flows.stages.publish_day", away)
        assert house.score()[0] == 3
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "shop.json").write_text('{"app_id": "shop", "no_sql": "exclude"}')
    (tmp_path / "rules" / "default.json").write_text('{"app_id": "default"}')
    counts = counting(monkeypatch)

    assert house.score("--rules", str(tmp_path / "rules"))[0] == 0

    assert counts == {"extract": 4, "judge": 4}


def test_a_batch_with_rows_that_nobody_answered_for_is_not_done(tmp_path: Path) -> None:
    spool, rules = open_spool(tmp_path / "spool", DAY), {"default": Rules()}
    log = frame_of([dict.fromkeys(PARTITION_LOG) | asdict(record) for record in rows(4)], PARTITION_LOG)
    spool.write("log", 0, log)

    def verdicts_refused(body: dict[str, Any], seen: int) -> Any:
        is_verdict = body["response_format"]["json_schema"]["name"] == "verdict"
        return error(401) if is_verdict else model_answer(body, seen)

    with serving(verdicts_refused) as server:
        chosen = settings(base_url=server.base_url, cache=None)
        batches.extract(spool, 0, rules, chosen, last_try=True)
        folder = keep_catalogue(spool, LOG_CATALOGUE.to_frame())
        left_over = batches.judge(spool, 0, folder, rules, chosen, DAY, last_try=True)
        assert batches.extracted_before(spool, 0) is not None
        assert batches.judged_before(spool, 0, folder) is None
        server.script = model_answer
        done = batches.judge(spool, 0, folder, rules, chosen, DAY, last_try=True)

    assert (left_over.reasons, left_over.scored) == ({"judge_rejected": 4}, 0)
    assert done.scored == 4
    assert batches.judged_before(spool, 0, folder) == replace(done, reused=True)


@pytest.mark.parametrize("at_once", [2, 3])
def test_days_side_by_side_are_the_days_one_after_another(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    days = [DAY + dt.timedelta(days=n) for n in range(4)]
    for day in days:
        log_of(house, day)
    in_turn = whole(house, "--to", str(days[-1]))
    monkeypatch.setenv("STEF_DAYS_AT_ONCE", str(at_once))

    assert house.score("--to", str(days[-1]))[0] == 0

    tables = house.tables()
    assert all(frame.equals(tables[name]) for name, frame in in_turn.items())
    runs = house.read("scoring_runs").sort("ended_at")
    assert runs["dt"].to_list() == days


def test_a_day_that_fails_holds_up_none_of_those_beside_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [DAY + dt.timedelta(days=n) for n in range(3)]
    for day in (days[0], days[2]):
        log_of(house, day)
    monkeypatch.setenv("STEF_DAYS_AT_ONCE", "3")

    assert house.score("--to", str(days[-1]))[0] == 2

    assert house.read("query_scores")["dt"].unique().sort().to_list() == [days[0], days[2]]


def test_processes_give_the_tables_of_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(house)
    alone = whole(house)
    monkeypatch.setenv("STEF_PROCESSES", "2")

    assert house.score()[0] == 0

    assert all(frame.equals(house.tables()[name]) for name, frame in alone.items())


def test_a_backfill_that_was_interrupted_goes_on(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    log_of(house)
    assert house.score()[0] == 0
    (tmp_path / "rules").mkdir()
    rule = '{"app_id": "shop", "benign_filters": [{"column": "day", "op": "=", "value": "*"}]}'
    (tmp_path / "rules" / "shop.json").write_text(rule)
    (tmp_path / "rules" / "default.json").write_text('{"app_id": "default"}')
    call = ["backfill", "--logs", str(house.logs), "--warehouse", house.url, "--rules", str(tmp_path / "rules"), "--quiet"]
    with monkeypatch.context() as first:
        first.setattr("flows.stages.publish_day", away)
        assert cli.run(call) == 3
    counts = counting(monkeypatch)

    assert cli.run(call) == 0

    assert counts == {"extract": 0, "judge": 0}
    assert left(house) == []
    assert house.read("score_changes").height or house.read("scoring_runs").height == 3


def test_rows_of_a_killed_run_are_not_kept_for_ever(house: House) -> None:
    old = house.root / ".stef" / "spool" / "2020-01-01-old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    write(house.logs, table(2))

    assert house.score()[0] == 0
    assert left(house) == []
