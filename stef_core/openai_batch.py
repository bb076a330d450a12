"""Asks many requests through the Batch API of an endpoint: cheaper, answered within a day, collected also after a restart.

With `stef_core.openai_model` the only module that imports openai. Answers land in the model's cache, where single calls look
first; a line that came to nothing is left to them, with their retries, repair and other ways of asking.

A chunk of requests is noted in a journal before its file is sent and its batch is made, and the batch carries a hash of the
chunk. So whoever comes after a kill finds the batch, by its id in the journal or by its mark at the endpoint, and nothing is
paid for twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from stef_core.budget import Reservation, tokens_of
from stef_core.errors import RuleError, StefError, TransientError
from stef_core.llm import SETTLED, ChatAnswer, ChatRequest, Step, Usage
from stef_core.openai_model import RETRY_AFTER_MAX_S, Line, OpenAIChatModel, retry_after

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

T = TypeVar("T")

URL: Literal["/v1/chat/completions"] = "/v1/chat/completions"
MOST_LINES, MOST_BYTES = 50_000, 100_000_000  # of one file; endpoints take 50,000 lines and 200 MB
MOST_TRIES = 2  # batches that a line is in, before it is asked singly
WORTH = 0.1  # share of the waiting lines that a further batch must take within the budget to be worth its wait
POLL_S, POLL_MAX_S, POLL_GROWTH = 5.0, 60.0, 1.5
SEND_RETRIES, POLL_RETRIES = 4, 10  # further attempts; a batch that takes hours is not given up for minutes of silence
TRANSFER_TIMEOUT_S = 900.0  # of a file's upload or download
CLOCKS_APART_S = 86_400.0  # how far the endpoint's clock and ours may be apart
KEPT_AT_ONCE = 500  # answers written to the cache together
PROBES = 3  # single requests that try what the endpoint accepts

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_DEAD = frozenset({"failed", "cancelled"})
_ABSENT = frozenset({404, 405, 501})
_RETRIED = frozenset({408, 409, 425, 429})
_QUEUE_FULL = "token_limit_exceeded"  # more tokens wait in the account's batches than it may have there


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Requests that go, or went, into one batch."""

    mark: str  # what its batch carries: a hash of its keys and tries
    endpoint: str
    model: str
    step: Step  # how the form of the answers is asked for
    keys: tuple[str, ...]
    tries: int = 0  # batches in which its lines came to nothing before
    batch_id: str | None = None  # None until the endpoint has said it
    planned_at: float = 0.0  # seconds since the epoch, by the journal's clock


class BatchJournal(Protocol):
    """What is under way, for every process that shares it; each change outlives a kill once its method returns."""

    def turn(self) -> AbstractContextManager[object]:
        """Held by one process at a time, and let go when that process dies."""

    def plan(self, chunk: Chunk) -> None:
        """Note a chunk before anything of it is sent; its keys are under way from now on."""

    def submitted(self, mark: str, batch_id: str) -> None:
        """Note the batch of a chunk."""

    def drop(self, mark: str) -> None:
        """Forget a chunk of which no batch was made."""

    def under_way(self, endpoint: str, keys: Sequence[str]) -> list[Chunk]:
        """The chunks that hold any of the keys, each with all its keys that are still under way, oldest first."""

    def tries(self, endpoint: str, keys: Sequence[str]) -> dict[str, int]:
        """In how many batches the keys came to nothing, where that is so and they are not under way."""

    def settle(self, mark: str, answered: Sequence[str], unanswered: Mapping[str, int]) -> None:
        """Take keys out of a chunk, in one step: those that were answered, and with their tries those that were not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """How far a batch is."""

    batch_id: str
    status: str  # as the endpoint has it: validating, in_progress, …; ``gone`` where it knows no such batch
    lines: int
    done: int
    since: float  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What `OpenAIBatches.answer` did."""

    usage: Usage = field(default_factory=Usage)  # lines that the endpoint answered count as requests
    submitted: int = 0  # batches
    answered: int = 0  # requests whose outcome came into the cache, the few that were asked singly first included
    left: int = 0  # requests that are left to single calls
    notes: tuple[str, ...] = ()  # sentences: batches that failed, and why


class OpenAIBatches:
    """Answers requests through the Batch API of a model's endpoint.

    Args:
        chat: The model; its cache must be kept in a file.
        journal: What is under way.
        sleep: Waits between looks at a batch.
        tell: Told how far each batch is, at each look.
        most_lines: Lines of a batch at most.
        most_bytes: Bytes of its file at most.

    Raises:
        RuleError: The model has no cache.
    """

    def __init__(
        self,
        chat: OpenAIChatModel,
        journal: BatchJournal,
        *,
        sleep: Callable[[float], object] = time.sleep,
        tell: Callable[[BatchState], object] | None = None,
        most_lines: int = MOST_LINES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if not chat.has_cache:
            raise RuleError("a batch's answers come into the answer cache, and there is none; set STEF_CACHE")
        self._chat, self._journal, self._tell = chat, journal, tell
        self._api, self._sleep = _Api(chat, sleep), sleep
        self._most_lines, self._most_bytes = most_lines, most_bytes
        self._at_once: int | None = None  # lines under way at most; set where the endpoint's queue was full
        self._held: dict[str, Reservation] = {}
        self._used, self._submitted = Usage(), 0
        self._answered: set[str] = set()
        self._notes: list[str] = []
        self.waiting: tuple[str, ...] = ()  # ids of the batches that go on when this is interrupted

    def answer(self, requests: Sequence[ChatRequest]) -> BatchReport:
        """Wait until every request is in the cache or left to single calls; batches under way are collected, not made again.

        Raises:
            RuleError: The endpoint has no Batch API, or refuses the key or the batch.
            TransientError: The endpoint or the cache could not be reached; calling it again goes on where this ended.
        """
        wanted = {request.key: request for request in requests}
        if not wanted:
            return BatchReport()
        try:
            for number in itertools.count():
                live = self._submit(wanted, is_first=number == 0)
                if not live:
                    break
                self._wait(live, wanted)
        finally:
            for held in self._held.values():
                self._chat.release(held, Usage())
            self._held.clear()
        return BatchReport(
            usage=self._used,
            submitted=self._submitted,
            answered=len(self._answered),
            left=len(wanted) - len(self._chat.stored(wanted)),
            notes=tuple(self._notes),
        )

    # --- submit ---

    def _pending(self, wanted: Mapping[str, ChatRequest], under_way: Sequence[Chunk]) -> dict[int, list[str]]:
        """Keys that may go into a batch, by their tries."""
        keys = list(wanted)
        # what was answered here is not asked here again, even where the cache would not take it
        taken = {key for chunk in under_way for key in chunk.keys} | self._chat.stored(wanted) | self._answered
        tries = self._journal.tries(self._chat.endpoint, keys)
        pending: dict[int, list[str]] = {}
        for key in keys:
            if key not in taken and tries.get(key, 0) < MOST_TRIES:
                pending.setdefault(tries.get(key, 0), []).append(key)
        return pending

    def _learn(self, wanted: Mapping[str, ChatRequest], pending: Mapping[int, Sequence[str]]) -> bool:
        """Ask single requests until the endpoint has shown what it accepts, as a whole batch would fail for a wrong form.

        Returns:
            Whether anything may be submitted.
        """
        unknown: dict[str, list[ChatRequest]] = {}
        for key in itertools.chain(*pending.values()):
            if not self._chat.knows_way(wanted[key].model):
                unknown.setdefault(wanted[key].model, []).append(wanted[key])
        for requests in unknown.values():
            requests.sort(key=lambda r: sum(len(m.content) for m in r.messages))
            for request in requests[:PROBES]:
                (outcome,), used = self._chat.ask([request], raise_if_down=True)
                self._used += used
                if isinstance(outcome, ChatAnswer) or outcome.reason in SETTLED:
                    self._answered.add(request.key)
                    break
                if outcome.reason == "judge_unavailable":
                    raise TransientError(outcome.message)
                logger.warning("nothing is submitted yet: %s", outcome.message)
            else:
                return False
        return True

    def _submit(self, wanted: Mapping[str, ChatRequest], *, is_first: bool) -> list[Chunk]:
        """Make batches of what is not under way, as far as the budget goes; all batches that are under way."""
        endpoint, keys = self._chat.endpoint, list(wanted)
        with self._journal.turn():
            live = self._recovered(wanted)
            for chunk in live:
                if chunk.mark not in self._held:
                    self._held[chunk.mark] = self._hold([wanted[key] for key in chunk.keys if key in wanted], sent=True)
            pending = self._pending(wanted, live)
            pending = self._pending(wanted, live) if self._learn(wanted, pending) else {}
            waiting = sum(map(len, pending.values()))
            room = waiting if self._at_once is None else max(0, self._at_once - sum(len(chunk.keys) for chunk in live))
            for tries, keys_of in sorted(pending.items()):
                requests, room = [wanted[key] for key in keys_of[:room]], room - len(keys_of[:room])
                for lines in self._files(requests):
                    held = self._hold([request for request, _ in lines])
                    if not held.calls or (not is_first and held.calls < min(len(lines), WORTH * waiting)):
                        self._chat.release(held, Usage())
                        return self._journal.under_way(endpoint, keys)
                    self._make(lines[: held.calls], tries, held)
                    if held.calls < len(lines):
                        return self._journal.under_way(endpoint, keys)
            return self._journal.under_way(endpoint, keys)

    def _recovered(self, wanted: Mapping[str, ChatRequest]) -> list[Chunk]:
        """Chunks under way; the batch of one whose process died before it was noted is looked for."""
        live = []
        for chunk in self._journal.under_way(self._chat.endpoint, list(wanted)):
            if chunk.batch_id is None:
                batch_id = self._api.find(chunk.mark, chunk.planned_at - CLOCKS_APART_S)
                if batch_id is None:
                    self._journal.drop(chunk.mark)
                    continue
                self._journal.submitted(chunk.mark, batch_id)
            live.append(chunk)
        return live

    def _hold(self, requests: Sequence[ChatRequest], *, sent: bool = False) -> Reservation:
        sizes = [(sum(tokens_of(m.content) for m in r.messages), r.max_tokens) for r in requests]
        return self._chat.hold(requests[0].model if requests else "", sizes, sent=sent)

    def _files(self, requests: Sequence[ChatRequest]) -> Iterator[list[tuple[ChatRequest, bytes]]]:
        """Requests with their lines, in parts that fit a file; one part has one model."""
        by_model: dict[str, list[ChatRequest]] = {}
        for request in requests:
            by_model.setdefault(request.model, []).append(request)
        for same in by_model.values():
            part: list[tuple[ChatRequest, bytes]] = []
            size = 0
            for request in same:
                line = self._line(request)
                if part and (len(part) == self._most_lines or size + len(line) > self._most_bytes):
                    yield part
                    part, size = [], 0
                part.append((request, line))
                size += len(line)
            yield part

    def _line(self, request: ChatRequest) -> bytes:
        line = {"custom_id": request.key, "method": "POST", "url": URL, "body": self._chat.arguments(request)}
        # escaped, so that no sign inside a text can be taken for the end of a line
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _make(self, lines: Sequence[tuple[ChatRequest, bytes]], tries: int, held: Reservation) -> None:
        keys, model = tuple(request.key for request, _ in lines), lines[0][0].model
        mark = hashlib.sha256("\n".join([str(tries), *sorted(keys)]).encode()).hexdigest()
        step = self._chat.step(model)
        self._held[mark] = held
        self._journal.plan(Chunk(mark=mark, endpoint=self._chat.endpoint, model=model, step=step, keys=keys, tries=tries))
        batch_id = self._api.submit(b"".join(line for _, line in lines), mark)
        self._journal.submitted(mark, batch_id)
        self._submitted += 1
        self.waiting += (batch_id,)
        logger.info("batch %s: %d requests submitted", batch_id, len(keys))

    # --- wait and collect ---

    def _wait(self, live: Sequence[Chunk], wanted: Mapping[str, ChatRequest]) -> None:
        under_way = sum(len(chunk.keys) for chunk in live)
        pause, waiting = POLL_S, list(live)
        while waiting:
            self.waiting = tuple(chunk.batch_id or "" for chunk in waiting)
            for chunk in tuple(waiting):
                batch = self._api.batch(chunk.batch_id or "")
                status = batch.status if batch is not None else "gone"
                self._report(chunk, batch, status)
                if batch is not None and status not in _ENDED:
                    continue
                self._collect(chunk, batch, status, wanted, under_way)
                waiting.remove(chunk)
            if waiting:
                self._sleep(pause)
                pause = min(POLL_MAX_S, POLL_GROWTH * pause)
        self.waiting = ()

    def _report(self, chunk: Chunk, batch: Any, status: str) -> None:
        if self._tell is None:
            return
        counts = getattr(batch, "request_counts", None)
        done = sum(n for side in ("completed", "failed") if isinstance(n := getattr(counts, side, 0), int))
        self._tell(
            BatchState(batch_id=chunk.batch_id or "", status=status, lines=len(chunk.keys), done=done, since=chunk.planned_at)
        )

    def _collect(self, chunk: Chunk, batch: Any, status: str, wanted: Mapping[str, ChatRequest], under_way: int) -> None:
        with self._journal.turn():
            # what another process has collected meanwhile is no longer under way
            now = [each for each in self._journal.under_way(chunk.endpoint, chunk.keys) if each.mark == chunk.mark]
            mine = {key: wanted[key] for each in now for key in each.keys if key in wanted}
            answered: list[str] = []
            heard: set[str] = set()
            used = Usage()
            price = self._chat.budget.price(chunk.model)
            for lines in self._lines(batch, mine, chunk.step):
                outcomes = {key: line.outcome for key, line in lines.items() if line.outcome is not None}
                self._chat.keep(mine, outcomes)
                answered += outcomes
                heard |= lines.keys()
                tokens_in, tokens_out = (
                    sum(getattr(line, f"tokens_{side}") for line in lines.values()) for side in ("in", "out")
                )
                cost = price.of(tokens_in, tokens_out, batched=True)
                used += Usage(requests=len(lines), tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)
            if mine:
                unheard = self._tries_of_unheard(chunk, batch, status, under_way)
                missed = mine.keys() - set(answered)
                self._journal.settle(chunk.mark, answered, {key: MOST_TRIES if key in heard else unheard for key in missed})
        self._chat.release(self._held.pop(chunk.mark), used)
        self._used += used
        self._answered |= set(answered)
        logger.info("batch %s %s: %d of %d requests answered", chunk.batch_id, status, len(answered), len(mine))

    def _tries_of_unheard(self, chunk: Chunk, batch: Any, status: str, under_way: int) -> int:
        """The tries of lines to which a batch that has ended holds no response."""
        if status == "completed":
            return MOST_TRIES  # the endpoint lost them once; singly they have their own retries
        errors = getattr(getattr(batch, "errors", None), "data", None) or []
        said = "; ".join(self._api.clean(str(getattr(error, "message", error))) for error in errors[:3])
        self._notes.append(
            f"batch {chunk.batch_id} {'is not known there' if status == 'gone' else status}{said and f': {said}'}"
        )
        logger.warning("%s", self._notes[-1])
        if any(getattr(error, "code", None) == _QUEUE_FULL for error in errors):
            self._at_once = under_way // 2  # no fault of the lines: fewer at once may fit
            return chunk.tries
        return chunk.tries + 1

    def _lines(self, batch: Any, requests: Mapping[str, ChatRequest], step: Step) -> Iterator[dict[str, Line]]:
        """What the lines of an ended batch came to, by key, in groups; those without a response are not among them."""
        group: dict[str, Line] = {}
        seen: set[str] = set()
        files = [getattr(batch, f"{kind}_file_id", None) for kind in ("output", "error")] if requests else []
        for raw in itertools.chain.from_iterable(self._api.lines(file_id) for file_id in files if file_id):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue  # cut off or not JSON: as if it were missing
            if not isinstance(line, dict):
                continue
            key, response = line.get("custom_id"), line.get("response")
            if not isinstance(key, str) or key not in requests or key in seen or not isinstance(response, dict):
                continue
            seen.add(key)
            status = response.get("status_code")
            status = status if isinstance(status, int) else 0
            group[key] = self._chat.read_line(requests[key], status, response.get("body"), step)
            if len(group) == KEPT_AT_ONCE:
                yield group
                group = {}
        yield group


def check_batch_api(chat: OpenAIChatModel, *, sleep: Callable[[float], object] = time.sleep) -> None:
    """See that the endpoint of a model has a Batch API.

    Raises:
        RuleError: It has none, or refuses the key.
        TransientError: It cannot be reached.
    """
    _Api(chat, sleep).check()


class _AbsentError(StefError):
    """The endpoint has no such path or thing."""


class _Api:
    """Files and batches of an endpoint, each call retried."""

    def __init__(self, chat: OpenAIChatModel, sleep: Callable[[float], object]) -> None:
        self._chat, self._sleep = chat, sleep

    def check(self) -> None:
        async def first(client: AsyncOpenAI) -> bool:
            try:
                return isinstance((await client.batches.list(limit=1)).data, list)
            except AttributeError:  # the client takes the text of a page for its list
                return False

        if not self._there("GET /batches", first):
            raise self._no_batches("a page instead of JSON", "GET /batches")

    def submit(self, data: bytes, mark: str) -> str:
        """Send a file and make its batch; the batch's id."""

        async def upload(client: AsyncOpenAI) -> str:
            file = (f"stef-{mark[:16]}.jsonl", data, "application/jsonl")
            return self._id(await client.files.create(file=file, purpose="batch", timeout=TRANSFER_TIMEOUT_S), "POST /files")

        async def make(client: AsyncOpenAI) -> str:
            made = await client.batches.create(
                input_file_id=file_id, endpoint=URL, completion_window="24h", metadata={"stef": mark}
            )
            return self._id(made, "POST /batches")

        file_id = self._there("POST /files", upload)
        return self._there("POST /batches", make, instead=lambda: self.find(mark))

    def find(self, mark: str, since: float | None = None) -> str | None:
        """The batch with a mark, looked for among the newest hundred, or among all made since a moment."""

        async def look(client: AsyncOpenAI) -> str | None:
            number = 0
            try:
                async for batch in client.batches.list(limit=100):
                    number += 1
                    if (batch.metadata or {}).get("stef") == mark and batch.status not in _DEAD:
                        return batch.id
                    if number >= 100 and (since is None or (batch.created_at or 0) < since):
                        break
            except AttributeError as error:
                raise ValueError("a page instead of JSON") from error
            return None

        return self._there("GET /batches", look)

    def batch(self, batch_id: str) -> Any:
        """The state of a batch; None where the endpoint knows no such one."""

        async def look(client: AsyncOpenAI) -> Any:
            batch = await client.batches.retrieve(batch_id)
            if not isinstance(getattr(batch, "status", None), str):
                raise ValueError("a page instead of JSON")
            return batch

        try:
            return self._send("GET /batches", look, retries=POLL_RETRIES)
        except _AbsentError:
            return None

    def lines(self, file_id: str) -> list[bytes]:
        """The lines of a file; none where it is gone."""

        async def content(client: AsyncOpenAI) -> list[bytes]:
            whole = (await client.files.content(file_id, timeout=TRANSFER_TIMEOUT_S)).content
            # not splitlines, which splits at signs that JSON may hold unescaped
            lines = [line for line in whole.split(b"\n") if line.strip()]
            if lines and not lines[0].lstrip().startswith(b"{"):
                raise ValueError("a page instead of a file")  # lines that are taken for missing would be paid for again
            return lines

        try:
            return self._send("GET /files", content, retries=POLL_RETRIES)
        except _AbsentError:
            logger.warning("file %s is gone at %s", file_id, self._chat.endpoint)
            return []

    def clean(self, text: str) -> str:
        return self._chat.clean(text)

    def _there(
        self, what: str, work: Callable[[AsyncOpenAI], Awaitable[T]], instead: Callable[[], T | None] | None = None
    ) -> T:
        try:
            return self._send(what, work, instead=instead)
        except _AbsentError as error:
            raise self._no_batches(str(error), what) from error

    def _send(
        self,
        what: str,
        work: Callable[[AsyncOpenAI], Awaitable[T]],
        *,
        instead: Callable[[], T | None] | None = None,
        retries: int = SEND_RETRIES,
    ) -> T:
        """One exchange; after an attempt of which nobody knows what came of it, `instead` may know."""
        import openai

        where = self._chat.endpoint
        for attempt in itertools.count():
            wait_s = None
            try:
                return self._chat.call(work)
            except openai.APIStatusError as error:
                if error.status_code in _ABSENT:
                    raise _AbsentError(f"{error.status_code}") from error
                detail = self.clean(error.message)
                quota = "insufficient_quota" in f"{error.code} {error.type}"
                if quota or (error.status_code not in _RETRIED and error.status_code < 500):
                    raise RuleError(self._refusal(what, error.status_code, detail)) from error
                message, wait_s = (
                    f"{where} answers {error.status_code} to {what}: {detail}",
                    retry_after(error.response.headers),
                )
            except (openai.OpenAIError, ValueError, TimeoutError) as error:
                cause = error.__cause__ or error
                message = (
                    f"{where}: {what} got no response: {self.clean(str(cause) or type(cause).__name__)}; check STEF_BASE_URL"
                )
            if attempt == retries:
                raise TransientError(f"{message} ({attempt + 1} attempts)")
            self._sleep(min(POLL_MAX_S, 0.5 * 2.0**attempt) if wait_s is None else min(wait_s, RETRY_AFTER_MAX_S))
            if instead is not None and (found := instead()) is not None:
                return found
        raise AssertionError("unreachable")

    def _refusal(self, what: str, status: int, detail: str) -> str:
        hint = {
            401: "set STEF_API_KEY or OPENAI_API_KEY",
            402: "the account's quota is used up; raise it or use another key",
            403: "the key may not use the Batch API; use another, or run without --batch",
            429: "the account's quota is used up; raise it or use another key",
        }.get(status, "run without --batch to ask singly")
        return f"{self._chat.endpoint} answers {status} to {what}: {detail}; {hint}"

    def _no_batches(self, said: str, what: str) -> RuleError:
        return RuleError(f"{self._chat.endpoint} has no Batch API (it answers {said} to {what}); run without --batch")

    def _id(self, made: Any, what: str) -> str:
        found = getattr(made, "id", None)
        if not isinstance(found, str) or not found:
            raise self._no_batches("something else than JSON with an id", what)
        return found
