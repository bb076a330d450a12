"""Score published days again after a change of rules, prompt, judge, model or code: only the rows that the change touches."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import polars as pl
from prefect import flow

from flows.daily_scoring import RUNNER, days_between, logs_of, raise_failures, record_failure, share
from flows.stages import publish_staged, score_rows
from stef_core.errors import GateError, RuleError, StefError
from stef_core.frames import compact_json
from stef_core.rules import Rules
from tasks.artifacts import show_changes, show_day, show_gates, show_plan, show_progress, start_progress
from tasks.backfill import Planned, estimate_day, merge_day, only, plan_backfill, published_days, spool_rows
from tasks.batching import check_batching, check_endpoint
from tasks.events import day_ended
from tasks.extract import Catalogued, keep_catalogue
from tasks.gates import GateResult, gate_input, refuse
from tasks.log_lines import place_lines, placed_lines
from tasks.models import check_settings, run_model
from tasks.passing import as_is
from tasks.progress import DayEnded, DayMoved, DayPlanned, DayStarted, tell
from tasks.publish import day_claim, end_run, input_facts, prepare, read_window, start_run
from tasks.query_log import SpooledPartition, read_day
from tasks.runners import check_cluster, wake_workers
from tasks.score import Scored, unknown_applications
from tasks.secrets import with_secret
from tasks.settings import Settings, application_rules, load_settings
from tasks.spool import as_spool_error, is_worth_keeping

logger = logging.getLogger(__name__)


@flow(name="backfill", task_runner=RUNNER)
def backfill(
    first: dt.date | None = None,
    last: dt.date | None = None,
    logs: str | None = None,
    warehouse: str | None = None,
    rules: str | None = None,
    judge: str | None = None,
    model: str | None = None,
    coverage_min: float | None = None,
    batch: bool | None = None,
    runner: str | None = None,
    address: str | None = None,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Score days again where something that determines a result has changed; rows that nothing touches are taken over.

    Args:
        first: First UTC day; the first published one when None.
        last: Last UTC day; the last published one when None.
        logs: Root of the query log. This and the following go before environment and settings file.
        warehouse: URL of the warehouse.
        rules: Folder of rules files.
        judge: ``symbolic`` or ``openai``.
        model: Model id at the endpoint.
        coverage_min: Share of an agent's rows that must be scored, 0-1.
        batch: Ask the model through the endpoint's Batch API.
        runner: ``threads`` or ``dask``; a deployment takes it from ``STEF_RUNNER`` of its jobs.
        address: Scheduler of Dask; a deployment takes it from ``STEF_ADDRESS``.
        dry_run: Say what would be done, and write nothing.

    Returns:
        A dict a day: `day`, `rows`, `redone`, `causes`, `moved` (one dict an agent) and `run` (its row of ``scoring_runs``), or
        with `dry_run` the `estimate` of calls, tokens and cost. `run` is None where nothing had to be written.

    Raises:
        RuleError: Rules or settings are wrong; nothing was written.
        StefError: A day failed. The others were done all the same; the message names each day that failed.
    """
    flags = {"logs": logs, "warehouse": warehouse, "rules": rules, "judge": judge, "model": model, "coverage_min": coverage_min}
    settings = with_secret(load_settings(flags | {"batch": batch, "runner": runner, "address": address}))
    logs_of(settings)
    check_settings(settings)
    if settings.runner == "dask":
        check_cluster(settings)
    batched = check_batching(settings) and not dry_run
    applications = application_rules(settings)
    if not dry_run:
        prepare(settings, applications)
    days = backfill_days(first, last, published_days(as_is(settings)))
    progress = start_progress(f"backfill {days[0]} to {days[-1]}", "backfill-progress")
    failed: dict[dt.date, StefError] = {}
    done: list[dict[str, Any]] = []
    with run_model(settings), placed_lines():
        if batched:
            check_endpoint(as_is(settings))
        if not dry_run:
            wake_workers(settings)
        for number, day in enumerate(days):
            try:
                earlier = any(result["run"] for result in done)
                with nullcontext() if dry_run else day_claim(settings, day):
                    done.append(backfill_one_day(day, settings, applications, dry_run=dry_run, earlier_moved=earlier))
                tell(DayMoved(day=day, result=done[-1]))
            except StefError as error:
                failed[day] = error
            show_progress(progress, (number + 1) / len(days))
    show_done = show_plan if dry_run else show_changes
    show_done(f"{days[0]} to {days[-1]}", done)
    raise_failures(failed, len(days))
    return done


def backfill_one_day(
    day: dt.date, settings: Settings, rules: Mapping[str, Rules], *, dry_run: bool, earlier_moved: bool
) -> dict[str, Any]:
    """Plan a day, score anew what the plan says, and publish the whole.

    Args:
        day: UTC day.
        settings: Settings of the run.
        rules: Rules by `app_id`.
        dry_run: Plan only.
        earlier_moved: A day before was rewritten, so this one's alerts may be others.

    Raises:
        StefError: The day could not be read, scored or published; what was published before is as it was.
    """
    run = start_run(settings, rules, day, "backfill")
    place_lines(run)
    gates: list[GateResult] = []
    spooled: SpooledPartition | None = None
    try:
        partition = read_day(logs_of(settings), day)
        run |= input_facts(partition, unknown_applications(partition.lazy(), rules))
        window = read_window(as_is(settings), day)
        planned = plan_backfill(as_is(settings), as_is(partition), as_is(rules), as_is(window))
        rows = only(partition, planned.redone)
        tell(DayPlanned(day=day, rows=partition.rows, redone=rows.rows, causes=planned.counts))
        result = {"day": day, "rows": partition.rows, "redone": rows.rows, "causes": planned.counts}
        if dry_run:
            return result | {"estimate": estimate_day(as_is(settings), as_is(rows), as_is(planned), as_is(rules)), "run": None}
        if not planned.is_stale and not earlier_moved:
            return result | {"moved": [], "run": None}
        tell(DayStarted(day=day, rows=rows.rows))
        gates += gate_input(as_is(partition))
        run["gates"] = compact_json([gate.to_json() for gate in gates])
        refuse(gates, partition.nulls)
        scored = None
        if rows.rows:
            spooled = spool_rows(settings, rules, rows)
            scored = score_planned(spooled, planned, window, rules, settings, run)
        merged = merge_day(as_is(partition), as_is(planned), as_is(scored), as_is(rules), as_is(run))
        run |= merged.facts
        run["notes"] = compact_json([*json.loads(run["notes"]), *merged.notes])
        causes, away = merged.notes[1:], merged.away
        figures = publish_staged(partition, merged.tables, window, gates, run, settings, spool=None, causes=causes, away=away)
    except Exception as fault:
        error = as_spool_error(fault, None if spooled is None else spooled.spool)
        run |= end_run(run, "gate_failed" if isinstance(error, GateError) else "failed", str(error) or type(error).__name__)
        if spooled is not None and not is_worth_keeping(error):
            spooled.spool.remove()
        if not dry_run:
            tell(DayEnded(day=day, run=run))
            record_failure(settings, run)
            share(settings, day)
            show_gates(run)
            day_ended(run)
        if error is fault:
            raise
        raise error from fault
    if spooled is not None:
        spooled.spool.remove()
    share(settings, day)
    show_day(day, run, figures["agent_daily"], figures["agent_alerts"])  # published already: no failure of this undoes it
    day_ended(run)
    tell(DayEnded(day=day, run=run))
    logger.info("scored %d of %d rows of %s anew", rows.rows, partition.rows, day)
    return result | {"moved": merged.moved.to_dicts(), "run": run}


def score_planned(
    rows: SpooledPartition,
    planned: Planned,
    window: Mapping[str, pl.DataFrame],
    rules: Mapping[str, Rules],
    settings: Settings,
    run: Mapping[str, Any],
) -> Scored:
    """Read, align and judge the rows of a plan."""

    def learn() -> Catalogued:
        shown = planned.catalogue_rows
        whole = pl.concat([window["log_catalogue"].select(shown.columns), shown])
        return Catalogued(rows=shown, folder=keep_catalogue(rows.spool, whole))

    scored, _ = score_rows(rows, learn, rules, settings, run, lambda _: None)
    return scored


def backfill_days(first: dt.date | None, last: dt.date | None, published: list[dt.date]) -> list[dt.date]:
    """The days of a backfill: published ones within the bounds, or where there are none the days that were asked for.

    Raises:
        RuleError: Nothing is published and no day was named, or the bounds are the wrong way round.
    """
    if not published and first is None and last is None:
        raise RuleError("nothing is published yet, so there is nothing to score again; run `stef score` first")
    start = first or (published[0] if published else last)
    end = last or (published[-1] if published else first)
    assert start is not None
    asked = days_between(start, end)
    there = set(published)
    return [day for day in asked if day in there] or asked
