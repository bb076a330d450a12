"""Join a day's batches into its tables, and say what of it fell against the days before."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.aggregates import agent_daily
from stef_core.drift import find_alerts
from stef_core.errors import TransientError
from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, QUERY_SCORES, distinct_lines
from stef_core.rows import UNANSWERED
from stef_core.rules import Rules
from tasks.batches import FINDINGS, SCORES, Extracted, Judged
from tasks.publish import Table
from tasks.spool import Spool, SpooledTable

BUDGET = frozenset({"budget_exhausted"})
DEFAULT_RULES_USED = "applications without rules of their own, scored by the default rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A day's rows of ``query_scores`` and ``query_findings``, and what the run row tells of them."""

    scores: SpooledTable
    findings: SpooledTable
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()  # sentences: what kept rows from being scored, and how to go on
    away: bool = False  # an endpoint went away before all rows were judged


def score(
    spool: Spool,
    catalogue: str,
    extracted: Sequence[Extracted],
    judged: Sequence[Judged],
    rows: int,
    run_id: str,
    scored_at: dt.datetime,
) -> Scored:
    """Put the batches of a day together.

    Args:
        spool: Holds them.
        catalogue: Folder of it with ``scores`` and ``findings``.
        extracted: What reading came to, for each batch.
        judged: What judging came to, for each batch.
        rows: Of the log.
        run_id: The run that scores it.
        scored_at: When, in UTC.

    Raises:
        TransientError: Rows were to be answered by an endpoint and it answered for none of them.
        ValueError: A row of the log was lost on the way.
    """
    if sum(batch.rows for batch in judged) != rows:
        raise ValueError(f"{rows} rows went in and {sum(batch.rows for batch in judged)} came out of scoring")
    reasons: Counter[str] = sum((Counter(batch.reasons) for batch in judged), Counter())
    unanswered = sum(reasons[reason] for reason in UNANSWERED)
    if judged[0].judge != "symbolic" and unanswered and not any(batch.answered for batch in judged):
        raise TransientError(
            f"the endpoint answered for none of {unanswered} rows; see that STEF_BASE_URL is up and run the day again"
        )
    done: list[Extracted | Judged] = [*extracted, *judged]
    prompt_version = "+".join(distinct_lines(batch.prompt_version for batch in done if batch.prompt_version)) or None
    scored = sum(batch.scored for batch in judged)
    usage = [batch.usage for batch in done]
    constants = {"run_id": run_id}
    told = {"prompt_version": prompt_version, "scored_at": scored_at}
    folder = spool.within(catalogue)
    return Scored(
        scores=SpooledTable(spool=folder, kind=SCORES, batches=len(judged), schema=QUERY_SCORES, constants=constants | told),
        findings=SpooledTable(spool=folder, kind=FINDINGS, batches=len(judged), schema=QUERY_FINDINGS, constants=constants),
        facts={
            "judge": judged[0].judge,
            "model": judged[0].model,
            "prompt_version": prompt_version,
            "rows_scored": scored,
            "rows_unscored": rows - scored,
            "llm_calls": sum(u.requests for u in usage),
            "cache_hits": sum(u.cache_hits for u in usage),
            "tokens_in": sum(u.tokens_in for u in usage),
            "tokens_out": sum(u.tokens_out for u in usage),
            "cost": sum(u.cost for u in usage),
        },
        notes=(*_taken_over(extracted, judged), *_unasked(judged, reasons, BUDGET), *_unasked(judged, reasons, UNANSWERED)),
        away=unanswered > 0,
    )


def unknown_applications(log: pl.LazyFrame, rules: Mapping[str, Rules]) -> list[str]:
    """A sentence that names the applications of a log that have no rules of their own; none where all have."""
    named = log.select("app_id").unique().collect(engine="streaming")["app_id"].drop_nulls().sort()
    unknown = [app for app in named if app not in rules and app != "default"]
    return [f"{DEFAULT_RULES_USED}: {', '.join(unknown)}"] if unknown else []


def alerts_of(
    scores: pl.LazyFrame, findings: pl.LazyFrame, before: Mapping[str, pl.DataFrame], day: dt.date, run_id: str
) -> pl.DataFrame:
    """The day's rows of ``agent_alerts``.

    Args:
        scores: Staged ``query_scores`` of the day.
        findings: Staged ``query_findings`` of the day.
        before: Published ``query_scores``, ``query_findings`` and ``agent_alerts`` of the days before.
        day: The partition.
        run_id: The run that scores it.
    """
    alerts = find_alerts(
        _with(before["query_scores"], scores),
        day,
        findings=_with(before["query_findings"], findings),
        recent_alerts=before["agent_alerts"],
    )
    return alerts.with_columns(pl.lit(run_id).alias("run_id")).select(AGENT_ALERTS.names()).cast(AGENT_ALERTS)


@task(name="score", task_run_name="score-{day}", cache_policy=NO_CACHE)
def score_day(
    spool: Spool,
    catalogue: str,
    extracted: Sequence[Extracted],
    judged: Sequence[Judged],
    rows: int,
    day: dt.date,  # names the task run
    run_id: str,
    scored_at: dt.datetime,
) -> Scored:
    """`score` as a task."""
    return score(spool, catalogue, extracted, judged, rows, run_id, scored_at)


@task(name="aggregate", task_run_name="aggregate-{day}", cache_policy=NO_CACHE)
def aggregate_day(
    staged: Mapping[str, Table], before: Mapping[str, pl.DataFrame], day: dt.date, run_id: str
) -> dict[str, pl.DataFrame]:
    """``agent_daily`` and ``agent_alerts`` of the staged rows."""
    scores, findings = staged["query_scores"].lazy(), staged["query_findings"].lazy()
    return {"agent_daily": agent_daily(scores, findings), "agent_alerts": alerts_of(scores, findings, before, day, run_id)}


def _taken_over(extracted: Sequence[Extracted], judged: Sequence[Judged]) -> tuple[str, ...]:
    read, done = (sum(batch.reused for batch in step) for step in (extracted, judged))
    if not read:  # what was judged had been read
        return ()
    return (f"{read:,} of {len(judged):,} batches were read, and {done:,} judged, by a run that was interrupted",)


def _unasked(judged: Sequence[Judged], reasons: Mapping[str, int], which: frozenset[str]) -> tuple[str, ...]:
    """How many rows have no verdict for one of these reasons, and what to do."""
    rows = sum(reasons.get(reason, 0) for reason in which)
    if not rows:
        return ()
    said = next((told for batch in judged for reason, told in batch.said.items() if reason in which), None)
    kept = "" if which is BUDGET else "; run the day again when the endpoint is back: answers so far are kept"
    total = sum(batch.rows for batch in judged)
    return (f"{rows:,} of {total:,} rows were not judged: {said or 'the endpoint gave no answer'}{kept}",)


def _with(before: pl.DataFrame, today: pl.LazyFrame) -> pl.DataFrame:
    return pl.concat([before, today.select(before.columns).collect(engine="streaming")])
