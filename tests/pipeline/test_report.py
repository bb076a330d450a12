"""The report: it shows what the warehouse holds, harms nobody, loads nothing, and says so kindly when there is nothing."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stef_core.errors import RuleError
from stef_core.intervals import Sums, mean_interval
from tasks import report
from tasks.report import ReportData, load_report_data, render_report, write_report
from tasks.report_data import ALERTS_SHOWN, GRAINS, RUNS_SHOWN, WORST, WORST_OF_A_KIND, grain_of
from tasks.report_figures import CELLS_MOST, figures_of
from tasks.report_page import count, json_for_page, marked, money, one, percent, signed
from tasks.warehouse import connect
from tests.reports import (
    CHANGED,
    HOSTILE,
    MODELLED,
    NOW,
    Page,
    demo_week,
    duckdb_url,
    evil_week,
    filled,
    hostile_data,
    run_row,
    unscored_agent,
    with_more_answers,
    words_of,
)

EVIL = "<script>alert(1)</script> <img src=x onerror=alert(2)> {{7*7}} {% raw %} \"'> \u202eevil\x1b[2J &lt;"
HEADINGS = [
    "What slipped",
    "Trend",
    "Versions compared",
    "Bands",
    "Coverage",
    "What is wrong, most frequent first",
    "Faults of the reformulation against faults of the SQL",
    "The 10 worst answers, explained",
    "Most changed answers",
    "Runs and gates",
    "Cost",
    "How to read this",
]


def section(page: str, name: str) -> str:
    """One section of a page, by the id of its heading."""
    return page[page.index(f'<section aria-labelledby="{name}"') :].split("</section>")[0]


def embedded(page: str) -> Any:
    """What the page's script reads."""
    (text,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def test_the_report_has_every_part_under_its_heading(report_page: str) -> None:
    assert re.findall(r"<h2[^>]*>([^<]+)</h2>", report_page) == HEADINGS
    assert (
        len(re.findall(r'<a href="#\w+">', section(report_page.replace("<nav", '<section aria-labelledby="nav"'), "nav"))) > 0
    )


def test_every_link_of_the_page_leads_to_a_part_of_it(report_page: str) -> None:
    found = Page(report_page)
    targets = [(attrs["href"] or "").removeprefix("#") for attrs in found.named("a")]

    assert len(targets) == len(HEADINGS) + 1
    assert set(targets) <= {attrs["id"] for _, attrs in found.elements if "id" in attrs}


def test_the_slip_of_the_fifth_day_is_told_with_its_reason(report_data: ReportData, report_page: str) -> None:
    text = words_of(report_page)

    assert ("shop-analyst", dt.date(2026, 3, 6)) in report_data.alerts.select("agent_id", "dt").rows()
    assert re.search(r"2026-03-06: shop-analyst is \d+\.\d points of Φ worse with version v3", text)
    assert "version v3 is worse than v2" in text
    assert "most of all missing filter" in text
    assert "of the lowest answers of that day" in text


def test_figures_of_the_page_are_those_of_the_warehouse(report_url: str, report_page: str) -> None:
    text = words_of(report_page)
    with connect(report_url, read_only=True) as warehouse:
        scores = warehouse.read("query_scores")
        compare = warehouse.read("v_agent_compare")
        pareto = warehouse.read("v_finding_pareto").filter(pl.col("agent_id") == "*")
    phi = scores.filter(pl.col("status") == "scored")["phi"]

    assert f"{one(phi.mean())} mean Φ of 100" in text  # type: ignore[arg-type]
    assert f"{count(scores.height)} answers" in text
    versions = words_of(section(report_page, "versions"))
    for row in compare.iter_rows(named=True):
        assert f"{row['agent_id']} {row['agent_version']} {one(row['mean_phi'])}" in versions
        if row["mean_phi_change"] is not None:
            assert signed(row["mean_phi_change"]) in versions
    findings = words_of(section(report_page, "findings"))
    for code, n in pareto.group_by("code").agg(pl.col("occurrences").sum()).iter_rows():
        assert re.search(rf"{code.replace('_', ' ')}[^0-9]* {n} ", findings)
    assert "sql unparseable (" in words_of(section(report_page, "coverage"))


def test_a_version_is_compared_with_the_one_before_by_the_interval_of_the_difference(report_page: str) -> None:
    versions = words_of(section(report_page, "versions"))

    (told,) = re.findall(r"shop-analyst v3 \S+ \S+ to \S+ (−\S+) (−\S+) to (−\S+) (\w+)", versions)
    change, low, high = (float(figure.replace("−", "-")) for figure in told[:3])
    assert low < change < high < 0
    assert told[3] == "worse"


def test_faults_are_told_apart_by_the_stage_that_made_them(report_url: str, report_page: str) -> None:
    stages = words_of(section(report_page, "stages"))
    with connect(report_url, read_only=True) as warehouse:
        findings = warehouse.read("query_findings").join(
            warehouse.read("query_scores", columns=["dt", "query_id", "status"]), on=["dt", "query_id"], validate="m:1"
        )

    scored = findings.filter(pl.col("status") == "scored")
    for agent in ("fleet-bot", "people-helper"):
        mine = scored.filter(pl.col("agent_id") == agent)
        carriers = {
            stage: mine.filter(pl.col("stage") == stage)["query_id"].n_unique() for stage in ("enrichment", "generation")
        }
        assert carriers["enrichment"] > 0
        assert re.search(
            rf"{agent} {carriers['enrichment']} \(\d+ %\) enrichment drops \({carriers['enrichment']}\) "
            rf"{carriers['generation']} \(\d+ %\)",
            stages,
        )
    assert re.search(r"shop-analyst 0 \(0 %\) – ", stages)


def test_the_ten_worst_answers_differ_and_are_explained(report_data: ReportData, report_page: str) -> None:
    text = words_of(section(report_page, "worst"))
    keys = pl.DataFrame(list(report_data.worst), schema={"dt": pl.Date(), "query_id": pl.String()}, orient="row")
    worst = keys.join(report_data.answers, on=["dt", "query_id"], validate="1:1", maintain_order="left")
    codes = keys.join(report_data.answer_findings, on=["dt", "query_id"]).filter(pl.col("ordinal") == 0)["code"]

    assert worst.height == WORST
    assert worst.select("user_question", "generated_sql").is_unique().all()
    assert codes.value_counts()["count"].max() <= WORST_OF_A_KIND  # type: ignore[operator]
    assert worst["phi"].is_sorted()
    assert worst["user_question"][0] in text
    assert "Φ = (σfilters 3 + σverdict 0 + δ 0) / 10 × 100 × Γ" in text
    assert "✗ year = 2025 missing" in text
    assert not set(report_data.worst) & set(report_data.worst_of_agents)
    assert "More of people-helper" in text


def test_each_finding_has_up_to_three_examples_of_different_questions(report_data: ReportData, report_page: str) -> None:
    questions = {(row["dt"], row["query_id"]): row["user_question"] for row in report_data.answers.iter_rows(named=True)}
    examples: dict[str, list[str]] = {}
    for code, key in report_data.examples:
        examples.setdefault(code, []).append(questions[key])

    assert {len(each) for each in examples.values()} == {3}
    assert all(len(set(each)) == len(each) for each in examples.values())
    shown = section(report_page, "findings")
    assert re.findall(r"<summary>([^<]+)</summary>", shown)[0] == re.findall(r'scope="row">([^<]+)<', shown)[0]


def test_what_findings_speak_of_is_marked_in_question_and_sql(report_data: ReportData, report_page: str) -> None:
    worst = section(report_page, "worst")
    marks = set(re.findall(r"<mark>([^<]+)</mark>", worst))

    for day, query_id in report_data.worst:
        mine = report_data.answer_findings.filter((pl.col("dt") == day) & (pl.col("query_id") == query_id))
        assert mine["question_part"][0] in marks
        if mine["sql_part"][0] is not None:
            assert mine["sql_part"][0] in marks


def test_the_most_changed_answers_come_first_with_what_changed_them(report_data: ReportData, report_page: str) -> None:
    changed = words_of(section(report_page, "changed"))
    moved = report_data.changes.head(10)
    sizes = (moved["new_phi"] - moved["old_phi"]).abs().to_list()

    assert f"the largest 10 of {CHANGED} changes" in changed
    status = sizes.index(None)  # what had no score before comes behind every change of a score
    assert sizes[:status] == sorted(sizes[:status], reverse=True)
    assert min(sizes[:status]) > 0
    assert set(sizes[status + 1 :]) <= {0.0}
    first = report_data.changes.row(0, named=True)
    assert f"1. Φ {one(first['old_phi'])} → {one(first['new_phi'])} · good → " in changed
    assert "changed: rules" in changed
    assert re.search(rf"r1 rules 2026-03-08 {CHANGED} 0 \d+ 1 0 −", changed)


def test_gates_are_told_for_each_run_and_added_up(report_page: str) -> None:
    gates = words_of(section(report_page, "gates"))

    assert "input passed 7, failed 0" in gates
    assert gates.count("✓ published ✓ 7") == 7


def test_cost_is_told_for_the_agent_that_a_model_judged(report_data: ReportData, report_page: str) -> None:
    cost = words_of(section(report_page, "cost"))
    answers = int(report_data.cells.filter(pl.col("agent_id") == MODELLED)["rows"].sum())
    told = (
        f"{count(answers)} {count(2 * answers)} {count(1400 * answers)} {count(150 * answers)} {money(0.0125 * answers)} 12.50"
    )
    told = told.replace("\u202f", " ")

    assert f"{MODELLED} {told}" in cost
    assert f"All {told}" in cost
    assert "shop-analyst" not in cost
    assert len(re.findall(r"2026-03-0\d fleet-bot", cost)) == 7


def test_the_page_is_the_same_each_time(report_data: ReportData, report_page: str) -> None:
    assert render_report(report_data, generated_at=NOW) == report_page


def test_the_page_stands_alone(report_page: str) -> None:
    found = Page(report_page)

    for tag in ("iframe", "object", "embed", "img", "base", "video", "audio"):
        assert found.named(tag) == []
    assert found.named("link") == [{"rel": "icon", "href": "data:,"}]  # or a browser would ask for one
    assert [attrs.get("type") for attrs in found.named("script")] == ["application/json", None]
    addresses = [
        v
        for tag, attrs in found.elements
        for n, v in attrs.items()
        if n in ("src", "href", "xlink:href", "action") and tag != "link"
    ]
    assert [a for a in addresses if not (a or "").startswith("#")] == []
    assert "@import" not in report_page
    assert not re.search(r"url\((?!#)", report_page)
    assert len(report_page.encode()) < 3_000_000


def test_the_policy_of_the_page_allows_its_own_script_and_nothing_else(report_page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', report_page)
    (script,) = re.findall(r"<script>(.*?)</script>", report_page, flags=re.DOTALL)

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script


def test_tables_have_captions_and_scopes_charts_have_words_and_ids_are_unique(report_page: str) -> None:
    found = Page(report_page)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]

    assert len(found.named("table")) == len(found.named("caption")) > 8
    assert all(attrs.get("scope") in ("col", "row") for attrs in found.named("th"))
    assert len(found.named("svg")) == 5
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in found.named("svg"))
    assert len(ids) == len(set(ids))
    assert len(found.named("h1")) == 1
    assert found.named("html") == [{"lang": "en"}]


def test_charts_show_each_day_its_interval_the_fall_and_the_new_version(report_data: ReportData, report_page: str) -> None:
    shop = report_page[report_page.index('aria-label="Mean Φ of shop-analyst') :].split("</svg>")[0]
    pareto = report_page[report_page.index('aria-label="Findings by code') :].split("</svg>")[0]

    days = report_data.cells.filter(pl.col("agent_id") == "shop-analyst").group_by("bucket").agg(
        pl.col("scored", "phi", "phi_squares").sum()
    ).sort("bucket")  # fmt: skip
    (line,) = re.findall(r'mean_marks"[^>]*><path [^>]*d="M([^"]+)"', shop)
    heights = [150 * (1 - row["phi"] / row["scored"] / 100) for row in days.iter_rows(named=True)]
    assert [float(point.split(",")[1]) for point in line.split("L")] == pytest.approx(heights, abs=0.02)
    (area,) = re.findall(r'interval_marks"[^>]*><path [^>]*d="M([^"]+)Z"', shop)
    ends = [mean_interval(Sums(*row)) for row in days.select("scored", "phi", "phi_squares").iter_rows()]
    bounds = [150 * (1 - end[side] / 100) for side in (0, 1) for end in ends[:: -1 if side else 1] if end]
    assert [float(point.split(",")[1]) for point in area.split("L")] == pytest.approx(bounds, abs=0.02)
    assert re.findall(r">(\d+ Mar)</text>", shop) == ["2 Mar", "4 Mar", "6 Mar", "8 Mar"]
    fall = report_data.alerts.filter((pl.col("agent_id") == "shop-analyst") & (pl.col("app_id") == "*"))["change"][0]
    assert f">{one(fall)}</text>" in shop
    assert ">v3</text>" in shop
    assert len(re.findall(r'<path [^>]*fill="#2b7bba"', pareto)) >= report_data.faults["code"].n_unique()


def test_the_figures_for_the_script_add_up_to_those_of_the_page(report_data: ReportData, report_page: str) -> None:
    data = embedded(report_page)

    assert sum(data["cells"]["rows"]) == report_data.cells["rows"].sum()
    assert sum(data["faults"]["occurrences"]) == report_data.faults["occurrences"].sum()
    assert data["agents"] == ["fleet-bot", "people-helper", "shop-analyst"]
    assert data["apps"] == ["fleet", "hr", "outlet", "shop"]


def test_text_of_strangers_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    evil = filled(duckdb_url(tmp_path / "evil.duckdb"), *evil_week(EVIL))
    gates = [{"gate": EVIL, "passed": False, "expectations": 1, "failures": [{"message": EVIL}]}]
    failed = {"outcome": "gate_failed", "message": EVIL, "gates": json.dumps(gates), "notes": json.dumps([EVIL])}
    with connect(evil) as warehouse:
        warehouse.record_run(run_row(dt.date(2026, 3, 9), **failed))
    with connect(evil, read_only=True) as warehouse:
        page = render_report(load_report_data(warehouse), generated_at=NOW)

    found = Page(page)
    assert len(found.named("script")) == 2
    assert found.named("img") == []
    assert [n for _, attrs in found.elements for n in attrs if n.startswith("on")] == []
    assert "<script>alert(1)</script>" in found.text
    assert "{{7*7}}" in found.text
    assert "{% raw %}" in found.text
    assert not {"\u202e", "\x1b"} & set(page)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def skeleton(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Everything of a page but its texts and where they are marked."""
    return [(tag, attrs) for tag, attrs in Page(page).elements if tag not in ("mark",)]


def test_forty_hostile_texts_change_nothing_on_the_page_but_its_text(report_data: ReportData) -> None:
    assert len(HOSTILE) == 40
    report_data = with_more_answers(report_data, len(HOSTILE))
    harmless = tuple(f"harmless text number {n}" for n in range(40))

    page = render_report(hostile_data(report_data, HOSTILE), generated_at=NOW)

    assert skeleton(page) == skeleton(render_report(hostile_data(report_data, harmless), generated_at=NOW))
    text = Page(page).text
    for hostile in HOSTILE:
        assert re.sub("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", hostile) in text
    assert page.count("<mark>") == page.count("</mark>") > 40


def test_json_in_the_page_cannot_end_its_element() -> None:
    text = "</script><!--<script>&\u2028\u2029"

    written = json_for_page({text: [text]})

    assert not {"<", ">", "&", "\u2028", "\u2029"} & set(written)
    assert json.loads(written) == {text: [text]}


def test_a_long_text_is_cut_and_says_how_much_is_missing() -> None:
    assert marked("<b>" * 1000, ["b"], 10).endswith("2\u202f990 more characters</span>")
    assert marked("a < b", ["a < b"], 100) == "<mark>a &lt; b</mark>"


@pytest.mark.parametrize(
    ("value", "told"), [(None, "–"), (62.25, "62.3"), (0.04, "0.0"), (-0.04, "0.0"), (-8.85, "−8.8"), (100.0, "100.0")]
)
def test_figures_are_rounded_a_half_away_from_zero(value: float | None, told: str) -> None:
    assert one(value) == told


def test_shares_and_money_are_spelled_for_readers() -> None:
    assert (percent(0.125, 0), percent(None), signed(0.0), signed(-3.0)) == ("13\u00a0%", "–", "+0.0", "−3.0")
    assert (money(None), money(0.0), money(0.00125), money(12.345), count(1234567)) == (
        "–",
        "0.00",
        "0.0013",
        "12.35",
        "1\u202f234\u202f567",
    )


@pytest.mark.parametrize(
    ("days", "grain"), [(1, "day"), (92, "day"), (93, "week"), (731, "week"), (732, "month"), (9999, "year")]
)
def test_a_long_period_is_cut_more_coarsely(days: int, grain: str) -> None:
    first = dt.date(2026, 1, 1)

    assert grain_of(first, first + dt.timedelta(days=days - 1)) == grain


def many_cells(agents: int, apps: int, versions: int, data: ReportData) -> ReportData:
    """A cell for every agent, application and version, each on its own day."""
    cell = data.cells.row(0, named=True)
    rows = []
    for a, p, v in itertools.product(range(agents), range(apps), range(versions)):
        day = dt.date(2026, 1, 5) + dt.timedelta(days=7 * v + a % 3)
        days = {"bucket": day, "first_day": day, "last_day": day}
        rows.append(cell | days | {"agent_id": f"agent {a}", "app_id": f"app {p}", "agent_version": f"{v:02d}"})
    return dataclasses.replace(data, grain="day", cells=pl.DataFrame(rows, schema=data.cells.schema))


def test_agents_applications_and_versions_beyond_a_number_are_counted_together(report_data: ReportData) -> None:
    data = many_cells(70, 65, 9, report_data)

    figures = figures_of(data)

    assert figures.cells.height <= CELLS_MOST < data.cells.height
    assert figures.cells["rows"].sum() == data.cells["rows"].sum()
    assert figures.other_agents == 10
    assert figures.agents[-1] == "(10 other agents)"
    assert re.fullmatch(r"\(\d+ other applications\)", figures.apps[-1])
    assert all(re.fullmatch(r"\(\d+ earlier\)", names[0]) for names in figures.versions[:-1])
    assert list(GRAINS).index(figures.grain) > list(GRAINS).index("day")


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("phi_fall", -12.34, "fell by 12.3 points of Φ"),
        ("version_worse", -10.7, "is 10.7 points of Φ worse with version v2"),
        ("coverage_fall", -0.25, "lost 25.0 % of coverage"),
        ("finding_rise", 0.15, "has one finding in 15.0 % more of its answers"),
    ],
)
def test_an_alert_of_each_kind_says_what_moved_in_its_own_unit(
    kind: str, change: float, words: str, report_data: ReportData
) -> None:
    told = {"kind": kind, "change": change, "agent_version": "v2"}
    alerts = report_data.alerts.head(1).with_columns(pl.lit(value).alias(name) for name, value in told.items())

    data = dataclasses.replace(report_data, alerts=alerts, alert_count=1)

    assert words in words_of(render_report(data, generated_at=NOW))


def test_a_page_says_what_it_leaves_out(report_data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_ROOMS", report._ROOMS[-1:])
    alerts = pl.concat([report_data.alerts] * 40)
    data = dataclasses.replace(
        many_cells(70, 2, 1, report_data), alerts=alerts, alert_count=412, runs=report_data.runs, run_count=365
    )

    text = words_of(render_report(data, generated_at=NOW))

    assert "Shown by name: 12 of 70 agents" in text
    assert f"The latest {ALERTS_SHOWN} of 412 alerts." in text
    assert f"The latest {report_data.runs.height} of 365 runs" in text
    assert "58 further agents have no chart" in text


def test_runs_that_published_nothing_stay_in_sight_behind_the_latest(tmp_path: Path) -> None:
    url = duckdb_url(tmp_path / "w.duckdb")
    with connect(url) as warehouse:
        for n in range(RUNS_SHOWN + 9):
            at = NOW + dt.timedelta(days=n)
            warehouse.record_run(run_row(at.date(), started_at=at, outcome="gate_failed" if n in (1, 3) else "published"))
    with connect(url, read_only=True) as warehouse:
        data = load_report_data(warehouse)

    assert data.runs["started_at"].is_sorted(descending=True)
    assert data.runs.height == RUNS_SHOWN + 2
    assert data.runs["outcome"].tail(2).to_list() == ["gate_failed", "gate_failed"]


def test_a_page_stays_small_however_long_its_texts_are(report_data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LARGEST", 400_000)
    long = tuple(f"SELECT {n} {'<&> ' * 2_500}" for n in range(40))

    page = render_report(hostile_data(report_data, long), generated_at=NOW)

    assert len(page.encode()) <= 400_000
    assert re.search(r"Texts are cut after \d+ characters", words_of(page))


def test_an_empty_warehouse_says_what_to_do(tmp_path: Path) -> None:
    url = duckdb_url(tmp_path / "empty.duckdb")
    with connect(url) as warehouse:
        warehouse.migrate()

    page = write_report(url, tmp_path / "r.html").read_text(encoding="utf-8")

    assert "Nothing has been published yet." in page
    assert "Runs and gates" not in page
    assert Page(page).named("script") == []
    assert "Nothing has been published yet." in render_report(ReportData.empty(), generated_at=NOW)


def test_a_gate_that_failed_before_anything_was_published_is_told(tmp_path: Path) -> None:
    url = duckdb_url(tmp_path / "w.duckdb")
    gates = [{"gate": "output", "passed": False, "failures": [{"message": "coverage of a is 0.5, required 0.95"}]}]
    with connect(url) as warehouse:
        warehouse.migrate()
        warehouse.record_run(run_row(dt.date(2026, 3, 2), outcome="gate_failed", gates=json.dumps(gates), message="refused"))

    text = words_of(write_report(url, tmp_path / "r.html").read_text(encoding="utf-8"))

    assert "✗ gate failed" in text
    assert "coverage of a is 0.5, required 0.95" in text


def test_one_day_and_an_agent_without_a_scored_answer_are_shown_kindly(tmp_path: Path) -> None:
    log, truth = demo_week()
    day = dt.date(2026, 3, 2)
    url = filled(duckdb_url(tmp_path / "one.duckdb"), log.filter(pl.col("asked_at").dt.date() == day), truth)
    with connect(url) as warehouse:
        warehouse.stage("r2", day, unscored_agent(warehouse.read("query_scores")))
        warehouse.publish("r2", day, ["query_scores", "agent_daily"])

    page = write_report(url, tmp_path / "r.html").read_text(encoding="utf-8")

    text = words_of(page)
    assert "There is one day so far; a trend needs more." in text
    assert "An alert needs three earlier days to compare with; there is 1 day so far." in text
    assert "No answer of this agent has been scored in this period." in text
    assert "nothing scored" in words_of(section(page, "bands"))
    assert re.search(r"fleet-bot (\d+) \1 0\.0 % judge unavailable \(\1\)", words_of(section(page, "coverage")))


def test_one_agent_whose_answers_are_all_unscored_has_a_report(tmp_path: Path) -> None:
    log, truth = demo_week()
    day = dt.date(2026, 3, 2)
    only = (pl.col("asked_at").dt.date() == day) & (pl.col("agent_id") == "fleet-bot")
    url = filled(duckdb_url(tmp_path / "lost.duckdb"), log.filter(only), truth)
    with connect(url) as warehouse:
        warehouse.stage("r2", day, unscored_agent(warehouse.read("query_scores")))
        warehouse.publish("r2", day, ["query_scores", "agent_daily"])

    text = words_of(write_report(url, tmp_path / "r.html").read_text(encoding="utf-8"))

    assert "1 agent · 1 application" in text
    assert "– mean Φ of 100" in text
    assert "No finding in this period." in text
    assert "No answer has been scored yet." in text


def test_a_warehouse_without_changes_or_model_says_so_kindly(report_data: ReportData) -> None:
    bare = ReportData.empty()
    data = dataclasses.replace(
        report_data,
        changes=bare.changes,
        change_runs=bare.change_runs,
        change_count=0,
        costs=bare.costs,
        runs=bare.runs,
        run_count=0,
    )

    text = words_of(render_report(data, generated_at=NOW))

    assert "No answer has been scored again with another result." in text
    assert "No call to a model is on record for these answers" in text
    assert "No run has been recorded." in text


def test_a_report_that_cannot_be_written_leaves_nothing_and_says_why(report_url: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()

    with pytest.raises(RuleError, match=r"folder\.html: the report cannot be written: .*; choose another file"):
        write_report(report_url, tmp_path / "folder.html")

    assert list(tmp_path.iterdir()) == [tmp_path / "folder.html"]


def test_the_page_and_its_parts_are_in_the_package() -> None:
    root = Path(__file__).parents[2]
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert "tasks" in packages
    assert {"report.html.j2", "report.js", "style.css"} <= {p.name for p in (root / "tasks" / "report_templates").iterdir()}
