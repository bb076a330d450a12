"""Answers through the warehouse: what one machine has paid for, no other pays for."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic import SecretStr

from stef_core.errors import BusyError
from stef_core.evaluate import evaluate_many
from stef_core.llm import AnswerCache, StoredAnswer
from stef_core.records import QueryRecord
from tasks.answer_cache import SqliteAnswerCache
from tasks.cache_upkeep import cache_stats
from tasks.models import open_stages
from tasks.settings import Settings
from tasks.shared_answers import SharedAnswers, open_answers, push_answers
from tasks.warehouse import connect
from tests.openai_server import Reply, answer, serving

ANSWER = StoredAnswer(text='{"a": "ü"}', model="m", schema_name="s", step="json_schema", tokens_in=3, tokens_out=4, calls=2)
REFUSED = StoredAnswer(text="declined", reason="judge_refused", model="m", schema_name="s", calls=1)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"duckdb:///{tmp_path / 'w.duckdb'}"
    connect(url).close()
    return url


def machine(tmp_path: Path, name: str, url: str, **fields: Any) -> Settings:
    """Settings of a machine with a cache file of its own."""
    given: dict[str, Any] = {
        "cache": tmp_path / name / "answers.sqlite",
        "warehouse": url,
        "cache_shared": True,
        "marker_key": SecretStr("k" * 32),
        "warehouse_wait_s": 0.2,
    }
    return Settings(**given | fields)


@contextlib.contextmanager
def answers_of(settings: Settings) -> Iterator[AnswerCache]:
    cache = open_answers(settings)
    assert cache is not None
    try:
        yield cache
    finally:
        cache.close()


def put(settings: Settings, **answers: StoredAnswer) -> None:
    with answers_of(settings) as cache:
        cache.put_many(answers)


def get(settings: Settings, *keys: str) -> dict[str, StoredAnswer]:
    with answers_of(settings) as cache:
        return cache.get_many(keys)


@contextlib.contextmanager
def held(url: str) -> Iterator[None]:
    """The warehouse in the hands of another process."""
    code = "import sys, time; from tasks.warehouse import connect\nwith connect(sys.argv[1]): print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.kill()


def test_what_one_machine_gave_another_gets_and_keeps(tmp_path: Path, url: str) -> None:
    ours, theirs = machine(tmp_path, "ours", url), machine(tmp_path, "theirs", url)
    put(ours, k=ANSWER, r=REFUSED)

    given = push_answers(ours)

    assert given == 2
    assert get(theirs, "k", "absent", "r") == {"k": ANSWER, "r": REFUSED}
    (tmp_path / "w.duckdb").unlink()
    assert get(theirs, "k", "r") == {"k": ANSWER, "r": REFUSED}
    assert cache_stats(tmp_path / "theirs" / "answers.sqlite").total("hits") == 4


def test_without_the_setting_nothing_is_read_from_the_warehouse(tmp_path: Path, url: str) -> None:
    put(machine(tmp_path, "ours", url), k=ANSWER)
    push_answers(machine(tmp_path, "ours", url))

    assert get(machine(tmp_path, "theirs", url, cache_shared=False), "k") == {}


def test_an_answer_is_given_once_and_one_that_replaced_a_failure_again(tmp_path: Path, url: str) -> None:
    ours = machine(tmp_path, "ours", url)
    put(ours, k=ANSWER, r=REFUSED)
    counts = [push_answers(ours), push_answers(ours)]
    put(ours, new=ANSWER, r=replace(ANSWER, text="at last"))

    counts += [push_answers(ours), push_answers(ours)]

    assert counts == [2, 0, 2, 0]
    assert get(machine(tmp_path, "theirs", url), "r")["r"].text == "at last"


def test_a_warehouse_that_was_made_anew_is_given_everything_again(tmp_path: Path, url: str) -> None:
    ours = machine(tmp_path, "ours", url)
    put(ours, k=ANSWER)
    push_answers(ours)
    (tmp_path / "w.duckdb").unlink()
    connect(url).close()

    assert push_answers(ours) == 1
    assert get(machine(tmp_path, "theirs", url), "k") == {"k": ANSWER}


def test_many_answers_are_given_in_turns(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.shared_answers.TURN", 7)
    ours = machine(tmp_path, "ours", url)
    put(ours, **{f"k{n}": replace(ANSWER, text=str(n)) for n in range(30)})

    assert push_answers(ours) == 30
    found = get(machine(tmp_path, "theirs", url), *(f"k{n}" for n in range(30)))
    assert {key: each.text for key, each in found.items()} == {f"k{n}": str(n) for n in range(30)}


def test_a_text_that_not_every_database_holds_stays_on_its_machine(tmp_path: Path, url: str) -> None:
    ours = machine(tmp_path, "ours", url)
    put(ours, surrogate=replace(ANSWER, text="\ud800"), nul=replace(ANSWER, text="\0"), plain=ANSWER)

    assert [push_answers(ours), push_answers(ours)] == [1, 0]
    assert set(get(machine(tmp_path, "theirs", url), "surrogate", "nul", "plain")) == {"plain"}
    assert set(get(ours, "surrogate", "nul", "plain")) == {"surrogate", "nul", "plain"}


def test_a_warehouse_that_is_held_is_waited_for_once_and_then_done_without(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours = machine(tmp_path, "ours", url)
    put(ours, k=ANSWER)
    caplog.set_level("DEBUG", "tasks.shared_answers")

    with held(url), answers_of(ours) as cache:
        found = [cache.get_many(["k", "absent"]) for _ in range(20)]
        with pytest.raises(BusyError):
            push_answers(ours)

    assert found == [{"k": ANSWER}] * 20
    assert len([record for record in caplog.records if "are not read" in record.message]) == 1
    assert push_answers(ours) == 1


@pytest.mark.parametrize("harm", ["absent", "older", "copy"])
def test_a_warehouse_without_answers_to_share_is_done_without(tmp_path: Path, url: str, harm: str) -> None:
    file = tmp_path / "w.duckdb"
    if harm == "absent":
        file.unlink()
    elif harm == "older":
        with duckdb.connect(file) as old:
            old.execute("DROP TABLE staging.llm_answers; DELETE FROM schema_migrations WHERE version > 2")
    else:
        with connect(url) as store:
            store.record_experiment({"name": "v1"}, store.read("experiment_results"))
        url = f"duckdb:///{tmp_path / 'w.bi.duckdb'}"
    ours = machine(tmp_path, "ours", url)
    put(ours, k=ANSWER)

    assert get(ours, "k", "absent") == {"k": ANSWER}


def test_what_is_found_is_used_also_where_it_cannot_be_kept(tmp_path: Path, url: str) -> None:
    ours, theirs = machine(tmp_path, "ours", url), machine(tmp_path, "theirs", url)
    put(ours, k=ANSWER)
    push_answers(ours)

    assert theirs.cache is not None
    local = SqliteAnswerCache(theirs.cache)
    local.read_only = True
    with contextlib.closing(SharedAnswers(local, url)) as cache:
        assert cache.get_many(["k"]) == {"k": ANSWER}

    assert cache_stats(theirs.cache).total("answers") == 0


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    return answer({"question": {"projections": [], "aggregations": [], "filters": [], "group_by": []}})


def test_rows_that_one_machine_had_judged_cost_another_nothing(tmp_path: Path, url: str) -> None:
    rows = [QueryRecord(query_id=str(n), user_question=f"Boats on berth {n}?", generated_sql="SELECT 1") for n in range(5)]
    with serving(model_answer) as server:
        fields = {"judge": "openai", "model": "m", "base_url": server.base_url}
        ours, theirs = (machine(tmp_path, name, url, **fields) for name in ("ours", "theirs"))
        with open_stages(ours) as (reader, judge):
            first = list(evaluate_many(rows, judge=judge, reader=reader))
        push_answers(ours)
        asked = server.requests

        with open_stages(theirs) as (reader, judge):
            second = list(evaluate_many(rows, judge=judge, reader=reader))

        assert (asked, server.requests) == (10, 10)
    assert second == first
