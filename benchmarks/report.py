"""How long the report and the views for BI take on a large warehouse: a year of fifty agents and 200,000 answers.

    python -m benchmarks.report [--days 365] [--agents 50] [--rows 200000] [--dir DIR] [--json FILE]

Why it matters: people wait for both. The warehouse is filled with rows drawn from a seed, long as real ones are, without
scoring them. The report is the whole command in a process of its own. Each view is read twice, the first thousand rows and one
agent's; the figure is the median of three reads.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from benchmarks.results import keep
from stef_core.aggregates import agent_daily
from stef_core.findings import CODES
from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, QUERY_SCORES, SCORING_RUNS, compact_json, frame_of
from tasks.warehouse import connect

FIRST = dt.date(2025, 1, 1)
REPORT_S, VIEW_S, REPORT_MB = 20.0, 1.0, 3.0
SEED = 20260302
REPEAT = 3
BANDS = ((90, "excellent"), (75, "good"), (50, "marginal"), (0, "poor"))
PHIS = (100.0, 80.0, 80.0, 80.0, 64.0, 50.0, 50.0, 40.0, 24.0, 0.0)
NAMES = ("orders", "trips", "employees", "returns", "trainings", "payments", "vehicles", "customers")


def answers(days: int, agents: int, rows: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores and findings: every agent answers every day, for two applications, and has a new version twice in the time."""
    dice = random.Random(SEED)
    codes = [code for code, entry in CODES.items() if entry.severity != "info"]
    weights = [1 / (n + 1) for n in range(len(codes))]
    scores, findings = [], []
    for n in range(rows):
        day, agent = n * days // rows, n % agents
        table, year = dice.choice(NAMES), dice.randint(2018, 2025)
        phi = dice.choice(PHIS)
        unscored = dice.random() < 0.01
        is_modelled = agent % 5 == 0
        spec = compact_json(
            {"filters": [{"column": "year", "op": "=", "value": year}], "projections": [], "padding": "x" * 400}
        )
        key = {
            "dt": FIRST + dt.timedelta(days=day),
            "query_id": f"agent{agent:03d}-{n:07d}",
            "agent_id": f"agent-{agent:03d}",
            "agent_version": f"v{1 + 3 * day // days}",
            "app_id": f"app-{agent // 5:02d}-{dice.randint(0, 1)}",
        }
        score: dict[str, Any] = dict.fromkeys(QUERY_SCORES) | key
        score |= {
            "asked_at": dt.datetime.combine(key["dt"], dt.time(12), dt.UTC),  # type: ignore[arg-type]
            "user_question": f"How many {table} of customer {dice.randint(1, 9_999)} were open in {year}?",
            "enriched_question": f"Count the open {table} of the customer in {year}." if agent % 2 else None,
            "generated_sql": f"SELECT COUNT(*) FROM {table} AS t JOIN customers AS c ON c.id = t.owner WHERE t.status = 'open'",
            "dialect": "postgres",
            "status": "unscored" if unscored else "scored",
            "reason": "sql_unparseable" if unscored else None,
            "question_spec": spec,
            "sql_spec": spec,
            "alignment": compact_json({"matched": [], "missing": [], "extra": [], "benign": []}),
            "enrichment_status": "faithful" if agent % 2 else "absent",
            "judge": "openai" if is_modelled else "symbolic",
            "llm_calls": 2 if is_modelled else 0,
            "tokens_in": 1_400 if is_modelled else 0,
            "tokens_out": 160 if is_modelled else 0,
            "cost": 0.0007 if is_modelled else 0.0,
            "run_id": f"run-{day}",
        }
        if not unscored:
            band = next(name for lowest, name in BANDS if phi >= lowest)
            score |= {"phi": phi, "band": band, "p_right": phi / 110, "verdict": "correct" if phi >= 75 else "incorrect"}
            score |= {"filter_status": "fully_applied", "confidence": 0.9, "sigma_filters": 5, "sigma_verdict": 3}
            score |= {"delta_lenient": 0, "base": 8, "gamma_factor": 1.0}
        scores.append(score)
        for ordinal, code in enumerate(dice.choices(codes, weights, k=0 if phi >= 80 else dice.randint(1, 3))):
            entry = CODES[code]
            stage = "enrichment" if entry.dimension == "enrichment" else "generation"
            found = {"ordinal": ordinal, "code": code, "dimension": entry.dimension, "severity": entry.severity, "stage": stage}
            text = {
                "question_part": f"in {year}",
                "sql_part": "t.status = 'open'",
                "message": f"Nothing in the SQL holds year = {year}.",
            }
            findings.append(dict.fromkeys(QUERY_FINDINGS) | key | found | text | {"run_id": f"run-{day}"})
    return frame_of(scores, QUERY_SCORES), frame_of(findings, QUERY_FINDINGS)


def fill(path: Path, days: int, agents: int, rows: int) -> dict[str, int]:
    """A warehouse of that size; rows of each table."""
    scores, findings = answers(days, agents, rows)
    alerts = [
        dict.fromkeys(AGENT_ALERTS)
        | {"dt": FIRST + dt.timedelta(days=day), "agent_id": f"agent-{day % agents:03d}", "app_id": "*", "kind": "phi_fall"}
        | {"observed": 42.0, "expected": 57.0, "change": -15.0, "p_value": 0.0001, "rows": 40, "baseline_rows": 500}
        | {"message": "mean Φ fell from 57.0 to 42.0", "run_id": f"run-{day}"}
        for day in range(20, days, 9)
    ]
    gates = compact_json(
        [{"gate": gate, "passed": True, "expectations": 12, "failures": []} for gate in ("query_log", "scores")]
    )
    runs = [
        dict.fromkeys(SCORING_RUNS)
        | {
            "run_id": f"run-{day}",
            "kind": "score",
            "dt": FIRST + dt.timedelta(days=day),
            "outcome": "published",
            "gates": gates,
        }
        | {"started_at": dt.datetime.combine(FIRST, dt.time(6), dt.UTC) + dt.timedelta(days=day + 1)}
        for day in range(days)
    ]
    tables = {
        "query_scores": scores,
        "query_findings": findings,
        "agent_daily": agent_daily(scores, findings),
        "agent_alerts": frame_of(alerts, AGENT_ALERTS),
        "scoring_runs": frame_of(runs, SCORING_RUNS),
    }
    with connect(f"duckdb:///{path}"):
        pass
    with duckdb.connect(path) as connection:
        for table, frame in tables.items():
            connection.register("arriving", frame)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM arriving")
            connection.unregister("arriving")
    return {table: frame.height for table, frame in tables.items()}


def report(url: str, out: Path) -> float:
    """Seconds of `stef report`, from start to end of its process."""
    command = [sys.executable, "-c", "from flows.cli import main; main()", "report", "--warehouse", url, "--out", str(out)]
    started = time.perf_counter()
    subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def views(url: str, agent: str) -> list[dict[str, Any]]:
    """Seconds of reading each view: its first thousand rows, and those of one agent."""
    found = []
    with connect(url, read_only=True) as warehouse:
        names = warehouse.query("SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'v\\_%' ESCAPE '\\'")
        for name in sorted(names["table_name"]):
            row: dict[str, Any] = {"view": name}
            ways: dict[str, tuple[str, tuple[str, ...]]] = {
                "first_1000_s": (f"SELECT * FROM {name} LIMIT 1000", ()),
                "one_agent_s": (f"SELECT * FROM {name} WHERE agent_id = $1", (agent,)),
            }
            for way, (sql, params) in ways.items():
                taken = []
                for _ in range(REPEAT):
                    started = time.perf_counter()
                    warehouse.query(sql, params)
                    taken.append(time.perf_counter() - started)
                row[way] = statistics.median(taken)
            found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dir", type=Path, help="where warehouse and report stay; a warehouse there is used again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path, out = folder / "large.duckdb", folder / "large.html"
        figures: dict[str, Any] = {"days": options.days, "agents": options.agents, "rows": options.rows}
        if not path.exists():
            figures["tables"] = fill(path, options.days, options.agents, options.rows)
        url = f"duckdb:///{path.resolve()}"
        figures["report_s"] = statistics.median(report(url, out) for _ in range(REPEAT))
        figures["report_mb"] = out.stat().st_size / 1e6
        figures["views"] = views(url, "agent-007")
    print(f"report: {figures['report_s']:.1f} s (at most {REPORT_S:g}), {figures['report_mb']:.2f} MB (below {REPORT_MB:g})")
    print(f"{'view':<24}{'first 1000':>12}{'one agent':>12}   (at most {VIEW_S:g} s)")
    for row in figures["views"]:
        slow = "  slow" if max(row["first_1000_s"], row["one_agent_s"]) > VIEW_S else ""
        print(f"{row['view']:<24}{row['first_1000_s']:>11.3f}s{row['one_agent_s']:>11.3f}s{slow}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
