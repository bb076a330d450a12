"""Runs of experiments in the warehouse: recorded whole, and replaced by name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest

from stef_core.errors import InputError, RuleError
from stef_core.frames import EXPERIMENT_RESULTS, frame_of
from tasks.warehouse import Warehouse

NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)


def results(name: str, *query_ids: str) -> pl.DataFrame:
    lines: list[dict[str, Any]] = [
        dict.fromkeys(EXPERIMENT_RESULTS) | {"name": name, "ordinal": n, "query_id": query_id}
        for n, query_id in enumerate(query_ids, 1)
    ]
    return frame_of(lines, EXPERIMENT_RESULTS)


def test_a_run_takes_the_place_of_the_earlier_one_of_its_name_and_of_no_other(warehouse: Warehouse) -> None:
    warehouse.record_experiment({"name": "v1", "started_at": NOON, "rows": 2}, results("v1", "a", "b"))
    warehouse.record_experiment({"name": "v2", "started_at": NOON, "rows": 1}, results("v2", "a"))

    warehouse.record_experiment({"name": "v1", "started_at": NOON, "rows": 1, "accuracy": 0.5}, results("v1", "c"))

    assert warehouse.read("experiment_runs").select("name", "rows", "accuracy").rows() == [("v1", 1, 0.5), ("v2", 1, None)]
    assert warehouse.read("experiment_results").select("name", "query_id").rows() == [("v1", "c"), ("v2", "a")]


@pytest.mark.parametrize(
    ("run", "rows", "message"),
    [
        ({"rows": 1}, results("v1", "a"), "experiment_runs: column name is missing"),
        ({"name": "v1", "colour": "red"}, results("v1", "a"), "column colour does not belong to it"),
        ({"name": "v1", "rows": "many"}, results("v1", "a"), "a value does not fit its column"),
        ({"name": "v1"}, results("v2", "a"), "rows of another run than v1"),
        ({"name": "v1"}, results("v1", "a").drop("phi"), "columns and types are not those"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_whole(
    warehouse: Warehouse, run: dict[str, Any], rows: pl.DataFrame, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        warehouse.record_experiment(run, rows)

    assert warehouse.read("experiment_runs").is_empty()
    assert warehouse.read("experiment_results").is_empty()


def test_a_run_without_its_rows_is_not_left_behind_when_a_row_is_refused(warehouse: Warehouse) -> None:
    rows = results("v1", "a").with_columns(query_id=pl.lit(None, pl.String))

    with pytest.raises(InputError, match="query_id"):
        warehouse.record_experiment({"name": "v1"}, rows)

    assert warehouse.read("experiment_runs").is_empty()


def test_runs_have_no_days_and_are_not_staged(warehouse: Warehouse) -> None:
    with pytest.raises(RuleError, match="no table 'experiment_runs'"):
        warehouse.days("experiment_runs")
    with pytest.raises(RuleError, match="cannot be staged"):
        warehouse.staged("experiment_results", "v1")
