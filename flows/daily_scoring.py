"""Score days of the query log: read, check, extract, judge, score, audit, publish."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from prefect import flow
from prefect.runtime import flow_run

from flows.stages import publish_staged, score_rows, with_data_docs
from stef_core.errors import GateError, InputError, RuleError, StefError, TransientError
from stef_core.frames import compact_json
from stef_core.rules import Rules
from tasks.artifacts import Board, show_day, show_gates, start_progress
from tasks.batching import check_batching, check_endpoint
from tasks.catch_up import find_days
from tasks.events import day_ended
from tasks.extract import Catalogued, learn_day
from tasks.gates import GateResult, gate_input, refuse
from tasks.log_lines import place_lines, placed_lines
from tasks.models import check_settings, run_model
from tasks.passing import as_is
from tasks.progress import DayEnded, DaysFound, DayStarted, tell
from tasks.publish import day_claim, end_run, input_facts, prepare, read_window, record_run, share_answers, start_run
from tasks.query_log import spool_day
from tasks.runners import check_cluster, task_runner, wake_workers
from tasks.score import unknown_applications
from tasks.secrets import with_secret
from tasks.settings import Settings, application_rules, load_settings
from tasks.side_by_side import side_by_side
from tasks.spool import SpooledTable, as_spool_error, is_worth_keeping

logger = logging.getLogger(__name__)

# worst first: which error stands for a run whose days failed in several ways
ORDER = (RuleError, TransientError, InputError, GateError)


RUNNER = task_runner()


@flow(name="daily-scoring", task_runner=RUNNER)
def daily_scoring(
    date: dt.date | None = None,
    to: dt.date | None = None,
    delay_days: int = 1,
    logs: str | None = None,
    warehouse: str | None = None,
    rules: str | None = None,
    judge: str | None = None,
    model: str | None = None,
    coverage_min: float | None = None,
    missing: bool = False,
    batch: bool | None = None,
    runner: str | None = None,
    address: str | None = None,
    kind: str = "score",
) -> list[dict[str, Any]]:
    """Score one or several days of the query log and publish those that pass their gates.

    Args:
        date: First UTC day; the one that `delay_days` gives when None.
        to: Last UTC day; only `date` when None.
        delay_days: Where no `date` is given, how many days the scored day lies before the day the run was scheduled for.
        logs: Root of the query log. This and the following go before environment and settings file.
        warehouse: URL of the warehouse.
        rules: Folder of rules files.
        judge: ``symbolic`` or ``openai``.
        model: Model id at the endpoint.
        coverage_min: Share of an agent's rows that must be scored, 0-1.
        missing: Score only days that are missing, failed, or whose files have changed; without `date` those of the last
            `catch_up_days` of the settings, up to `to` or yesterday.
        batch: Ask the model through the endpoint's Batch API.
        runner: ``threads`` or ``dask``; a deployment takes it from ``STEF_RUNNER`` of its jobs.
        address: Scheduler of Dask; a deployment takes it from ``STEF_ADDRESS``.
        kind: What the run is recorded as: ``score`` or ``demo``.

    Returns:
        The row of ``scoring_runs`` of each day.

    Raises:
        RuleError: Rules or settings are wrong; nothing was written.
        StefError: A day failed. The others were scored all the same; the message names each day that failed.
    """
    flags = {"logs": logs, "warehouse": warehouse, "rules": rules, "judge": judge, "model": model, "coverage_min": coverage_min}
    settings = with_secret(load_settings(flags | {"batch": batch, "runner": runner, "address": address}))
    days = asked_days(date, to, settings, day_before(delay_days), missing=missing)
    logs_of(settings)
    check_settings(settings)
    if settings.runner == "dask":
        check_cluster(settings)
    batched = check_batching(settings)
    applications = application_rules(settings)
    prepare(settings, applications)
    if missing:
        found = find_days(as_is(settings), days[0], days[-1])
        tell(DaysFound(days=found))
        days = [day for day, _ in found]
    if not days:
        return []
    progress = start_progress(f"{days[0]} to {days[-1]}")
    failed: dict[dt.date, StefError] = {}
    runs: dict[dt.date, dict[str, Any]] = {}
    board = Board(progress, len(days))

    def score(day: dt.date, wait_turn: Callable[[], None]) -> None:
        try:
            with day_claim(settings, day):
                runs[day] = score_one_day(day, settings, applications, kind, board.share_of(day), wait_turn)
        except StefError as error:
            failed[day] = error
        board.share_of(day)(1.0)

    with run_model(settings), placed_lines():
        if batched:
            check_endpoint(as_is(settings))
        wake_workers(settings)
        side_by_side(days, settings.days_at_once, score)
    raise_failures(failed, len(days))
    return [runs[day] for day in days]


def score_one_day(
    day: dt.date,
    settings: Settings,
    rules: Mapping[str, Rules],
    kind: str,
    show: Callable[[float], None],
    wait_turn: Callable[[], None],
) -> dict[str, Any]:
    """Score and publish one day; whatever happens is recorded in ``scoring_runs``.

    Args:
        day: UTC day.
        settings: Settings of the run.
        rules: Rules by `app_id`.
        kind: What the run is recorded as.
        show: Told how far the day is, 0-1.
        wait_turn: Returns when all days before are done.

    Returns:
        Its row of ``scoring_runs``.

    Raises:
        StefError: The day could not be read, scored or published; what was published before is as it was.
    """
    run = start_run(settings, rules, day, kind)
    place_lines(run)
    gates: list[GateResult] = []
    spool = None
    try:
        partition = spool_day(as_is(settings), as_is(rules), day)
        spool = partition.spool
        run |= input_facts(partition, unknown_applications(partition.lazy(), rules))
        tell(DayStarted(day=day, rows=partition.rows))
        gates += gate_input(as_is(partition))
        run["gates"] = compact_json([gate.to_json() for gate in gates])
        refuse(gates, partition.nulls)

        window: dict[str, pl.DataFrame] = {}

        def learn() -> Catalogued:
            wait_turn()  # what the log shows, and what is an alert, depends on the days before
            window.update(read_window(as_is(settings), day))
            return learn_day(partition.spool, as_is(window["log_catalogue"]), day, partition.batches)

        scored, catalogue_rows = score_rows(partition, learn, rules, settings, run, show)
        run |= scored.facts
        run["notes"] = compact_json([*json.loads(run["notes"]), *scored.notes])
        tables: dict[str, pl.DataFrame | SpooledTable]
        tables = {"query_scores": scored.scores, "query_findings": scored.findings, "log_catalogue": catalogue_rows}
        figures = publish_staged(
            partition, tables, window, gates, run, settings, spool=spool, causes=scored.notes, away=scored.away
        )
    except Exception as fault:
        error = as_spool_error(fault, spool)
        outcome = "gate_failed" if isinstance(error, GateError) else "failed"
        run = with_data_docs(end_run(run, outcome, str(error) or type(error).__name__), gates, settings)
        if spool is not None and not is_worth_keeping(error):
            spool.remove()
        tell(DayEnded(day=day, run=run))
        record_failure(settings, run)
        share(settings, day)
        show_gates(run)
        day_ended(run)
        if error is fault:
            raise
        raise error from fault
    spool.remove()
    share(settings, day)
    show_day(day, run, figures["agent_daily"], figures["agent_alerts"])
    day_ended(run, figures["agent_alerts"])
    tell(DayEnded(day=day, run=run))
    logger.info("scored %d of %d rows of %s", run["rows_scored"], run["rows_in"], day)
    return run


def asked_days(
    date: dt.date | None, to: dt.date | None, settings: Settings, newest: dt.date, *, missing: bool
) -> list[dt.date]:
    """The days that a run is about: from `date` to `to`, the newest one where neither is given.

    Raises:
        RuleError: `to` lies before `date`.
    """
    if missing and date is None:
        last = to or newest
        return days_between(last - dt.timedelta(days=settings.catch_up_days - 1), last)
    return days_between(date or newest, to)


def day_before(delay_days: int) -> dt.date:
    """The UTC day that lies so many days before the one the run was scheduled for; a run that starts late keeps its day.

    Raises:
        RuleError: `delay_days` is negative.
    """
    if delay_days < 0:
        raise RuleError(f"delay_days is {delay_days}; it counts days back from the run's own, so 0 or more")
    scheduled: dt.datetime = flow_run.scheduled_start_time
    return scheduled.astimezone(dt.UTC).date() - dt.timedelta(days=delay_days)


def days_between(first: dt.date, last: dt.date | None) -> list[dt.date]:
    """The days from `first` to `last`, both included; `first` alone when `last` is None.

    Raises:
        RuleError: `last` lies before `first`.
    """
    end = last or first
    if end < first:
        raise RuleError(f"--to {end} lies before --date {first}")
    return [first + dt.timedelta(days=n) for n in range((end - first).days + 1)]


def logs_of(settings: Settings) -> str:
    """Root of the query log.

    Raises:
        RuleError: It is not set.
    """
    if settings.logs is None:
        raise RuleError("no query log is named; set --logs, STEF_LOGS or logs in stef.toml")
    return settings.logs


def record_failure(settings: Settings, run: Mapping[str, Any]) -> None:
    """Record a run that published nothing; a warehouse that cannot be written must not hide why the day failed."""
    try:
        record_run(as_is(settings), as_is(dict(run)))
    except StefError as error:
        logger.warning("run %s of %s could not be recorded: %s", run["run_id"], run["dt"], error)


def share(settings: Settings, day: dt.date) -> None:
    """Give other machines what this one has paid for, whatever became of the day."""
    if settings.cache_shared and settings.judge == "openai":
        share_answers(as_is(settings), day)


def raise_failures(failed: Mapping[dt.date, StefError], days: int) -> None:
    """Raise one error for all days that failed, of the kind that matters most.

    Raises:
        StefError: A day failed.
    """
    if not failed:
        return
    worst = next(error for kind in (*ORDER, StefError) for error in failed.values() if isinstance(error, kind))
    if days == 1:
        raise worst
    told = "; ".join(f"{day}: {error}" for day, error in failed.items())
    raise type(worst)(f"{len(failed)} of {days} days failed: {told}") from worst
