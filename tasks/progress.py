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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWaits:
    """A batch of a day was looked at."""

    day: dt.date
    batch_id: str
    status: str
    lines: int
    done: int
    since: dt.datetime  # when it was submitted, in UTC

    def __str__(self) -> str:
        since = f"waiting since {self.since:%Y-%m-%d %H:%M} UTC"
        return f"{self.day}: batch {self.batch_id}: {self.done} of {self.lines} done, {self.status}, {since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesLeft:
    """A run was interrupted while batches were under way."""

    batch_ids: tuple[str, ...]

    def __str__(self) -> str:
        one = len(self.batch_ids) == 1
        which = f"batch {', '.join(self.batch_ids)} {'goes' if one else 'go'} on at the endpoint"
        return f"{which}; run the command again to collect {'it' if one else 'them'}"


Event: TypeAlias = DayStarted | RowsDone | DayEnded | DayPlanned | DayMoved | DaysFound | BatchWaits | BatchesLeft
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
