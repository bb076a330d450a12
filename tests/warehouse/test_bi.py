"""Every question of docs/bi.md is answered by its SQL, on each database."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import ORDER, VIEWS
from tests.postgres_server import PostgresServer
from tests.warehouse.bi_rows import FIRST, HR, SHOP, SLIP, fill

PAGE = (Path(__file__).parents[2] / "docs" / "bi.md").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One section of the page."""

    title: str
    text: str
    sql: str


def questions() -> list[Question]:
    found = re.findall(r"^## (\d+\. .*?)\n\n(.*?)```sql\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [Question(title=title, text=text, sql=sql) for title, text, sql in found]


QUESTIONS = questions()


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A filled warehouse, opened as BI opens it."""
    if request.param == "duckdb":
        path = tmp_path_factory.mktemp("bi") / "warehouse.duckdb"
        with connect(f"duckdb:///{path}") as opened:
            fill(opened)
        with connect(f"duckdb:///{path.with_name('warehouse.bi.duckdb')}", read_only=True) as opened:
            yield opened
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"bi_{uuid.uuid4().hex}"
    url = server(name)
    with connect(url, wait_s=5) as opened:
        fill(opened)
    with connect(url, read_only=True) as opened:
        yield opened
    server.drop(name)


def answer(asked: Warehouse, number: int) -> pl.DataFrame:
    return asked.query(QUESTIONS[number - 1].sql)


def test_there_are_ten_questions_and_every_block_of_sql_belongs_to_one() -> None:
    assert [question.title.partition(".")[0] for question in QUESTIONS] == [str(n) for n in range(1, 11)]
    assert PAGE.count("```sql") == 10


def test_page_describes_every_view() -> None:
    assert set(re.findall(r"^\| `(v_\w+)` \|", PAGE, flags=re.MULTILINE)) == set(VIEWS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_sql_of_the_page_gives_rows_and_what_the_text_names(question: Question, asked: Warehouse) -> None:
    found = asked.query(question.sql)

    assert found.height > 0
    named = set(re.findall(r"`([a-z0-9_]+)`", question.text)) - set(ORDER)
    values = {value for row in found.rows() for value in row if isinstance(value, str)}
    assert named & set(found.columns)
    assert named <= set(found.columns) | values


def test_the_agent_that_slipped_comes_first_with_its_alert(asked: Warehouse) -> None:
    first = answer(asked, 1).row(0, named=True)

    assert (first["agent_id"], first["alert"]) == (SHOP, f"{SHOP}: mean Φ fell from 87.5 to 30.0")
    assert first["change_7d"] == pytest.approx((3 * 87.5 + 4 * 30) / 7 - 87.5)


def test_all_of_the_worst_answers_carry_the_missing_filter(asked: Warehouse) -> None:
    found = answer(asked, 2).filter(code="missing_filter").row(0, named=True)

    assert (found["answers"], found["share_of_worst"], found["share_of_all"]) == (24, 1.0, 1.0)


def test_shares_of_reasons_add_up_to_all_rows(asked: Warehouse) -> None:
    found = answer(asked, 3)

    assert found.group_by("agent_id").agg(pl.col("share").sum().round(9))["share"].to_list() == [1.0, 1.0]
    assert found.filter(agent_id=HR, reason="scored")["share"].item() == pytest.approx(0.75)


def test_cost_is_divided_by_scored_rows_with_a_price(asked: Warehouse) -> None:
    small = answer(asked, 4).filter(model="small").row(0, named=True)

    assert (small["answers"], small["priced"]) == (13 * 4, 13 * 3)
    assert (small["cost_per_scored"], small["tokens_per_answer"]) == (pytest.approx(0.01), 1200.0)


def test_silent_days_tell_a_silent_agent_from_a_refused_day(asked: Warehouse) -> None:
    found = answer(asked, 5).select("agent_id", pl.col("dt").dt.day(), "is_published").rows()

    assert found == [(HR, 6, False), (HR, 8, True), (HR, 9, True), (SHOP, 6, False)]


def test_changes_are_told_by_what_moved_them(asked: Warehouse) -> None:
    assert answer(asked, 6).rows() == [("backfill-1", '["rules"]', SHOP, 2, 10.0, 2, 0)]


def test_stages_of_an_agent_are_told_apart(asked: Warehouse) -> None:
    found = answer(asked, 7).filter(agent_id=SHOP)

    assert {row["stage"]: row["severe"] > 0 for row in found.to_dicts()} == {"enrichment": False, "generation": True}


def test_a_new_version_stands_beside_the_one_before(asked: Warehouse) -> None:
    (only,) = answer(asked, 8).to_dicts()

    assert (only["agent_version"], only["previous_version"], only["mean_phi_change"]) == ("v6", "v5", pytest.approx(30 - 87.5))
    assert (only["scored"], only["scored_before"]) == (6 * (16 - SLIP), 6 * (SLIP - 1))


def test_thumbs_fall_with_the_band(asked: Warehouse) -> None:
    found = answer(asked, 9)

    assert found["band"].to_list()[0] == "excellent"
    assert found.filter(band="poor")["thumbs_up"].item() == 0.0


def test_a_refused_day_says_why_and_that_it_is_still_missing(asked: Warehouse) -> None:
    (only,) = answer(asked, 10).to_dicts()

    assert only["dt"].day == FIRST.day + 5
    assert (only["first_failure"], only["published_later"]) == ("people-helper: coverage is 0.5, below 0.95", False)
