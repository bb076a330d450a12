"""Each line that a run logs names its run and day, whichever logger and thread it comes from."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.log_lines import OURS, PlaceFilter, place_lines, placed_lines
from tests.logs import DAY

RUN = {"run_id": "0123456789abcdef", "dt": DAY}


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What two handlers of the root logger make of each record, as Prefect has a console and an API handler."""
    lines: list[str] = []
    handlers = [_Handler(lines), _Handler(lines)]
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in OURS}
    for handler in handlers:
        root.addHandler(handler)
    yield lines
    for handler in handlers:
        root.removeHandler(handler)
    for marked in root.handlers:
        marked.filters = [each for each in marked.filters if not isinstance(each, PlaceFilter)]
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class _Handler(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def test_lines_of_a_day_name_run_and_day_once(said: list[str]) -> None:
    with placed_lines():
        place_lines(RUN)
        logging.getLogger("tasks.publish").warning("shared %d answers, 100%% of %s", 3, "them")

    assert said == ["[01234567 2026-03-02] shared 3 answers, 100% of them"] * 2


def test_lines_outside_a_day_are_as_they_are(said: list[str]) -> None:
    with placed_lines():
        logging.getLogger("flows.daily_scoring").warning("before")
        place_lines(RUN)
    logging.getLogger("flows.daily_scoring").warning("after")

    assert set(said) == {"before", "after"}


def test_lines_of_a_thread_that_took_the_context_along_are_placed(said: list[str]) -> None:
    with placed_lines(), ThreadPoolExecutor(1) as pool:
        place_lines(RUN)
        pool.submit(contextvars.copy_context().run, logging.getLogger("stef_core.evaluate").warning, "slow").result()

    assert set(said) == {"[01234567 2026-03-02] slow"}


@pytest.mark.parametrize(("level", "loud"), [("INFO", True), ("DEBUG", True), ("WARNING", False), ("CRITICAL", False)])
def test_our_lines_are_as_loud_as_prefects_and_never_quieter_than_a_warning(said: list[str], level: str, loud: bool) -> None:
    from prefect.settings import PREFECT_LOGGING_LEVEL, temporary_settings

    with temporary_settings({PREFECT_LOGGING_LEVEL: level}), placed_lines():
        logging.getLogger("flows.daily_scoring").info("told")
        logging.getLogger("tasks.publish").warning("warned")

    assert ("told" in said) is loud
    assert "warned" in said
