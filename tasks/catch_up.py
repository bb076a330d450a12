"""Days that a daily run should have scored and did not: missing, failed, or with another input than the one scored."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.publish import open_warehouse
from tasks.query_log import fingerprint_day, list_days
from tasks.settings import Settings


def days_to_score(settings: Settings, first: dt.date, last: dt.date) -> list[tuple[dt.date, str]]:
    """Days of the log within a range that have to be scored, oldest first, each with why.

    ``missing``: never tried; ``failed``: the last run of it published nothing; ``changed``: files came, went or are others than
    those that were scored.

    Raises:
        InputError: The log cannot be read.
        TransientError: Log or warehouse cannot be reached.
    """
    assert settings.logs is not None
    there = [day for day in list_days(settings.logs) if first <= day <= last]
    with open_warehouse(settings, read_only=True) as store:
        published = set(store.days())
        # which run a day is of is told by its rows: clocks go back, and then the newest run is not the last one
        publishers = set(store.read("agent_daily", since=first, until=last, columns=["run_id"])["run_id"])
        runs = store.read("scoring_runs").select("dt", "outcome", "files", "run_id").to_dicts()
    tried = {run["dt"] for run in runs}
    scored_files = {run["dt"]: run["files"] for run in runs if run["run_id"] in publishers}
    found = []
    for day in there:
        if day not in published:
            found.append((day, "failed" if day in tried else "missing"))
        elif _differs(scored_files.get(day), fingerprint_day(settings.logs, day)):
            found.append((day, "changed"))
    return found


def _differs(scored: str | None, files: Sequence[Mapping[str, Any]]) -> bool:
    return scored is not None and {file["sha256"] for file in json.loads(scored)} != {file["sha256"] for file in files}


@task(name="catch-up", cache_policy=NO_CACHE)
def find_days(settings: Settings, first: dt.date, last: dt.date) -> list[tuple[dt.date, str]]:
    """`days_to_score` as a task."""
    return days_to_score(settings, first, last)
