"""What a backfill takes beside scoring anew: a day scored by a model on loopback, then a rule that bears on 3 % of it.

    python -m benchmarks.backfill [--rows 20000] [--share 0.03] [--latency 0.1] [--json FILE]

Why it matters: rules change weekly, a year of questions is a bill. Targets: calls of at most the share of the rows, at most
15 % of the wall time of scoring the day, and the tables of a warehouse that was scored anew under the new rules.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.results import keep
from tasks.warehouse import connect
from tests.llm_endpoint import Running, running
from tests.logs import DAY, table, write

ROOT = Path(__file__).parents[1]
STEF = "import sys; from flows.cli import run; sys.exit(run(sys.argv[1:]))"
TABLES = ("query_scores", "query_findings", "agent_daily", "agent_alerts", "log_catalogue")
PER_RUN = ("run_id", "scored_at")
PORTS = ("Bergen", "Turku", "Riga", "Gdynia", "Malmo", "Tallinn", "Kotka")
MOST_CALLS, MOST_TIME = 1.0, 0.15  # calls per touched row, and share of the time of scoring all


def write_log(logs: Path, rows: int, share: float) -> int:
    """A day of different rows; a share of them carries a tenant that nobody asked for. How many do."""
    every = round(1 / share)
    numbers = range(rows)
    tenant = [" AND tenant_id = 7" if n % every == 0 else "" for n in numbers]
    write(
        logs,
        table(
            rows,
            agent_id=[f"agent-{n % 5}" for n in numbers],
            user_question=[f"How many boats moored in {PORTS[n % 7]} on berth {n}?" for n in numbers],
            generated_sql=[
                f"SELECT COUNT(*) FROM moorings WHERE port = '{PORTS[n % 7]}' AND berth = {n}{tenant[n]}" for n in numbers
            ],
            asked_at=[dt.datetime.combine(DAY, dt.time(12), dt.UTC)] * rows,
        ),
    )
    return sum(map(bool, tenant))


def stef(folder: Path, endpoint: Running, name: str, command: str, *arguments: str) -> float:
    """Seconds of one command over the warehouse of a name."""
    environment = os.environ | {
        "STEF_JUDGE": "openai",
        "STEF_MODEL": "m",
        "STEF_BASE_URL": endpoint.base_url,
        "STEF_CONCURRENCY": "64",
        "STEF_CACHE": str(folder / f"{name}.sqlite"),
        "STEF_MARKER_KEY": "k" * 32,
        "STEF_WAREHOUSE": f"duckdb:///{folder / name}.duckdb",
        "STEF_LOGS": str(folder / "logs"),
        "STEF_RULES": str(folder / "rules"),
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
    }
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", STEF, command, *arguments, "--quiet"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    taken = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"stef {command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return taken


def tables(folder: Path, name: str) -> dict[str, pl.DataFrame]:
    """What is published, without what differs from run to run."""
    with connect(f"duckdb:///{folder / name}.duckdb", read_only=True) as store:
        return {table: store.read(table).drop(PER_RUN, strict=False) for table in TABLES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, running("--latency", str(options.latency)) as endpoint:
        folder = Path(name)
        touched = write_log(folder / "logs", options.rows, options.share)
        rules = folder / "rules"
        rules.mkdir()
        (rules / "shop.json").write_text('{"app_id": "shop"}')
        scoring_s = stef(folder, endpoint, "w", "score", "--date", str(DAY))
        asked = endpoint.stats()["requests"]
        new = {"app_id": "shop", "benign_filters": [{"column": "tenant_id", "op": "=", "value": "*"}]}
        (rules / "shop.json").write_text(json.dumps(new))
        backfill_s = stef(folder, endpoint, "w", "backfill")
        calls = endpoint.stats()["requests"] - asked
        stef(folder, endpoint, "anew", "score", "--date", str(DAY))
        before, after = tables(folder, "w"), tables(folder, "anew")
        equal = all(before[table].equals(after[table]) for table in TABLES)
    figures: dict[str, Any] = {
        "rows": options.rows,
        "touched": touched,
        "calls_of_scoring": asked,
        "calls_of_backfill": calls,
        "scoring_s": scoring_s,
        "backfill_s": backfill_s,
        "time_share": backfill_s / scoring_s,
        "tables_equal": equal,
    }
    print(f"{options.rows:,} rows scored with {asked:,} calls in {scoring_s:.0f} s; the rule bears on {touched:,} of them")
    print(f"backfill: {calls:,} calls ({calls / touched:.2f} a touched row, at most {MOST_CALLS:g}) in {backfill_s:.0f} s")
    print(f"          {figures['time_share']:.2f} of the time of scoring (at most {MOST_TIME:g}), tables equal: {equal}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
