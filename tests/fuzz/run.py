"""``make fuzz``: each target in turn for so many seconds; ends with 1 where one broke a promise.

Arguments: seconds for each target, and names of targets where not all are meant.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".stef" / "fuzz"  # what was found, for the next run to begin with


def main() -> int:
    """Run."""
    if importlib.util.find_spec("atheris") is None:
        version = ".".join(map(str, sys.version_info[:2]))
        print(f"skipped: atheris is not installed, or has no wheel for Python {version} on {sys.platform}")
        return 0
    from tests.fuzz.targets import TARGETS

    seconds, names = sys.argv[1], sys.argv[2:] or list(TARGETS)
    broken = []
    empty = KEPT / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.atheris_run", name, seconds, str(KEPT)]
        # in an empty folder and without settings, as command lines are fuzzed too
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("STEF_", "OPENAI_"))}
        done = subprocess.run(
            command, cwd=empty, env=clean | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        told = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
        tried = told[-1].split()[-1] if told else "?"
        print(f"{name}: {tried} inputs, {'a promise is broken' if done.returncode else 'nothing found'}", flush=True)
        if done.returncode:
            broken.append(name)
            print("\n".join((done.stdout + done.stderr).splitlines()[-40:]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
