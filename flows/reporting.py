"""Write the HTML report of what the warehouse holds."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from tasks.report import write_report
from tasks.settings import load_settings


@flow(name="report")
def report(warehouse: str | None = None, out: str = "stef-report.html") -> str:
    """Write a self-contained HTML report.

    Args:
        warehouse: URL of the warehouse; goes before environment and settings file.
        out: File to write.

    Returns:
        The file written.

    Raises:
        RuleError: Settings are wrong, or the warehouse holds nothing to report.
        BusyError: Another process holds the warehouse.
    """
    settings = load_settings({"warehouse": warehouse})
    return str(write_report(settings.warehouse, Path(out), wait_s=settings.warehouse_wait_s))
