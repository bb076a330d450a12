"""How the symbolic path scales from one process to two: processes of one run, and workers of Dask.

    python -m benchmarks.scaling [--rows 60000] [--processes 2] [--no-dask] [--json FILE]

Why it matters: a day is to be done in minutes on one machine, and on more machines where one is not enough. The same day is
scored by each way from Parquet to a warehouse of its own; seconds are those of the day's row in ``scoring_runs``, so that
starting the program, a server or a cluster does not count. The tables of all ways must be equal. Targets: 1.7 from one process
to two, 1.6 for Dask.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.results import keep
from benchmarks.varied_log import DAY, write_partition
from tasks.warehouse import connect

ROOT = Path(__file__).parents[1]
STEF = "import sys; from flows.cli import run; sys.exit(run(sys.argv[1:]))"
TABLES = ("query_scores", "query_findings", "agent_daily", "agent_alerts", "log_catalogue")
PER_RUN = ("run_id", "scored_at")
PORT = 4319


def score(folder: Path, name: str, *arguments: str, **environment: str) -> float:
    """Seconds that the day took."""
    ours = os.environ | {
        "STEF_SPOOL": str(folder / f"{name}-spool"),
        "PREFECT_HOME": str(folder / f"{name}-prefect"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    url = f"duckdb:///{folder / name}.duckdb"
    given = ["score", "--date", str(DAY), "--logs", str(folder / "logs"), "--warehouse", url, "--quiet", *arguments]
    done = subprocess.run(
        [sys.executable, "-c", STEF, *given], cwd=ROOT, env=ours | environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{name}: stef score ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    with connect(url, read_only=True) as store:
        run = store.read("scoring_runs").row(0, named=True)
    return float((run["ended_at"] - run["started_at"]).total_seconds())


def equal(folder: Path, one: str, other: str) -> bool:
    """Whether two warehouses hold the same tables, but for what differs from run to run."""
    for table in TABLES:
        frames = []
        for name in (one, other):
            with connect(f"duckdb:///{folder / name}.duckdb", read_only=True) as store:
                frames.append(store.read(table).drop(PER_RUN, strict=False))
        if not frames[0].equals(frames[1]):
            return False
    return True


@contextmanager
def prefect_server(folder: Path) -> Iterator[Mapping[str, str]]:
    """A Prefect server on loopback; the environment of its clients."""
    environment = {"PREFECT_HOME": str(folder / "server"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(PORT)]
    server = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            try:
                urlopen(f"http://127.0.0.1:{PORT}/api/health", timeout=5).close()
                break
            except (URLError, OSError):
                time.sleep(0.5)
        yield {"PREFECT_API_URL": f"http://127.0.0.1:{PORT}/api"}
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-dask", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    many = str(options.processes)
    figures: dict[str, Any] = {"rows": options.rows, "processes": options.processes}
    with tempfile.TemporaryDirectory(prefix="stef-scaling-") as name:
        folder = Path(name)
        write_partition(folder / "logs", options.rows)
        ways: dict[str, tuple[list[str], dict[str, str]]] = {
            "one process": ([], {"STEF_PROCESSES": "1"}),
            f"{many} processes": ([], {"STEF_PROCESSES": many}),
        }
        with prefect_server(folder) if not options.no_dask else nullcontext(dict[str, str]()) as server:
            if not options.no_dask:
                ways[f"Dask, {many} workers"] = (["--runner", "dask"], {"STEF_PROCESSES": many, **server})
            print(f"{options.rows:,} different rows, from Parquet to the warehouse")
            for number, (way, (arguments, environment)) in enumerate(ways.items()):
                seconds = score(folder, f"w{number}", *arguments, **environment)
                same = number == 0 or equal(folder, "w0", f"w{number}")
                figures[way] = {"seconds": seconds, "tables_equal": same}
                print(f"{way:<20} {seconds:>8.1f} s", flush=True)
            # once more at the end, as a busy machine changes its pace
            again = score(folder, "again", *ways["one process"][0], **ways["one process"][1])
            print(f"{'one process again':<20} {again:>8.1f} s", flush=True)
        figures["one process"]["seconds"] = (figures["one process"]["seconds"] + again) / 2
        for way in ways:
            each = figures[way]
            each["rows_per_s"] = options.rows / each["seconds"]
            each["times_one_process"] = figures["one process"]["seconds"] / each["seconds"]
            told = f"{way:<20} {each['seconds']:>8.1f} s {each['rows_per_s']:>9,.0f} rows/s   × {each['times_one_process']:.2f}"
            print(f"{told}   tables equal: {each['tables_equal']}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
