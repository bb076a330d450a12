"""What scoring rows would ask of an endpoint, worked out without asking it: answers come from the cache or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stef_core.budget import Budget, tokens_of
from stef_core.catalogue import Catalogue
from stef_core.evaluate import conclude_many, examine, read_many, rules_picker
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from tasks.answer_cache import SqliteAnswerCache
from tasks.dry_run import UnsentModel
from tasks.models import prices_of
from tasks.settings import Settings

TYPICAL_ANSWER = 300  # tokens of an answer


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
        chat = UnsentModel(settings, cache)
        read = read_many(records, chosen, chat.reader)
        unread = sum(row.reason == "question_reader_unavailable" for row in read)
        examined = [examine(row, its, catalogue) for row, its in zip(read, chosen, strict=True)]
        conclude_many(examined, chosen, chat.judge)
    finally:
        if cache is not None:
            cache.close()
    asked = {request.key: (request, is_kept) for request, is_kept in chat.taken()}
    wanted = [request for request, is_kept in asked.values() if not is_kept]
    unknown = 0 if settings.fused else unread * settings.samples
    calls = len(wanted) + unknown
    prompts = [sum(tokens_of(message.content) for message in request.messages) for request in wanted]
    tokens_in = round(sum(prompts) + unknown * (sum(prompts) / len(prompts) if prompts else 0))
    tokens_out = calls * TYPICAL_ANSWER
    price = Budget(None, prices_of(settings)).price(chat.model)
    return {
        "calls": calls,
        "cached": len(asked) - len(wanted),
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cost": price.of(tokens_in, tokens_out),
    }
