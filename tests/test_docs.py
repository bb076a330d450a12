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
from stef_core.backfill import MENDABLE
from stef_core.findings import CODES
from stef_core.scoring import BANDS, CONFIDENCE_STEPS, FILTER_POINTS, VERDICT_POINTS
from tasks.settings import PREFIX, SECRETS, Settings
from tests.docs_pages import FINDINGS
from tests.docs_pages import PAGES as MADE
from tests.docs_reference import EXIT_CODES, reasons

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/*.md")})
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


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines() if "bin/stef " in line])
def test_example_commands_parse(line: str) -> None:
    words = shlex.split(line.partition("bin/stef ")[2])
    name, command = command_of(words)

    context = command.make_context(name, words[len(name.split()) :])  # raises on an unknown option

    assert context.params


def test_example_of_explain_explains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = [line for block in blocks("sh") for line in block.splitlines() if "bin/stef explain" in line]

    code = cli.run(shlex.split(line.partition("bin/stef ")[2]))

    assert code == 0
    assert "missing_filter" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)\b", " ".join(CODE.findall(README) + blocks("sh"))))))
def test_make_has_the_documented_target(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_exit_codes_are_those_of_the_command_line() -> None:
    (sentence,) = re.findall(r"Exit codes: (.*?)\.\s", section("Commands"), flags=re.DOTALL)

    told = {int(number): meaning for number, meaning in re.findall(r"(\d+) ([^,]+)", " ".join(sentence.split()))}

    codes = (cli.DONE, cli.GATE_FAILED, cli.BAD_INPUT, cli.UNREACHED, cli.CRASHED, cli.INTERRUPTED)
    assert set(told) == set(codes)
    assert told[cli.GATE_FAILED] == "a gate failed"


def settings_of(text: str) -> dict[str, str]:
    """Settings of a text's table with their defaults, empty where there is none; README's has them in the second column."""
    told: dict[str, str] = {}
    for names, *between, _ in rows(text):
        values = CODE.findall(between[-1])
        told |= dict(zip(CODE.findall(names), values or [""] * 9, strict=False))
    return told


def test_settings_of_the_reference_are_the_settings() -> None:
    named = settings_of((ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8"))

    assert sorted(named) == sorted(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/settings.md"])
def test_defaults_of_the_table_are_the_defaults(page: str) -> None:
    text = section("Settings") if page == "README.md" else (ROOT / page).read_text(encoding="utf-8")
    fields = {f"{PREFIX}{name.upper()}": (name, field) for name, field in Settings.model_fields.items()}

    told = settings_of(text)

    assert len(told) > 10
    for spelled, default in told.items():
        name, field = fields[spelled]
        if field.default is None or name in SECRETS:
            assert default == ""
        elif isinstance(field.default, bool):
            assert default == str(field.default).lower()
        elif isinstance(field.default, int | float):
            assert float(default) == field.default
        else:
            assert default == str(field.default)


def test_first_screen_says_what_it_is_and_shows_it() -> None:
    first = README.split("\n## Your own data", 1)[0]

    assert len(first.splitlines()) <= 40
    commands = [line.split("#")[0].strip() for line in blocks("sh")[0].splitlines()]
    assert commands == ["make demo", "make test"]
    assert first.index("make demo") < first.index(" Agent ") < first.index("](docs/report.png)")


def test_points_of_the_table_are_those_of_the_score() -> None:
    points = {cells[0]: cells[2] for cells in rows(section("What the score means"))}

    assert points["σ_filters"] == ", ".join(str(value) for value in FILTER_POINTS.values())
    assert points["σ_verdict"] == ", ".join(str(value) for value in VERDICT_POINTS.values())
    assert points["Γ"] == ", ".join(str(factor) for _, factor in CONFIDENCE_STEPS)
    for lowest, band in BANDS[:-1]:
        assert re.search(rf"`{band}` from {lowest}\b", README)


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_that_is_made_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path](), "run `make docs`"


def test_every_finding_code_is_documented_as_the_code_has_it() -> None:
    page = FINDINGS.read_text(encoding="utf-8")

    assert all(f"| `{code}` | {entry.meaning} | {entry.severity} |" in page for code, entry in CODES.items())


def test_every_reason_of_an_unscored_row_is_documented() -> None:
    source = (ROOT / "stef_core" / "evaluate.py").read_text(encoding="utf-8")
    given = set(re.findall(r'reason="(\w+)"|^[A-Z_]+ = "(\w+)"  # reason of', source, flags=re.MULTILINE))
    given_by_code = {name for pair in given for name in pair if name}

    documented = {name for names in reasons() for name in names}

    assert {"question_missing", "sql_unparseable", "evaluator_error"} <= given_by_code <= documented
    assert documented >= MENDABLE


def test_exit_codes_of_the_reference_are_those_of_readme() -> None:
    (sentence,) = re.findall(r"Exit codes: (.*?)\.\s", section("Commands"), flags=re.DOTALL)

    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    told = {int(code): text for code, text, *_ in rows(page.split("\n## ", 1)[0]) if code.isdigit()}

    assert told == EXIT_CODES
    assert all(meaning.split(";")[0] in " ".join(sentence.split()) for meaning in EXIT_CODES.values())


def test_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    named = {target for target in LINK.findall(index) if not target.startswith("..")}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert named == there


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
