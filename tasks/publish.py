"""Write, audit, publish: the warehouse's side of a day. It is held open no longer than each step needs."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.errors import StefError
from stef_core.frames import RULES_HISTORY, SCORING_RUNS, compact_json, frame_of
from stef_core.frames import TABLES as SCHEMAS
from stef_core.rules import Rules, rules_version
from stef_core.trailing import INPUT_COUNTS, LATEST, LENGTHS
from stef_core.version import CORE_VERSION
from tasks import warehouse
from tasks.query_log import LogDay
from tasks.retrying import is_transient
from tasks.settings import Settings
from tasks.shared_answers import push_answers
from tasks.spool import ROWS_AT_ONCE, Spool, SpooledTable

logger = logging.getLogger(__name__)

TABLES = ("query_scores", "query_findings", "agent_daily", "agent_alerts", "log_catalogue")
# of the days before, and how far back: what alerts, the catalogue and the gates read
WINDOW: dict[str, tuple[int, tuple[str, ...] | None]] = {
    "query_scores": (28, ("dt", "agent_id", "agent_version", "app_id", "query_id", "status", "reason", "phi", "p_right")),
    "query_findings": (28, ("dt", "query_id", "code")),
    "agent_alerts": (28, None),
    "agent_daily": (28, ("dt", "agent_id", "app_id", "rows", "scored", "shares")),
    "log_catalogue": (28, ("dt", "app_id", "kind", "key", "questions", "witnesses")),
}

COUNTED_DAYS = 28  # days whose inputs are counted for the gates
# the features of `stef_core.trailing.input_counts`, counted where the rows are
_LENGTH_CLASSES = " ".join(f"WHEN LENGTH(user_question) <= {bound} THEN '{bound}'" for bound in LENGTHS)
_FEATURES = {
    "application": "COALESCE(app_id, 'default')",
    "dialect": "COALESCE(dialect, '')",
    "sql": "CASE WHEN COALESCE(generated_sql, '') = '' THEN 'absent' ELSE 'present' END",
    "reformulation": "CASE WHEN COALESCE(enriched_question, '') = '' THEN 'absent' ELSE 'present' END",
    "question length": f"CASE WHEN COALESCE(user_question, '') = '' THEN '0' {_LENGTH_CLASSES} ELSE 'more' END",
}
_INPUT_COUNTS = " UNION ALL ".join(
    f"SELECT dt, '{feature}' AS feature, {value} AS value, COUNT(*) AS rows FROM query_scores "  # noqa: S608
    f"WHERE dt >= $1 AND dt <= $2 GROUP BY dt, {value}"
    for feature, value in _FEATURES.items()
)
_LATEST = (
    "SELECT dt, COUNT(*) AS rows, MAX(asked_at) AS latest FROM query_scores WHERE dt >= $1 AND dt <= $2 GROUP BY dt ORDER BY dt"
)


def open_warehouse(settings: Settings, *, read_only: bool = False, made: bool = False) -> warehouse.Warehouse:
    """The warehouse of the settings.

    Args:
        settings: Name it.
        read_only: Open for reading.
        made: This run has made or found it already.

    Raises:
        RuleError: The URL is none that works.
        BusyError: Another process held it all the time that the settings allow.
        TransientError: It was `made`, and is gone.
    """
    return warehouse.connect(settings.warehouse, read_only=read_only, wait_s=settings.warehouse_wait_s, made=made)


@contextmanager
def day_claim(settings: Settings, day: dt.date) -> Iterator[None]:
    """Hold a day, so that no other run scores it meanwhile; the hold ends with its process.

    Raises:
        BusyError: Another run holds it.
    """
    with open_warehouse(settings, made=True) as store:
        claim = store.claim(day)
    with claim:
        yield


def prepare(settings: Settings, rules: Mapping[str, Rules]) -> None:
    """Create or migrate the warehouse and note the rules, so that one that cannot be written is known before a call is paid."""
    now = dt.datetime.now(dt.UTC)
    rows = [
        {
            "app_id": app_id,
            "content_hash": its.content_hash,
            "version": its.version,
            "document": its.canonical,
            "recorded_at": now,
        }
        for app_id, its in rules.items()
    ]
    with open_warehouse(settings) as store:
        store.migrate()
        store.record_rules(frame_of(rows, RULES_HISTORY))


def start_run(settings: Settings, rules: Mapping[str, Rules], day: dt.date, kind: str) -> dict[str, Any]:
    """A new row of ``scoring_runs``, with what is known before the day is read."""
    return dict.fromkeys(SCORING_RUNS) | {
        "run_id": uuid.uuid4().hex,
        "kind": kind,
        "dt": day,
        "started_at": dt.datetime.now(dt.UTC),
        "logs": settings.logs,
        "rules_version": rules_version(dict(rules)),
        "judge": settings.judge,
        "model": settings.model,
        "core_version": CORE_VERSION,
        "files": "[]",
        "gates": "[]",
        "notes": "[]",
        **dict.fromkeys(("rows_in", "rows_scored", "rows_unscored", "duplicates", "out_of_day"), 0),
        **dict.fromkeys(("llm_calls", "cache_hits", "tokens_in", "tokens_out"), 0),
        "cost": 0.0,
    }


def input_facts(partition: LogDay, notes: list[str]) -> dict[str, Any]:
    """What a run row tells of its input."""
    reported = [*partition.notes, *notes]
    if partition.repeats:
        reported.append(f"repeated query_ids, the first row of each kept: {', '.join(partition.duplicates[:10])}")
    if partition.out_of_day:
        reported.append(f"rows asked outside {partition.day}, kept: {partition.out_of_day}")
    return {
        "files": compact_json(list(partition.files)),
        "rows_in": partition.rows,
        "duplicates": partition.repeats,
        "out_of_day": partition.out_of_day,
        "notes": compact_json(reported),
    }


def end_run(run: Mapping[str, Any], outcome: str, message: str | None = None) -> dict[str, Any]:
    """The run row with how and when it ended."""
    return {**run, "outcome": outcome, "message": message, "ended_at": dt.datetime.now(dt.UTC)}


# of a staged row what neither gates nor aggregates look at; it stays in the warehouse
UNREAD: dict[str, tuple[str, ...]] = {
    "query_scores": (
        *("question_spec", "enriched_spec", "sql_spec", "alignment", "verdict_reasons", "verdict_basis", "bearing", "extra"),
    ),
}


class Table(Protocol):
    """Rows of a table, whether in memory or not."""

    def frames(self) -> Iterator[pl.DataFrame]:
        """Its rows, some at a time."""

    def lazy(self) -> pl.LazyFrame:
        """Its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTable:
    """Rows of one table as the warehouse gave them back, in a spool; columns of `UNREAD` are null."""

    spool: Spool
    table: str
    batches: int

    def frames(self) -> Iterator[pl.DataFrame]:
        """Its rows, `ROWS_AT_ONCE` at a time."""
        for part in self.spool.parts(self.table, self.batches):
            yield pl.read_parquet(part)

    def lazy(self) -> pl.LazyFrame:
        """Its rows."""
        return self.spool.scan(self.table, SCHEMAS[self.table], self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTable:
    """Rows of one table in memory."""

    frame: pl.DataFrame

    def frames(self) -> Iterator[pl.DataFrame]:
        """Its rows."""
        yield self.frame

    def lazy(self) -> pl.LazyFrame:
        """Its rows."""
        return self.frame.lazy()


@task(
    name="stage",
    task_run_name="stage-{day}",
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def stage_day(
    settings: Settings, run_id: str, day: dt.date, tables: Mapping[str, pl.DataFrame | SpooledTable], spool: Spool | None
) -> dict[str, Table]:
    """Write tables of a day to staging; returns the staged rows as the warehouse gives them back, in folder ``staged``.

    Args:
        settings: Name the warehouse.
        run_id: The run.
        day: The partition.
        tables: By name.
        spool: Of the day; None where all tables are in memory.
    """
    found: dict[str, Table] = {}
    with open_warehouse(settings, made=True) as store:
        store.stage(run_id, day, tables)
        for name, rows in tables.items():
            if isinstance(rows, pl.DataFrame):
                found[name] = SmallTable(frame=store.staged(name, run_id))
                continue
            assert spool is not None
            into = spool.within(f"staged-{name}")
            into.remove()  # of a try before
            batches = 0
            for frame in store.staged_parts(name, run_id, without=UNREAD.get(name, ()), rows=ROWS_AT_ONCE):
                into.write(name, batches, frame)
                batches += 1
            found[name] = StagedTable(spool=into, table=name, batches=batches)
    return found


@task(name="window", task_run_name="window-{day}", cache_policy=NO_CACHE)
def read_window(settings: Settings, day: dt.date) -> dict[str, pl.DataFrame]:
    """Published rows of the days before, as far back as alerts, the catalogue and the gates look.

    Beside the tables of `WINDOW`: ``input_counts`` and ``latest``, of `stef_core.trailing.INPUT_COUNTS` and ``LATEST``.
    """
    until = day - dt.timedelta(days=1)
    counted = (day - dt.timedelta(days=COUNTED_DAYS), until)
    with open_warehouse(settings, read_only=True, made=True) as store:
        tables = {
            table: store.read(table, since=day - dt.timedelta(days=days), until=until, columns=columns)
            for table, (days, columns) in WINDOW.items()
        }
        counts, latest = store.query(_INPUT_COUNTS, counted), store.query(_LATEST, counted)
    return tables | {
        "input_counts": counts.cast(INPUT_COUNTS).sort("dt", "feature", "value"),
        "latest": latest.cast(LATEST),
    }


@task(
    name="publish",
    task_run_name="publish-{day}",
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def publish_day(settings: Settings, run: Mapping[str, Any], day: dt.date, tables: Sequence[str] = TABLES) -> None:
    """Swap the staged day in and record its run, in one transaction."""
    with open_warehouse(settings, made=True) as store:
        store.publish(run["run_id"], day, tables, run=dict(run))


@task(name="record-run", cache_policy=NO_CACHE)
def record_run(settings: Settings, run: Mapping[str, Any]) -> None:
    """Record a run that published nothing; what it staged stays for inspection."""
    with open_warehouse(settings, made=True) as store:
        store.record_run(dict(run))


@task(name="share-answers", task_run_name="share-answers-{day}", cache_policy=NO_CACHE)
def share_answers(settings: Settings, day: dt.date) -> int:
    """Give the warehouse the answers that it was not given yet; where that fails, those of a later day take them along.

    Returns:
        How many it was given.
    """
    try:
        given = push_answers(settings)
    except StefError as error:
        logger.warning("answers paid for on %s are not shared yet: %s", day, error)
        return 0
    logger.info("shared %d answers", given)
    return given
