"""What docs/concepts.md and docs/rules.md say in words, as their tables are made: the example means what the text says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from stef_core import Evaluation, Rules, evaluate
from stef_core.bearing import ENTRIES, WHOLE
from stef_core.rules import rules_schema
from stef_core.scoring import BANDS
from tests.docs_concepts import ANSWERS, BARE, CONCEPTS, LOG, SQL, VARIANTS, WITH_LOG, YEAR, evidence_of, judged
from tests.docs_rules import EXAMPLES, OTHERS, REDACTED, RULES_PAGE, Example, masked

PAGE = CONCEPTS.read_text(encoding="utf-8")
GUIDE = RULES_PAGE.read_text(encoding="utf-8")
LAST = "the reformulation loses the year, and the SQL follows it"


def status_of(evaluation: Evaluation) -> str:
    assert evaluation.alignment is not None
    return evaluation.alignment.filter_status


def phi_of(evaluation: Evaluation) -> float:
    assert evaluation.score is not None
    return evaluation.score.phi


# --- concepts -------------------------------------------------------------------------------------------------------


def test_sum_of_the_page_is_that_of_the_judge() -> None:
    from stef_core.judge.model import load_model

    evaluation = VARIANTS["as it stands"]

    model = load_model()
    p_right = model.p_right(model.terms(evidence_of(evaluation)))

    assert evaluation.verdict is not None
    assert evaluation.verdict.p_right == round(p_right, 4)
    assert evaluation.verdict.grade == model.grade(p_right)


def test_example_lacks_a_condition_and_has_one_too_many() -> None:
    assert [f.code for f in VARIANTS["as it stands"].findings] == ["missing_filter", "extra_filter"]
    assert {f.stage for f in VARIANTS["as it stands"].findings} == {"generation"}
    assert list(VARIANTS)[-1] == LAST


@pytest.mark.parametrize(
    "year",
    [YEAR, " AND cancelled_on >= '2025-01-01' AND cancelled_on < '2026-01-01'", " AND EXTRACT(YEAR FROM booked_on) = 2025"],
)
def test_year_is_one_condition_in_several_spellings(year: str) -> None:
    assert status_of(judged(BARE + year)) == "fully_applied"


def test_year_of_another_column_is_taken_with_less_confidence() -> None:
    pair = [judged(BARE + YEAR), judged(BARE + YEAR.replace("cancelled_on", "booked_on"))]

    confidences = [evaluation.verdict.confidence for evaluation in pair if evaluation.verdict]
    assert confidences == sorted(confidences, reverse=True)  # type: ignore[type-var]  # both are judged
    assert confidences[0] != confidences[1]


def test_case_of_text_does_not_count() -> None:
    assert status_of(judged(BARE.replace("Lisbon", "LISBON") + YEAR)) == "fully_applied"


def test_reformulation_adds_a_condition_only_where_it_is_trusted() -> None:
    more = "Number of bookings with city = Lisbon and status = cancelled and channel = web in the year 2025"
    sql = BARE + YEAR + " AND channel = 'web'"

    assert status_of(judged(sql, enriched=more)) == "fully_applied_with_extras"
    assert status_of(judged(sql, enriched=more, rules=Rules(trust_enrichment=True))) == "fully_applied"


def test_filter_statuses_are_as_the_page_explains_them() -> None:
    assert status_of(judged(BARE + YEAR)) == "fully_applied"
    assert status_of(judged(SQL + YEAR)) == "fully_applied_with_extras"
    assert status_of(judged(BARE)) == "partially_applied"
    assert status_of(judged("SELECT COUNT(*) FROM bookings")) == "not_applied"
    without_city = BARE.replace("city = 'Lisbon' AND ", "") + YEAR
    assert status_of(judged(without_city, enriched="", rules=Rules(critical_filters=["city"]))) == "not_applied"


def test_answer_that_departs_nowhere_may_end_below_excellent() -> None:
    evaluation = VARIANTS["the year is in the SQL, and `is_test` is not"]

    assert evaluation.findings == ()
    assert 50 < phi_of(evaluation) < 90


def test_fault_of_the_reformulation_is_told_apart() -> None:
    evaluation = VARIANTS[LAST]

    assert [(f.code, f.stage) for f in evaluation.findings] == [
        ("missing_filter", "enrichment"),
        ("missing_filter", "generation"),
        ("enrichment_drops", "enrichment"),
    ]
    assert evaluation.enrichment is not None
    assert evaluation.enrichment.status == "drops"
    assert phi_of(evaluation) < 50


@pytest.mark.parametrize("sql", ["", "UPDATE bookings SET status = 'open'", "SELECT 1; SELECT 2"])
def test_fault_of_the_agent_scores_zero(sql: str) -> None:
    assert phi_of(judged(sql)) == 0


def test_log_speaks_against_the_wrong_owner_and_the_wrong_join_and_for_the_right_one() -> None:
    change = [phi_of(beside) - phi_of(alone) for alone, beside in WITH_LOG.values()]

    assert len(LOG) * ANSWERS == 12, "the page says twelve"
    assert [value > 0 for value in change] == [False, True, False]
    assert 0 not in change


def test_bands_of_the_page_are_those_of_the_score() -> None:
    for lowest, band in BANDS[:-1]:
        assert f"`{band}` from {lowest}" in PAGE


# --- rules ----------------------------------------------------------------------------------------------------------


def test_every_kind_of_rule_has_its_heading_and_no_other_has() -> None:
    kinds = {*ENTRIES, *WHOLE}
    headings = re.findall(r"^### (\w+)$", GUIDE, flags=re.MULTILINE)

    assert sorted(headings) == sorted(kinds) == sorted(set(rules_schema()["properties"]) - {"$schema", "app_id", "version"})
    assert {*EXAMPLES, *OTHERS} == kinds


def test_json_of_the_guide_is_rules() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", GUIDE, flags=re.DOTALL | re.MULTILINE)
    shown += re.findall(r"`(\{\"judge_notes\".*?\})`", GUIDE)

    assert len(shown) == len(EXAMPLES) + 3
    for text in shown:
        assert Rules.model_validate(json.loads(text)) != Rules()


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))
def test_rule_changes_the_answer_of_its_example(example: Example) -> None:
    without, beside = example.judged()

    assert len(example.rule) == 1
    assert (without.score, without.status) != (beside.score, beside.status)


def test_mappings_work_in_both_directions_and_follow_chains() -> None:
    example = EXAMPLES["column_mappings"]
    turned = Rules(column_mappings={"val_net": "amount", "rgn": "r", "r": "region"})

    assert evaluate(example.record, turned).score == example.judged()[1].score


def test_benign_filter_is_no_excuse_where_the_question_asks_about_the_column() -> None:
    example = EXAMPLES["benign_filters"]
    asked = Example(rule=example.rule, question="How many orders has tenant_id 9?", sql=example.sql)

    evaluation = evaluate(asked.record, asked.rules)

    assert "extra_filter" in {f.code for f in evaluation.findings}
    assert evaluation.score is not None
    assert evaluation.score.lenient == 0


def test_operators_of_benign_filters_are_all_named() -> None:
    schema: Any = rules_schema()

    operators = schema["$defs"]["BenignFilter"]["properties"]["op"]["enum"]
    named = re.search(r"The operator binds: one of (.*?)\. `value`", GUIDE, flags=re.DOTALL)
    assert named is not None
    assert re.findall(r"`([^`]+)`", named[1]) == operators


def test_symbolic_judge_does_not_weigh_an_order_that_nobody_asked_for() -> None:
    example = Example(
        rule={"tolerate_order_by": False},
        question="List the names of customers from Lisbon",
        sql="SELECT name FROM customers WHERE city = 'Lisbon' ORDER BY created_at",
    )
    without, beside = example.judged()

    assert without.score == beside.score
    assert [each.alignment.order_by_tolerated for each in (without, beside) if each.alignment] == [True, False]


def test_defaults_that_the_guide_tells_are_the_defaults() -> None:
    assert (Rules().safety_limit_min, Rules().tolerate_order_by, Rules().no_sql) == (1000, True, "score")
    assert "1000 unless set" in GUIDE


def test_what_the_guide_hides_is_hidden() -> None:
    assert all(text not in " ".join(masked()) for text in ("Ana", "K-104377", "ana@example.org"))
    assert "Ana" in REDACTED.question
