"""How far a fan-out is, in the log: rows, rate, time left, calls of the model."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from stef_core.llm import Usage

logger = logging.getLogger(__name__)

LINE_S = 10.0  # a line at least as often, while rows are under way
LINE_SHARE = 0.1  # and each time that so many of the rows are done


class Meter:
    """Counts the rows of one step of one day, and logs a line each tenth of them and each ten seconds.

    Args:
        done: What happens to the rows, as a participle: ``read``, ``judged``.
        rows: How many there are.
        usage: What the run's model was asked so far; None where no model is asked.
        clock: Seconds that only grow.
    """

    def __init__(
        self, done: str, rows: int, usage: Callable[[], Usage] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.done, self.rows, self.count = done, rows, 0
        self._usage, self._clock = usage, clock
        self._before = usage() if usage is not None else Usage()
        self._start = self._told_at = clock()
        self._told = 0

    def add(self, rows: int) -> None:
        """So many more rows are done."""
        self.count += rows
        if self.count >= self.rows or self.count - self._told >= LINE_SHARE * self.rows:
            self.tell()
        else:
            self.tick()

    def tick(self) -> None:
        """Log a line where the last one is long ago."""
        if self._clock() - self._told_at >= LINE_S:
            self.tell()

    def tell(self) -> None:
        """Log a line."""
        self._told_at, self._told = self._clock(), self.count
        logger.info("%s", str(self))  # now: a handler may be slow to format it

    def __str__(self) -> str:
        passed = self._clock() - self._start
        share = self.count / self.rows if self.rows else 1.0
        line = f"{self.done} {self.count:,} of {self.rows:,} rows ({share:.0%})"
        if self.count and passed > 0:
            rate = self.count / passed
            line += f", {rate:,.1f} rows/s"
            if self.count < self.rows:
                line += f", {_lasting((self.rows - self.count) / rate)} left"
        if self._usage is not None:
            usage, before = self._usage(), self._before
            line += f"; {usage.requests - before.requests:,} LLM calls, {usage.cache_hits - before.cache_hits:,} cache hits"
        return line


def fan_out(submit: Callable[[int], Any], count: int, ahead: int, meter: Meter) -> Iterator[Any]:
    """The result of each batch of a step, in order; while one lets wait, the meter ticks.

    Args:
        submit: Submits a batch as a task of Prefect, and gives its future.
        count: How many batches there are.
        ahead: How many may be under way; the rest is submitted as these end, so that a large day is no long list of tasks.
        meter: Of the step.

    Raises:
        StefError: What the task of a batch raised; those under way have ended by then.
    """
    waiting: deque[Any] = deque()
    try:
        for number in range(count):
            waiting.append(submit(number))
            if len(waiting) >= ahead:
                yield _result(waiting.popleft(), meter)
        while waiting:
            yield _result(waiting.popleft(), meter)
    finally:
        for future in waiting:
            future.wait()


def _result(future: Any, meter: Meter) -> Any:
    while not _ended(future):
        future.wait(LINE_S)
        meter.tick()
    return future.result()


def _ended(future: Any) -> bool:
    # futures of Python and of Dask tell; of others Prefect asks its server
    told = getattr(future.wrapped_future, "done", None)
    return bool(told() if told is not None else future.state.is_final())


def _lasting(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min" if whole >= 7200 else f"{whole // 60} min"
