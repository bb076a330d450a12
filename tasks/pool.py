"""Processes for the work that keeps a core busy: reading and judging by rule. What waits for an endpoint stays in threads.

Large days only: a process takes a second to start. A worker that dies, killed for its memory say, ends the batches under way,
which are tried again; what it had finished is in the spool.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from stef_core.errors import TransientError
from tasks.crew import Crew
from tasks.settings import Settings

T = TypeVar("T")

ROWS_WORTH = 4_000  # of a day, from which on starting processes pays
ROWS_HEAVY = 200_000  # of a day, from which on its processes end with its batches: what they hold the rest of the day needs
WAITING = 0  # a place of batches that wait for an endpoint: any thread of this process
IDLE_S = 60  # after which a process that has nothing to do ends


def processes_of(settings: Settings, rows: int) -> int:
    """How many processes work on a day of so many rows; 1: this one, a batch at a time; `WAITING`: its threads."""
    if settings.judge != "symbolic":
        return WAITING
    return settings.processes or (usable_cores() if rows >= ROWS_WORTH else 1)


def batches_ahead(settings: Settings) -> int:
    """How many batches of a day may be under way."""
    return 512 if settings.runner == "dask" else 4 * threads_of(settings)


def threads_of(settings: Settings) -> int:
    """Threads that wait for endpoints and processes, so that the last answers of one batch do not leave them idle."""
    return max(4, 2 * (settings.processes or usable_cores()))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute(place: int | Crew, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function of a module in one of so many processes, or here where that is 1 or 0, and wait for what it returns.

    Where it is 1, one is called at a time: what keeps a core busy gains nothing from threads, which cost each other time. Where
    `place` is a crew, this process is one of it, and the function is called here with ``crew``.

    Raises:
        TransientError: The process died.
    """
    if isinstance(place, Crew):
        return function(*arguments, **named, crew=place)
    if place == WAITING:
        return function(*arguments, **named)
    if place == 1:
        with _core:
            return function(*arguments, **named)
    from loky.process_executor import BrokenProcessPool, ShutdownExecutorError  # slow, and only large days need it

    pool = None
    try:
        pool = _pool(place)
        result: T = pool.submit(function, *arguments, **named).result()
    except (BrokenProcessPool, ShutdownExecutorError) as error:
        _forget(pool)
        why = str(error).partition("\n")[0]
        raise TransientError(f"a process that worked on a batch ended: {why}; it is tried again") from error
    return result


_core = Lock()
_turn = Lock()
_pools: dict[int, Any] = {}  # one a process; what loky offers ready-made is one a thread
_days: list[int] = []  # rows of those whose batches are under way


def _pool(processes: int) -> Any:
    from loky import ProcessPoolExecutor

    with _turn:
        if processes not in _pools:
            _pools[processes] = ProcessPoolExecutor(max_workers=processes, timeout=IDLE_S, initializer=_settle)
        return _pools[processes]


@contextmanager
def batches_under_way(rows: int) -> Iterator[None]:
    """While batches of a day of so many rows are worked on; processes of a large one end then, unless another day has some."""
    with _turn:
        _days.append(rows)
    try:
        yield
    finally:
        with _turn:
            _days.remove(rows)
            ended = list(_pools.values()) if rows >= ROWS_HEAVY and not _days else []
            if ended:
                _pools.clear()
        for pool in ended:
            pool.shutdown(wait=True)


def make_ready() -> None:
    """Import what batches need, so that the first one does not wait for it."""
    import tasks.batches  # noqa: F401  # it needs this module

    _settle()


def _settle() -> None:
    """What was imported stays, what batches make is short-lived: looking through all of it often costs a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _forget(pool: Any) -> None:
    """The next one asks for new processes."""
    with _turn:
        for processes in [number for number, known in _pools.items() if known is pool]:
            del _pools[processes]
