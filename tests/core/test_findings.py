"""Finding codes: the two published taxonomies map onto them whole, and an unknown code is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.labelled import SHARED, labelled_rows
from stef_core.findings import CODES, finding
from stef_core.records import Severity

SUB_TYPES = {
    "Attribute-Related Errors": ["Attribute Mismatch", "Attribute Missing", "Attribute Redundancy"],
    "Clause-Related Errors": ["Clause Missing", "Clause Redundancy"],
    "Condition-Related Errors": [
        "Explicit Condition Mismatch",
        "Explicit Condition Missing",
        "Explicit Condition Redundancy",
        "Implicit Condition Missing",
    ],
    "Function-Related Errors": [
        "Aggregate Functions",
        "Conditional Functions",
        "Conversion Functions",
        "Date/Time Functions",
        "Math Functions",
        "String Functions",
        "Window Functions",
    ],
    "Operator-Related Errors": ["Comparison Operator Mismatch", "Logical Operator Mismatch"],
    "Other Errors": ["ASC/DESC", "DISTINCT", "Other"],
    "Subquery-Related Errors": ["Partial Query", "Subquery Mismatch", "Subquery Missing"],
    "Table-Related Errors": [
        "Join Condition Mismatch",
        "Join Type Mismatch",
        "Table Mismatch",
        "Table Missing",
        "Table Redundancy",
    ],
    "Value-Related Errors": ["Data Format Mismatch", "Value Mismatch"],
}
NAMES = {f"{main}/{sub}" for main, subs in SUB_TYPES.items() for sub in subs}
ERROR_CODES = set(
    (
        "AGGR_DISTINCT_MISSING WRONG_FILTER_COLUMN WRONG_SOURCE_TABLE_OR_COLUMN EXTRA_TRANSFORMATION_OR_CONDITION "
        "OUTPUT_COLUMN_ALIAS_MISMATCH NULL_OR_EMPTY_RESULT GENERIC_VALUE_MISMATCH OTHER"
    ).split()
)
# codes that say something of the evaluator, the reformulation or the text, and so stand for no error of NL2SQL-BUGS
OUTSIDE = {"no_sql", "not_a_query", "sql_unparseable", "row_limit", "judge_unavailable", "injection_suspected"}
METHOD_CODES = set(
    (
        "missing_filter wrong_filter_column wrong_filter_operator wrong_filter_value extra_filter missing_output extra_output "
        "wrong_output missing_aggregation wrong_aggregation extra_aggregation missing_distinct extra_distinct missing_group_by "
        "wrong_group_by extra_group_by missing_order wrong_order_direction missing_limit wrong_limit unrequested_limit "
        "wrong_set_operation wrong_window wrong_join missing_subquery_condition extra_transformation enrichment_adds "
        "enrichment_drops enrichment_contradicts no_sql not_a_query sql_unparseable judge_unavailable "
        "injection_suspected row_limit"
    ).split()
)


def test_every_type_of_nl2sql_bugs_is_reached_by_a_code_and_no_other() -> None:
    reached = {bug for code in CODES.values() for bug in code.bugs}

    assert (len(SUB_TYPES), len(NAMES)) == (9, 31)
    assert reached == NAMES


def test_every_departure_of_the_sql_stands_for_an_error_of_nl2sql_bugs() -> None:
    without = {name for name, code in CODES.items() if not code.bugs}

    assert without == OUTSIDE | {name for name in CODES if name.startswith("enrichment_")}


def test_the_types_are_those_of_the_labelled_rows() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder with the shared data is not beside the repository")

    used = {name for item in labelled_rows(sources=frozenset({"nl2sql_bugs"})) for name in item.error_types}

    assert used == NAMES


def test_each_of_the_eight_error_codes_is_reached_and_no_other() -> None:
    assert {code.error_code for code in CODES.values()} == ERROR_CODES
    assert len(ERROR_CODES) == 8


def test_the_codes_are_those_of_the_method() -> None:
    assert set(CODES) == METHOD_CODES
    assert {code.severity for code in CODES.values()} == set(get_args(Severity))


@pytest.mark.parametrize("name", CODES)
def test_a_finding_has_the_dimension_and_severity_of_its_code(name: str) -> None:
    made = finding(name, "Something.")

    assert (made.dimension, made.severity) == (CODES[name].dimension, CODES[name].severity)
    assert (made.code, made.kind, made.stage, made.strength) == (name, name, "generation", 1.0)
    assert CODES[name].meaning.endswith(".")


def test_a_finding_may_be_weaker_than_its_code() -> None:
    made = finding("wrong_join", "Something.", severity="minor", kind="log_pair_unseen", strength=0.3, stage="enrichment")

    assert (made.severity, made.kind, made.strength, made.stage) == ("minor", "log_pair_unseen", 0.3, "enrichment")


@pytest.mark.parametrize("name", ["", "missing_filters", "MISSING_FILTER", "OTHER", "log_join_unseen"])
def test_an_unknown_code_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        finding(name, "Something.")


def test_the_alignment_knows_no_code_that_is_not_listed() -> None:
    core = Path(__file__).parents[2] / "stef_core"
    text = "\n".join(path.read_text(encoding="utf-8") for path in core.rglob("*.py") if path.name != "findings.py")

    noted = set(re.findall(r"(?:\bnote|\bfinding)\(\s*\"([a-z_]+)\"", text))

    assert len(noted) >= 25
    assert noted <= set(CODES)
