"""The made parts of docs/rules.md: each kind of rule on an invented answer, evaluated without it and with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stef_core import Evaluation, QueryRecord, Rules, evaluate
from stef_core.extract.sql import extract_sql
from stef_core.redact import redaction
from tests.docs_parts import remade, table

RULES_PAGE = Path(__file__).parents[1] / "docs" / "rules.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A rule, and an answer that it bears on."""

    rule: Mapping[str, Any]
    question: str
    sql: str
    enriched: str | None = None

    @property
    def record(self) -> QueryRecord:
        """The answer as a row of the log."""
        return QueryRecord(query_id="1", user_question=self.question, enriched_question=self.enriched, generated_sql=self.sql)

    @property
    def rules(self) -> Rules:
        """The rule alone, as a rules file would have it."""
        return Rules.model_validate(self.rule)

    def judged(self) -> tuple[Evaluation, Evaluation]:
        """The answer without the rule, and with it."""
        return evaluate(self.record), evaluate(self.record, self.rules)


EXAMPLES: Mapping[str, Example] = {
    "dialect": Example(
        rule={"dialect": "bigquery"},
        question="How many orders came from Lisbon?",
        sql='SELECT COUNT(*) FROM orders WHERE city = "Lisbon"',
    ),
    "column_mappings": Example(
        rule={"column_mappings": {"amount": "val_net", "region": "rgn"}},
        question="What is the average amount of orders by region?",
        sql="SELECT rgn, AVG(val_net) FROM orders GROUP BY rgn",
    ),
    "value_mappings": Example(
        rule={"value_mappings": {"status": {"open": "O"}}},
        question="How many orders with status open?",
        sql="SELECT COUNT(*) FROM orders WHERE status = 'O'",
    ),
    "benign_filters": Example(
        rule={"benign_filters": [{"column": "tenant_id", "op": "=", "value": "*"}]},
        question="How many orders are there?",
        sql="SELECT COUNT(*) FROM orders WHERE tenant_id = 7",
    ),
    "critical_filters": Example(
        rule={"critical_filters": ["region"]},
        question="How many orders in region North have status open?",
        sql="SELECT COUNT(*) FROM orders WHERE status = 'open'",
    ),
    "metric_definitions": Example(
        rule={"metric_definitions": {"revenue": {"func": "sum", "column": "total_net"}}},
        question="What was the revenue in 2025?",
        sql="SELECT SUM(total_net) FROM orders WHERE EXTRACT(YEAR FROM order_date) = 2025",
    ),
    "safety_limit_min": Example(
        rule={"safety_limit_min": 500},
        question="List the names of customers from Lisbon",
        sql="SELECT name FROM customers WHERE city = 'Lisbon' LIMIT 500",
    ),
    "trust_enrichment": Example(
        rule={"trust_enrichment": True},
        question="How many orders came from Lisbon?",
        enriched="Number of orders with city = Lisbon and status = completed",
        sql="SELECT COUNT(*) FROM orders WHERE city = 'Lisbon' AND status = 'completed'",
    ),
    "no_sql": Example(rule={"no_sql": "exclude"}, question="What will we sell next year?", sql=""),
}
REDACTED = Example(
    rule={"redact": ["customer_name", {"kind": "email"}, {"pattern": "K-\\d{6}", "name": "customer_no"}]},
    question="Which orders has Ana Reis (K-104377, ana@example.org) open?",
    sql="SELECT order_id FROM orders WHERE customer_name = 'Ana Reis' AND customer_no = 'K-104377' AND status = 'open'",
)
# what no table of an answer can show: who sees it is a model, or nobody
OTHERS = ("tolerate_order_by", "judge_notes", "redact")


def rules_page() -> str:
    """``docs/rules.md`` with its made parts made anew."""
    return remade(RULES_PAGE, {name: partial(_part, example) for name, example in EXAMPLES.items()} | {"redact": _redacted})


def _part(example: Example) -> str:
    rows = [
        [name, *_told(evaluation)] for name, evaluation in zip(("without the rule", "with it"), example.judged(), strict=True)
    ]
    return "\n".join([*_head(example), table(" | filters | verdict | Φ | findings", rows)])


def _head(example: Example) -> list[str]:
    texts = {"question": example.question, "reformulation": example.enriched, "SQL": example.sql or "(none)"}
    said = [f"{name:<14} {text}" for name, text in texts.items() if text]
    return ["```json", json.dumps(example.rule), "```", "", "```text", *said, "```", ""]


def _told(evaluation: Evaluation) -> list[str]:
    findings = "<br>".join(f"`{f.code}`: {f.message}" for f in evaluation.findings) or "–"
    if evaluation.score is None or evaluation.verdict is None:
        return ["–", "–", f"unscored, `{evaluation.reason}`", findings]
    filters = f"`{evaluation.alignment.filter_status}`" if evaluation.alignment else "–"
    return [filters, f"`{evaluation.verdict.grade}`", f"{evaluation.score.phi:g}", findings]


def masked() -> tuple[str, str]:
    """Question and SQL of the example as they are stored."""
    hidden = redaction(REDACTED.rules, extract_sql(REDACTED.sql), record=REDACTED.record)
    return hidden.mask(REDACTED.question), hidden.mask(REDACTED.sql)


def _redacted() -> str:
    question, sql = masked()
    return "\n".join(
        [*_head(REDACTED), "What is stored:", "", "```text", f"question       {question}", f"SQL            {sql}", "```"]
    )
