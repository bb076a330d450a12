"""The benchmark of peers: what it prints, what it pins, and rows on which a comparison means something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.__main__ import HERE, WARM_UP, ratios, table
from benchmarks.peers.endpoint import PeersEndpoint
from benchmarks.peers.rows import make_database, make_rows

PINNED = re.compile(r"[A-Za-z0-9-]+==[0-9][0-9.]*")


def run(name: str, way: str, rate: float | None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "way": way,
        "label": "evaluate_batch, one",
        "needs": "question, schema",
        "rows": 123456,
        "graded": 123456,
        "as_grade": 1,
        "unscored": 2,
        "silent": 3,
        "lost": 4,
        "cpu_s": 1.0,
        "clock_s": 1234.5,
        "peak_mib": 1234.5,
        "requests": 123456,
        "requests_per_row": 3.0,
        "in_flight": "all",
        "ended_by": None,
        "judges": True,
        "documented": True,
        "rows_per_s": rate,
    } | more


def figures() -> dict[str, Any]:
    found: dict[str, Any] = {
        "versions": {"stef": "0.1.0", "sqlas": "2.8.0"},
        "rules": [run("stef", "rules", 900.0), run("ibm", "rules", 90.0), run("ragas", "strings", 1800.0, judges=False)],
        "judge": [
            run("stef", "judge", 100.0),
            run("stef", "verdict", 200.0),
            run("sqlas", "judge", 4.0),
            run("sqlas", "threads", 50.0, documented=False),
            run("ibm", "judge", None, ended_by="ValueError: no\nanswer"),
        ],
        "faults": [run("stef", "judge", None), {"name": "ragas", "label": "evaluate", "rows": 9, "did_not_end_s": 240.0}],
    }
    return found | {"ratios": ratios(found)}


def test_table_fits_a_hundred_columns_and_says_why_figures_are_missing() -> None:
    shown = table(figures())

    assert max(len(line) for line in shown.splitlines()) <= 100
    assert "did not end within 240 s" in shown
    assert "    ValueError: no answer" in shown


def test_ratios_compare_with_the_best_peer_that_does_the_same() -> None:
    found = figures()["ratios"]

    assert found == {
        "rules": 10.0,
        "rules_any": 0.5,
        "judge_two_requests": 25.0,
        "judge_one_request": 50.0,
        "judge_one_request_any": 4.0,
    }


@pytest.mark.parametrize("name", ["ragas", "sqlas", "ibm"])
def test_requirements_are_names_and_versions_alone(name: str) -> None:
    lines = (HERE / f"requirements-{name}.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not line.startswith("#") and not PINNED.fullmatch(line)] == []


def test_rows_differ_and_wrong_sql_has_another_result(tmp_path: Path) -> None:
    make_database(tmp_path / "a.sqlite")

    wrong = make_rows(400 + WARM_UP, tmp_path / "a.sqlite", right=False)
    mixed = make_rows(400, tmp_path / "a.sqlite", right=True)

    assert len({row["generated_sql"] for row in wrong}) == len(wrong)
    assert all(row["generated_csv"].splitlines()[1:] != row["gold_csv"].splitlines()[1:] for row in wrong)
    assert sum(row["generated_csv"].splitlines()[1:] == row["gold_csv"].splitlines()[1:] for row in mixed) == 200


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Respond EXACTLY:\nSemantic_Score: [score]\nReasoning: [one sentence]", "Semantic_Score: 0.9\nReasoning: as asked"),
        ("Reply with the verdict alone on the first line", "Yes\nAs asked."),
    ],
)
def test_endpoint_answers_in_the_form_that_a_prompt_asks_for(prompt: str, answer: str) -> None:
    endpoint = PeersEndpoint(0.0, {}, each_attempt=False)

    assert endpoint.answer({"messages": [{"role": "user", "content": prompt}]}) == answer
