"""Several days at once: each in its turn where it needs the days before, and none lost where one fails."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable

import pytest

from tasks.side_by_side import side_by_side

DAYS = [dt.date(2026, 3, day) for day in range(1, 7)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 9])
def test_days_wait_for_their_turn(at_once: int) -> None:
    begun: list[dt.date] = []
    done: list[dt.date] = []

    def work(day: dt.date, wait_turn: Callable[[], None]) -> None:
        begun.append(day)
        time.sleep(0.02 * (DAYS[-1] - day).days)  # who comes later is done with its own part sooner
        wait_turn()
        assert done == DAYS[: DAYS.index(day)]
        done.append(day)

    side_by_side(DAYS, at_once, work)

    assert done == DAYS
    assert sorted(begun) == DAYS


def test_days_are_under_way_at_once_and_no_more_than_allowed() -> None:
    together = threading.Barrier(3, timeout=30)
    under_way, most, lock = 0, 0, threading.Lock()

    def work(_day: dt.date, wait_turn: Callable[[], None]) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait()  # breaks unless three days meet here
        wait_turn()
        with lock:
            under_way -= 1

    side_by_side(DAYS, 3, work)

    assert most == 3


@pytest.mark.parametrize("at_once", [1, 3])
def test_what_a_day_raises_ends_the_run_and_nobody_waits_for_ever(at_once: int) -> None:
    def work(day: dt.date, wait_turn: Callable[[], None]) -> None:
        if day == DAYS[1]:
            raise ZeroDivisionError
        wait_turn()

    with pytest.raises(ZeroDivisionError):
        side_by_side(DAYS, at_once, work)
