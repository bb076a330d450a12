"""How far a fan-out is stands in the log each tenth of its rows and each ten seconds, and no oftener."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from prefect.futures import PrefectConcurrentFuture
from prefect.states import Completed

from stef_core.errors import InputError
from stef_core.llm import Usage
from tasks import meter
from tasks.meter import Meter, fan_out


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_tells_rows_rate_time_left_and_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tasks.meter")
    clock, asked = Clock(), Usage(requests=1_000, cache_hits=50)
    counted = Meter("judged", 2_000, lambda: asked, clock=clock)
    clock.now += 8
    asked += Usage(requests=790, cache_hits=10)

    counted.add(400)

    assert caplog.messages == ["judged 400 of 2,000 rows (20%), 50.0 rows/s, 32 s left; 790 LLM calls, 10 cache hits"]


def test_a_line_comes_with_each_tenth(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tasks.meter")
    counted = Meter("read", 100, clock=Clock())

    for _ in range(50):
        counted.add(2)

    assert [message.split(" rows")[0] for message in caplog.messages] == [f"read {n} of 100" for n in range(10, 101, 10)]


def test_a_line_comes_after_ten_seconds_though_no_row_is_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tasks.meter")
    clock = Clock()
    counted = Meter("judged", 100, Usage, clock=clock)

    for _ in range(25):
        clock.now += 1
        counted.tick()

    assert caplog.messages == ["judged 0 of 100 rows (0%); 0 LLM calls, 0 cache hits"] * 2


@pytest.mark.parametrize(("seconds", "shown"), [(90, "90 s left"), (1_500, "25 min left"), (9_000, "2 h 30 min left")])
def test_long_times_are_told_in_larger_units(seconds: int, shown: str) -> None:
    clock = Clock()
    counted = Meter("read", 2, clock=clock)
    clock.now += seconds
    counted.count = 1

    assert str(counted).endswith(shown)


def test_the_last_line_says_nothing_of_time_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tasks.meter")
    clock = Clock()
    counted = Meter("read", 7, clock=clock)
    clock.now += 2

    counted.add(7)

    assert caplog.messages == ["read 7 of 7 rows (100%), 3.5 rows/s"]


def test_the_meter_ticks_while_a_result_lets_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "LINE_S", 0.02)
    ticks: list[int] = []
    counted = Meter("read", 3)
    monkeypatch.setattr(counted, "tick", lambda: ticks.append(1))

    def work(seconds: float) -> Any:  # of a task, Prefect's thread gives its state
        time.sleep(seconds)
        return Completed(data=seconds)

    with ThreadPoolExecutor(2) as pool:
        futures = [PrefectConcurrentFuture[float](uuid4(), pool.submit(work, seconds)) for seconds in (0.3, 0.0)]
        done = list(fan_out(futures.__getitem__, 2, 8, counted))

    assert done == [0.3, 0.0]
    assert len(ticks) > 1


class Ended:
    """A future of a batch that has ended; keeps what is asked of all of them in `asked`."""

    def __init__(self, number: int, asked: list[tuple[str, int]], error: Exception | None = None) -> None:
        self.number, self.asked, self.error = number, asked, error
        self.wrapped_future = self

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        self.asked.append(("wait", self.number))

    def result(self) -> int:
        self.asked.append(("result", self.number))
        if self.error is not None:
            raise self.error
        return self.number


def test_no_more_batches_are_submitted_than_may_be_under_way() -> None:
    asked: list[tuple[str, int]] = []
    under_way: list[int] = []

    def submit(number: int) -> Ended:
        under_way.append(number + 1 - len(asked))
        return Ended(number, asked)

    assert list(fan_out(submit, 20, 3, Meter("read", 20))) == list(range(20))
    assert max(under_way) == 3


def test_batches_under_way_have_ended_when_one_of_them_fails() -> None:
    asked: list[tuple[str, int]] = []

    with pytest.raises(InputError):
        list(fan_out(lambda number: Ended(number, asked, InputError("no")), 9, 3, Meter("read", 9)))

    assert asked == [("result", 0), ("wait", 1), ("wait", 2)]
