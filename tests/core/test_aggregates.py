"""Daily figures of an agent: by hand on small days, and laws on any day."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stef_core.aggregates import agent_daily
from stef_core.frames import AGENT_DAILY, QUERY_FINDINGS, QUERY_SCORES, frame_of
from stef_core.scoring import band_of

DAY = dt.date(2026, 3, 2)


def scored(query_id: str, phi: float, **columns: Any) -> dict[str, Any]:
    given = {"filter_status": "fully_applied", "verdict": "correct", "enrichment_status": "absent", "p_right": phi / 100}
    return _row(query_id, status="scored", phi=phi, band=band_of(phi), **(given | columns))


def unscored(query_id: str, reason: str | None = "judge_unavailable", **columns: Any) -> dict[str, Any]:
    return _row(query_id, status="unscored", reason=reason, **columns)


def _row(query_id: str, **columns: Any) -> dict[str, Any]:
    base = {"dt": DAY, "query_id": query_id, "agent_id": "ann", "agent_version": "v1", "app_id": "shop", "run_id": "run-1"}
    return base | {"tokens_in": 0, "tokens_out": 0, "llm_calls": 0, "cost": 0.0} | columns


def aggregate(rows: Sequence[dict[str, Any]], codes: Sequence[tuple[str, str]] = ()) -> pl.DataFrame:
    findings = [{"dt": DAY, "query_id": query, "ordinal": n, "code": code} for n, (query, code) in enumerate(codes)]
    return agent_daily(frame_of(rows, QUERY_SCORES), frame_of(findings, QUERY_FINDINGS))


def row_of(frame: pl.DataFrame, app_id: str = "*", **columns: Any) -> dict[str, Any]:
    asked = {"app_id": app_id} | columns
    found = frame.filter(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(value)) for name, value in asked.items()))
    assert found.height == 1, frame
    return found.row(0, named=True)


def test_figures_of_a_day_are_those_of_a_pocket_calculator() -> None:
    rows = [scored("a", 100), scored("b", 80), scored("c", 40), scored("d", 0), unscored("e")]

    ann = row_of(aggregate(rows))

    assert (ann["rows"], ann["scored"], ann["coverage"]) == (5, 4, 0.8)
    assert (ann["mean_phi"], ann["median_phi"]) == (55.0, 60.0)
    assert ann["p90_phi"] == pytest.approx(94.0)  # 0.9 * 3 = 2.7: 80 + 0.7 * 20
    assert ann["mean_p_right"] == pytest.approx(0.55)
    assert ann["run_id"] == "run-1"


def test_shares_name_every_band_and_count_a_finding_once_a_query() -> None:
    rows = [
        scored("a", 100, enrichment_status="faithful"),
        scored("b", 100),
        scored("c", 40, filter_status="partially_applied", verdict="incorrect"),
        unscored("d", "sql_unparseable"),
    ]
    codes = [
        ("c", "missing_filter"),
        ("c", "missing_filter"),
        ("c", "extra_output"),
        ("b", "extra_output"),
        ("d", "sql_unparseable"),
    ]

    shares = json.loads(row_of(aggregate(rows, codes))["shares"])

    assert shares["band"] == {"excellent": 0.666667, "good": 0.0, "marginal": 0.0, "poor": 0.333333}
    assert shares["filter_status"]["partially_applied"] == 0.333333
    assert shares["verdict"]["incorrect"] == 0.333333
    assert shares["enrichment"]["faithful"] == 0.333333
    assert shares["finding"] == {"missing_filter": 0.333333, "extra_output": 0.666667}
    assert shares["reason"] == {"sql_unparseable": 0.25}


def test_an_agent_has_a_row_for_each_application_beside_the_row_for_all() -> None:
    rows = [scored("a", 100), scored("b", 50, app_id="depot"), unscored("c", app_id="depot")]

    frame = aggregate(rows)

    assert frame["app_id"].to_list() == ["*", "depot", "shop"]
    assert [row_of(frame, app)["rows"] for app in ("*", "depot", "shop")] == [3, 2, 1]
    assert [row_of(frame, app)["mean_phi"] for app in ("*", "depot", "shop")] == [75.0, 50.0, 100.0]
    assert json.loads(row_of(frame, "depot")["shares"])["reason"] == {"judge_unavailable": 0.5}


def test_a_finding_counts_in_its_own_application_only() -> None:
    rows = [scored("a", 100), scored("b", 50, app_id="depot")]

    frame = aggregate(rows, [("b", "missing_filter")])

    assert [json.loads(row_of(frame, app)["shares"])["finding"] for app in ("*", "depot", "shop")] == [
        {"missing_filter": 0.5},
        {"missing_filter": 1.0},
        {},
    ]


def test_an_application_called_star_does_not_pass_for_all() -> None:
    rows = [scored("a", 100, app_id="*"), scored("b", 0)]

    frame = aggregate(rows)

    assert row_of(frame, "*")["rows"] == 2
    assert row_of(frame, '"*"')["mean_phi"] == 100.0


def test_rows_without_application_belong_to_default() -> None:
    frame = aggregate([scored("a", 100, app_id=None)])

    assert row_of(frame, "default")["rows"] == 1


def test_rows_without_version_make_a_group_of_their_own() -> None:
    rows = [scored("a", 100, agent_version=None), scored("b", 80, agent_version=None), scored("c", 0)]

    frame = aggregate(rows, [("b", "extra_output")])

    without = row_of(frame, agent_version=None)
    assert (without["rows"], without["mean_phi"]) == (2, 90.0)
    assert json.loads(without["shares"])["finding"] == {"extra_output": 0.5}
    assert row_of(frame, agent_version="v1")["rows"] == 1


def test_a_day_on_which_nothing_was_scored_has_no_mean() -> None:
    ann = row_of(aggregate([unscored("a"), unscored("b", None)]))

    assert (ann["rows"], ann["scored"], ann["coverage"]) == (2, 0, 0.0)
    assert [ann[name] for name in ("mean_phi", "median_phi", "p90_phi", "mean_p_right")] == [None] * 4
    shares = json.loads(ann["shares"])
    assert set(shares["band"].values()) == {0.0}
    assert shares["reason"] == {"judge_unavailable": 0.5, "unknown": 0.5}


def test_a_score_left_on_an_unscored_row_counts_for_nothing() -> None:
    ann = row_of(aggregate([scored("a", 80), unscored("b", phi=0.0, p_right=0.0, band="poor")]))

    assert (ann["mean_phi"], ann["p90_phi"], ann["mean_p_right"]) == (80.0, 80.0, 0.8)
    assert json.loads(ann["shares"])["band"]["poor"] == 0.0


def test_a_scored_row_without_a_status_is_told_as_none() -> None:
    shares = json.loads(row_of(aggregate([scored("a", 0, filter_status=None), scored("b", 100)]))["shares"])

    assert shares["filter_status"]["none"] == 0.5


def test_tokens_calls_and_cost_are_summed_over_all_rows() -> None:
    spent: dict[str, Any] = {"tokens_in": 100, "tokens_out": 7, "llm_calls": 2, "cost": 0.1}

    ann = row_of(aggregate([scored("a", 100, **spent), scored("b", 100, **spent), unscored("c", **spent)]))

    assert (ann["tokens_in"], ann["tokens_out"], ann["llm_calls"]) == (300, 21, 6)
    assert ann["cost"] == pytest.approx(0.3)


def test_no_rows_give_an_empty_frame_of_the_same_schema() -> None:
    assert aggregate([]).schema == AGENT_DAILY


def test_a_query_that_stands_twice_is_refused() -> None:
    with pytest.raises(pl.exceptions.ComputeError, match="m:1"):
        aggregate([scored("a", 100), scored("a", 100)], [("a", "missing_filter")])


def test_the_mean_of_a_day_read_backwards_is_the_same_to_the_last_bit() -> None:
    rows = [scored(f"q{n}", 100, p_right=p_right, cost=p_right) for n, p_right in enumerate((0.1, 0.2, 0.3))]

    forwards, backwards = aggregate(rows), aggregate(rows[::-1])

    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1  # the trap
    assert forwards.equals(backwards)


PHIS = st.sampled_from([0.0, 12.0, 40.0, 50.0, 56.0, 75.0, 90.0, 100.0])
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["v1", "v2", None]),
        st.sampled_from(["shop", "depot", None, "*"]),
        st.one_of(st.none(), PHIS),
        st.sampled_from(["fully_applied", "not_applied", None]),
        st.floats(0, 1),
    ),
    max_size=30,
)


def rows_of(queries: list[tuple[str, str | None, str | None, float | None, str | None, float]]) -> list[dict[str, Any]]:
    return [
        unscored(f"q{n}", agent_id=agent, agent_version=version, app_id=app)
        if phi is None
        else scored(f"q{n}", phi, agent_id=agent, agent_version=version, app_id=app, filter_status=status, p_right=p_right)
        for n, (agent, version, app, phi, status, p_right) in enumerate(queries)
    ]


@settings(max_examples=60, deadline=None)
@given(QUERIES)
@example([("ann", "v1", "shop", 100.0, None, 0.94), ("ann", "v1", "shop", 100.0, None, 0.42)])
def test_rows_add_up_and_every_share_stays_in_its_range(
    queries: list[tuple[str, str | None, str | None, float | None, str | None, float]],
) -> None:
    frame = aggregate(rows_of(queries))

    for part in (frame.filter(pl.col("app_id") == "*"), frame.filter(pl.col("app_id") != "*")):
        assert part["rows"].sum() == len(queries)
        assert part["scored"].sum() == sum(phi is not None for *_, phi, _, _ in queries)
    assert not frame.select("dt", "agent_id", "agent_version", "app_id").is_duplicated().any()
    for row in frame.iter_rows(named=True):
        shares = json.loads(row["shares"])
        assert 0 <= row["coverage"] <= 1
        assert row["coverage"] + sum(shares["reason"].values()) == pytest.approx(1, abs=1e-5)
        for name in ("band", "filter_status", "verdict", "enrichment"):
            assert sum(shares[name].values()) == pytest.approx(1 if row["scored"] else 0, abs=1e-5)
        if row["scored"]:
            assert all(0 <= row[name] <= 100 for name in ("mean_phi", "median_phi", "p90_phi"))
            assert 0 <= row["mean_p_right"] <= 1


@settings(max_examples=30, deadline=None)
@given(QUERIES, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_bit(
    queries: list[tuple[str, str | None, str | None, float | None, str | None, float]], random: Any
) -> None:
    rows = rows_of(queries)
    shuffled = random.sample(rows, len(rows))

    assert aggregate(shuffled).equals(aggregate(rows))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_p90_and_median_are_those_of_numpy(phis: list[float]) -> None:
    ann = row_of(aggregate([scored(f"q{n}", phi) for n, phi in enumerate(phis)]))

    assert ann["p90_phi"] == pytest.approx(float(np.quantile(phis, 0.9, method="linear")))
    assert ann["median_phi"] == pytest.approx(float(np.median(phis)))
