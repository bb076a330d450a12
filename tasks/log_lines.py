"""Run and day in every line that a run logs, whoever logs it: flows, tasks, the core or Prefect."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from prefect.settings import PREFECT_LOGGING_LEVEL

OURS = ("flows", "tasks", "stef_core")
_place: ContextVar[str] = ContextVar("stef_place", default="")


class PlaceFilter(logging.Filter):
    """Puts run and day before the message of each record, once however many handlers it passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Never refuses a record."""
        place = _place.get()
        if place and not hasattr(record, "stef_place"):
            record.stef_place = place
            record.msg = f"{place} {record.msg}"  # holds no %, so arguments still fit
        return True


@contextmanager
def placed_lines() -> Iterator[None]:
    """For one flow run: its lines can be placed, and ours are as loud as Prefect's.

    Prefect hands `PREFECT_LOGGING_EXTRA_LOGGERS` its handlers, but leaves them at the level of the root, which is WARNING.
    """
    level = logging.getLevelName(PREFECT_LOGGING_LEVEL.value() or "INFO")
    for name in OURS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET and level < logging.WARNING:
            logger.setLevel(level)
    prefect = ("", "prefect", "prefect.extra", "prefect.flow_runs", "prefect.task_runs")
    for handler in {handler for name in (*prefect, *OURS) for handler in logging.getLogger(name).handlers}:
        if not any(isinstance(each, PlaceFilter) for each in handler.filters):
            handler.addFilter(PlaceFilter())
    token = _place.set("")
    try:
        yield
    finally:
        _place.reset(token)


def place_lines(run: Mapping[str, Any]) -> None:
    """From here on, until the next one or the end of `placed_lines`, lines are of this run and its day.

    Args:
        run: A row of ``scoring_runs``; of its ``run_id`` the first eight signs are shown.
    """
    _place.set(f"[{run['run_id'][:8]} {run['dt']}]")
