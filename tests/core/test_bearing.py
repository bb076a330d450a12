"""Rules reach a row narrowly: a change that cannot bear on it leaves its hash, its prompts and its result as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stef_core.bearing import bearing_rules
from stef_core.evaluate import Examined, Read, evaluate, examine, read_many
from stef_core.extract.question_llm import question_request
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.llm import judge_request
from stef_core.records import Evaluation, QueryRecord
from stef_core.rules import Rules

KINDS = json.loads((Path(__file__).parents[1] / "golden" / "kinds.json").read_text(encoding="utf-8"))
CHANGES: list[dict[str, Any]] = [
    {"benign_filters": [{"column": "status", "op": "=", "value": "*"}]},
    {"benign_filters": [{"column": "*_deleted", "op": "=", "value": False}]},
    {"benign_filters": [{"column": "tenant*", "op": "=", "value": "*"}]},
    {"column_mappings": {"town": "city"}},
    {"column_mappings": {"price": "amount", "cost": "price"}},
    {"value_mappings": {"status": {"open": "O"}}},
    {"value_mappings": {"country": {"Germany": "DE"}}},
    {"critical_filters": ["tenant_id", "country"]},
    {"metric_definitions": {"revenue": {"func": "sum", "column": "amount"}}},
    {"metric_definitions": {"customers": {"func": "count", "column": "customer_id"}}},
    {"safety_limit_min": 5},
    {"tolerate_order_by": False},
    {"trust_enrichment": True},
    {"no_sql": "exclude"},
]


def records() -> Iterator[QueryRecord]:
    for number, case in enumerate(KINDS):
        yield QueryRecord(
            query_id=str(number),
            user_question=case.get("user_question"),
            enriched_question=case.get("enriched_question"),
            generated_sql=case.get("sql"),
            dialect=case.get("dialect"),
        )


ROWS = list(records())[::2]


@pytest.fixture(scope="module")
def examined() -> list[tuple[Read, Examined, Evaluation]]:
    """Each row read and judged under the default rules."""
    read = read_many(ROWS, [Rules()] * len(ROWS), OfflineReader())
    return [(row, examine(row, Rules()), evaluate(row.record)) for row in read]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: json.dumps(change)[:60])
def test_a_row_whose_bearing_rules_stay_keeps_its_result_and_its_prompts(
    change: dict[str, Any], examined: list[tuple[Read, Examined, Evaluation]]
) -> None:
    before, after = Rules(), Rules.model_validate(change)
    kept = 0

    for read, row, old in examined:
        record, question = read.record, read.reading.question
        if bearing_rules(before, read.reading).content_hash != bearing_rules(after, read.reading).content_hash:
            continue
        kept += 1
        new = evaluate(record, after)
        assert (old.score, old.verdict, old.findings, old.reason) == (new.score, new.verdict, new.findings, new.reason), record
        if (record.user_question or "").strip():
            assert question_request(record, before, "m", question).key == question_request(record, after, "m", question).key
        if row.evidence is not None:
            assert judge_request(row.evidence, before, "m").key == judge_request(row.evidence, after, "m").key

    assert len(ROWS) / 4 < kept <= len(ROWS)


def test_the_bearing_part_has_a_hash_of_its_own() -> None:
    rules = Rules.model_validate({"critical_filters": ["tenant_id"]})
    whole = rules.content_hash  # asked first: a hash that is kept must not be taken over

    assert rules.bearing_on(frozenset(), frozenset()).content_hash == Rules().content_hash != whole
