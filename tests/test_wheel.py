"""The built wheel holds everything that a run needs, and works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "stef_core")
PROGRAM = """
import sys
from pathlib import Path
import flows, tasks, stef_core
from flows import cli
from tasks.demo_data import write_demo_week
from tasks.settings import application_rules, load_settings
from tasks.warehouse import connect

assert all(Path(m.__file__).is_relative_to(sys.argv[1]) for m in (flows, tasks, stef_core)), flows.__file__
assert application_rules(load_settings())["default"].app_id == "default"
assert write_demo_week(Path("week")).logs.is_dir()
with connect("duckdb:///w.duckdb") as store:
    store.migrate()
for arguments in (
    ["explain", "-q", "How many open orders?", "-s", "SELECT COUNT(*) FROM orders WHERE status = 'open'"],
    ["rules", "schema"],
    ["report", "--warehouse", "duckdb:///w.duckdb"],
):
    assert cli.run(arguments) == 0, arguments
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = pytest.importorskip("hatchling.build", reason="hatchling is not installed; `make setup` installs it")
    folder = tmp_path_factory.mktemp("wheel")
    here = Path.cwd()
    os.chdir(ROOT)  # the build backend builds the working directory
    try:
        return folder / str(build.build_wheel(str(folder)))
    finally:
        os.chdir(here)


def test_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    files = [p for package in PACKAGES for p in (ROOT / package).rglob("*") if p.is_file() and "__pycache__" not in p.parts]

    held = set(zipfile.ZipFile(wheel).namelist())

    assert {p.relative_to(ROOT).as_posix() for p in files} <= held
    assert "tasks/data/rules/default.json" in held
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == set(PACKAGES)


def test_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(site)],
        cwd=empty,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
