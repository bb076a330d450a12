"""Ask for known vulnerabilities of the versions in constraints.txt: 0 none, 1 some, 3 nobody could be asked.

pip-audit itself ends well where the service knows none of the packages, or is not reached for one of them; that is no
audit, and is told as none. ``--if-reachable`` ends with 0 then too, and says SKIPPED.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLEAN, VULNERABLE, UNASKED = 0, 1, 3
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PATIENCE_S = 90


def judge(report: Mapping[str, Any] | None, said: str = "") -> tuple[int, list[str]]:
    """What a report comes to, and the lines that tell it.

    Args:
        report: As pip-audit writes it in JSON; None where it wrote none.
        said: What it said beside that.
    """
    found = (report or {}).get("dependencies", [])
    lines = [
        f"audit: {each['name']} {each['version']}: {vulnerability['id']}"
        f" (fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'})"
        for each in found
        for vulnerability in each.get("vulns", ())
    ]
    if lines:
        return VULNERABLE, lines
    skipped = [each for each in found if "skip_reason" in each]
    if not found or skipped:
        why = skipped[0]["skip_reason"] if skipped else (said.strip().splitlines() or ["no report"])[-1]
        return UNASKED, [f"audit: SKIPPED: {len(skipped)} of {len(found)} packages could not be looked up: {why}"]
    return CLEAN, [f"audit: {len(found)} packages, none with a known vulnerability"]


def ask() -> tuple[Mapping[str, Any] | None, str]:
    """The report of pip-audit, and what it said beside that."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        return None, f"no answer within {PATIENCE_S} s"
    try:
        return json.loads(done.stdout), done.stderr
    except ValueError:
        return None, done.stderr


def main(arguments: list[str]) -> int:
    """Ask, tell, and give the exit code."""
    code, lines = judge(*ask())
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return CLEAN if code == UNASKED and "--if-reachable" in arguments else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
