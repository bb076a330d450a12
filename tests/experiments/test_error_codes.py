"""Offline error analysis: each code from a pair of queries, and how it fares on labelled wrong answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from stef_core.experiments.error_codes import ERROR_CODES, ErrorCode, analyse, differences, pareto
from stef_core.experiments.gold import accepted
from stef_core.findings import CODES

SHARED = Path(__file__).parents[3] / "shared" / "data" / "labelled.parquet"

CASES = [
    ("SELECT COUNT(DISTINCT a) FROM t", "SELECT COUNT(a) FROM t", "AGGR_DISTINCT_MISSING"),
    ("SELECT COUNT(DISTINCT a) FROM t", "SELECT COUNT(*) FROM t", "AGGR_DISTINCT_MISSING"),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t", "AGGR_DISTINCT_MISSING"),
    ("SELECT a FROM t WHERE b = 'x'", "SELECT a FROM t WHERE c = 'x'", "WRONG_FILTER_COLUMN"),
    ("SELECT a FROM t WHERE b >= 5 AND b < 9", "SELECT a FROM t WHERE c >= 5 AND c < 9", "WRONG_FILTER_COLUMN"),
    ("SELECT a FROM t", "SELECT a FROM u", "WRONG_SOURCE_TABLE_OR_COLUMN"),
    ("SELECT a FROM t", "SELECT b FROM t", "WRONG_SOURCE_TABLE_OR_COLUMN"),
    ("SELECT SUM(a) FROM t", "SELECT SUM(b) FROM t", "WRONG_SOURCE_TABLE_OR_COLUMN"),
    ("SELECT t.a FROM t JOIN u ON t.k = u.k", "SELECT t.a FROM t JOIN u ON t.k = u.j", "WRONG_SOURCE_TABLE_OR_COLUMN"),
    ("SELECT a, COUNT(*) FROM t GROUP BY a", "SELECT b, COUNT(*) FROM t GROUP BY b", "WRONG_SOURCE_TABLE_OR_COLUMN"),
    ("SELECT a FROM t WHERE b = 1", "SELECT a FROM t", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t", "SELECT a FROM t WHERE b = 1", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t WHERE b > 1", "SELECT a FROM t WHERE b >= 1", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT AVG(a) FROM t", "SELECT ROUND(AVG(a)) FROM t", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT SUM(a) FROM t", "SELECT AVG(a) FROM t", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t", "SELECT a FROM t LIMIT 3", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t ORDER BY b LIMIT 1", "SELECT a FROM t ORDER BY b DESC LIMIT 1", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM t UNION ALL SELECT a FROM u", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t WHERE b = 1 AND c = 2", "SELECT a FROM t WHERE b = 1 OR c = 2", "EXTRA_TRANSFORMATION_OR_CONDITION"),
    ("SELECT a FROM t", "SELECT a, b FROM t", "OUTPUT_COLUMN_ALIAS_MISMATCH"),
    ("SELECT a FROM t WHERE b = 'Oslo'", "SELECT a FROM t WHERE b = 'Bergen'", "GENERIC_VALUE_MISMATCH"),
    ("SELECT a FROM t WHERE b = 'crime'", "SELECT a FROM t WHERE b = 'Crime'", "GENERIC_VALUE_MISMATCH"),
    ("SELECT a FROM t WHERE b = 'x'", "SELECT a FROM t WHERE b LIKE '%y%'", "GENERIC_VALUE_MISMATCH"),
    ("SELECT a FROM t WHERE b IN ('x', 'y')", "SELECT a FROM t WHERE b = 'x'", "GENERIC_VALUE_MISMATCH"),
    ("SELECT CASE WHEN a > 1 THEN 'yes' END FROM t", "SELECT CASE WHEN a > 1 THEN 'y' END FROM t", "GENERIC_VALUE_MISMATCH"),
    (
        "SELECT SUM(CASE WHEN a = 'x' THEN b END) FROM t",
        "SELECT SUM(CASE WHEN a = 'y' THEN b END) FROM t",
        "GENERIC_VALUE_MISMATCH",
    ),
    ("SELECT a FROM t ORDER BY b LIMIT 5", "SELECT a FROM t ORDER BY b LIMIT 3", "GENERIC_VALUE_MISMATCH"),
    ("SELECT a FROM t", "", "NULL_OR_EMPTY_RESULT"),
    ("SELECT a FROM t", "I cannot answer that.", "NULL_OR_EMPTY_RESULT"),
    ("SELECT a FROM t", "SELECT a FROM t", "OTHER"),
    ("SELECT a FROM t WHERE b = 1 AND c = 2", "select x.a from t as x where x.c = 2 and x.b = 1", "OTHER"),
]


@pytest.mark.parametrize(("gold", "predicted", "code"), CASES)
def test_the_first_code_is_what_differs(gold: str, predicted: str, code: str) -> None:
    found = analyse([gold], predicted, "sqlite")

    assert found.codes[0] == code, found
    assert found.text.endswith(".")


def test_several_faults_give_several_codes() -> None:
    found = analyse(["SELECT COUNT(DISTINCT a) FROM t WHERE b = 1"], "SELECT COUNT(a) FROM t WHERE c = 1", "sqlite")

    assert set(found.codes) == {"WRONG_FILTER_COLUMN", "AGGR_DISTINCT_MISSING"}


def test_the_nearest_accepted_query_is_held_against_the_answer() -> None:
    found = analyse(
        ["SELECT x FROM y JOIN z USING (k)", "SELECT a FROM t WHERE b = 1"], "SELECT a FROM t WHERE b = 2", "sqlite"
    )

    assert found.codes == ("GENERIC_VALUE_MISMATCH",)
    assert found.text == "Compares b = 2 where gold has b = 1."


def test_an_empty_result_is_a_code_of_its_own_beside_its_cause() -> None:
    found = analyse(["SELECT a FROM t WHERE b = 1"], "SELECT a FROM t WHERE b = 2", "sqlite", flags=["prediction_empty"])

    assert found.codes == ("GENERIC_VALUE_MISMATCH", "NULL_OR_EMPTY_RESULT")


def test_a_query_that_failed_is_said_to_have_failed() -> None:
    found = analyse(["SELECT a FROM t"], "SELECT nothing FROM t", "sqlite", flags=["prediction_failed", "prediction_syntax"])

    assert found.codes == ("WRONG_SOURCE_TABLE_OR_COLUMN", "NULL_OR_EMPTY_RESULT")
    assert found.text.endswith("; the query failed.")


def test_every_finding_code_maps_to_an_error_code() -> None:
    assert {entry.error_code for entry in CODES.values()} <= set(ERROR_CODES) == set(get_args(ErrorCode))


def test_other_is_said_only_when_nothing_is_found() -> None:
    for gold, predicted, _ in CASES:
        assert (analyse([gold], predicted, "sqlite").codes == ("OTHER",)) == (differences(gold, predicted, "sqlite") == [])


def test_the_table_counts_rows_and_not_codes() -> None:
    tallies = pareto([["A", "B"], ["A"], ["B"], ["C", "C"], ["A"]])

    assert [(t.code, t.rows, t.share, t.examples) for t in tallies] == [
        ("A", 3, 0.6, (0, 1, 4)),
        ("B", 2, 0.4, (0, 2)),
        ("C", 1, 0.2, (3,)),
    ]
    assert [t.cumulative for t in tallies] == [0.6, 0.8, 1.0]
    assert pareto([]) == []


def test_wrong_answers_that_people_labelled_get_a_code_that_mostly_agrees(record_property: Any) -> None:
    if not SHARED.is_file():
        pytest.skip("the labelled answers are not on this machine")
    wrong = pl.read_parquet(SHARED).filter(~pl.col("label") & pl.col("gold_sql").is_not_null())

    outcomes: Counter[str] = Counter()
    for row in wrong.iter_rows(named=True):
        found = analyse(accepted(row["gold_sql"]) or (), row["generated_sql"], row["dialect"])
        outcomes["rows"] += 1
        outcomes["coded"] += found.codes != ("OTHER",)
        if row["source"] == "nl2sql_bugs":  # other sources name types of another taxonomy
            said = {kind.split("/")[0] for kind in row["error_types"]}
            ours = [{kind.split("/")[0] for kind in CODES[d.finding].bugs} for d in found.differences if d.finding]
            outcomes["typed"] += 1
            outcomes["agree"] += bool(said & set().union(*ours))
            outcomes["first agrees"] += bool(ours and said & ours[0])

    record_property("outcomes", dict(outcomes))
    assert outcomes["rows"] > 1000
    assert outcomes["coded"] / outcomes["rows"] >= 0.9
    # measured 0.892 for any difference and 0.660 for the first; the commonest type alone would reach 0.434
    assert outcomes["agree"] / outcomes["typed"] >= 0.85
    assert outcomes["first agrees"] / outcomes["typed"] >= 0.6
