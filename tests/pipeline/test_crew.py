"""Limits that several processes of one run share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stef_core.budget import Limits, Price
from tasks.crew import Crew, SharedBudget

SPENDER = """
import asyncio, sys
from pathlib import Path
from stef_core.budget import Limits
from tasks.crew import SharedBudget

async def spend():
    budget, spent = SharedBudget(Path(sys.argv[1]), Limits(calls=100, tokens=5_000)), 0
    async def one():
        nonlocal spent
        while (held := await budget.reserve("m", 50, 50)) is not None:
            await asyncio.sleep(0.001)
            budget.settle(held, "m", 20, 10)
            spent += 1
    await asyncio.gather(*(one() for _ in range(4)))
    print(spent, budget.used_up)

asyncio.run(spend())
"""


def test_limits_are_divided_but_never_to_nothing() -> None:
    crew = Crew(processes=4, ledger=Path("l"))

    assert [crew.share(limit) for limit in (16, 10, 3)] == [4, 2, 1]


def test_processes_together_spend_the_budget_and_no_more(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPENDER, str(tmp_path / "ledger")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    told = [process.communicate()[0].split(maxsplit=1) for process in started]

    assert sum(int(spent) for spent, _ in told) == 100
    assert {why.strip() for _, why in told} == {"100 calls (STEF_MAX_CALLS)"}


def budget(ledger: Path, limits: Limits, now: list[float], **prices: Price) -> SharedBudget:
    return SharedBudget(ledger, limits, prices, expiry_s=60.0, clock=lambda: now[0])


def test_money_of_another_process_counts(tmp_path: Path) -> None:
    price = Price(input=1_000_000.0, output=0.0)
    one, two = (budget(tmp_path / "l", Limits(cost=10.0), [0.0], m=price) for _ in range(2))

    async def spend() -> None:
        held = await one.reserve("m", 8, 0)
        assert held is not None
        one.settle(held, "m", 7, 0)
        assert await two.reserve("m", 4, 0) is None
        assert two.used_up == "10.00 of money (STEF_MAX_COST)"
        small = await one.reserve("m", 3, 0)
        assert small is not None

    asyncio.run(spend())


def test_who_is_held_up_waits_until_another_process_settles(tmp_path: Path) -> None:
    one, two = (budget(tmp_path / "l", Limits(tokens=10), [0.0]) for _ in range(2))

    async def spend() -> None:
        held = await one.reserve("m", 8, 0)
        waiting = asyncio.create_task(two.reserve("m", 8, 0))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        assert held is not None
        one.settle(held, "m", 1, 0)
        one.settle(held, "m", 1, 0)  # a second time changes nothing
        assert await waiting is not None

    asyncio.run(spend())


def test_what_a_killed_process_had_reserved_counts_as_spent_in_the_end(tmp_path: Path) -> None:
    now = [0.0]
    one, two = (budget(tmp_path / "l", Limits(tokens=10), now) for _ in range(2))

    async def spend() -> None:
        held = await one.reserve("m", 8, 0)
        now[0] = 61.0
        assert await two.reserve("m", 8, 0) is None
        assert held is not None
        one.settle(held, "m", 1, 0)  # it lives after all: what is booked stays booked
        assert two.tokens == 8

    asyncio.run(spend())


@pytest.mark.parametrize("calls", [0, 1])
def test_a_budget_of_few_calls_is_kept_exactly(tmp_path: Path, calls: int) -> None:
    shared = budget(tmp_path / "l", Limits(calls=calls), [0.0])

    async def spend() -> list[bool]:
        return [await shared.reserve("m", 1, 1) is not None for _ in range(3)]

    assert sum(asyncio.run(spend())) == calls
