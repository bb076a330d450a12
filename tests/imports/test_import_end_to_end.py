"""From a stranger's file to the report, and the how-to with its commands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flows import cli
from tests.imports.import_files import QUESTION, SQL, document, lines, otlp_export, otlp_span, said

pytestmark = pytest.mark.usefixtures("prefect_server")

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "import.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """What a command prints that is typed as it is told."""
    program, *arguments = shlex.split(line)
    assert program == "stef"
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    assert code == 0, f"{line}\n{out}{err}"
    return out


def told_next(out: str) -> list[str]:
    return [line.strip() for line in out.split("\nNext\n", 1)[1].splitlines()]


def scored() -> list[tuple[object, ...]]:
    with duckdb.connect("stef.duckdb", read_only=True) as connection:
        return connection.execute(
            "SELECT CAST(dt AS VARCHAR), agent_id, user_question, generated_sql, status FROM query_scores ORDER BY ALL"
        ).fetchall()


def test_commands_that_an_import_tells_score_and_report_its_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my questions.csv").write_text(
        "question;sql;asked\n"
        f"{QUESTION};{SQL};2026-03-02 09:00:00\n"
        "Which customers are from Peru?;SELECT name FROM customers WHERE country = 'Peru';2026-03-02 10:00:00\n"
        f"{QUESTION};Sorry.;2026-03-05 09:00:00\n",
        encoding="utf-8",
    )

    commands = told_next(run(capsys, "stef import 'my questions.csv' --logs 'my log' --set agent_id=clerk"))
    outs = [run(capsys, command) for command in commands]

    assert [command.split()[1] for command in commands] == ["score", "report"]
    assert [row[:2] for row in scored()] == [("2026-03-02", "clerk")] * 2 + [("2026-03-05", "clerk")]
    assert {row[4] for row in scored()} == {"scored"}
    page = Path(outs[1].split()[-1]).read_text(encoding="utf-8")
    assert "clerk" in page
    assert QUESTION in page


def test_traces_are_scored_and_a_second_import_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    span = otlp_span(
        "a", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="shop-bot",
        gen_ai__input__messages=[said("user", QUESTION)], gen_ai__output__messages=[said("assistant", f"```sql\n{SQL}\n```")],
    )  # fmt: skip
    lines(folder / "spans.jsonl", otlp_export(span))

    first = run(capsys, "stef import spans.jsonl")
    for command in told_next(first):
        run(capsys, command)
    second = run(capsys, "stef import spans.jsonl")
    again = run(capsys, "stef score --date 2026-03-02 --to 2026-03-02 --missing --logs query_log --json")

    assert scored() == [("2026-03-02", "shop-bot", QUESTION, SQL, "scored")]
    assert "had been imported before" in second
    assert json.loads(again)["runs"] == [], "the day is as it was scored"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.DOTALL | re.MULTILINE)
    return [text for named, text in found if named == language]


def test_commands_of_the_guide_run_as_they_stand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (questions,) = blocks("csv")
    (chat,) = blocks("json")
    (folder / "questions.csv").write_text(questions, encoding="utf-8")
    (folder / "chats.jsonl").write_text(chat, encoding="utf-8")
    (folder / "both.csv").write_text(f"question,sql_a,sql_b,date\n{QUESTION},{SQL},SELECT 1,2026-11-02\n", encoding="utf-8")
    (folder / "broken.csv").write_text(
        f"question,sql,date\n{QUESTION},{SQL},2026-11-02\nWho?,SELECT 1,soon\n", encoding="utf-8"
    )
    call: dict[str, Any] = {"gen_ai__operation__name": "chat", "gen_ai__prompt": QUESTION, "gen_ai__completion": SQL}
    lines(folder / "spans.jsonl", otlp_export(otlp_span("s", **call)))
    trace = {"id": "t", "timestamp": "2026-11-02T00:00:00Z", "name": "bot", "userId": None, "sessionId": None}
    document(folder / "langfuse-traces.json", [trace | {"input": QUESTION, "output": SQL}])
    run_ = {"id": "r", "name": "bot", "run_type": "chain", "start_time": "2026-11-02T00:00:00"}
    lines(folder / "langsmith-runs.jsonl", run_ | {"inputs": {"q": QUESTION}, "outputs": {"sql": SQL}})

    commands = [line for block in blocks("") for line in block.splitlines()]
    outs = {command: run(capsys, command) for command in commands}

    assert len(commands) == 12
    assert told_next(outs["stef import questions.csv --set agent_id=my-bot"]) == commands[2:4]
    page = Path("stef-report.html").read_text(encoding="utf-8")
    assert "2024 stands in the question and nowhere in the SQL." in page
    assert "my-bot" in page


def test_options_of_the_guide_are_those_of_the_command() -> None:
    import typer

    command = typer.main.get_command(cli.app).commands["import"]  # type: ignore[attr-defined]  # a group
    there = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}

    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", GUIDE)) - {"--to"}
    assert named <= there | {"--help"}
    assert {"--map", "--set", "--skip-bad", "--replace", "--time-format"} <= named
