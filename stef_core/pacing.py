"""How fast an endpoint is asked: requests in flight that adapt to its 429s, rates a minute, and a circuit that opens.

Plain state over a given clock, for one event loop; nothing here sends or sleeps but `Slots.acquire`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

CUT, CUT_EVERY_S = 0.7, 1.0  # what a 429 leaves of the requests in flight; one round of 429s is one cut
COOL_S, COOL_MAX_S = 1.0, 30.0  # how long a circuit stays open, doubled each time nobody answers its probe

Clock = Callable[[], float]


class Slots:
    """Requests that may be in flight: fewer after each round of 429s, one more after each round of answers.

    Args:
        most: Never more than this; where it starts.
        clock: Seconds that only grow.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most, self._limit, self._used = most, float(most), 0
        self._clock, self._cut_at = clock, float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Requests that may be in flight at present, at least 1."""
        return int(self._limit)

    async def acquire(self) -> None:
        """Wait for a turn, first come first served; `release` gives it back."""
        if self._used < self.limit and not self._waiting:
            self._used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a turn back."""
        self._used -= 1
        self._wake()

    def answered(self) -> None:
        """The endpoint coped."""
        if self._limit < self._most:
            self._limit = min(float(self._most), self._limit + 1 / self._limit)
            self._wake()

    def throttled(self) -> None:
        """The endpoint asked for less."""
        now = self._clock()
        if now - self._cut_at >= CUT_EVERY_S:
            self._cut_at = now
            self._limit = max(1.0, self._limit * CUT)

    def _wake(self) -> None:
        while self._waiting and self._used < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._used += 1
                turn.set_result(None)


class Rate:
    """At most so many units in any minute, spread evenly (generic cell rate algorithm), with bursts of one second's worth.

    Args:
        per_minute: Units, at least 1.
        clock: Seconds that only grow.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._clock = clock
        self._burst = max(1.0, per_minute / 60)
        # a burst and a minute's flow together stay within the limit
        self._each_s = 60 / max(per_minute - self._burst, 1.0)
        self._due = float("-inf")  # when everything that was promised will have flowed

    def reserve(self, units: float) -> float:
        """Promise units to a caller; seconds that it must wait before it uses them."""
        now = self._clock()
        self._due = max(self._due, now) + units * self._each_s
        return max(0.0, self._due - self._burst * self._each_s - now)

    def correct(self, units: float) -> None:
        """Charge units that were used beyond what was promised; give back where negative."""
        self._due += units * self._each_s


class Circuit:
    """Opens when nobody answers any more, lets one request try after a while, closes at the first response.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self._cool_s = COOL_S
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether the endpoint counts as down."""
        return self._until is not None

    def admits(self) -> bool:
        """Whether a request may be sent now; while open, one at a time and only after the circuit has cooled."""
        if self._until is None:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def failed(self) -> None:
        """A request used up its attempts and nobody was there; while open, only the one that was let through tells anything."""
        if self._until is not None and not self._probing:
            return
        self._probing = False
        self._until = self._clock() + self._cool_s
        self._cool_s = min(COOL_MAX_S, 2 * self._cool_s)

    def answered(self) -> None:
        """Somebody is there."""
        self._until, self._probing, self._cool_s = None, False, COOL_S
