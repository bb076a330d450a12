"""Every command that the documentation shows runs, or stands here with the reason why it cannot."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
import typer

from flows import cli

pytestmark = pytest.mark.usefixtures("prefect_server")

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")), "deployments/README.md")
PROGRAMS = ("stef", ".venv/bin/stef", "make", "python", "cp")
# a page whose commands, all of them and in order, are run by a test of its own
RUN_ELSEWHERE = {
    "docs/import.md": "tests/imports/test_import_end_to_end.py",
    "docs/experiments.md": "tests/experiments/test_demo_experiment.py",
}
# how a line begins: why it cannot be run here
NOT_RUN = {
    "make demo": "sets up an environment of its own; it is `stef demo`, which docs/backfill.md runs",
    "make test": "runs this test",
    "stef score --logs /data/query_log --date 2026-01-01 --to 2026-01-31 --judge openai": "needs a paid endpoint with batches",
    "stef export --warehouse duckdb:///stef.duckdb --out s3://": "needs an object store",
    "stef migrate --warehouse postgresql://": "needs the PostgreSQL server of that name",
    "psql ": "needs the PostgreSQL server of that name",
    "pip install ": "changes the environment that the tests run in",
    "prefect ": "needs a Prefect server that stays",
    "export PREFECT_API_URL=": "needs a Prefect server that stays",
    "stef score --date 2026-11-02 --logs query_log --runner dask --address tcp:": "needs a cluster of that name",
    "docker ": "needs Docker",
    "cp deployments/.env.example": "prepares what needs Docker",
    "cd /var/lib/stef && ": "needs a Prefect server that stays",
    "echo 'https://hooks.example/": "holds the address of a service",
    "python deployments/automations.py": "needs a Prefect server that stays",
}


def fenced(page: str) -> list[tuple[str, str]]:
    """Blocks of a page with their language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[str]:
    """Every line of a page that is meant to be typed: those of `sh` blocks, and elsewhere what begins with a program."""
    for language, text in fenced(page):
        for line in (line.strip() for line in text.splitlines()):
            if line and (language in ("sh", "bash") or (not language and line.split()[0] in PROGRAMS)):
                yield line


def reason_not_to_run(line: str) -> str | None:
    return next((reason for start, reason in NOT_RUN.items() if line.startswith(start)), None)


def words_of(line: str) -> list[str]:
    program, *words = shlex.split(line, comments=True)
    return [program.removeprefix(".venv/bin/"), *words]


def run(line: str) -> None:
    """Run a line as it stands; `stef` within this process."""
    program, *words = words_of(line)
    if program == "stef":
        assert cli.run(words) == 0, line
        return
    assert program in ("cp", "python"), f"{line}: run it, or say in NOT_RUN why it cannot be"
    subprocess.run([sys.executable if program == "python" else program, *words], check=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    return tmp_path


# --- what the pages take for granted --------------------------------------------------------------------------------


def questions() -> None:
    """The file of docs/import.md."""
    (text,) = [text for language, text in fenced("docs/import.md") if language == "csv"]
    Path("questions.csv").write_text(text, encoding="utf-8")


def query_log() -> None:
    """A log of that file, of the application `shop`."""
    questions()
    assert cli.run(["import", "questions.csv", "--set", "agent_id=my-bot", "--set", "app_id=shop"]) == 0


def published() -> None:
    """That log scored, with thumbs of its users."""
    questions()
    lines = Path("questions.csv").read_text(encoding="utf-8").splitlines()
    thumbs = ("feedback", "up", "up", "down")
    Path("questions.csv").write_text("\n".join(f"{a},{b}" for a, b in zip(lines, thumbs, strict=True)), encoding="utf-8")
    assert cli.run(["import", "questions.csv", "--set", "agent_id=my-bot"]) == 0
    assert cli.run(["score", "--date", "2026-11-02", "--to", "2026-11-03", "--logs", "query_log", "--quiet"]) == 0


def rules() -> None:
    """The log, and the rules that the page shows."""
    query_log()
    Path("rules").mkdir()
    text = next(text for language, text in fenced("docs/rules.md") if language == "json")
    Path("rules/shop.json").write_text(text, encoding="utf-8")


def labelled() -> None:
    """Labelled answers under every name and in every form that the page uses, beside a warehouse with thumbs."""
    published()
    towns = ("Bergen", "Kiruna", "Tampere", "Aarhus", "Porvoo", "Narvik", "Visby", "Turku")
    frame = pl.DataFrame(
        [
            {
                "user_question": f"How many customers live in {town}?",
                "generated_sql": f"SELECT COUNT(*) FROM customers WHERE town = '{town if right else 'Oslo'}'",
                "label": right,
                "db_id": f"shop-{n % 4}",
            }
            for n, town in enumerate(towns)
            for right in (True, False)
        ]
    )
    frame.write_csv("answers.csv")
    frame.write_parquet("answers.parquet")
    frame.rename({"user_question": "asked", "generated_sql": "answer", "label": "right"}).write_csv("runs.csv")
    results = frame.select(
        pl.col("user_question").alias("query"),
        pl.col("generated_sql").alias("predicted_sql"),
        pl.when("label").then(pl.lit("correct")).otherwise(pl.lit("incorrect")).alias("execution_accuracy"),
    )
    Path("experiments/v2").mkdir(parents=True)
    results.write_csv("experiments/v2/results.csv")


GIVEN: Mapping[str, Callable[[], None]] = {
    "README.md": questions,
    "docs/bi.md": published,
    "docs/calibration.md": labelled,
    "docs/llm.md": query_log,
    "docs/rules.md": rules,
}


# --- the pages ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> tuple[Path, str]:
    """The folder of the demo, and what its command printed: the longest of all commands, run once."""
    import contextlib
    import io

    folder, out = tmp_path_factory.mktemp("demo"), io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.run(["demo", "--dir", str(folder / "demo"), "--quiet"]) == 0
    return folder / "demo", out.getvalue()


RUN_HERE = [
    page for page in PAGES if page not in RUN_ELSEWHERE and any(reason_not_to_run(line) is None for line in commands(page))
]


@pytest.mark.parametrize("page", [page for page in RUN_HERE if page != "docs/backfill.md"])
def test_commands_of_a_page_run_in_order(page: str) -> None:
    GIVEN.get(page, lambda: None)()

    runnable = [line for line in commands(page) if reason_not_to_run(line) is None]
    for line in runnable:
        run(line)  # fails where the command does

    assert runnable


def test_commands_of_the_backfill_run_in_order_and_move_scores(demo: tuple[Path, str]) -> None:
    first, *others = commands("docs/backfill.md")
    assert first == "stef demo --dir demo"
    shutil.copytree(demo[0], "demo")

    for line in others:
        run(line)

    (query,) = [text for language, text in fenced("docs/backfill.md") if language == "sql"]
    with duckdb.connect("demo/stef.duckdb", read_only=True) as connection:
        moved = connection.execute(query).fetchall()
    assert moved
    assert all("rules" in changed for *_, changed in moved)


def test_agents_that_readme_shows_are_those_of_the_demo(demo: tuple[Path, str]) -> None:
    (shown,) = [text for _, text in fenced("README.md") if text.startswith(" Agent ")]
    wanted = [re.split(r" {2,}", line.strip()) for line in shown.splitlines()]

    printed = [[cell.strip() for cell in re.split("[│┃]", line)[1:8]] for line in demo[1].splitlines()]

    assert len(wanted) == 5
    assert [row for row in wanted if row not in printed] == []


def test_pages_that_are_run_elsewhere_are_run_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert f'"{Path(page).name}"' in (ROOT / test).read_text(encoding="utf-8")
        assert list(commands(page))


def test_every_reason_not_to_run_is_of_a_command() -> None:
    lines = [line for page in PAGES for line in commands(page)]

    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page) if words_of(line)[0] == "stef"])
def test_command_parses(line: str) -> None:
    words = words_of(line)[1:]
    command: Any = typer.main.get_command(cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]

    context = command.make_context("", words)  # raises on an unknown option

    assert context.command is command
    assert not hasattr(command, "commands")
