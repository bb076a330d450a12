"""Read both sides of a day's batches, and learn from all of them what the day's log shows of tables and columns."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from stef_core.catalogue import SHOWN, log_catalogue
from stef_core.frames import LOG_CATALOGUE
from stef_core.rules import Rules
from tasks.batches import CATALOGUE, FACTS, Extracted, extract, extracted_before
from tasks.crew import Crew
from tasks.pool import compute
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings
from tasks.spool import Spool

FACTS_AT_ONCE = 2_000_000  # lines of `stef_core.catalogue.SHOWN` that are grouped at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued:
    """What the log shows: `rows` of ``log_catalogue`` of one day, and the folder of the spool that holds all of it."""

    rows: pl.DataFrame
    folder: str


def learn(spool: Spool, earlier: pl.DataFrame, day: dt.date, batches: int | None = None) -> Catalogued:
    """Add what a day's log shows to what the days before showed.

    Args:
        spool: Holds ``facts`` of all batches; takes ``catalogue`` in a folder named after what it holds.
        earlier: Rows of ``log_catalogue`` of the days before.
        day: The partition.
        batches: How many were read, where that is known.

    Raises:
        SpoolError: Facts of some of them are gone.
    """
    shown = spool.scan(FACTS, SHOWN, batches)
    lines = shown.select(pl.len()).collect(engine="streaming").item()
    parts = max(1, math.ceil(lines / FACTS_AT_ONCE))
    place = pl.concat_str("app_id", "kind", "key", separator="\0").hash() % parts
    rows = log_catalogue([shown.filter(place == number) for number in range(parts)] if parts > 1 else [shown], day)
    whole = pl.concat([earlier.select(rows.columns), rows])
    return Catalogued(rows=rows, folder=keep_catalogue(spool, whole))


def keep_catalogue(spool: Spool, rows: pl.DataFrame) -> str:
    """Put the rows of a catalogue into the folder of a spool that is named after them; the folder's name."""
    rows = rows.select(LOG_CATALOGUE.names()).sort(LOG_CATALOGUE.names())
    hashes = rows.hash_rows(seed=0)  # the same in every process of one version of polars
    folder = hashlib.sha256(hashes.to_numpy().tobytes()).hexdigest()[:16]
    spool.within(folder).write(CATALOGUE, 0, rows)
    return folder


@task(
    name="extract",
    task_run_name="extract-{name}",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def extract_batch(
    spool: Spool, number: int, rules: Mapping[str, Rules], settings: Settings, name: str, place: int | Crew = 1
) -> Extracted:
    """`extract` as a task, unless an earlier run has done it; a repeat asks only for the answers that are not cached yet.

    `place` is the number of processes of this machine to work in, or the crew that the process of the task belongs to.
    """
    done = extracted_before(spool, number)
    return done or compute(place, extract, spool, number, rules, settings, last_try=is_last_try())


@task(name="catalogue", task_run_name="catalogue-{day}", cache_policy=NO_CACHE)
def learn_day(spool: Spool, earlier: pl.DataFrame, day: dt.date, batches: int) -> Catalogued:
    """`learn` as a task."""
    return learn(spool, earlier, day, batches)


def is_last_try() -> bool:
    """Whether the running task has used up its retries."""
    return int(task_run.run_count or 1) > len(DELAYS_S)
