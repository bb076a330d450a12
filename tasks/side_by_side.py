"""Several days under way at once, each in a thread of its own, in turn where one needs what the days before left."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event


def side_by_side(days: Sequence[dt.date], at_once: int, work: Callable[[dt.date, Callable[[], None]], None]) -> None:
    """Work on days, some at once.

    Args:
        days: Oldest first.
        at_once: How many may be under way.
        work: Called with a day, and with what returns when all days before it are done. A day it raises for is done, too.

    Raises:
        BaseException: What `work` raised first; days that were not begun are left.
    """
    ended = [Event() for _ in days]

    def run(number: int) -> None:
        def wait_turn() -> None:
            if number:
                ended[number - 1].wait()

        try:
            work(days[number], wait_turn)
            wait_turn()
        finally:
            ended[number].set()

    if at_once == 1:
        for number in range(len(days)):
            run(number)
        return
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="day") as threads:
        futures = [threads.submit(copy_context().run, run, number) for number in range(len(days))]
        try:
            for future in futures:
                future.result()
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
