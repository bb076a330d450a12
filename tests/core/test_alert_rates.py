"""A small run of the simulation behind docs/alerts.md: stable logs are quiet, and a planted change is found."""

from __future__ import annotations

import pytest

from benchmarks.alerts import STABLE, Log, Plant, watch

ORDINARY, MODEL, *_ = STABLE


@pytest.mark.slow
@pytest.mark.parametrize("log", [ORDINARY, MODEL], ids=lambda log: log.name)
def test_four_weeks_of_twenty_agents_are_quiet(log: Log) -> None:
    alerts = [alert for seed in range(2) for alert in watch(log, (7, seed))]

    assert len(alerts) <= 3  # about 0.8 are expected in these 37 agent-months


@pytest.mark.slow
def test_planted_changes_are_found_within_three_days_by_their_name() -> None:
    plants = (
        Plant(name="fall", rows=60, points=15),
        Plant(name="version", rows=60, points=15, new_version=1.0),
        Plant(name="finding", rows=60, finding=0.25),
    )

    logs = [watch(ORDINARY, (8, seed), plants) for seed in range(10)]

    found = [{alert["agent"]: alert["kind"] for alert in reversed(alerts)} for alerts in logs]
    for agent, kind in (("agent-00", "phi_fall"), ("agent-01", "version_worse"), ("agent-02", "finding_rise")):
        assert sum(alerts.get(agent) == kind for alerts in found) >= 9, kind


def test_a_simulated_log_is_the_same_each_time() -> None:
    plants = (Plant(name="fall", rows=100, points=30),)

    first, second = (watch(ORDINARY, (9, 0), plants) for _ in range(2))

    assert first == second
    assert {"agent": "agent-00", "kind": "phi_fall"}.items() <= first[0].items()
