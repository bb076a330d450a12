"""None of our regular expressions takes more than a moment for the longest text that is read in place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.pumps import BOUND_S, LENGTH, patterns, slowest

ROOT = Path(__file__).parents[2]
# they say what addresses the evaluator, in many languages: hundreds of branches, and minutes to try
LARGE = "stef_core.injection"


SLOW = {"exponential": (r"(a+)+$", False), "square": (r"\s*\w*\s*(?:,|;)", False), "cube": (r"a*a*a*b", True)}


@pytest.mark.drill  # by the clock
@pytest.mark.parametrize(("pattern", "anchored"), SLOW.values(), ids=SLOW)
def test_slow_pattern_is_found(pattern: str, anchored: bool) -> None:
    program = f"from tests.fuzz.pumps import slowest; print(slowest({pattern!r}, 0, anchored={anchored})[0])"

    try:
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    except subprocess.TimeoutExpired:
        return  # the first is not done before the sun is cold

    assert float(done.stdout) > BOUND_S


@pytest.mark.drill
def test_linear_pattern_is_not_found() -> None:
    assert slowest(r"\b[a-z]+\s*=\s*\d+", 0, anchored=False)[0] < BOUND_S


def test_every_pattern_is_collected() -> None:
    found = patterns()

    assert len(found) > 150
    assert any(where.startswith("tasks.") for where in found.values())
    assert any(where.endswith(".py") for where in found.values())


def timed(*, large: bool, timeout_s: float) -> list[str]:
    """Patterns that are too slow, or that took all of the time."""
    command = [sys.executable, "-m", "tests.fuzz.pumps", "only" if large else "without", LARGE]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=timeout_s)
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        lines = (out.decode() if isinstance(out, bytes) else out).splitlines()
        return [f"took all of the time, for {LENGTH} characters: {lines[-1] if lines else 'nothing'}"]
    assert "patterns" in json.loads(lines[-1])
    return [line for line in lines if "slow" in json.loads(line)]


@pytest.mark.drill
def test_no_pattern_is_slow() -> None:
    assert timed(large=False, timeout_s=400) == []


@pytest.mark.drill
def test_no_pattern_of_injections_is_slow() -> None:
    assert timed(large=True, timeout_s=1_800) == []
