"""What a run may spend on a model: calls, tokens and money, reserved before a request is sent and settled after it.

So no request is sent that the budget could not bear in the worst case, and a budget of 100 calls ends at 100.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BYTES_A_TOKEN = 3.0  # of a prompt that is not sent yet; tokens of English text have four or more, so this errs upwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, for 1,000,000 tokens, in the currency of the price table.

    `batch` is what the Batch API charges of it, 0-1.
    """

    input: float
    output: float
    batch: float = 0.5

    def of(self, tokens_in: int, tokens_out: int, *, batched: bool = False) -> float:
        """The cost of one answer."""
        return (tokens_in * self.input + tokens_out * self.output) / 1e6 * (self.batch if batched else 1.0)


FREE = Price(input=0.0, output=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A budget; None sets no limit."""

    calls: int | None = None  # HTTP requests sent, retries and repairs included
    tokens: int | None = None  # of prompts and answers together
    cost: float | None = None

    def __bool__(self) -> bool:
        return self != Limits()


@dataclass(slots=True)
class Reservation:
    """What one request, or so many lines of a batch as `calls` says, may take at most until it is settled."""

    tokens: int
    cost: float
    settled: bool = field(default=False)
    calls: int = 1


class Budget:
    """A run's budget, for one event loop.

    Args:
        limits: What may be spent.
        prices: By model id; needed where `limits` has a cost.
    """

    def __init__(self, limits: Limits | None = None, prices: Mapping[str, Price] | None = None) -> None:
        self.limits, self._prices = limits or Limits(), dict(prices or {})
        self.calls, self.tokens, self.cost = 0, 0, 0.0
        self._held_tokens, self._held_cost = 0, 0.0
        self._settling: asyncio.Event | None = None
        self._used_up: str | None = None

    def price(self, model: str) -> Price:
        """What a model costs; nothing where the table does not name it."""
        return self._prices.get(model, FREE)

    @property
    def used_up(self) -> str | None:
        """Which limit was reached, in words; None while there is something left."""
        return self._used_up

    async def reserve(self, model: str, tokens_in: int, tokens_out: int) -> Reservation | None:
        """Set aside what a request may take; None when the budget does not bear it. Waits for others to settle first.

        Args:
            model: Whose price counts.
            tokens_in: Of the prompt, estimated.
            tokens_out: Of the answer at most.
        """
        wanted = Reservation(tokens=tokens_in + tokens_out, cost=self.price(model).of(tokens_in, tokens_out))
        while self._used_up is None:
            limit = self._lacking(wanted, self._held_tokens, self._held_cost)
            if limit is None:
                self.calls += 1
                self._held_tokens += wanted.tokens
                self._held_cost += wanted.cost
                return wanted
            if self._lacking(wanted, 0, 0.0) is not None:
                self._used_up = limit
                self._wake()
                break
            self._settling = self._settling or asyncio.Event()
            await self._settling.wait()
        return None

    def settle(self, reservation: Reservation, model: str, tokens_in: int, tokens_out: int) -> None:
        """Book what a request took in the place of its reservation."""
        if reservation.settled:
            return
        reservation.settled = True
        self._held_tokens -= reservation.tokens
        self._held_cost -= reservation.cost
        self.tokens += tokens_in + tokens_out
        self.cost += self.price(model).of(tokens_in, tokens_out)
        self._wake()

    def hold(self, model: str, lines: Sequence[tuple[int, int]], *, sent: bool = False) -> Reservation:
        """Set aside what lines of a batch may take, at a batch's price: of the first ones as many as the budget bears.

        Never waits. `release` gives it back.

        Args:
            model: Whose price counts.
            lines: Tokens of the prompt, estimated, and of the answer at most, of each line.
            sent: The lines were sent before and will be paid for, whatever the budget says.

        Returns:
            `calls` of it says how many lines there is room for.
        """
        price, held = self.price(model), Reservation(tokens=0, cost=0.0, calls=0)
        for tokens_in, tokens_out in lines:
            line = Reservation(tokens=tokens_in + tokens_out, cost=price.of(tokens_in, tokens_out, batched=True))
            if not sent and (self._used_up or self._lacking(line, self._held_tokens, self._held_cost)) is not None:
                break
            self.calls += 1
            self._held_tokens += line.tokens
            self._held_cost += line.cost
            held.calls, held.tokens, held.cost = held.calls + 1, held.tokens + line.tokens, held.cost + line.cost
        return held

    def release(self, held: Reservation) -> None:
        """Give back what `hold` set aside; what the batch took goes to `book`."""
        if held.settled:
            return
        held.settled = True
        self.calls -= held.calls
        self._held_tokens -= held.tokens
        self._held_cost -= held.cost
        self._wake()

    def book(self, *, calls: int, tokens: int, cost: float) -> None:
        """Add what was spent elsewhere: a batch of requests that ran on its own."""
        self.calls += calls
        self.tokens += tokens
        self.cost += cost

    def _lacking(self, wanted: Reservation, held_tokens: int, held_cost: float) -> str | None:
        limits = self.limits
        if limits.calls is not None and self.calls >= limits.calls:
            return f"{limits.calls:,} calls (STEF_MAX_CALLS)"
        if limits.tokens is not None and self.tokens + held_tokens + wanted.tokens > limits.tokens:
            return f"{limits.tokens:,} tokens (STEF_MAX_TOKENS)"
        if limits.cost is not None and self.cost + held_cost + wanted.cost > limits.cost:
            return f"{limits.cost:,.2f} of money (STEF_MAX_COST)"
        return None

    def _wake(self) -> None:
        if self._settling is not None:
            self._settling.set()
            self._settling = None


def tokens_of(text: str) -> int:
    """About how many tokens a text has, rather more than less."""
    return int(len(text.encode("utf-8", "surrogatepass")) / BYTES_A_TOKEN) + 1
