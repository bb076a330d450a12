"""The layers hold, no other distribution owns our packages, and starting costs what it should."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("prefect", "polars", "pandas", "great_expectations", "duckdb", "sqlglot", "openai", "pyarrow", "altair")


def test_import_contracts_hold() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("name", ["flows", "tasks", "stef_core"])
def test_no_other_distribution_owns_our_packages(name: str) -> None:
    # an editable install lists nothing, hence a subset
    assert set(packages_distributions().get(name, ())) <= {"stef-pipeline"}


@pytest.mark.parametrize("name", ["flows", "tasks"])
def test_packages_that_only_group_modules_stay_empty(name: str) -> None:
    assert (ROOT / name / "__init__.py").read_text(encoding="utf-8") == ""


def test_tests_hide_no_package_of_ours() -> None:
    folders = {path.name for path in (ROOT / "tests").rglob("*") if path.is_dir()}

    assert not folders & {"flows", "tasks", "stef_core"}
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["score", "--help"], ["rules", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom flows import cli\n"
        f"code = cli.run({arguments!r})\n"
        f"sys.exit(code or ' '.join(set({HEAVY!r}) & set(sys.modules)) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["tasks.settings", "tasks.warehouse", "tasks.models", "stef_core"])
def test_these_modules_know_no_prefect(module: str) -> None:
    program = f"import sys, {module}; sys.exit('prefect' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
