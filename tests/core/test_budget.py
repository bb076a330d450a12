"""Budgets: nothing is sent that a run could not bear, and nothing is left over that it could."""

from __future__ import annotations

import asyncio

import pytest

from stef_core.budget import Budget, Limits, Price, tokens_of

PRICES = {"m": Price(input=1_000_000.0, output=2_000_000.0)}  # 1 and 2 a token


def test_a_limit_of_calls_counts_what_is_sent() -> None:
    budget = Budget(Limits(calls=3))

    held = [asyncio.run(budget.reserve("m", 10, 10)) for _ in range(5)]

    assert [h is not None for h in held] == [True, True, True, False, False]
    assert budget.used_up == "3 calls (STEF_MAX_CALLS)"


def test_a_request_waits_for_what_others_give_back() -> None:
    async def run() -> tuple[bool, bool]:
        budget = Budget(Limits(tokens=150))
        first = await budget.reserve("m", 10, 90)
        assert first is not None
        second = asyncio.create_task(budget.reserve("m", 10, 90))
        await asyncio.sleep(0)
        waited = not second.done()
        budget.settle(first, "m", 10, 20)
        return waited, await second is not None

    assert asyncio.run(run()) == (True, True)


def test_tokens_never_pass_their_limit_and_the_rest_is_refused() -> None:
    async def run() -> Budget:
        budget = Budget(Limits(tokens=1000))

        async def ask() -> None:
            held = await budget.reserve("m", 20, 80)
            if held is not None:
                await asyncio.sleep(0)
                budget.settle(held, "m", 20, 30)

        await asyncio.gather(*(ask() for _ in range(60)))
        return budget

    budget = asyncio.run(run())

    assert 900 < budget.tokens <= 1000
    assert budget.used_up == "1,000 tokens (STEF_MAX_TOKENS)"


def test_money_is_counted_by_the_price_of_the_model() -> None:
    budget = Budget(Limits(cost=100.0), PRICES)
    held = asyncio.run(budget.reserve("m", 10, 20))
    assert held is not None
    budget.settle(held, "m", 10, 5)
    budget.settle(held, "m", 10, 5)

    assert budget.cost == pytest.approx(20)
    assert asyncio.run(budget.reserve("m", 41, 20)) is None
    assert budget.used_up == "100.00 of money (STEF_MAX_COST)"


def test_what_no_price_is_known_of_costs_nothing() -> None:
    assert Budget().price("other").of(10**6, 10**6) == 0.0


def test_a_batched_answer_costs_its_share() -> None:
    assert PRICES["m"].of(10, 5, batched=True) == pytest.approx(PRICES["m"].of(10, 5) / 2)


@pytest.mark.parametrize("text", ["", "How many boats moored in Turku in May?", "日本語の質問", "\ud800"])
def test_an_estimate_is_rather_too_high(text: str) -> None:
    assert tokens_of(text) > len(text) / 4


def test_a_batch_holds_as_many_lines_as_the_budget_bears_at_its_price() -> None:
    budget = Budget(Limits(cost=1.0), {"m": Price(input=1000.0, output=1000.0, batch=0.5)})

    held = budget.hold("m", [(100, 400)] * 10)  # a line costs 0.25, half of what a call would

    assert (held.calls, budget.calls) == (4, 4)
    assert budget.hold("m", [(100, 400)]).calls == 0
    budget.release(held)
    budget.release(held)
    budget.book(calls=4, tokens=800, cost=0.2)
    assert (budget.calls, budget.tokens, budget.cost) == (4, 800, 0.2)
    assert budget.hold("m", [(100, 400)] * 10).calls == 3


def test_lines_that_were_sent_are_held_whatever_the_budget_says() -> None:
    budget = Budget(Limits(calls=2))

    held = budget.hold("m", [(1, 1)] * 5, sent=True)

    assert held.calls == 5
    assert budget.hold("m", [(1, 1)]).calls == 0
    budget.release(held)
    assert budget.hold("m", [(1, 1)] * 5).calls == 2


def test_a_call_waits_for_what_a_batch_holds() -> None:
    async def spend() -> bool:
        budget = Budget(Limits(tokens=100))
        held = budget.hold("m", [(40, 50)])
        waiting = asyncio.create_task(budget.reserve("m", 10, 10))
        await asyncio.sleep(0)
        waits = not waiting.done()
        budget.release(held)
        budget.book(calls=1, tokens=30, cost=0.0)
        return waits and await waiting is not None

    assert asyncio.run(spend())
