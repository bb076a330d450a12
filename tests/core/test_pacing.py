"""Pace: how many requests are in flight, how many a minute, and when nobody is asked at all."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stef_core.pacing import COOL_MAX_S, COOL_S, CUT_EVERY_S, Circuit, Rate, Slots


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_round_of_429s_is_one_cut(clock: Clock) -> None:
    slots = Slots(10, clock)

    for _ in range(5):
        slots.throttled()
    assert slots.limit == 7
    clock.now += CUT_EVERY_S
    slots.throttled()

    assert slots.limit == 4


def test_slots_never_close_and_open_again_up_to_the_most(clock: Clock) -> None:
    slots = Slots(4, clock)
    for _ in range(50):
        clock.now += CUT_EVERY_S
        slots.throttled()
    assert slots.limit == 1

    for _ in range(200):
        slots.answered()

    assert slots.limit == 4


def test_turns_go_to_who_waited_longest(clock: Clock) -> None:
    order: list[int] = []

    async def worker(slots: Slots, name: int) -> None:
        await slots.acquire()
        order.append(name)
        await asyncio.sleep(0)
        slots.release()

    async def run() -> None:
        slots = Slots(2, clock)
        await asyncio.gather(*(worker(slots, n) for n in range(8)))

    asyncio.run(run())

    assert order == list(range(8))


def test_a_turn_that_nobody_takes_any_more_goes_to_the_next(clock: Clock) -> None:
    async def run() -> bool:
        slots = Slots(1, clock)
        await slots.acquire()
        gone, waiting = (asyncio.create_task(slots.acquire()) for _ in range(2))
        await asyncio.sleep(0)
        slots.release()
        gone.cancel()
        await asyncio.wait({waiting}, timeout=1)
        return waiting.done()

    assert asyncio.run(run())


@given(per_minute=st.integers(1, 6000), requests=st.integers(1, 400))
def test_no_minute_sees_more_than_its_limit(per_minute: int, requests: int) -> None:
    clock = Clock()
    rate = Rate(per_minute, clock)

    sent = sorted(clock.now + rate.reserve(1) for _ in range(requests))

    for start in sent:
        assert sum(start <= at < start + 59.999 for at in sent) <= max(per_minute, 2)


def test_units_that_were_not_used_are_given_back(clock: Clock) -> None:
    rate = Rate(6000, clock)
    rate.reserve(1000)
    rate.correct(-900)

    assert rate.reserve(1) == pytest.approx(Rate(6000, clock).reserve(101))


def test_an_open_circuit_lets_one_request_try_after_a_while(clock: Clock) -> None:
    circuit = Circuit(clock)
    assert circuit.admits()
    circuit.failed()
    assert circuit.is_open
    assert not circuit.admits()

    clock.now += COOL_S

    assert [circuit.admits(), circuit.admits()] == [True, False]


def test_a_circuit_waits_longer_each_time_up_to_a_limit_and_closes_at_the_first_answer(clock: Clock) -> None:
    circuit = Circuit(clock)
    for _ in range(20):
        circuit.failed()
        clock.now += COOL_MAX_S
        assert circuit.admits()
    circuit.failed()
    clock.now += COOL_MAX_S - 0.01
    assert not circuit.admits()
    clock.now += 0.01
    assert circuit.admits()

    circuit.answered()

    assert not circuit.is_open
    circuit.failed()
    clock.now += COOL_S
    assert circuit.admits()
