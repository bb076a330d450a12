"""Fuzzes one target under the guidance of coverage; Linux and macOS.

``python -m tests.fuzz.atheris_run TARGET SECONDS [FOLDER]``: the folder keeps the inputs that were found, for the next run to
begin with. An input that breaks a promise ends the run and stands in the folder as ``crash-…``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris


def main() -> None:
    """Run."""
    name, seconds = sys.argv[1], int(sys.argv[2])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp()) / name
    folder.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["stef_core", "tasks.query_log"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS, seeds
    target, _ = TARGETS[name]
    for number, seed in enumerate(seeds(name)):
        (folder / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096", "-max_len=8192", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", "-verbosity=1", str(folder)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
