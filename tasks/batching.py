"""Ask what a day needs of a model through the endpoint's Batch API, before the ordinary tasks, which find it in the cache."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE

from stef_core.errors import RuleError
from stef_core.evaluate import conclude_many, examine, read_many, rules_picker
from stef_core.frames import records_of
from stef_core.llm import ChatFailure, ChatRequest, Outcome, Usage
from stef_core.openai_batch import BatchReport, BatchState, OpenAIBatches, check_batch_api
from stef_core.rules import Rules
from tasks.batch_journal import SqliteBatchJournal
from tasks.batches import LOG, load_catalogue, read_rows
from tasks.models import open_shared_chat, stages_of
from tasks.progress import BatchesLeft, BatchWaits, tell
from tasks.retrying import DELAYS_S, is_transient
from tasks.settings import Settings
from tasks.spool import Spool


class Collector:
    """A `ChatModel` that answers nothing and keeps what it is asked.

    Args:
        model: Model id that requests should carry.
    """

    name = "openai"
    usage = Usage()

    def __init__(self, model: str) -> None:
        self.model = model
        self.requests: dict[str, ChatRequest] = {}

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """Keep the requests; a failure for each."""
        self.requests |= {request.key: request for request in requests}
        return [ChatFailure(reason="judge_unavailable", message="not asked yet") for _ in requests]

    def close(self) -> None:
        """Nothing is open."""


def question_requests(
    spool: Spool, batches: int, rules: Mapping[str, Rules], settings: Settings, model: str
) -> list[ChatRequest]:
    """What the reader will ask about the rows of a day, each request once."""
    asked, pick = Collector(model), rules_picker(rules)
    reader, _ = stages_of(settings, asked)
    for number in range(batches):
        part = records_of(spool.read(LOG, number))
        read_many(part, [pick(record) for record in part], reader)
    return list(asked.requests.values())


def verdict_requests(
    spool: Spool, batches: int, catalogue: str, rules: Mapping[str, Rules], settings: Settings, model: str
) -> list[ChatRequest]:
    """What the judge will ask about the rows of a day that could be read, each request once."""
    asked = Collector(model)
    _, judge = stages_of(settings, asked)
    known = load_catalogue(spool.within(catalogue))
    for number in range(batches):
        read, chosen = read_rows(spool, number, rules)
        conclude_many([examine(row, its, known) for row, its in zip(read, chosen, strict=True)], chosen, judge)
    return list(asked.requests.values())


def check_batching(settings: Settings) -> bool:
    """Whether a run asks in batches.

    Raises:
        RuleError: It should, and there is no cache for the answers to come into.
    """
    if not settings.batch or settings.judge != "openai":
        return False
    if settings.cache is None:
        raise RuleError(
            "a batch's answers come into the answer cache, and there is none; set STEF_CACHE, or run without --batch"
        )
    return True


def journal_file(cache: Path) -> Path:
    """The journal of batches beside a cache's file: ``answers.batches.sqlite`` beside ``answers.sqlite``."""
    return cache.with_name(f"{cache.stem}.batches.sqlite")


def ask_in_batches(requests_of: Callable[[str], list[ChatRequest]], settings: Settings, day: dt.date) -> BatchReport:
    """Submit requests and wait until they are answered, or left to single calls; told to listeners and as an artifact.

    Args:
        requests_of: Requests for a model id.
        settings: Name endpoint, cache and budget.
        day: The partition.

    Raises:
        RuleError: The endpoint has no Batch API, or refuses the key or the batch.
        TransientError: The endpoint could not be reached; what is under way is collected by the next try.
    """
    assert settings.cache is not None  # see check_batching
    artifacts: dict[str, Any] = {}

    def show(state: BatchState) -> None:
        waits = BatchWaits(
            day=day,
            batch_id=state.batch_id,
            status=state.status,
            lines=state.lines,
            done=min(state.done, state.lines),
            since=dt.datetime.fromtimestamp(state.since, dt.UTC),
        )
        tell(waits)
        share, about = 100.0 * waits.done / max(1, waits.lines), str(waits)
        if state.batch_id in artifacts:
            update_progress_artifact(artifact_id=artifacts[state.batch_id], progress=share, description=about)
        else:
            artifacts[state.batch_id] = create_progress_artifact(progress=share, key=f"batches-{day}", description=about)

    with open_shared_chat(settings) as chat, SqliteBatchJournal(journal_file(settings.cache)) as journal:
        batches = OpenAIBatches(chat, journal, tell=show)
        try:
            return batches.answer(requests_of(chat.model))
        except KeyboardInterrupt:
            if batches.waiting:
                tell(BatchesLeft(batch_ids=batches.waiting))
            raise


def with_batches(facts: Mapping[str, Any], reports: Sequence[BatchReport]) -> dict[str, Any]:
    """What a run row tells of its model, with what batches took."""
    used = sum((report.usage for report in reports), Usage())
    return {
        **facts,
        "llm_calls": facts["llm_calls"] + used.requests,
        # found in the cache by the ordinary tasks, and paid for all the same
        "cache_hits": max(0, facts["cache_hits"] - sum(report.answered for report in reports)),
        "tokens_in": facts["tokens_in"] + used.tokens_in,
        "tokens_out": facts["tokens_out"] + used.tokens_out,
        "cost": facts["cost"] + used.cost,
    }


_RETRIED: Any = {
    "retries": len(DELAYS_S),
    "retry_delay_seconds": list(DELAYS_S),
    "retry_condition_fn": is_transient,
    "cache_policy": NO_CACHE,
}


@task(name="check-batch-api", **_RETRIED)
def check_endpoint(settings: Settings) -> None:
    """See that the endpoint has a Batch API, before anything is scored.

    Raises:
        RuleError: It has none, or refuses the key.
        TransientError: It cannot be reached.
    """
    with open_shared_chat(settings) as chat:
        check_batch_api(chat)


@task(name="batch-questions", task_run_name="batch-questions-{day}", **_RETRIED)
def batch_questions(spool: Spool, batches: int, rules: Mapping[str, Rules], settings: Settings, day: dt.date) -> BatchReport:
    """Ask in batches what the reader will ask about a day; a repeat collects what is under way."""
    return ask_in_batches(lambda model: question_requests(spool, batches, rules, settings, model), settings, day)


@task(name="batch-verdicts", task_run_name="batch-verdicts-{day}", **_RETRIED)
def batch_verdicts(
    spool: Spool, batches: int, catalogue: str, rules: Mapping[str, Rules], settings: Settings, day: dt.date
) -> BatchReport:
    """Ask in batches what the judge will ask about a day; a repeat collects what is under way."""
    return ask_in_batches(lambda model: verdict_requests(spool, batches, catalogue, rules, settings, model), settings, day)
