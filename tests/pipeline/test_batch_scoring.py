"""Days that are scored through the Batch API: the tables of single calls, for fewer requests."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stef_core.errors import RuleError
from stef_core.evaluate import read_many
from stef_core.extract.question_llm import LLMReader
from stef_core.frames import frame_of
from stef_core.rules import Rules
from tasks.batching import Collector, check_batching, question_requests
from tasks.models import stages_of
from tasks.query_log import PARTITION_LOG
from tasks.spool import Spool
from tests.logs import DAY, write
from tests.openai_server import REFUSAL, BatchApi, BatchPlan, OpenAIServer, Reply, error, serving
from tests.pipeline.test_daily_scoring import House, day_of
from tests.pipeline.test_models import model_answer, rows, settings

pytestmark = pytest.mark.usefixtures("prefect_server")
ROWS = 12
COUNTS = ("llm_calls", "cache_hits", "tokens_in", "tokens_out")
BATCHED = ("--judge", "openai", "--model", "m", "--batch")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setattr("stef_core.openai_batch.POLL_S", 0.01)
    with serving(model_answer) as running:
        running.batches = BatchApi(running)
        monkeypatch.setenv("STEF_BASE_URL", running.base_url)
        yield running


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.chdir(tmp_path)
    # the last two are equal, so that one request serves both
    years = [*range(1990, 1990 + ROWS - 1), 1990 + ROWS - 2]
    questions = [f"How many orders are there in {year}?" for year in years]
    answers = [f"SELECT COUNT(*) FROM orders WHERE year = {year}" for year in years]
    write(tmp_path / "logs", day_of(ROWS, user_question=questions, generated_sql=answers))
    return House(tmp_path, capsys)


def api(server: OpenAIServer) -> BatchApi:
    assert server.batches is not None
    return server.batches


def last_run(house: House) -> dict[str, Any]:
    return house.read("scoring_runs").sort("started_at").to_dicts()[-1]


def test_a_day_asked_in_batches_has_the_tables_of_single_calls(
    house: House, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEF_PRICES", '{"m": {"input": 1000, "output": 100}}')
    house.score("--judge", "openai", "--model", "m")
    singly, run_singly = house.tables(), last_run(house)
    requests = server.requests
    monkeypatch.setenv("STEF_CACHE", str(house.root / "other.sqlite"))

    code, _, err = house.score(*BATCHED)

    run = last_run(house)
    assert code == 0
    assert all(frame.equals(singly[name]) for name, frame in house.tables().items())
    assert server.requests - requests == 1
    assert [len(lines) for lines in api(server).lines] == [ROWS - 2, ROWS - 1]
    assert [run[name] for name in COUNTS] == [run_singly[name] for name in COUNTS] == [22, 2, 2200, 220]
    assert run["cost"] == pytest.approx(0.101 + 21 * 0.101 / 2)
    assert json.loads(run["notes"]) == json.loads(run_singly["notes"])
    assert f"{DAY}: batch batch-1: 11 of 11 done, completed, waiting since {dt.datetime.now(dt.UTC):%Y-}" in err


def test_a_second_run_in_batches_asks_nothing(house: House, server: OpenAIServer) -> None:
    house.score(*BATCHED)
    first = house.tables()

    house.score(*BATCHED)

    assert (server.requests, len(api(server).made)) == (1, 2)
    assert [last_run(house)[name] for name in COUNTS] == [0, 2 * ROWS, 0, 0]
    assert all(frame.equals(first[name]) for name, frame in house.tables().items())


def test_days_of_a_run_are_asked_one_after_another(house: House, server: OpenAIServer) -> None:
    next_day = DAY + dt.timedelta(days=1)
    write(house.logs, day_of(3, day=next_day), day=next_day)

    code, _, _ = house.score(*BATCHED, "--to", str(next_day))

    assert code == 0
    assert [len(lines) for lines in api(server).lines] == [ROWS - 2, ROWS - 1, 1, 1]
    assert house.read("scoring_runs").sort("dt")["llm_calls"].to_list() == [22, 2]
    assert set(server.answered.values()) == {1}


def test_lines_that_fail_are_asked_singly_and_their_rows_are_scored(house: House, server: OpenAIServer) -> None:
    def script(body: dict[str, Any], before: int) -> Reply:
        said = body["messages"][1]["content"]
        if "1995" in said:
            return error(500, "broken") if before == 0 else model_answer(body)
        return REFUSAL if "1996" in said and '"sql"' in said else model_answer(body)

    server.script = script

    code, _, _ = house.score(*BATCHED, "--coverage-min", "0.5")

    scores = house.read("query_scores")
    assert code == 0
    assert scores.filter(pl.col("status") == "unscored").select("query_id", "reason").rows() == [("q6", "judge_refused")]
    assert server.requests == 3
    # two lines with errors were answered and asked again; equal rows were asked once
    assert last_run(house)["llm_calls"] == 24


def test_what_a_batch_failed_of_stands_in_the_notes(house: House, server: OpenAIServer) -> None:
    api(server).plan = lambda number: BatchPlan(status="failed", code="odd") if number == 0 else BatchPlan()

    house.score(*BATCHED)

    assert json.loads(last_run(house)["notes"])[-1] == "batch batch-0 failed: planned: odd"
    assert len(api(server).made) == 3


def test_a_budget_of_calls_holds_over_batches_and_single_calls(
    house: House, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEF_MAX_CALLS", "15")

    code, _, _ = house.score(*BATCHED, "--coverage-min", "0")

    assert code == 0
    assert [len(lines) for lines in api(server).lines] == [10, 4]
    assert (len(server.answered), last_run(house)["llm_calls"]) == (15, 15)
    unscored = house.read("query_scores").filter(pl.col("status") == "unscored")
    assert unscored["reason"].unique().to_list() == ["budget_exhausted"]


def test_ctrl_c_says_that_the_batch_goes_on_and_the_next_run_collects_it(house: House, server: OpenAIServer) -> None:
    def interrupt(call: str, stage: str) -> None:
        if (call, stage) == ("GET /batches/{id}", "after"):  # again at the next look, should the code of others swallow it
            os.kill(os.getpid(), signal.SIGINT)

    api(server).intercept = interrupt
    api(server).plan = lambda _: BatchPlan(polls=9)

    code, _, err = house.score("--quiet", *BATCHED)
    api(server).intercept = lambda _call, _stage: None
    after, published = len(api(server).made), house.read("query_scores").height
    api(server).hurry()
    again, _, _ = house.score("--quiet", *BATCHED)

    assert (code, after, published) == (130, 1, 0)
    assert err.splitlines()[0] == "batch batch-0 goes on at the endpoint; run the command again to collect it"
    assert again == 0
    assert (len(api(server).made), server.requests) == (2, 2)
    assert set(server.answered.values()) == {1}
    assert last_run(house)["llm_calls"] == 22 - 1  # all but the single request of the first run


def test_an_endpoint_without_a_batch_api_is_told_before_anything_is_scored(house: House, server: OpenAIServer) -> None:
    server.batches = None

    message = house.refused(*BATCHED, code=2)

    where = server.base_url
    assert message == f"{where} has no Batch API (it answers 404 to GET /batches); run without --batch"
    assert server.requests == 0
    assert house.read("scoring_runs").is_empty()


def test_the_symbolic_judge_has_nothing_to_batch(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the symbolic judge asks no model" in house.refused("--batch", code=2)
    monkeypatch.setenv("STEF_BATCH", "1")

    assert house.score("--quiet")[0] == 0


def test_batches_need_a_cache() -> None:
    with pytest.raises(RuleError, match="set STEF_CACHE, or run without --batch"):
        check_batching(settings(batch=True))
    assert not check_batching(settings(batch=True, judge="symbolic"))
    assert not check_batching(settings())


def test_what_is_collected_is_what_the_reader_asks(tmp_path: Path) -> None:
    records, chosen, spool = rows(7), settings(batch_size=3), Spool(tmp_path / "spool")
    log = frame_of([dict.fromkeys(PARTITION_LOG) | asdict(record) for record in records], PARTITION_LOG)
    for number, part in enumerate(log.iter_slices(3)):
        spool.write("log", number, part)

    collected = question_requests(spool, 3, {"default": Rules()}, chosen, "m")

    asked = Collector("m")
    reader, _ = stages_of(chosen, asked)
    read = read_many(records, [Rules()] * 7, reader)
    assert isinstance(reader, LLMReader)
    assert collected == list(asked.requests.values())
    assert len(collected) == 7
    assert {row.reason for row in read} == {"question_reader_unavailable"}
