"""The experiment demo and its tutorial: every command of docs/experiments.md runs offline and prints what the page shows."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

from flows import cli
from tasks.demo_experiment import MARKERS, PROMPTS, agent, questions, write_demo_experiment
from tasks.experiment_agents import Context

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─")]


def test_demo_goes_through_the_whole_loop_offline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()

    code = cli.run(["experiment", "demo", "--dir", "d", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert (code, time.monotonic() - start < 60) == (0, True)
    assert [run["name"] for run in told["runs"]] == list(PROMPTS)
    accuracies = [run["accuracy"]["accuracy"] for run in told["runs"]]
    assert accuracies == pytest.approx([0.3, 0.6, 0.8], abs=0.03)
    assert {run["accuracy"]["rows"] for run in told["runs"]} == {42}
    assert all(analysis["codes"] for analysis in told["analyses"])
    assert "OTHER" not in {code["code"] for analysis in told["analyses"] for code in analysis["codes"]}
    assert [(len(pair["fixed"]) > 0, len(pair["broke"]) > 0) for pair in told["compare"]["pairs"]] == [(True, True)] * 3


def test_demo_run_again_asks_nothing_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[dict[str, Any]] = []
    for _ in range(2):
        cli.run(["experiment", "demo", "--dir", "d", "--json"])
        told.append(json.loads(capsys.readouterr().out))

    assert [run["resumed"] for run in told[1]["runs"]] == [42, 42, 42]
    assert told[0]["compare"] == told[1]["compare"]


def test_tutorials_commands_run_in_order_and_print_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    for line in "".join(blocks("sh")).splitlines():
        words = shlex.split(line)

        assert (words[0], cli.run(words[1:])) == ("stef", 0)
        printed += lines_of(capsys.readouterr().out)

    shown = [line for block in blocks("") for line in lines_of(block)]
    assert len(shown) > 10
    assert [line for line in shown if line not in printed] == []


def test_tutorials_other_commands_parse() -> None:
    for line in "".join(blocks("bash")).splitlines():
        words = shlex.split(line)[1:]
        command: Any = typer.main.get_command(cli.app)
        while words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]

        context = command.make_context("", words)  # raises on an unknown option

        assert context.params


def test_database_is_the_same_every_time(folder: Path) -> None:
    dumps = []
    for name in ("a", "b"):
        connection = sqlite3.connect(write_demo_experiment(folder / name).database)
        dumps.append(list(connection.iterdump()))
        connection.close()

    assert dumps[0] == dumps[1]
    assert sum(line.startswith("CREATE TABLE") for line in dumps[0]) >= 5


def test_what_was_edited_stays(folder: Path) -> None:
    prompt = write_demo_experiment(folder / "d").prompts[0]
    prompt.write_text("mine {schema}")

    write_demo_experiment(folder / "d")

    assert prompt.read_text() == "mine {schema}"


def test_each_scripted_mistake_changes_the_result(folder: Path) -> None:
    connection = sqlite3.connect(write_demo_experiment(folder / "d").database)
    asked = questions()

    assert min(Counter(each.level for each in asked).values()) >= 14
    for each in asked:
        if each.wrong is not None:
            gold, wrong = (Counter(connection.execute(sql).fetchall()) for sql in (each.gold, each.wrong))
            assert gold, each.ask
            assert gold != wrong, each.ask
    connection.close()


def test_every_marker_stands_in_a_prompt_and_none_in_the_schema(folder: Path) -> None:
    files = write_demo_experiment(folder / "d")
    last = files.prompts[-1].read_text(encoding="utf-8")

    assert [marker for marker in MARKERS.values() if marker not in last] == []
    used = {each.needs for each in questions()} | {each.breaks for each in questions()} | {each.unless for each in questions()}
    assert used - {None} == set(MARKERS)


def test_the_scripted_agent_knows_no_other_question() -> None:
    with pytest.raises(LookupError):
        agent("Who are you?", Context(schema="", dialect="sqlite", prompt=None, query_id="1"))


def test_folder_that_cannot_be_made_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").touch()

    assert cli.run(["experiment", "demo", "--dir", "file"]) == 2
    assert capsys.readouterr().err == "error: --dir file: cannot be written: File exists\n"
