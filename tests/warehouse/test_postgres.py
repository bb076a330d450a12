"""What only PostgreSQL knows: URLs and TLS, a server that goes away, locks, roles' errors, types and indexes."""

from __future__ import annotations

import datetime as dt
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from stef_core.errors import BusyError, RuleError, TransientError
from stef_core.frames import RECORDED, TABLES, frame_of
from tasks.warehouse import connect
from tasks.warehouse.postgres import PostgresWarehouse
from tests.postgres_server import PostgresServer
from tests.processes import other_process
from tests.tls_proxy import tls_port, write_certificate

DAY = dt.date(2026, 3, 2)
NEXT = DAY + dt.timedelta(days=1)
Rows = Callable[..., pl.DataFrame]


@pytest.fixture
def name(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database."""
    name = f"warehouse_{uuid.uuid4().hex}"
    postgres_server(name)
    yield name
    postgres_server.drop(name)


@pytest.fixture
def url(name: str, postgres_server: PostgresServer) -> str:
    return postgres_server.url(name)


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[str]:
    """A role that may log in and owns nothing."""
    name = f"role_{uuid.uuid4().hex}"
    postgres_server.sql(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres_server.sql(f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be stopped."""
    server = PostgresServer(durable=True)
    yield server
    server.close()


def stage(warehouse: Any, rows: Rows, run_id: str = "run-1", query_id: str = "a", day: dt.date = DAY) -> None:
    warehouse.stage(run_id, day, {"query_scores": rows("query_scores", {"query_id": query_id}, run_id=run_id, day=day)})


# --- URLs -----------------------------------------------------------------------------------------------------------


def test_both_schemes_and_a_socket_in_the_options_work(url: str) -> None:
    with connect(url) as warehouse:
        warehouse.record_run({"run_id": "run-1"})

    with connect(url.replace("postgresql://", "postgres://"), read_only=True) as reader:
        assert reader.read("scoring_runs").height == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("postgresql://ann:hush@host/db?ssmode=require", "there is no option 'ssmode'"),
        ("postgresql://ann:hush%zz@host/db", "it cannot be read"),
        ("postgresql://ann:hush@[host/db", "it cannot be read"),
        ("postgresql://ann:hu@sh@host/db", "there is an @ in its host"),
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_password(wrong: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        connect(wrong)

    assert message in str(caught.value)
    assert "postgresql://user@host:5432/database" in str(caught.value)
    assert "hu" not in str(caught.value)
    assert "ann:hu" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("options", ["", "?password=hush"])
def test_no_message_and_no_name_holds_the_password(options: str) -> None:
    user = "ann" if options else "ann:hush"
    with pytest.raises(TransientError) as caught:
        connect(f"postgresql://{user}@127.0.0.1:1/db{options}", wait_s=0.1)

    assert "hush" not in str(caught.value)
    assert str(caught.value).startswith("postgresql://127.0.0.1:1/db: cannot be reached: connection failed")


@pytest.mark.parametrize(("what", "user"), [("database", "postgres"), ("role", "nobody_at_all")])
def test_what_waiting_does_not_mend_is_told_at_once(what: str, user: str, name: str, postgres_server: PostgresServer) -> None:
    begun = time.monotonic()

    with pytest.raises(RuleError, match=f'{what} "no.*" does not exist'):
        connect(postgres_server.url("no_such" if what == "database" else name, user=user), wait_s=60)

    assert time.monotonic() - begun < 10


def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: PostgresServer) -> None:
    name = f"latin_{uuid.uuid4().hex}"
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")

    with pytest.raises(RuleError, match=r"its encoding is LATIN1, .* make it with UTF8"):
        connect(postgres_server.url(name))

    postgres_server.drop(name)


def test_reading_a_database_without_tables_makes_none(url: str, name: str, postgres_server: PostgresServer) -> None:
    with pytest.raises(RuleError, match="holds no STEF tables; score a day into it first"):
        connect(url, read_only=True)

    assert postgres_server.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'stef%'", name) == [(0,)]


def test_other_schemas_of_the_database_are_left_alone(url: str, name: str, postgres_server: PostgresServer, rows: Rows) -> None:
    postgres_server.sql(
        "CREATE SCHEMA staging; CREATE TABLE staging.query_scores (a INT); CREATE TABLE query_scores (b INT)", name
    )

    with connect(url) as warehouse:
        stage(warehouse, rows)
        warehouse.publish("run-1", DAY, ["query_scores"])

        assert warehouse.read("query_scores").height == 1
    assert postgres_server.sql("SELECT count(*) FROM staging.query_scores, public.query_scores", name) == [(0,)]


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "trusted", "message"),
    [
        ("verify-full", "server", None),
        ("require", None, None),
        ("verify-full", "other", "certificate verify failed"),
        ("verify-full", "absent", "root certificate file .* does not exist"),
    ],
)
def test_tls_settings_of_the_url_are_honoured(
    mode: str, trusted: str | None, message: str | None, name: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    files = write_certificate(tmp_path, "server")
    write_certificate(tmp_path, "other")
    root = f"&sslrootcert={tmp_path / trusted}.crt" if trusted else ""
    with tls_port(Path(postgres_server.socket_folder) / ".s.PGSQL.5432", *files) as port:
        url = f"postgresql://postgres:hush@127.0.0.1:{port}/{name}?sslmode={mode}{root}"

        if message is None:
            with connect(url, wait_s=10) as warehouse:
                warehouse.record_run({"run_id": "run-1"})
                assert warehouse.read("scoring_runs").height == 1
        else:
            with pytest.raises(RuleError, match=message) as caught:
                connect(url, wait_s=60)
            assert "hush" not in str(caught.value)


def test_a_server_without_tls_is_refused_where_the_url_asks_for_it(name: str, postgres_server: PostgresServer) -> None:
    with (
        tls_port(Path(postgres_server.socket_folder) / ".s.PGSQL.5432", None, None) as port,
        pytest.raises(RuleError, match="does not support SSL"),
    ):
        connect(f"postgresql://postgres@127.0.0.1:{port}/{name}?sslmode=require", wait_s=60)


# --- a server that goes away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_day_staged_before_a_restart_is_published_after_it(own_server: PostgresServer, rows: Rows, mode: str) -> None:
    url = own_server(f"restart_{mode}")
    with connect(url) as warehouse:
        stage(warehouse, rows)
        own_server.stop(mode)
        own_server.start()

        warehouse.publish("run-1", DAY, ["query_scores"], {"run_id": "run-1"})

        assert warehouse.read("query_scores")["query_id"].to_list() == ["a"]
    with connect(url, read_only=True) as reader:
        assert reader.read("scoring_runs")["run_id"].to_list() == ["run-1"]


def test_a_publish_while_the_server_is_down_fails_in_words_and_succeeds_when_it_is_back(
    own_server: PostgresServer, rows: Rows
) -> None:
    url = own_server("down")
    with connect(url, wait_s=0.5) as warehouse:
        stage(warehouse, rows)
        own_server.stop()

        with pytest.raises(TransientError, match=r"cannot be reached: .*, still after 0.5 s; start the server") as caught:
            warehouse.publish("run-1", DAY, ["query_scores"])
        with pytest.raises(TransientError, match="cannot be reached"):
            connect(url, wait_s=0.1)

        own_server.start()
        warehouse.publish("run-1", DAY, ["query_scores"])

        assert not isinstance(caught.value, BusyError)
        assert warehouse.read("query_scores").height == 1


def test_a_server_that_is_about_to_start_is_waited_for(own_server: PostgresServer) -> None:
    url = own_server("late")
    own_server.stop()
    starting = threading.Timer(0.5, own_server.start)
    starting.start()

    with connect(url, wait_s=60) as warehouse:
        assert warehouse.days() == []

    starting.join()


@pytest.mark.parametrize("moment", ["_replace", "_upsert_run"])
def test_a_connection_that_is_lost_inside_a_publish_leaves_nothing_and_the_next_attempt_succeeds(
    url: str, postgres_server: PostgresServer, rows: Rows, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with connect(url) as warehouse:
        assert isinstance(warehouse, PostgresWarehouse)
        stage(warehouse, rows, "run-old", "old")
        warehouse.publish("run-old", DAY, ["query_scores"])
        stage(warehouse, rows, "run-new", "new")
        step = getattr(warehouse, moment)

        def lose(*arguments: Any) -> None:
            step(*arguments)
            postgres_server.sql(f"SELECT pg_terminate_backend({warehouse._open.info.backend_pid})")

        with monkeypatch.context() as moments:
            moments.setattr(warehouse, moment, lose)
            with pytest.raises(TransientError, match=r"the server gave up: .*; try again"):
                warehouse.publish("run-new", DAY, ["query_scores"], {"run_id": "run-new"})

        assert warehouse.read("query_scores")["query_id"].to_list() == ["old"]
        assert warehouse.read("scoring_runs").is_empty()
        warehouse.publish("run-new", DAY, ["query_scores"], {"run_id": "run-new"})
        assert warehouse.read("query_scores")["query_id"].to_list() == ["new"]


def test_a_standby_is_read_and_not_written(rows: Rows) -> None:
    server = PostgresServer(durable=True)
    try:
        url = server("standby")
        with connect(url) as warehouse:
            stage(warehouse, rows)
            warehouse.publish("run-1", DAY, ["query_scores"])
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()

        with pytest.raises(TransientError, match="is a standby, which takes no writes; name the primary"):
            connect(url, wait_s=0.1)
        with connect(url, read_only=True) as reader:
            assert reader.read("query_scores").height == 1
    finally:
        server.close()


def test_a_server_that_is_full_is_busy(name: str, url: str, role: str, postgres_server: PostgresServer) -> None:
    connect(url).close()
    postgres_server.sql(f"ALTER ROLE {role} CONNECTION LIMIT 1")

    with psycopg.connect(postgres_server.url(name, user=role)), pytest.raises(BusyError, match="no connection to spare"):
        connect(postgres_server.url(name, user=role), read_only=True, wait_s=0.3)


def test_a_time_limit_of_the_server_is_an_error_to_try_again(url: str, name: str, postgres_server: PostgresServer) -> None:
    with connect(url) as warehouse:
        postgres_server.sql(f"ALTER DATABASE {name} SET statement_timeout TO '200ms'")
    with connect(url, read_only=True) as warehouse, pytest.raises(TransientError, match="statement timeout"):
        warehouse.query("SELECT pg_sleep(30)::text")


# --- locks ----------------------------------------------------------------------------------------------------------

STOP_INSIDE = """
    import datetime as dt, sys, time
    from stef_core.frames import RECORDED, TABLES, frame_of
    from tasks.warehouse import connect
    row = {"dt": dt.date(2026, 3, 2), "query_id": "b", "agent_id": "ann", "status": "scored", "run_id": "run-2"}
    with connect(sys.argv[1]) as warehouse:
        warehouse.stage("run-2", row["dt"], {"query_scores": frame_of([row], TABLES["query_scores"])})

        def stop(row):
            print("ready", flush=True)
            time.sleep(120)

        warehouse._upsert_run = stop
        warehouse.publish("run-2", row["dt"], ["query_scores"], {"run_id": "run-2"})
"""


def test_readers_do_not_wait_for_a_publish_and_its_locks_hold_up_no_reader(
    url: str, name: str, postgres_server: PostgresServer, rows: Rows
) -> None:
    with connect(url) as warehouse:
        stage(warehouse, rows)
        warehouse.publish("run-1", DAY, ["query_scores"])

    with other_process(STOP_INSIDE, url), connect(url, read_only=True, wait_s=0.1) as reader:
        assert reader.read("query_scores")["query_id"].to_list() == ["a"]
        assert reader.read("v_worst_queries")["query_id"].to_list() == ["a"]
        modes = postgres_server.sql(
            "SELECT DISTINCT mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname LIKE 'stef%' AND l.granted",
            name,
        )

    assert ("RowExclusiveLock",) in modes
    assert {mode for (mode,) in modes} <= {"RowExclusiveLock", "AccessShareLock"}


def test_writers_of_one_day_take_turns_and_other_days_do_not_wait(url: str, rows: Rows) -> None:
    with connect(url) as warehouse:
        stage(warehouse, rows)

    with other_process(STOP_INSIDE, url) as writer, connect(url, wait_s=0.3) as other:
        busy = "another process writes the day 2026-03-02, still after 0.3 s; let it finish"
        with pytest.raises(BusyError, match=busy):
            stage(other, rows, "run-3")
        with pytest.raises(BusyError, match=busy):
            other.publish("run-2", DAY, ["query_scores"])
        stage(other, rows, "run-4", day=NEXT)
        other.publish("run-4", NEXT, ["query_scores"])
        writer.kill()
        writer.wait()

    with connect(url, wait_s=10) as warehouse:
        stage(warehouse, rows, "run-3")
        warehouse.publish("run-3", DAY, ["query_scores"])
        assert warehouse.days() == [DAY, NEXT]


def test_many_workers_staging_one_day_leave_the_rows_of_one(url: str, rows: Rows) -> None:
    with connect(url):
        pass

    def work(number: int) -> None:
        with connect(url, wait_s=60) as warehouse:
            for attempt in range(5):
                stage(warehouse, rows, f"run-{number}-{attempt}", str(number))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    with connect(url, read_only=True) as reader:
        assert reader.query("SELECT count(*) AS n FROM staging.query_scores")["n"].item() == 1
        assert reader.query("SELECT count(*) AS n FROM staging.manifest")["n"].item() == 1


def test_the_schema_is_not_touched_while_it_is_current(url: str, rows: Rows) -> None:
    connect(url).close()
    with psycopg.connect(url) as holder:
        # as an open dashboard does: a view that is made anew would have to wait for it
        holder.execute("SELECT * FROM stef.v_worst_queries")

        with connect(url, wait_s=0.3) as warehouse:
            stage(warehouse, rows)

            assert warehouse.migrate() == []
            assert not warehouse.staged("query_scores", "run-1").is_empty()


def test_a_schema_that_somebody_reads_is_not_changed_under_them(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(url).close()
    monkeypatch.setattr("tasks.warehouse.sql._comments_sql", lambda: "COMMENT ON TABLE query_scores IS 'other';\n")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM stef.v_worst_queries")

        with pytest.raises(BusyError, match=r"another process holds a table that this needs, still after 0.3 s"):
            connect(url, wait_s=0.3)

    with connect(url, wait_s=0.3) as warehouse:
        assert warehouse.read("v_worst_queries").is_empty()


def test_a_view_that_somebody_built_on_ours_is_named(
    url: str, name: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(url).close()
    postgres_server.sql("CREATE VIEW mine AS SELECT query_id FROM stef.v_worst_queries", name)
    monkeypatch.setattr("tasks.warehouse.sql._comments_sql", lambda: "COMMENT ON TABLE query_scores IS 'other';\n")

    with pytest.raises(RuleError, match="cannot drop view v_worst_queries because other objects depend on it"):
        connect(url)


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "\\N", "\\.", "a\tb", "line\nline\r\n\\.\nend", "\\\\x", '"quoted"', "NULL", "a,b;c", "\u2028🛒\ufeff", "\\t\\n"],
)
def test_every_text_comes_back_as_it_went_in(url: str, rows: Rows, text: str) -> None:
    frame = rows("query_scores", {"query_id": "a", "user_question": text}, {"query_id": "b", "user_question": None})

    with connect(url) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": frame})

        assert warehouse.staged("query_scores", "run-1").equals(frame)


def test_a_nul_which_no_text_of_postgresql_holds_does_not_cost_the_day(url: str, rows: Rows) -> None:
    with connect(url) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a", "user_question": "a\0b"})})

        assert warehouse.staged("query_scores", "run-1")["user_question"].to_list() == ["a\ufffdb"]


def test_numbers_and_moments_at_their_ends_come_back_as_they_went_in(url: str, rows: Rows) -> None:
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)]
    numbers = [5e-324, -1.7976931348623157e308, 0.1 + 0.2, -0.0, float("inf")]
    given = [{"query_id": str(n), "phi": number, "asked_at": moments[n % 2]} for n, number in enumerate(numbers)]
    frame = rows("query_scores", *given, {"query_id": "9", "base": 2**63 - 1}, {"query_id": "99", "base": -(2**63)})

    with connect(url) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": frame})

        assert warehouse.staged("query_scores", "run-1").equals(frame)


def test_more_rows_than_are_read_at_once_come_back_whole(url: str, rows: Rows) -> None:
    one = rows("query_scores", {"query_id": ""})
    for size in (4_999, 5_000, 10_001):
        frame = pl.concat([one] * size).with_columns(query_id=pl.int_range(size).cast(pl.String)).sort("query_id")
        with connect(url) as warehouse:
            warehouse.stage("run-1", DAY, {"query_scores": frame})

            assert warehouse.staged("query_scores", "run-1").equals(frame)


def test_text_is_ordered_by_its_bytes_whatever_the_database_speaks(
    url: str, name: str, postgres_server: PostgresServer
) -> None:
    with connect(url):
        pass

    other = postgres_server.sql(
        "SELECT n.nspname, c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_collation l ON l.oid = a.attcollation "
        "WHERE n.nspname LIKE 'stef%' AND c.relkind IN ('r', 'v') AND l.collname <> 'C' ORDER BY c.relname, a.attname",
        name,
    )

    # words that views write themselves, such as the * of one that has no other application
    assert [column for _, view, column in other if not view.startswith("v_")] == []
    assert ("stef", "v_agent_trend", "app_id") in other
    assert {column for _, _, column in other} <= {"app_id", "kind", "outcome", "first_failure", "gate", "value"}


def test_what_a_query_gives_has_the_types_of_a_frame(url: str) -> None:
    with connect(url) as warehouse:
        frame = warehouse.query(
            "SELECT 1::smallint AS a, 2 AS b, 3::bigint AS c, 1.5::real AS d, 0.1::float8 AS e, 10.25::numeric AS f, "
            "true AS g, DATE '2026-03-02' AS h, TIMESTAMP '2026-03-02 12:00:00.5' AS i, "
            "TIMESTAMPTZ '2026-03-02 12:00:00+02' AS j, ARRAY[1, 2] AS k, '{\"x\": 1}'::jsonb AS l, "
            "INTERVAL '1 day' AS m, NULL::bigint AS n, NULL AS o, 'it''s staging.x'::varchar AS p"
        )

    ten = dt.datetime(2026, 3, 2, 10, tzinfo=dt.UTC)
    noon = dt.datetime(2026, 3, 2, 12, 0, 0, 500_000)  # noqa: DTZ001 - has no zone on purpose
    assert frame.row(0) == (
        *(1, 2, 3, 1.5, 0.1, 10.25, True, DAY, noon, ten),
        *("{1,2}", '{"x": 1}', "1 day", None, None, "it's staging.x"),
    )
    assert frame.dtypes[:4] == [pl.Int16, pl.Int32, pl.Int64, pl.Float32]
    assert frame.dtypes[13:15] == [pl.Int64, pl.String]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("WITH gone AS (DELETE FROM query_scores RETURNING 1) SELECT * FROM gone", "data-modifying statements in WITH"),
        ("SELECT * FROM query_scores FOR UPDATE", "read-only transaction"),
        ("SELECT nextval('counter')", "read-only transaction|permission denied"),
        ("SELECT 1 INTO stolen", "INTO"),
        ("SELECT set_config('transaction_read_only', 'off', false), 1; DELETE FROM query_scores", "."),
        ("SELECT set_config('transaction_read_only', 'off', false)", "read-write mode must be set before any query"),
        ("SELECT lo_export(1, '/tmp/stolen')", "permission denied"),
        ("SELECT pg_read_file('/etc/passwd')", "permission denied"),
        ("SELECT query_to_xml('DELETE FROM stef.query_scores', true, true, '')", "read-only transaction|non-volatile"),
        ("EXPLAIN ANALYZE DELETE FROM query_scores", "syntax error"),
        ("SELECT 1 / 0", "division by zero"),
    ],
)
def test_a_query_can_neither_write_nor_leave_its_transaction(
    url: str, name: str, postgres_server: PostgresServer, rows: Rows, sql: str, message: str
) -> None:
    with connect(url) as warehouse:
        stage(warehouse, rows)
        warehouse.publish("run-1", DAY, ["query_scores"])
        postgres_server.sql("CREATE SEQUENCE stef.counter", name)

        with pytest.raises(RuleError, match=message):
            warehouse.query(sql)

        assert warehouse.read("query_scores").height == 1


def test_what_a_query_sets_is_gone_after_it(url: str) -> None:
    with connect(url) as warehouse:
        warehouse.query("SELECT set_config('search_path', 'public', false) AS a, set_config('TimeZone', 'UTC+9', false) AS b")

        assert warehouse.query("SELECT current_setting('TimeZone') AS zone, current_schema()").row(0) == ("UTC", "stef")
        assert warehouse.days() == []


def test_a_reader_reads_only_whatever_it_runs(url: str, rows: Rows) -> None:
    connect(url).close()

    with connect(url, read_only=True) as reader:
        assert reader.query("SELECT current_setting('transaction_read_only') AS r")["r"].item() == "on"
        with pytest.raises(RuleError, match="opened for reading only"):
            stage(reader, rows)


def test_a_date_that_no_frame_holds_is_told_and_not_guessed(url: str) -> None:
    with connect(url) as warehouse, pytest.raises(RuleError, match="conversion"):
        warehouse.query("SELECT 'infinity'::date AS day")


# --- indexes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM query_scores WHERE dt = '2026-03-02' AND query_id = 'q7'", "query_scores_dt_query"),
        ("SELECT avg(phi) FROM query_scores WHERE agent_id = 'ann' AND dt >= '2026-03-02'", "query_scores_agent_dt"),
        ("SELECT * FROM query_scores WHERE status = 'scored' ORDER BY phi, p_right LIMIT 10", "query_scores_phi"),
        ("SELECT * FROM query_findings WHERE code = 'missing_filter' AND dt = '2026-03-02'", "query_findings_code_dt"),
        ("SELECT * FROM query_findings WHERE dt = '2026-03-02' AND query_id = 'q7'", "query_findings_dt_query"),
        ("SELECT * FROM agent_daily WHERE agent_id = 'ann' AND dt = '2026-03-02'", "agent_daily_"),
        ("SELECT * FROM agent_alerts WHERE dt = '2026-03-02'", "agent_alerts_dt_agent"),
        ("SELECT * FROM scoring_runs WHERE run_id = 'run-1'", "scoring_runs_run"),
    ],
)
def test_what_bi_asks_for_is_found_by_an_index(
    url: str, name: str, postgres_server: PostgresServer, sql: str, index: str
) -> None:
    connect(url).close()

    plan = postgres_server.sql(f"SET enable_seqscan TO off; SET search_path TO stef; EXPLAIN {sql}", name)

    assert index in " ".join(line for (line,) in plan)


def test_frames_of_every_table_go_in_and_come_out(url: str) -> None:
    values: dict[type[pl.DataType], Any] = {
        pl.String: "x",
        pl.Int64: 1,
        pl.Float64: 0.5,
        pl.Boolean: False,
        pl.Date: DAY,
        pl.Datetime: dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC),
    }
    with connect(url) as warehouse:
        for table, schema in TABLES.items():
            if table in RECORDED:
                continue
            full = {name: values[type(kind)] for name, kind in schema.items()}
            frame = frame_of([full | ({"run_id": "run-1"} if "run_id" in schema else {})], schema)
            warehouse.stage("run-1", DAY, {table: frame})
            warehouse.publish("run-1", DAY, [table])

            assert warehouse.read(table).equals(frame), table
