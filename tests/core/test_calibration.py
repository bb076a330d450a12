"""Figures of a calibration: by hand on toy rows, by law on random ones, and honest about what a fit has seen."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stef_core.calibration import (
    ANSWERS,
    LabelledRow,
    Plan,
    answers_of,
    auroc,
    best_cut,
    calibrate,
    calibration_error,
    cohen_kappa,
    features_of,
    fitted_questions,
    judge_rows,
    judge_rows_refitted,
    pairwise_accuracy,
    recall_at_false_alarms,
    roc_points,
    seen_by_fit,
    spearman,
)
from stef_core.extract.question_offline import OfflineReader
from stef_core.extract.sql import extract_sql
from stef_core.frames import frame_of
from stef_core.judge.fitting import fit_side, grouped_folds
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import QueryRecord
from stef_core.rules import DEFAULT_RULES, Rules

FEW = Plan(resamples=50)
scored_rows = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40)


def default_rules(_: QueryRecord) -> Rules:
    return DEFAULT_RULES


def answer(number: int, *, phi: float | None, right: bool, **values: Any) -> dict[str, Any]:
    scored = phi is not None
    p = phi / 100 if phi is not None else None
    return {
        "query_id": f"q{number}",
        "agent": "clerk",
        "database": "shop",
        "source": "ours",
        "question": f"question {number}",
        "right": right,
        "error_types": [],
        "features": ["no join"],
        "status": "scored" if scored else "unscored",
        "reason": None if scored else "sql_unparseable",
        "says_right": p >= 0.5 if p is not None else None,
        "phi": phi,
        "gamma": max(p, 1 - p) if p is not None else None,
        "p_right": p,
        "seen": False,
    } | values


def answers(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame_of(rows, ANSWERS)


def some_answers(count: int = 60) -> pl.DataFrame:
    """Answers of six agents on four databases; better scores are more often right, and agents differ."""
    rng = np.random.default_rng(3)
    rows = []
    for n in range(count * 6):
        skill = 0.3 + 0.1 * (n % 6)
        right = bool(rng.random() < skill)
        phi = float(np.clip(rng.normal(60 if right else 40, 20) + 20 * skill, 0, 100).round())
        types = [] if right else ["Value-Related Errors/Value Mismatch"] if n % 2 else ["Table-Related Errors/Table Missing"]
        place = {"agent": f"agent-{n % 6}", "database": f"db-{(n // 6) % 4}", "question": f"question {n // 6}"}
        rows.append(answer(n, phi=phi, right=right, error_types=types, **place))
    return answers(*rows)


# --- figures by hand ------------------------------------------------------------------------------------------------


def test_auroc_counts_ties_half() -> None:
    # pairs (right, wrong): 3>2 won, 3>1 won, 2=2 half, 2>1 won: 3.5 of 4
    assert auroc([3, 2, 2, 1], [True, True, False, False]) == 3.5 / 4


def test_auroc_of_one_class_is_not_known() -> None:
    assert auroc([1, 2], [True, True]) is None


def test_kappa_takes_chance_off_the_agreement() -> None:
    # 20 both yes, 5 said only, 10 labelled only, 15 both no: p_o 0.7, p_e 0.5
    said = [True] * 25 + [False] * 25
    right = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15

    assert cohen_kappa(said, right) == pytest.approx(0.4)


def test_kappa_is_not_known_where_chance_always_agrees() -> None:
    assert cohen_kappa([True, True], [True, True]) is None


def test_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    # bin 0.2: stated 0.25, true 0.5 on two rows; bin 0.9: stated 1.0 (the edge belongs to it), true 1.0 on two rows
    assert calibration_error([0.25, 0.25, 1.0, 1.0], [True, False, True, True]) == pytest.approx(0.125)


def test_pairs_are_made_within_one_question_only() -> None:
    scores, right = [0.9, 0.1, 0.5, 0.5, 0.2], [True, False, True, False, False]

    # a: 0.9 > 0.1 won; b: 0.5 = 0.5 half, 0.5 > 0.2 won
    assert pairwise_accuracy(scores, right, ["a", "a", "b", "b", "b"]) == 2.5 / 3


def test_recall_at_false_alarms_is_read_where_the_right_ones_reach_the_share() -> None:
    # ten right answers score 1..10; a tenth of them lies at or below 1
    scores = [*range(1, 11), 0.5, 0.7, 5.0, 9.0]
    right = [True] * 10 + [False] * 4
    every, second = [True] * 14, [*[False] * 11, True, True, False]

    assert recall_at_false_alarms(scores, right, every) == pytest.approx(2 / 4)
    assert recall_at_false_alarms(scores, right, second) == pytest.approx(1 / 2)


def test_recall_at_false_alarms_counts_a_tie_at_the_cut_in_part() -> None:
    # all score alike: alarming at a tenth of the right ones catches a tenth of the wrong ones
    assert recall_at_false_alarms([1.0] * 4, [True, True, False, False], [True] * 4) == pytest.approx(0.1)


def test_spearman_is_that_of_mean_ranks() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert spearman([1, 1, 2], [1, 1, 5]) == pytest.approx(1.0)
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_best_cut_lies_midway_between_the_scores_it_parts() -> None:
    assert best_cut([10, 20, 40, 80], [False, False, True, True]) == 30
    assert best_cut([80, 10], [False, True]) is None
    assert best_cut([50, 50], [False, True]) is None


def test_roc_runs_from_corner_to_corner_and_ties_make_one_step() -> None:
    assert roc_points([3, 2, 2, 1], [True, True, False, False]) == ((0, 0), (0, 0.5), (0.5, 1), (1, 1))
    assert roc_points([1, 2], [True, True]) == ()


# --- laws -----------------------------------------------------------------------------------------------------------


@given(scored_rows)
def test_auroc_does_not_change_under_a_monotone_transform(rows: list[tuple[int, bool]]) -> None:
    scores, right = np.array([s for s, _ in rows], dtype=float), [r for _, r in rows]

    assert auroc(scores, right) == auroc(np.exp(scores) - 7, right)


@given(scored_rows)
def test_auroc_turns_over_with_the_scores(rows: list[tuple[int, bool]]) -> None:
    scores, right = np.array([s for s, _ in rows], dtype=float), [r for _, r in rows]
    found = auroc(scores, right)

    assert found is None or auroc(-scores, right) == pytest.approx(1 - found)


@given(scored_rows)
def test_area_below_the_roc_is_the_auroc(rows: list[tuple[int, bool]]) -> None:
    scores, right = [s for s, _ in rows], [r for _, r in rows]
    points = roc_points(scores, right)

    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in itertools.pairwise(points))

    assert area == pytest.approx(auroc(scores, right) or 0.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40), st.integers(0, 50))
def test_no_fit_sees_a_database_or_a_question_it_is_judged_on(rows: list[tuple[int, int]], seed: int) -> None:
    databases, questions = [f"d{d}" for d, _ in rows], [f"q{q}" for _, q in rows]

    folds = grouped_folds(databases, questions, folds=3, seed=seed)

    for k in set(folds.tolist()):
        seen = fit_side(folds, questions, k)
        held = folds == k
        assert not {q for q, s in zip(questions, seen, strict=True) if s} & {
            q for q, h in zip(questions, held, strict=True) if h
        }
        if len(set(databases)) > 1:
            fitted_on = {d for d, s in zip(databases, seen, strict=True) if s}
            assert not fitted_on & {d for d, h in zip(databases, held, strict=True) if h}


def test_one_database_is_parted_by_question() -> None:
    folds = grouped_folds(["d"] * 6, ["a", "a", "b", "b", "c", "c"], folds=3, seed=1)

    assert len(set(folds.tolist())) == 3
    assert all(folds[i] == folds[i + 1] for i in (0, 2, 4))


# --- the whole ------------------------------------------------------------------------------------------------------


def test_calibration_says_what_the_rows_say() -> None:
    rows = [
        answer(n, phi=phi, right=right) for n, (phi, right) in enumerate([(90, True), (80, False), (60, True), (20, False)])
    ]

    found = calibrate(answers(*rows, answer(9, phi=None, right=True)), Plan(threshold=75, resamples=20))

    assert (found.rows, found.scored, found.coverage, dict(found.unscored)) == (5, 4, 0.8, {"sql_unparseable": 1})
    assert found.phi is not None
    assert found.p_right is not None
    assert found.base_rate.value == 0.5
    decision = found.phi.decision
    assert (decision.accuracy.value, decision.precision.value, decision.recall.value) == (0.5, 0.5, 0.5)
    assert (decision.f1.value, decision.kappa.value) == (0.5, 0.0)
    assert found.p_right.decision.accuracy.value == 0.75
    assert found.phi.auroc.value == 0.75
    assert found.p_right_reliability is not None
    assert [b.rows for b in found.p_right_reliability.bins] == [1, 1, 1, 1]


def test_every_figure_lies_in_its_interval_and_the_interval_has_width() -> None:
    found = calibrate(some_answers(), Plan(resamples=200))

    assert found.phi is not None
    for interval in (found.phi.auroc, found.phi.pairwise, found.phi.within_agent, found.phi.decision.kappa, found.base_rate):
        assert interval.value is not None
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low <= interval.value <= interval.high
        assert interval.high - interval.low > 0.01


def test_the_same_seed_gives_the_same_figures_and_another_other_intervals() -> None:
    rows = some_answers(20)

    first, again, other = (calibrate(rows, Plan(resamples=50, seed=seed)).to_json() for seed in (1, 1, 2))

    assert first == again
    assert first["phi"]["auroc"]["value"] == other["phi"]["auroc"]["value"]
    assert first["phi"]["auroc"]["low"] != other["phi"]["auroc"]["low"]


def test_resampling_draws_questions_and_not_rows() -> None:
    # one question whose answers all repeat: no draw can differ, so the interval has no width
    rows = [answer(n, phi=90.0 if n % 2 else 10.0, right=n % 3 > 0, question="the only one") for n in range(30)]

    found = calibrate(answers(*rows), FEW)

    assert found.phi is not None
    assert found.phi.auroc.low == pytest.approx(found.phi.auroc.value)
    assert found.phi.auroc.high == pytest.approx(found.phi.auroc.value)


def test_chunks_of_draws_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_answers(20)
    whole = calibrate(rows, FEW).to_json()

    monkeypatch.setattr("stef_core.calibration.CELLS", 500)

    assert calibrate(rows, FEW).to_json() == whole


def test_within_agent_leaves_out_what_only_tells_agents_apart() -> None:
    # the score knows the agent and nothing else
    rows = [
        answer(n, phi=80.0 if n % 2 else 20.0, right=(n % 10 != 1) if n % 2 else (n % 10 == 0), agent=f"a{n % 2}")
        for n in range(40)
    ]

    found = calibrate(answers(*rows), FEW)

    assert found.phi is not None
    assert found.phi.auroc.value == pytest.approx(0.8)
    assert found.phi.within_agent.value == pytest.approx(0.5)


def test_a_cut_is_judged_where_it_was_not_fitted() -> None:
    # databases agree on where the cut lies, except the one that turns it over
    rows = []
    for n in range(80):
        right = n % 4 < 2
        phi = (70.0 if right else 30.0) if n < 60 else (30.0 if right else 70.0)
        rows.append(answer(n, phi=phi, right=right, database=f"db-{n // 20}"))

    found = calibrate(answers(*rows), FEW)

    assert found.phi_fitted is not None
    assert found.phi_fitted.cuts == (50.0,) * 4
    assert found.phi_fitted.decision.accuracy.value == 0.75
    assert found.split_by == "database and question"


def test_error_types_are_told_by_main_and_sub_type() -> None:
    found = calibrate(some_answers(), FEW)

    assert found.error_types[0].name == "all wrong answers"
    assert {row.name for row in found.error_types[1:]} == {"Value-Related Errors", "Table-Related Errors"}
    assert {row.name for row in found.error_sub_types} == {
        "Value-Related Errors/Value Mismatch",
        "Table-Related Errors/Table Missing",
    }
    assert sum(row.rows for row in found.error_sub_types) == found.error_types[0].rows


def test_agents_are_ranked_when_there_are_five_with_enough_rows() -> None:
    many, few = calibrate(some_answers(60), FEW), calibrate(some_answers(20), FEW)

    assert many.ranking is not None
    assert many.ranking.agents == 6
    assert many.ranking.phi.value is not None
    assert many.ranking.phi.value > 0.7
    assert few.ranking is None  # twenty rows an agent say little


def test_small_groups_are_marked_and_one_group_is_not_told_again() -> None:
    rows = [answer(n, phi=50.0 + n % 7, right=n % 2 == 0, agent="big" if n < 40 else "small") for n in range(45)]

    groups = calibrate(answers(*rows), FEW).groups

    assert [(g.name, g.rows, g.small) for g in groups["agent"]] == [("big", 40, False), ("small", 5, True)]
    assert "source" not in groups


def test_sources_of_one_label_are_pointed_at() -> None:
    rows = [answer(n, phi=50.0, right=n % 2 == 0 and n < 6, source="mixed" if n < 6 else "failures") for n in range(10)]

    notes = calibrate(answers(*rows), FEW).notes

    assert any(note.startswith("All answers of failures are wrong") for note in notes)


@pytest.mark.parametrize("right", [True, False])
def test_labels_of_one_kind_leave_figures_unknown(right: bool) -> None:
    found = calibrate(answers(*(answer(n, phi=10.0 * n, right=right) for n in range(8))), FEW)

    assert found.phi is not None
    assert found.phi.auroc.value is None
    assert found.error_types == ()
    assert any("All labels are equal" in note for note in found.notes)


def test_nothing_scored_is_told_and_not_measured() -> None:
    found = calibrate(answers(answer(0, phi=None, right=True)), FEW)

    assert (found.coverage, found.phi, found.roc) == (0.0, None, {})
    assert found.notes[-1] == "No row could be scored, so there is nothing to measure."


def test_a_judge_without_p_right_leaves_phi_and_gamma() -> None:
    found = calibrate(answers(*(answer(n, phi=10.0 * n, right=n > 4, p_right=None) for n in range(10))), FEW)

    assert found.p_right is None
    assert found.p_right_reliability is None
    assert found.gamma_reliability is not None
    assert found.phi is not None
    assert found.phi.auroc.value == 1.0


# --- from labelled rows to answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "features"),
    [
        ("SELECT name FROM t", {"no join"}),
        ("SELECT COUNT(*) FROM t JOIN u ON t.id = u.t_id", {"aggregation", "1 join"}),
        ("SELECT a FROM t WHERE b > (SELECT AVG(b) FROM t)", {"nested", "no join"}),
        ("SELECT a FROM t UNION SELECT a FROM u", {"set operation", "no join"}),
        ("SELECT a, RANK() OVER (ORDER BY b) FROM t", {"window", "no join"}),
        (
            "SELECT a, SUM(b) FROM t GROUP BY a ORDER BY SUM(b) DESC LIMIT 3",
            {"aggregation", "grouping", "order and limit", "no join"},
        ),
    ],
)
def test_features_say_what_makes_an_sql_hard(sql: str, features: set[str]) -> None:
    assert set(features_of(extract_sql(sql, "sqlite"))) == features


def shop_rows() -> list[LabelledRow]:
    """Answers to own questions: the wrong ones filter for another town or count where a sum is asked."""
    towns = ("Bergen", "Kiruna", "Tampere", "Aarhus", "Porvoo", "Narvik", "Luleå", "Turku")
    rows = []
    for n, town in enumerate(towns):
        database = f"shop-{n % 4}"
        for right in (True, False):
            wanted = town if right else "Oslo"
            record = QueryRecord(
                query_id=f"{town}-{right}",
                user_question=f"How many customers live in {town}?",
                generated_sql=f"SELECT COUNT(*) FROM customers WHERE town = '{wanted}'",
                dialect="sqlite",
                app_id=database,
            )
            rows.append(LabelledRow(record=record, right=right, database=database, source="ours", agents=("clerk",)))
    return rows


def test_judged_rows_are_measured_and_labels_do_not_reach_the_judge() -> None:
    rows = shop_rows()
    turned = [LabelledRow(record=r.record, right=not r.right, database=r.database, source=r.source) for r in rows]

    judged = judge_rows(rows, default_rules, OfflineReader(), SymbolicJudge())

    assert judge_rows(turned, default_rules, OfflineReader(), SymbolicJudge()) == judged
    found = calibrate(answers_of(rows, judged), FEW)
    assert found.coverage == 1.0
    assert found.phi is not None
    assert found.phi.pairwise.value == 1.0


def test_equal_answers_of_several_agents_are_judged_once_and_count_for_each() -> None:
    row = shop_rows()[0]
    twice = [row, LabelledRow(record=row.record, right=True, database=row.database, source="ours", agents=("a", "b", "c"))]
    asked = []

    class Counting(SymbolicJudge):
        def judge_many(self, evidence: Any, rules: Any) -> Any:
            asked.extend(evidence)
            return super().judge_many(evidence, rules)

    judged = judge_rows(twice, default_rules, OfflineReader(), Counting())

    assert len(asked) == 1
    assert answers_of(twice, judged)["agent"].to_list() == ["clerk", "a", "b", "c"]


def test_refitted_scores_come_from_fits_that_saw_neither_database_nor_question() -> None:
    rows = shop_rows()
    plan = Plan(folds=4, seed=1)
    flipped = [
        LabelledRow(
            record=r.record, right=(not r.right) if r.database == "shop-0" else r.right, database=r.database, source="ours"
        )
        for r in rows
    ]

    first = judge_rows_refitted(rows, default_rules, plan=plan)
    second = judge_rows_refitted(flipped, default_rules, plan=plan)

    for row, before, after in zip(rows, first, second, strict=True):
        assert before.verdict is not None
        assert after.verdict is not None
        # labels of a database move every fit but the one that judges it
        assert (before.verdict.p_right == after.verdict.p_right) == (row.database == "shop-0")
    assert not any(answers_of(rows, first, refitted=True)["seen"])


def test_questions_of_the_shipped_fit_are_known_by_their_hash() -> None:
    assert len(fitted_questions()) > 500
    assert seen_by_fit("How many lighthouses did the ferry company of Ålesund paint last spring?", "symbolic-v1") is False
    assert seen_by_fit("anything", "another-model") is None
