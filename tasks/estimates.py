"""What scoring rows would ask of an endpoint, worked out without asking it: answers come from the cache or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stef_core.budget import Budget, tokens_of
from stef_core.catalogue import Catalogue
from stef_core.evaluate import conclude_many, examine, read_many, rules_picker
from stef_core.llm import ChatAnswer, ChatFailure, ChatRequest, Outcome, StoredAnswer, Usage
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from tasks.answer_cache import SqliteAnswerCache
from tasks.models import prices_of, stages_of
from tasks.settings import Settings

TYPICAL_ANSWER = 300  # tokens of an answer where none has been seen


class CachedChat:
    """A `ChatModel` that sends nothing: what the cache has not is noted, and answered by a failure.

    Args:
        model: Model id of the requests.
        cache: Of answers; none where None.
    """

    name = "openai"

    def __init__(self, model: str, cache: SqliteAnswerCache | None) -> None:
        self.model, self.cache = model, cache
        self.wanted: dict[str, ChatRequest] = {}  # distinct requests that would be sent, by key
        self.found: dict[str, StoredAnswer] = {}

    @property
    def usage(self) -> Usage:
        """Nothing is asked."""
        return Usage()

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """Answers of the cache; a failure for each other request."""
        distinct = {request.key: request for request in requests}
        kept = self.cache.get_many(list(distinct)) if self.cache is not None else {}
        self.found |= kept
        self.wanted |= {key: request for key, request in distinct.items() if key not in kept}
        return [_outcome(kept.get(request.key)) for request in requests]

    def close(self) -> None:
        """There is nothing to end."""


def _outcome(stored: StoredAnswer | None) -> Outcome:
    if stored is None:
        return ChatFailure(reason="judge_unavailable", message="not asked: this only counts")
    if stored.reason is not None:
        return ChatFailure(reason=stored.reason, message=stored.text, cached=True)  # type: ignore[arg-type]
    return ChatAnswer(text=stored.text, cached=True, step=stored.step, probability=stored.probability)


def estimate_calls(
    settings: Settings, records: Sequence[QueryRecord], rules: Mapping[str, Rules], catalogue: Catalogue
) -> dict[str, Any]:
    """Calls, tokens and cost of scoring rows, beyond what the answer cache holds.

    A verdict's request rests on the reading: where that is not in the cache either, one request a sample is counted.
    """
    pick = rules_picker(rules)
    chosen = [pick(record) for record in records]
    cache = SqliteAnswerCache(settings.cache) if settings.cache is not None else None
    try:
        chat = CachedChat((settings.model or "").strip(), cache)
        reader, judge = stages_of(settings, chat)
        read = read_many(records, chosen, reader)
        unread = sum(row.reason == "question_reader_unavailable" for row in read)
        examined = [examine(row, its, catalogue) for row, its in zip(read, chosen, strict=True)]
        conclude_many(examined, chosen, judge)
    finally:
        if cache is not None:
            cache.close()
    unknown = 0 if settings.fused else unread * settings.samples
    calls = len(chat.wanted) + unknown
    answered = [answer.tokens_out / max(answer.calls, 1) for answer in chat.found.values() if answer.calls]
    tokens_out = round(calls * (sum(answered) / len(answered) if answered else TYPICAL_ANSWER))
    prompts = [sum(tokens_of(message.content) for message in request.messages) for request in chat.wanted.values()]
    tokens_in = round(sum(prompts) + unknown * (sum(prompts) / len(prompts) if prompts else 0))
    price = Budget(None, prices_of(settings)).price(chat.model)
    return {
        "calls": calls,
        "cached": len(chat.found),
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cost": price.of(tokens_in, tokens_out),
    }
