"""`stef export`: published tables in an open format, read back by another reader and compared with the warehouse."""

from __future__ import annotations

import builtins
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.fs as pafs
import pytest
from polars.testing import assert_frame_equal

from flows import cli
from stef_core.errors import RuleError
from stef_core.frames import TABLES
from tasks.export import DATED, FORMATS, Format, export_tables
from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import ORDER

FIRST = dt.date(2026, 3, 1)
Rows = Callable[..., pl.DataFrame]


def publish(warehouse: Warehouse, rows: Rows, day_of_march: int, run_id: str = "run", **tables: list[dict[str, Any]]) -> None:
    day = FIRST + dt.timedelta(days=day_of_march - 1)
    frames = {table: rows(table, *given, run_id=run_id, day=day) for table, given in tables.items()}
    warehouse.stage(run_id, day, frames)
    warehouse.publish(run_id, day, list(frames))


@pytest.fixture
def filled(url: str, rows: Rows) -> str:
    """Three days, one of them with an alert, a run and rules."""
    with connect(url, wait_s=5) as warehouse:
        for day in (1, 2, 4):
            publish(
                warehouse,
                rows,
                day,
                query_scores=[
                    {"query_id": "a", "phi": 50.0, "user_question": "wie viele\n„Füße“?", "user_feedback": True},
                    {"query_id": "b", "status": "unscored", "reason": "judge_unavailable"},
                ],
                query_findings=[{"query_id": "a", "ordinal": 0}],
                agent_daily=[{"rows": 2, "scored": 1, "coverage": 0.5}],
                agent_alerts=[{"agent_id": "ann"}] if day == 2 else [],
                log_catalogue=[{"key": "orders", "questions": 1}],
            )
        warehouse.record_run({"run_id": "run", "dt": FIRST, "started_at": dt.datetime(2026, 3, 2, 6, tzinfo=dt.UTC)})
    return url


def read_back(out: Path, form: Format, table: str) -> pl.DataFrame:
    folder = out / table
    if form == "delta":
        frame = pl.read_delta(str(folder))
    elif table in DATED:
        if not list(folder.glob("*/*.parquet")):
            return TABLES[table].to_frame()
        frame = pl.scan_parquet(folder / "**/*.parquet", hive_partitioning=True).collect()
    else:
        frame = pl.read_parquet(folder / "data.parquet")
    return frame.select(list(TABLES[table])).cast(TABLES[table]).sort(ORDER[table], nulls_last=False)


def files_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_read_back_is_what_the_warehouse_holds(filled: str, form: Format, tmp_path: Path) -> None:
    told = export_tables(filled, str(tmp_path / "lake"), form)

    assert [one.table for one in told] == list(TABLES)
    assert {one.table: one.days for one in told if one.days} == {
        "query_scores": 3,
        "query_findings": 3,
        "agent_daily": 3,
        "agent_alerts": 1,
        "log_catalogue": 3,
    }
    with connect(filled, read_only=True) as warehouse:
        for one in told:
            if form == "delta" and one.days == 0:
                assert not Path(one.path).exists()
                continue
            expected = warehouse.read(one.table)
            assert one.rows == expected.height
            assert_frame_equal(read_back(tmp_path / "lake", form, one.table), expected)


@pytest.mark.parametrize("form", FORMATS)
def test_exporting_twice_leaves_the_same_rows_and_days_stay_apart(filled: str, form: Format, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_tables(filled, str(out), form, until=FIRST)
    first = read_back(out, form, "query_scores")

    export_tables(filled, str(out), form, since=FIRST + dt.timedelta(days=1))
    export_tables(filled, str(out), form, since=FIRST + dt.timedelta(days=3), tables=["query_scores"])

    assert set(first["dt"]) == {FIRST}
    with connect(filled, read_only=True) as warehouse:
        assert_frame_equal(read_back(out, form, "query_scores"), warehouse.read("query_scores"))


def test_parquet_of_a_repeated_export_is_the_same_to_the_byte_with_nothing_left_aside(filled: str, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    export_tables(filled, str(out), "parquet")
    before = files_of(out)

    export_tables(filled, str(out), "parquet")

    assert files_of(out) == before
    assert {Path(name).name for name in before} == {"data.parquet"}
    assert "query_scores/dt=2026-03-04/data.parquet" in before


@pytest.mark.parametrize("form", FORMATS)
def test_a_day_that_lost_its_rows_loses_them_in_the_copy(filled: str, form: Format, rows: Rows, tmp_path: Path) -> None:
    export_tables(filled, str(tmp_path), form)
    with connect(filled, wait_s=5) as warehouse:
        publish(warehouse, rows, 2, "later", agent_alerts=[])

    (alerts,) = export_tables(filled, str(tmp_path), form, tables=["agent_alerts"])
    (again,) = export_tables(filled, str(tmp_path), form, tables=["agent_alerts"])

    assert (alerts.days, alerts.removed, alerts.rows) == (0, 1, 0)
    assert again.removed == 0
    assert read_back(tmp_path, form, "agent_alerts").is_empty()


def test_a_store_of_objects_takes_parquet_too(filled: str) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    store = pafs.PyFileSystem(pafs.FSSpecHandler(MemoryFileSystem()))

    export_tables(filled, "/bucket/lake", "parquet", tables=["query_scores"], filesystem=store)

    with store.open_input_file("/bucket/lake/query_scores/dt=2026-03-01/data.parquet") as file:
        assert pl.read_parquet(file.readall())["query_id"].to_list() == ["a", "b"]


def test_staged_rows_and_shared_answers_are_never_copied(filled: str, rows: Rows, tmp_path: Path) -> None:
    with connect(filled, wait_s=5) as warehouse:
        day = FIRST + dt.timedelta(days=8)
        warehouse.stage("waiting", day, {"query_scores": rows("query_scores", {}, run_id="waiting", day=day)})

    told = export_tables(filled, str(tmp_path), "parquet", tables=["query_scores"])

    assert (told[0].days, "llm_answers" in TABLES) == (3, False)
    assert not list(tmp_path.rglob("*2026-03-09*"))


def test_wrong_requests_are_told(filled: str, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no published table 'llm_answers'"):
        export_tables(filled, str(tmp_path), "parquet", tables=["llm_answers"])
    with pytest.raises(RuleError, match="--until 2026-03-01 lies before --since 2026-03-02"):
        export_tables(filled, str(tmp_path), "parquet", since=FIRST + dt.timedelta(days=1), until=FIRST)
    with pytest.raises(RuleError, match="ftp://x: cannot be written to"):
        export_tables(filled, "ftp://x", "parquet")
    (tmp_path / "file").touch()
    for form in FORMATS:
        with pytest.raises(RuleError, match="cannot be written"):
            export_tables(filled, str(tmp_path / "file"), form)


def test_delta_without_its_package_says_what_to_install(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name == "deltalake":
            raise ImportError(name)
        return genuine(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)

    with pytest.raises(RuleError, match=r"install stef-pipeline\[delta\]"):
        export_tables(filled, str(tmp_path), "delta")


def test_command_says_what_it_wrote(filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "lake")

    code = cli.run(["export", "--warehouse", filled, "--out", out, "--tables", "query_scores,scoring_runs"])
    lines = capsys.readouterr().out.splitlines()
    in_json = cli.run(["export", "--warehouse", filled, "--out", out, "--since", "2026-03-02", "--json"])
    told = json.loads(capsys.readouterr().out)

    assert code == in_json == 0
    assert [line.split() for line in lines] == [
        ["query_scores", "6", "rows", "3", "days", f"{out}/query_scores"],
        ["scoring_runs", "1", "rows", "whole", f"{out}/scoring_runs"],
    ]
    assert told["tables"][0] == {"table": "query_scores", "path": f"{out}/query_scores", "rows": 4, "days": 2, "removed": 0}


def test_command_refuses_an_unknown_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run(["export", "--out", str(tmp_path), "--format", "orc"]) == 2
    assert capsys.readouterr().err == "error: --format 'orc' is not known; write parquet or delta\n"
