"""The same query in another style gets the same score: case, aliases, layout, quotes, comments, brackets, WITH."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.labelled import SHARED, labelled_rows
from benchmarks.style import BOUND, REWRITES, Tally, differences, judged, measure, read_rows, rewritten
from stef_core import QueryRecord, evaluate
from stef_core.extract.sql import extract_sql
from stef_core.judge.fitting import own_catalogue
from stef_core.wording import condition_text

SAMPLE = 300
# (dialect, question, SQL)
ASKED = [
    ("sqlite", "How many loans are there?", "SELECT COUNT(*) FROM loans"),
    ("sqlite", "List the titles of books in German.", "SELECT title FROM books WHERE language = 'German'"),
    ("sqlite", "List the titles of books in German.", 'SELECT title FROM books WHERE language = "German"'),
    ("postgres", "Which members joined after 2019?", "SELECT m.name FROM members m WHERE m.joined_on > '2019-12-31'"),
    (
        "sqlite",
        "What is the average number of pages of each publisher?",
        "SELECT publisher, AVG(pages) FROM books GROUP BY publisher",
    ),
    (
        "sqlite",
        "Who borrowed the book Emma?",
        "SELECT T1.name FROM members AS T1 JOIN loans AS T2 ON T1.id = T2.member_id JOIN books AS T3 ON T2.book_id = T3.id "
        "WHERE T3.title = 'Emma'",
    ),
    (
        "postgres",
        "Which members have never borrowed a book?",
        "SELECT name FROM members WHERE id NOT IN (SELECT member_id FROM loans)",
    ),
    ("sqlite", "Which book has the most pages?", "SELECT title FROM books ORDER BY pages DESC LIMIT 1"),
    ("sqlite", "Which book has the most pages?", "SELECT title FROM books WHERE pages = (SELECT MAX(pages) FROM books)"),
    (
        "duckdb",
        "Which books have more pages than the average book?",
        "SELECT b.title FROM books b WHERE b.pages > (SELECT AVG(pages) FROM books)",
    ),
    (
        "sqlite",
        "Which members borrowed more than five books?",
        "SELECT T1.name FROM members AS T1 JOIN loans AS T2 ON T1.id = T2.member_id GROUP BY T1.id HAVING COUNT(*) > 5",
    ),
    (
        "sqlite",
        "Which members borrowed both Emma and Dracula?",
        "SELECT member_id FROM loans WHERE title = 'Emma' INTERSECT SELECT member_id FROM loans WHERE title = 'Dracula'",
    ),
    (
        "sqlite",
        "How many members live in cities that have a branch opened in 2013 and one opened in 2016?",
        "SELECT COUNT(*) FROM members WHERE city IN (SELECT city FROM branches WHERE opened = 2013 INTERSECT "
        "SELECT city FROM branches WHERE opened = 2016)",
    ),
    (
        "postgres",
        "What share of the loans of each branch was returned late?",
        "SELECT branch_id, SUM(CASE WHEN returned_on > due_on THEN 1 ELSE 0 END) * 100.0 / COUNT(*) FROM loans "
        "GROUP BY branch_id",
    ),
    (
        "sqlite",
        "What is the ratio of paid fines to open fines?",
        "SELECT (SELECT COUNT(*) FROM fines WHERE state = 'paid') / (SELECT COUNT(*) FROM fines WHERE state = 'open') AS ratio",
    ),
    (
        "snowflake",
        "Give the three longest loans of each member.",
        "SELECT member_id, book_id FROM (SELECT member_id, book_id, "
        "RANK() OVER (PARTITION BY member_id ORDER BY days DESC) AS r FROM loans) x WHERE r <= 3",
    ),
    (
        "postgres",
        "How many books did each publisher bring out in 2020 and 2021?",
        "WITH recent AS (SELECT publisher, id FROM books WHERE year BETWEEN 2020 AND 2021) "
        "SELECT publisher, COUNT(id) FROM recent GROUP BY publisher ORDER BY publisher",
    ),
    (
        "mysql",
        "List names and cities of members from Lyon or Nice.",
        "SELECT `name`, `city` FROM `members` WHERE `city` IN ('Lyon', 'Nice')",
    ),
    (
        "tsql",
        "Show the five newest books.",
        "SELECT TOP 5 title FROM books ORDER BY published DESC",
    ),
    (
        "bigquery",
        "How many different members borrowed something in March 2024?",
        "SELECT COUNT(DISTINCT l.member_id) FROM loans AS l WHERE l.lent_on >= '2024-03-01' AND l.lent_on < '2024-04-01'",
    ),
    (
        "sqlite",
        "What is the full name of members whose billing address is not their home address?",
        "SELECT first_name || ' ' || last_name AS full_name FROM members WHERE billing_address_id <> home_address_id",
    ),
    (
        "sqlite",
        "How much was paid in total, and how much of it in January 2022?",
        "SELECT SUM(fee), SUM(CASE WHEN paid_on LIKE '2022-01%' THEN fee ELSE 0 END) FROM payments",
    ),
    (
        "sqlite",
        "What is the average number of pages of books by publisher name?",
        "SELECT publishers.name, AVG(books.pages) FROM books JOIN publishers ON books.publisher_id = publishers.id",
    ),
    (
        "postgres",
        "Which branches have no loans?",
        "SELECT b.name FROM branches b LEFT JOIN loans l ON l.branch_id = b.id WHERE l.id IS NULL",
    ),
]
# at least so many of the queries above must be rewritten, or the rewrite does nothing
LEAST = {
    "quoted names": 23,
    "printed anew": 5,
    "WITH for subquery": 6,
    "subquery for WITH": 1,
    "commas for JOIN": 3,
    "qualified columns": 7,
}


def scored(question: str, sql: str, dialect: str) -> tuple[object, ...]:
    evaluation = evaluate(QueryRecord(query_id="q", user_question=question, generated_sql=sql, dialect=dialect))
    assert evaluation.score is not None
    assert evaluation.alignment is not None
    assert evaluation.verdict is not None
    return evaluation.score.phi, evaluation.alignment.filter_status, evaluation.verdict.grade, evaluation.verdict.p_right


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize(("dialect", "question", "sql"), ASKED, ids=[f"{i}" for i in range(len(ASKED))])
def test_another_style_gets_the_same_score(dialect: str, question: str, sql: str, rewrite: str) -> None:
    other = rewritten(sql, dialect, rewrite)

    assert other is None or scored(question, other, dialect) == scored(question, sql, dialect), other


@pytest.mark.parametrize("rewrite", REWRITES)
def test_each_rewrite_has_something_to_rewrite(rewrite: str) -> None:
    changed = [sql for dialect, _, sql in ASKED if rewritten(sql, dialect, rewrite) is not None]

    assert len(changed) >= LEAST.get(rewrite, 8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ASKED), st.lists(st.sampled_from(sorted(REWRITES)), min_size=2, max_size=4), st.integers(0, 9))
def test_one_style_upon_another_gets_the_same_score(asked: tuple[str, str, str], rewrites: list[str], seed: int) -> None:
    dialect, question, sql = asked

    other = sql
    for rewrite in rewrites:
        other = rewritten(other, dialect, rewrite, seed=seed) or other

    assert scored(question, other, dialect) == scored(question, sql, dialect), other


def test_a_change_of_meaning_is_seen_as_one() -> None:
    read = read_rows(
        [
            QueryRecord(query_id="q", user_question="How many books are in German?", generated_sql=sql)
            for sql in (
                "SELECT COUNT(*) FROM books WHERE language = 'German'",
                "SELECT COUNT(*) FROM books WHERE language = 'Greek'",
            )
        ]
    )

    right, wrong = judged(read, None)

    assert {"Φ", "p_right"} <= differences(right, wrong)


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        pytest.param(
            "SELECT city, COUNT(*) FROM members GROUP BY city ORDER BY city",
            "SELECT city, COUNT(*) FROM members GROUP /* as asked */ BY city ORDER -- first\n BY city",
            id="a comment inside a keyword of two words",
        ),
        pytest.param(
            "SELECT AVG(due_day - lent_day) FROM loans WHERE home_id <> branch_id",
            'SELECT AVG("due_day" - "lent_day") FROM "loans" WHERE "home_id" <> "branch_id"',
            id="every name in double quotes",
        ),
        pytest.param(
            "SELECT SUM(fee), SUM(CASE WHEN day = '2022-01-01' THEN fee END) FROM payments",
            'SELECT SUM("fee"), SUM(CASE WHEN "day" = \'2022-01-01\' THEN "fee" END) FROM "payments"',
            id="a quoted name behind THEN, texts in single quotes",
        ),
        pytest.param(
            "SELECT name FROM members WHERE city = 'Lyon'",
            'SELECT "name" FROM "members" WHERE "city" = "Lyon"',
            id="a text in double quotes beside quoted names",
        ),
        pytest.param(
            "SELECT name FROM members WHERE city = 'Lyon'",
            'SELECT "name" FROM "members" WHERE ("city") = ("Lyon")',
            id="a text in double quotes and brackets beside quoted names",
        ),
        pytest.param(
            "SELECT name FROM members WHERE id IN "
            "(SELECT member_id FROM loans WHERE year = 2013 EXCEPT SELECT member_id FROM fines)",
            "WITH late AS (SELECT member_id FROM loans WHERE year = 2013 EXCEPT SELECT member_id FROM fines) "
            "SELECT name FROM members WHERE id IN (SELECT member_id FROM late)",
            id="a set operation handed on by a CTE",
        ),
        pytest.param(
            "SELECT (SELECT COUNT(*) FROM fines WHERE state = 'paid') / (SELECT COUNT(*) FROM fines)",
            "WITH paid AS (SELECT COUNT(*) AS n FROM fines WHERE state = 'paid'), sums AS (SELECT COUNT(*) AS n FROM fines) "
            "SELECT (SELECT n FROM paid) / (SELECT n FROM sums)",
            id="a division of counts handed on by CTEs",
        ),
        pytest.param(
            "SELECT publishers.name, AVG(books.pages) FROM books JOIN publishers ON books.publisher_id = publishers.id",
            "SELECT publishers.name, AVG(books.pages) FROM books, publishers WHERE books.publisher_id = publishers.id",
            id="a join condition in WHERE pins nothing",
        ),
        pytest.param(
            "SELECT members.name FROM members JOIN loans ON members.id = loans.member_id JOIN branches ON members.id > 5",
            "SELECT members.name FROM members, loans, branches WHERE members.id = loans.member_id AND members.id > 5",
            id="a table that nothing ties, beside two that WHERE ties",
        ),
    ],
)
def test_two_spellings_are_read_alike(plain: str, other: str) -> None:
    first, second = extract_sql(plain, "sqlite"), extract_sql(other, "sqlite")

    # the text of a defect names the spelling; everything that is compared may not
    assert {(d.kind, d.fatal) for d in second.defects} == {(d.kind, d.fatal) for d in first.defects}
    for part in ("projections", "aggregations", "group_by", "order_by", "literals", "tables", "columns", "expressions"):
        assert getattr(second, part) == getattr(first, part), part
    assert {condition_text(c) for c in second.filters} == {condition_text(c) for c in first.filters}


def test_style_moves_fewer_than_one_score_in_a_hundred_of_labelled_rows() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder with the shared data is not beside the repository")
    records = [item.record for item in labelled_rows()]
    read = read_rows(records[:: len(records) // SAMPLE][:SAMPLE])
    catalogue = own_catalogue(read)

    tallies = {rewrite: measure(read, catalogue, rewrite) for rewrite in REWRITES}

    assert len(read) == SAMPLE
    assert {name: t.share() for name, t in tallies.items() if t.share() >= BOUND} == {}
    assert tallies["all together"].rows >= 0.99 * SAMPLE


def test_a_failure_of_the_evaluator_is_no_unchanged_score(monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_rows([QueryRecord(query_id="q", user_question="How many books?", generated_sql="SELECT COUNT(*) FROM books")])
    # the package's function of the same name hides the module
    monkeypatch.setattr(sys.modules["stef_core.evaluate"], "align", lambda *_: 1 / 0)

    with pytest.raises(RuntimeError, match="the evaluator failed on q"):
        measure(read, None, "capitals")


def test_a_tally_shares_out_what_changed() -> None:
    tally = Tally(rows=200)
    tally.changed["Φ"] += 3

    assert tally.share() == 0.015
    assert tally.share("grade") == 0
    assert replace(tally, rows=0).share() == 0
