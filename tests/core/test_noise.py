"""The chance of a fall is what permuting rows and drawing days gives, and what is learnt of days is what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stef_core.noise import (
    DAY_SHARE,
    Days,
    days_of,
    holm,
    lasting,
    learn_day_share,
    measure_fall,
    measure_paired_fall,
    screen,
    spread,
)

Floats = NDArray[np.float64]
VALUES, SHARES = np.array([0.0, 24.0, 40.0, 80.0, 100.0]), np.array([0.04, 0.05, 0.11, 0.5, 0.3])


def draw(rng: np.random.Generator, rows: int, right: float | None = None) -> Floats:
    if right is None:
        return rng.choice(VALUES, rows, p=SHARES)
    return np.where(rng.random(rows) < right, 100.0, 0.0)


def permuted(now: Floats, before: Floats, rng: np.random.Generator, draws: int = 20_000) -> float:
    """How often permuting the rows gives as low a difference: the definition, by brute force."""
    both = np.concatenate([now, before])
    fall = now.mean() - before.mean()
    lower = 0
    for _ in range(draws):
        mixed = rng.permutation(both)
        lower += mixed[: len(now)].mean() - mixed[len(now) :].mean() <= fall + 1e-9
    return lower / draws


@pytest.mark.parametrize("right", [None, 0.9])
def test_without_effects_of_days_the_chance_is_that_of_the_permuted_rows(right: float | None) -> None:
    rng = np.random.default_rng(3)
    # days that are all alike: no effect of days can be seen in them
    baseline = [draw(rng, 50, right)] * 4
    now = np.concatenate([draw(rng, 30, right), np.zeros(5)])

    fall = measure_fall([now], baseline, day_share=0.0)

    expected = permuted(now, np.concatenate(baseline), rng)
    assert 0.0005 < expected < 0.03
    assert fall.p_value == pytest.approx(expected, rel=0.3)
    assert (fall.rows, fall.baseline_rows, fall.days, fall.baseline_days) == (35, 200, 1, 4)


def test_effects_of_days_make_a_fall_likelier() -> None:
    rng = np.random.default_rng(4)
    baseline, now = [draw(rng, 200) for _ in range(8)], draw(rng, 200) - 8.0

    chances = [measure_fall([np.clip(now, 0, 100)], baseline, day_share=share).p_value for share in (0.0, 0.006, 0.02)]

    assert chances == sorted(chances)
    assert chances[2] > 20 * chances[0]


def test_days_that_wobble_make_a_fall_likelier_than_days_that_do_not() -> None:
    rng = np.random.default_rng(5)
    steady = [draw(rng, 200, 0.8) for _ in range(8)]
    wobbly = [draw(rng, 200, 0.8 + (0.12 if n % 2 else -0.12)) for n in range(8)]
    now = [draw(rng, 200, 0.62)]

    sure, unsure = (measure_fall(now, baseline).p_value for baseline in (steady, wobbly))

    assert sure < 0.002
    assert unsure > 10 * sure


def test_more_rows_than_are_summed_exactly_give_the_same_chance() -> None:
    rng = np.random.default_rng(6)
    baseline = [draw(rng, 2000) for _ in range(6)]
    now = draw(rng, 1001)

    fewer, more = (measure_fall([now[:rows] - 2.0], baseline, day_share=0.001).p_value for rows in (1000, 1001))

    assert 1e-4 < more < 0.05
    assert fewer == pytest.approx(more, rel=0.05)


def test_values_between_the_grid_points_give_nearly_the_same_chance() -> None:
    rng = np.random.default_rng(7)
    days = [[draw(rng, 40) for _ in range(count)] for count in (2, 8)]
    days[0] = [np.maximum(day - 12.0, 0.0) for day in days[0]]

    exact = measure_fall(days[0], days[1]).p_value
    moved = [[np.clip(day + rng.uniform(-0.4, 0.4, len(day)), 0, 100) for day in some] for some in days]

    assert measure_fall(moved[0], moved[1]).p_value == pytest.approx(exact, rel=0.3)


def test_rows_that_are_all_alike_and_a_rise_are_no_fall() -> None:
    assert measure_fall([np.full(30, 80.0)], [np.full(30, 80.0)] * 3).p_value == 1.0
    assert measure_fall([np.full(30, 90.0)], [np.array([80.0, 100.0] * 15)] * 3).p_value >= 0.5
    assert measure_paired_fall([(np.full(9, 80.0), np.full(9, 80.0))]).p_value == 1.0


@pytest.mark.parametrize("day_noise", [0.0, 0.04])
def test_ordinary_days_seldom_look_like_a_fall(day_noise: float) -> None:
    rng = np.random.default_rng(11)

    def a_day() -> Floats:
        right = float(np.clip(0.85 + rng.normal(0, day_noise), 0, 1))
        return np.where(rng.random(40) < right, 100.0, rng.choice([0.0, 24.0, 40.0, 80.0], 40))

    p_values = np.array([measure_fall([a_day()], [a_day() for _ in range(6)]).p_value for _ in range(1000)])

    # of 1000 days about 1 at 0.001 and 10 at 0.01 are due to chance alone
    assert (p_values <= 0.001).sum() <= 4
    assert (p_values <= 0.01).sum() <= 20
    assert (p_values <= 0.2).sum() >= 100


def test_the_first_look_agrees_with_the_close_one_where_a_fall_is_ordinary() -> None:
    rng = np.random.default_rng(8)
    days, baseline = [draw(rng, 60)], [draw(rng, 50) for _ in range(7)]

    error, chance = screen(_one(days_of(days)), _one(days_of(baseline)), DAY_SHARE)
    fall = measure_fall(days, baseline)

    assert chance[0] == pytest.approx(fall.p_value)
    assert error[0] == pytest.approx(fall.error)


def test_variance_between_days_is_that_of_their_effects() -> None:
    rng = np.random.default_rng(9)
    days = [draw(rng, int(rows), float(np.clip(0.7 + rng.normal(0, 0.06), 0, 1))) for rows in rng.integers(50, 250, 4000)]

    found = spread(days_of(days))

    assert float(found.between) == pytest.approx(36.0, rel=0.15)
    assert float(found.within) == pytest.approx(100**2 * 0.21, rel=0.03)


@pytest.mark.parametrize(("day_noise", "share"), [(0.0, (0.001, 0.004)), (0.05, (0.009, 0.017))])
def test_how_much_days_differ_is_learnt_from_all_agents(day_noise: float, share: tuple[float, float]) -> None:
    rng = np.random.default_rng(10)

    def agent() -> Days:
        return days_of([draw(rng, 100, float(np.clip(0.7 + rng.normal(0, day_noise), 0, 1))) for _ in range(20)])

    agents = [agent() for _ in range(30)]

    learnt = learn_day_share(_stack(agents))

    assert share[0] < learnt < share[1]  # 0.05**2 / 0.21 = 0.012
    assert learn_day_share(_stack([days_of([np.array([80.0, 100.0])])])) == DAY_SHARE


def test_effects_that_last_weigh_more_in_the_mean_of_days() -> None:
    assert lasting(np.array([1.0, 2.0, 3.0])) == pytest.approx([1.0, 0.75, 11 / 18])


def test_what_strikes_both_of_a_pair_is_no_fall_of_one() -> None:
    rng = np.random.default_rng(12)
    rights = (0.95, 0.55, 0.9, 0.6)
    alike = [(draw(rng, 60, right), draw(rng, 60, right)) for right in rights]
    worse = [(draw(rng, 60, right - 0.2), theirs) for right, (_, theirs) in zip(rights, alike, strict=True)]

    assert measure_paired_fall(alike).p_value > 0.05
    assert measure_paired_fall(worse).p_value < 1e-4
    # the days are too different to see it without the pairs
    assert measure_fall([ours for ours, _ in worse], [theirs for _, theirs in worse]).p_value > 0.01


def test_a_pair_is_weighed_by_the_rows_that_both_have() -> None:
    few, many = np.array([0.0]), np.full(100, 80.0)

    fall = measure_paired_fall([(few, np.array([100.0])), (np.full(100, 60.0), many)])

    assert fall.expected - fall.observed == pytest.approx((0.5 * 100 + 50 * 20) / 50.5)


@pytest.mark.parametrize(
    ("p_values", "weights", "adjusted"),
    [
        ([0.01, 0.04, 0.03], [1.0, 1.0, 1.0], [0.03, 0.06, 0.06]),
        ([0.01, 0.04], [1.0, 3.0], [0.04, 0.04]),
        ([0.01, 0.04], [3.0, 1.0], [0.0133, 0.04]),
        ([0.5, 0.5], [1.0, 1.0], [1.0, 1.0]),
        ([], [], []),
    ],
)
def test_corrected_chances_are_those_of_holm(p_values: list[float], weights: list[float], adjusted: list[float]) -> None:
    assert holm(p_values, weights) == pytest.approx(adjusted, abs=1e-4)


def test_a_family_of_no_effects_seldom_has_one_below_the_level() -> None:
    rng = np.random.default_rng(13)
    weights = [3.0, 1.0, 1.0, 0.5]

    wrong = [min(holm(rng.random(4).tolist(), weights)) <= 0.1 for _ in range(4000)]

    assert 0.08 < np.mean(wrong) < 0.115


def _one(days: Days) -> Days:
    return Days(rows=days.rows[None], total=days.total[None], squares=days.squares[None])


def _stack(series: Sequence[Days]) -> Days:
    def column(name: str) -> Any:
        return np.array([getattr(days, name) for days in series])

    return Days(rows=column("rows"), total=column("total"), squares=column("squares"))
