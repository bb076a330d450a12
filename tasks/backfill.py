"""What a backfill reads, plans and writes of a day; the thinking is in `stef_core.backfill`."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.backfill import (
    ROWS_AT_ONCE,
    Determinants,
    RulesThen,
    merge_findings,
    merge_scores,
    moved_by_agent,
    plan_day,
    score_changes,
)
from stef_core.bearing import input_hash
from stef_core.catalogue import SHOWN, Catalogue, catalogue_of, log_catalogue, shown_facts
from stef_core.evaluate import rules_picker
from stef_core.extract.sql import extract_sql
from stef_core.frames import distinct_lines, records_of
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from stef_core.version import CORE_VERSION
from tasks.estimates import estimate_calls
from tasks.models import open_stages
from tasks.publish import open_warehouse
from tasks.query_log import LOG, LogDay, Partition, SpooledPartition
from tasks.score import Scored
from tasks.settings import Settings
from tasks.spool import batch_rows, open_spool, sweep, work_of

READ = ("query_scores", "query_findings", "log_catalogue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A day before it is scored anew: what stands, what is to be done, and what the log shows today."""

    published: dict[str, pl.DataFrame]  # READ
    plan: pl.DataFrame  # stef_core.backfill.PLAN
    catalogue: Catalogue
    catalogue_rows: pl.DataFrame
    fingerprints: dict[str, str | None]
    determinants: Determinants
    is_stale: bool  # the day would be written otherwise today, even where no row is scored anew

    @property
    def redone(self) -> pl.DataFrame:
        """``query_id`` of the rows to be scored anew."""
        return self.plan.filter(pl.col("changed").list.len() > 0).select("query_id")

    @property
    def counts(self) -> dict[str, int]:
        """How many rows each cause touches; a row may have several."""
        found = self.plan.explode("changed").drop_nulls("changed")["changed"].value_counts(sort=True, name="rows")
        return dict(found.sort("rows", "changed", descending=[True, False]).iter_rows())


def determinants_of(settings: Settings) -> Determinants:
    """Judge, model, prompts and code that a run with these settings scores with."""
    with open_stages(settings) as (reader, judge):
        prompts = distinct_lines(v for v in (reader.prompt_version, judge.prompt_version) if v)
        return Determinants(
            judge=judge.name, model=judge.model, prompt_version="+".join(prompts) or None, core_version=CORE_VERSION
        )


def plan_partition(
    settings: Settings, partition: Partition, rules: Mapping[str, Rules], window: Mapping[str, pl.DataFrame]
) -> Planned:
    """Work out what of a day has to be scored anew; reads the warehouse, asks nobody.

    Args:
        settings: Say who judges.
        partition: The day as the log has it now.
        rules: Rules of today by `app_id`.
        window: Published rows of the days before, as `tasks.publish.read_window` gives them.
    """
    day = partition.day
    with open_warehouse(settings, read_only=True) as store:
        published = {name: store.read(name, day=day) for name in READ}
        history = store.read("rules_history")
    documents = dict(history.select("content_hash", "document").iter_rows())
    then, now = RulesThen(documents), determinants_of(settings)
    rows = _shown(partition, published, rules, now, documents)
    catalogue = catalogue_of(pl.concat([window["log_catalogue"].select(rows.columns), rows]))
    applications = partition.frame["app_id"].fill_null("default").unique().sort().to_list()
    fingerprints = {app: catalogue.fingerprint_of(app) for app in applications}
    plan = plan_day(partition.frame, published["query_scores"], rules, now, then, fingerprints)
    return Planned(
        published=published,
        plan=plan,
        catalogue=catalogue,
        catalogue_rows=rows,
        fingerprints=fingerprints,
        determinants=now,
        is_stale=_is_stale(plan, published["query_scores"], rules, now),
    )


def _is_stale(plan: pl.DataFrame, scores: pl.DataFrame, rules: Mapping[str, Rules], now: Determinants) -> bool:
    if plan.height != scores.height or plan.filter(pl.col("changed").list.len() > 0).height:
        return True
    used = {app: rules.get(app, rules["default"]).content_hash for app in scores["app_id"].unique()}
    version = pl.col("app_id").replace_strict(used, default=None, return_dtype=pl.String)
    same = [
        pl.col("core_version").eq_missing(now.core_version),
        pl.col("prompt_version").eq_missing(pl.lit(now.prompt_version, dtype=pl.String)),
        pl.col("rules_version").eq_missing(version),
    ]
    return scores.filter(~pl.all_horizontal(same)).height > 0


def _redacts(document: str | None) -> list[Any] | None:
    return None if document is None else list(Rules.model_validate_json(document).redact)


def _shown(
    partition: Partition,
    published: Mapping[str, pl.DataFrame],
    rules: Mapping[str, Rules],
    now: Determinants,
    documents: Mapping[str, str],
) -> pl.DataFrame:
    """What the day shows of tables and columns: as published where rows, code and redaction are the same, else mined anew."""
    scores = published["query_scores"]
    same_code = scores.filter(pl.col("core_version").ne_missing(now.core_version)).is_empty()
    same_code = same_code and all(
        _redacts(documents.get(version)) == list(rules.get(app, rules["default"]).redact)
        for app, version in scores.select("app_id", "rules_version").unique().iter_rows()
    )
    if same_code and _same_rows(partition, scores):
        return published["log_catalogue"]
    pick = rules_picker(rules)
    shown = [
        shown_facts(((r, extract_sql(r.generated_sql, r.dialect or pick(r).dialect)) for r in records), pick)
        for records in _records(partition)
    ]
    return log_catalogue([pl.concat([SHOWN.to_frame(), *shown]).lazy()], partition.day)


def _same_rows(partition: Partition, scores: pl.DataFrame) -> bool:
    """Whether the log has the rows that were scored, as they were."""
    stored = scores.select("query_id", "input_hash")
    if stored.height != partition.rows:
        return False
    hashes = [input_hash(record) for records in _records(partition) for record in records]
    here = pl.DataFrame({"query_id": partition.frame["query_id"], "input_hash": pl.Series(hashes, dtype=pl.String)})
    return here.join(stored, on=["query_id", "input_hash"], how="anti").is_empty()


def _records(partition: Partition) -> Iterator[list[QueryRecord]]:
    # some at a time: as objects, rows take many times what they take in a frame
    return map(records_of, partition.frame.iter_slices(ROWS_AT_ONCE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A day after its backfill: its tables, and what moved."""

    tables: dict[str, pl.DataFrame]  # query_scores query_findings log_catalogue score_changes
    moved: pl.DataFrame  # one row an agent
    facts: dict[str, Any]
    notes: tuple[str, ...]
    away: bool  # an endpoint went away before all rows were judged


def merge(
    partition: Partition, planned: Planned, scored: Scored | None, rules: Mapping[str, Rules], run: Mapping[str, Any]
) -> Merged:
    """Put rows scored anew into the place of the published ones.

    Args:
        partition: The day as the log has it now.
        planned: What stood and what was to be done.
        scored: The rows scored anew; None where there were none.
        rules: Rules of today by `app_id`.
        run: The row of ``scoring_runs``.
    """
    published, run_id = planned.published, run["run_id"]
    anew = scored.scores.frame("query_id") if scored else published["query_scores"].clear()
    found = scored.findings.frame("query_id", "ordinal") if scored else published["query_findings"].clear()
    scores = merge_scores(
        partition.frame, published["query_scores"], anew, rules, planned.determinants, planned.fingerprints, run_id
    )
    if scores.height != partition.frame.height:
        raise ValueError(f"{partition.frame.height} rows went in and {scores.height} came out of {partition.day}")
    changes = score_changes(published["query_scores"], scores, planned.plan, run_id)
    scored_rows = scores.filter(pl.col("status") == "scored").height
    causes = ", ".join(f"{name} {count:,}" for name, count in planned.counts.items())
    told = f"{planned.redone.height:,} of {scores.height:,} rows scored anew ({causes or 'none'}); {changes.height:,} moved"
    facts = scored.facts if scored else _unasked(planned.determinants)
    return Merged(
        tables={
            "query_scores": scores,
            "query_findings": merge_findings(scores, published["query_findings"], found, planned.redone),
            "log_catalogue": planned.catalogue_rows,
            "score_changes": changes,
        },
        moved=moved_by_agent(changes, published["query_scores"], scores),
        facts=facts | {"rows_scored": scored_rows, "rows_unscored": scores.height - scored_rows},
        notes=(told, *(scored.notes if scored else ())),
        away=bool(scored and scored.away),
    )


def _unasked(now: Determinants) -> dict[str, Any]:
    return {"judge": now.judge, "model": now.model, "prompt_version": now.prompt_version}


def only(partition: Partition, rows: pl.DataFrame) -> Partition:
    """A partition with some of its rows, in its order."""
    frame = partition.frame.join(rows, on="query_id", how="semi", maintain_order="left")
    return replace(partition, frame=frame, rows=frame.height)


def spool_rows(settings: Settings, rules: Mapping[str, Rules], rows: Partition) -> SpooledPartition:
    """Put some rows of a day into a spool, under the name of this work."""
    sweep(settings.spool)
    arriving = open_spool(settings.spool, rows.day)
    size = batch_rows(settings.batch_size, rows.rows)
    for number, frame in enumerate(rows.frame.iter_slices(size)):
        arriving.write(LOG, number, frame)
    asked = hashlib.sha256("\n".join(rows.frame["query_id"]).encode()).hexdigest()
    spool = arriving.become(arriving.folder.with_name(work_of(settings, rules, rows.day, rows.files, f"backfill {asked}")))
    facts = {each.name: getattr(rows, each.name) for each in fields(LogDay)}
    return SpooledPartition(**facts, spool=spool, batches=math.ceil(rows.rows / size))


def estimate(settings: Settings, rows: Partition, planned: Planned, rules: Mapping[str, Rules]) -> dict[str, Any]:
    """What scoring some rows would take at an endpoint, without asking it.

    Returns:
        `calls` that are not in the answer cache, one a verdict where its reading is not known yet; `cached`; `tokens_in` and
        `tokens_out`, estimated by length and as 300 an answer; `cost` by the price table. All 0 for the symbolic judge.
    """
    if settings.judge == "symbolic" or rows.frame.is_empty():
        return {"calls": 0, "cached": 0, "tokens_in": 0, "tokens_out": 0, "cost": 0.0}
    return estimate_calls(settings, records_of(rows.frame), rules, planned.catalogue)


@task(name="estimate", task_run_name="estimate-{rows.day}", cache_policy=NO_CACHE)
def estimate_day(settings: Settings, rows: Partition, planned: Planned, rules: Mapping[str, Rules]) -> dict[str, Any]:
    """`estimate` as a task."""
    return estimate(settings, rows, planned, rules)


@task(name="plan", task_run_name="plan-{partition.day}", cache_policy=NO_CACHE)
def plan_backfill(
    settings: Settings, partition: Partition, rules: Mapping[str, Rules], window: Mapping[str, pl.DataFrame]
) -> Planned:
    """`plan_partition` as a task."""
    return plan_partition(settings, partition, rules, window)


@task(name="merge", task_run_name="merge-{partition.day}", cache_policy=NO_CACHE)
def merge_day(
    partition: Partition, planned: Planned, scored: Scored | None, rules: Mapping[str, Rules], run: Mapping[str, Any]
) -> Merged:
    """`merge` as a task."""
    return merge(partition, planned, scored, rules, run)


@task(name="published-days", cache_policy=NO_CACHE)
def published_days(settings: Settings) -> list[dt.date]:
    """Days that are published, oldest first."""
    with open_warehouse(settings, read_only=True) as store:
        return store.days()
