"""What a run would send to a model, made exactly as the run makes it, and not sent. Writes to no warehouse, needs no key."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import SecretStr

from stef_core.catalogue import Catalogue, catalogue_of, mine
from stef_core.errors import RuleError, TransientError
from stef_core.evaluate import QuestionPair, Read, examine, read_many, rules_picker
from stef_core.extract.question_offline import OfflineReader
from stef_core.frames import LOG_CATALOGUE, frame_of, records_of
from stef_core.llm import AnswerCache, ChatAnswer, ChatFailure, ChatRequest, Outcome, Usage, answer_problem
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from tasks.answer_cache import SqliteAnswerCache
from tasks.models import NO_KEY, check_settings, stages_of
from tasks.progress import DayStarted, RowsDone, tell
from tasks.settings import Settings

CHARACTERS_PER_TOKEN = 4  # of English; other languages and scripts take more tokens
NOT_ASKED: Literal["judge_unavailable"] = "judge_unavailable"  # reason of a request that a dry run leaves unsent
SYMBOLIC = "nothing would be sent: the judge is symbolic, which asks no model; add --judge openai"
OFFLINE = (
    "verdict requests that rest on the offline reading, as the model's is not in the cache (its reading may change them): {}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request of a row. `reading` says for a verdict which reading of the question it rests on."""

    query_id: str
    stage: Literal["question", "verdict"]
    request: ChatRequest
    cached: bool
    reading: Literal["model", "offline"] | None = None
    day: dt.date | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens of its messages."""
        return estimated_tokens(self.request)

    def to_json(self) -> dict[str, Any]:
        """As one line of the file that a dry run writes."""
        out: dict[str, Any] = {
            "query_id": self.query_id,
            "stage": self.stage,
            "model": self.request.model,
            "schema_name": self.request.schema_name,
            "messages": [{"role": message.role, "content": message.content} for message in self.request.messages],
            "tokens_estimate": self.tokens,
            "cached": self.cached,
        }
        if self.reading is not None:
            out["reading"] = self.reading
        return out if self.day is None else {"dt": self.day.isoformat()} | out


@dataclass(slots=True)
class Summary:
    """What a dry run came to. `distinct` and `tokens` count equal requests once, as they are asked once."""

    rows: int = 0
    requests: int = 0
    offline: int = 0  # verdict requests that rest on the offline reading
    cached: int = 0  # distinct requests whose answer is in the cache
    tokens: int = 0  # estimated, of the distinct requests that are not in the cache
    notes: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def add(self, planned: Planned) -> None:
        """Count one request."""
        self.requests += 1
        self.offline += planned.reading == "offline"
        key = planned.request.key
        if key in self._seen:
            return
        self._seen.add(key)
        if planned.cached:
            self.cached += 1
        else:
            self.tokens += planned.tokens

    @property
    def distinct(self) -> int:
        """Requests that differ from each other."""
        return len(self._seen)

    def to_json(self) -> dict[str, Any]:
        """The figures, and notes in words."""
        return {
            "rows": self.rows,
            "requests": self.requests,
            "distinct_requests": self.distinct,
            "in_cache": self.cached,
            "to_be_sent": self.distinct - self.cached,
            "tokens_estimate": self.tokens,
            "notes": [*self.notes, *([OFFLINE.format(self.offline)] if self.offline else [])],
        }


def estimated_tokens(request: ChatRequest) -> int:
    """Characters of the messages, divided by four; the schema and the answer come on top."""
    return math.ceil(sum(len(message.content) for message in request.messages) / CHARACTERS_PER_TOKEN)


class UnsentModel:
    """A chat model that answers from the cache alone, and remembers what it was asked.

    Args:
        settings: Name model, mode and marker; `reader` and `judge` are theirs, over this model.
        cache: Answers already paid for.
    """

    name = "openai"
    usage = Usage()

    def __init__(self, settings: Settings, cache: AnswerCache | None = None) -> None:
        self.model, self.fused, self._cache = (settings.model or "").strip(), settings.fused, cache
        self.reader, self.judge = stages_of(settings, self)
        self._asked: list[tuple[ChatRequest, bool]] = []

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """As `ChatModel.complete_many`; what the cache lacks fails with the reason `NOT_ASKED`."""
        outcomes = [self._kept(request) for request in requests]
        self._asked += [(request, outcome is not None) for request, outcome in zip(requests, outcomes, strict=True)]
        return [outcome or ChatFailure(reason=NOT_ASKED, message="not sent", connected=False) for outcome in outcomes]

    def close(self) -> None:
        """Nothing is held open."""

    def taken(self) -> list[tuple[ChatRequest, bool]]:
        """What was asked since the last call, each with whether the cache has its answer."""
        asked, self._asked = self._asked, []
        return asked

    def _kept(self, request: ChatRequest) -> Outcome | None:
        stored = self._cache.get_many([request.key]).get(request.key) if self._cache is not None else None
        if stored is None:
            return None
        if stored.reason is not None:
            return ChatFailure(reason=stored.reason, message=stored.text, cached=True)  # type: ignore[arg-type]  # as kept
        return (
            None
            if answer_problem(stored.text, request)
            else ChatAnswer(text=stored.text, model=stored.model, step=stored.step, probability=stored.probability, cached=True)
        )


class _PatientReader:
    """Reads as the model did where the cache knows, and offline elsewhere; `offline` are the rows of the latter."""

    name = "llm"

    def __init__(self, chat: UnsentModel) -> None:
        self._reader, self._offline = chat.reader, OfflineReader()
        self.offline = False

    @property
    def prompt_version(self) -> str | None:
        return self._reader.prompt_version

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        pairs = self._reader.read_many(records, rules)
        unasked = (NOT_ASKED, NOT_ASKED.replace("judge_", "question_reader_"))
        self.offline = any(pair.question is None and pair.reason in unasked for pair in pairs)
        return self._offline.read_many(records, rules) if self.offline else pairs


def plan(rows: Iterable[tuple[QueryRecord, Rules]], chat: UnsentModel, summary: Summary) -> Iterator[Planned]:
    """The requests of single answers, each row's in the order in which they would be sent.

    Args:
        rows: The answers, each with its rules.
        chat: Remembers what it is asked.
        summary: Counts the rows and requests.
    """
    for record, own in rows:
        summary.rows += 1
        read, planned, reading = _read(record, own, chat)
        for each in [*planned, *_judged(read, own, chat, reading)]:
            summary.add(each)
            yield each


def plan_days(
    settings: Settings, rules: Mapping[str, Rules], days: Iterable[dt.date], chat: UnsentModel, summary: Summary
) -> Iterator[Planned]:
    """The requests of days of the log: of each day first all about questions, then all about verdicts, as a run sends them.

    Args:
        settings: Say where the log and the warehouse are; the warehouse is only read.
        rules: Rules by `app_id`.
        days: UTC days.
        chat: Remembers what it is asked.
        summary: Counts the rows and requests.

    Raises:
        InputError: A partition is absent or cannot be read.
        TransientError: The file system of the log could not be reached.
    """
    from tasks.publish import WINDOW  # these two bring Prefect along, which single answers do without
    from tasks.query_log import read_partition

    pick = rules_picker(rules)
    mined = frame_of([], LOG_CATALOGUE)
    for day in days:
        records = records_of(read_partition(settings.logs or "", day).frame)
        summary.rows += len(records)
        tell(DayStarted(day=day, rows=2 * len(records)))  # each row is gone over twice
        read: list[tuple[Read, Rules, Literal["model", "offline"]]] = []
        for record in records:
            row, planned, reading = _read(record, own := pick(record), chat, day)
            read.append((row, own, reading))
            yield from _counted(planned, summary)
            tell(RowsDone(day=day, rows=1))
        today = mine(((row.record, row.reading.sql) for row, _, _ in read), day, pick)
        since = day - dt.timedelta(days=WINDOW["log_catalogue"][0])
        earlier = _earlier(settings, since, day, summary).filter(~pl.col("dt").is_in(mined["dt"].implode()))
        known = catalogue_of(pl.concat([earlier, mined.filter(pl.col("dt") >= since), today]))
        for row, own, reading in read:
            yield from _counted(_judged(row, own, chat, reading, known, day), summary)
            tell(RowsDone(day=day, rows=1))
        mined = pl.concat([mined, today])


@contextmanager
def open_unsent(settings: Settings) -> Iterator[UnsentModel]:
    """The model of the settings as a dry run asks it; a cache is read where there is one, and none is made.

    Raises:
        RuleError: A setting is missing or wrong; a key is not missed.
    """
    check_settings(settings.model_copy(update={"api_key": SecretStr(NO_KEY)}))
    there = settings.cache is not None and settings.cache.expanduser().exists()
    cache = SqliteAnswerCache(settings.cache) if there and settings.cache is not None else None
    try:
        yield UnsentModel(settings, cache)
    finally:
        if cache is not None:
            cache.close()


@contextmanager
def json_lines(out: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Writes objects to a file, one a line; the file is there in whole or not at all, and only its owner may read it.

    Raises:
        RuleError: The file cannot be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part")
    except OSError as error:
        raise RuleError(f"{out}: cannot be written: {error.strerror or error}; choose another file") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:  # JSON's own escape
            yield lambda line: print(json.dumps(line, ensure_ascii=False), file=file)
        Path(name).replace(out)
    except OSError as error:
        raise RuleError(f"{out}: cannot be written: {error.strerror or error}; choose another file") from error
    finally:
        Path(name).unlink(missing_ok=True)


def _counted(planned: Iterable[Planned], summary: Summary) -> Iterator[Planned]:
    for each in planned:
        summary.add(each)
        yield each


def _read(
    record: QueryRecord, rules: Rules, chat: UnsentModel, day: dt.date | None = None
) -> tuple[Read, list[Planned], Literal["model", "offline"]]:
    reader = _PatientReader(chat)
    (read,) = read_many([record], [rules], reader)
    planned = [
        Planned(query_id=record.query_id, stage="question", request=request, cached=cached, day=day)
        for request, cached in chat.taken()
    ]
    return read, planned, "offline" if reader.offline else "model"


def _judged(
    read: Read,
    rules: Rules,
    chat: UnsentModel,
    reading: Literal["model", "offline"],
    catalogue: Catalogue | None = None,
    day: dt.date | None = None,
) -> list[Planned]:
    evidence = examine(read, rules, catalogue).evidence
    if evidence is not None and read.verdict is None and not (chat.fused and reading == "offline"):
        chat.judge.judge_many([evidence], [rules])
    return [
        Planned(query_id=read.record.query_id, stage="verdict", request=request, cached=cached, reading=reading, day=day)
        for request, cached in chat.taken()
    ]


def _earlier(settings: Settings, since: dt.date, day: dt.date, summary: Summary) -> pl.DataFrame:
    """What the warehouse knows of the days before, which a verdict is asked with; nothing where it cannot be read."""
    from tasks.warehouse import connect

    try:
        with connect(settings.warehouse, read_only=True, wait_s=settings.warehouse_wait_s) as store:
            return store.read("log_catalogue", since=since, until=day - dt.timedelta(days=1))
    except (RuleError, TransientError) as error:
        note = f"verdict requests are made without what earlier days show of the log: {error}"
        if note not in summary.notes:
            summary.notes.append(note)
        return frame_of([], LOG_CATALOGUE)
