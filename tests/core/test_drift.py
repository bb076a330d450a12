"""What got worse alerts when chance does not explain it, once, under the name that says most; ordinary days stay silent."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import polars as pl
import pytest

from stef_core.drift import ALERTS, find_alerts
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
FALL = rows(0, 18, 22)
WORSE = rows(0, 18, 22, version="v2")


def carried(code: str, *days: list[dict[str, Any]], last: int) -> list[tuple[dt.date, str, str]]:
    """A finding on the last answers of each day."""
    return [(row["dt"], row["query_id"], code) for day in days for row in day[len(day) - last :]]


def found(*parts: list[tuple[dt.date, str, str]]) -> pl.DataFrame:
    schema = {"dt": pl.Date(), "query_id": pl.String(), "code": pl.String()}
    return pl.DataFrame([hit for part in parts for hit in part], schema=schema, orient="row")


def moved(alerts: pl.DataFrame, days: int) -> pl.DataFrame:
    """The same alerts, raised some days earlier."""
    return alerts.with_columns(dt=pl.lit(DAY - dt.timedelta(days=days)))


def detail_of(alert: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(alert["detail"])
    return found


# --- falls ----------------------------------------------------------------------------------------------------------


def test_a_clear_fall_alerts_with_the_figures_behind_it() -> None:
    alerts = find_alerts(frame(*STEADY, FALL), DAY)

    (alert,) = alerts.to_dicts()
    detail = detail_of(alert)
    assert alerts.schema == ALERTS
    assert set(AGENT_ALERTS) - set(alerts.columns) == {"run_id"}
    assert (alert["agent_id"], alert["app_id"], alert["kind"]) == ("a", "*", "phi_fall")
    assert (alert["agent_version"], alert["previous_version"]) == ("v1", None)
    assert alert["observed"] == pytest.approx(67.0)
    assert alert["expected"] == pytest.approx(92.5)
    assert alert["change"] == pytest.approx(-25.5)
    assert (alert["rows"], alert["baseline_rows"]) == (40, 160)
    assert 0 < alert["p_value"] <= 0.001
    assert alert["message"] == "a: mean Φ fell from 92.5 to 67.0 over 40 answers."
    assert detail["examples"] == [f"a-shop-{n}" for n in range(18, 23)]
    assert detail["interval"][0] < -25.5 < detail["interval"][1] < -10
    assert detail["p_right"] == {"observed": pytest.approx(0.67), "expected": pytest.approx(0.925)}


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
    low = [rows(ago, 27, 13) for ago in (2, 1, 0)]

    one_day = find_alerts(frame(*steady, rows(0, 27, 13)), DAY)
    three_days = find_alerts(frame(*steady, *low), DAY).to_dicts()

    assert one_day.is_empty()
    assert [(alert["rows"], detail_of(alert)["days"]) for alert in three_days] == [(120, 3)]
    assert "over 120 answers in 3 days" in three_days[0]["message"]
    assert len(detail_of(three_days[0])["examples"]) == 5


def test_days_with_fewer_rows_than_one_day_needs_count_together() -> None:
    steady = [rows(ago, 11, 1) for ago in range(3, 20)]
    low = [rows(ago, 4, 8) for ago in (2, 1, 0)]

    (alert,) = find_alerts(frame(*steady, *low), DAY, min_rows=20).to_dicts()

    assert (alert["kind"], alert["rows"], detail_of(alert)["days"]) == ("phi_fall", 36, 3)


def test_three_days_below_are_no_news_on_a_day_that_has_recovered() -> None:
    steady = [rows(ago, 34, 6) for ago in range(3, 15)]
    low = [rows(ago, 15, 25) for ago in (2, 1)]

    assert find_alerts(frame(*steady, *low, rows(0, 34, 6)), DAY).is_empty()
    assert not find_alerts(frame(*steady, *low, rows(0, 20, 20)), DAY).is_empty()


def test_days_outside_the_window_do_not_count() -> None:
    old = [rows(ago, 35, 5) for ago in (32, 31, 30, 29)]

    assert find_alerts(frame(*old, FALL), DAY).is_empty()
    assert not find_alerts(frame(*old, FALL), DAY, window_days=35).is_empty()


def test_a_fall_smaller_than_the_least_that_counts_is_silent_however_sure() -> None:
    many = [rows(ago, 1800, 200) for ago in range(1, 25)]
    day = rows(0, 1520, 480)

    assert not find_alerts(frame(*many, day), DAY).is_empty()
    assert find_alerts(frame(*many, day), DAY, min_fall=10.0).is_empty()


def test_an_agent_whose_days_wobble_needs_a_larger_fall() -> None:
    steady = [rows(ago, 160, 40) for ago in range(1, 15)]
    wobbly = [rows(ago, 160 + (30 if ago % 2 else -30), 40 + (-30 if ago % 2 else 30)) for ago in range(1, 15)]
    day = rows(0, 115, 85)

    assert not find_alerts(frame(*steady, day), DAY).is_empty()
    assert find_alerts(frame(*wobbly, day), DAY).is_empty()


def test_a_fall_that_few_agents_may_show_is_noise_among_many() -> None:
    one = [*STEADY, rows(0, 25, 15)]

    def others(agents: int) -> list[list[dict[str, Any]]]:
        return [rows(ago, 35, 5, agent=f"b{n:03d}") for n in range(agents) for ago in range(5)]

    # a log of few agents may err as often for each of them as one of twenty, and so less often as a whole
    assert find_alerts(frame(*one), DAY)["agent_id"].to_list() == ["a"]
    assert find_alerts(frame(*one, *others(19)), DAY)["agent_id"].to_list() == ["a"]
    assert find_alerts(frame(*one, *others(300)), DAY).is_empty()
    assert find_alerts(frame(*one), DAY, agent_alpha=1e-6).is_empty()


def test_lost_coverage_alerts_in_shares_with_its_reasons() -> None:
    alerts = find_alerts(frame(*STEADY, rows(0, 25, 3, unscored=12)), DAY)

    (alert,) = alerts.to_dicts()
    detail = detail_of(alert)
    assert alert["kind"] == "coverage_fall"
    assert (alert["observed"], alert["expected"]) == (pytest.approx(0.7), pytest.approx(1.0))
    assert detail["reasons"] == {"sql_unparseable": 12}
    assert detail["examples"] == [f"a-shop-{n}" for n in range(28, 33)]
    assert detail["interval"][0] < -0.3 < detail["interval"][1]
    assert "fell from 100.0 % to 70.0 %" in alert["message"]
    assert alert["message"].endswith("; most often sql unparseable (12).")


def test_the_findings_that_rose_most_are_named_with_both_shares() -> None:
    hits = carried("missing_filter", FALL, last=22) + carried("missing_filter", *STEADY, last=2)
    others = carried("wrong_limit", *STEADY, FALL, last=4)

    alert = find_alerts(frame(*STEADY, FALL), DAY, findings=found(hits, others, hits[:3])).to_dicts()[0]

    assert alert["kind"] == "phi_fall"
    assert detail_of(alert)["findings"] == [{"code": "missing_filter", "share": 0.55, "share_before": 0.05}]
    assert alert["message"].endswith("; most of all missing filter, from 5% to 55% of answers.")


def test_examples_are_the_lowest_answers_and_of_these_the_ones_that_drive_the_fall() -> None:
    driving = [(row["dt"], row["query_id"], "wrong_join") for row in FALL[-3:]]

    (alert,) = find_alerts(frame(*STEADY, FALL), DAY, findings=found(driving)).to_dicts()

    assert detail_of(alert)["examples"] == ["a-shop-37", "a-shop-38", "a-shop-39", "a-shop-18", "a-shop-19"]


# --- findings that rise ---------------------------------------------------------------------------------------------

CALM = [rows(ago, 40, 0) for ago in range(1, 11)]
TODAY = rows(0, 40, 0)


def test_a_finding_that_rises_alerts_though_the_score_does_not_fall() -> None:
    findings = found(carried("wrong_join", *CALM, last=2), carried("wrong_join", TODAY, last=16))

    alerts = find_alerts(frame(*CALM, TODAY), DAY, findings=findings)

    (alert,) = alerts.to_dicts()
    detail = detail_of(alert)
    assert alerts.schema == ALERTS
    assert (alert["kind"], alert["agent_id"], alert["app_id"], alert["agent_version"]) == ("finding_rise", "a", "*", "v1")
    assert (alert["observed"], alert["expected"], alert["change"]) == pytest.approx((0.4, 0.05, 0.35))
    assert (alert["rows"], alert["baseline_rows"]) == (40, 400)
    assert detail["code"] == "wrong_join"
    assert detail["findings"] == [{"code": "wrong_join", "share": 0.4, "share_before": 0.05}]
    assert detail["examples"] == [f"a-shop-{n}" for n in range(24, 29)]
    assert detail["interval"][0] < 0.35 < detail["interval"][1]
    assert alert["message"] == "a: wrong join rose from 5.0% to 40.0% of answers, over 40 answers."


def test_a_finding_as_frequent_as_before_or_rarer_does_not_alert() -> None:
    usual = carried("wrong_join", *CALM, last=8)

    assert find_alerts(frame(*CALM, TODAY), DAY, findings=found(usual, carried("wrong_join", TODAY, last=11))).is_empty()
    assert find_alerts(frame(*CALM, TODAY), DAY, findings=found(usual)).is_empty()
    assert find_alerts(frame(*CALM, TODAY), DAY, findings=found()).is_empty()
    assert find_alerts(frame(*CALM, TODAY), DAY, findings=None).is_empty()


def test_a_finding_rises_among_answers_that_were_scored() -> None:
    day = rows(0, 24, 0, unscored=3)
    findings = found(carried("judge_unavailable", day, last=3), carried("wrong_join", *CALM, last=1))

    assert "finding_rise" not in find_alerts(frame(*CALM, day), DAY, findings=findings)["kind"].to_list()


def test_of_several_findings_that_rise_the_surest_is_told_and_the_others_are_named() -> None:
    hits = [carried(code, *CALM, last=1) + carried(code, TODAY, last=last) for code, last in (("a_one", 14), ("b_two", 20))]

    (alert,) = find_alerts(frame(*CALM, TODAY), DAY, findings=found(*hits)).to_dicts()

    assert detail_of(alert)["code"] == "b_two"
    assert [finding["code"] for finding in detail_of(alert)["findings"]] == ["b_two", "a_one"]


def test_a_rise_is_news_once_for_each_finding() -> None:
    one = carried("wrong_join", *CALM, last=2) + carried("wrong_join", TODAY, last=16)
    two = carried("wrong_limit", *CALM, last=2) + carried("wrong_limit", TODAY, last=16)
    raised = find_alerts(frame(*CALM, TODAY), DAY, findings=found(one))

    again = find_alerts(frame(*CALM, TODAY), DAY, findings=found(one), recent_alerts=moved(raised, 1))
    another = find_alerts(frame(*CALM, TODAY), DAY, findings=found(one, two), recent_alerts=moved(raised, 1))
    later = find_alerts(frame(*CALM, TODAY), DAY, findings=found(one), recent_alerts=moved(raised, 8))

    assert again.is_empty()
    assert [detail_of(alert)["code"] for alert in another.to_dicts()] == ["wrong_limit"]
    assert later.height == 1


# --- versions -------------------------------------------------------------------------------------------------------


def test_a_worse_version_is_told_as_such_with_both_versions() -> None:
    (alert,) = find_alerts(frame(*STEADY, WORSE), DAY).to_dicts()

    assert (alert["kind"], alert["agent_version"], alert["previous_version"]) == ("version_worse", "v2", "v1")
    assert (alert["observed"], alert["expected"]) == pytest.approx((67.0, 92.5))
    assert (alert["rows"], alert["baseline_rows"]) == (40, 160)
    assert detail_of(alert)["compared"] == "days_before"
    assert alert["message"] == ("a: version v2 is worse than v1: mean Φ 67.0 over 40 answers, against 92.5 over 160 before.")


def test_a_better_version_and_one_that_is_alike_are_silent() -> None:
    assert find_alerts(frame(*STEADY, rows(0, 40, 0, version="v2")), DAY).is_empty()
    assert find_alerts(frame(*STEADY, rows(0, 34, 6, version="v2")), DAY).is_empty()


def test_a_version_is_judged_by_all_its_days() -> None:
    old = [rows(ago, 13, 1) for ago in range(8, 25)]
    new = [rows(ago, 10, 4, version="v2") for ago in range(8)]

    (alert,) = find_alerts(frame(*old, *new), DAY).to_dicts()

    assert (alert["kind"], alert["rows"], detail_of(alert)["days"]) == ("version_worse", 112, 8)
    assert find_alerts(frame(*old, *new[5:]), DAY).is_empty()


def test_a_version_with_few_answers_is_not_judged() -> None:
    both = [*rows(0, 30, 0), *rows(0, 0, 19, version="v2", app="shop2")]
    day = [row | {"app_id": "shop", "query_id": f"q{n}"} for n, row in enumerate(both)]

    assert "version_worse" not in find_alerts(frame(*STEADY, day), DAY)["kind"].to_list()
    assert "version_worse" in find_alerts(frame(*STEADY, day), DAY, min_rows=19)["kind"].to_list()


def test_versions_side_by_side_are_compared_day_by_day() -> None:
    def day(ago: int) -> list[dict[str, Any]]:
        hard = ago % 2  # days differ more than the versions do
        old, new = rows(ago, 38 - 14 * hard, 2 + 14 * hard), rows(ago, 31 - 14 * hard, 9 + 14 * hard, version="v2")
        return [*old, *(row | {"query_id": f"new-{row['query_id']}"} for row in new)]

    before = [rows(ago, 38 - 14 * (ago % 2), 2 + 14 * (ago % 2)) for ago in range(6, 20)]

    (alert,) = find_alerts(frame(*before, *(day(ago) for ago in range(6))), DAY).to_dicts()

    assert (alert["kind"], alert["agent_version"], alert["previous_version"]) == ("version_worse", "v2", "v1")
    assert alert["change"] == pytest.approx(-10.5)
    assert (alert["rows"], alert["baseline_rows"]) == (240, 240)
    assert detail_of(alert)["compared"] == "same_days"
    assert "against" in alert["message"]
    assert alert["message"].endswith("over 240 on the same days.")
    assert all(example.startswith("new-") for example in detail_of(alert)["examples"])


def test_a_version_that_was_there_from_the_first_day_is_no_change() -> None:
    days = [[*rows(ago, 38, 2), *rows(ago, 20, 20, version="v2", app="b")] for ago in range(10)]
    log = frame(*days).with_columns(app_id=pl.lit("shop"))

    assert find_alerts(log, DAY).is_empty()


def test_a_change_from_rows_without_a_version_is_told_as_a_fall() -> None:
    unversioned = [[row | {"agent_version": None} for row in day] for day in STEADY]

    (alert,) = find_alerts(frame(*unversioned, WORSE), DAY).to_dicts()

    assert (alert["kind"], alert["agent_version"], alert["previous_version"]) == ("phi_fall", "v2", None)


def test_a_worse_version_is_told_once_however_long_the_window_shows_it() -> None:
    log = frame(*[rows(ago, 38, 2) for ago in range(12, 25)], *[rows(ago, 25, 15, version="v2") for ago in range(12)])
    raised: pl.DataFrame | None = None
    for ago in range(11, -1, -1):
        alerts = find_alerts(log, DAY - dt.timedelta(days=ago), recent_alerts=raised)
        raised = alerts if raised is None else pl.concat([raised, alerts])

    assert raised is not None
    assert raised.select("kind", "agent_version", "previous_version").rows() == [("version_worse", "v2", "v1")]


def test_a_version_of_a_week_is_what_its_agent_is_compared_with() -> None:
    poor = [rows(ago, 24, 16) for ago in range(12, 28)]
    good = [rows(ago, 38, 2, version="v2") for ago in range(1, 12)]

    (alert,) = find_alerts(frame(*poor, *good, rows(0, 24, 16, version="v2")), DAY).to_dicts()

    assert (alert["kind"], alert["expected"]) == ("phi_fall", pytest.approx(97.0))
    assert alert["baseline_rows"] == 40 * 11


# --- one event, one alert -------------------------------------------------------------------------------------------


def test_a_fall_is_news_once_for_one_version() -> None:
    scores = frame(*STEADY, FALL)
    raised = find_alerts(scores, DAY)

    assert find_alerts(scores, DAY, recent_alerts=moved(raised, 1)).is_empty()
    assert find_alerts(scores, DAY, recent_alerts=moved(raised, 8)).height == 1
    # scoring the same day again must give the same alerts
    assert find_alerts(scores, DAY, recent_alerts=raised).height == 1
    # a version that was there when the alert was raised tells nothing new, one that came since does
    other = raised.with_columns(agent_version=pl.lit("v0"))
    assert find_alerts(scores, DAY, recent_alerts=moved(other, 1)).is_empty()
    since = frame(*STEADY, WORSE)
    assert find_alerts(since, DAY, recent_alerts=moved(raised, 1)).height == 1


def test_another_agent_or_application_does_not_silence_a_fall() -> None:
    scores = frame(*STEADY, FALL)
    raised = moved(find_alerts(scores, DAY), 1)

    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(agent_id=pl.lit("b"))).height == 1
    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(app_id=pl.lit("shop"))).height == 1
    assert find_alerts(scores, DAY, recent_alerts=raised.with_columns(kind=pl.lit("coverage_fall"))).height == 1


def test_a_worse_version_a_fall_and_the_finding_behind_them_are_one_alert() -> None:
    hits = carried("missing_filter", WORSE, last=22) + carried("missing_filter", *STEADY, last=2)

    (alert,) = find_alerts(frame(*STEADY, WORSE), DAY, findings=found(hits)).to_dicts()

    assert alert["kind"] == "version_worse"
    assert detail_of(alert)["findings"] == [{"code": "missing_filter", "share": 0.55, "share_before": 0.05}]


def test_what_a_worse_version_has_told_is_not_told_again_as_a_fall_or_a_finding() -> None:
    next_day = [[row | {"dt": row["dt"] - dt.timedelta(days=1)} for row in day] for day in (*STEADY, WORSE)]
    hits = carried("missing_filter", next_day[-1], WORSE, last=22) + carried("missing_filter", *next_day[:-1], last=2)
    raised = find_alerts(frame(*next_day), DAY - dt.timedelta(days=1), findings=found(hits))

    again = find_alerts(frame(*next_day, WORSE), DAY, findings=found(hits), recent_alerts=raised)

    assert raised["kind"].to_list() == ["version_worse"]
    assert again.is_empty()


def test_a_fall_that_named_both_versions_is_not_told_again_as_a_worse_version() -> None:
    raised = find_alerts(frame(*STEADY, WORSE), DAY).with_columns(kind=pl.lit("phi_fall"))

    assert find_alerts(frame(*STEADY, WORSE), DAY, recent_alerts=moved(raised, 1)).is_empty()


def test_a_finding_that_rose_yesterday_does_not_hide_that_the_score_falls_today() -> None:
    hits = carried("missing_filter", FALL, last=22) + carried("missing_filter", *STEADY, last=2)
    told = {"code": "missing_filter", "findings": [{"code": "missing_filter", "share": 0.3, "share_before": 0.05}]}
    raised = find_alerts(frame(*STEADY, FALL), DAY).with_columns(kind=pl.lit("finding_rise"), detail=pl.lit(json.dumps(told)))

    alerts = find_alerts(frame(*STEADY, FALL), DAY, findings=found(hits), recent_alerts=moved(raised, 1))

    assert alerts["kind"].to_list() == ["phi_fall"]


def test_lost_coverage_is_an_event_of_its_own() -> None:
    alerts = find_alerts(frame(*STEADY, rows(0, 12, 16, unscored=12)), DAY)

    assert alerts["kind"].to_list() == ["phi_fall", "coverage_fall"]


def test_a_single_application_alerts_where_the_agent_as_a_whole_hides_it() -> None:
    shop = [rows(ago, 35, 5) for ago in (4, 3, 2, 1)]
    crm = [rows(ago, 350, 50, app="crm") for ago in (4, 3, 2, 1, 0)]

    (alert,) = find_alerts(frame(*shop, *crm, rows(0, 15, 25)), DAY).to_dicts()

    assert (alert["agent_id"], alert["app_id"], alert["kind"]) == ("a", "shop", "phi_fall")
    assert alert["message"].startswith("a on shop: mean Φ fell")


def test_an_agent_that_falls_as_a_whole_names_the_applications_that_fell() -> None:
    shop = [rows(ago, 35, 5) for ago in range(1, 11)]
    crm = [rows(ago, 35, 5, app="crm") for ago in range(11)]

    (alert,) = find_alerts(frame(*shop, *crm, rows(0, 4, 36)), DAY).to_dicts()

    assert (alert["app_id"], alert["kind"]) == ("*", "phi_fall")
    (part,) = detail_of(alert)["applications"]
    assert (part["app_id"], part["observed"], part["expected"]) == ("shop", pytest.approx(46.0), pytest.approx(92.5))


def test_an_agent_without_a_version_can_alert_and_be_known() -> None:
    scores = frame(*STEADY, FALL).with_columns(agent_version=pl.lit(None, dtype=pl.String))
    alerts = find_alerts(scores, DAY)

    assert alerts["previous_version"].to_list() == [None]
    assert find_alerts(scores, DAY, recent_alerts=moved(alerts, 2)).is_empty()


def test_an_empty_frame_and_a_day_without_scored_rows_give_no_alert_of_phi() -> None:
    unscored = find_alerts(frame(*STEADY, rows(0, 0, 0, unscored=40)), DAY, findings=found())

    assert find_alerts(frame(), DAY).schema == ALERTS
    assert unscored["kind"].to_list() == ["coverage_fall"]


def test_the_answer_does_not_hang_on_the_order_of_rows() -> None:
    scores = frame(*STEADY, FALL, *(rows(ago, 30, 10, agent="b", app=app) for ago in range(5) for app in ("x", "y")))
    findings = found(carried("missing_filter", FALL, last=22), carried("wrong_join", *STEADY, FALL, last=3))

    alerts = find_alerts(scores, DAY, findings=findings)

    assert alerts.height == 1
    assert find_alerts(scores.reverse(), DAY, findings=findings.reverse()).equals(alerts)
