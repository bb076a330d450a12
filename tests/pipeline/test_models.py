"""Opening the reader and the judge that the settings name, and whole rows through a loopback endpoint."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from stef_core.errors import RuleError, TransientError
from stef_core.evaluate import evaluate_many
from stef_core.extract.question_llm import LLMReader
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.llm import LLMJudge
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.openai_model import OpenAIChatModel
from stef_core.records import Evaluation, QueryRecord
from stef_core.rules import Rules
from tasks.answer_cache import SqliteAnswerCache
from tasks.models import check_settings, marker_key, open_judge, open_reader, open_stages, run_model, usage_of
from tasks.settings import ModelPrice, Settings
from tests.openai_server import REFUSAL, OpenAIServer, Reply, answer, error, serving

SPEC: dict[str, Any] = {"projections": [], "aggregations": [], "filters": [], "group_by": []}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(model_answer) as running:
        yield running


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    """What a sensible model would say, the same for the same request."""
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    return answer({"question": SPEC} | ({"enriched": SPEC} if '"enriched_question"' in body["messages"][1]["content"] else {}))


def settings(**fields: Any) -> Settings:
    defaults: dict[str, Any] = {"judge": "openai", "model": "m", "base_url": None, "api_key": None, "cache": None}
    return Settings(**defaults | fields)


def rows(count: int) -> list[QueryRecord]:
    ports = ("Bergen", "Turku", "Riga", "Gdynia", "Malmo")
    return [
        QueryRecord(
            query_id=f"q{n}",
            user_question=f"How many boats moored in {ports[n % 5]} on berth {n}?",
            enriched_question=f"Count boats where port is {ports[n % 5]} and berth is {n}" if n % 3 == 0 else None,
            generated_sql=f"SELECT COUNT(*) FROM moorings WHERE port = '{ports[n % 5]}' AND berth = {n}",
        )
        for n in range(count)
    ]


# --- opening ---


def test_the_symbolic_judge_needs_no_endpoint() -> None:
    with open_stages(settings(judge="symbolic", model=None)) as (reader, judge):
        assert isinstance(reader, OfflineReader)
        assert isinstance(judge, SymbolicJudge)
        assert usage_of(reader).requests == usage_of(judge).requests == 0


def test_a_money_budget_needs_the_price_of_its_model() -> None:
    limited = settings(base_url="http://127.0.0.1:9/v1", max_cost=5.0)

    with pytest.raises(RuleError, match=r"STEF_MAX_COST is set, but the price table names no 'm'"):
        check_settings(limited)
    check_settings(limited.model_copy(update={"prices": {"m": ModelPrice(input=1, output=2)}}))
    check_settings(limited.model_copy(update={"judge": "symbolic"}))  # makes no calls


def test_a_budget_of_calls_holds_over_all_batches_of_a_run(server: OpenAIServer) -> None:
    limited = settings(base_url=server.base_url, max_calls=30)
    scored: list[Evaluation] = []

    with run_model(limited):
        for start in range(0, 60, 20):
            with open_stages(limited) as (reader, judge):
                scored += evaluate_many(rows(60)[start : start + 20], judge=judge, reader=reader)

    assert server.requests == 30
    assert Counter(e.status for e in scored) == {"scored": 10, "unscored": 50}
    assert {e.reason for e in scored if e.status == "unscored"} == {"budget_exhausted"}
    assert "STEF_MAX_CALLS" in scored[-1].findings[-1].message


def test_batches_of_a_run_count_for_themselves(server: OpenAIServer) -> None:
    shared = settings(base_url=server.base_url)

    with run_model(shared):
        for start in (0, 5):
            with open_stages(shared) as (reader, judge):
                list(evaluate_many(rows(10)[start : start + 5], judge=judge, reader=reader))
                assert usage_of(judge).requests == 10


def test_an_answer_is_paid_by_the_price_table(server: OpenAIServer) -> None:
    priced = settings(base_url=server.base_url, prices={"m": ModelPrice(input=10.0, output=100.0)})

    with open_stages(priced) as (reader, judge):
        evaluation = next(evaluate_many(rows(1), judge=judge, reader=reader))

    assert evaluation.verdict is not None
    assert evaluation.verdict.cost == pytest.approx((100 * 10 + 10 * 100) / 1e6)
    assert usage_of(judge).cost == pytest.approx(2 * evaluation.verdict.cost)  # the reading costs as much


def test_reader_and_judge_share_one_model(server: OpenAIServer) -> None:
    with open_stages(settings(base_url=server.base_url)) as (reader, judge):
        assert isinstance(reader, LLMReader)
        assert isinstance(judge, LLMJudge)
        assert reader.chat is judge.chat
        evaluation = next(evaluate_many(rows(1), judge=judge, reader=reader))

    assert evaluation.status == "scored"
    assert usage_of(judge).requests == 2


def test_each_stage_opens_alone(server: OpenAIServer) -> None:
    with open_reader(settings(base_url=server.base_url)) as reader, open_judge(settings(base_url=server.base_url)) as judge:
        assert (reader.name, judge.name, judge.model) == ("llm", "openai", "m")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": None, "api_key": SecretStr("k")}, "STEF_MODEL"),
        ({"model": " ", "api_key": SecretStr("k")}, "STEF_MODEL"),
        ({}, r"STEF_API_KEY or OPENAI_API_KEY"),
        ({"base_url": "http://10.0.0.5:8000/v1"}, "STEF_API_KEY"),
        ({"base_url": "localhost:8000/v1"}, "STEF_BASE_URL"),
        ({"base_url": "http://localhost:8000/v1/chat/completions"}, "leave that part out"),
    ],
)
def test_a_setting_that_is_missing_or_wrong_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleError, match=words):
        check_settings(settings(**fields))
    with pytest.raises(RuleError, match=words), open_stages(settings(**fields)):
        pass


def test_an_endpoint_on_this_machine_needs_no_key(server: OpenAIServer) -> None:
    with open_judge(settings(base_url=server.base_url)) as judge:
        list(evaluate_many(rows(1), judge=judge))

    assert set(server.keys) == {"none"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "llm.localhost"])
def test_names_of_this_machine_are_known(host: str) -> None:
    check_settings(settings(base_url=f"http://{host}:8000/v1"))


def test_the_key_of_the_settings_is_sent(server: OpenAIServer) -> None:
    with open_judge(settings(base_url=server.base_url, api_key=SecretStr("planted-key"))) as judge:
        list(evaluate_many(rows(1), judge=judge))

    assert set(server.keys) == {"planted-key"}


def test_answers_are_kept_in_the_cache_of_the_settings(server: OpenAIServer, tmp_path: Path) -> None:
    chosen = settings(base_url=server.base_url, cache=tmp_path / "answers.sqlite")
    for _ in range(2):
        with open_stages(chosen) as (reader, judge):
            list(evaluate_many(rows(3), judge=judge, reader=reader))

    assert server.requests == 6


# --- the marker ---


def test_runs_with_one_cache_share_the_key_of_the_marker(server: OpenAIServer, tmp_path: Path) -> None:
    chosen = settings(base_url=server.base_url, cache=tmp_path / "new" / "answers.sqlite")
    script = "import sys; from tasks.models import marker_key; from tasks.settings import Settings; "
    script += "print(marker_key(Settings(cache=sys.argv[1])).hex())"
    command = [sys.executable, "-c", script, str(chosen.cache)]

    racing = [subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    keys = {process.communicate()[0].strip() for process in racing}

    assert keys == {(marker_key(chosen) or b"").hex()}
    assert len(keys.pop()) == 64
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "new").iterdir()] == [("marker.key", 0o600)]


def test_the_key_of_the_marker_that_is_set_goes_first(server: OpenAIServer, tmp_path: Path) -> None:
    stated = settings(base_url=server.base_url, cache=tmp_path / "answers.sqlite", marker_key=SecretStr("k" * 32))

    assert marker_key(stated) == b"k" * 32
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache_each_process_has_a_key_of_its_own() -> None:
    assert marker_key(settings()) is None


@pytest.mark.parametrize("content", ["", "zz", "00" * 31])
def test_a_file_that_holds_no_key_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "marker.key").write_text(content)

    with pytest.raises(RuleError, match=r"marker\.key: .*delete it, or set STEF_MARKER_KEY"):
        marker_key(settings(cache=tmp_path / "answers.sqlite"))


def test_a_folder_that_takes_no_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RuleError, match="no key of the marker can be kept there"):
        marker_key(settings(cache=tmp_path / "file" / "answers.sqlite"))


def test_a_key_that_can_be_guessed_is_refused_without_repeating_it() -> None:
    with pytest.raises(RuleError, match="STEF_MARKER_KEY is shorter than 16 characters") as caught:
        marker_key(settings(marker_key=SecretStr("secret")))

    assert "secret" not in str(caught.value)


def test_the_marker_is_that_of_the_settings(server: OpenAIServer) -> None:
    def contents(key: str) -> list[str]:
        server.bodies.clear()
        with open_stages(settings(base_url=server.base_url, marker_key=SecretStr(key))) as (reader, judge):
            list(evaluate_many(rows(1), judge=judge, reader=reader))
        return [body["messages"][1]["content"] for body in server.bodies]

    first, again, other = contents("a" * 32), contents("a" * 32), contents("b" * 32)

    assert len(first) == 2
    assert first == again
    assert not {text.split("\n")[0] for text in first} & {text.split("\n")[0] for text in other}


# --- whole rows ---

FAULTS = (error(429, "slow down", retry_after="1"), error(500, "broken"))


def faulty(share: float) -> Any:
    """Faults on a share of requests that depends on the request alone, so that a run can be repeated."""

    def script(body: dict[str, Any], before: int) -> Reply:
        digest = hashlib.sha256(f"{json.dumps(body, sort_keys=True)}{before}".encode()).digest()
        chance = random.Random(digest)
        return chance.choice(FAULTS) if chance.random() < share else model_answer(body)

    return script


async def no_sleep(_: float) -> None:
    pass


def score(server: OpenAIServer, cache: Path, records: list[QueryRecord]) -> list[Evaluation]:
    with (
        SqliteAnswerCache(cache) as answers,
        OpenAIChatModel(model="m", api_key="none", base_url=server.base_url, cache=answers, sleep=no_sleep, retries=6) as chat,
    ):
        return list(evaluate_many(records, judge=LLMJudge(chat), reader=LLMReader(chat)))


def test_every_row_is_scored_once_under_faults_and_a_second_run_asks_nothing(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = faulty(0.10)
    records = rows(300)

    first = score(server, tmp_path / "answers.sqlite", records)
    asked = server.requests
    second = score(server, tmp_path / "answers.sqlite", records)

    assert [e.query_id for e in first] == [r.query_id for r in records]
    assert Counter(e.status for e in first) == {"scored": 300}
    assert server.distinct == 600
    assert 600 < asked <= 1.35 * 600
    assert server.requests == asked
    assert second == first


def test_no_failure_ever_becomes_a_verdict(server: OpenAIServer, tmp_path: Path) -> None:
    bad = {"q3": REFUSAL, "q7": answer("no idea"), "q11": error(500), "q12": error(403)}

    def script(body: dict[str, Any], _: int) -> Reply:
        if body["response_format"]["json_schema"]["name"] == "verdict":
            for query_id, reply in bad.items():
                if f"berth {query_id[1:]}?" in body["messages"][1]["content"]:
                    return reply
        return model_answer(body)

    server.script = script

    evaluations = {e.query_id: e for e in score(server, tmp_path / "answers.sqlite", rows(20))}

    unscored = {query_id: e.reason for query_id, e in evaluations.items() if e.status == "unscored"}
    assert unscored == {"q3": "judge_refused", "q7": "judge_invalid", "q11": "judge_unavailable", "q12": "judge_rejected"}
    assert all(evaluations[q].score is None for q in bad)
    assert {e.verdict.grade for q, e in evaluations.items() if q not in bad and e.verdict} == {"correct"}


def test_a_question_that_could_not_be_read_leaves_its_row_unscored(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda body, _: REFUSAL if "berth 2?" in body["messages"][1]["content"] else model_answer(body)

    evaluations = score(server, tmp_path / "answers.sqlite", rows(4))

    assert [(e.status, e.reason) for e in evaluations][2] == ("unscored", "question_reader_refused")
    assert [e.status for e in evaluations].count("scored") == 3


def test_an_answered_part_of_a_broken_run_is_not_paid_for_again(server: OpenAIServer, tmp_path: Path) -> None:
    server.script = lambda body, _: error(500) if "berth 5?" in body["messages"][1]["content"] else model_answer(body)
    first = score(server, tmp_path / "answers.sqlite", rows(10))
    answered = server.requests
    server.script = model_answer

    second = score(server, tmp_path / "answers.sqlite", rows(10))

    assert [e.status for e in first].count("unscored") == 1
    assert [e.status for e in second].count("unscored") == 0
    assert server.requests - answered == 2


def test_a_batch_that_reached_nobody_is_left_to_its_task_to_repeat(server: OpenAIServer, tmp_path: Path) -> None:
    url = server.base_url
    server.close()
    chat = OpenAIChatModel(model="m", api_key="none", base_url=url, sleep=no_sleep, retries=1)

    with chat, pytest.raises(TransientError, match="STEF_BASE_URL"):
        list(evaluate_many(rows(3), judge=LLMJudge(chat, raise_if_down=True)))


def test_equal_rows_are_asked_once(server: OpenAIServer, tmp_path: Path) -> None:
    records = [replace(rows(1)[0], query_id=str(n)) for n in range(10)]

    evaluations = score(server, tmp_path / "answers.sqlite", records)

    assert server.requests == 2
    assert len({(e.score.phi, e.verdict.tokens_in) for e in evaluations if e.score and e.verdict}) == 1


RUN = """
import sys
from stef_core.evaluate import evaluate_many
from tasks.models import open_stages
from tasks.settings import Settings
from tests.pipeline.test_models import rows
chosen = Settings(judge="openai", model="m", base_url=sys.argv[1], cache=sys.argv[2], concurrency=4)
with open_stages(chosen) as (reader, judge):
    print(sum(e.status == "scored" for e in evaluate_many(rows(100), judge=judge, reader=reader)))
"""


def test_a_killed_run_pays_again_only_for_what_was_in_flight(server: OpenAIServer, tmp_path: Path) -> None:
    def slow(body: dict[str, Any], _: int) -> Reply:
        time.sleep(0.01)
        return model_answer(body)

    server.script = slow
    command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path / "answers.sqlite")]
    root = Path(__file__).parents[2]
    killed = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
    while server.requests < 90 and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    time.sleep(0.1)  # what was in flight has reached the server
    before = server.requests

    finished = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True)

    assert 90 <= before < 200
    assert finished.stdout.strip() == b"100"
    assert server.distinct == 200
    assert server.requests <= 200 + 4


def test_a_damaged_cache_ends_a_run_before_it_pays(server: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "answers.sqlite"
    score(server, file, rows(100))
    asked, content = server.requests, file.read_bytes()
    file.write_bytes(content[: 6 * 16384] + b"\xa5" * (len(content) - 6 * 16384))

    with pytest.raises(RuleError, match=r"answers\.sqlite: is damaged, .*; move it away"):
        score(server, file, rows(100))

    assert server.requests == asked


FULL = """
import logging, resource, signal, sys
from stef_core.evaluate import evaluate_many
from tasks.models import open_stages
from tasks.settings import Settings
from tests.pipeline.test_models import rows
logging.basicConfig(stream=sys.stdout, format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
chosen = Settings(judge="openai", model="m", base_url=sys.argv[1], cache=sys.argv[2])
with open_stages(chosen) as (reader, judge):
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))  # as a disk that is full
    print(sum(e.status == "scored" for e in evaluate_many(rows(50), judge=judge, reader=reader)))
"""


def test_a_run_on_a_full_disk_goes_on_and_says_so(server: OpenAIServer, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, server.base_url, str(tmp_path / "answers.sqlite")]

    done = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True)

    warning, scored = done.stdout.splitlines()
    assert warning.startswith(f"answers are not cached: {tmp_path / 'answers.sqlite'}: the answer cache cannot be used: ")
    assert scored == "50"


def test_redacted_literals_and_the_key_are_in_no_request_and_no_cache_file_and_the_filters_still_meet(
    server: OpenAIServer, tmp_path: Path
) -> None:
    def script(body: dict[str, Any], _: int) -> Reply:
        if body["response_format"]["json_schema"]["name"] == "verdict":
            return answer({"reasons": [f"seen: {body['messages'][1]['content'][:300]}"], "grade": "correct", "confidence": 0.9})
        return answer({"question": SPEC | {"filters": [{"column": "email", "op": "=", "value": "[redacted]", "text": "of"}]}})

    server.script = script
    record = QueryRecord(
        query_id="1",
        user_question="How many parcels went to Kim.Lund@example.org?",
        generated_sql="SELECT COUNT(*) FROM parcels WHERE email = 'kim.lund@example.org'",
    )
    chosen = settings(base_url=server.base_url, api_key=SecretStr("planted-key"), cache=tmp_path / "answers.sqlite")

    with open_stages(chosen) as (reader, judge):
        (evaluation,) = evaluate_many([record], Rules(redact=["email"]), judge, reader)
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert server.requests == 2
    assert "lund" not in json.dumps(server.bodies).casefold()
    assert b"lund" not in kept.lower()
    assert b"planted-key" not in kept
    assert evaluation.alignment is not None
    assert evaluation.alignment.filter_status == "fully_applied"
