"""The report in a browser: it filters, loads nothing, obeys nobody, and serves keyboard, screen reader, phone and paper."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import polars as pl
import pytest

from stef_core.intervals import Sums, difference_interval, mean_interval
from tasks.report import ReportData, load_report_data, render_report
from tasks.report_page import count, one, percent, signed, span
from tasks.warehouse import connect
from tests.reports import (
    HOSTILE,
    MODELLED,
    NOW,
    duckdb_url,
    evil_week,
    filled,
    hostile_data,
    with_more_answers,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


class View:
    """A page in a browser, with all it asked for and complained of."""

    def __init__(self, browser: Browser, file: Path, fragment: str = "", **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP} | options)
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.page: Page = self.context.new_page()
        self.context.set_default_timeout(10_000)
        self.context.route("**/*", self._asked)
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        self.address = file.as_uri()
        self.page.goto(self.address + (f"#{fragment}" if fragment else ""))

    def _asked(self, route: Any) -> None:
        self.requests.append(route.request.url)
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            route.abort()

    def tile(self, name: str) -> str:
        return self.text(f".tiles [data-f={name}]")

    def text(self, selector: str) -> str:
        return re.sub(r"[\s\u202f\u00a0]+", " ", self.page.locator(selector).first.inner_text()).strip()

    def rows(self, table: str) -> list[str]:
        """Texts of the rows of a table that are seen."""
        found = self.page.locator(f'[data-table="{table}"] tbody tr:visible').all_inner_texts()
        return [re.sub(r"[\s\u202f\u00a0]+", " ", text).strip() for text in found]

    def reset(self) -> None:
        self.page.click("button[type=reset]")
        self.page.get_by_text("Everything is shown").wait_for()

    def choose(self, **values: str) -> None:
        for name, value in values.items():
            if name in ("agent", "app"):
                self.page.select_option(f"select[name={name}]", label=value)
            else:
                self.page.fill(f"input[name={name}]", value)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is not installed; CI needs it to look at the report")
        pytest.skip("Chromium is not installed: the report is not looked at")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(report_page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page, encoding="utf-8")
    return path


@pytest.fixture
def view(browser: Browser, file: Path) -> Iterator[View]:
    opened = View(browser, file)
    yield opened
    opened.context.close()
    assert opened.problems == []
    assert opened.requests == [opened.address]


def sums(cells: pl.DataFrame) -> Sums:
    return Sums(int(cells["scored"].sum()), float(cells["phi"].sum()), float(cells["phi_squares"].sum()))


# --- it opens, and asks for nothing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "light"), (PHONE, "dark")])
def test_it_opens_without_error_request_or_sideways_scrolling(browser: Browser, file: Path, viewport: Any, scheme: Any) -> None:
    view = View(browser, file, viewport=viewport, color_scheme=scheme)

    overflow = view.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    ink = view.page.evaluate("getComputedStyle(document.body).color")
    charts = view.page.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
    view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    opened = view.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    view.context.close()

    assert view.problems == []
    assert view.requests == [view.address]
    assert (overflow, opened) == (0, 0)
    assert len(charts) == 5
    assert all(200 < chart < viewport["width"] for chart in charts)
    assert (ink == "rgb(228, 232, 238)") == (scheme == "dark")


def test_without_scripts_everything_is_there_but_the_filter(browser: Browser, file: Path) -> None:
    view = View(browser, file, java_script_enabled=False)

    is_filter_seen = view.page.locator("#filter").is_visible()
    figures = view.page.locator("svg").count()
    headings = view.page.locator("h2").all_inner_texts()
    view.context.close()

    assert not is_filter_seen
    assert figures == 5
    assert "Trend" in headings
    assert view.problems == []


def test_forty_hostile_texts_do_nothing(browser: Browser, report_data: ReportData, tmp_path: Path) -> None:
    data = hostile_data(with_more_answers(report_data, len(HOSTILE)), HOSTILE)
    file = tmp_path / "hostile.html"
    file.write_text(render_report(data, generated_at=NOW), encoding="utf-8")

    view = View(browser, file)
    view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    view.choose(agent="shop-analyst")
    foreign = view.page.locator("img, iframe, object, embed, base, video, math, link:not([rel=icon]), script[src]").count()
    scripts, styles = view.page.locator("script").count(), view.page.locator("style").count()
    handlers = view.page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length"
    )
    text = view.page.evaluate("document.body.textContent")
    title = view.page.title()
    view.context.close()

    assert view.problems == []
    assert view.requests == [view.address]
    assert (foreign, scripts, styles, handlers) == (0, 2, 1, 0)
    assert title == "STEF: accuracy of text-to-SQL answers, 2026-03-02 to 2026-03-08"
    for hostile in HOSTILE:
        shown = re.sub("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", hostile)
        assert shown in text


def test_hostile_names_do_nothing_when_they_are_chosen(browser: Browser, tmp_path: Path) -> None:
    evil = '"><img src=x onerror=alert(1)></script><script>alert(2)</script>'
    url = filled(duckdb_url(tmp_path / "evil.duckdb"), *evil_week(evil))
    with connect(url, read_only=True) as warehouse:
        page = render_report(load_report_data(warehouse), generated_at=NOW)
    file = tmp_path / "evil.html"
    file.write_text(page, encoding="utf-8")

    view = View(browser, file)
    view.page.select_option("select[name=agent]", index=1)
    view.page.select_option("select[name=app]", index=1)
    told = view.text("#shown")
    sent = view.page.url
    again = View(browser, file, sent.partition("#")[2])
    read = again.text("#shown")
    found = view.page.locator("img").count(), view.page.locator("script").count()
    for each in (view, again):
        each.context.close()

    assert told.startswith('Selected: agent "><img src=x')
    assert read == told
    assert found == (0, 2)
    assert view.problems == again.problems == []


# --- filters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chosen",
    [
        {"agent": "shop-analyst"},
        {"app": "outlet"},
        {"from": "2026-03-05"},
        {"agent": "shop-analyst", "app": "shop", "from": "2026-03-04", "to": "2026-03-06"},
        {"agent": "fleet-bot", "to": "2026-03-03"},
    ],
    ids=lambda chosen: "-".join(chosen),
)
def test_a_filter_gives_the_figures_of_the_rows_it_selects(view: View, report_data: ReportData, chosen: dict[str, str]) -> None:
    first, last = (dt.date.fromisoformat(chosen.get(name, day)) for name, day in (("from", "2026-03-02"), ("to", "2026-03-08")))
    cells = report_data.cells.filter(pl.col("bucket").is_between(first, last))
    if "agent" in chosen:
        cells = cells.filter(pl.col("agent_id") == chosen["agent"])
    if "app" in chosen:
        cells = cells.filter(pl.col("app_id") == chosen["app"])

    view.choose(**chosen)

    total = sums(cells)
    assert view.tile("rows") == count(int(cells["rows"].sum()))
    assert view.tile("mean") == one(total.mean)
    assert view.text(".tile:has([data-f=mean]) > span") == f"mean Φ of 100 ({span(mean_interval(total))})"
    assert view.tile("coverage") == percent(total.n / int(cells["rows"].sum())).replace("\u00a0", " ")
    agents = sorted(set(cells["agent_id"]))
    assert [row.split()[0] for row in view.rows("coverage")] == agents
    assert view.page.locator("figure[data-trend]:visible h3").all_inner_texts() == agents
    for row in view.rows("bands"):
        agent, version, *_, scored = row.split()
        mine = cells.filter((pl.col("agent_id") == agent) & (pl.col("agent_version") == version))
        assert int(scored) == mine["scored"].sum()
    assert f"{count(int(cells['rows'].sum()))} of " in view.text("#shown")


def test_a_filter_compares_versions_and_counts_findings_again(view: View, report_data: ReportData) -> None:
    cells = report_data.cells.filter((pl.col("agent_id") == "shop-analyst") & (pl.col("app_id") == "shop"))
    old, new = (sums(cells.filter(pl.col("agent_version") == version)) for version in ("v2", "v3"))
    faults = report_data.faults.filter((pl.col("agent_id") == "shop-analyst") & (pl.col("app_id") == "shop"))
    codes = faults.group_by("code").agg(pl.col("occurrences").sum()).sort("occurrences", "code", descending=[True, False])

    view.choose(agent="shop-analyst", app="shop")

    assert new.mean is not None
    assert old.mean is not None
    row = view.rows("versions")[1]
    assert f"{one(new.mean)} {span(mean_interval(new))} {signed(new.mean - old.mean)}" in row
    assert span(difference_interval(new, old), sign=True) in row
    told = [re.sub(r"([a-z ]+?) [A-Z][^0-9]*(\d+).*", r"\1:\2", row) for row in view.rows("findings")]
    assert told == [f"{code.replace('_', ' ')}:{n}" for code, n in codes.iter_rows()]
    assert view.page.locator("figure[data-whole]:visible").count() == 0


def test_a_filter_moves_the_marks_of_the_charts(view: View, report_data: ReportData) -> None:
    cells = report_data.cells.filter((pl.col("agent_id") == "shop-analyst") & (pl.col("app_id") == "outlet"))
    days = cells.filter(pl.col("bucket") >= dt.date(2026, 3, 6)).sort("bucket")
    chart = "figure[data-trend='2']"  # of shop-analyst, the last by name
    whole = view.page.locator(f"{chart} .mean_marks path").get_attribute("d")

    view.choose(agent="shop-analyst", app="outlet")
    view.choose(**{"from": "2026-03-06"})

    line = view.page.locator(f"{chart} .mean_marks path").get_attribute("d") or ""
    heights = [150 * (1 - row["phi"] / row["scored"] / 100) for row in days.iter_rows(named=True)]
    assert [float(point.split(",")[1]) for point in line[1:].split("L")] == pytest.approx(heights, abs=0.02)
    assert view.page.locator(f"{chart} .dots_marks path:visible").count() == days.height
    view.page.locator(f"{chart} summary").click()
    figures = view.page.locator(f"{chart} tbody tr").all_inner_texts()
    assert [text.split()[0] for text in figures] == ["2026-03-06", "2026-03-07", "2026-03-08"]
    assert [text.split()[2] for text in figures] == [one(row["phi"] / row["scored"]) for row in days.iter_rows(named=True)]
    view.reset()
    assert view.page.locator(f"{chart} .mean_marks path").get_attribute("d") == whole


def test_a_filter_shows_only_the_answers_alerts_runs_and_costs_of_the_selection(view: View) -> None:
    view.choose(agent="people-helper", to="2026-03-05")

    seen = "[...document.querySelectorAll('[data-item]:not([hidden])')].filter(e => !e.closest('[hidden]'))"
    items = view.page.evaluate(f"{seen}.map(e => [e.dataset.agent ?? '', e.dataset.day, e.textContent])")
    assert len(items) > 4
    assert all(day <= "2026-03-05" for _, day, _ in items)
    assert all("people-helper" in text for agent, _, text in items if agent)
    assert view.page.locator("#slipped ~ [data-none]").is_visible()
    assert view.tile("alerts") == "0"
    assert len([item for item in items if item[0] == ""]) == 4  # runs of four days
    assert view.rows("costs") == []
    view.choose(agent=MODELLED)
    assert len(view.rows("costs")) == 1


def test_what_the_script_adds_up_is_what_the_page_was_made_with(view: View) -> None:
    texts = "[...document.querySelectorAll('[data-f]')].map(e => [e.dataset.f, e.textContent, e.getAttribute('aria-label')])"
    before = view.page.evaluate(texts)

    view.choose(agent="shop-analyst", app="outlet")
    during = view.page.evaluate(texts)
    view.reset()

    assert len(before) > 100
    assert during != before
    assert view.page.evaluate(texts) == before


def test_the_selection_stands_in_the_address_and_is_read_from_it(view: View, browser: Browser, file: Path) -> None:
    view.choose(agent="shop-analyst", app="outlet", to="2026-03-06")
    fragment = view.page.url.partition("#")[2]

    again = View(browser, file, fragment)
    told = again.text("#shown")
    chosen = again.page.eval_on_selector_all("select, input", "fields => fields.map(f => f.value)")
    again.context.close()

    assert fragment == urlencode({"agent": "shop-analyst", "app": "outlet", "to": "2026-03-06"})
    assert told == view.text("#shown")
    assert told.startswith("Selected: agent shop-analyst, application outlet, the first day to 2026-03-06: ")
    assert chosen == ["2", "2", "", "2026-03-06"]
    view.page.evaluate("location.hash = '#agent=nobody&from=yesterday'")
    view.page.get_by_text("Everything is shown").wait_for()


def test_a_link_to_a_part_keeps_the_selection(view: View) -> None:
    view.choose(agent="fleet-bot")

    view.page.click("nav a[href='#coverage']")

    assert len(view.rows("coverage")) == 1


def test_an_empty_selection_says_so(view: View) -> None:
    view.choose(agent="fleet-bot", app="hr")
    assert view.text("#shown").endswith(": 0 of 980 answers.")
    assert view.page.locator("#trend ~ [data-none]").is_visible()

    view.choose(**{"app": "all applications", "from": "2026-03-05", "to": "2026-03-03"})
    assert view.text("#shown") == "The first day lies after the last: nothing is selected."


# --- everybody can use it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], ids=str)
def test_axe_finds_no_fault(browser: Browser, file: Path, viewport: Any, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    view = View(browser, file, viewport=viewport, color_scheme=scheme)
    view.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    response = Axe().run(view.page).response
    view.context.close()

    assert [(each["impact"], each["id"], [n["target"] for n in each["nodes"]]) for each in response["violations"]] == []
    assert response["testEngine"]["name"] == "axe-core"


def test_the_keyboard_reaches_the_figures_first_and_the_filter_in_order(view: View) -> None:
    view.page.keyboard.press("Tab")
    first = view.page.evaluate("document.activeElement.textContent")
    view.page.keyboard.press("Enter")
    skipped_to = view.page.evaluate("document.activeElement.id")

    order = []
    view.page.evaluate("document.querySelector('nav li:last-child a').focus()")
    for _ in range(20):
        view.page.keyboard.press("Tab")
        name = view.page.evaluate("document.activeElement.name || document.activeElement.textContent")
        if name not in order:
            order.append(name)
        if name == "Show all":
            break

    assert first == "Skip to the figures"
    assert skipped_to == "main"
    assert order == ["agent", "app", "from", "to", "Show all"]


def test_a_screen_reader_is_told_what_a_filter_selects(view: View) -> None:
    status = view.page.get_by_role("status")
    assert status.inner_text() == ""

    view.choose(agent="fleet-bot")

    assert re.fullmatch(r"Selected: agent fleet-bot, all applications: \d+ of 980 answers\.", status.inner_text())
    assert view.page.get_by_label("Application").is_visible()
    assert view.page.get_by_role("search", name="Filter the report").is_visible()


def test_paper_has_the_selection_and_no_controls(view: View) -> None:
    view.choose(agent="shop-analyst")

    view.page.emulate_media(media="print", color_scheme="dark")
    paper = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
    controls = [view.page.locator(selector).first.is_visible() for selector in ("nav", "select", ".skip", ".stack")]
    selection = view.page.locator("#shown").is_visible()
    folded = view.page.locator(".alert .example").first.is_visible()
    printed = view.page.pdf(format="A4")

    assert paper == "rgb(255, 255, 255)"
    assert controls == [False, False, False, False]
    assert selection
    assert folded
    assert printed.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 25
