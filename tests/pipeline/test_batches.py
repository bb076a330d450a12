"""The Batch API on a loopback endpoint: what is asked, collected, asked again, and found again after a kill."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stef_core.budget import Budget, Limits, Price
from stef_core.errors import RuleError, TransientError
from stef_core.llm import ChatAnswer, ChatRequest, StoredAnswer
from stef_core.openai_batch import (
    POLL_MAX_S,
    POLL_RETRIES,
    POLL_S,
    SEND_RETRIES,
    BatchReport,
    BatchState,
    Chunk,
    OpenAIBatches,
    check_batch_api,
)
from stef_core.openai_model import OpenAIChatModel
from tasks.answer_cache import SqliteAnswerCache
from tasks.batch_journal import SqliteBatchJournal
from tests.core.test_llm import ask
from tests.openai_server import (
    EMPTY,
    FILTERED,
    PAGE,
    REFUSAL,
    TRUNCATED,
    BatchApi,
    BatchPlan,
    OpenAIServer,
    Reply,
    answer,
    error,
    serving,
)

ROOT = Path(__file__).parents[2]
BLUE = answer({"colour": "blue"})


def said(body: dict[str, Any], _: int = 0) -> Reply:
    """The colour that a request names."""
    return answer({"colour": body["messages"][1]["content"]})


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(said) as running:
        running.batches = BatchApi(running)
        yield running


def api(server: OpenAIServer) -> BatchApi:
    assert server.batches is not None
    return server.batches


def requests(count: int) -> list[ChatRequest]:
    return [ask(f"c{n:03}") for n in range(count)]


class House:
    """A model with its cache and journal in a folder, over a server; `pauses` are the waits that were asked for."""

    def __init__(self, server: OpenAIServer, folder: Path, **arguments: Any) -> None:
        self.pauses: list[float] = []
        self.told: list[BatchState] = []
        self.cache = SqliteAnswerCache(folder / "answers.sqlite")
        self.journal = SqliteBatchJournal(folder / "answers.batches.sqlite")
        given: dict[str, Any] = {"model": "m", "api_key": "secret-key-1", "base_url": server.base_url, "retries": 0}
        self.chat = OpenAIChatModel(**given | {"cache": self.cache, "sleep": self._no_sleep} | arguments)

    def __enter__(self) -> House:
        return self

    def __exit__(self, *_: object) -> None:
        self.chat.close()
        self.journal.close()
        self.cache.close()

    async def _no_sleep(self, _: float) -> None:
        pass

    def batches(self, **arguments: Any) -> OpenAIBatches:
        return OpenAIBatches(self.chat, self.journal, sleep=self.pauses.append, tell=self.told.append, **arguments)

    def answer(self, asked: list[ChatRequest], **arguments: Any) -> BatchReport:
        return self.batches(**arguments).answer(asked)

    def outcomes(self, asked: list[ChatRequest]) -> list[str]:
        """What single calls give after the batches: answers, or reasons."""
        given = self.chat.complete_many(asked)
        return [json.loads(o.text)["colour"] if isinstance(o, ChatAnswer) else o.reason for o in given]

    def under_way(self, asked: list[ChatRequest]) -> list[Chunk]:
        return self.journal.under_way(self.chat.endpoint, [request.key for request in asked])


@pytest.fixture
def house(server: OpenAIServer, tmp_path: Path) -> Iterator[House]:
    with House(server, tmp_path) as opened:
        yield opened


def colours(count: int) -> list[str]:
    return [f"c{n:03}" for n in range(count)]


# --- answers ---


def test_answers_of_a_batch_are_found_by_single_calls(server: OpenAIServer, house: House) -> None:
    report = house.answer(requests(20))

    assert house.outcomes(requests(20)) == colours(20)
    assert server.requests == 1  # the one that tries what the endpoint accepts
    assert [len(lines) for lines in api(server).lines] == [19]
    assert set(server.answered.values()) == {1}
    assert (report.submitted, report.answered, report.left, report.notes) == (1, 20, 0, ())
    assert (report.usage.requests, report.usage.tokens_in, report.usage.tokens_out) == (20, 2000, 200)
    assert house.chat.usage.requests == 20
    assert not house.under_way(requests(20))


def test_a_line_asks_what_a_single_call_asks(server: OpenAIServer, house: House) -> None:
    asked = [*requests(3), ask("free", schema={}, answer=None), ask("seeded", seed=7, temperature=0.7, measured="colour")]
    house.answer(asked)
    (lines,) = api(server).lines
    singly = {request.key: request for request in asked}
    house.cache.close()
    with OpenAIChatModel(model="m", api_key="k", base_url=server.base_url) as chat:
        server.bodies.clear()
        chat.complete_many([singly[line["custom_id"]] for line in lines])

    # the client sorts the arguments anew; what is inside them keeps its order, as a model writes in the order of its schema
    sent = sorted(json.dumps(dict(sorted(body.items()))) for body in server.bodies)
    assert sent == sorted(json.dumps(dict(sorted(line["body"].items()))) for line in lines)


def test_a_second_run_asks_nothing_and_makes_no_batch(server: OpenAIServer, tmp_path: Path) -> None:
    for _ in range(2):
        with House(server, tmp_path) as house:
            report = house.answer(requests(10))

    assert (server.requests, len(api(server).made)) == (1, 1)
    assert (report.submitted, report.answered, report.usage.requests) == (0, 0, 0)


def test_batches_are_cut_by_lines_and_by_bytes(server: OpenAIServer, house: House) -> None:
    house.answer(requests(21), most_lines=8)
    line = len(api(server).files["file-0"].split(b"\n")[0]) + 1
    house.answer([ask(f"d{n:03}") for n in range(7)], most_bytes=3 * line)

    assert [len(lines) for lines in api(server).lines] == [8, 8, 4, 3, 3, 1]
    assert set(server.answered.values()) == {1}


def test_requests_of_two_models_go_into_two_batches(server: OpenAIServer, house: House) -> None:
    house.answer([*requests(4), *(replace(request, model="n") for request in requests(4))])

    assert [{line["body"]["model"] for line in lines} for lines in api(server).lines] == [{"m"}, {"n"}]


def test_the_way_of_the_endpoint_is_learned_by_one_single_request(server: OpenAIServer, house: House) -> None:
    def picky(body: dict[str, Any], _: int) -> Reply:
        if "max_tokens" in body:
            return error(400, "Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'", param="max_tokens")
        return said(body) if "response_format" not in body else error(400, "response_format is not supported here")

    server.script = picky

    house.answer(requests(10))

    (lines,) = api(server).lines
    assert {frozenset(line["body"]) for line in lines} == {
        frozenset({"model", "max_completion_tokens", "temperature", "messages"})
    }
    assert house.outcomes(requests(10)) == colours(10)
    (step,) = {o.step for o in house.chat.complete_many(requests(10)) if isinstance(o, ChatAnswer)}
    assert step == "text"


def test_nothing_is_submitted_where_no_single_request_is_accepted(server: OpenAIServer, house: House) -> None:
    server.script = lambda body, _: error(404, "no such model")

    report = house.answer(requests(10))

    assert (server.requests, len(api(server).made), report.left) == (3, 0, 10)
    assert set(house.outcomes(requests(10))) == {"judge_rejected"}


def test_an_answer_with_signs_that_end_a_line_elsewhere_is_one_line(server: OpenAIServer, house: House) -> None:
    text = "sea\u2028green\u0085\u2029\x0b"
    server.script = lambda body, _: answer(json.dumps({"colour": text}, ensure_ascii=False))

    house.answer(requests(4))

    assert house.outcomes(requests(4)) == [text] * 4
    assert set(server.answered.values()) == {1}


@pytest.mark.parametrize(
    ("reply", "outcome", "asked_again"),
    [
        (REFUSAL, "judge_refused", 0),
        (FILTERED, "judge_refused", 0),
        (TRUNCATED, "judge_truncated", 0),
        (error(400, "The response was filtered", code="content_filter"), "judge_refused", 0),
        (EMPTY, "c002", 1),
        (answer("no idea"), "c002", 1),
        (answer({"shade": 1}), "c002", 1),
        (error(429, "slow down"), "c002", 1),
        (error(500, "broken"), "c002", 1),
        (Reply(status=400, body='{"error": {"message": "odd", "code": 400}}'), "c002", 1),
        (Reply(body="[]"), "c002", 1),
        (Reply(body="{}"), "c002", 1),
    ],
    ids=["refusal", "filter", "truncated", "400 filter", "empty", "prose", "schema", "429", "500", "400", "list", "nothing"],
)
def test_what_a_line_came_to_is_told_apart_as_for_a_single_call(
    server: OpenAIServer, house: House, reply: Reply, outcome: str, asked_again: int
) -> None:
    server.script = lambda body, before: reply if "c002" in str(body) and before == 0 else said(body)

    report = house.answer(requests(5))

    assert report.left == asked_again
    assert house.outcomes(requests(5)) == ["c000", "c001", outcome, "c003", "c004"]
    assert server.requests == 1 + asked_again
    assert len(api(server).made) == 1


def test_lines_that_are_missing_cut_off_or_foreign_are_asked_singly(server: OpenAIServer, house: House) -> None:
    api(server).plan = lambda _: BatchPlan(missing=frozenset({0}))

    def damage(call: str, stage: str) -> Reply | None:
        if (call, stage) != ("GET /files/{id}", "before"):
            return None
        whole = api(server).files["file-output-0"].decode().split("\n")
        foreign = json.dumps(json.loads(whole[1]) | {"custom_id": "somebody else's"})
        return Reply(body="\n".join([whole[0], "", "[1]", "null", foreign, whole[2][:40]]), content_type="text/plain")

    api(server).intercept = damage

    report = house.answer(requests(6))

    assert report.left == 4
    assert house.outcomes(requests(6)) == colours(6)
    assert (len(api(server).made), server.requests) == (1, 5)


def test_lines_with_errors_are_not_put_into_a_batch_again_after_a_restart(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda body, before: error(500, "broken") if "c002" in str(body) and before == 0 else said(body)
    with House(server, tmp_path) as house:
        house.answer(requests(5))

    with House(server, tmp_path) as house:
        report = house.answer(requests(5))

        assert (report.left, report.submitted) == (1, 0)
        assert house.outcomes(requests(5)) == colours(5)
    assert len(api(server).made) == 1


def test_an_answer_that_the_cache_does_not_take_is_not_asked_for_again_and_again(server: OpenAIServer, house: House) -> None:
    stale = StoredAnswer(text='{"shade": "of an older schema"}', model="m", schema_name="colour")
    house.cache.put_many({requests(5)[3].key: stale})

    report = house.answer(requests(5))

    assert (len(api(server).made), report.answered, report.left) == (1, 5, 1)
    assert set(server.answered.values()) == {1}


def test_batches_without_a_cache_are_refused(server: OpenAIServer, house: House) -> None:
    with (
        OpenAIChatModel(model="m", api_key="k", base_url=server.base_url) as chat,
        pytest.raises(RuleError, match="STEF_CACHE"),
    ):
        OpenAIBatches(chat, house.journal)


# --- waiting ---


def test_a_batch_is_looked_at_less_and_less_often_and_told_each_time(server: OpenAIServer, house: House) -> None:
    api(server).plan = lambda _: BatchPlan(polls=12)

    house.answer(requests(4))

    assert house.pauses[:3] == [POLL_S, POLL_S * 1.5, POLL_S * 1.5 * 1.5]
    assert (len(house.pauses), house.pauses[-1]) == (12, POLL_MAX_S)
    assert [state.status for state in house.told] == ["in_progress"] * 12 + ["completed"]
    assert {(state.batch_id, state.lines) for state in house.told} == {("batch-0", 3)}
    assert (house.told[0].done, house.told[-1].done) == (0, 3)


@pytest.mark.parametrize("fault", [error(500, "broken"), error(429, "slow", retry_after="7"), PAGE, Reply(drop=True)], ids=str)
@pytest.mark.parametrize("call", ["POST /files", "POST /batches", "GET /batches/{id}", "GET /files/{id}"])
def test_a_call_that_fails_is_made_again_and_makes_no_second_batch(
    server: OpenAIServer, house: House, call: str, fault: Reply
) -> None:
    faults = [fault, fault]
    api(server).intercept = lambda made, stage: faults.pop() if (made, stage) == (call, "before") and faults else None

    if fault is PAGE and call.startswith("POST"):
        with pytest.raises(RuleError, match="has no Batch API"):
            house.answer(requests(5))
        return
    house.answer(requests(5))

    assert house.outcomes(requests(5)) == colours(5)
    assert (len(api(server).made), server.requests) == (1, 1)
    assert (7.0 in house.pauses) == (fault.status == 429)


def test_a_batch_that_was_made_though_the_response_was_lost_is_found(server: OpenAIServer, house: House) -> None:
    lost = [error(504, "gateway timeout")]
    api(server).intercept = lambda call, stage: lost.pop() if (call, stage) == ("POST /batches", "after") and lost else None

    house.answer(requests(5))

    assert house.outcomes(requests(5)) == colours(5)
    assert (len(api(server).made), server.requests) == (1, 1)
    assert set(server.answered.values()) == {1}


def test_an_endpoint_that_stays_away_is_told_and_the_next_try_goes_on(server: OpenAIServer, house: House) -> None:
    away = {"GET /batches/{id}"}
    api(server).intercept = lambda call, _: error(503, "maintenance") if call in away else None

    with pytest.raises(TransientError, match=rf"answers 503 to GET /batches: .*\({POLL_RETRIES + 1} attempts\)"):
        house.answer(requests(5))
    away.clear()
    house.answer(requests(5))

    assert house.outcomes(requests(5)) == colours(5)
    assert (len(api(server).made), server.requests) == (1, 1)


# --- batches that fail as a whole ---


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled"])
def test_lines_of_a_batch_that_ended_early_go_into_one_more_batch(server: OpenAIServer, house: House, status: str) -> None:
    undone = frozenset({1, 2})
    api(server).plan = lambda number: BatchPlan(status=status, undone=undone, code="odd") if number == 0 else BatchPlan()

    report = house.answer(requests(6))

    assert [len(lines) for lines in api(server).lines] == [5, 5 if status == "failed" else 2]
    assert house.outcomes(requests(6)) == colours(6)
    assert server.requests == 1
    assert set(server.answered.values()) == {1}
    assert report.notes == (f"batch batch-0 {status}: planned: odd",)


def test_lines_of_two_batches_that_failed_are_asked_singly(server: OpenAIServer, house: House) -> None:
    api(server).plan = lambda _: BatchPlan(status="failed", code="odd")

    report = house.answer(requests(6))

    assert (len(api(server).made), report.left) == (2, 5)
    assert house.outcomes(requests(6)) == colours(6)
    assert server.requests == 6


def test_a_full_queue_makes_batches_smaller_until_they_fit(server: OpenAIServer, house: House) -> None:
    api(server).plan = lambda number: FULL if number < 2 else BatchPlan()

    report = house.answer(requests(41))

    assert [len(lines) for lines in api(server).lines] == [40, 20, 10, 10, 10, 10]
    assert house.outcomes(requests(41)) == colours(41)
    assert (server.requests, report.left) == (1, 0)


FULL = BatchPlan(status="failed", code="token_limit_exceeded")


def test_a_queue_that_is_always_full_ends_in_single_calls(server: OpenAIServer, house: House) -> None:
    api(server).plan = lambda _: FULL

    report = house.answer(requests(9))

    assert [len(lines) for lines in api(server).lines] == [8, 4, 2, 1]
    assert report.left == 8
    assert house.outcomes(requests(9)) == colours(9)


def test_a_batch_that_the_endpoint_no_longer_knows_is_made_once_more(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path) as house:
        interrupted_at(house, server, "GET /batches/{id}")
    api(server).made[0]["id"] = "another account's"

    with House(server, tmp_path) as house:
        report = house.answer(requests(5))

        assert report.notes == ("batch batch-0 is not known there",)
        assert house.outcomes(requests(5)) == colours(5)
    assert len(api(server).made) == 2


def test_files_that_are_gone_leave_their_lines_to_single_calls(server: OpenAIServer, house: House) -> None:
    api(server).intercept = lambda call, _: error(404, "expired") if call == "GET /files/{id}" else None

    report = house.answer(requests(5))

    assert report.left == 4
    assert house.outcomes(requests(5)) == colours(5)
    assert len(api(server).made) == 1


# --- budget ---

PRICES = {"m": Price(input=1000.0, output=100.0, batch=0.5)}  # an answer of 100 and 10 tokens costs 0.101


def test_a_budget_of_calls_cuts_the_batch_and_ends_at_its_limit(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path, budget=Budget(Limits(calls=8))) as house:
        report = house.answer(requests(20))
        outcomes = house.outcomes(requests(20))

        assert [len(lines) for lines in api(server).lines] == [7]
        assert (report.usage.requests, house.chat.budget.calls) == (8, 8)
    assert sorted(outcomes)[:12] == ["budget_exhausted"] * 12
    assert len(server.answered) == 8


def test_a_budget_of_money_counts_a_batch_at_its_price(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path, budget=Budget(Limits(cost=100.0), PRICES)) as house:
        report = house.answer(requests(11))

        assert report.usage.cost == pytest.approx(0.101 + 10 * 0.101 / 2)
        assert house.chat.budget.cost == pytest.approx(report.usage.cost)
        assert house.chat.usage.cost == pytest.approx(report.usage.cost)


def test_what_a_batch_did_not_use_of_its_reservation_goes_to_a_further_one(server: OpenAIServer, tmp_path: Path) -> None:
    asked = [replace(request, max_tokens=500) for request in requests(100)]  # held at 508 tokens, and takes 110
    with House(server, tmp_path, budget=Budget(Limits(tokens=6000))) as house:
        report = house.answer(asked)
        outcomes = house.outcomes(asked)

        assert house.chat.budget.tokens <= 6000
        assert report.usage.tokens_in + report.usage.tokens_out <= 6000
    assert [len(lines) for lines in api(server).lines] == [11, 9]  # the next would take 7 of 79
    assert outcomes.count("budget_exhausted") == 100 - len(server.answered)
    assert len(server.answered) > 45


def test_reservations_are_given_back_where_the_run_ends_early(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path, budget=Budget(Limits(calls=10))) as house:
        api(server).intercept = lambda call, _: error(503, "away") if call == "GET /batches/{id}" else None
        with pytest.raises(TransientError):
            house.answer(requests(5))
        after_failure = house.chat.budget.calls
        api(server).intercept = lambda call, stage: None

        house.answer(requests(5))

        assert (after_failure, house.chat.budget.calls) == (1, 5)
    assert len(api(server).made) == 1


# --- restarts ---


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def interrupted_at(house: House, server: OpenAIServer, call: str, asked: list[ChatRequest] | None = None) -> None:
    """End a run at the first of these calls."""

    def stop(made: str, stage: str) -> Reply | None:
        return error(401, "stopped here") if made == call else None

    api(server).intercept = stop
    with pytest.raises(RuleError):
        house.answer(requests(5) if asked is None else asked)
    api(server).intercept = lambda call, stage: None


def test_a_restart_waits_for_the_batch_that_is_under_way(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path) as house:
        interrupted_at(house, server, "GET /batches/{id}")

    with House(server, tmp_path) as house:
        report = house.answer(requests(5))

        assert (report.submitted, report.answered, report.usage.requests) == (0, 4, 4)
        assert house.outcomes(requests(5)) == colours(5)
    assert (len(api(server).made), server.requests) == (1, 1)


def test_lines_of_a_batch_that_are_not_needed_now_stay_under_way(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path) as house:
        interrupted_at(house, server, "GET /batches/{id}", requests(9))

    with House(server, tmp_path) as house:
        first = house.answer(requests(4))
        held = [len(chunk.keys) for chunk in house.under_way(requests(9))]
        rest = house.answer(requests(9))

        assert (first.usage.requests, held, rest.usage.requests) == (3, [5], 5)
        assert house.outcomes(requests(9)) == colours(9)
        assert not house.under_way(requests(9))
    assert len(api(server).made) == 1


def test_a_run_that_ends_while_it_submits_names_the_batches_that_go_on(server: OpenAIServer, house: House) -> None:
    stop = error(401, "stopped here")
    api(server).intercept = lambda call, _: stop if call == "POST /files" and api(server).calls.count(call) == 3 else None
    batches = house.batches(most_lines=4)

    with pytest.raises(RuleError):
        batches.answer(requests(20))

    assert batches.waiting == ("batch-0", "batch-1")
    assert [chunk.batch_id for chunk in house.under_way(requests(20))] == ["batch-0", "batch-1", None]


def test_a_batch_at_another_endpoint_is_not_waited_for(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path) as house:
        interrupted_at(house, server, "GET /batches/{id}")

    with serving(said) as other:
        other.batches = BatchApi(other)
        with House(other, tmp_path) as house:
            report = house.answer(requests(5))
            assert (report.submitted, report.left) == (1, 0)


def test_two_processes_that_wait_for_one_batch_count_it_once(server: OpenAIServer, tmp_path: Path) -> None:
    api(server).plan = lambda _: BatchPlan(polls=3)
    with House(server, tmp_path) as one, House(server, tmp_path) as other:
        one.chat.complete_many(requests(1))
        reports: list[BatchReport] = []
        threads = [threading.Thread(target=lambda h=h: reports.append(h.answer(requests(9)))) for h in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(report.answered for report in reports) == 8
        assert sum(len(lines) for lines in api(server).lines) + server.requests == 9
    assert set(server.answered.values()) == {1}


RUN = """
import sys
from pathlib import Path
from tests.pipeline.test_batches import ROOT, requests
from stef_core.openai_batch import OpenAIBatches
from stef_core.openai_model import OpenAIChatModel
from tasks.answer_cache import SqliteAnswerCache
from tasks.batch_journal import SqliteBatchJournal
import stef_core.openai_batch as module
module.KEPT_AT_ONCE = 10
url, folder = sys.argv[1], Path(sys.argv[2])
with SqliteAnswerCache(folder / "answers.sqlite") as cache, SqliteBatchJournal(folder / "answers.batches.sqlite") as journal:
    with OpenAIChatModel(model="m", api_key="k", base_url=url, cache=cache) as chat:
        report = OpenAIBatches(chat, journal, sleep=lambda _: None, most_lines=40).answer(requests(100))
        print(report.usage.requests, report.answered, report.left)
"""

POINTS = {
    "before the upload": ("POST /files", "before", 1),
    "after the upload": ("POST /files", "after", 1),
    "before the batch is made": ("POST /batches", "before", 1),
    "after the batch is made": ("POST /batches", "after", 1),
    "after the second batch is made": ("POST /batches", "after", 2),
    "while it waits": ("GET /batches/{id}", "before", 4),
    "before the first file is collected": ("GET /files/{id}", "before", 1),
    "between the files": ("GET /files/{id}", "before", 2),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_pays_for_nothing_twice(server: OpenAIServer, tmp_path: Path, point: str) -> None:
    call, stage, time_of = POINTS[point]
    command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path)]
    seen = 0

    def kill(made: str, at: str) -> Reply | None:
        nonlocal seen
        seen += (made, at) == (call, stage)
        if (made, at) == (call, stage) and seen == time_of:
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
        return None

    api(server).plan = lambda _: BatchPlan(polls=2)
    api(server).intercept = kill
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    running.communicate()
    api(server).intercept = lambda call, stage: None

    finished = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)

    assert running.returncode == -signal.SIGKILL
    assert finished.stdout.split()[2] == b"0"
    assert (len(server.answered), set(server.answered.values())) == (100, {1})
    assert server.requests <= 2  # each process tries the endpoint once, where it submits
    assert len(api(server).made) == 3
    with House(server, tmp_path) as house:
        assert house.outcomes(requests(100)) == colours(100)
        assert not house.under_way(requests(100))


def test_a_kill_between_two_groups_of_answers_counts_all_of_them_in_the_run_that_ends(
    server: OpenAIServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path)]
    trap = """
import os, signal
from tasks.answer_cache import SqliteAnswerCache
put, times = SqliteAnswerCache.put_many, []
def put_many(self, answers):
    put(self, answers)
    times.append(len(answers))
    if len(times) == 3:  # the single request, and two groups
        os.kill(os.getpid(), signal.SIGKILL)
SqliteAnswerCache.put_many = put_many
"""
    killed = subprocess.run([*command[:2], trap + RUN, *command[3:]], cwd=ROOT, capture_output=True, check=False)
    with SqliteAnswerCache(tmp_path / "answers.sqlite") as cache:
        kept = cache.count()

    finished = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)

    assert (killed.returncode, kept) == (-signal.SIGKILL, 21)
    assert finished.stdout.split() == [b"99", b"99", b"0"]
    assert (len(server.answered), set(server.answered.values())) == (100, {1})


# --- endpoints without batches ---


@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_endpoint_without_a_batch_api_is_named(server: OpenAIServer, house: House, status: int) -> None:
    api(server).intercept = lambda call, stage: error(status, "not here")

    with pytest.raises(RuleError, match=rf"has no Batch API \(it answers {status} to GET /batches\); run without --batch"):
        check_batch_api(house.chat, sleep=house.pauses.append)
    with pytest.raises(RuleError, match=r"has no Batch API .* to POST /files"):
        house.answer(requests(5))
    assert house.under_way(requests(5))[0].batch_id is None


def test_a_page_for_every_path_is_no_batch_api(server: OpenAIServer, house: House) -> None:
    api(server).intercept = lambda call, stage: PAGE

    with pytest.raises(RuleError, match=r"has no Batch API \(it answers a page instead of JSON"):
        check_batch_api(house.chat, sleep=house.pauses.append)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "bad key secret-key-1"), r"answers 401 to GET /batches: .*; set STEF_API_KEY"),
        (error(403, "not for you"), r"the key may not use the Batch API"),
        (error(429, "pay first", code="insufficient_quota"), r"quota is used up"),
        (error(400, "no"), r"run without --batch"),
    ],
    ids=["401", "403", "quota", "400"],
)
def test_a_refusal_says_what_to_do_and_not_the_key(server: OpenAIServer, house: House, reply: Reply, words: str) -> None:
    api(server).intercept = lambda call, stage: reply

    with pytest.raises(RuleError, match=words) as caught:
        check_batch_api(house.chat, sleep=house.pauses.append)
    assert "secret-key-1" not in str(caught.value)
    assert house.pauses == []


def test_an_endpoint_that_cannot_be_reached_is_transient(server: OpenAIServer, house: House) -> None:
    server.close()

    with pytest.raises(TransientError, match=rf"check STEF_BASE_URL \({SEND_RETRIES + 1} attempts\)"):
        check_batch_api(house.chat, sleep=house.pauses.append)


# --- the journal ---


def test_the_journal_is_its_owners_and_holds_no_text(server: OpenAIServer, tmp_path: Path) -> None:
    with House(server, tmp_path) as house:
        interrupted_at(house, server, "GET /batches/{id}")

    file = tmp_path / "answers.batches.sqlite"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"secret-key-1" not in file.read_bytes()
    assert b"c001" not in file.read_bytes()


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.batches.sqlite"
    file.write_text("not a database, but long enough to be taken for one" * 20)

    with pytest.raises(RuleError, match=r"answers\.batches\.sqlite: no journal of batches can be kept there"):
        SqliteBatchJournal(file)


def test_a_closed_journal_is_transient(tmp_path: Path) -> None:
    journal = SqliteBatchJournal(tmp_path / "j.sqlite")
    journal.close()
    journal.close()

    with pytest.raises(TransientError, match=r"j\.sqlite: the journal of batches cannot be used"):
        journal.under_way("e", ["k"])


def test_more_keys_than_one_query_takes_are_found(tmp_path: Path) -> None:
    keys = tuple(f"{n:04}" for n in range(1500))
    with SqliteBatchJournal(tmp_path / "j.sqlite", clock=lambda: 12.5) as journal:
        journal.plan(Chunk(mark="a", endpoint="e", model="m", step="json_schema", keys=keys))
        journal.submitted("a", "b-1")
        (chunk,) = journal.under_way("e", list(keys))
        journal.settle("a", keys[:1000], dict.fromkeys(keys[1000:], 2))

        assert (chunk.keys, chunk.batch_id, chunk.planned_at) == (keys, "b-1", 12.5)
        assert journal.tries("e", list(keys)) == dict.fromkeys(keys[1000:], 2)
        assert journal.under_way("e", list(keys)) == journal.under_way("other", list(keys)) == []
    with sqlite3.connect(tmp_path / "j.sqlite") as connection:
        left = connection.execute("SELECT count(*) FROM chunks").fetchone()
    connection.close()
    assert left == (0,)
