"""The demo week is real enough to score, the same each time, and true to what it says about itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlglot

from stef_core.drift import find_alerts
from stef_core.evaluate import evaluate_many
from stef_core.frames import AGENT_ALERTS, QUERY_LOG, records_of
from stef_core.rules import load_rules_dir
from tasks.demo_data import ALL_FAULTS, SLIP_FAULTS, DemoWeek, demo_frames, fill, load_applications, write_demo_week

TEMPLATES = [
    pytest.param(app_id, template, id=f"{app_id}: {template['ask'][0]}")
    for app_id, application in load_applications().items()
    for template in application["questions"]
]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> DemoWeek:
    return write_demo_week(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def log(week: DemoWeek) -> pl.DataFrame:
    return pl.read_parquet(week.logs / "**/*.parquet", hive_partitioning=True, try_parse_hive_dates=True)


def test_a_week_of_three_agents_is_written_by_day(week: DemoWeek, log: pl.DataFrame) -> None:
    partitions = sorted(p.parent.name for p in week.logs.glob("*/*.parquet"))

    assert partitions == [f"dt=2026-03-0{n}" for n in range(2, 9)]
    assert log.height >= 700
    assert set(log["agent_id"]) == set(week.agents)
    assert {n: t for n, t in log.schema.items() if n in QUERY_LOG} == dict(QUERY_LOG)
    assert log.filter(pl.col("asked_at").dt.date() != pl.col("dt")).is_empty()
    assert log.group_by("dt", "query_id").len().filter(pl.col("len") > 1).is_empty()


def test_the_week_is_the_same_each_time_it_is_written(week: DemoWeek, log: pl.DataFrame, tmp_path: Path) -> None:
    again = write_demo_week(tmp_path)

    rewritten = pl.read_parquet(again.logs / "**/*.parquet", hive_partitioning=True, try_parse_hive_dates=True)

    assert rewritten.equals(log)
    assert pl.read_parquet(again.truth).equals(pl.read_parquet(week.truth))


def test_there_are_sixty_templates_and_they_cover_every_fault() -> None:
    faults = {fault for param in TEMPLATES for fault in param.values[1]["faults"]}  # type: ignore[index]

    assert len(TEMPLATES) >= 60
    assert faults == set(ALL_FAULTS)


@pytest.mark.parametrize(("app_id", "template"), TEMPLATES)
def test_every_answer_of_a_template_parses_and_every_fault_changes_it(app_id: str, template: dict[str, Any]) -> None:
    application = load_applications()[app_id]

    right = fill(template, application, random.Random(7))
    wrong = {fault: fill(template, application, random.Random(7), fault) for fault in template["faults"]}

    assert len(wrong) >= 2
    for old, *_ in template["faults"].values():
        assert template["sql"].count(old) == 1
    trees = {sqlglot.parse_one(a.sql or "", dialect=a.dialect).sql() for a in (right, *wrong.values())}
    assert len(trees) == 1 + len(wrong)
    assert {a.question for a in wrong.values()} == {right.question}


def test_only_the_few_rows_meant_to_be_unusual_do_not_parse(log: pl.DataFrame, week: DemoWeek) -> None:
    truth = pl.read_parquet(week.truth)
    rows = log.join(truth, on=["dt", "query_id"], validate="1:1")
    unusual = pl.col("generated_sql").is_null() | (pl.col("fault") == "prose_refusal").fill_null(False)

    plain = rows.filter(~(unusual | pl.col("generated_sql").str.starts_with("```")))

    assert rows.filter(unusual)["right"].sum() == 0
    assert 0 < rows.height - plain.height < 50
    for sql, dialect in plain.select("generated_sql", "dialect").iter_rows():
        statements = [s for s in sqlglot.parse(sql, dialect=dialect) if isinstance(s, sqlglot.exp.Query)]
        assert len(statements) == 1


def test_some_question_is_asked_twice_and_some_sql_comes_in_a_fence(log: pl.DataFrame) -> None:
    repeats = log.filter(pl.col("generated_sql").is_not_null()).group_by("dt", "user_question", "generated_sql").len()

    assert repeats.filter(pl.col("len") > 1).height >= 21
    assert log["generated_sql"].str.starts_with("```sql").sum() > 0


def test_one_agent_never_reformulates_and_the_others_sometimes_mislead_themselves(log: pl.DataFrame) -> None:
    by_agent = log.group_by("agent_id").agg(pl.col("enriched_question").null_count().alias("absent"), pl.len())
    absent = dict(by_agent.select("agent_id", pl.col("absent") / pl.col("len")).iter_rows())

    assert absent == {"shop-analyst": 1.0, "people-helper": 0.0, "fleet-bot": 0.0}


def test_the_shop_agent_slips_with_its_new_version_on_the_fifth_day(week: DemoWeek) -> None:
    log, truth = demo_frames()
    shop = log.join(truth, on="query_id", validate="1:1").filter(pl.col("agent_id") == "shop-analyst")
    share = dict(shop.group_by("agent_version").agg(pl.col("right").mean()).iter_rows())
    new = shop.filter((pl.col("agent_version") == "v3") & ~pl.col("right"))

    assert shop.filter(pl.col("agent_version") == "v3")["dt"].min() == week.first.replace(day=6)
    assert share["v2"] == pytest.approx(0.87, abs=0.03)
    assert share["v3"] == pytest.approx(0.52, abs=0.05)
    assert new["fault"].is_in(SLIP_FAULTS).mean() > 0.6  # type: ignore[operator]


def test_the_rules_are_valid_and_name_their_applications(week: DemoWeek, log: pl.DataFrame) -> None:
    rules = load_rules_dir(week.rules)

    assert set(log["app_id"]) <= set(rules)
    assert all(rules[app].benign_filters for app in ("shop", "hr", "fleet"))


def test_scored_by_the_built_in_judge_the_slip_alerts_once_and_no_other_agent_does(week: DemoWeek, log: pl.DataFrame) -> None:
    evaluations = list(evaluate_many(records_of(log), load_rules_dir(week.rules)))

    scores = log.with_columns(
        pl.Series("status", [e.status for e in evaluations]),
        pl.Series("phi", [e.score and e.score.phi for e in evaluations], dtype=pl.Float64),
    )
    alerts = AGENT_ALERTS.to_frame()
    for day in sorted(set(log["dt"])):
        alerts = pl.concat([alerts, find_alerts(scores, day, recent_alerts=alerts)], how="diagonal")
    versions = pl.col("agent_version", "previous_version", "kind")

    assert (scores["status"] == "scored").mean() >= 0.95  # type: ignore[operator]
    assert alerts.select("agent_id", versions).rows() == [("shop-analyst", "v3", "v2", "version_worse")]
    assert alerts["dt"].item() in (week.first.replace(day=6), week.first.replace(day=7))
    assert alerts["change"].item() < -10
