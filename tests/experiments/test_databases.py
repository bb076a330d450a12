"""Gold and prediction on three real engines: every kind of answer gets its label, and no prediction changes the data."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stef_core.errors import RuleError, TransientError
from stef_core.experiments.compare_results import CompareOptions, ResultSet
from stef_core.experiments.execution import Outcome, QueryFailure, accepted_queries, execution_accuracy
from tasks.databases import Database, open_database


def label(database: Database, gold: str, predicted: str | None, **options: Any) -> Outcome:
    return execution_accuracy([gold], predicted, database.run, database.dialect, CompareOptions(**options))


def series(engine: str, count: int) -> str:
    """A FROM item with the numbers from 1 in its column ``n``, of which SQLite has none."""
    if engine == "sqlite":
        return f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) AS t"
    return f"generate_series(1, {count}) AS t(n)"


V = "FROM visits"
# each runs on all three engines
CORRECT = {
    "another order of rows": (f"SELECT id, site {V}", f"SELECT id, site {V} ORDER BY id DESC"),
    "another order of columns": (f"SELECT id, site {V}", f"SELECT site, id {V}"),
    "other aliases": (
        f"SELECT site AS a, count(*) AS n {V} GROUP BY site",
        f"SELECT count(*) AS visits, site AS place {V} GROUP BY 2",
    ),
    "ties of an ORDER BY swap": (
        f"SELECT id, minutes {V} ORDER BY minutes DESC",
        f"SELECT id, minutes {V} ORDER BY minutes DESC, id DESC",
    ),
    "ties of keys that are no output": (f"SELECT id {V} ORDER BY minutes", f"SELECT id {V} ORDER BY minutes, id DESC"),
    "duplicates": ("SELECT a, b FROM doubles", "SELECT b, a FROM doubles ORDER BY a DESC"),
    "a column twice": (f"SELECT id, id, site {V}", f"SELECT site, id, id {V}"),
    "1 and 1.0": (f"SELECT count(*) {V}", f"SELECT count(*) * 1.0 {V}"),
    "1 and a decimal": (f"SELECT id {V}", f"SELECT CAST(id AS DECIMAL(10, 2)) {V}"),
    "0.1 + 0.2": (f"SELECT cost {V} WHERE id = 3", f"SELECT sum(cost) {V} WHERE id IN (1, 2)"),
    "dates and text": (f"SELECT day {V} WHERE id < 4", f"SELECT CAST(day AS VARCHAR(10)) {V} WHERE id < 4"),
    "minus zero": ("SELECT 0.0 UNION ALL SELECT 1.5", "SELECT -0.0 UNION ALL SELECT 1.5"),
    "both empty": (f"SELECT id {V} WHERE id > 99", f"SELECT id {V} WHERE site = 'West'"),
    "null and null": (f"SELECT nurse, cost {V}", f"SELECT cost, nurse {V}"),
    "a CTE": (f"SELECT id {V} WHERE minutes > 40", f"WITH long AS (SELECT id {V} WHERE minutes > 40) SELECT id FROM long"),
    "a leading comment": (f"SELECT id {V}", f"-- all of them\n/* really */ SELECT id {V};"),
    "brackets": (f"SELECT id {V}", f"SELECT id FROM (SELECT id {V}) AS v WHERE ((id)) > (0)"),
    "VALUES": ("SELECT 1 AS a", "VALUES (1)"),
    "a literal with a semicolon": (f"SELECT ';' AS a, id {V}", f"SELECT ';' AS a, id {V};"),
    "capitals in a literal": (f"SELECT id {V} WHERE site = 'North'", "select id from visits where site = 'North'"),
}
INCORRECT = {
    "3 against 2 of a row": (
        "SELECT a, b FROM doubles",
        "SELECT 1, 'x' UNION ALL SELECT 1, 'x' UNION ALL SELECT 2, 'y' UNION ALL SELECT 2, 'y'",
        "another number of times",
        None,
    ),
    "duplicates dropped": ("SELECT a, b FROM doubles", "SELECT DISTINCT a, b FROM doubles", "2 rows, gold has 4", None),
    "columns that agree as sets": (
        "SELECT 1, 'x' UNION ALL SELECT 2, 'y'",
        "SELECT 1, 'y' UNION ALL SELECT 2, 'x'",
        "the rows do not",
        None,
    ),
    "the order of gold": (f"SELECT id {V} ORDER BY id", f"SELECT id {V} ORDER BY id DESC", "in another order", "order_differs"),
    "null and empty text": (f"SELECT nurse {V} WHERE id = 5", f"SELECT nurse {V} WHERE id = 6", "NULL", None),
    "one empty": (f"SELECT id {V} WHERE id = 1", f"SELECT id {V} WHERE id > 99", "0 rows, gold has 1", None),
    "an extra column": (f"SELECT id {V}", f"SELECT id, site {V}", "2 columns", None),
    "lower-cased literal": (
        f"SELECT count(*) {V} WHERE site = 'North'",
        f"SELECT count(*) {V} WHERE site = 'north'",
        "has 0",
        None,
    ),
    "nothing": (f"SELECT id {V}", "  ", "the prediction is empty", "prediction_failed"),
    "a comment only": (f"SELECT id {V}", "-- no idea", "there is no SQL", "prediction_refused"),
    "no SQL": (f"SELECT id {V}", "I cannot answer this", "it is no query: it starts with I", "prediction_refused"),
    "a misspelt table": (f"SELECT id {V}", "SELECT id FROM visit", "the prediction failed", "prediction_syntax"),
    "a misspelt keyword": (f"SELECT id {V}", f"SELECT id {V} WHRE id = 1", "the prediction failed", "prediction_syntax"),
    "an open literal": (f"SELECT id {V}", "SELECT 'x", "never closed", "prediction_refused"),
}
HOSTILE = {
    "a loop without end": (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c) SELECT count(*) FROM c",
        "it was stopped after",
        "prediction_timeout",
    ),
    "a billion rows to count": (
        "SELECT sum(a.id) FROM " + ", ".join(f"visits {x}" for x in "abcdefghijklmn"),
        "it was stopped after",
        "prediction_timeout",
    ),
    "a billion rows to read": ("SELECT a.id FROM " + ", ".join(f"visits {x}" for x in "abcdefghijklmn"), "more than", None),
    "DELETE": ("DELETE FROM visits", "it starts with DELETE", "prediction_refused"),
    "DROP": ("DROP TABLE visits", "it starts with DROP", "prediction_refused"),
    "a CTE that writes": (
        "WITH d AS (DELETE FROM visits RETURNING id) SELECT id FROM d",
        "it holds DELETE",
        "prediction_refused",
    ),
    "a CTE before a write": ("WITH d AS (SELECT 1) DELETE FROM visits", "it holds DELETE", "prediction_refused"),
    "SELECT INTO": ("SELECT * INTO stolen FROM visits", "it holds INTO", "prediction_refused"),
    "two statements": ("SELECT id FROM visits; DROP TABLE visits", "it holds 2 statements", "prediction_refused"),
    "a transaction ended": ("SELECT 1; COMMIT; DELETE FROM visits", "it holds 3 statements", "prediction_refused"),
    "ATTACH": ("ATTACH DATABASE 'other.db' AS other", "it starts with ATTACH", "prediction_refused"),
    "COPY": ("COPY visits TO '/tmp/visits.csv'", "it starts with COPY", "prediction_refused"),
    "PRAGMA": ("PRAGMA query_only = OFF", "it starts with PRAGMA", "prediction_refused"),
    "SET": ("SET transaction_read_only = off", "it starts with SET", "prediction_refused"),
}
FILES = {
    "sqlite": ["SELECT load_extension('x')", "SELECT readfile('{file}')", "SELECT * FROM '{file}'"],
    "duckdb": [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        'SELECT * FROM "{file}"',
        "SELECT * FROM glob('/*')",
        "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
        "SELECT getenv('HOME')",
    ],
    "postgres": [
        "SELECT pg_read_file('{file}')",
        "SELECT \"pg_read_file\"('{file}')",
        "SELECT pg_catalog.pg_read_binary_file /* so */ ('{file}')",
        "SELECT U&\"pg\\005fread_file\"('{file}')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('{file}')",
        "SELECT query_to_xml('SELECT pg_read_file(''{file}'')', true, true, '')",
        "SELECT set_config('role', 'postgres', false)",
    ],
}


@pytest.mark.parametrize("case", CORRECT)
def test_correct(database: Database, case: str) -> None:
    gold, predicted = CORRECT[case]

    outcome = label(database, gold, predicted)

    assert outcome.label == "correct", outcome.reason
    assert (outcome.gold_index, "both_empty" in outcome.flags) == (0, case == "both empty")


@pytest.mark.parametrize("case", INCORRECT)
def test_incorrect_with_its_reason(database: Database, case: str) -> None:
    gold, predicted, said, flag = INCORRECT[case]

    outcome = label(database, gold, predicted)

    assert outcome.label == "incorrect", outcome.reason
    assert said in outcome.reason
    assert flag is None or flag in outcome.flags


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_prediction_ends_inside_its_limits_and_changes_nothing(database: Database, case: str) -> None:
    predicted, said, flag = HOSTILE[case]
    before = database.fingerprint()

    start = time.monotonic()
    outcome = label(database, "SELECT id FROM visits", predicted)
    seconds = time.monotonic() - start

    assert outcome.label == "incorrect"
    assert said in outcome.reason
    assert flag is None or flag in outcome.flags
    assert seconds < 15  # of a limit of 2 s, on a busy machine
    assert database.fingerprint() == before
    assert label(database, "SELECT id FROM visits", "SELECT id FROM visits").label == "correct"


def test_the_file_system_is_out_of_reach(database: Database, engine: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a secret\n", encoding="utf-8")

    for query in FILES[engine]:
        outcome = label(database, "SELECT id FROM visits", query.format(file=secret))

        assert outcome.label == "incorrect", query
        assert outcome.flags & {"prediction_refused", "prediction_syntax"}, (query, outcome)
        assert "secret\n" not in outcome.reason


def test_what_the_check_lets_through_the_engine_still_refuses(
    database: Database, monkeypatch: pytest.MonkeyPatch, engine: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a secret\n", encoding="utf-8")
    before = database.fingerprint()
    monkeypatch.setattr(database, "_refused", lambda sql: None)

    writes = [
        "INSERT INTO doubles VALUES (9, 'z')",
        "DELETE FROM visits",
        "DROP TABLE visits",
        "CREATE TABLE more (a INTEGER)",
        f"ATTACH '{tmp_path}/other.db' AS other",
        "SELECT 1; DELETE FROM visits",
        "COMMIT; DELETE FROM visits",
    ]
    for query in [*writes, *(query.format(file=secret) for query in FILES[engine])]:
        if "set_config" in query or "query_to_xml" in query:
            continue  # allowed by the engine: the check is what refuses them
        assert isinstance(database.run(query), QueryFailure), query

    assert database.fingerprint() == before
    assert not (tmp_path / "other.db").exists()


def test_infinities_are_told_by_their_sign(database: Database, engine: str) -> None:
    plus, minus = (
        ("9e999", "-9e999") if engine == "sqlite" else ("CAST('inf' AS DOUBLE PRECISION)", "CAST('-inf' AS DOUBLE PRECISION)")
    )

    assert label(database, f"SELECT {plus}", f"SELECT {plus} + 1").label == "correct"
    assert label(database, f"SELECT {plus}", f"SELECT {minus}").label == "incorrect"


@pytest.mark.parametrize("engine", ["duckdb", "postgres"], indirect=True)
def test_what_is_no_number_equals_itself_and_not_null(database: Database) -> None:
    nan = "SELECT CAST('NaN' AS DOUBLE PRECISION)"  # SQLite has NULL in its place

    assert label(database, nan, nan).label == "correct"
    assert label(database, nan, "SELECT NULL").label == "incorrect"


@pytest.mark.parametrize("engine", ["duckdb", "postgres"], indirect=True)
def test_a_query_in_brackets_is_a_query(database: Database) -> None:
    # SQLite's own grammar has none
    assert label(database, "SELECT id FROM visits ORDER BY id", "((SELECT id FROM visits ORDER BY 1));").label == "correct"
    assert label(database, "(SELECT id FROM visits ORDER BY id)", "SELECT id FROM visits ORDER BY id DESC").label == "incorrect"


def test_gold_that_fails_is_a_fault_of_the_data_set(database: Database) -> None:
    outcome = label(database, "SELECT id FROM vists", "SELECT id FROM visits")

    assert outcome.label == "gold_failed"
    assert outcome.reason.startswith("the gold query failed (syntax): ")
    assert "vists" in outcome.reason


def test_gold_that_loops_or_writes_is_a_fault_of_the_data_set(database: Database) -> None:
    loops = label(database, HOSTILE["a loop without end"][0], "SELECT 1")
    writes = label(database, "DELETE FROM visits", "SELECT 1")

    assert (loops.label, writes.label) == ("gold_failed", "gold_failed")
    assert "it was stopped after 2 s" in loops.reason


def test_no_prediction_is_not_run_and_asks_nothing_of_the_database(database: Database) -> None:
    asked: list[str] = []

    def run(sql: str) -> ResultSet | QueryFailure:
        asked.append(sql)
        return database.run(sql)

    outcome = execution_accuracy(["SELECT 1"], None, run, database.dialect)

    assert (outcome.label, outcome.reason, asked) == ("not_run", "there is no prediction", [])


def test_one_of_several_accepted_queries_is_enough(database: Database) -> None:
    gold = [
        "SELECT id FROM visits WHERE id = 1; SELECT site FROM visits WHERE id = 1;",
        "SELECT ';', site FROM visits WHERE id = 1",
    ]

    outcomes = [
        execution_accuracy(gold, predicted, database.run, database.dialect)
        for predicted in ("SELECT 1", "SELECT 'North'", "SELECT 'North', ';'", "SELECT 'South'")
    ]

    assert [outcome.gold_index for outcome in outcomes] == [0, 1, 2, None]
    assert "none of the other 2 accepted queries agrees" in outcomes[3].reason


def test_an_accepted_query_that_fails_does_not_stop_the_others(database: Database) -> None:
    gold = ["SELECT nope FROM visits", "SELECT id FROM visits"]

    outcome = execution_accuracy(gold, "SELECT id FROM visits", database.run, database.dialect)

    assert outcome.label == "correct"
    assert outcome.flags == {"gold_partly_failed"}


def test_extra_columns_pass_as_a_subset(database: Database) -> None:
    outcome = label(database, "SELECT id FROM visits", "SELECT site, id FROM visits", columns="subset")

    assert outcome.label == "correct"


def test_letter_case_is_ignored_when_asked_for(database: Database) -> None:
    outcome = label(database, "SELECT site FROM visits", "SELECT upper(site) FROM visits", ignore_case=True)

    assert outcome.label == "correct"


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        # 45 minutes three times, two places
        (
            "SELECT id FROM visits ORDER BY minutes DESC LIMIT 2",
            ["SELECT 2 AS id UNION ALL SELECT 3", "SELECT 5 AS id UNION ALL SELECT 2"],
            ["SELECT 2 AS id UNION ALL SELECT 1", "SELECT 2 AS id UNION ALL SELECT 2", "SELECT 2 AS id"],
        ),
        (
            "SELECT site, minutes AS m FROM visits ORDER BY m LIMIT 4",
            ["SELECT site, minutes FROM visits WHERE minutes < 45 OR id = 5 ORDER BY minutes"],
            [
                "SELECT site, minutes FROM visits WHERE minutes < 45 OR id = 5 ORDER BY minutes DESC",
                "SELECT site, minutes FROM visits WHERE id IN (1, 4, 2, 3) ORDER BY minutes",
            ],
        ),
        (
            "SELECT site, count(*) FROM visits GROUP BY site ORDER BY count(*) DESC, max(minutes) LIMIT 1 OFFSET 1",
            ["SELECT 'North', 2"],
            ["SELECT 'South', 3", "SELECT 'East', 1"],
        ),
        ("SELECT id FROM visits LIMIT 2", ["SELECT 6 UNION ALL SELECT 4"], ["SELECT 6 UNION ALL SELECT 7"]),
    ],
    ids=["the last places", "a tie in the middle", "an offset, and no tie", "no order at all"],
)
def test_any_rows_of_a_tie_that_gold_cuts_are_right(database: Database, gold: str, right: list[str], wrong: list[str]) -> None:
    accepted = [label(database, gold, predicted) for predicted in [gold, *right]]
    refused = [label(database, gold, predicted) for predicted in wrong]

    assert [outcome.label for outcome in accepted] == ["correct"] * len(accepted), accepted
    assert [outcome.label for outcome in refused] == ["incorrect"] * len(refused), refused
    expected = set() if "OFFSET" in gold else {"tie"}
    assert all((outcome.flags & {"tie"}) == expected for outcome in [*accepted, *refused])


def test_order_inside_a_subquery_or_a_window_is_no_order_of_the_result(database: Database) -> None:
    gold = "SELECT id, rank() OVER (ORDER BY minutes) AS place FROM (SELECT * FROM visits ORDER BY id LIMIT 6) AS v"

    assert label(database, gold, f"{gold} ORDER BY id DESC").label == "correct"


def test_a_quarter_of_a_million_rows_shuffled_are_correct(open_with: Callable[..., Database], engine: str) -> None:
    numbers = series(engine, 250_000)
    with open_with(timeout_s=60.0) as database:
        outcome = label(
            database,
            f"SELECT n, n % 7 AS r, n * 0.5 AS h FROM {numbers}",
            f"SELECT n * 0.5 AS half, n, n % 7 FROM {numbers} ORDER BY (n * 7919) % 250007",
        )

    assert outcome.label == "correct", outcome.reason
    assert (outcome.gold_rows, outcome.predicted_rows) == (250_000, 250_000)
    assert "by_hash" in outcome.flags


def test_rows_beyond_the_limit_are_cut_off_and_said_to_be(open_with: Callable[..., Database], engine: str) -> None:
    with open_with(max_rows=3) as database:
        whole, cut = database.run("SELECT id FROM visits WHERE id <= 3"), database.run("SELECT id FROM visits")
        outcome = label(database, "SELECT id FROM visits", "SELECT id FROM visits")

    assert isinstance(whole, ResultSet)
    assert isinstance(cut, ResultSet)
    assert (len(whole.rows), whole.truncated, len(cut.rows), cut.truncated) == (3, False, 3, True)
    assert (outcome.label, "raise the limit" in outcome.reason) == ("gold_failed", True)


def test_rows_that_would_fill_the_memory_are_not_read(database: Database, engine: str) -> None:
    wide = {"sqlite": "printf('%.5000000c', 'x')", "duckdb": "repeat('x', 5000000)", "postgres": "repeat('x', 5000000)"}[engine]

    found = database.run(f"SELECT {wide} || a.id FROM visits a, visits b, visits c, visits d")

    assert isinstance(found, QueryFailure)
    # whichever limit is met first: ours, or DuckDB's own
    assert (
        "it was stopped after" in found.message or "take more than 500 MB" in found.message or "Out of Memory" in found.message
    )


def test_nesting_without_end_is_refused_by_the_engine_and_harms_nobody(database: Database) -> None:
    outcome = label(database, "SELECT id FROM visits", "SELECT " + "(" * 20_000 + "1" + ")" * 20_000)

    assert outcome.label == "incorrect"
    assert "prediction_failed" in outcome.flags


def test_sql_reaches_the_engine_as_it_was_written(database: Database) -> None:
    seen: list[str] = []
    gold, predicted = (
        'SELECT "id" AS "Id" FROM visits WHERE site = \'North\'',
        '  select "id" -- Quoted\nfrom "visits" where "site" = \'North\'; ',
    )

    def run(sql: str) -> ResultSet | QueryFailure:
        seen.append(sql)
        return database.run(sql)

    outcome = execution_accuracy([gold], predicted, run, database.dialect)

    assert outcome.label == "correct"
    assert seen == [gold, predicted]


def test_ddl_names_every_table_and_column(database: Database) -> None:
    ddl = database.ddl()

    assert ddl.count("CREATE TABLE") == 2
    assert ddl.count("CREATE VIEW") == 1
    for name in ("visits", "doubles", "long_visits", "minutes", "nurse"):
        assert name in ddl


def test_queries_from_many_threads_do_not_mix(database: Database) -> None:
    answers: dict[int, Any] = {}

    def ask(k: int) -> None:
        answers[k] = database.run(f"SELECT {k} + id FROM visits WHERE id = 1")

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {k: answer.rows for k, answer in answers.items()} == {k: [(k + 1,)] for k in range(20)}


# --- one engine only ------------------------------------------------------------------------------------------------


def test_infinite_and_other_rare_values_of_postgres_come_through(database_urls: dict[str, str]) -> None:
    query = (
        "SELECT 'infinity'::timestamp, '-infinity'::date, '4714-11-24 BC'::date, 'NaN'::numeric, 'Infinity'::float8,"
        " '{1,2}'::int[],"
        " '{\"a\": 1}'::jsonb, interval '1 day 2 hours', '12:30'::time, '\\x00ff'::bytea, '1-2-3'::text, '10.0.0.1'::inet"
    )
    with open_database(database_urls["postgres"]) as database:
        result = database.run(query)
        outcome = label(database, f"{query} UNION ALL {query}", f"{query} UNION ALL {query}")

    assert isinstance(result, ResultSet), result
    assert outcome.label == "correct", outcome.reason


def test_a_text_of_sqlite_that_is_no_utf_8_is_read_as_its_bytes(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "odd.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (CAST(x'fffe' AS TEXT)), ('plain')")
    connection.close()

    with open_database(f"sqlite:///{tmp_path}/odd.sqlite") as database:
        result = database.run("SELECT a FROM t")

    assert isinstance(result, ResultSet)
    assert result.rows == [(b"\xff\xfe",), ("plain",)]


def test_schema_and_json_functions_of_sqlite_may_be_read(database_urls: dict[str, str]) -> None:
    with open_database(database_urls["sqlite"]) as database:
        columns = database.run("SELECT name FROM pragma_table_info('doubles')")
        members = database.run("SELECT value FROM json_each('[1, 2]')")
        where = database.run("SELECT file FROM pragma_database_list")

    assert isinstance(columns, ResultSet)
    assert isinstance(members, ResultSet)
    assert (columns.rows, members.rows) == ([("a",), ("b",)], [(1,), (2,)])
    assert isinstance(where, QueryFailure)


def test_a_name_with_a_question_mark_cannot_open_a_file_for_writing(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="without options"):
        open_database(f"sqlite:///{tmp_path}/x.db?mode=rwc")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///nowhere.db", "there is no such file"),
        ("duckdb:///nowhere.db", "there is no such file"),
        ("sqlite://relative.db", "three slashes"),
        ("duckdb:///:memory:", "name a file"),
        ("mysql://user:hush@host/db", "a URL that begins with 'mysql://' does not work"),
        ("visits.db", "a text without '://'"),
    ],
)
def test_urls_that_do_not_work_are_refused_without_secrets(url: str, said: str) -> None:
    with pytest.raises(RuleError) as error:
        open_database(url)

    assert said in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_file_of_another_kind_is_refused(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database, but long enough to be taken for one" * 300, encoding="utf-8")

    with pytest.raises(RuleError, match=r"notes\.txt"):
        open_database(f"{scheme}:///{tmp_path}/notes.txt")


def test_a_server_that_is_not_there_is_an_outage_and_shows_no_password() -> None:
    with pytest.raises(TransientError) as error:
        open_database("postgresql://me:hush@127.0.0.1:1/db")

    assert "hush" not in str(error.value)
    assert "127.0.0.1" in str(error.value)


def test_an_outage_is_never_a_wrong_answer() -> None:
    away = QueryFailure("unavailable", "connection refused")
    rows = ResultSet(("a",), [(1,)])

    before = execution_accuracy(["SELECT 1"], "SELECT 1", lambda sql: away, "postgres")
    between = execution_accuracy(["SELECT 1"], "SELECT 2", lambda sql: rows if "1" in sql else away, "postgres")

    assert [(outcome.label, "could not be reached" in outcome.reason) for outcome in (before, between)] == [
        ("not_run", True)
    ] * 2


def test_a_connection_that_was_lost_is_opened_again(database_urls: dict[str, str]) -> None:
    import psycopg

    with open_database(database_urls["postgres"]) as database:
        mine = database.run("SELECT pg_backend_pid()")
        assert isinstance(mine, ResultSet)
        with psycopg.connect(database_urls["postgres"], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", mine.rows[0])
        lost, again = database.run("SELECT 1"), database.run("SELECT 1")

    assert isinstance(lost, QueryFailure)
    assert lost.kind == "unavailable"
    assert isinstance(again, ResultSet)


def test_choices_of_columns_are_spelled_out() -> None:
    gold = "SELECT {u.id, u.name}, count(*) FROM u GROUP BY {}; SELECT 1"

    assert accepted_queries([gold], "postgres") == [
        "SELECT u.id, count(*) FROM u GROUP BY u.id",
        "SELECT u.name, count(*) FROM u GROUP BY u.name",
        "SELECT u.id, u.name, count(*) FROM u GROUP BY u.id, u.name",
        "SELECT 1",
    ]
    assert accepted_queries(["SELECT {'a': 1}"], "duckdb") == ["SELECT {'a': 1}"]
    assert accepted_queries(["SELECT '{a, b}'"], "postgres") == ["SELECT '{a, b}'"]
