"""Tells whoever listens how far a run is: the command line draws a bar from it, and nobody has to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStarted:
    """A day was read; `rows` of it are to be scored."""

    day: dt.date
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDone:
    """`rows` more of a day are scored."""

    day: dt.date
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayEnded:
    """A day ended, well or not: its row of ``scoring_runs``."""

    day: dt.date
    run: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlanned:
    """A backfill knows what of a day is to be scored anew."""

    day: dt.date
    rows: int
    redone: int
    causes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMoved:
    """A backfill is through with a day: what `flows.backfill.backfill` returns of it."""

    day: dt.date
    result: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaysFound:
    """Which days have to be scored, and why each: missing, failed or changed."""

    days: list[tuple[dt.date, str]]


Event: TypeAlias = DayStarted | RowsDone | DayEnded | DayPlanned | DayMoved | DaysFound
_listener: ContextVar[Callable[[Event], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Hand every event of the flows run inside to `listener`, in the thread of the flow."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(event: Event) -> None:
    """Hand an event to the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(event)
