"""Whether a reformulated question is true to the question."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stef_core.enrichment import compare_enrichment
from stef_core.extract.question_offline import OfflineReader
from stef_core.records import Enrichment, QueryRecord, Reading, SqlSpec
from stef_core.rules import DEFAULT_RULES, Rules

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "golden" / "enrichment.json").read_text("utf-8"))


def compare(question: str, enriched: str | None, rules: Rules = DEFAULT_RULES) -> Enrichment:
    record = QueryRecord(query_id="q", user_question=question, enriched_question=enriched, generated_sql="SELECT 1")
    (pair,) = OfflineReader().read_many([record], [rules])
    assert pair.question is not None
    return compare_enrichment(
        record, Reading(question=pair.question, enriched=pair.enriched, sql=SqlSpec(parse_status="ok")), rules
    )


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_enrichment_matches_golden_case(case: dict[str, Any]) -> None:
    enrichment = compare(case["user_question"], case["enriched_question"])

    assert enrichment.status == case["expect"]["status"], [f.message for f in enrichment.findings]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_every_departure_has_a_finding_of_its_code_and_stage(case: dict[str, Any]) -> None:
    enrichment = compare(case["user_question"], case["enriched_question"])

    codes = {f.code for f in enrichment.findings}
    assert {f.stage for f in enrichment.findings} <= {"enrichment"}
    assert (f"enrichment_{enrichment.status}" in codes) == (enrichment.status not in ("absent", "faithful"))


def test_mapped_column_is_the_same_grouping() -> None:
    rules = Rules(column_mappings={"zone": "district"})

    assert compare("Total order amount per zone", "Total order amount per district", rules).status == "faithful"


def test_other_languages_are_not_held_against_the_reformulation() -> None:
    assert compare("Hoeveel klanten hebben we in Gent?", "Count the customers whose city is Ghent.").status == "faithful"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_no_texts_make_the_comparison_raise(question: str, enriched: str) -> None:
    assert compare(question, enriched).status in ("absent", "faithful", "adds", "drops", "contradicts")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([c["user_question"] for c in GOLDEN]))
def test_a_question_repeated_word_for_word_is_faithful(question: str) -> None:
    assert compare(question, question).status == "faithful"
