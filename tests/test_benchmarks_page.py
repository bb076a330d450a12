"""The page of benchmarks says of each target whether it was reached, by the figures of the files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.results import RESULTS, keep, machine


def scaling(times: float, *, tables_equal: bool = True) -> dict[str, Any]:
    return {"rows": 10, "processes": 2, "2 processes": {"times_one_process": times, "tables_equal": tables_equal}}


@pytest.mark.parametrize(
    ("figures", "reached"), [(scaling(1.7), True), (scaling(1.69), False), (scaling(1.9, tables_equal=False), False)]
)
def test_a_target_is_reached_or_not(figures: dict[str, Any], reached: bool) -> None:
    (claim,) = page.of_scaling(figures)

    assert claim.reached == reached


def test_the_pace_of_a_large_day_leaves_out_what_starting_takes() -> None:
    sizes = [{"rows": 100, "cpu_s": 10.0}, {"rows": 10_100, "cpu_s": 15.0}]

    assert page.pace(sizes, sizes[1]) == 2000


def test_what_a_benchmark_leaves_names_day_and_machine(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.json"

    keep(file, {"seconds": 1.5})

    found = json.loads(file.read_text())
    assert found["figures"] == {"seconds": 1.5}
    assert found["machine"] == machine()
    assert "cores" in machine()
    assert len(found["measured_on"]) == 10


def test_nothing_is_kept_where_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(RESULTS.iterdir())

    keep(None, {"seconds": 1.5})

    assert list(tmp_path.iterdir()) == []
    assert sorted(RESULTS.iterdir()) == before


def test_every_result_that_the_page_needs_is_there() -> None:
    measured = {name: page.load(name) for name in page.CLAIMS}

    assert all(found["figures"] for found in measured.values())
