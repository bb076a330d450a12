"""Days of rows that are all different, and the command line over them in a process of its own."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

from tasks.warehouse import connect
from tests.logs import DAY, table, write

ROOT = Path(__file__).parents[2]
PORTS = ("Bergen", "Turku", "Riga", "Gdynia", "Malmo", "Tallinn", "Kotka")
STEF = "import sys; from flows.cli import run; sys.exit(run(sys.argv[1:]))"
PER_RUN = ("run_id", "scored_at")


def write_day(logs: Path, rows: int, day: dt.date = DAY) -> None:
    """A day of `rows` different questions of three agents."""
    numbers = range(rows)
    write(
        logs,
        table(
            rows,
            agent_id=[f"agent-{n % 3}" for n in numbers],
            user_question=[f"How many boats moored in {PORTS[n % 7]} on berth {n} on {day}?" for n in numbers],
            generated_sql=[f"SELECT COUNT(*) FROM moorings WHERE port = '{PORTS[n % 7]}' AND berth = {n}" for n in numbers],
            asked_at=[dt.datetime.combine(day, dt.time(12), dt.UTC)] * rows,
        ),
        day=day,
    )


class Runs:
    """``stef score`` over one log, one warehouse and one cache."""

    def __init__(self, folder: Path, logs: Path, base_url: str, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.logs = folder, logs
        self.url = f"duckdb:///{folder / 'w.duckdb'}"
        self.environment = {
            **os.environ,
            "STEF_JUDGE": "openai",
            "STEF_MODEL": "m",
            "STEF_BASE_URL": base_url,
            "STEF_CACHE": str(folder / "answers.sqlite"),
            "STEF_SPOOL": str(folder / "spool"),
            "STEF_MARKER_KEY": "k" * 32,  # the endpoint answers by the text it is sent, so runs that are compared send the same
            "STEF_CONCURRENCY": "32",
            "PREFECT_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_HOME": str(folder / "prefect"),
            **{f"STEF_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        given = ["score", "--logs", str(self.logs), "--date", str(DAY), "--warehouse", self.url, "--quiet", *arguments]
        environment = self.environment | {f"STEF_{name.upper()}": str(value) for name, value in settings.items()}
        return subprocess.Popen(
            [sys.executable, "-c", STEF, *given],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, *arguments: str, **settings: Any) -> tuple[int, str]:
        """Exit code, and what was printed."""
        process = self.start(*arguments, **settings)
        out, err = process.communicate()
        return process.returncode, out + err

    def kill_after(self, seconds: float, *arguments: str) -> bool:
        """Start, and kill the whole process group; whether it was still running."""
        process = self.start(*arguments)
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        alive = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL) if alive else None
        process.communicate()
        return alive

    def read(self, name: str) -> pl.DataFrame:
        with connect(self.url, read_only=True) as store:
            return store.read(name)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Everything published, without what differs from run to run."""
        names = ("query_scores", "query_findings", "agent_daily", "agent_alerts", "log_catalogue")
        return {name: self.read(name).drop(PER_RUN, strict=False) for name in names}
