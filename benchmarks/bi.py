"""How long BI waits: a year of 50 agents and 200,000 answers in a warehouse, and each view as a BI tool asks for it.

    python -m benchmarks.bi [--days 365] [--agents 50] [--rows 200000] [--repeats 5] [--postgres] [--json FILE]

Each view is asked twice: its first 1,000 rows in its order, as a table of a dashboard does, and its rows of one agent and the
last 30 days, as a filter does (the columns that the view has of those). The figures are seconds, the least of the repeats, as
others use the machine too; the limit is 1 s on DuckDB. `cpu` is what this process spent, on all its threads: the database
itself with DuckDB, the reading of rows alone with PostgreSQL. Rows are made up, with texts and JSON as long as real ones, and
inserted without the flow; aggregates are made by the product's own code.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.results import keep
from stef_core.aggregates import agent_daily
from stef_core.findings import CODES
from stef_core.frames import AGENT_DAILY, QUERY_FINDINGS, QUERY_SCORES, SCORING_RUNS, frame_of
from stef_core.scoring import BANDS
from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import ORDER, VIEWS

FIRST = dt.date(2025, 1, 1)
LIMIT_S = 1.0
SILENT_EVERY = 17  # a share of agent days has no rows, so that the calendar has something to fill
VERDICTS = ("correct", "likely_correct", "potentially_incorrect", "incorrect")
SEVERITIES = ("critical", "major", "minor", "info")
TEXT = "How many of the orders of the last quarter were sent late, by region and carrier, without those that were returned? "
SPEC = '{"filters":[{"column":"orders.status","op":"=","values":["late"]}],"group_by":["region","carrier"],"output":["count"]}'


def scores(days: int, agents: int, rows: int) -> pl.DataFrame:
    """Made-up rows of ``query_scores``, spread evenly over days and agents that are not silent."""
    place = pl.int_range(rows, dtype=pl.Int64)
    mixed = (place * 2_654_435_761) % 1_000_003  # spread without a seed: the same rows every time
    base = pl.select(n=place, mixed=mixed).with_columns(
        day=(pl.col("mixed") * 31) % days, agent=(pl.col("mixed") * 17 + pl.col("n")) % agents
    )
    base = base.with_columns(
        agent=pl.when((pl.col("day") + pl.col("agent")) % SILENT_EVERY == 0)
        .then((pl.col("agent") + 1) % agents)
        .otherwise("agent")
    )
    phi = ((pl.col("mixed") * 7) % 11 * 10).cast(pl.Float64)
    status = pl.when(pl.col("mixed") % 40 == 0).then(pl.lit("unscored")).otherwise(pl.lit("scored"))
    scored = pl.col("status") == "scored"
    named = base.with_columns(
        dt=pl.lit(FIRST) + pl.duration(days=pl.col("day")),
        query_id=pl.format("q{}", "n"),
        agent_id=pl.format("agent-{}", pl.col("agent").cast(pl.String).str.zfill(2)),
        agent_version=pl.format("v{}", pl.col("day") * 6 // days + 1),
        app_id=pl.format("app-{}", pl.col("agent") % 5),
        status=status,
    ).with_columns(phi=pl.when(scored).then(phi))
    band = pl.lit(BANDS[-1][1])
    for lowest, name in reversed(BANDS[:-1]):
        band = pl.when(pl.col("phi") >= lowest).then(pl.lit(name)).otherwise(band)
    grade = (pl.col("mixed") % 4).replace_strict(dict(enumerate(VERDICTS)), return_dtype=pl.String)
    filled = named.with_columns(
        asked_at=pl.col("dt").cast(pl.Datetime("us", "UTC")) + pl.duration(seconds=pl.col("mixed") % 86_400),
        user_question=pl.lit(TEXT) + pl.col("query_id"),
        enriched_question=pl.lit(2 * TEXT) + pl.col("query_id"),
        generated_sql=pl.lit("SELECT region, carrier, count(*) FROM orders WHERE status = 'late' GROUP BY 1, 2 -- ")
        + pl.col("query_id"),
        reason=pl.when(~scored).then(pl.lit("sql_unparseable")),
        question_spec=pl.lit(3 * SPEC),
        enriched_spec=pl.lit(3 * SPEC),
        sql_spec=pl.lit(3 * SPEC),
        alignment=pl.lit(3 * SPEC),
        sql_dialect=pl.lit("postgres"),
        band=pl.when(scored).then(band),
        verdict=pl.when(scored).then(grade),
        confidence=pl.when(scored).then(0.9),
        p_right=pl.when(scored).then((pl.col("mixed") % 997) / 997),
        filter_status=pl.when(scored).then(pl.lit("fully_applied")),
        enrichment_status=pl.when(scored).then(pl.lit("faithful")),
        verdict_reasons=pl.lit('["the condition on the quarter is missing"]'),
        judge=pl.lit("openai"),
        model=pl.format("model-{}", pl.col("agent") % 3),
        tokens_in=pl.lit(1_500, dtype=pl.Int64),
        tokens_out=pl.lit(300, dtype=pl.Int64),
        llm_calls=pl.lit(2, dtype=pl.Int64),
        cost=pl.lit(0.004),
        run_id=pl.format("run-{}", "day"),
    )
    return filled.select(
        pl.col(name).cast(kind) if name in filled.columns else pl.lit(None, dtype=kind).alias(name)
        for name, kind in QUERY_SCORES.items()
    ).sort("dt", "query_id")


def findings(made: pl.DataFrame) -> pl.DataFrame:
    """Up to four findings for each row that is not excellent."""
    codes, digits = list(CODES), pl.col("query_id").str.slice(1).cast(pl.Int64)
    fallen = made.filter(pl.col("band") != BANDS[0][1]).select(
        "dt", "query_id", "agent_id", "agent_version", "app_id", "run_id"
    )
    several = fallen.with_columns(n=digits).with_columns(ordinal=pl.int_ranges(0, 1 + pl.col("n") % 4)).explode("ordinal")
    which = (pl.col("n") * 13 + pl.col("ordinal") * 7) % len(codes)
    told = several.with_columns(
        code=which.replace_strict(dict(enumerate(codes)), return_dtype=pl.String),
        dimension=pl.lit("filters"),
        severity=(which % 4).replace_strict(dict(enumerate(SEVERITIES)), return_dtype=pl.String),
        stage=pl.when(pl.col("n") % 3 == 0).then(pl.lit("enrichment")).otherwise(pl.lit("generation")),
        message=pl.lit("The question asks for the last quarter; the SQL has no condition on a date."),
    )
    return told.select(
        pl.col(name).cast(kind) if name in told.columns else pl.lit(None, dtype=kind).alias(name)
        for name, kind in QUERY_FINDINGS.items()
    )


def runs(days: int) -> pl.DataFrame:
    """One published run a day, each with the results of its gates."""
    gates = json.dumps(
        [
            {"gate": gate, "passed": True, "expectations": 20, "failures": []}
            for gate in ("query_log", "scores", "scores", "scores", "agent_daily", "findings")
        ]
    )
    moment = dt.datetime(2025, 1, 2, 6, tzinfo=dt.UTC)
    row = {"kind": "score", "outcome": "published", "gates": gates, "judge": "openai"}
    made = [
        row | {"run_id": f"run-{n}", "dt": FIRST + dt.timedelta(n), "started_at": moment + dt.timedelta(n)} for n in range(days)
    ]
    return frame_of([dict.fromkeys(SCORING_RUNS) | one for one in made], SCORING_RUNS)


def fill(url: str, tables: dict[str, pl.DataFrame]) -> None:
    """Make the warehouse's tables and put the rows in."""
    with connect(url) as warehouse:
        warehouse.migrate()
    if url.startswith("duckdb"):
        import duckdb

        with duckdb.connect(url.removeprefix("duckdb:///")) as connection:
            for table, frame in tables.items():
                connection.register("arriving", frame)
                connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM arriving")
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as session:
        for table, frame in tables.items():
            with session.cursor().copy(
                f"COPY stef.{table} ({', '.join(frame.columns)}) FROM STDIN (FORMAT csv)".encode()
            ) as copy:
                for part in frame.iter_slices(20_000):
                    copy.write(part.write_csv(include_header=False, datetime_format="%Y-%m-%d %H:%M:%S%.6f%z"))
        session.execute("VACUUM ANALYZE")


def asked(view: str, columns: list[str], last: dt.date) -> dict[str, str]:
    """The statements that a BI tool sends for a view."""
    bounds = [
        text
        for name, text in (("agent_id", "agent_id = 'agent-07'"), ("dt", f"dt > DATE '{last - dt.timedelta(days=30)}'"))
        if name in columns
    ]
    order = ", ".join(ORDER[view])
    statements = {"first 1,000": f"SELECT * FROM {view} ORDER BY {order} LIMIT 1000"}
    if bounds:
        statements["one agent, 30 days"] = f"SELECT * FROM {view} WHERE {' AND '.join(bounds)} ORDER BY {order} LIMIT 1000"
    return statements


def timed(warehouse: Warehouse, last: dt.date, repeats: int) -> list[dict[str, Any]]:
    """Seconds of every statement, and the rows it gave."""
    found = []
    for view in VIEWS:
        columns = warehouse.query(f"SELECT * FROM {view} LIMIT 0").columns
        for what, sql in asked(view, columns, last).items():
            seconds, cpu = [], []
            for _ in range(repeats):
                begun, spent = time.perf_counter(), time.process_time()
                height = warehouse.query(sql).height
                seconds.append(time.perf_counter() - begun)
                cpu.append(time.process_time() - spent)
            figures = {"seconds": round(min(seconds), 3), "cpu": round(min(cpu), 3)}
            found.append({"view": view, "asked": what, "rows": height, **figures})
    return found


def measure(url: str, tables: dict[str, pl.DataFrame], last: dt.date, repeats: int) -> list[dict[str, Any]]:
    """Fill a warehouse and time its views."""
    fill(url, tables)
    with connect(url, read_only=True) as warehouse:
        return timed(warehouse, last, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--postgres", action="store_true", help="measure PostgreSQL as well")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    arguments = parser.parse_args()

    made = scores(arguments.days, arguments.agents, arguments.rows)
    told = findings(made)
    tables = {
        "query_scores": made,
        "query_findings": told,
        "agent_daily": agent_daily(made, told).select(list(AGENT_DAILY)),
        "scoring_runs": runs(arguments.days),
    }
    heights = {table: frame.height for table, frame in tables.items()}
    print("rows:", ", ".join(f"{table} {height:,}" for table, height in heights.items()))
    last = FIRST + dt.timedelta(days=arguments.days - 1)
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        results["duckdb"] = measure(f"duckdb:///{folder}/bi.duckdb", tables, last, arguments.repeats)
    if arguments.postgres:
        from tests.postgres_server import PostgresServer

        server = PostgresServer(durable=False)
        try:
            results["postgres"] = measure(server("bi"), tables, last, arguments.repeats)
        finally:
            server.close()
    for name, rows in results.items():
        print(f"\n{name}\n{'view':<20} {'asked':<20} {'rows':>6} {'s':>7} {'cpu':>7}")
        for row in rows:
            print(f"{row['view']:<20} {row['asked']:<20} {row['rows']:>6} {row['seconds']:>7.3f} {row['cpu']:>7.3f}")
    keep(arguments.json, {"rows": heights, "results": results})
    slow = [row for row in results["duckdb"] if row["seconds"] > LIMIT_S]
    sys.exit(f"slower than {LIMIT_S:g} s on DuckDB: {', '.join(row['view'] for row in slow)}" if slow else 0)


if __name__ == "__main__":
    main()
