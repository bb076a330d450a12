"""The pages of a run are Great Expectations' own, ask nobody for anything, and stand in the run record."""

from __future__ import annotations

import datetime as dt
import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from stef_core.frames import AGENT_DAILY, frame_of
from tasks import expectations
from tasks.data_docs import keep_data_docs, offline, write_data_docs
from tasks.gates import GateResult, agent_coverage, check

DAY = dt.date(2026, 3, 2)
RUN = {"run_id": "run-1", "dt": DAY, "started_at": dt.datetime(2026, 3, 3, 6, tzinfo=dt.UTC)}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "action"):
                self.loads.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.text += data


def gate(coverage: float, agent: str = "clerk") -> GateResult:
    rows = [{"dt": DAY, "agent_id": agent, "app_id": "*", "rows": 100, "scored": round(100 * coverage)}]
    frame = agent_coverage(frame_of([dict.fromkeys(AGENT_DAILY) | row for row in rows], AGENT_DAILY))
    return check("scores", frame, expectations.agents_suite(0.95), day=DAY, keys=("agent_id",))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_data_docs(tmp_path / "docs", RUN, [gate(1.0), gate(0.5, EVIL)]).parent


def test_a_run_has_an_index_and_a_page_for_each_gate(home: Path) -> None:
    index = Page((home / "index.html").read_text(encoding="utf-8"))

    assert home.name == "run-1"
    assert index.links == ["01-agents.html", "02-agents.html"]
    assert sorted(path.name for path in home.iterdir()) == ["01-agents.html", "02-agents.html", "index.html"]
    assert "Gates of 2026-03-02" in index.text
    assert "agents passed" in index.text
    assert "agents failed" in index.text
    assert "is 0.5, required at least 0.95" in index.text


@pytest.mark.parametrize("name", ["index.html", "01-agents.html", "02-agents.html"])
def test_a_page_asks_nobody_and_runs_nothing(home: Path, name: str) -> None:
    source = (home / name).read_text(encoding="utf-8")

    page = Page(source)
    assert (page.loads, page.handlers) == ([], [])
    assert not {"script", "link", "img", "iframe", "form"} & set(page.tags)
    assert all(link.startswith("#") or (home / link).exists() for link in page.links)
    assert re.findall(r"url\(|@import", source) == []


def test_a_page_says_what_great_expectations_found(home: Path) -> None:
    failed = " ".join(Page((home / "02-agents.html").read_text(encoding="utf-8")).text.split())

    assert "Status: Failed" in failed
    assert "coverage" in failed
    assert "run-1" in failed
    assert "values must be greater than or equal to 0.95 and less than or equal to 1" in failed


def test_a_page_of_great_expectations_itself_would_ask_others(home: Path) -> None:
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    render: Any = DefaultJinjaPageView().render
    source = render(ValidationResultsPageRenderer().render(gate(0.5).validation))

    assert any("//" in link for link in Page(source).loads)
    assert Page(offline(source)).loads == []


def test_nested_and_unclosed_elements_are_dropped_whole() -> None:
    page = '<head></head><form><div><input><p>in</p></div></form><p onclick="x()">out &amp; &#169;<img src="//e.example/a"></p>'

    kept = offline(page)

    assert kept.endswith("</style></head><p>out &amp; &#169;</p>")


def test_an_index_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "docs").write_text("a file, no folder")

    with caplog.at_level(logging.WARNING, logger="tasks.data_docs"):
        path = keep_data_docs.fn(tmp_path / "docs", RUN, [gate(1.0)])

    assert path is None
    assert "STEF_DATA_DOCS" in caplog.text
