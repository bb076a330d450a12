"""Align a day's batches that were read, and give their rows their verdicts and scores."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core.rules import Rules
from tasks.batches import Judged, judge, judged_before
from tasks.crew import Crew
from tasks.extract import is_last_try
from tasks.pool import compute
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings
from tasks.spool import Spool


@task(
    name="judge",
    task_run_name="judge-{name}",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def judge_batch(
    spool: Spool,
    number: int,
    catalogue: str,
    rules: Mapping[str, Rules],
    settings: Settings,
    day: dt.date,
    name: str,
    place: int | Crew = 1,
) -> Judged:
    """`judge` as a task, unless an earlier run has done it; `place` is as for `extract_batch`."""
    done = judged_before(spool, number, catalogue)
    return done or compute(place, judge, spool, number, catalogue, rules, settings, day, last_try=is_last_try())
