"""The whole product in one go, offline."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import polars as pl
import pytest

from flows import cli
from tasks.demo_data import SLIP_DAY
from tasks.warehouse import connect

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_demo_scores_a_week_finds_the_slip_and_writes_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    code = cli.run(["demo", "--dir", "d", "--json"])

    told = json.loads(capsys.readouterr().out)
    report = Path(told["report"])
    assert (code, told["outcome"], len(told["runs"])) == (0, "published", 7)
    assert report == (tmp_path / "d" / "report.html").resolve()
    assert report.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    with connect(f"duckdb:///{tmp_path / 'd' / 'stef.duckdb'}", read_only=True) as store:
        scores, runs = store.read("query_scores"), store.read("scoring_runs")
    assert scores.height == sum(run["rows_in"] for run in told["runs"]) >= 600
    assert scores["agent_id"].n_unique() == 3
    assert scores.filter((pl.col("status") == "unscored") & pl.col("reason").is_null()).is_empty()
    assert set(runs["kind"]) == {"demo"}
    slip = scores["dt"].min() + dt.timedelta(days=SLIP_DAY)  # type: ignore[operator]  # a date column
    assert {(alert["dt"], alert["agent_id"]) for alert in told["alerts"]} == {(str(slip), "shop-analyst")}
    assert [failure for run in told["runs"] for gate in run["gates"] for failure in gate["failures"]] == []


def test_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert cli.run(["demo", "--dir", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"error: --dir {tmp_path / 'file'}: cannot be written: File exists\n"
