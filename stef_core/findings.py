"""Finding codes: what each means, its dimension and severity, and how two published taxonomies map onto them.

Source: method.md section 8; NL2SQL-BUGS (9 main and 31 sub types); experiments.md (eight error codes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stef_core.records import Finding, Severity, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One finding code. ``bugs``: NL2SQL-BUGS types it may stand for ("Main/Sub"); ``error_code``: of experiments.md."""

    dimension: str
    severity: Severity
    meaning: str
    bugs: tuple[str, ...] = ()
    error_code: str = "OTHER"


_CONDITION, _ATTRIBUTE, _VALUE = "Condition-Related Errors", "Attribute-Related Errors", "Value-Related Errors"
_OPERATOR, _FUNCTION, _TABLE = "Operator-Related Errors", "Function-Related Errors", "Table-Related Errors"
_CLAUSE, _SUBQUERY, _OTHER = "Clause-Related Errors", "Subquery-Related Errors", "Other Errors"

CODES: dict[str, Code] = {
    "missing_filter": Code(
        dimension="filters",
        severity="critical",
        meaning="The question sets a condition that the SQL does not apply.",
        bugs=(f"{_CONDITION}/Explicit Condition Missing", f"{_CONDITION}/Implicit Condition Missing"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_filter_column": Code(
        dimension="filters",
        severity="critical",
        meaning="The condition stands on another column than the question means.",
        bugs=(f"{_CONDITION}/Explicit Condition Mismatch", f"{_ATTRIBUTE}/Attribute Mismatch"),
        error_code="WRONG_FILTER_COLUMN",
    ),
    "wrong_filter_operator": Code(
        dimension="filters",
        severity="critical",
        meaning="The comparison has another direction, boundary or boolean structure than the question.",
        bugs=(f"{_OPERATOR}/Comparison Operator Mismatch", f"{_OPERATOR}/Logical Operator Mismatch"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_filter_value": Code(
        dimension="filters",
        severity="critical",
        meaning="The column is constrained, but to another value than the question names.",
        bugs=(f"{_VALUE}/Value Mismatch", f"{_VALUE}/Data Format Mismatch"),
        error_code="GENERIC_VALUE_MISMATCH",
    ),
    "extra_filter": Code(
        dimension="filters",
        severity="major",
        meaning="The SQL applies a condition that nobody asked for.",
        bugs=(f"{_CONDITION}/Explicit Condition Redundancy",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "missing_output": Code(
        dimension="projections",
        severity="major",
        meaning="Something the question asks to see is not output.",
        bugs=(f"{_ATTRIBUTE}/Attribute Missing",),
        error_code="WRONG_SOURCE_TABLE_OR_COLUMN",
    ),
    "extra_output": Code(
        dimension="projections",
        severity="minor",
        meaning="The SQL outputs something that nobody asked to see.",
        bugs=(f"{_ATTRIBUTE}/Attribute Redundancy",),
        error_code="OUTPUT_COLUMN_ALIAS_MISMATCH",
    ),
    "wrong_output": Code(
        dimension="projections",
        severity="critical",
        meaning="Another column is output than the question asks to see.",
        bugs=(f"{_ATTRIBUTE}/Attribute Mismatch",),
        error_code="WRONG_SOURCE_TABLE_OR_COLUMN",
    ),
    "missing_aggregation": Code(
        dimension="aggregations",
        severity="critical",
        meaning="The question asks for an aggregate that the SQL does not compute.",
        bugs=(f"{_FUNCTION}/Aggregate Functions",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_aggregation": Code(
        dimension="aggregations",
        severity="critical",
        meaning="The SQL computes another aggregate than the question asks for.",
        bugs=(f"{_FUNCTION}/Aggregate Functions", f"{_FUNCTION}/Math Functions"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "extra_aggregation": Code(
        dimension="aggregations",
        severity="major",
        meaning="The SQL aggregates where the question does not ask for it.",
        bugs=(f"{_FUNCTION}/Aggregate Functions", f"{_CLAUSE}/Clause Redundancy"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "missing_distinct": Code(
        dimension="distinct",
        severity="major",
        meaning="Different things are asked for, but repeats are counted or listed.",
        bugs=(f"{_OTHER}/DISTINCT",),
        error_code="AGGR_DISTINCT_MISSING",
    ),
    "extra_distinct": Code(
        dimension="distinct",
        severity="minor",
        meaning="Repeats are removed though nobody asked for it.",
        bugs=(f"{_OTHER}/DISTINCT",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "missing_group_by": Code(
        dimension="group_by",
        severity="critical",
        meaning="The question asks for groups that the SQL does not form.",
        bugs=(f"{_CLAUSE}/Clause Missing",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_group_by": Code(
        dimension="group_by",
        severity="critical",
        meaning="The groups are formed on another column or grain than asked.",
        bugs=(f"{_CLAUSE}/Clause Missing", f"{_ATTRIBUTE}/Attribute Mismatch"),
        error_code="WRONG_SOURCE_TABLE_OR_COLUMN",
    ),
    "extra_group_by": Code(
        dimension="group_by",
        severity="major",
        meaning="The SQL groups by something that nobody asked for, which splits the result.",
        bugs=(f"{_CLAUSE}/Clause Redundancy",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "missing_order": Code(
        dimension="order_by",
        severity="major",
        meaning="An order was asked for and none is given.",
        bugs=(f"{_CLAUSE}/Clause Missing",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_order_direction": Code(
        dimension="order_by",
        severity="major",
        meaning="Rows are ordered, or picked, from the wrong end.",
        bugs=(f"{_OTHER}/ASC/DESC",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "missing_limit": Code(
        dimension="limit",
        severity="major",
        meaning="A number of rows was asked for and the SQL returns all of them.",
        bugs=(f"{_CLAUSE}/Clause Missing",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_limit": Code(
        dimension="limit",
        severity="critical",
        meaning="Another number of rows is returned than was asked for.",
        bugs=(f"{_VALUE}/Value Mismatch",),
        error_code="GENERIC_VALUE_MISMATCH",
    ),
    "unrequested_limit": Code(
        dimension="limit",
        severity="major",
        meaning="Rows are cut off though nobody asked for a number of rows.",
        bugs=(f"{_CLAUSE}/Clause Redundancy",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_set_operation": Code(
        dimension="set_op",
        severity="critical",
        meaning="Results are combined in another way than the question asks.",
        bugs=(f"{_OPERATOR}/Logical Operator Mismatch", f"{_SUBQUERY}/Partial Query"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_window": Code(
        dimension="windows",
        severity="critical",
        meaning="A window has another partition, order or frame than the question asks.",
        bugs=(f"{_FUNCTION}/Window Functions",),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "wrong_join": Code(
        dimension="joins",
        severity="critical",
        meaning="Tables are tied together wrongly, not at all, or without need.",
        bugs=(
            f"{_TABLE}/Table Mismatch",
            f"{_TABLE}/Table Missing",
            f"{_TABLE}/Table Redundancy",
            f"{_TABLE}/Join Condition Mismatch",
            f"{_TABLE}/Join Type Mismatch",
        ),
        error_code="WRONG_SOURCE_TABLE_OR_COLUMN",
    ),
    "missing_subquery_condition": Code(
        dimension="subqueries",
        severity="critical",
        meaning="A condition that needs a subquery, or its tie to the outer query, is absent.",
        bugs=(f"{_SUBQUERY}/Subquery Missing", f"{_SUBQUERY}/Subquery Mismatch", f"{_SUBQUERY}/Partial Query"),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "extra_transformation": Code(
        dimension="expressions",
        severity="major",
        meaning="A value is computed, cast or cut in a way the question does not ask, or in a way that loses it.",
        bugs=(
            f"{_FUNCTION}/Conversion Functions",
            f"{_FUNCTION}/Date/Time Functions",
            f"{_FUNCTION}/String Functions",
            f"{_FUNCTION}/Conditional Functions",
            f"{_FUNCTION}/Math Functions",
            f"{_OTHER}/Other",
        ),
        error_code="EXTRA_TRANSFORMATION_OR_CONDITION",
    ),
    "enrichment_adds": Code(
        dimension="enrichment", severity="minor", meaning="The reformulation sets a condition that the user did not."
    ),
    "enrichment_drops": Code(
        dimension="enrichment", severity="major", meaning="The reformulation loses a condition that the user set."
    ),
    "enrichment_contradicts": Code(
        dimension="enrichment",
        severity="critical",
        meaning="The reformulation names another value, metric, period or grain than the user.",
    ),
    "no_sql": Code(dimension="sql", severity="critical", meaning="There is no SQL.", error_code="NULL_OR_EMPTY_RESULT"),
    "not_a_query": Code(
        dimension="sql", severity="critical", meaning="The text is not one read-only query.", error_code="NULL_OR_EMPTY_RESULT"
    ),
    "sql_unparseable": Code(dimension="sql", severity="info", meaning="No dialect reads the SQL; the row is unscored."),
    "row_limit": Code(
        dimension="sql", severity="info", meaning="Reading the row takes more than its limits allow; the row is unscored."
    ),
    "judge_unavailable": Code(dimension="verdict", severity="info", meaning="The judge gave no verdict; the row is unscored."),
    "injection_suspected": Code(
        dimension="safety", severity="info", meaning="Question or SQL carries text that addresses the evaluator."
    ),
}


# kinds that are weak evidence and no departure of their own: the judge weighs them and names them among its reasons
SIGNALS = frozenset(
    "output_unexplained filter_column_unexplained measure_unexplained order_column_unexplained table_unexplained "
    "order_key_other order_column_other count_over_join log_column_unseen log_table_unseen log_pair_unseen".split()
)


def departures(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that are departures, without the signals that only a judge weighs."""
    return tuple(f for f in findings if f.kind not in SIGNALS)


def finding(
    code: str,
    message: str,
    *,
    stage: Stage = "generation",
    question_part: str | None = None,
    sql_part: str | None = None,
    kind: str = "",
    strength: float = 1.0,
    severity: Severity | None = None,
) -> Finding:
    """A finding with the dimension and severity of its code.

    Raises:
        KeyError: `code` is not in `CODES`.
    """
    entry = CODES[code]
    return Finding(
        code=code,
        dimension=entry.dimension,
        severity=severity or entry.severity,
        stage=stage,
        question_part=question_part,
        sql_part=sql_part,
        message=message,
        kind=kind or code,
        strength=strength,
    )
