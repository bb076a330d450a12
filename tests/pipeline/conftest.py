"""The demo's week as a report shows it, made once a session."""

from __future__ import annotations

import pytest

from tasks.report import ReportData, load_report_data, render_report
from tasks.warehouse import connect
from tests.reports import NOW, demo_week, duckdb_url, filled


@pytest.fixture(scope="session")
def report_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(duckdb_url(tmp_path_factory.mktemp("report") / "w.duckdb"), *demo_week())


@pytest.fixture(scope="session")
def report_data(report_url: str) -> ReportData:
    with connect(report_url, read_only=True) as warehouse:
        return load_report_data(warehouse)


@pytest.fixture(scope="session")
def report_page(report_data: ReportData) -> str:
    return render_report(report_data, generated_at=NOW)
