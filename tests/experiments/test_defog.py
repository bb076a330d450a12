"""A public set of questions with several accepted queries each: all of them run, each agrees with itself, ties are seen."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stef_core.experiments.execution import GoldResult, QueryFailure, accepted_queries, judge_prediction, run_gold
from tasks.databases import Database, open_database

DEFOG = Path(__file__).parents[2].parent / "shared" / "data" / "defog"
pytestmark = pytest.mark.skipif(not DEFOG.is_dir(), reason="needs the defog questions in ../shared/data/defog")
QUESTIONS = 210  # in each of the two files


@dataclass
class Tally:
    """What came of comparing every accepted query with itself and with the others of its question."""

    questions: int = 0
    queries: int = 0
    pairs: int = 0
    differ: Counter[str] = field(default_factory=Counter)
    questions_that_differ: int = 0
    ties: int = 0
    failed: list[str] = field(default_factory=list)
    unlike_itself: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reasons = "".join(f"\n  {count:4} {reason}" for reason, count in self.differ.most_common())
        return (
            f"{self.questions} questions, {self.queries} accepted queries, {self.ties} with a tie cut by LIMIT; of {self.pairs}"
            f" ordered pairs of alternatives {self.differ.total()} differ, in {self.questions_that_differ} questions:{reasons}"
        )


@pytest.fixture(scope="module")
def lite() -> Iterator[Callable[[str], Database]]:
    opened: dict[str, Database] = {}

    def of(name: str) -> Database:
        if name not in opened:
            opened[name] = open_database(f"sqlite:///{DEFOG / 'sqlite' / name}.sqlite")
        return opened[name]

    yield of
    for database in opened.values():
        database.close()


@pytest.fixture(scope="module")
def postgres(postgres_server: Callable[[str], str]) -> Iterator[Callable[[str], Database]]:
    import psycopg

    opened: dict[str, Database] = {}

    def of(name: str) -> Database:
        if name not in opened:
            url = postgres_server(f"defog_{name}")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute((DEFOG / "postgres" / f"{name}.sql").read_bytes())
            opened[name] = open_database(url)
        return opened[name]

    yield of
    for database in opened.values():
        database.close()


def tally(questions: Path, of: Callable[[str], Database]) -> Tally:
    found = Tally()
    with questions.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.questions += 1
            database = of(row["db_name"])
            golds = [
                run_gold(sql, database.run, database.dialect) for sql in accepted_queries([row["query"]], database.dialect)
            ]
            count_one(found, row["question"], golds, database)
    return found


def count_one(found: Tally, question: str, golds: list[GoldResult], database: Database) -> None:
    found.queries += len(golds)
    differ = 0
    for gold in golds:
        if isinstance(gold.result, QueryFailure):
            found.failed.append(f"{question}: {gold.sql}: {gold.result.message}")
            continue
        found.ties += gold.window is not None
        for other in golds:
            if isinstance(other.result, QueryFailure):
                continue
            outcome = judge_prediction([gold], other.sql, database.run, database.dialect)
            if other is gold:
                if outcome.label != "correct":
                    found.unlike_itself.append(f"{question}: {gold.sql}: {outcome.reason}")
                continue
            found.pairs += 1
            if outcome.label != "correct":
                differ += 1
                found.differ[kind_of(outcome.reason)] += 1
    found.questions_that_differ += differ > 0


def kind_of(reason: str) -> str:
    """The reason without its numbers, names and values, to count alike ones together."""
    for pattern, kind in (
        ("has .* columns? .*, gold has", "another number of columns"),
        ("has .* rows?, gold has", "another number of rows"),
        ("^no predicted column holds", "a column with other values"),
        ("^one row with gold's values", "one row under other names"),
        ("^each column agrees", "the same columns in other rows"),
        ("^the same rows in another order", "the same rows in another order"),
    ):
        if re.search(pattern, reason):
            return kind
    return reason


@pytest.mark.parametrize("engine_name", ["sqlite", "postgres"])
def test_every_accepted_query_runs_and_agrees_with_itself(
    engine_name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    of = request.getfixturevalue("lite" if engine_name == "sqlite" else "postgres")

    found = tally(DEFOG / f"questions_gen_{engine_name}.csv", of)

    with capsys.disabled():
        print(f"\n{engine_name}: {found}")
    assert found.questions == QUESTIONS
    assert found.failed == []
    assert found.unlike_itself == []
    assert found.pairs > 0
