"""An audit that could not be made is told as none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
GOOD = {"name": "wrapt", "version": "2.5.2", "vulns": []}
UNKNOWN = {"name": "zict", "skip_reason": "Dependency not found and could not be audited: zict (3.0.0)"}
BAD = {"name": "yarl", "version": "1.25.1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.25.2"]}]}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("report", "code", "told"),
    [
        ({"dependencies": [GOOD]}, 0, "audit: 1 packages, none with a known vulnerability"),
        ({"dependencies": [GOOD, BAD]}, 1, "audit: yarl 1.25.1: PYSEC-1 (fixed in 1.25.2)"),
        ({"dependencies": [BAD, UNKNOWN]}, 1, "audit: yarl 1.25.1: PYSEC-1 (fixed in 1.25.2)"),
        ({"dependencies": [GOOD, UNKNOWN]}, 3, "audit: SKIPPED: 1 of 2 packages could not be looked up: Dependency not found"),
        ({"dependencies": []}, 3, "audit: SKIPPED: 0 of 0 packages could not be looked up: no route to host"),
        (None, 3, "audit: SKIPPED: 0 of 0 packages could not be looked up: no route to host"),
    ],
)
def test_only_a_report_on_every_package_is_a_clean_one(audit: ModuleType, report: Any, code: int, told: str) -> None:
    got, lines = audit.judge(report, "starting\nno route to host\n")

    assert got == code
    assert lines[0].startswith(told)


def test_ci_runs_the_two_commands_and_the_audit_before_the_tests() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if "VENV" in line]

    assert [line.split()[-1] for line in commands[1:]] == ["demo", "setup", "--if-reachable", "test"]
