"""Format, lint and types, as `make lint` has them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = [
    pytest.param(["ruff", "format", "--check", "--no-cache", "."], id="ruff format"),
    pytest.param(["ruff", "check", "--no-cache", "."], id="ruff check"),
    pytest.param(["mypy"], id="mypy", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_code_is_as_the_tool_wants_it(command: list[str]) -> None:
    tool, *arguments = command
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed; `make setup` installs it")

    done = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
