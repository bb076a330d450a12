"""Give a batch of aligned rows their verdicts."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.evaluate import conclude_many
from stef_core.llm import Usage
from stef_core.rows import findings_frame, judged_frame
from tasks.extract import Extracted, is_last_try
from tasks.models import open_judge, usage_of
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One batch with its verdicts: frames of `stef_core.rows.EXAMINED` and `JUDGED`, and of `QUERY_FINDINGS`."""

    examined: pl.DataFrame
    judged: pl.DataFrame
    findings: pl.DataFrame
    usage: tuple[Usage, ...]
    prompt_versions: tuple[str | None, ...]
    judge: str
    model: str | None


def judge(batch: Extracted, settings: Settings, day: dt.date, run_id: str, *, last_try: bool) -> Judged:
    """Judge one batch.

    Args:
        batch: The rows, aligned.
        settings: Say who judges.
        day: The partition.
        run_id: The run that scores it.
        last_try: An endpoint that stays away makes rows unscored, with the reason, rather than raising.

    Raises:
        TransientError: The endpoint answered nobody, and this is not the last try.
    """
    with open_judge(settings, raise_if_down=not last_try) as chosen:
        evaluations = conclude_many(batch.examined, batch.rules, chosen)
        return Judged(
            examined=batch.frame,
            judged=judged_frame(evaluations, batch.rules, judge=chosen.name, model=chosen.model),
            findings=findings_frame(evaluations, batch.records, batch.rules, day=day, run_id=run_id),
            usage=(batch.usage, usage_of(chosen)),
            prompt_versions=(batch.prompt_version, chosen.prompt_version),
            judge=chosen.name,
            model=chosen.model,
        )


@task(
    name="judge",
    task_run_name="judge-{name}",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def judge_batch(batch: Extracted, settings: Settings, day: dt.date, run_id: str, name: str) -> Judged:
    """`judge` as a task; a repeat asks only for the answers that are not cached yet."""
    return judge(batch, settings, day, run_id, last_try=is_last_try())
