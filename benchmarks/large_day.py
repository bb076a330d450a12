"""How much memory, time and disk one large day takes, by the symbolic judge, over all processes together.

    python -m benchmarks.large_day [--rows 10000 100000 1000000] [--processes N] [--json FILE]

Each size is scored by `stef score` in a process of its own. Its memory is the sum of the proportional set sizes of that process
and of all it starts, sampled; a page that several share counts once. Rows come from `benchmarks.varied_log`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.varied_log import DAY, write_partition

INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One size: seconds, peak memory in MiB over all processes, sizes in MiB."""

    rows: int
    seconds: float
    rows_per_s: float
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
    start = time.perf_counter()
    with lines.open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", call, *arguments], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        peak, most, at = 0, 0, ""
        while child.poll() is None:
            used, count = _memory(child.pid)
            if used > peak:
                peak, at = used, _last_line(lines)
            most = max(most, count)
            time.sleep(INTERVAL_S)
    seconds = time.perf_counter() - start
    if child.returncode:
        raise RuntimeError(f"stef score ended with {child.returncode}:\n{lines.read_text()[-3000:]}")
    return Measured(
        rows=rows,
        seconds=round(seconds, 1),
        rows_per_s=round(rows / seconds, 1),
        peak_mib=round(peak / 2**20, 1),
        at=at,
        processes=most,
        log_mib=_size(logs),
        warehouse_mib=_size(warehouse),
    )


def _memory(pid: int) -> tuple[int, int]:
    """Proportional set size of a process and all below it, in bytes, and how many they are."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    total = 0
    for each in family:
        try:
            total += each.memory_full_info().pss
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
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--processes", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[Measured] = []
    print(f"{'rows':>10} {'seconds':>9} {'rows/s':>8} {'peak MiB':>9} {'× first':>8} {'warehouse MiB':>14}  at the peak")
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="stef-large-") as folder:
            each = measure(rows, Path(folder), arguments.processes)
        found.append(each)
        ratio = each.peak_mib / found[0].peak_mib
        figures = f"{rows:>10,} {each.seconds:>9,.1f} {each.rows_per_s:>8,.1f} {each.peak_mib:>9,.0f} {ratio:>8.2f}"
        print(f"{figures} {each.warehouse_mib:>14,.0f}  {each.at}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
