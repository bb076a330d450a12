"""Write, audit, publish: what is staged, what is swapped in, what stays."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from stef_core.errors import BusyError, InputError, RuleError
from stef_core.frames import TABLES, frame_of
from tasks.warehouse import Warehouse, connect

DAY = dt.date(2026, 3, 2)
NEXT = DAY + dt.timedelta(days=1)
NOON = dt.datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=dt.UTC)
Rows = Callable[..., pl.DataFrame]


def test_a_staged_day_is_readable_in_staging_and_not_published(warehouse: Warehouse, rows: Rows) -> None:
    frame = rows("query_scores", {"query_id": "q1", "phi": 40.0}, {"query_id": "q2"})

    warehouse.stage("run-1", DAY, {"query_scores": frame})

    assert warehouse.staged("query_scores", "run-1").equals(frame)
    assert warehouse.read("query_scores").is_empty()
    assert warehouse.days() == []


def test_a_table_may_come_and_go_in_parts(warehouse: Warehouse, rows: Rows) -> None:
    frame = rows("query_scores", *({"query_id": f"q{n:02}", "sql_spec": "{}", "phi": float(n)} for n in range(20)))

    warehouse.stage("run-1", DAY, {"query_scores": frame.iter_slices(3)})
    parts = list(warehouse.staged_parts("query_scores", "run-1", without=("sql_spec",), rows=7))

    assert warehouse.staged("query_scores", "run-1").equals(frame)
    assert max(part.height for part in parts) <= 7
    together = pl.concat(parts).sort("query_id")
    assert together["sql_spec"].null_count() == 20
    assert together.drop("sql_spec").equals(frame.drop("sql_spec"))


def test_parts_of_which_one_is_wrong_stage_nothing(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})
    parts = [rows("query_scores", {"query_id": "b"}), rows("query_scores", {"query_id": "c"}, day=NEXT)]

    with pytest.raises(InputError, match="column dt is 2026-03-03"):
        warehouse.stage("run-1", DAY, {"query_scores": parts})

    assert warehouse.staged("query_scores", "run-1")["query_id"].to_list() == ["a"]


def test_every_type_comes_back_as_it_went_in(warehouse: Warehouse, rows: Rows) -> None:
    frame = rows(
        "query_scores",
        {
            "asked_at": NOON,
            "user_feedback": True,
            "phi": 100 / 3,
            "base": 2**53 + 1,
            "user_question": "größte Städte? 'x' \"y\" \\ 🛒\n",
        },
    )

    warehouse.stage("run-1", DAY, {"query_scores": frame})
    warehouse.publish("run-1", DAY, ["query_scores"])

    assert warehouse.read("query_scores").equals(frame)


def test_publishing_replaces_the_day_and_leaves_other_days(warehouse: Warehouse, rows: Rows) -> None:
    for run_id, day, queries in (("run-1", DAY, ["a", "b"]), ("run-2", NEXT, ["c"]), ("run-3", DAY, ["d"])):
        warehouse.stage(
            run_id, day, {"query_scores": rows("query_scores", *({"query_id": q} for q in queries), run_id=run_id, day=day)}
        )
        warehouse.publish(run_id, day, ["query_scores"])

    assert warehouse.read("query_scores")["query_id"].to_list() == ["d", "c"]
    assert warehouse.days() == [DAY, NEXT]
    assert warehouse.staged("query_scores", "run-3").is_empty()


def test_a_day_published_twice_by_different_runs_is_the_same_but_for_the_run(warehouse: Warehouse, rows: Rows) -> None:
    seen = []
    for run_id in ("run-1", "run-2"):
        scores = rows("query_scores", {"query_id": "a", "phi": 0.1 + 0.2}, {"query_id": "b"}, run_id=run_id)
        findings = rows("query_findings", {"query_id": "a"}, {"query_id": "a", "ordinal": 1}, run_id=run_id)
        warehouse.stage(run_id, DAY, {"query_scores": scores, "query_findings": findings})
        warehouse.publish(run_id, DAY, ["query_scores", "query_findings"])
        seen.append([warehouse.read(table).drop("run_id") for table in ("query_scores", "query_findings")])

    assert all(first.equals(second) for first, second in zip(*seen, strict=True))


def test_publishing_again_what_a_run_has_published_changes_nothing(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})
    warehouse.publish("run-1", DAY, ["query_scores"])

    warehouse.publish("run-1", DAY, ["query_scores"], {"run_id": "run-1", "outcome": "published"})

    assert warehouse.read("query_scores")["query_id"].to_list() == ["a"]
    assert warehouse.read("scoring_runs")["outcome"].to_list() == ["published"]


def test_an_empty_table_is_published_as_empty(warehouse: Warehouse, rows: Rows) -> None:
    for run_id, findings in (("run-1", [{"query_id": "a"}]), ("run-2", [])):
        warehouse.stage(run_id, DAY, {"query_findings": rows("query_findings", *findings, run_id=run_id)})
        warehouse.publish(run_id, DAY, ["query_findings"])

    assert warehouse.read("query_findings").is_empty()


def test_staging_a_day_again_takes_the_place_of_an_older_run(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})
    warehouse.stage("run-1", NEXT, {"query_scores": rows("query_scores", {"query_id": "n"}, day=NEXT)})

    warehouse.stage("run-2", DAY, {"query_scores": rows("query_scores", {"query_id": "b"}, run_id="run-2")})

    assert warehouse.staged("query_scores", "run-1")["query_id"].to_list() == ["n"]
    assert warehouse.staged("query_scores", "run-2")["query_id"].to_list() == ["b"]


def test_a_run_whose_staged_day_was_taken_over_publishes_nothing(warehouse: Warehouse, rows: Rows) -> None:
    for run_id in ("run-0", "run-1", "run-2"):
        warehouse.stage(run_id, DAY, {"query_scores": rows("query_scores", {"query_id": run_id}, run_id=run_id)})
        if run_id == "run-0":
            warehouse.publish(run_id, DAY, ["query_scores"])

    with pytest.raises(BusyError, match="run run-2 has staged 2026-03-02 after run run-1"):
        warehouse.publish("run-1", DAY, ["query_scores"])

    assert warehouse.read("query_scores")["query_id"].to_list() == ["run-0"]
    assert warehouse.staged("query_scores", "run-2").height == 1


def test_one_table_that_was_not_staged_keeps_all_from_being_published(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})

    with pytest.raises(InputError, match="run run-1 has staged no query_findings for 2026-03-02"):
        warehouse.publish("run-1", DAY, ["query_scores", "query_findings"], {"run_id": "run-1"})

    assert warehouse.read("query_scores").is_empty()
    assert warehouse.read("scoring_runs").is_empty()
    assert warehouse.staged("query_scores", "run-1").height == 1


def test_rows_of_a_refused_day_stay_in_staging_for_the_next_connection(url: str, rows: Rows) -> None:
    frame = rows("query_scores", {"query_id": "a"})
    with connect(url) as warehouse:
        warehouse.stage("run-1", DAY, {"query_scores": frame})
        warehouse.record_run({"run_id": "run-1", "dt": DAY, "outcome": "gate_failed"})

    with connect(url, read_only=True) as reader:
        assert reader.staged("query_scores", "run-1").equals(frame)
        assert reader.read("query_scores").is_empty()
        assert reader.read("scoring_runs")["outcome"].to_list() == ["gate_failed"]


def test_discarding_a_run_empties_its_staging_and_no_other(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})
    warehouse.stage("run-2", NEXT, {"query_scores": rows("query_scores", {"query_id": "b"}, run_id="run-2", day=NEXT)})

    warehouse.discard("run-1")

    assert warehouse.staged("query_scores", "run-1").is_empty()
    assert warehouse.staged("query_scores", "run-2").height == 1
    with pytest.raises(InputError, match="has staged no query_scores"):
        warehouse.publish("run-1", DAY, ["query_scores"])


def test_what_an_earlier_backfill_moved_stays_told(warehouse: Warehouse, rows: Rows) -> None:
    for run_id in ("run-1", "run-2"):
        warehouse.stage(run_id, DAY, {"score_changes": rows("score_changes", {"query_id": "a"}, run_id=run_id)})
        warehouse.publish(run_id, DAY, ["score_changes"])

    assert warehouse.read("score_changes")["run_id"].to_list() == ["run-1", "run-2"]


def test_a_table_whose_rows_name_no_run_is_staged_and_published_like_any(warehouse: Warehouse, rows: Rows) -> None:
    for run_id, key in (("run-1", "orders"), ("run-2", "people")):
        warehouse.stage(run_id, DAY, {"log_catalogue": rows("log_catalogue", {"key": key})})
        assert warehouse.staged("log_catalogue", run_id)["key"].to_list() == [key]
        assert warehouse.staged("log_catalogue", "run-9").is_empty()
        warehouse.publish(run_id, DAY, ["log_catalogue"])
    warehouse.stage("run-3", DAY, {"log_catalogue": rows("log_catalogue", {"key": "stock"})})
    warehouse.discard("run-3")

    assert warehouse.read("log_catalogue")["key"].to_list() == ["people"]
    assert warehouse.query("SELECT count(*) AS n FROM staging.log_catalogue")["n"].item() == 0


def test_a_run_is_recorded_once_and_its_last_record_counts(warehouse: Warehouse) -> None:
    warehouse.record_run({"run_id": "run-1", "started_at": NOON, "message": "begun"})
    warehouse.record_run({"run_id": "run-1", "started_at": NOON, "ended_at": NOON, "outcome": "failed", "rows_in": 3})

    recorded = warehouse.read("scoring_runs")

    assert recorded.schema == TABLES["scoring_runs"]
    assert recorded.select("started_at", "outcome", "rows_in", "message").rows() == [(NOON, "failed", 3, None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"outcome": "failed"}, "column run_id is missing"),
        ({"run_id": "run-1", "colour": "red"}, "column colour does not belong to it"),
        ({"run_id": "run-1", "rows_in": "many"}, "a value does not fit its column"),
        ({"run_id": "run-1", "started_at": dt.datetime(2026, 3, 2)}, "started_at .* without a time zone"),  # noqa: DTZ001
    ],
)
def test_a_run_that_does_not_fit_is_refused(warehouse: Warehouse, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        warehouse.record_run(row)

    assert warehouse.read("scoring_runs").is_empty()


def test_a_run_record_of_another_run_is_refused(warehouse: Warehouse, rows: Rows) -> None:
    warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})

    with pytest.raises(InputError, match="run_id is 'run-9', but 'run-1' is being published"):
        warehouse.publish("run-1", DAY, ["query_scores"], {"run_id": "run-9"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("phi"), "query_scores: column phi is missing"),
        (lambda frame: frame.with_columns(colour=pl.lit("red")), "query_scores: column colour does not belong to it"),
        (lambda frame: frame.cast({"base": pl.Int32}), "query_scores: column base is Int32, not Int64"),
        (lambda frame: frame.cast({"asked_at": pl.Datetime("us")}), "column asked_at is Datetime.* not Datetime"),
        (lambda frame: frame.with_columns(dt=pl.lit(NEXT)), "column dt is 2026-03-03 in 1 rows, not 2026-03-02"),
        (lambda frame: frame.with_columns(dt=pl.lit(None, pl.Date)), "column dt is None in 1 rows"),
        (lambda frame: frame.with_columns(run_id=pl.lit("run-9")), "column run_id is run-9 in 1 rows, not run-1"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_and_nothing_is_staged(
    warehouse: Warehouse, rows: Rows, change: Callable[[pl.DataFrame], pl.DataFrame], message: str
) -> None:
    frame = rows("query_scores", {"query_id": "a"})
    findings = rows("query_findings", {"query_id": "a"})

    with pytest.raises(InputError, match=message):
        warehouse.stage("run-1", DAY, {"query_findings": findings, "query_scores": change(frame)})

    assert warehouse.staged("query_findings", "run-1").is_empty()


def test_columns_in_another_order_land_where_they_belong(warehouse: Warehouse, rows: Rows) -> None:
    frame = rows("query_scores", {"query_id": "a", "user_question": "how many"})

    warehouse.stage("run-1", DAY, {"query_scores": frame.select(reversed(frame.columns))})

    assert warehouse.staged("query_scores", "run-1").equals(frame)


def test_a_null_where_the_grain_needs_a_value_stops_the_publish_whole(warehouse: Warehouse, rows: Rows) -> None:
    frame = rows("query_scores", {"query_id": "a"}).with_columns(query_id=pl.lit(None, pl.String))
    warehouse.stage("run-1", DAY, {"query_scores": frame})

    with pytest.raises(InputError, match="query_id"):
        warehouse.publish("run-1", DAY, ["query_scores"])

    assert warehouse.read("query_scores").is_empty()
    assert warehouse.staged("query_scores", "run-1").height == 1


@pytest.mark.parametrize("table", ["scoring_runs", "v_agent_trend", "query_scores; DROP TABLE query_scores"])
def test_only_tables_of_a_day_can_be_staged(warehouse: Warehouse, table: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: warehouse.stage("run-1", DAY, {table: pl.DataFrame()}),
        lambda: warehouse.publish("run-1", DAY, [table]),
        lambda: warehouse.staged(table, "run-1"),
    ]

    for attempt in attempts:
        with pytest.raises(RuleError, match="cannot be staged"):
            attempt()


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.fixture
def week(warehouse: Warehouse, rows: Rows) -> Warehouse:
    for offset in range(4):
        day = DAY + dt.timedelta(days=offset)
        run_id = f"run-{offset}"
        frame = rows("query_scores", {"query_id": "b"}, {"query_id": "a"}, run_id=run_id, day=day)
        warehouse.stage(run_id, day, {"query_scores": frame})
        warehouse.publish(run_id, day, ["query_scores"])
    return warehouse


def test_days_are_chosen_by_one_day_or_by_both_ends_of_a_range(week: Warehouse) -> None:
    last = DAY + dt.timedelta(days=3)

    assert week.read("query_scores", day=NEXT)["dt"].unique().to_list() == [NEXT]
    assert week.read("query_scores", since=NEXT)["dt"].n_unique() == 3
    assert week.read("query_scores", until=NEXT)["dt"].n_unique() == 2
    assert week.read("query_scores", since=NEXT, until=last)["dt"].n_unique() == 3
    assert week.read("query_scores", day=last + dt.timedelta(days=1)).schema == TABLES["query_scores"]


def test_rows_come_in_the_order_of_their_grain_whatever_columns_are_asked(week: Warehouse) -> None:
    frame = week.read("query_scores", columns=["query_id", "phi"], until=NEXT)

    assert frame.columns == ["query_id", "phi"]
    assert frame["query_id"].to_list() == ["a", "b", "a", "b"]
    assert frame.schema["phi"] == pl.Float64


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("schema_migrations", {}, "no table or view 'schema_migrations'"),
        ("staging.query_scores", {}, "no table or view"),
        ("query_scores", {"columns": ["phi", "1; DROP TABLE query_scores"]}, "query_scores has no column '1; DROP"),
        ("query_scores", {"columns": []}, "no columns were asked for"),
        ("v_finding_pareto", {"day": DAY}, "v_finding_pareto has no column dt"),
        ("v_agent_trend", {"columns": ["colour"]}, "v_agent_trend has no column 'colour'"),
    ],
)
def test_names_that_do_not_exist_are_refused(warehouse: Warehouse, name: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        warehouse.read(name, **asked)


def test_a_query_takes_parameters(week: Warehouse) -> None:
    frame = week.query("SELECT count(*) AS n FROM query_scores WHERE dt >= $1 AND query_id = $2", (NEXT, "a"))

    assert frame["n"].item() == 3


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM query_scores",
        "SELECT 1; DELETE FROM query_scores",
        "COMMIT",
        "COPY query_scores TO 'out.csv'",
        "SELECT nothing FROM nowhere",
        "SELEC 1",
        "SELECT 1 AS a, 2 AS a",
        "",
    ],
)
def test_a_query_that_does_not_just_read_is_refused_and_changes_nothing(week: Warehouse, sql: str) -> None:
    with pytest.raises(RuleError):
        week.query(sql)

    assert week.read("query_scores").height == 8


def test_a_reader_cannot_write(url: str, rows: Rows) -> None:
    with connect(url):
        pass

    with connect(url, read_only=True) as reader:
        attempts: list[Callable[[], object]] = [
            lambda: reader.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})}),
            lambda: reader.record_run({"run_id": "run-1"}),
            lambda: reader.discard("run-1"),
        ]
        for attempt in attempts:
            with pytest.raises(RuleError, match="opened for reading only"):
                attempt()


def test_several_threads_share_one_warehouse(warehouse: Warehouse, rows: Rows) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def score(offset: int) -> int:
        day, run_id = DAY + dt.timedelta(days=offset), f"run-{offset}"
        warehouse.stage(run_id, day, {"query_scores": rows("query_scores", {"query_id": "a"}, run_id=run_id, day=day)})
        warehouse.publish(run_id, day, ["query_scores"])
        return warehouse.read("query_scores", day=day).height

    with ThreadPoolExecutor(4) as pool:
        heights = list(pool.map(score, range(8)))

    assert heights == [1] * 8
    assert len(warehouse.days()) == 8


def test_an_empty_frame_keeps_its_types(warehouse: Warehouse) -> None:
    warehouse.stage("run-1", DAY, {"agent_alerts": frame_of([], TABLES["agent_alerts"])})

    assert warehouse.staged("agent_alerts", "run-1").schema == TABLES["agent_alerts"]
