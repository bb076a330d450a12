"""Join a day's batches into its tables, and say what of it fell against the days before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.aggregates import agent_daily
from stef_core.drift import find_alerts
from stef_core.errors import TransientError
from stef_core.frames import AGENT_ALERTS, distinct_lines
from stef_core.rows import UNANSWERED, score_frame
from stef_core.rules import Rules
from tasks.judge import Judged
from tasks.query_log import Partition

BUDGET = frozenset({"budget_exhausted"})
DEFAULT_RULES_USED = "applications without rules of their own, scored by the default rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A day's rows of ``query_scores`` and ``query_findings``, and what the run row tells of them."""

    scores: pl.DataFrame
    findings: pl.DataFrame
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()  # sentences: what kept rows from being scored, and how to go on
    away: bool = False  # an endpoint went away before all rows were judged


def score(partition: Partition, batches: Sequence[Judged], run_id: str, scored_at: dt.datetime) -> Scored:
    """Join log, examinations and verdicts of a day, and compose Φ.

    Args:
        partition: The day's log.
        batches: All of its rows, each once.
        run_id: The run that scores it.
        scored_at: When, in UTC.

    Raises:
        TransientError: Rows were to be answered by an endpoint and it answered for none of them.
    """
    judged = pl.concat([batch.judged for batch in batches])
    if batches[0].judge != "symbolic":
        _refuse_if_unreached(judged)
    prompts = distinct_lines(v for batch in batches for v in batch.prompt_versions if v)
    prompt_version = "+".join(prompts) or None
    scores = score_frame(
        partition.frame,
        pl.concat([batch.examined for batch in batches]),
        judged,
        day=partition.day,
        run_id=run_id,
        scored_at=scored_at,
        prompt_version=prompt_version,
    )
    findings = pl.concat([batch.findings for batch in batches]).sort("query_id", "ordinal")
    scored = scores.filter(pl.col("status") == "scored").height
    usage = [usage for batch in batches for usage in batch.usage]
    return Scored(
        scores=scores,
        findings=findings,
        facts={
            "judge": batches[0].judge,
            "model": batches[0].model,
            "prompt_version": prompt_version,
            "rows_scored": scored,
            "rows_unscored": scores.height - scored,
            "llm_calls": sum(u.requests for u in usage),
            "cache_hits": sum(u.cache_hits for u in usage),
            "tokens_in": sum(u.tokens_in for u in usage),
            "tokens_out": sum(u.tokens_out for u in usage),
            "cost": sum(u.cost for u in usage),
        },
        notes=(*_unasked(judged, findings, BUDGET), *_unasked(judged, findings, UNANSWERED)),
        away=judged["reason"].is_in(list(UNANSWERED)).any(),
    )


def unknown_applications(log: pl.DataFrame, rules: Mapping[str, Rules]) -> list[str]:
    """A sentence that names the applications of a log that have no rules of their own; none where all have."""
    named = log["app_id"].drop_nulls().unique().sort()
    unknown = [app for app in named if app not in rules and app != "default"]
    return [f"{DEFAULT_RULES_USED}: {', '.join(unknown)}"] if unknown else []


def alerts_of(
    scores: pl.DataFrame, findings: pl.DataFrame, before: Mapping[str, pl.DataFrame], day: dt.date, run_id: str
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


@task(name="score", task_run_name="score-{partition.day}", cache_policy=NO_CACHE)
def score_day(partition: Partition, batches: Sequence[Judged], run_id: str, scored_at: dt.datetime) -> Scored:
    """`score` as a task."""
    return score(partition, batches, run_id, scored_at)


@task(name="aggregate", task_run_name="aggregate-{day}", cache_policy=NO_CACHE)
def aggregate_day(
    staged: Mapping[str, pl.DataFrame], before: Mapping[str, pl.DataFrame], day: dt.date, run_id: str
) -> dict[str, pl.DataFrame]:
    """``agent_daily`` and ``agent_alerts`` of the staged rows."""
    scores, findings = staged["query_scores"], staged["query_findings"]
    return {"agent_daily": agent_daily(scores, findings), "agent_alerts": alerts_of(scores, findings, before, day, run_id)}


def _unasked(judged: pl.DataFrame, findings: pl.DataFrame, reasons: frozenset[str]) -> tuple[str, ...]:
    """How many rows have no verdict for one of these reasons, and what to do."""
    rows = judged.filter(pl.col("reason").is_in(list(reasons))).select("query_id")
    if not rows.height:
        return ()
    said = findings.filter(pl.col("code") == "judge_unavailable").join(rows, on="query_id", how="semi")["message"]
    kept = "" if reasons is BUDGET else "; run the day again when the endpoint is back: answers so far are kept"
    why = said[0] if said.len() else "the endpoint gave no answer"
    return (f"{rows.height:,} of {judged.height:,} rows were not judged: {why}{kept}",)


def _with(before: pl.DataFrame, today: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([before, today.select(before.columns)])


def _refuse_if_unreached(judged: pl.DataFrame) -> None:
    # rows scored by rule alone ask nobody; a refusal is an answer
    reason, unreached = pl.col("reason").fill_null(""), pl.col("reason").fill_null("").is_in(UNANSWERED)
    graded = (reason == "") & (pl.col("judge") != "rule")
    answered = judged.filter(graded | (reason.str.starts_with("judge_") & ~unreached)).height
    unanswered = judged.filter(unreached).height
    if unanswered and not answered:
        raise TransientError(
            f"the endpoint answered for none of {unanswered} rows; see that STEF_BASE_URL is up and run the day again"
        )
