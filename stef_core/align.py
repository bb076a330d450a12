"""Alignment: question side and SQL side against each other, dimension by dimension, under the four production rules.

Each step adds findings; the judge weighs them. Conflict is kept apart from absence: a value that conflicts is damning,
something that was not found may only not have been read.

Source: method.md sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stef_core.align_filters import align_filters
from stef_core.catalogue import Witness
from stef_core.comparison.aggregates import compare_aggregates, compare_ratio
from stef_core.comparison.common import Comparison
from stef_core.comparison.grouping import compare_grouped_total, compare_grouping
from stef_core.comparison.literals import compare_literals, compare_words
from stef_core.comparison.ordering import compare_hinted_extremes, compare_limit, compare_order
from stef_core.comparison.outputs import compare_ids, compare_output_count, compare_outputs
from stef_core.comparison.production import benign_group_by, group_by_required, limit_is_safety, order_by_tolerated
from stef_core.comparison.sets import compare_distinct, compare_joins, compare_sets
from stef_core.comparison.types import compare_types
from stef_core.comparison.witness import compare_witness
from stef_core.findings import CODES, finding
from stef_core.lexicon import words
from stef_core.records import (
    Alignment,
    AllOf,
    Condition,
    Finding,
    QueryRecord,
    QuestionSpec,
    Reading,
    SqlSpec,
)
from stef_core.rules import Rules


def align(record: QueryRecord, reading: Reading, rules: Rules, witness: Witness | None = None) -> Alignment:
    """Compare what was asked with what the SQL does.

    Args:
        record: The row; only its texts are looked at.
        reading: Both specifications.
        rules: R_app.
        witness: What the rest of the log shows; nothing is asked of it where None.

    Returns:
        Filter status with the conditions behind it, the four production rules, and a finding for each departure.
    """
    comparison = Comparison(
        record=record,
        question=reading.question,
        enriched=reading.enriched,
        sql=reading.sql,
        rules=rules,
        witness=witness,
    )
    filters = align_filters(reading, rules, comparison.clauses, comparison.raw)
    comparison.benign, comparison.missing, comparison.extra = (
        tuple(filters.benign),
        tuple(filters.missing),
        tuple(filters.extra),
    )
    comparison.findings = list(filters.findings)
    comparison.support = dict(filters.support)
    for step in STEPS:
        step(comparison)
    return Alignment(
        filter_status=filters.status,
        required=_distinct(filters.required),
        matched=_distinct(filters.matched),
        missing=_distinct(filters.missing),
        extra=_distinct(filters.extra),
        benign=_distinct(filters.benign),
        group_by_required=group_by_required(reading.sql),
        benign_group_by=benign_group_by(reading.sql),
        order_by_tolerated=order_by_tolerated(reading, rules),
        limit_is_safety=limit_is_safety(reading, rules),
        findings=tuple(_staged(comparison)),
        support=tuple(sorted(comparison.support.items())),
    )


def _distinct(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    parts = [p for c in conditions for p in (c.conditions if isinstance(c, AllOf) else (c,))]
    if len(parts) < 2:
        return tuple(parts)  # as most are: no need to write them out
    out: dict[str, Condition] = {}
    for part in parts:
        out.setdefault(repr(part), part)
    return tuple(out.values())


def _staged(c: Comparison) -> Iterator[Finding]:
    """Name the stage at fault: the reformulation, where the SQL is true to it and it is not true to the question."""
    enriched = c.enriched
    for f in c.findings:
        stage = f.stage
        if enriched is not None and stage == "generation" and f.code in _ENRICHMENT_FAULTS and _follows(f, enriched, c.sql):
            stage = "enrichment"
        yield (
            f
            if stage == f.stage
            else finding(
                f.code,
                f.message,
                stage=stage,
                question_part=f.question_part,
                sql_part=f.sql_part,
                kind=f.kind,
                strength=f.strength,
            )
        )


_ENRICHMENT_FAULTS = frozenset(
    "missing_filter wrong_filter_value wrong_filter_operator wrong_aggregation missing_group_by wrong_group_by".split()
)


def _follows(f: Finding, enriched: QuestionSpec, sql: SqlSpec) -> bool:
    """Whether the SQL does what the reformulation says where both leave the question."""
    if enriched.hints and any(h.relevant for h in enriched.hints):
        return False  # evidence explains the question; it does not replace it
    asked = {a.func for a in enriched.aggregations}
    if f.code == "wrong_aggregation":
        return bool(asked & {a.func for a in sql.aggregations})
    if f.code == "wrong_group_by":
        return any(g in sql.group_by for g in enriched.group_by)
    if f.code == "missing_group_by":
        return not enriched.group_by
    wanted = set(words(f.question_part or ""))
    return bool(wanted) and not wanted <= enriched.mentions.lemmas


def compare_defects(c: Comparison) -> None:
    """Faults of the SQL whatever was asked."""
    benign = set(benign_group_by(c.sql))
    for defect in c.sql.defects:
        if defect.kind == "missing_group_by" and benign:
            continue
        code = defect.code if defect.code in CODES else "extra_transformation"
        c.note(
            code,
            defect.message,
            kind=f"defect_{defect.kind}",
            sql_part=defect.sql_part or None,
            severity="critical" if defect.fatal else "minor",
        )


STEPS: tuple[Callable[[Comparison], None], ...] = (
    compare_defects,
    compare_outputs,
    compare_output_count,
    compare_aggregates,
    compare_grouping,
    compare_grouped_total,
    compare_order,
    compare_hinted_extremes,
    compare_limit,
    compare_sets,
    compare_distinct,
    compare_joins,
    compare_types,
    compare_ids,
    compare_ratio,
    compare_literals,
    compare_words,
    compare_witness,
)
