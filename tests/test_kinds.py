"""Cases of the conformance kinds over tables of our own: what ``stef explain --file`` writes about each of them must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import cli
from tests.test_conformance import Case, answers_of, met, rows_of

KINDS = Path(__file__).parent / "golden" / "kinds.json"
FAMILIES = 14


@pytest.fixture(scope="module")
def kinds() -> list[Case]:
    rows: list[Case] = json.loads(KINDS.read_text(encoding="utf-8"))
    return rows


@pytest.fixture(scope="module")
def explained_kinds(kinds: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `stef explain --file` writes about every case, with default settings and no endpoint."""
    folder = tmp_path_factory.mktemp("kinds")
    lines = [json.dumps(answer, ensure_ascii=False) for case in kinds for answer in answers_of(case)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # no settings file of somebody else's
        code = cli.run(["explain", "--file", "in.jsonl", "--output", "out.jsonl"])
    assert code == 0
    return folder / "out.jsonl"


def test_every_expectation_of_our_own_cases_is_met(kinds: list[Case], explained_kinds: Path) -> None:
    _, total, failed = met(kinds, rows_of(explained_kinds))

    assert failed == []
    assert sum(total.values()) >= 4 * len(kinds)


def test_our_own_cases_reach_every_family_and_have_names_of_their_own(kinds: list[Case]) -> None:
    assert len({case["family"] for case in kinds}) == FAMILIES
    assert len({case["id"] for case in kinds}) == len(kinds)


def test_a_case_of_ours_fails_where_the_answer_says_nothing(kinds: list[Case], explained_kinds: Path) -> None:
    empty = {"sql_spec": {}, "alignment": {}, "verdict": {"grade": None}, "score": {"phi": 50.0}}
    silent = {name: row | empty for name, row in rows_of(explained_kinds).items()}

    passed, total, _ = met(kinds, silent)

    assert sum(passed.values()) < 0.7 * sum(total.values())
