"""A backfill of what nothing has changed for scores no row anew, whatever is redacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import cli
from tests.logs import table, write

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_a_metric_of_any_column_bears_alike_on_a_row_whose_columns_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    rules = {"app_id": "shop", "redact": ["salary"], "metric_definitions": {"headcount": {"func": "count", "column": "*"}}}
    (tmp_path / "rules" / "shop.json").write_text(json.dumps(rules))
    (tmp_path / "rules" / "default.json").write_text('{"app_id": "default"}')
    question, sql = "What is the headcount with salary 5000?", "SELECT COUNT(*) FROM staff WHERE salary = 5000"
    write(tmp_path / "logs", table(2, user_question=[question] * 2, generated_sql=[sql] * 2))
    call = ["--logs", "logs", "--warehouse", "duckdb:///w.duckdb", "--rules", "rules", "--quiet"]
    assert cli.run(["score", "--date", "2026-03-02", *call]) == 0
    capsys.readouterr()

    assert cli.run(["backfill", "--json", *call]) == 0

    (day,) = json.loads(capsys.readouterr().out)["days"]
    assert (day["redone"], day["causes"], day["run_id"]) == (0, {}, None)
