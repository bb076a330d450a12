"""The documentation says what the code does: commands, settings, exit codes, points, findings, snippets and links."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from flows import cli
from stef_core.findings import CODES
from stef_core.scoring import BANDS, CONFIDENCE_STEPS, FILTER_POINTS, VERDICT_POINTS
from tasks.settings import PREFIX, SECRETS, Settings
from tests.docs_pages import FINDINGS, findings_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


def section(title: str) -> str:
    """The text of README under a heading of the second level."""
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the Markdown tables of a text, heads left out; a pipe inside code is no border."""
    lines = [re.sub(r"`[^`]*`", lambda m: m[0].replace("\\|", "¦"), line) for line in text.splitlines() if line.startswith("|")]
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = {n for n, cells in enumerate(tables) if set("".join(cells)) <= set("-: ")}
    return [cells for n, cells in enumerate(tables) if n not in rules and n + 1 not in rules]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def command_of(words: list[str]) -> tuple[str, Any]:
    """The command that words name, e.g. ``rules check FILE``, as `click` has it."""
    found: Any = typer.main.get_command(cli.app)
    path: list[str] = []
    for word in words:
        if word not in getattr(found, "commands", {}):
            break
        found = found.commands[word]
        path.append(word)
    return " ".join(path), found


def every_command(group: Any = None, path: tuple[str, ...] = ()) -> set[str]:
    """Names of all commands, those of groups included."""
    found = group if group is not None else typer.main.get_command(cli.app)
    if not hasattr(found, "commands"):
        return {" ".join(path)}
    return set().union(*(every_command(inner, (*path, name)) for name, inner in found.commands.items()))


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}


def documented_commands() -> list[tuple[str, list[str]]]:
    """Commands of README's table, each with the options that its row names."""
    found = []
    for spelled, *rest in rows(section("Commands")):
        for code in (code for code in CODE.findall(spelled) if code.startswith("stef ")):
            named = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(CODE.findall(" ".join([spelled, *rest]))))
            found.append((code.removeprefix("stef "), named))
    return found


@pytest.mark.parametrize(("spelled", "options"), documented_commands(), ids=lambda value: str(value)[:40])
def test_documented_command_is_there_and_takes_its_options(spelled: str, options: list[str]) -> None:
    name, command = command_of(spelled.split())

    assert name
    assert not hasattr(command, "commands")
    assert set(options) <= options_of(command)


def test_every_command_is_documented() -> None:
    assert {command_of(spelled.split())[0] for spelled, _ in documented_commands()} == every_command()


@pytest.mark.parametrize("line", [line for block in blocks("") for line in block.splitlines() if "bin/stef " in line])
def test_example_commands_parse(line: str) -> None:
    words = shlex.split(line.partition("bin/stef ")[2])
    name, command = command_of(words)

    context = command.make_context(name, words[len(name.split()) :])  # raises on an unknown option

    assert context.params


def test_example_of_explain_explains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = [line for block in blocks("") for line in block.splitlines() if "bin/stef explain" in line]

    code = cli.run(shlex.split(line.partition("bin/stef ")[2]))

    assert code == 0
    assert "missing_filter" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)\b", " ".join(CODE.findall(README) + blocks(""))))))
def test_make_has_the_documented_target(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_exit_codes_are_those_of_the_command_line() -> None:
    (sentence,) = re.findall(r"Exit codes: (.*?)\.\s", section("Commands"), flags=re.DOTALL)

    told = {int(number): meaning for number, meaning in re.findall(r"(\d+) ([^,]+)", " ".join(sentence.split()))}

    codes = (cli.DONE, cli.GATE_FAILED, cli.BAD_INPUT, cli.UNREACHED, cli.CRASHED, cli.INTERRUPTED)
    assert set(told) == set(codes)
    assert told[cli.GATE_FAILED] == "a gate failed"


def test_settings_of_the_table_are_the_settings() -> None:
    named = [name for cells in rows(section("Settings")) for name in CODE.findall(cells[0])]

    assert sorted(named) == sorted(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)


def test_defaults_of_the_table_are_the_defaults() -> None:
    told: dict[str, str] = {}
    for names, defaults, *_ in rows(section("Settings")):
        values = CODE.findall(defaults)
        told |= dict(zip(CODE.findall(names), values or [""] * 9, strict=False))

    for name, field in Settings.model_fields.items():
        if field.default is None or name in SECRETS:
            assert told[f"{PREFIX}{name.upper()}"] == ""
        elif isinstance(field.default, bool):
            assert told[f"{PREFIX}{name.upper()}"] == str(field.default).lower()
        elif isinstance(field.default, int | float):
            assert float(told[f"{PREFIX}{name.upper()}"]) == field.default
        else:
            assert told[f"{PREFIX}{name.upper()}"] == str(field.default)


def test_points_of_the_table_are_those_of_the_score() -> None:
    points = {cells[0]: cells[2] for cells in rows(section("What the score means"))}

    assert points["σ_filters"] == ", ".join(str(value) for value in FILTER_POINTS.values())
    assert points["σ_verdict"] == ", ".join(str(value) for value in VERDICT_POINTS.values())
    assert points["Γ"] == ", ".join(str(factor) for _, factor in CONFIDENCE_STEPS)
    for lowest, band in BANDS[:-1]:
        assert re.search(rf"`{band}` from {lowest}\b", README)


def test_every_finding_code_is_documented_as_the_code_has_it() -> None:
    page = FINDINGS.read_text(encoding="utf-8")

    assert page == findings_page(), "run `make docs`"
    assert all(f"| `{code}` | {entry.meaning} | {entry.severity} |" in page for code, entry in CODES.items())


def test_warehouse_names_are_those_of_the_warehouse(tmp_path: Path) -> None:
    from tasks.warehouse import connect

    url = f"duckdb:///{tmp_path / 'w.duckdb'}"
    with connect(url) as store:
        store.migrate()
    import duckdb

    with duckdb.connect(tmp_path / "w.duckdb", read_only=True) as connection:
        there = {name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}

    named = {name for name in CODE.findall(section("The warehouse")) if re.fullmatch(r"[a-z_]+", name)}
    assert named <= there
    assert {"query_scores", "v_agent_trend"} <= named


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python_example_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "phi=" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    targets = [target.partition("#")[0] for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []


def test_files_that_readme_names_are_there() -> None:
    named = [code for code in CODE.findall(README) if re.fullmatch(r"[\w.-]+/[\w./-]*", code) and not code.startswith(".stef/")]

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
