"""Processes that work on one run: how they share its limits, and the ledger of what it may spend.

A limit a minute is divided between them. A budget is not: each request is reserved in a ledger on the file system that they
share, so that together they spend no more than one process would, and none is left with a share that another could have used.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stef_core.budget import Budget, Limits, Price, Reservation

POLL_S = 0.05  # between looks at what others have settled
_BUSY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The processes of a run beside its own: how many they are, and where they keep the run's ledger."""

    processes: int
    ledger: Path

    def share(self, limit: int) -> int:
        """What one process gets of a limit, at least 1."""
        return max(1, limit // self.processes)


class SharedBudget(Budget):
    """A `Budget` that several processes spend from.

    What a process reserved and never settled, since it was killed, counts as spent once `expiry_s` have passed.

    Args:
        ledger: File that all of them reach; made by the first.
        limits: As for `Budget`.
        prices: As for `Budget`.
        expiry_s: Seconds that a request takes at most.
        clock: Seconds since 1970, alike on all machines.
    """

    def __init__(
        self,
        ledger: Path,
        limits: Limits,
        prices: Mapping[str, Price] | None = None,
        *,
        expiry_s: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(limits, prices)
        self._ledger, self._expiry_s, self._clock = ledger, expiry_s, clock
        self._held: dict[int, str] = {}  # by the identity of a reservation
        ledger.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(ledger, os.O_RDWR | os.O_CREAT, 0o600))
        with self._book() as book:
            book.execute("CREATE TABLE IF NOT EXISTS spent (calls INTEGER, tokens INTEGER, cost REAL)")
            book.execute("CREATE TABLE IF NOT EXISTS held (id TEXT PRIMARY KEY, tokens INTEGER, cost REAL, until REAL)")
            if book.execute("SELECT COUNT(*) FROM spent").fetchone() == (0,):
                book.execute("INSERT INTO spent VALUES (0, 0, 0.0)")

    async def reserve(self, model: str, tokens_in: int, tokens_out: int) -> Reservation | None:
        """As `Budget.reserve`, with what all processes hold and have spent."""
        wanted = Reservation(tokens=tokens_in + tokens_out, cost=self.price(model).of(tokens_in, tokens_out))
        while self._used_up is None:
            with self._book() as book:
                self._read(book)
                limit = self._lacking(wanted, self._held_tokens, self._held_cost)
                if limit is None:
                    key = uuid.uuid4().hex
                    row = (key, wanted.tokens, wanted.cost, self._clock() + self._expiry_s)
                    book.execute("INSERT INTO held VALUES (?, ?, ?, ?)", row)
                    book.execute("UPDATE spent SET calls = calls + 1")
                    self._held[id(wanted)] = key
                    return wanted
                if self._lacking(wanted, 0, 0.0) is not None:
                    self._used_up = limit
                    break
            await asyncio.sleep(POLL_S)
        return None

    def settle(self, reservation: Reservation, model: str, tokens_in: int, tokens_out: int) -> None:
        """As `Budget.settle`."""
        if reservation.settled:
            return
        reservation.settled = True
        key = self._held.pop(id(reservation))
        with self._book() as book:
            if book.execute("DELETE FROM held WHERE id = ?", (key,)).rowcount:  # else it has expired and was booked
                cost = self.price(model).of(tokens_in, tokens_out)
                book.execute("UPDATE spent SET tokens = tokens + ?, cost = cost + ?", (tokens_in + tokens_out, cost))

    def _read(self, book: sqlite3.Connection) -> None:
        """What is held and spent by all."""
        now = self._clock()
        sums = "SELECT COALESCE(SUM(tokens), 0), COALESCE(SUM(cost), 0) FROM held"
        lost = book.execute(f"{sums} WHERE until < ?", (now,)).fetchone()
        book.execute("UPDATE spent SET tokens = tokens + ?, cost = cost + ?", lost)
        book.execute("DELETE FROM held WHERE until < ?", (now,))
        self.calls, self.tokens, self.cost = book.execute("SELECT calls, tokens, cost FROM spent").fetchone()
        self._held_tokens, self._held_cost = book.execute(sums).fetchone()

    @contextmanager
    def _book(self) -> Iterator[sqlite3.Connection]:
        """One transaction in which no other process reads or writes."""
        book = sqlite3.connect(self._ledger, timeout=_BUSY_S, isolation_level=None)
        try:
            book.execute("BEGIN IMMEDIATE")
            yield book
            book.execute("COMMIT")
        finally:
            book.close()
