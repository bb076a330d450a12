"""What the drivers share: rows come from a file, the report goes to one, and time and memory are measured alike.

A driver runs in the environment of one peer, so nothing of STEF is imported here, and nothing beyond the standard library.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, str]
Task = dict[str, Any]


@dataclass(kw_only=True)
class Report:
    """What became of the rows.

    Each row of `graded` has a grade that the judge's answer or the rules gave. `as_grade` counts rows whose judge failed and
    that have a grade all the same, `unscored` those without a grade and with a reason, `silent` those without either.
    """

    graded: int = 0
    as_grade: int = 0
    unscored: int = 0
    silent: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def serve(package: str, ways: dict[str, Callable[[Sequence[Row], Task], Report]]) -> None:
    """Run the way that the task's file names over its rows, and write the report.

    The command line names the task's file and the report's. Whatever exception ends a run is a figure: the report's `ended_by`.
    """
    task: Task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows, way = task["rows"], ways[task["way"]]
    if task["warm_up"]:  # rows before the clock starts, so that what is loaded once is not counted
        way(task["warm_up"], task)
    report, ended_by = Report(), None
    clock, processor = time.perf_counter(), time.process_time()
    try:
        report = way(rows, task)
    except Exception as error:  # noqa: BLE001
        ended_by = f"{type(error).__name__}: {str(error)[:200]}"
    told = {
        "version": version(package),
        "rows": len(rows),
        "clock_s": time.perf_counter() - clock,
        "cpu_s": time.process_time() - processor,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "graded": report.graded,
        "as_grade": report.as_grade,
        "unscored": report.unscored,
        "silent": report.silent,
        "errors": dict(report.errors),
        "ended_by": ended_by,
    }
    Path(sys.argv[2]).write_text(json.dumps(told), encoding="utf-8")
