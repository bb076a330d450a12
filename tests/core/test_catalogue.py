"""The log as a witness: what it shows, to whom, and the findings that rest on it."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from stef_core import Evaluation, QueryRecord, evaluate
from stef_core import catalogue as module
from stef_core.catalogue import (
    KEPT,
    Catalogue,
    catalogue_of,
    compared_texts,
    facts_of,
    log_catalogue,
    mine,
    shape_of,
    shown_facts,
    witness_of,
)
from stef_core.extract.sql import extract_sql
from stef_core.frames import LOG_CATALOGUE
from stef_core.rules import RedactKind, Rules

DAY = dt.date(2026, 3, 2)
JOIN = "SELECT m.name FROM members m JOIN loans l ON m.id = l.member_id WHERE l.days > {n}"


def asked(question: str, sql: str, app: str = "library", dialect: str = "postgres") -> QueryRecord:
    return QueryRecord(query_id=question, user_question=question, generated_sql=sql, app_id=app, dialect=dialect)


def mined(records: Sequence[QueryRecord], day: dt.date = DAY) -> pl.DataFrame:
    return mine(((r, extract_sql(r.generated_sql, r.dialect)) for r in records), day)


def log_of(*sqls: str, app: str = "library", times: int = 1) -> Catalogue:
    """A catalogue in which `times` different questions were answered with each SQL."""
    return catalogue_of(mined([asked(f"question {i} of {sql}", sql, app) for sql in sqls for i in range(times)]))


def kinds(question: str, sql: str, catalogue: Catalogue | None) -> set[str]:
    """Findings and signals of one answer that rest on the log."""
    alignment = judged(question, sql, catalogue).alignment
    assert alignment is not None
    found = {f.kind for f in alignment.findings} | {name for name, _ in alignment.support}
    return {kind for kind in found if kind.startswith("log_")}


def judged(question: str, sql: str, catalogue: Catalogue | None) -> Evaluation:
    return evaluate(asked(question, sql), catalogue=catalogue)


# --- what is mined ----------------------------------------------------------------------------------------------------


def test_a_query_shows_its_tables_columns_joins_and_texts() -> None:
    spec = extract_sql("SELECT m.name FROM members m JOIN loans l ON m.id = l.member_id WHERE m.city = 'Lyon'", "postgres")

    facts = facts_of(spec)

    ((column, literal),) = compared_texts(spec.filters)
    assert column == "city"
    assert {
        ("table", "members"),
        ("table", "loans"),
        ("column", "members.name"),
        ("column", "members.city"),
        ("name", "name"),
        ("edge", "loans.member_id=members.id"),
        ("pair", "loans=members"),
        ("value", f"city={literal}"),
        ("literal", literal),
    } <= facts


def test_a_value_that_is_redacted_bears_no_witness_not_even_as_a_hash() -> None:
    rules = Rules(redact=["name", RedactKind(kind="email")])
    sql = (
        "SELECT id FROM members WHERE name = 'Kim' AND mail = 'kim@example.org' AND mail || 'kim@example.org' = 'x' "
        "AND city = 'Lyon'"
    )
    row = asked("Who is it?", sql)

    frame = mine([(row, extract_sql(sql, "postgres"))], DAY, lambda _: rules)

    keys = dict(zip(frame["key"], frame["kind"], strict=True))
    assert [key for key in keys if "kim" in key] == []
    assert [key.partition("=")[0] for key, kind in keys.items() if kind == "value"] == ["city"]
    assert keys["members.name"] == "column"


def test_every_branch_and_subquery_bears_witness() -> None:
    union = facts_of(extract_sql("SELECT a FROM first UNION SELECT b FROM second WHERE c = 'Lyon'", "postgres"))
    nested = extract_sql("SELECT a FROM first WHERE b IN (SELECT c FROM second WHERE d = 'Nice')", "postgres")

    assert {("table", "first"), ("table", "second")} <= union
    assert [column for column, _ in compared_texts(nested.filters)] == ["d"]
    assert ("table", "second") in facts_of(nested)


def test_a_column_whose_table_cannot_be_told_shows_nothing() -> None:
    facts = facts_of(extract_sql("SELECT city FROM members JOIN loans ON members.id = loans.member_id", "postgres"))

    assert not [fact for fact in facts if fact[1].endswith("city")]


@pytest.mark.parametrize("sql", ["", "DELETE FROM members", "SELECT FROM WHERE (", "there is no such data"])
def test_a_row_that_is_no_query_shows_nothing(sql: str) -> None:
    frame = mined([asked("How many members are there?", sql)])

    assert frame.is_empty()
    assert frame.schema == LOG_CATALOGUE


def test_literals_are_stored_hashed_only() -> None:
    words = ["Lyonnais", "Kowalczyk", "4711-XK", "Nice", "Zaragoza"]
    sql = (
        "SELECT name FROM members WHERE city = 'Lyonnais' AND surname IN ('Kowalczyk', 'Zaragoza') OR card = '4711-XK' "
        "OR id IN (SELECT member_id FROM loans WHERE branch = 'Nice')"
    )

    frame = mined([asked("Which members does Kowalczyk of Zaragoza know?", sql)])

    text = frame.write_csv().casefold()
    assert frame.filter(pl.col("kind") == "literal").height == len(words)
    assert [word for word in words if word.casefold() in text] == []
    assert "does" not in text


def test_questions_are_counted_once_however_often_they_are_asked() -> None:
    sql = "SELECT COUNT(*) FROM loans"

    frame = mined([asked(q, sql) for q in ("How many loans?", "how  many LOANS?", "How many loans?", "Number of loans?")])

    assert frame.filter(pl.col("kind") == "table")["questions"].to_list() == [2]
    assert witness_of("How many loans?") == witness_of(" how  many LOANS? ") != witness_of("Number of loans?")


def test_of_a_fact_at_most_so_many_witnesses_are_kept() -> None:
    records = [asked(f"question {i}", "SELECT COUNT(*) FROM loans") for i in range(3 * KEPT)]

    frame = mined(records)
    witness = catalogue_of(frame).witness(asked("another question", ""))

    assert frame["questions"].to_list() == [3 * KEPT]
    assert len(json.loads(frame["witnesses"][0])) == KEPT
    assert witness is not None
    assert witness.others("table", "loans") == KEPT


# --- who is shown what ------------------------------------------------------------------------------------------------


def test_a_question_never_vouches_for_itself() -> None:
    mistake = "SELECT COUNT(*) FROM lones"
    records = [asked("How many loans?", mistake)] * 5 + [asked("HOW many  loans?", mistake)]

    catalogue = catalogue_of(pl.concat([mined(records), mined(records, DAY + dt.timedelta(days=1))]))
    own, other = (catalogue.witness(asked(q, mistake)) for q in ("how many loans?", "How many loans were there?"))

    assert own is not None
    assert other is not None
    assert (own.others("table", "lones"), other.others("table", "lones")) == (0, 1)
    assert own.others("table", "never seen") == 0


def test_an_application_is_shown_its_own_facts_only() -> None:
    catalogue = catalogue_of(mined([asked("a", "SELECT x FROM one", "first"), asked("b", "SELECT y FROM two", "second")]))

    witness = catalogue.witness(asked("c", "", "first"))

    assert witness is not None
    assert (witness.others("table", "one"), witness.others("table", "two")) == (1, 0)
    assert catalogue.witness(asked("c", "", "third")) is None
    assert catalogue.fingerprint_of("third") is None


def test_a_word_names_a_table_that_three_others_read() -> None:
    two, three = (log_of("SELECT COUNT(*) FROM loan_events", times=n).witness(asked("q", "")) for n in (2, 3))

    assert two is not None
    assert three is not None
    assert two.tables_named(["loan"]) == {}
    assert three.tables_named(["loan", "member"]) == {"loan": "loan_events"}


# --- days -------------------------------------------------------------------------------------------------------------


def days() -> list[pl.DataFrame]:
    sqls = ["SELECT COUNT(*) FROM loans", "SELECT name FROM members WHERE city = 'Lyon'", JOIN.format(n=3)]
    return [
        mined([asked(f"day {d} question {i}", sqls[(d + i) % 3]) for i in range(9)], DAY + dt.timedelta(days=d))
        for d in range(6)
    ]


def test_the_order_of_days_does_not_matter() -> None:
    frames = days()

    first, second = catalogue_of(pl.concat(frames)), catalogue_of(pl.concat(reversed(frames)))

    assert first.fingerprint == second.fingerprint
    assert first.witness(asked("q", "")) == second.witness(asked("q", ""))


def test_days_add_up_to_what_one_long_day_would_show() -> None:
    sql = "SELECT COUNT(*) FROM loans"
    parts = [[asked(f"question {d}-{i}", sql) for i in range(20)] for d in range(4)]

    apart = catalogue_of(pl.concat([mined(part, DAY + dt.timedelta(days=d)) for d, part in enumerate(parts)]))
    at_once = catalogue_of(mined([record for part in parts for record in part]))

    assert apart.fingerprint == at_once.fingerprint
    assert apart.fingerprint != catalogue_of(mined(parts[0])).fingerprint


def test_parts_of_a_day_make_the_catalogue_of_the_day() -> None:
    records = [
        asked(f"Which books of {n}?", f"SELECT title FROM books WHERE year = {n % 3} AND author = 'A{n % 4}'")
        for n in range(40)
    ]
    rows = [(record, extract_sql(record.generated_sql, record.dialect)) for record in records]
    parts = [shown_facts(rows[start : start + 7]) for start in range(0, len(rows), 7)]
    shown = pl.concat(parts).lazy()
    place = pl.concat_str("app_id", "kind", "key").hash() % 3

    whole = mine(rows, DAY)

    assert log_catalogue([shown], DAY).equals(whole)
    assert log_catalogue([shown.filter(place == number) for number in range(3)], DAY).equals(whole)


def test_of_values_the_ones_that_most_questions_show_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VALUES_KEPT", 2)
    records = [
        asked(f"Which books of {n}?", f"SELECT title FROM books WHERE author = '{name}'")
        for n, name in enumerate(["Byatt", "Byatt", "Carey", "Carey", "Atwood", "Drabble"])
    ]

    day = mined(records)

    kept = day.filter(pl.col("kind") == "literal")["questions"].to_list()
    assert kept == [2, 2]
    assert day.filter(pl.col("kind") == "column").height == 2
    other = mined([asked(f"Which books at {n}?", "SELECT title FROM books WHERE author = 'Eco'") for n in range(3)])
    both = catalogue_of(pl.concat([day, other.with_columns(dt=pl.lit(DAY + dt.timedelta(days=1)))]))
    witness = both.witness(records[0])
    assert witness is not None
    assert sum(kind == "literal" for kind, _ in witness.facts) == 2


def test_an_empty_log_makes_an_empty_catalogue() -> None:
    catalogue = catalogue_of(mined([]))

    assert catalogue.witness(asked("q", "")) is None
    assert catalogue.fingerprint == catalogue_of(mined([])).fingerprint


def test_a_new_fact_changes_the_fingerprint_of_its_application_alone() -> None:
    base = [asked("a", "SELECT x FROM one", "first"), asked("b", "SELECT y FROM two", "second")]

    before = catalogue_of(mined(base))
    again = catalogue_of(mined([*base, asked("a", "SELECT x FROM one", "first")]))
    after = catalogue_of(mined([*base, asked("c", "SELECT x FROM one", "first")]))

    assert again.fingerprint == before.fingerprint
    assert after.fingerprint != before.fingerprint
    assert after.fingerprint_of("first") != before.fingerprint_of("first")
    assert after.fingerprint_of("second") == before.fingerprint_of("second")


# --- findings that rest on the log ------------------------------------------------------------------------------------

LOANS = "SELECT COUNT(*) FROM loans WHERE days > 3"
# kind: (SQL that other questions were answered with, and how many of them; question; SQL where it fires; where it is silent)
CASES: dict[str, tuple[list[str], int, str, str, str]] = {
    "log_table_unseen": (
        [LOANS],
        13,
        "How many loans are there?",
        "SELECT COUNT(*) FROM loan_list",
        "SELECT COUNT(*) FROM loans",
    ),
    "log_column_unseen": (
        [LOANS, "SELECT AVG(days) FROM loans"],
        3,
        "What is the longest time of a loan?",
        "SELECT MAX(duration) FROM loans",
        "SELECT MAX(days) FROM loans",
    ),
    "log_column_elsewhere": (
        ["SELECT city FROM branches", "SELECT COUNT(*) FROM members"],
        3,
        "List the cities of the members.",
        "SELECT city FROM members",
        "SELECT city FROM branches",
    ),
    "log_join_seen": (
        [JOIN.format(n=3)],
        1,
        "Which members have loans?",
        JOIN.format(n=0),
        JOIN.format(n=0).replace("m.id", "m.card"),
    ),
    "log_join_unseen": (
        [JOIN.format(n=3)],
        2,
        "Which members have loans?",
        "SELECT m.name FROM members m JOIN loans l ON m.id = l.id",
        "SELECT m.name FROM members m JOIN loans l ON m.id = l.member_id",
    ),
    "log_pair_unseen": (
        [
            "SELECT COUNT(*) FROM members",
            "SELECT COUNT(*) FROM branches",
            "SELECT m.name FROM members m JOIN loans l ON m.id = l.member_id",
        ],
        4,
        "Which members have which branches?",
        "SELECT m.name, b.name FROM members m JOIN branches b ON m.id = b.member_id",
        "SELECT m.name FROM members m JOIN loans l ON m.id = l.member_id",
    ),
    "log_value_seen": (
        ["SELECT name FROM members WHERE city = 'Lyon'"],
        1,
        "Which members live in Lyon?",
        "SELECT name FROM members WHERE city = 'LYON'",
        "SELECT name FROM members WHERE town = 'Lyon'",
    ),
    "log_value_elsewhere": (
        ["SELECT name FROM members WHERE city = 'Lyon'"],
        2,
        "Which members live in Lyon?",
        "SELECT name FROM members WHERE country = 'Lyon'",
        "SELECT name FROM members WHERE city = 'Lyon'",
    ),
    "log_format_unseen": (
        ["SELECT COUNT(*) FROM loans WHERE month = '202401'"],
        3,
        "How many loans began in March 2024?",
        "SELECT COUNT(*) FROM loans WHERE month = '2024-03'",
        "SELECT COUNT(*) FROM loans WHERE month = '202403'",
    ),
    "log_better_column": (
        ["SELECT MAX(loan_duration) FROM loans"],
        2,
        "What is the average loan duration?",
        "SELECT AVG(days) FROM loans",
        "SELECT AVG(loan_duration) FROM loans",
    ),
    "log_table_absent": (
        ["SELECT COUNT(*) FROM branches"],
        3,
        "Which branches have loans?",
        "SELECT member_id FROM loans",
        "SELECT b.name FROM branches b JOIN loans l ON l.branch_id = b.id",
    ),
    "log_tables_absent": (
        ["SELECT COUNT(*) FROM branches", "SELECT COUNT(*) FROM publishers"],
        3,
        "Which branches and publishers have loans?",
        "SELECT member_id FROM loans",
        "SELECT b.name FROM branches b JOIN loans l ON l.branch_id = b.id",
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_finding_that_rests_on_the_log_fires_where_the_log_speaks(kind: str) -> None:
    sqls, times, question, firing, silent = CASES[kind]
    catalogue = log_of(*sqls, times=times)

    assert kind in kinds(question, firing, catalogue)
    assert kind not in kinds(question, silent, catalogue)


@pytest.mark.parametrize("kind", CASES)
def test_without_a_catalogue_or_with_anothers_nothing_rests_on_the_log(kind: str) -> None:
    sqls, times, question, firing, _ = CASES[kind]

    assert kinds(question, firing, None) == set()
    assert kinds(question, firing, log_of(*sqls, app="shop", times=times)) == set()


@pytest.mark.parametrize("kind", CASES)
def test_an_answer_is_not_held_against_itself(kind: str) -> None:
    _, _, question, firing, _ = CASES[kind]
    catalogue = catalogue_of(mined([asked(question, firing)] * 20))

    assert kinds(question, firing, catalogue) == set()


def test_every_finding_that_rests_on_the_log_has_a_case() -> None:
    core = Path(__file__).parents[2] / "stef_core"

    used = {
        kind
        for path in core.glob("comparison/*.py")
        for kind in re.findall(r"\"(log_[a-z_]+)\"", path.read_text(encoding="utf-8"))
    }

    assert used == set(CASES)


def test_a_score_says_which_catalogue_it_saw() -> None:
    from stef_core.evaluate import examine_many
    from stef_core.extract.question_offline import OfflineReader
    from stef_core.rules import DEFAULT_RULES

    record, catalogue = asked("How many loans?", "SELECT COUNT(*) FROM loans"), log_of(LOANS)

    (without,) = examine_many([record], [DEFAULT_RULES], OfflineReader())
    (seen,) = examine_many([record], [DEFAULT_RULES], OfflineReader(), catalogue)

    assert without.catalogue is None
    assert seen.catalogue == catalogue.fingerprint_of("library") is not None


def test_a_wrong_join_that_the_log_contradicts_lowers_p_right() -> None:
    question, sql = "Which members have loans?", "SELECT m.name FROM members m JOIN loans l ON m.id = l.id"

    alone = judged(question, sql, None).verdict
    contradicted = judged(question, sql, log_of(JOIN.format(n=3), times=6)).verdict

    assert alone is not None
    assert contradicted is not None
    assert alone.p_right is not None
    assert contradicted.p_right is not None
    assert contradicted.p_right < alone.p_right - 0.05
    assert any("log" in reason for reason in contradicted.reasons)


def test_a_name_that_two_tables_own_is_known_to_be_theirs() -> None:
    catalogue = catalogue_of(mined([asked("who?", "SELECT name FROM staff"), asked("what?", "SELECT name FROM goods")]))

    witness = catalogue.witness(asked("a third question", "SELECT name FROM places"))

    assert witness is not None
    assert witness.owners("name") == 2
    assert witness.owners("price") == 0


@pytest.mark.parametrize(
    ("literal", "shape"),
    [("2024-03-01", "9999-99-99"), ("202403", "999999"), ("5", "number"), ("-1.5", "number"), ("Lyon", "word"), (" ", "empty")],
)
def test_shape_of_a_literal_keeps_how_it_is_written_and_not_what_it_says(literal: str, shape: str) -> None:
    assert shape_of(literal) == shape
