"""A fall alerts when the day's noise does not explain it, and ordinary days stay silent."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from stef_core.drift import ALERTS, find_alerts, measure_fall
from stef_core.frames import AGENT_ALERTS

DAY = dt.date(2026, 5, 20)
SCHEMA = pl.Schema(
    {
        "dt": pl.Date(),
        "query_id": pl.String(),
        "agent_id": pl.String(),
        "agent_version": pl.String(),
        "app_id": pl.String(),
        "status": pl.String(),
        "reason": pl.String(),
        "phi": pl.Float64(),
        "p_right": pl.Float64(),
    }
)


def rows(
    ago: int, right: int, wrong: int, *, unscored: int = 0, agent: str = "a", version: str = "v1", app: str = "shop"
) -> list[dict[str, Any]]:
    """A day of one agent: right answers score 100, wrong ones 40."""
    day = DAY - dt.timedelta(days=ago)
    phis = [100.0] * right + [40.0] * wrong + [None] * unscored
    return [
        {
            "dt": day,
            "query_id": f"{agent}-{app}-{n}",
            "agent_id": agent,
            "agent_version": version,
            "app_id": app,
            "status": "unscored" if phi is None else "scored",
            "reason": "sql_unparseable" if phi is None else None,
            "phi": phi,
            "p_right": None if phi is None else phi / 100,
        }
        for n, phi in enumerate(phis)
    ]


def frame(*days: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([row for day in days for row in day], schema=SCHEMA)


STEADY = [rows(ago, 35, 5) for ago in (4, 3, 2, 1)]
FALL = rows(0, 18, 22, version="v2")


def test_a_clear_fall_alerts_with_the_figures_behind_it() -> None:
    alerts = find_alerts(frame(*STEADY, FALL), DAY)

    (alert,) = alerts.to_dicts()
    assert alerts.schema == ALERTS
    assert set(AGENT_ALERTS) - set(alerts.columns) == {"run_id"}
    assert (alert["agent_id"], alert["app_id"], alert["kind"]) == ("a", "*", "phi_fall")
    assert (alert["agent_version"], alert["previous_version"]) == ("v2", "v1")
    assert alert["observed"] == pytest.approx(67.0)
    assert alert["expected"] == pytest.approx(92.5)
    assert alert["change"] == pytest.approx(-25.5)
    assert (alert["rows"], alert["baseline_rows"]) == (40, 160)
    assert 0 < alert["p_value"] <= 0.001
    assert alert["message"] == "a: mean Φ fell from 92.5 to 67.0 over 40 answers, with version v2 instead of v1."
    assert json.loads(alert["detail"])["examples"] == [f"a-shop-{n}" for n in range(18, 23)]


def test_a_steady_day_and_a_rise_do_not_alert() -> None:
    assert find_alerts(frame(*STEADY, rows(0, 34, 6)), DAY).is_empty()
    assert find_alerts(frame(*STEADY, rows(0, 40, 0)), DAY).is_empty()


def test_the_same_fall_on_few_rows_is_noise() -> None:
    few = [rows(ago, 9, 1) for ago in (4, 3, 2, 1)]

    assert find_alerts(frame(*few, rows(0, 5, 5)), DAY, min_rows=5).is_empty()
    assert find_alerts(frame(*STEADY, rows(0, 4, 15)), DAY, min_rows=20).is_empty()


def test_two_days_of_history_are_too_few_whatever_happens() -> None:
    assert find_alerts(frame(*STEADY[2:], rows(0, 0, 40)), DAY).is_empty()
    assert not find_alerts(frame(*STEADY[1:], rows(0, 0, 40)), DAY).is_empty()


def test_a_fall_too_small_for_one_day_shows_in_three() -> None:
    steady = [rows(ago, 34, 6) for ago in range(3, 15)]
    low = [rows(ago, 28, 12) for ago in (2, 1, 0)]

    one_day = find_alerts(frame(*steady, rows(0, 28, 12)), DAY)
    three_days = find_alerts(frame(*steady, *low), DAY).to_dicts()

    assert one_day.is_empty()
    assert [(alert["rows"], json.loads(alert["detail"])["days"]) for alert in three_days] == [(120, 3)]
    assert "over 120 answers in 3 days" in three_days[0]["message"]
    assert len(json.loads(three_days[0]["detail"])["examples"]) == 5


def test_three_days_below_are_no_news_on_a_day_that_has_recovered() -> None:
    steady = [rows(ago, 34, 6) for ago in range(3, 15)]
    low = [rows(ago, 15, 25) for ago in (2, 1)]

    assert find_alerts(frame(*steady, *low, rows(0, 34, 6)), DAY).is_empty()
    assert not find_alerts(frame(*steady, *low, rows(0, 20, 20)), DAY).is_empty()


def test_days_outside_the_window_do_not_count() -> None:
    old = [rows(ago, 35, 5) for ago in (18, 17, 16, 15)]

    assert find_alerts(frame(*old, FALL), DAY).is_empty()
    assert not find_alerts(frame(*old, FALL), DAY, window_days=20).is_empty()


def test_a_fall_smaller_than_the_least_that_counts_is_silent_however_sure() -> None:
    many = [rows(ago, 1800, 200) for ago in range(1, 15)]
    day = rows(0, 1520, 480)

    assert not find_alerts(frame(*many, day), DAY).is_empty()
    assert find_alerts(frame(*many, day), DAY, min_fall=10.0).is_empty()


def test_an_agent_whose_days_wobble_needs_a_larger_fall() -> None:
    steady = [rows(ago, 160, 40) for ago in range(1, 9)]
    wobbly = [rows(ago, 160 + (30 if ago % 2 else -30), 40 + (-30 if ago % 2 else 30)) for ago in range(1, 9)]
    day = rows(0, 128, 72)

    assert not find_alerts(frame(*steady, day), DAY).is_empty()
    assert find_alerts(frame(*wobbly, day), DAY).is_empty()


def test_a_fall_that_one_agent_may_show_is_noise_among_many_agents() -> None:
    one = [*STEADY, rows(0, 25, 15)]
    others = [rows(ago, 35, 5, agent=f"b{n:02d}") for n in range(60) for ago in range(5)]

    assert find_alerts(frame(*one), DAY)["agent_id"].to_list() == ["a"]
    assert find_alerts(frame(*one, *others), DAY).is_empty()


def test_lost_coverage_alerts_in_shares_with_its_reasons() -> None:
    alerts = find_alerts(frame(*STEADY, rows(0, 25, 3, unscored=12)), DAY)

    (alert,) = alerts.to_dicts()
    detail = json.loads(alert["detail"])
    assert alert["kind"] == "coverage_fall"
    assert (alert["observed"], alert["expected"]) == (pytest.approx(0.7), pytest.approx(1.0))
    assert detail["reasons"] == {"sql_unparseable": 12}
    assert "fell from 100.0 % to 70.0 %" in alert["message"]


def test_a_single_application_alerts_where_the_agent_as_a_whole_hides_it() -> None:
    shop = [rows(ago, 35, 5) for ago in (4, 3, 2, 1)]
    crm = [rows(ago, 350, 50, app="crm") for ago in (4, 3, 2, 1, 0)]

    alerts = find_alerts(frame(*shop, *crm, rows(0, 15, 25)), DAY)

    assert alerts.select("agent_id", "app_id", "kind").rows() == [("a", "shop", "phi_fall")]


def test_the_findings_that_rose_most_are_named_with_both_shares() -> None:
    scores = frame(*STEADY, FALL)
    hits = [(row["dt"], row["query_id"], "missing_filter") for row in FALL if row["phi"] == 40.0]
    hits += [(row["dt"], row["query_id"], "missing_filter") for day in STEADY for row in day[-2:]]
    hits += [(row["dt"], row["query_id"], "wrong_limit") for day in (*STEADY, FALL) for row in day[-4:]]
    findings = pl.DataFrame(
        hits + hits[:3], schema={"dt": pl.Date(), "query_id": pl.String(), "code": pl.String()}, orient="row"
    )

    alert = find_alerts(scores, DAY, findings=findings).to_dicts()[0]

    assert json.loads(alert["detail"])["findings"] == [{"code": "missing_filter", "share": 0.55, "share_before": 0.05}]
    assert alert["message"].endswith("; most of all missing filter, from 5% to 55% of answers.")


def test_a_fall_is_news_once_for_one_version() -> None:
    scores = frame(*STEADY, FALL)
    raised = find_alerts(scores, DAY).with_columns(dt=pl.lit(DAY - dt.timedelta(days=1)))

    assert find_alerts(scores, DAY, recent_alerts=raised).is_empty()
    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(agent_version=pl.lit("v1"))).height == 1
    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(dt=DAY - dt.timedelta(days=8))).height == 1
    # scoring the same day again must give the same alerts
    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(dt=DAY)).height == 1


def test_an_agent_without_a_version_can_alert_and_be_known() -> None:
    scores = frame(*STEADY, FALL).with_columns(agent_version=pl.lit(None, dtype=pl.String))
    alerts = find_alerts(scores, DAY)

    assert alerts["previous_version"].to_list() == [None]
    assert find_alerts(scores, DAY, recent_alerts=alerts.with_columns(dt=DAY - dt.timedelta(days=2))).is_empty()


def test_an_empty_frame_and_a_day_without_scored_rows_give_no_alert_of_phi() -> None:
    unscored = find_alerts(frame(*STEADY, rows(0, 0, 0, unscored=40)), DAY)

    assert find_alerts(frame(), DAY).schema == ALERTS
    assert unscored["kind"].to_list() == ["coverage_fall"]


def test_the_answer_does_not_hang_on_the_order_of_rows() -> None:
    scores = frame(*STEADY, FALL)

    assert find_alerts(scores.reverse(), DAY).equals(find_alerts(scores, DAY))


@pytest.mark.parametrize("day_noise", [0.0, 0.04])
def test_ordinary_days_seldom_look_like_a_fall(day_noise: float) -> None:
    rng = np.random.default_rng(11)

    def a_day() -> np.ndarray[Any, np.dtype[np.float64]]:
        right = float(np.clip(0.85 + rng.normal(0, day_noise), 0, 1))
        return np.where(rng.random(40) < right, 100.0, rng.choice([0.0, 24.0, 40.0, 80.0], 40))

    falls = [measure_fall([a_day()], [a_day() for _ in range(6)], draws=2000) for _ in range(400)]

    p_values = np.array([fall.p_value for fall in falls])
    # 400 days: about 0.4 at 0.001 and 4 at 0.01 are due to chance alone
    assert (p_values <= 0.001).sum() <= 3
    assert (p_values <= 0.01).sum() <= 12
