"""How fast the symbolic path is beside sqlglot alone: rows/s of each stage and of `stef score`, as ratios to bare `parse_one`.

    python -m benchmarks.symbolic_path [--rows 2000 10000 50000] [--no-score] [--json FILE]

Why it matters: without a model, reading and aligning is all that scoring a row costs, so these figures say how many rows a
night one core takes. sqlglot's parser is the part that nobody can save, and measured in the same run it makes the ratios hold
on any machine. The rows are all different (`benchmarks.varied_log`), so nothing is answered from what an equal row gave.

Each number of rows has two processes of its own, and so its own peak of memory. One runs the stages over batches of the size
that the daily flow has. The other is one `stef score` of one day, from Parquet to a DuckDB warehouse, gates and Prefect with
its server included; nothing is subtracted, and the same command on a day of 50 rows says how much of it is start-up. Seconds
are those of the processor, as a busy machine leaves a benchmark waiting; those of the clock stand beside `stef score`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError

from benchmarks.results import keep
from benchmarks.varied_log import DAY, source, write_partition
from stef_core.catalogue import catalogue_of, mine
from stef_core.dialects import sqlglot_dialect
from stef_core.evaluate import QuestionPair, conclude_many, examine, read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.frames import records_of
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import QueryRecord
from stef_core.rows import examined_frame, findings_frame, judged_frame
from stef_core.rules import DEFAULT_RULES, Rules
from tasks.query_log import read_partition

ROOT = Path(__file__).parents[1]
STEF = "import sys; from flows.cli import run; sys.exit(run(sys.argv[1:]))"
BATCH = 200  # rows of a task, as the daily flow has them
FEW_DAY, FEW = DAY - dt.timedelta(days=1), 50  # a day whose scoring is all start-up


class Given:
    """A reader that hands on what was read before, so that what else reading does can be timed alone."""

    name = "offline"
    prompt_version: str | None = None

    def __init__(self, pairs: Sequence[QuestionPair]) -> None:
        self._pairs = iter(pairs)

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        return [next(self._pairs) for _ in records]


def parse_all(records: Sequence[QueryRecord]) -> None:
    """What is compared with: `parse_one`, each row in its dialect; SQL that it refuses costs its time all the same."""
    for record in records:
        try:
            sqlglot.parse_one(record.generated_sql or "", dialect=sqlglot_dialect(record.dialect) or None)
        except SqlglotError:
            continue


def stages(logs: str) -> dict[str, Any]:
    """Seconds of each stage over a partition, and the peak of memory of this process, which is to run nothing else."""
    records = records_of(read_partition(logs, DAY).frame)
    rules = [DEFAULT_RULES] * len(records)
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - started

    parts = [slice(start, start + BATCH) for start in range(0, len(records), BATCH)]
    reader, judge = OfflineReader(), SymbolicJudge()
    parse_all(records[:BATCH])  # loads the dialects
    with timed("parse_one"):
        parse_all(records)
    with timed("question"):
        pairs = [pair for part in parts for pair in reader.read_many(records[part], rules[part])]
    given = Given(pairs)
    with timed("sql"):
        read = [row for part in parts for row in read_many(records[part], rules[part], given)]
    with timed("catalogue"):
        catalogue = catalogue_of(mine(((row.record, row.reading.sql) for row in read), DAY))
    for part in parts:
        with timed("examine"):
            examined = [examine(row, DEFAULT_RULES, catalogue) for row in read[part]]
        with timed("conclude"):
            evaluated = conclude_many(examined, rules[part], judge)
        with timed("frames"):
            examined_frame(examined, records[part], rules[part])
            judged_frame(evaluated, records[part], rules[part], judge=judge.name, model=judge.model)
            findings_frame(evaluated, records[part], rules[part], day=DAY, run_id="benchmark")
    with timed("parse_one"):  # once more at the end, as a busy machine changes its pace
        parse_all(records)
    seconds["parse_one"] /= 2
    seconds["core"] = sum(taken for name, taken in seconds.items() if name != "parse_one")
    return {"rows": len(records), "seconds": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured(arguments: Sequence[str], environment: dict[str, str]) -> tuple[str, dict[str, float]]:
    """Standard output of a process of this interpreter, and what it took: seconds of processor and clock, peak MiB.

    Raises:
        SystemExit: It failed.
    """
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        clock_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments[:3])} ended with {process.returncode}: {err.read()[-2000:]}")
        spent = {"cpu_s": usage.ru_utime + usage.ru_stime, "clock_s": clock_s, "peak_mib": usage.ru_maxrss / 1024}
        return out.read(), spent


def score(folder: Path, day: dt.date) -> dict[str, float]:
    """What one `stef score` of a day into a new warehouse takes, as `measured` tells it."""
    environment = os.environ | {
        "STEF_JUDGE": "symbolic",
        "STEF_WAREHOUSE": f"duckdb:///{folder / str(day)}.duckdb",
        "STEF_LOGS": str(folder / "logs"),
        "STEF_BATCH_SIZE": str(BATCH),
        "PREFECT_HOME": str(folder.parent / "prefect"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
    }
    return measured(["-c", STEF, "score", "--date", str(day), "--quiet"], environment)[1]


def figures_of(found: dict[str, Any]) -> dict[str, Any]:
    """Rows a second and ratios to `parse_one`, from seconds."""
    rows, parse = found["rows"], found["seconds"]["parse_one"]
    return found | {
        "rows_per_s": {name: rows / taken for name, taken in found["seconds"].items()},
        "ratio": {name: parse / taken for name, taken in found["seconds"].items()},
    }


def show(found: dict[str, Any]) -> None:
    print(f"{found['rows']:>9,} rows {'':<23}{'rows/s':>10}{'ms/row':>10}{'of parse_one':>14}")
    for name, taken in found["seconds"].items():
        ratio = found["ratio"][name]
        print(f"{'':<15}{name:<23}{found['rows'] / taken:>10,.0f}{1000 * taken / found['rows']:>10.3f}{ratio:>14.3f}")
    print(f"{'':<15}peak of the stages {found['peak_mib']:,.0f} MiB")
    if "score" in found:
        whole, start = found["score"], found["start_up"]
        print(
            f"{'':<15}stef score by the clock: {whole['clock_s']:.0f} s, {found['rows'] / whole['clock_s']:,.0f} rows/s, "
            f"peak {whole['peak_mib']:,.0f} MiB"
        )
        print(f"{'':<15}of which start-up: {start['clock_s']:.0f} s, {start['cpu_s']:.0f} s of processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=(2_000, 10_000, 50_000))
    parser.add_argument("--no-score", action="store_true", help="the stages alone, without stef score")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stages", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stages is not None:
        print(json.dumps(stages(options.stages)))
        return
    varied, origin = source()
    print(f"rows of {origin}, all different; one process, one core")
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for rows in options.rows:
            folder = Path(name) / str(rows)
            write_partition(folder / "logs", rows, rows=varied)
            printed, _ = measured(["-m", "benchmarks.symbolic_path", "--stages", str(folder / "logs")], dict(os.environ))
            found = json.loads(printed)
            if not options.no_score:
                write_partition(folder / "logs", FEW, FEW_DAY, rows=varied)
                if not runs:
                    score(folder, FEW_DAY)  # makes Prefect's own database, which is no part of a run
                    (folder / f"{FEW_DAY}.duckdb").unlink()
                found["start_up"], found["score"] = score(folder, FEW_DAY), score(folder, DAY)
                found["seconds"]["stef score"] = found["score"]["cpu_s"]
            runs.append(figures_of(found))
            show(runs[-1])
    keep(options.json, {"source": origin, "runs": runs})


if __name__ == "__main__":
    main()
