"""Align a batch of rows that were read, and give them their verdicts."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.catalogue import Catalogue
from stef_core.evaluate import conclude_many, examine
from stef_core.llm import Usage
from stef_core.rows import examined_frame, findings_frame, judged_frame
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


def judge(batch: Extracted, catalogue: Catalogue, settings: Settings, day: dt.date, run_id: str, *, last_try: bool) -> Judged:
    """Align and judge one batch.

    Args:
        batch: The rows, read.
        catalogue: What the log shows of tables, columns and joins.
        settings: Say who judges.
        day: The partition.
        run_id: The run that scores it.
        last_try: An endpoint that stays away makes rows unscored, with the reason, rather than raising.

    Raises:
        TransientError: The endpoint answered nobody, and this is not the last try.
    """
    records = [read.record for read in batch.read]
    examined = [examine(read, rules, catalogue) for read, rules in zip(batch.read, batch.rules, strict=True)]
    with open_judge(settings, raise_if_down=not last_try) as chosen:
        evaluations = conclude_many(examined, batch.rules, chosen)
        return Judged(
            examined=examined_frame(examined, records, batch.rules),
            judged=judged_frame(evaluations, records, batch.rules, judge=chosen.name, model=chosen.model),
            findings=findings_frame(evaluations, records, batch.rules, day=day, run_id=run_id),
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
def judge_batch(batch: Extracted, catalogue: Catalogue, settings: Settings, day: dt.date, run_id: str, name: str) -> Judged:
    """`judge` as a task; a repeat asks only for the answers that are not cached yet."""
    return judge(batch, catalogue, settings, day, run_id, last_try=is_last_try())
