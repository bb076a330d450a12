"""Processes beside the run's own: the same results, and the death of one is a reason to try again."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Lock

import psutil
import pytest

from stef_core.errors import InputError, TransientError
from tasks.crew import Crew
from tasks.pool import ROWS_HEAVY, ROWS_WORTH, WAITING, batches_ahead, batches_under_way, compute, processes_of, usable_cores
from tasks.settings import Settings


def place() -> int:
    return os.getpid()


def die_once(marker: Path) -> str:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def refuse() -> None:
    raise InputError("row 3 is wrong")


class Inside:
    """How many threads are in one function at most; where several are awaited, each waits for them."""

    def __init__(self, awaited: int) -> None:
        self._barrier = Barrier(awaited)
        self._lock = Lock()
        self.most = self._now = 0

    def come_and_go(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._barrier.wait(10)
        time.sleep(0.01)
        with self._lock:
            self._now -= 1


def crew_of(*, crew: Crew) -> Crew:
    return crew


def test_one_process_is_this_one() -> None:
    assert compute(1, place) == os.getpid()


@pytest.mark.parametrize(("place_of_batches", "most"), [(1, 1), (WAITING, 4)])
def test_one_process_works_on_one_batch_at_a_time_unless_batches_wait(place_of_batches: int, most: int) -> None:
    inside = Inside(4 if place_of_batches == WAITING else 1)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: compute(place_of_batches, inside.come_and_go), range(4)))

    assert inside.most == most


def test_several_threads_share_so_many_processes() -> None:
    with ThreadPoolExecutor(6) as threads:
        places = set(threads.map(lambda _: compute(2, place), range(40)))

    assert os.getpid() not in places
    assert len(places) <= 2


@pytest.mark.parametrize(
    ("rows", "beside", "ends"), [(ROWS_HEAVY, 0, True), (ROWS_HEAVY - 1, 0, False), (ROWS_HEAVY, 1, False)]
)
def test_processes_of_a_large_day_end_with_its_batches_unless_another_day_has_some(rows: int, beside: int, ends: bool) -> None:
    with ExitStack() as other_days:
        for _ in range(beside):
            other_days.enter_context(batches_under_way(1))

        with batches_under_way(rows):
            worker = compute(2, place)

        assert psutil.pid_exists(worker) != ends
    assert compute(2, place) != os.getpid()


def test_the_death_of_a_process_is_transient(tmp_path: Path) -> None:
    marker = tmp_path / "died"

    with pytest.raises(TransientError, match="a process that worked on a batch ended"):
        compute(2, die_once, marker)
    assert compute(2, die_once, marker) == "alive"


def test_errors_of_a_process_arrive_as_they_are() -> None:
    with pytest.raises(InputError, match="row 3 is wrong"):
        compute(2, refuse)


def test_one_of_a_crew_works_where_it_is(tmp_path: Path) -> None:
    crew = Crew(processes=3, ledger=tmp_path / "l")

    assert compute(crew, crew_of) == crew


@pytest.mark.parametrize(
    ("settings", "rows", "count"),
    [
        (Settings(), ROWS_WORTH - 1, 1),
        (Settings(), ROWS_WORTH, usable_cores()),
        (Settings(processes=3), 1, 3),
        (Settings(judge="openai", model="m", processes=3), ROWS_WORTH, WAITING),  # it waits for an endpoint, in threads
    ],
)
def test_small_days_and_days_that_wait_stay_in_one_process(settings: Settings, rows: int, count: int) -> None:
    assert processes_of(settings, rows) == count


def test_a_cluster_gets_more_batches_ahead() -> None:
    assert batches_ahead(Settings(runner="dask")) > batches_ahead(Settings(processes=2)) == 16
