"""SQL that no database accepts is the agent's fault; SQL that only this reader cannot read is not."""

import pytest

from stef_core import QueryRecord, evaluate
from stef_core.extract.sql_malformed import malformed

BROKEN = {
    "SELECT a FROM t WHERE b = 1 WHERE c = 2": "WHERE stands twice in one SELECT",
    "SELECT a FROM t GROUP BY a HAVING COUNT(*) > 1 FROM u": "FROM stands behind HAVING",
    "SELECT a FROM t WHERE b = SELECT b FROM u": "a subquery stands behind = without parentheses",
    "SELECT COUNT(DISTNCT a) FROM t": "DISTNCT is a misspelt DISTINCT",
}
WHOLE = [
    "SELECT a FROM t WHERE b = 1 UNION SELECT a FROM u WHERE b = 2",
    "SELECT a FROM t WHERE b = 1 EXCEPT SELECT a FROM u WHERE b = 2",
    "SELECT a FROM (SELECT a FROM u WHERE b = 1) AS v WHERE a > 2",
    "SELECT a FROM t WHERE b IS DISTINCT FROM c",
    "SELECT SUM(a) OVER (PARTITION BY b ORDER BY c) FROM t WHERE d = 1 ORDER BY e",
    "FROM t SELECT a WHERE b = 1",
    "SELECT EXTRACT(YEAR FROM d) FROM t WHERE c = 1 ORDER BY EXTRACT(YEAR FROM d)",
]


@pytest.mark.parametrize(("sql", "reason"), BROKEN.items())
def test_broken_sql_says_what_no_database_accepts(sql: str, reason: str) -> None:
    assert (malformed(sql) or "").startswith(reason)


@pytest.mark.parametrize("sql", WHOLE)
def test_whole_sql_is_not_called_broken(sql: str) -> None:
    assert malformed(sql) is None


@pytest.mark.parametrize("sql", [s for s in BROKEN if "DISTNCT" not in s])
def test_broken_sql_scores_nothing_and_keeps_its_reason(sql: str) -> None:
    evaluation = evaluate(QueryRecord(query_id="q", user_question="How many?", generated_sql=sql, dialect="sqlite"))

    assert evaluation.status == "scored"
    assert evaluation.score is not None
    assert evaluation.score.phi == 0
    assert [f.code for f in evaluation.findings] == ["not_a_query"]
    assert "no database accepts" in evaluation.findings[0].message
