"""``stef calibrate`` from the command line down: every kind of file, a warehouse with feedback, and what users get wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows import cli
from tasks.labelled import read_labelled
from tests.logs import DAY, table, write
from tests.openai_server import Reply, answer, serving

TOWNS = ("Bergen", "Kiruna", "Tampere", "Aarhus", "Porvoo", "Narvik", "Visby", "Turku")
SHARED = Path(__file__).parents[3] / "shared" / "data" / "labelled.parquet"
EVIL = "<script>alert(1)</script>"


def rows(**columns: Any) -> list[dict[str, Any]]:
    """Two answers a town, one to the question and one that filters for another town; `columns` replace or add."""
    out = []
    for n, town in enumerate(TOWNS):
        for right in (True, False):
            wanted = town if right else "Oslo"
            out.append(
                {
                    "query_id": f"{town}-{right}",
                    "user_question": f"How many customers live in {town}?",
                    "enriched_question": None,
                    "generated_sql": f"SELECT COUNT(*) FROM customers WHERE town = '{wanted}'",
                    "dialect": "sqlite",
                    "label": right,
                    "agent_id": "clerk" if n % 2 else "scribe",
                    "db_id": f"shop-{n % 4}",
                    "source": "north" if n < 4 else "south",
                    "error_types": [] if right else ["Value-Related Errors/Value Mismatch"],
                }
                | columns
            )
    return out


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    return tmp_path


def parquet(path: str, lines: list[dict[str, Any]]) -> str:
    pl.DataFrame(lines, schema_overrides={"error_types": pl.List(pl.String)}).write_parquet(path)
    return path


def jsonl(path: str, lines: list[dict[str, Any]]) -> str:
    Path(path).write_text("".join(f"{json.dumps(line)}\n\n" for line in lines), encoding="utf-8")
    return path


def csv(path: str, lines: list[dict[str, Any]]) -> str:
    frame = pl.DataFrame(
        [line | {"error_types": "; ".join(line["error_types"]), "label": "yes" if line["label"] else "no"} for line in lines]
    )
    frame.write_csv(path)
    return path


def calibrated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The object that ``stef calibrate --json`` prints."""
    code = cli.run(["calibrate", "--json", "--resamples", "40", *arguments])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = cli.run(["calibrate", *arguments])
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (code, out, len(errors)) == (2, "", 1), err
    return errors[0].removeprefix("error: ")


# --- kinds of input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("save", "name"), [(parquet, "l.parquet"), (jsonl, "l.jsonl"), (csv, "l.csv")], ids=["parquet", "jsonl", "csv"]
)
def test_every_kind_of_file_gives_the_same_figures(save: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", save(name, rows()))

    assert (found["rows"], found["scored"], found["coverage"], found["questions"], found["databases"]) == (16, 16, 1.0, 8, 4)
    assert found["base_rate"]["value"] == 0.5
    assert found["phi"]["pairwise"]["value"] == 1.0
    assert found["p_right"]["auroc"]["value"] == 1.0
    assert (found["judge"], found["scores"], found["sample"]) == ("symbolic", "judged", "out_of_sample")
    assert [row["name"] for row in found["error_types"]] == ["all wrong answers", "Value-Related Errors"]
    assert {group["name"] for group in found["groups"]["agent"]} == {"clerk", "scribe"}
    assert {group["name"] for group in found["groups"]["source"]} == {"north", "south"}


def test_only_question_sql_and_label_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    needed = [{name: row[name] for name in ("user_question", "generated_sql", "label")} for row in rows()]

    found = calibrated(capsys, "--labelled", jsonl("l.jsonl", needed))

    assert (found["rows"], found["split_by"], found["agents"]) == (16, "question", 0)
    assert found["phi"]["within_agent"]["value"] is None


def test_columns_of_other_names_are_mapped(capsys: pytest.CaptureFixture[str]) -> None:
    other = [
        {"Query": r["user_question"], "SQL": r["generated_sql"], "execution_accuracy": "correct" if r["label"] else "incorrect"}
        for r in rows()
    ]
    other.append({"Query": "And now?", "SQL": "SELECT 1", "execution_accuracy": "not_run"})

    maps = ["--map", "user_question=Query", "--map", "generated_sql=SQL", "--map", "label=execution_accuracy"]
    found = calibrated(capsys, "--labelled", jsonl("runs.jsonl", other), *maps)

    assert found["rows"] == 16
    assert "1 rows without a label were left out." in found["notes"]


def test_sources_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", parquet("l.parquet", rows()), "--source", "north")

    assert found["rows"] == 8
    assert "source" not in found["groups"]


def test_an_answer_of_several_agents_counts_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", jsonl("l.jsonl", rows(agent_id=["a", "b", "c"])))

    assert (found["rows"], found["agents"], found["questions"]) == (48, 3, 8)


def test_the_threshold_decides_what_counts_as_right(capsys: pytest.CaptureFixture[str]) -> None:
    file = parquet("l.parquet", rows())

    low, high = (calibrated(capsys, "--labelled", file, "--threshold", cut)["phi"] for cut in ("0", "100"))

    assert (low["cut"], low["decision"]["recall"]["value"], low["decision"]["accuracy"]["value"]) == (0, 1.0, 0.5)
    assert high["decision"]["recall"]["value"] < 1.0


def test_the_same_seed_gives_the_same_object(capsys: pytest.CaptureFixture[str]) -> None:
    file = parquet("l.parquet", rows())

    first, again, other = (calibrated(capsys, "--labelled", file, "--seed", seed) for seed in ("3", "3", "4"))

    assert first == again
    assert first["base_rate"]["value"] == other["base_rate"]["value"]


def test_refitted_figures_say_that_they_are_out_of_fold(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", parquet("l.parquet", rows()), "--refit-folds", "--folds", "3")

    assert (found["scores"], found["sample"], found["fit_rows_seen"]) == ("refitted", "out_of_fold", 0)
    assert found["sample_text"].startswith("Out of fold: ")
    assert len(found["phi_fitted"]["cuts"]) == 3


def test_questions_that_the_fit_has_seen_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from stef_core.catalogue import witness_of

    seen = frozenset(witness_of(f"how many customers live in {town}?") for town in TOWNS[:2])
    monkeypatch.setattr("stef_core.calibration.fitted_questions", lambda: seen)

    found = calibrated(capsys, "--labelled", parquet("l.parquet", rows()))

    assert (found["sample"], found["fit_rows_seen"]) == ("partly_in_sample", 4)
    assert "the questions of 4 of 16 rows" in found["sample_text"]
    assert [(g["name"], g["rows"]) for g in found["groups"]["fit"]] == [
        ("question not seen by the fit", 12),
        ("question seen by the fit", 4),
    ]


def test_the_catalogue_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    file = parquet("l.parquet", rows(db_id="shop"))

    assert calibrated(capsys, "--labelled", file)["catalogue"] is True
    assert calibrated(capsys, "--labelled", file, "--no-catalogue")["catalogue"] is False


def test_a_model_can_judge_and_states_no_p_right(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def script(body: dict[str, Any], _: int) -> Reply:
        if body["response_format"]["json_schema"]["name"] == "verdict":
            return answer({"reasons": ["It is what was asked."], "grade": "correct", "confidence": 0.9})
        return answer({"question": {"projections": [], "aggregations": [], "filters": [], "group_by": []}})

    with serving(script) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        code = cli.run(
            ["calibrate", "--json", "--labelled", parquet("l.parquet", rows()[:4]), "--judge", "openai", "--model", "m"]
        )

    out, err = capsys.readouterr()
    assert code == 0, err
    found = json.loads(out)
    assert (found["judge"], found["model"], found["sample"]) == ("openai", "m", "unknown")
    assert (found["rows"], found["scored"], found["p_right"]) == (4, 4, None)
    assert found["phi"] is not None
    assert any("states no p_right" in note for note in found["notes"])


def test_an_endpoint_that_is_away_has_its_own_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEF_BASE_URL", "http://127.0.0.1:9/v1")

    code = cli.run(
        ["calibrate", "--quiet", "--labelled", parquet("l.parquet", rows()[:2]), "--judge", "openai", "--model", "m"]
    )

    assert code == 3
    assert "the endpoint did not answer" in capsys.readouterr().err


# --- what people see ------------------------------------------------------------------------------------------------


def test_tables_fit_a_terminal_and_tell_figures_errors_groups_and_anchors(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["calibrate", "--quiet", "--labelled", parquet("l.parquet", rows(agent_id="a" * 90)), "--resamples", "40"])

    out = capsys.readouterr().out
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    for word in (
        "Out of sample",
        "Φ ≥ 75",
        "p right ≥ 0.5",
        "Cohen's κ",
        "Value-Related Errors",
        "no join",
        "75.16 %",
        "κ 0.87",
    ):
        assert word in out


def test_the_report_is_one_page_that_loads_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", parquet("l.parquet", rows(agent_id=EVIL)), "--out", "deep/c.html")

    page = (folder / "deep" / "c.html").read_text(encoding="utf-8")
    assert found["report"] == str(folder / "deep" / "c.html")
    assert page.count("<svg ") == 3  # ROC, reliability of p right and of γ
    assert EVIL not in page
    assert "<script" not in page
    assert not re.search(r"(?<!xmlns=\")(?<!xlink=\")https?://", page)
    assert "Out of sample" in page


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_the_report_without_error_or_sideways_scrolling(
    folder: Path, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    chromium = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is not installed; CI needs it to look at the report")
        pytest.skip("Chromium is not installed: the report is not looked at")
    from playwright.sync_api import sync_playwright

    calibrated(capsys, "--labelled", parquet("l.parquet", rows()), "--out", "c.html")
    problems: list[str] = []

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport={"width": width, "height": 900})
        view.on("console", lambda message: problems.append(message.text))
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.goto((folder / "c.html").as_uri())
        overflow = view.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        charts = view.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
        browser.close()

    assert problems == []
    assert overflow <= 0
    assert len(charts) == 3
    assert all(200 < chart < width for chart in charts)


# --- what users get wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "perhaps"}, "l.jsonl: row 1: column label is 'perhaps'; it must be true or false"),
        ({"label": 2}, "l.jsonl: row 1: column label is 2; it must be true or false"),
        ({"label": None}, "l.jsonl: column label: no row has a label, so there is nothing to measure"),
        ({"user_question": 7}, "l.jsonl: row 1: column user_question is 7; it must be text"),
        ({"error_types": {"a": 1}}, "l.jsonl: row 1: column error_types is {'a': 1}; it must be a list of texts"),
        ({"agent_id": 3}, "l.jsonl: row 1: column agent_id is 3; it must be text or a list of texts"),
    ],
)
def test_a_wrong_value_is_named_by_row_and_column(
    change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "--labelled", jsonl("l.jsonl", rows(**change))) == message


def test_an_absent_column_is_named_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    file = csv("l.csv", rows())
    pl.read_csv(file).rename({"label": "labels"}).write_csv(file)

    message = refused(capsys, "--labelled", file)

    assert message == "l.csv: column label is missing; did you mean labels?; map it with --map label=NAME"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--labelled", "gone.csv"],
            "gone.csv: no such file; name a file of labelled answers, or a warehouse as duckdb:///path.duckdb",
        ),
        (["--labelled", "l.xlsx"], "l.xlsx: is neither of .parquet, .pq, .jsonl, .ndjson, .csv, .tsv; save it as one of them"),
        (["--labelled", "broken.jsonl"], "broken.jsonl: line 2: not JSON: Expecting value: line 1 column 1 (char 0)"),
        (["--labelled", "l.parquet", "--map", "label"], "--map label: write COLUMN=NAME, as in --map label=is_correct"),
        (
            ["--labelled", "l.parquet", "--map", "lable=x"],
            "--map lable=x: lable is no column of labelled rows; did you mean label?",
        ),
        (["--labelled", "l.parquet", "--source", "east"], "l.parquet: column source: no row is of east; there: north, south"),
        (["--labelled", "l.parquet", "--threshold", "101"], "--threshold 101: Φ lies within 0-100"),
        (["--labelled", "l.parquet", "--folds", "1"], "--folds 1: takes 2 to 50"),
        (["--labelled", "l.parquet", "--resamples", "-1"], "--resamples -1: takes 0 or more"),
        (["--labelled", "l.parquet", "--judge", "oracle"], "--judge: input should be 'symbolic' or 'openai' (got 'oracle')"),
        (
            ["--labelled", "l.parquet", "--judge", "openai", "--refit-folds"],
            "--refit-folds fits the symbolic judge; it does not go with --judge openai",
        ),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet("l.parquet", rows())
    Path("l.xlsx").write_bytes(b"PK")
    Path("broken.jsonl").write_text('{"label": true}\noops\n')

    assert refused(capsys, *arguments) == message


def test_a_file_that_is_not_what_its_name_says_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.parquet").write_bytes(b"no parquet at all")

    assert refused(capsys, "--labelled", "l.parquet").startswith("l.parquet: cannot be read as Parquet: ")


# --- a warehouse ----------------------------------------------------------------------------------------------------


@pytest.fixture
def warehouse(folder: Path, prefect_server: None, capsys: pytest.CaptureFixture[str]) -> str:
    """A day of scored answers, most of them with feedback; its URL."""
    lines = rows()
    feedback = [row["label"] for row in lines]
    feedback[-1] = None
    names = ("query_id", "user_question", "generated_sql", "agent_id", "dialect")
    log = table(len(lines), user_feedback=feedback, **{name: [row[name] for row in lines] for name in names})
    write(folder / "logs", log)
    url = f"duckdb:///{folder / 'w.duckdb'}"
    code = cli.run(["score", "--quiet", "--logs", str(folder / "logs"), "--date", str(DAY), "--warehouse", url])
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()
    return url


def test_feedback_of_a_warehouse_is_the_label_of_what_it_has_published(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = calibrated(capsys, "--labelled", warehouse)

    assert (found["scores"], found["judge"], found["rows"]) == ("published", "symbolic symbolic-v1", 15)
    assert found["phi"]["pairwise"]["value"] == 1.0
    assert {group["name"] for group in found["groups"]["feature"]} == {"aggregation", "no join"}


def test_answers_of_a_warehouse_can_be_judged_anew(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    published = calibrated(capsys, "--labelled", warehouse)

    anew = calibrated(capsys, "--labelled", warehouse, "--judge", "symbolic")

    assert anew["scores"] == "judged"
    assert anew["phi"]["pairwise"] == published["phi"]["pairwise"]
    assert "--map and --source" in refused(capsys, "--labelled", warehouse, "--source", "x")


def test_a_warehouse_without_feedback_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tasks.warehouse import connect

    url = f"duckdb:///{folder / 'empty.duckdb'}"
    with connect(url) as store:
        store.migrate()

    for judge in ([], ["--judge", "symbolic"]):
        message = refused(capsys, "--labelled", url, *judge)
        assert message == f"{url}: no answer has user_feedback yet, so there is nothing to measure"


def test_the_flow_gives_what_the_command_prints(folder: Path, prefect_server: None, capsys: pytest.CaptureFixture[str]) -> None:
    from flows.calibration import calibration

    file = parquet("l.parquet", rows())
    printed = calibrated(capsys, "--labelled", file)

    returned = calibration(file, resamples=40, out="flow.html")

    assert json.loads(json.dumps(returned)) == printed
    assert (folder / "flow.html").is_file()


def test_the_guide_names_options_and_columns_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from tasks.labelled import COLUMNS

    guide = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text(encoding="utf-8")
    cli.run(["calibrate", "--help"])

    shown = capsys.readouterr().out
    assert set(re.findall(r"--[a-z-]+[a-z]", guide)) <= set(re.findall(r"--[a-z-]+[a-z]", shown))
    assert all(f"`{name}`" in guide for name in COLUMNS)


# --- labelled data of others ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data is not here: no public labels to measure on")
def test_public_labels_are_measured_out_of_fold(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(capsys, "--labelled", str(SHARED), "--source", "nl2sql_bugs", "--refit-folds")

    assert (found["rows"], found["coverage"]) == (1058, 1.0)
    assert len(found["error_types"]) == 10  # nine main types, and all together
    assert found["p_right"]["auroc"]["value"] > 0.656  # token overlap, the best trivial baseline that reads both sides
    assert found["p_right"]["auroc"]["low"] > 0.5


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/data is not here: no public labels to read")
def test_public_labels_are_read_whole() -> None:
    found = read_labelled(str(SHARED))

    assert len(found.rows) == 3152
    assert found.unlabelled == 0
