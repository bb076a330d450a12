"""How much memory, time and disk one large day takes, by the symbolic judge, over all processes together.

    python -m benchmarks.large_day [--rows 4000 10000 100000 1000000] [--processes N] [--json FILE]

Why it matters: a day must fit a machine whatever its rows, and take time in proportion to them. Targets: rows a second of
processor within 15 % from 10,000 to 1,000,000, peak memory at most 2 GiB, and 1.3 times that of 100,000 rows. The first size
stands for what starting takes, processes included: the pace of the others is that of the rows that they have more. Nothing
else is subtracted.

Each size is scored by `stef score` in a process of its own. Its memory is the sum of the proportional set sizes of that process
and of all it starts, sampled; a page that several share counts once. Seconds of processor are those of all of them, sampled as
well: a busy machine leaves a benchmark waiting. Rows come from `benchmarks.varied_log`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.results import keep
from benchmarks.varied_log import DAY, write_partition

INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One size: seconds by the clock and of processor, peak memory in MiB over all processes, sizes in MiB."""

    rows: int
    seconds: float
    rows_per_s: float
    cpu_s: float
    rows_per_cpu_s: float
    peak_mib: float
    at: str  # the stage in which memory peaked, by the last line of the log
    processes: int
    log_mib: float
    warehouse_mib: float


def measure(rows: int, folder: Path, processes: int | None = None) -> Measured:
    """Score one day of so many rows in a new process, and watch its memory."""
    logs, warehouse = folder / "logs", folder / "w.duckdb"
    write_partition(logs, rows)
    environment = os.environ | {
        "STEF_SPOOL": str(folder / "spool"),
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_HOME": str(folder / "prefect"),
    }
    if processes is not None:
        environment["STEF_PROCESSES"] = str(processes)
    call = "from flows.cli import main; main()"
    arguments = ["score", "--date", str(DAY), "--logs", str(logs), "--warehouse", f"duckdb:///{warehouse}", "--quiet"]
    lines = folder / "lines.log"
    start, cpu = time.perf_counter(), dict[int, float]()
    with lines.open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", call, *arguments], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        peak, most, at = 0, 0, ""
        while child.poll() is None:
            used, count = _watch(child.pid, cpu)
            if used > peak:
                peak, at = used, _last_line(lines)
            most = max(most, count)
            time.sleep(INTERVAL_S)
    seconds, cpu_s = time.perf_counter() - start, sum(cpu.values())
    if child.returncode:
        raise RuntimeError(f"stef score ended with {child.returncode}:\n{lines.read_text()[-3000:]}")
    return Measured(
        rows=rows,
        seconds=round(seconds, 1),
        rows_per_s=round(rows / seconds, 1),
        cpu_s=round(cpu_s, 1),
        rows_per_cpu_s=round(rows / cpu_s, 1),
        peak_mib=round(peak / 2**20, 1),
        at=at,
        processes=most,
        log_mib=_size(logs),
        warehouse_mib=_size(warehouse),
    )


def _watch(pid: int, cpu: dict[int, float]) -> tuple[int, int]:
    """Proportional set size of a process and all below it, in bytes, and how many they are.

    Args:
        pid: Of the process.
        cpu: Takes the seconds of processor of each.
    """
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    total = 0
    for each in family:
        try:
            total += each.memory_full_info().pss
            spent = each.cpu_times()
            cpu[each.pid] = spent.user + spent.system
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total, len(family)


def _last_line(file: Path) -> str:
    text = file.read_text(errors="replace").strip()
    return text.splitlines()[-1][-100:] if text else "starting"


def _size(path: Path) -> float:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return round(sum(file.stat().st_size for file in files) / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--processes", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[Measured] = []
    head = f"{'rows':>10} {'seconds':>8} {'rows/s':>7} {'cpu s':>7} {'rows/cpu s beyond the first':>28} {'peak MiB':>9}"
    print(f"{head} {'× last':>7} {'warehouse MiB':>14}")
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="stef-large-") as folder:
            each = measure(rows, Path(folder), arguments.processes)
        first, last = (found or [each])[0], (found or [each])[-1]
        beyond = (rows - first.rows) / (each.cpu_s - first.cpu_s) if found else 0.0
        found.append(each)
        pace = f"{each.seconds:>8,.1f} {each.rows_per_s:>7,.0f} {each.cpu_s:>7,.0f} {beyond:>28,.0f}"
        memory = f"{each.peak_mib:>9,.0f} {each.peak_mib / last.peak_mib:>7.2f} {each.warehouse_mib:>14,.0f}"
        print(f"{rows:>10,} {pace} {memory}", flush=True)
    keep(arguments.json, [asdict(each) for each in found])


if __name__ == "__main__":
    main()
