"""Score days of the query log: read, check, extract, judge, score, audit, publish."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from stef_core.catalogue import Catalogue
from stef_core.errors import GateError, InputError, RuleError, StefError, TransientError
from stef_core.frames import compact_json, records_of
from stef_core.rules import Rules
from stef_core.trailing import Room
from tasks.artifacts import show_day, show_gates, show_progress, start_progress
from tasks.batching import batch_questions, batch_verdicts, check_batching, check_endpoint, with_batches
from tasks.catch_up import find_days
from tasks.data_docs import keep_data_docs
from tasks.events import day_ended, rows_judged
from tasks.extract import Extracted, extract_batch, learn_day
from tasks.gates import GateResult, gate_input, gate_output, refuse
from tasks.judge import Judged, judge_batch
from tasks.log_lines import place_lines, placed_lines
from tasks.meter import Meter, results
from tasks.models import check_settings, run_model, run_usage
from tasks.passing import as_is
from tasks.progress import DayEnded, DaysFound, DayStarted, RowsDone, tell
from tasks.publish import (
    day_claim,
    end_run,
    input_facts,
    prepare,
    publish_day,
    read_window,
    record_run,
    share_answers,
    stage_day,
    start_run,
)
from tasks.query_log import Partition, read_day
from tasks.score import aggregate_day, score_day, unknown_applications
from tasks.secrets import with_secret
from tasks.settings import Settings, application_rules, load_settings

logger = logging.getLogger(__name__)

# worst first: which error stands for a run whose days failed in several ways
ORDER = (RuleError, TransientError, InputError, GateError)


# some batches at once, so that the last answers of one do not leave the endpoint idle; the run's one model keeps the limits
RUNNER = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner[Any](max_workers=4))


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
        kind: What the run is recorded as: ``score`` or ``demo``.

    Returns:
        The row of ``scoring_runs`` of each day.

    Raises:
        RuleError: Rules or settings are wrong; nothing was written.
        StefError: A day failed. The others were scored all the same; the message names each day that failed.
    """
    flags = {"logs": logs, "warehouse": warehouse, "rules": rules, "judge": judge, "model": model, "coverage_min": coverage_min}
    settings = with_secret(load_settings(flags | {"batch": batch}))
    days = asked_days(date, to, settings, day_before(delay_days), missing=missing)
    logs_of(settings)
    check_settings(settings)
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
    runs = []
    with run_model(settings), placed_lines():
        if batched:
            check_endpoint(as_is(settings))
        for number, day in enumerate(days):
            try:
                with day_claim(settings, day):
                    runs.append(score_one_day(day, settings, applications, kind, progress, (number, len(days))))
            except StefError as error:
                failed[day] = error
            show_progress(progress, (number + 1) / len(days))
    raise_failures(failed, len(days))
    return runs


def score_one_day(
    day: dt.date, settings: Settings, rules: Mapping[str, Rules], kind: str, progress: UUID, place: tuple[int, int]
) -> dict[str, Any]:
    """Score and publish one day; whatever happens is recorded in ``scoring_runs``.

    Args:
        day: UTC day.
        settings: Settings of the run.
        rules: Rules by `app_id`.
        kind: What the run is recorded as.
        progress: Artifact that shows how far the run is.
        place: Which day of how many this is, from 0.

    Returns:
        Its row of ``scoring_runs``.

    Raises:
        StefError: The day could not be read, scored or published; what was published before is as it was.
    """
    run = start_run(settings, rules, day, kind)
    place_lines(run)
    gates: list[GateResult] = []

    def show(share: float) -> None:
        show_progress(progress, (place[0] + share) / place[1])

    try:
        partition = read_day(logs_of(settings), day)
        run |= input_facts(partition, unknown_applications(partition.frame, rules))
        tell(DayStarted(day=day, rows=partition.frame.height))
        gates += gate_input(as_is(partition))
        run["gates"] = compact_json([gate.to_json() for gate in gates])
        refuse(gates, partition.nulls)

        window = read_window(as_is(settings), day)
        batches = []
        if check_batching(settings):
            batches.append(batch_questions(as_is(records_of(partition.frame)), as_is(rules), as_is(settings), day))
        extracted = extract_rows(partition, rules, settings, lambda share: show(0.4 * share))
        known = learn_day(as_is(extracted), as_is(window["log_catalogue"]), day)
        if check_batching(settings):
            batches.append(batch_verdicts(as_is(extracted), as_is(known.catalogue), as_is(settings), day))
        judged = judge_rows(extracted, known.catalogue, settings, day, run["run_id"], lambda share: show(0.4 + 0.4 * share))
        scored = score_day(as_is(partition), as_is(judged), run["run_id"], run["started_at"])
        run |= with_batches(scored.facts, batches)
        run["notes"] = compact_json([*json.loads(run["notes"]), *(note for b in batches for note in b.notes), *scored.notes])
        tables = {"query_scores": scored.scores, "query_findings": scored.findings, "log_catalogue": known.rows}
        staged = stage_day(as_is(settings), run["run_id"], day, as_is(tables))
        figures = aggregate_day(as_is(staged), as_is(window), day, run["run_id"])
        staged |= stage_day(as_is(settings), run["run_id"], day, as_is(figures))
        gates += gate_output(
            as_is(partition.frame), as_is(staged), as_is(window), day, settings.coverage_min, room_of(settings)
        )
        run["gates"] = compact_json([gate.to_json() for gate in gates])
        refuse(gates, scored.notes, away=scored.away)

        run = with_data_docs(end_run(run, "published"), gates, settings)
        publish_day(as_is(settings), as_is(run), day)
    except Exception as error:
        outcome = "gate_failed" if isinstance(error, GateError) else "failed"
        run = with_data_docs(end_run(run, outcome, str(error) or type(error).__name__), gates, settings)
        tell(DayEnded(day=day, run=run))
        record_failure(settings, run)
        share(settings, day)
        show_gates(run)
        day_ended(run)
        raise
    share(settings, day)
    show_day(day, run, staged["agent_daily"], staged["agent_alerts"])
    day_ended(run, staged["agent_alerts"])
    tell(DayEnded(day=day, run=run))
    logger.info("scored %d of %d rows of %s", run["rows_scored"], run["rows_in"], day)
    return run


def extract_rows(
    partition: Partition, rules: Mapping[str, Rules], settings: Settings, show: Callable[[float], None]
) -> list[Extracted]:
    """Fan out a day's rows in batches, and read both sides of each.

    Args:
        partition: The day's log.
        rules: Rules by `app_id`.
        settings: Settings of the run.
        show: Told which share of the rows is done, 0-1.
    """
    records, size = records_of(partition.frame), settings.batch_size
    batches = [records[start : start + size] for start in range(0, len(records), size)]
    futures = [
        extract_batch.submit(as_is(batch), as_is(rules), as_is(settings), f"{partition.day}-{number}")
        for number, batch in enumerate(batches)
    ]
    meter = Meter("read", len(records), run_usage(settings))
    done = []
    for batch in results(futures, meter):
        done.append(batch)
        meter.add(len(batch.read))
        show(len(done) / len(futures))
    return done


def judge_rows(
    batches: Sequence[Extracted],
    catalogue: Catalogue,
    settings: Settings,
    day: dt.date,
    run_id: str,
    show: Callable[[float], None],
) -> list[Judged]:
    """Align and judge the batches of a day.

    Args:
        batches: The day's rows, read.
        catalogue: What the log shows of tables, columns and joins.
        settings: Settings of the run.
        day: The partition.
        run_id: The run that scores it.
        show: Told which share of the batches is done, 0-1.
    """
    futures = [
        judge_batch.submit(as_is(batch), as_is(catalogue), as_is(settings), day, run_id, f"{day}-{number}")
        for number, batch in enumerate(batches)
    ]
    meter = Meter("judged", sum(len(batch.read) for batch in batches), run_usage(settings))
    done = []
    for judged in results(futures, meter):
        done.append(judged)
        tell(RowsDone(day=day, rows=judged.judged.height))
        meter.add(judged.judged.height)
        show(len(done) / len(futures))
    rows_judged(done, settings, day, run_id)
    return done


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


def with_data_docs(run: dict[str, Any], gates: Sequence[GateResult], settings: Settings) -> dict[str, Any]:
    """The run row with the path of its Data Docs, where they are kept and a gate has been asked."""
    if settings.data_docs is None or not gates:
        return run
    return run | {"data_docs": keep_data_docs(settings.data_docs, as_is(run), as_is(gates))}


def room_of(settings: Settings) -> Room:
    """How far a day may be from the usual before it is warned of."""
    return Room(volume=settings.volume_tolerance, psi=settings.psi_max)


def record_failure(settings: Settings, run: Mapping[str, Any]) -> None:
    """Record a run that published nothing; a warehouse that cannot be reached must not hide why the day failed."""
    try:
        record_run(as_is(settings), as_is(dict(run)))
    except TransientError:
        logger.warning("run %s of %s could not be recorded", run["run_id"], run["dt"])


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
