"""Answers that runs share: kept once, never lost to a failure, and nothing that BI sees."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from stef_core.errors import InputError, RuleError
from stef_core.frames import LLM_ANSWERS, frame_of
from tasks.warehouse import Warehouse, connect
from tasks.warehouse.duckdb import bi_copy_of

NOON = dt.datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=dt.UTC)


def answers(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {
        "key": "k",
        "text": "{}",
        "reason": None,
        "model": "m",
        "schema_name": "verdict",
        "step": "json_schema",
        "tokens_in": 100,
        "tokens_out": 10,
        "calls": 1,
        "created_at": NOON,
    }
    return frame_of([base | row for row in rows], LLM_ANSWERS)


def texts(warehouse: Warehouse, *keys: str) -> dict[str, tuple[str, str | None]]:
    return {key: (text, reason) for key, text, reason in warehouse.answers(keys).select("key", "text", "reason").rows()}


def test_answers_come_back_as_they_were_given(warehouse: Warehouse) -> None:
    given = answers({"text": '{"a": "ü \'$1\' ?"}'}, {"key": "r", "reason": "judge_refused", "step": ""})

    warehouse.put_answers(given)

    found = warehouse.answers(["r", "absent", "k"])
    assert found.schema == LLM_ANSWERS
    assert found.sort("key").equals(given.sort("key"))


def test_asking_for_nothing_gives_a_frame_of_no_rows(warehouse: Warehouse) -> None:
    assert warehouse.answers([]).schema == warehouse.answers(["absent"]).schema == LLM_ANSWERS


def test_an_answer_replaces_a_failure_and_nothing_replaces_an_answer(warehouse: Warehouse) -> None:
    failure = {"text": "declined", "reason": "judge_refused"}
    warehouse.put_answers(answers({"key": "a"} | failure, {"key": "b", "text": "first"}, {"key": "c"} | failure))

    warehouse.put_answers(
        answers({"key": "a", "text": "later"}, {"key": "b", "text": "second"}, {"key": "c", "text": "no"} | failure)
    )
    warehouse.put_answers(answers({"key": "a"} | failure, {"key": "b"} | failure))

    assert texts(warehouse, "a", "b", "c") == {
        "a": ("later", None),
        "b": ("first", None),
        "c": ("declined", "judge_refused"),
    }


def test_more_answers_than_a_statement_takes_are_kept_and_found(warehouse: Warehouse) -> None:
    keys = [f"k{n}" for n in range(2500)]

    warehouse.put_answers(answers(*({"key": key, "text": key * 3} for key in keys)))
    warehouse.put_answers(answers(*({"key": key, "text": "again"} for key in keys[:450])))

    assert {key: text for key, (text, _) in texts(warehouse, *keys).items()} == {key: key * 3 for key in keys}


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (answers({}).drop("step"), "columns and types are not those of stef_core.frames.LLM_ANSWERS"),
        (answers({}, {"key": "l", "text": None}), "column text is missing in a row"),
        (answers({}, {}), "a key stands in two rows"),
    ],
)
def test_answers_that_do_not_fit_are_refused_whole(warehouse: Warehouse, frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        warehouse.put_answers(frame)

    assert warehouse.answers(["k", "l"]).is_empty()


def test_answers_are_neither_staged_nor_read_as_a_table(warehouse: Warehouse) -> None:
    with pytest.raises(RuleError, match="cannot be staged"):
        warehouse.staged("llm_answers", "run-1")
    with pytest.raises(RuleError, match="no table or view 'llm_answers'"):
        warehouse.read("llm_answers")


def test_a_warehouse_for_reading_takes_no_answers(url: str, warehouse: Warehouse) -> None:
    warehouse.put_answers(answers({}))
    warehouse.close()

    with connect(url, read_only=True) as reading:
        assert texts(reading, "k") == {"k": ("{}", None)}
        with pytest.raises(RuleError):
            reading.put_answers(answers({"key": "l"}))


def test_the_table_is_that_of_the_frame(warehouse: Warehouse) -> None:
    columns = warehouse.query(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'llm_answers' ORDER BY ordinal_position"
    )

    assert columns["column_name"].to_list() == list(LLM_ANSWERS)


# --- DuckDB ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.duckdb"


def test_the_copy_for_bi_knows_no_answers(file: Path) -> None:
    with connect(f"duckdb:///{file}") as store:
        store.put_answers(answers({"text": "a question's secret"}))
        store.record_experiment({"name": "v1"}, store.read("experiment_results"))

    with duckdb.connect(bi_copy_of(file), read_only=True) as copy:
        tables = {name for (name,) in copy.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    assert "experiment_runs" in tables
    assert "llm_answers" not in tables
    assert b"secret" not in bi_copy_of(file).read_bytes()
    with connect(f"duckdb:///{bi_copy_of(file)}", read_only=True) as store:
        assert store.read("experiment_runs")["name"].to_list() == ["v1"]
        with pytest.raises(RuleError, match="llm_answers"):
            store.answers(["k"])


def test_a_warehouse_without_the_table_gets_it_with_the_next_write(file: Path) -> None:
    url = f"duckdb:///{file}"
    connect(url).close()
    with duckdb.connect(file) as old:
        old.execute("DROP TABLE staging.llm_answers; DELETE FROM schema_migrations WHERE version = 3")

    with connect(url) as store:
        store.put_answers(answers({}))

        assert texts(store, "k") == {"k": ("{}", None)}
