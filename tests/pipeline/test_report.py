"""The report: it shows what the warehouse holds, harms nobody, loads nothing, and says so kindly when there is nothing."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stef_core.aggregates import agent_daily
from stef_core.canonical import conditions_json
from stef_core.drift import find_alerts
from stef_core.errors import RuleError
from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, QUERY_SCORES, compact_json, frame_of
from stef_core.records import Filter
from stef_core.scoring import compose_frame
from tasks.demo_data import demo_frames
from tasks.report import WORST, WORST_OF_A_KIND, ReportData, load_report_data, render_report, write_report
from tasks.warehouse import connect

NOW = dt.datetime(2026, 3, 9, 6, 30, tzinfo=dt.UTC)
EVIL = "<script>alert(1)</script> <img src=x onerror=alert(2)> {{7*7}} {% raw %} \"'> \u202eevil\x1b[2J &lt;"
CODES = {
    "dropped_date_filter": "missing_filter",
    "or_for_and": "wrong_filter_operator",
    "no_sql": "no_sql",
    "prose_refusal": "not_a_query",
}


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass
        if tag not in ("bdi", "b", "span", "sub", "code"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def scores_of(log: pl.DataFrame, truth: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A week of scores and findings as a perfect judge would give them: the report does not care who judged."""
    rows = log.join(truth, on="query_id", validate="1:1")
    year = conditions_json([Filter(column="year", value=2025)])
    alignment = {"matched": [], "missing": year, "extra": [], "benign": []}
    scores, findings = [], []
    for n, row in enumerate(rows.iter_rows(named=True)):
        right, unscored = row["right"], n % 61 == 0
        rejected = row["fault"] in ("no_sql", "prose_refusal")
        key = {name: row[name] for name in ("dt", "query_id", "agent_id", "agent_version", "app_id")}
        status = None if rejected else "fully_applied" if right else "partially_applied"
        scores.append(
            {
                **{name: row.get(name) for name in QUERY_SCORES},
                "status": "unscored" if unscored else "scored",
                "reason": "sql_unparseable" if unscored else None,
                "filter_status": None if unscored else status,
                "enrichment_status": "faithful" if row["enriched_question"] else "absent",
                "delta_lenient": 0,
                "verdict": None if unscored else "correct" if right else "incorrect",
                "confidence": None if unscored else 0.9 if n % 3 else 0.7,
                "verdict_reasons": json.dumps([] if right else ["A condition is missing."]),
                "alignment": None if right or rejected else compact_json(alignment),
                "p_right": None if unscored else 0.9 if right else 0.15,
                "run_id": "r1",
            }
        )
        if not right:
            code = CODES.get(row["fault"], "wrong_filter_value")
            text = "Nothing in the SQL holds year = 2025." if code == "missing_filter" else f"The SQL has a {row['fault']}."
            found = {"ordinal": 0, "code": code, "dimension": "filters", "severity": "critical", "stage": "generation"}
            findings.append({**dict.fromkeys(QUERY_FINDINGS), **key, **found, "message": text, "run_id": "r1"})
    frame = compose_frame(frame_of(scores, QUERY_SCORES)).select(QUERY_SCORES.names()).cast(QUERY_SCORES)
    return frame, frame_of(findings, QUERY_FINDINGS)


def filled(path: Path, log: pl.DataFrame, truth: pl.DataFrame) -> str:
    """A warehouse that holds these rows, scored and published day by day; its URL."""
    url = f"duckdb:///{path}"
    scores, findings = scores_of(log, truth)
    raised = AGENT_ALERTS.to_frame()
    with connect(url) as warehouse:
        warehouse.migrate()
        for day in sorted(set(scores["dt"])):
            today = scores.filter(pl.col("dt") == day)
            alerts = find_alerts(scores.filter(pl.col("dt") <= day), day, findings=findings, recent_alerts=raised)
            alerts = alerts.with_columns(run_id=pl.lit("r1")).cast(AGENT_ALERTS)
            raised = pl.concat([raised, alerts])
            found = findings.filter(pl.col("dt") == day)
            daily = agent_daily(today, found)
            tables = {"query_scores": today, "query_findings": found, "agent_daily": daily, "agent_alerts": alerts}
            warehouse.stage("r1", day, tables)
            warehouse.publish("r1", day, list(tables))
            warehouse.record_run(run_row(day, rows_in=today.height))
    return url


def run_row(day: dt.date, **values: Any) -> dict[str, Any]:
    gates = [{"gate": "input", "passed": True, "expectations": 7, "failures": []}]
    row = {"run_id": f"run-{day}", "kind": "score", "dt": day, "outcome": "published", "judge": "symbolic"}
    return {**row, "started_at": NOW, "rows_scored": 100, "rows_unscored": 3, "gates": json.dumps(gates), **values}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("report") / "w.duckdb", *demo_frames())


@pytest.fixture(scope="module")
def data(url: str) -> ReportData:
    with connect(url, read_only=True) as warehouse:
        return load_report_data(warehouse)


@pytest.fixture(scope="module")
def page(data: ReportData) -> str:
    return render_report(data, generated_at=NOW)


def evil_page(tmp_path: Path) -> str:
    log, truth = demo_frames()
    strange = pl.lit(EVIL)
    columns = ("agent_id", "agent_version", "app_id", "user_question", "enriched_question", "generated_sql", "dialect")
    log = log.with_columns(*(strange.alias(name) for name in columns), query_id=pl.format("{}{}", strange, "query_id"))
    truth = truth.with_columns(query_id=pl.format("{}{}", strange, "query_id"))
    evil = filled(tmp_path / "evil.duckdb", log, truth)
    gates = [{"gate": EVIL, "passed": False, "expectations": 1, "failures": [{"message": EVIL}]}]
    with connect(evil) as warehouse:
        row = run_row(
            dt.date(2026, 3, 9), outcome="gate_failed", message=EVIL, gates=json.dumps(gates), notes=json.dumps([EVIL])
        )
        warehouse.record_run(row)
    with connect(evil, read_only=True) as warehouse:
        return render_report(load_report_data(warehouse), generated_at=NOW)


def test_the_report_has_every_part_under_its_heading(page: str) -> None:
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)

    assert headings == [
        "What slipped",
        "Trend",
        "Agents",
        "Bands and findings",
        "The 10 worst answers, explained",
        "Coverage",
        "Runs and gates",
        "How to read this",
    ]


def test_the_slip_of_the_fifth_day_is_told_with_its_reason(data: ReportData, page: str) -> None:
    text = " ".join(Page(page).text.split())

    assert data.alerts.select("agent_id", "dt").rows() == [("shop-analyst", dt.date(2026, 3, 6))]
    assert "2026-03-06: shop-analyst fell by" in text
    assert "with version v3 instead of v2; most of all missing filter" in text
    assert "of the lowest answers of that day" in text


def test_figures_of_the_page_are_those_of_the_warehouse(data: ReportData, page: str) -> None:
    text = " ".join(Page(page).text.split())
    daily = data.agent_daily.filter(pl.col("scored") > 0)
    mean = float((daily["mean_phi"] * daily["scored"]).sum()) / int(daily["scored"].sum())

    assert f"{mean:.1f}mean Φ of 100" in text
    assert f"{data.agent_daily['rows'].sum()}answers" in text
    for row in data.compare.iter_rows(named=True):
        assert f"{row['mean_phi']:.1f}" in text
    assert "sql unparseable (" in text


def test_the_ten_worst_answers_differ_and_are_explained(data: ReportData, page: str) -> None:
    text = " ".join(Page(page).text.split())
    worst = data.worst.join(data.findings, on=["dt", "query_id"], how="left", maintain_order="left")

    assert data.worst.height == WORST
    assert data.worst.select("user_question", "generated_sql").is_unique().all()
    assert worst["code"].value_counts()["count"].max() <= WORST_OF_A_KIND  # type: ignore[operator]
    assert data.worst["phi"].is_sorted()
    assert data.worst["user_question"][0] in text
    assert "Φ = (σfilters 3 + σverdict 0 + δ 0) / 10 × 100 × Γ" in text
    assert "✗ year = 2025 missing" in text


def test_the_page_is_the_same_each_time(data: ReportData, page: str) -> None:
    assert render_report(data, generated_at=NOW) == page


def test_the_page_stands_alone(page: str) -> None:
    found = Page(page)

    for tag in ("script", "link", "iframe", "object", "embed", "img", "form"):
        assert found.named(tag) == []
    addresses = [v for _, attrs in found.elements for n, v in attrs.items() if n in ("src", "href", "xlink:href", "action")]
    assert [a for a in addresses if not (a or "").startswith("#")] == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert len(page.encode()) < 3_000_000


def test_tables_have_captions_charts_have_words_and_ids_are_unique(page: str) -> None:
    found = Page(page)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]

    assert len(found.named("table")) == len(found.named("caption")) > 5
    assert len(found.named("svg")) == 5
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in found.named("svg"))
    assert len(ids) == len(set(ids))
    assert len(found.named("h1")) == 1
    assert found.named("html") == [{"lang": "en"}]


def test_charts_show_a_point_for_each_day_the_fall_and_the_new_version(data: ReportData, page: str) -> None:
    shop = page[page.index('aria-label="Mean Φ by day for shop-analyst') :].split("</svg>")[0]
    bands = page[page.index('aria-label="Share of each band') :].split("</svg>")[0]
    pareto = page[page.index('aria-label="Findings by code') :].split("</svg>")[0]

    points = re.findall(
        r'aria-label="day: [^"]+; mean Φ: ([0-9.]+)[^"]*" role="graphics-symbol" aria-roledescription="point"', shop
    )
    means = data.trend.filter(pl.col("agent_id") == "shop-analyst")["mean_phi"].to_list()
    assert [round(float(point), 6) for point in points[: len(means)]] == [round(mean, 6) for mean in means]
    assert re.findall(r">(\d+ Mar)</text>", shop) == ["2 Mar", "4 Mar", "6 Mar", "8 Mar"]
    assert ">fall</text>" in shop
    assert ">v3</text>" in shop
    assert bands.count('aria-roledescription="bar"') == 4 * data.compare.height
    assert pareto.count('aria-roledescription="bar"') == data.pareto["code"].n_unique()


def test_text_of_strangers_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    page = evil_page(tmp_path)
    found = Page(page)

    assert found.named("script") == []
    assert found.named("img") == []
    assert [n for _, attrs in found.elements for n in attrs if n.startswith("on")] == []
    assert "<script>alert(1)</script>" in found.text
    assert "{{7*7}}" in found.text
    assert "{% raw %}" in found.text
    assert not {"\u202e", "\x1b"} & set(page)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_an_empty_warehouse_says_what_to_do(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path / 'empty.duckdb'}"
    with connect(url) as warehouse:
        warehouse.migrate()

    page = write_report(url, tmp_path / "r.html").read_text(encoding="utf-8")

    assert "Nothing has been published yet." in page
    assert "Runs and gates" not in page
    assert "Nothing has been published yet." in render_report(ReportData.empty(), generated_at=NOW)


def test_a_gate_that_failed_before_anything_was_published_is_told(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path / 'w.duckdb'}"
    gates = [{"gate": "output", "passed": False, "failures": [{"message": "coverage of a is 0.5, required 0.95"}]}]
    with connect(url) as warehouse:
        warehouse.migrate()
        warehouse.record_run(run_row(dt.date(2026, 3, 2), outcome="gate_failed", gates=json.dumps(gates), message="refused"))

    text = " ".join(Page(write_report(url, tmp_path / "r.html").read_text(encoding="utf-8")).text.split())

    assert "✗ gate failed" in text
    assert "coverage of a is 0.5, required 0.95" in text


def test_one_day_and_an_agent_without_a_scored_answer_are_shown_kindly(tmp_path: Path) -> None:
    log, truth = demo_frames()
    day = pl.col("asked_at").dt.date() == dt.date(2026, 3, 2)
    url = filled(tmp_path / "one.duckdb", log.filter(day), truth)
    with connect(url) as warehouse:
        warehouse.stage("r2", dt.date(2026, 3, 2), unscored_agent(warehouse.read("query_scores")))
        warehouse.publish("r2", dt.date(2026, 3, 2), ["query_scores", "agent_daily"])

    text = " ".join(Page(write_report(url, tmp_path / "r.html").read_text(encoding="utf-8")).text.split())

    assert "There is one day so far; a trend needs more." in text
    assert "An alert needs three earlier days to compare with; there is 1 day so far." in text
    assert "No answer of this agent has been scored in this period." in text
    assert "nothing scored" in text


def unscored_agent(scores: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The day with every answer of fleet-bot unscored."""
    lost = pl.col("agent_id") == "fleet-bot"
    nulls = ("filter_status", "verdict", "confidence", "phi", "band", "p_right", "base", "gamma_factor")
    scores = scores.with_columns(
        *(pl.when(~lost).then(pl.col(name)).alias(name) for name in nulls),
        status=pl.when(lost).then(pl.lit("unscored")).otherwise("status"),
        reason=pl.when(lost).then(pl.lit("judge_unavailable")).otherwise("reason"),
        run_id=pl.lit("r2"),
    )
    return {"query_scores": scores, "agent_daily": agent_daily(scores, QUERY_FINDINGS.to_frame())}


def test_a_report_that_cannot_be_written_leaves_nothing_and_says_why(url: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()

    with pytest.raises(RuleError, match=r"folder\.html: the report cannot be written: .*; choose another file"):
        write_report(url, tmp_path / "folder.html")

    assert list(tmp_path.iterdir()) == [tmp_path / "folder.html"]


def test_the_page_and_its_template_are_in_the_package() -> None:
    root = Path(__file__).parents[2]
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert "tasks" in packages
    assert (root / "tasks" / "report_templates" / "report.html.j2").is_file()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "light"), (390, "dark")])
def test_a_browser_shows_it_without_error_request_or_sideways_scrolling(
    page: str, tmp_path: Path, width: int, scheme: Any
) -> None:
    chromium = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is not installed; CI needs it to look at the report")
        pytest.skip("Chromium is not installed: the report is not looked at")
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    problems: list[str] = []
    requests: list[str] = []

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        view.on("console", lambda message: problems.append(message.text))
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.on("request", lambda request: requests.append(request.url))
        view.goto(file.as_uri())
        overflow = view.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        ink = view.evaluate("getComputedStyle(document.body).color")
        charts = view.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
        browser.close()

    assert problems == []
    assert requests == [file.as_uri()]
    assert overflow <= 0
    assert all(200 < chart < width for chart in charts)
    assert (ink == "rgb(228, 232, 238)") == (scheme == "dark")
