"""What a benchmark leaves: a file with its figures, the day, and the machine, of which `benchmarks.page` makes a page."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep(file: Path | None, figures: Any) -> None:
    """Write figures with the day and the machine to a file; nothing where that is None."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"measured_on": dt.datetime.now(dt.UTC).date().isoformat(), "machine": machine(), "figures": figures}
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def machine() -> str:
    """Processor, cores, memory, system and Python, in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
