"""Read both sides of a batch of rows, and learn from the whole day what its log shows of tables and columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from stef_core.catalogue import Catalogue, catalogue_of, mine
from stef_core.evaluate import Read, read_many, rules_picker
from stef_core.llm import Usage
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from tasks.models import open_reader, usage_of
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """One batch after reading: each row with its rules, in order."""

    read: tuple[Read, ...]
    rules: tuple[Rules, ...]
    usage: Usage
    prompt_version: str | None


def extract(records: Sequence[QueryRecord], rules: Mapping[str, Rules], settings: Settings, *, last_try: bool) -> Extracted:
    """Read both sides of one batch.

    Args:
        records: Rows of the log.
        rules: Rules by `app_id`; ``default`` for the others.
        settings: Say who reads the questions.
        last_try: An endpoint that stays away makes rows unscored, with the reason, rather than raising.

    Raises:
        TransientError: The endpoint answered nobody, and this is not the last try.
    """
    pick = rules_picker(rules)
    chosen = tuple(pick(record) for record in records)
    with open_reader(settings, raise_if_down=not last_try) as reader:
        return Extracted(
            read=tuple(read_many(records, chosen, reader)),
            rules=chosen,
            usage=usage_of(reader),
            prompt_version=reader.prompt_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued:
    """What the log shows: `rows` of ``log_catalogue`` of one day, and the `catalogue` that it makes with earlier days."""

    rows: pl.DataFrame
    catalogue: Catalogue


def learn(batches: Sequence[Extracted], earlier: pl.DataFrame, day: dt.date) -> Catalogued:
    """Add what a day's log shows to what the days before showed.

    Args:
        batches: All rows of the day.
        earlier: Rows of ``log_catalogue`` of the days before.
        day: The partition.
    """
    own = {read.record.app_id: rules for batch in batches for read, rules in zip(batch.read, batch.rules, strict=True)}
    every = ((read.record, read.reading.sql) for batch in batches for read in batch.read)
    rows = mine(every, day, lambda record: own[record.app_id])
    return Catalogued(rows=rows, catalogue=catalogue_of(pl.concat([earlier.select(rows.columns), rows])))


@task(
    name="extract",
    task_run_name="extract-{name}",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)
def extract_batch(records: Sequence[QueryRecord], rules: Mapping[str, Rules], settings: Settings, name: str) -> Extracted:
    """`extract` as a task; a repeat asks only for the answers that are not cached yet."""
    return extract(records, rules, settings, last_try=is_last_try())


@task(name="catalogue", task_run_name="catalogue-{day}", cache_policy=NO_CACHE)
def learn_day(batches: Sequence[Extracted], earlier: pl.DataFrame, day: dt.date) -> Catalogued:
    """`learn` as a task."""
    return learn(batches, earlier, day)


def is_last_try() -> bool:
    """Whether the running task has used up its retries."""
    return int(task_run.run_count or 1) > len(DELAYS_S)
