"""Prompts are pinned: any change of what a model is sent shows up here, and is a new version.

After a change that is meant, ``python -m tests.core.test_prompts`` writes the snapshots anew.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stef_core.extract.question_llm import question_request
from stef_core.findings import finding
from stef_core.judge.llm import judge_request
from stef_core.llm import ChatRequest
from stef_core.prompts import load_prompt
from stef_core.records import (
    Aggregation,
    Alignment,
    DatePart,
    Enrichment,
    Evidence,
    Filter,
    Mentions,
    QueryRecord,
    QuestionSpec,
    Reading,
    SqlSpec,
)
from stef_core.redact import Redaction
from stef_core.rules import DEFAULT_RULES, BenignFilter, MetricDefinition, Rules

SNAPSHOTS = Path(__file__).parent.parent / "golden" / "prompts.json"

PLAIN = QueryRecord(query_id="1", user_question="List all lighthouses", generated_sql="SELECT name FROM lighthouses")
RICH = QueryRecord(
    query_id="2",
    user_question="Revenue of the 'Aurora' tours in 2024 for kim@example.org?",
    enriched_question="Sum of fare for tours named Aurora in 2024 booked by kim@example.org, cancelled ones left out",
    generated_sql=(
        "SELECT SUM(fare) FROM bookings WHERE tour = 'Aurora' AND email = 'kim@example.org' "
        "AND EXTRACT(YEAR FROM sailed_on) = 2024 AND tenant_id = 7 -- as asked"
    ),
    dialect="postgres",
)
KEY = b"a key that is no secret, of tests"
RULES = Rules(
    app_id="tours",
    column_mappings={"tour": "tour_name"},
    metric_definitions={"revenue": MetricDefinition(func="sum", column="fare")},
    benign_filters=[BenignFilter(column="tenant_id", op="=")],
    redact=["email"],
    judge_notes=["A tour is sold once a day."],
)
LEMMAS = frozenset({"revenue", "aurora", "tour", "2024"})


def rich_evidence() -> Evidence:
    tour = Filter(column="tour", value="aurora", raw=("Aurora",))
    mail = Filter(column="email", value="kim@example.org", raw=("kim@example.org",))
    year = Filter(column=DatePart(part="year", column="sailed_on"), value=2024, raw=("2024",))
    tenant = Filter(column="tenant_id", value=7, raw=("7",))
    fare = Aggregation(func="sum", column="fare")
    question = QuestionSpec(
        aggregations=(fare,), filters=(tour, mail, year), target="tours", mentions=Mentions(lemmas=LEMMAS), reader="llm"
    )
    return Evidence(
        record=RICH,
        reading=Reading(
            question=question,
            enriched=replace(question, filters=(*question.filters, Filter(column="cancelled", value=False))),
            sql=SqlSpec(
                parse_status="ok",
                dialect="postgres",
                aggregations=(fare,),
                filters=(tour, mail, year, tenant),
                tables=("bookings",),
                columns=tuple(("bookings", name) for name in ("fare", "tour", "email", "sailed_on", "tenant_id")),
            ),
        ),
        alignment=Alignment(
            filter_status="fully_applied_with_extras",
            required=(tour, mail, year),
            matched=(tour, mail, year),
            extra=(tenant,),
            benign=(tenant,),
        ),
        enrichment=Enrichment(status="adds"),
        findings=(finding("enrichment_adds", "'cancelled ones left out' was not asked for", stage="enrichment"),),
    )


def plain_evidence() -> Evidence:
    question = QuestionSpec(projections=("name",), target="lighthouses")
    sql = SqlSpec(parse_status="ok", projections=("name",), tables=("lighthouses",), columns=(("lighthouses", "name"),))
    return Evidence(
        record=PLAIN,
        reading=Reading(question=question, enriched=None, sql=sql),
        alignment=Alignment(filter_status="fully_applied"),
        enrichment=Enrichment(status="absent"),
    )


REQUESTS: dict[str, ChatRequest] = {
    "question_plain": question_request(PLAIN, DEFAULT_RULES, "some-model", marker_key=KEY),
    "question_rich": question_request(
        RICH,
        RULES,
        "some-model",
        QuestionSpec(mentions=Mentions(lemmas=LEMMAS)),
        Redaction(("kim@example.org",), numbered=True),
        KEY,
    ),
    "judge_plain": judge_request(plain_evidence(), DEFAULT_RULES, "some-model", KEY),
    "judge_rich": judge_request(rich_evidence(), RULES, "some-model", KEY),
}


def rendered() -> dict[str, Any]:
    def lines(request: ChatRequest) -> dict[str, Any]:
        system, user = request.messages
        prompt = "question_v2" if request.schema_name.startswith("question") else "judge_v2"
        assert system.content == load_prompt(prompt).text
        return {"system": load_prompt(prompt).version, "user": user.content.splitlines(), "key": request.key}

    return {name: lines(request) for name, request in REQUESTS.items()}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_what_a_model_is_sent_is_what_the_snapshot_says(name: str) -> None:
    snapshots = json.loads(SNAPSHOTS.read_text(encoding="utf-8"))

    assert rendered()[name] == snapshots[name]


def test_a_prompt_carries_the_version_of_its_text() -> None:
    prompt = load_prompt("judge_v2")

    assert prompt.name == "judge_v2"
    assert prompt.version.startswith("judge_v2@")
    assert prompt.version != load_prompt("question_v2").version


def test_a_prompt_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_prompt("judge_v0")


if __name__ == "__main__":
    SNAPSHOTS.write_text(json.dumps(rendered(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
