"""The stages of a day that daily scoring and backfills share: fan out reading and judging, then stage, audit and publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from stef_core.frames import compact_json
from stef_core.rules import Rules
from stef_core.trailing import Room
from tasks.batches import Extracted, Judged
from tasks.batching import batch_questions, batch_verdicts, check_batching, with_batches
from tasks.data_docs import keep_data_docs
from tasks.events import rows_judged
from tasks.extract import Catalogued, extract_batch
from tasks.gates import GateResult, gate_output, refuse
from tasks.judge import judge_batch
from tasks.meter import Meter, fan_out
from tasks.models import run_usage
from tasks.passing import as_is, passing
from tasks.pool import batches_ahead, batches_under_way
from tasks.progress import RowsDone, tell
from tasks.publish import end_run, publish_day, stage_day
from tasks.query_log import Partition, SpooledPartition
from tasks.runners import place_of
from tasks.score import Scored, aggregate_day, score_day
from tasks.settings import Settings
from tasks.spool import Spool, SpooledTable


def score_rows(
    rows: SpooledPartition,
    learn: Callable[[], Catalogued],
    rules: Mapping[str, Rules],
    settings: Settings,
    run: Mapping[str, Any],
    show: Callable[[float], None],
) -> tuple[Scored, pl.DataFrame]:
    """Read, align and judge rows that are in a spool; also returns the day's rows of ``log_catalogue``.

    Args:
        rows: They, in batches.
        learn: Puts the catalogue into the spool; called when all rows are read.
        rules: Rules by `app_id`.
        settings: Settings of the run.
        run: Its row of ``scoring_runs``.
        show: Told which share of the work is done, 0-1.
    """
    day, spool, batched, reports = rows.day, rows.spool, check_batching(settings), []
    with batches_under_way(rows.rows):
        if batched:
            reports.append(batch_questions(spool, rows.batches, as_is(rules), as_is(settings), day))
        extracted = extract_rows(rows, rules, settings, lambda share: show(0.4 * share))
        known = learn()
        folder = known.folder
        if batched:
            reports.append(batch_verdicts(spool, rows.batches, folder, as_is(rules), as_is(settings), day))
        judged = judge_rows(rows, folder, rules, settings, run["run_id"], lambda share: show(0.4 + 0.4 * share))
    scored = score_day(spool, folder, as_is(extracted), as_is(judged), rows.rows, day, run["run_id"], run["started_at"])
    notes = (*(note for report in reports for note in report.notes), *scored.notes)
    return replace(scored, facts=with_batches(scored.facts, reports), notes=notes), known.rows


def extract_rows(
    rows: SpooledPartition, rules: Mapping[str, Rules], settings: Settings, show: Callable[[float], None]
) -> list[Extracted]:
    """Fan out batches, and read both sides of the rows of each.

    Args:
        rows: They, in a spool.
        rules: Rules by `app_id`.
        settings: Settings of the run.
        show: Told which share of the batches is done, 0-1.
    """
    place = place_of(settings, rows.rows)
    passed = passing(place)

    def submit(number: int) -> Any:
        name = f"{rows.day}-{number}"
        return extract_batch.submit(rows.spool, number, passed(rules), passed(settings), name, place)

    meter, done = Meter("read", rows.rows, run_usage(settings)), []
    for extracted in fan_out(submit, rows.batches, batches_ahead(settings), meter):
        done.append(extracted)
        meter.add(extracted.rows)
        show(len(done) / rows.batches)
    return done


def judge_rows(
    rows: SpooledPartition,
    catalogue: str,
    rules: Mapping[str, Rules],
    settings: Settings,
    run_id: str,
    show: Callable[[float], None],
) -> list[Judged]:
    """Fan out batches that were read, and align and judge the rows of each.

    Args:
        rows: They, in a spool.
        catalogue: Folder of the spool that holds what the log shows of tables, columns and joins.
        rules: Rules by `app_id`.
        settings: Settings of the run.
        run_id: The run that scores them.
        show: Told which share of the batches is done, 0-1.
    """
    place = place_of(settings, rows.rows)
    passed = passing(place)

    def submit(number: int) -> Any:
        name = f"{rows.day}-{number}"
        return judge_batch.submit(rows.spool, number, catalogue, passed(rules), passed(settings), rows.day, name, place)

    meter, done = Meter("judged", rows.rows, run_usage(settings)), []
    for judged in fan_out(submit, rows.batches, batches_ahead(settings), meter):
        done.append(judged)
        tell(RowsDone(day=rows.day, rows=judged.rows))
        meter.add(judged.rows)
        show(len(done) / rows.batches)
    rows_judged(done, settings, rows.day, run_id)
    return done


def publish_staged(
    log: Partition | SpooledPartition,
    tables: Mapping[str, pl.DataFrame | SpooledTable],
    window: Mapping[str, pl.DataFrame],
    gates: list[GateResult],
    run: dict[str, Any],
    settings: Settings,
    *,
    spool: Spool | None,
    causes: Sequence[str],
    away: bool,
) -> dict[str, pl.DataFrame]:
    """Stage a day, put it to the gates, and publish it.

    Args:
        log: The day's input.
        tables: Its tables, without those of its agents.
        window: What `tasks.publish.read_window` gives of the days before.
        gates: Results of the gates so far; takes those of the output gates.
        run: The row of ``scoring_runs``; takes what becomes known.
        settings: Settings of the run.
        spool: Of the day; None where all tables are in memory.
        causes: Sentences that name what is behind a gate's failure, where it is known.
        away: An endpoint went away before all rows were judged.

    Returns:
        ``agent_daily`` and ``agent_alerts``.

    Raises:
        StefError: The day is not published; what was staged stays for inspection.
    """
    day, run_id = log.day, run["run_id"]
    staged = stage_day(as_is(settings), run_id, day, as_is(tables), spool)
    figures = stage_day(as_is(settings), run_id, day, as_is(aggregate_day(as_is(staged), as_is(window), day, run_id)), None)
    everything = {**staged, **figures}
    room = Room(volume=settings.volume_tolerance, psi=settings.psi_max)
    gates += gate_output(as_is(log.lazy()), as_is(everything), as_is(window), day, settings.coverage_min, room)
    run["gates"] = compact_json([gate.to_json() for gate in gates])
    refuse(gates, causes, away=away)
    run |= with_data_docs(end_run(run, "published"), gates, settings)
    publish_day(as_is(settings), as_is(run), day, (*tables, *figures))
    return {name: table.lazy().collect() for name, table in figures.items()}


def with_data_docs(run: Mapping[str, Any], gates: Sequence[GateResult], settings: Settings) -> dict[str, Any]:
    """The run row with the path of its Data Docs, where they are kept and a gate has been asked."""
    if settings.data_docs is None or not gates:
        return dict(run)
    return {**run, "data_docs": keep_data_docs(settings.data_docs, as_is(run), as_is(gates))}
