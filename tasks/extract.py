"""Read both sides of a batch of rows and align them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from stef_core.evaluate import Examined, examine_many, rules_picker
from stef_core.llm import Usage
from stef_core.records import QueryRecord
from stef_core.rows import examined_frame
from stef_core.rules import Rules
from tasks.models import open_reader, usage_of
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """One batch before its verdicts. `frame` is of `stef_core.rows.EXAMINED`; the lists are in its order."""

    records: tuple[QueryRecord, ...]
    rules: tuple[Rules, ...]
    examined: tuple[Examined, ...]
    frame: pl.DataFrame
    usage: Usage
    prompt_version: str | None


def extract(records: Sequence[QueryRecord], rules: Mapping[str, Rules], settings: Settings, *, last_try: bool) -> Extracted:
    """Read and align one batch.

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
        examined = examine_many(records, chosen, reader)
        return Extracted(
            records=tuple(records),
            rules=chosen,
            examined=tuple(examined),
            frame=examined_frame(examined, records, chosen),
            usage=usage_of(reader),
            prompt_version=reader.prompt_version,
        )


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


def is_last_try() -> bool:
    """Whether the running task has used up its retries."""
    return int(task_run.run_count or 1) > len(DELAYS_S)
