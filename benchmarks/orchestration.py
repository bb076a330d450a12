"""What Prefect costs: the daily flow beside the same functions in a bare loop, and what starting takes.

    python -m benchmarks.orchestration [--rows 100000] [--json FILE]

Why it matters: retries, logs, artifacts and resuming are worth something, and this is their price. Both score the same day of
different rows in one process, symbolic judge, from Parquet to a warehouse. Targets: at most 10 % above the bare loop at 100,000
rows; ``stef --help`` in half of what ``python -c "import polars"`` takes, and 150 ms.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import keep
from benchmarks.varied_log import DAY, write_partition

ROOT = Path(__file__).parents[1]
TRIES = 7


def bare(settings: Any, day: dt.date) -> None:
    """One day by the functions behind the tasks, one after another."""
    from stef_core.trailing import Room
    from tasks import batches
    from tasks.extract import learn_day
    from tasks.gates import gate_input, gate_output, refuse
    from tasks.publish import end_run, input_facts, prepare, publish_day, read_window, stage_day, start_run
    from tasks.query_log import spool_day
    from tasks.score import aggregate_day, score_day
    from tasks.settings import application_rules

    rules = application_rules(settings)
    prepare(settings, rules)
    run = start_run(settings, rules, day, "score")
    log = spool_day.fn(settings, rules, day)
    run |= input_facts(log, [])
    refuse(gate_input.fn(log))
    extracted = [batches.extract(log.spool, number, rules, settings, last_try=True) for number in range(log.batches)]
    window = read_window.fn(settings, day)
    known = learn_day.fn(log.spool, window["log_catalogue"], day, log.batches)
    judged = [
        batches.judge(log.spool, number, known.folder, rules, settings, day, last_try=True) for number in range(log.batches)
    ]
    scored = score_day.fn(log.spool, known.folder, extracted, judged, log.rows, day, run["run_id"], run["started_at"])
    tables: dict[str, Any] = {"query_scores": scored.scores, "query_findings": scored.findings, "log_catalogue": known.rows}
    staged = stage_day.fn(settings, run["run_id"], day, tables, log.spool)
    figures = stage_day.fn(settings, run["run_id"], day, aggregate_day.fn(staged, window, day, run["run_id"]), None)
    refuse(gate_output.fn(log.lazy(), {**staged, **figures}, window, day, settings.coverage_min, Room()))
    publish_day.fn(settings, end_run(run | scored.facts, "published"), day, (*tables, *figures))
    log.spool.remove()


def flow(settings: Any, day: dt.date) -> None:
    """One day by the flow."""
    from flows.daily_scoring import daily_scoring

    daily_scoring(date=day, logs=settings.logs, warehouse=settings.warehouse)


def one(way: str, folder: Path) -> None:
    """Score the day one way, in this process, and print the seconds without those of starting."""
    from tasks.settings import load_settings

    settings = load_settings({"logs": str(folder / "logs"), "warehouse": f"duckdb:///{folder / way}.duckdb"})
    # what starting takes is measured apart: both import all, and the flow's server is up
    warm = load_settings({"logs": str(folder / "warm"), "warehouse": f"duckdb:///{folder / way}-warm.duckdb"})
    {"flow": flow, "bare": bare}[way](warm, DAY)
    started = time.perf_counter()
    {"flow": flow, "bare": bare}[way](settings, DAY)
    print(f"seconds {time.perf_counter() - started:.3f}")


def run(*command: str, **environment: str) -> tuple[float, str]:
    """Seconds and output of a command."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - started, done.stdout


def median(*command: str, tries: int = TRIES, **environment: str) -> float:
    """Median seconds of a command."""
    return statistics.median(run(*command, **environment)[0] for _ in range(tries))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=["flow", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.folder)
        return
    stef = "import sys; from flows.cli import run; sys.exit(run(sys.argv[1:]))"
    figures: dict[str, Any] = {"rows": options.rows}
    with tempfile.TemporaryDirectory(prefix="stef-orchestration-") as name:
        folder = Path(name)
        write_partition(folder / "logs", options.rows)
        write_partition(folder / "warm", 10)
        environment = {
            "STEF_PROCESSES": "1",
            "STEF_SPOOL": str(folder / "spool"),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        for way in ("bare", "flow"):
            _, said = run(sys.executable, "-m", "benchmarks.orchestration", "--one", way, "--folder", name, **environment)
            figures[f"{way}_s"] = float(said.split()[-1])
        figures["overhead"] = figures["flow_s"] / figures["bare_s"] - 1.0
        figures["polars_s"] = median(sys.executable, "-c", "import polars")
        figures["help_s"] = median(sys.executable, "-c", stef, "--help")
        figures["help_most_s"] = 0.5 * figures["polars_s"] + 0.150
        logs, warehouse = str(folder / "small"), f"duckdb:///{folder / 'small.duckdb'}"
        write_partition(folder / "small", 1)
        day = ["score", "--date", str(DAY), "--logs", logs, "--warehouse", warehouse, "--quiet"]
        figures["one_row_s"] = median(sys.executable, "-c", stef, *day, tries=3, **environment)
    print(f"{options.rows:,} rows: bare loop {figures['bare_s']:.1f} s, flow {figures['flow_s']:.1f} s", end="")
    print(f", overhead {figures['overhead']:.1%} (at most 10 %)")
    print(f"stef --help {figures['help_s'] * 1000:.0f} ms, at most {figures['help_most_s'] * 1000:.0f} ms", end="")
    print(f" (import polars {figures['polars_s'] * 1000:.0f} ms)")
    print(f"a day of one row {figures['one_row_s']:.1f} s")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
