"""Asks models behind any OpenAI-compatible endpoint, exactly, at a bearable pace and within a budget.

With `stef_core.openai_batch` the only module that imports openai. Retries of a single call live here; retries of a batch belong
to the task that sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from stef_core.budget import Budget, Reservation, tokens_of
from stef_core.errors import StefError, TransientError
from stef_core.llm import (
    SETTLED,
    STEPS,
    AnswerCache,
    ChatAnswer,
    ChatFailure,
    ChatRequest,
    Message,
    Outcome,
    Reason,
    Step,
    StoredAnswer,
    Usage,
    answer_problem,
    dumps,
    json_text,
)
from stef_core.pacing import Circuit, Rate, Slots

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

T = TypeVar("T")

OPENAI_URL = "https://api.openai.com/v1"
RETRY_AFTER_MAX_S = 60.0  # a longer wait that the endpoint asks for is cut to this
BACKOFF_S, BACKOFF_MAX_S = 0.5, 20.0
# how long others wait for the first request to find out what the endpoint accepts; a 400 comes at once, an answer may not
PROBE_S = 2.0

KEY_QUOTED = 8  # characters from which on the beginning of the key is taken for the key in a message of the endpoint
KEY_LONG = 16  # characters from which on a key is looked for in answers, where a shorter one may be any word

_RETRIED = frozenset({408, 409, 425, 429})
_THROTTLED = frozenset({429, 503})
_NOBODY_THERE = frozenset({502, 503, 504})  # a gateway answered for an endpoint that did not
_FORM_WORDS = re.compile(r"response_format|json_schema|json_object|structured.?output|guided", re.IGNORECASE)
_REPAIR = (
    "Your answer does not fit the JSON Schema: {problem}\n"
    "Answer again with one JSON object and nothing else. The JSON Schema is:\n{schema}"
)
_SCHEMA_NOTE = "\n\nAnswer with one JSON object and nothing else. It must fit this JSON Schema:\n{schema}"
_AZURE = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")


@dataclass(frozen=True, slots=True)
class _Way:
    """What an endpoint accepts for one model, found out by its 400s."""

    step: int = 0
    tokens: str = "max_tokens"
    temperature: bool = True
    seed: bool = True
    logprobs: bool = True


@dataclass(frozen=True, slots=True)
class _Raw:
    """Text of one response, before it is validated."""

    text: str
    tokens_in: int
    tokens_out: int
    step: Step
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class _Fault:
    """A response, or none, that may be better next time; `reason` is what it becomes when it is not."""

    message: str
    reason: Reason = "judge_unavailable"
    wait_s: float | None = None
    connected: bool = True
    throttled: bool = False
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ErrorResponse:
    """What an endpoint says where it answers with an error status."""

    status: int
    message: str
    code: str | None = None
    kind: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Unaccepted:
    """A 400 or 422: `way` is what to try instead, `sure` that the endpoint named the part it does not take."""

    message: str
    way: _Way | None
    sure: bool


@dataclass(frozen=True, slots=True)
class _Stop:
    """A failure that every request of this call would share: a wrong key, an unknown model, an empty account."""

    failure: ChatFailure


@dataclass(slots=True)
class _Call:
    """State of one `complete_many`: `settled` is an outcome that holds for all requests not yet sent."""

    settled: ChatFailure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a line of a batch came to; `outcome` is None where it must be asked again, singly."""

    outcome: Outcome | None
    tokens_in: int = 0
    tokens_out: int = 0


class OpenAIChatModel:
    """A model behind an OpenAI-compatible endpoint (OpenAI, Azure, vLLM, Ollama, LiteLLM, …).

    Requests run on one background thread with one event loop and one HTTP client, so any number of threads may share a model.
    429, 5xx, timeouts and broken connections are retried with growing, jittered pauses; ``Retry-After`` is honoured up to
    `RETRY_AFTER_MAX_S`, and 429s lower the number of requests in flight for a while. When a request has used up its attempts
    and nobody answers anyone, the circuit opens: the rest fails at once, and one request at a time tries whether somebody is
    back. The answer's form is asked for by JSON Schema, by JSON mode where the endpoint refuses that, and in words where it
    refuses both; an answer outside its schema gets one repair request.

    Args:
        model: Model id.
        base_url: Address of the API, usually ending in ``/v1``; OpenAI's own where None.
        api_key: Key; never part of a message or a log line.
        concurrency: Requests in flight at most.
        timeout_s: Seconds for one attempt, connecting included.
        retries: Further attempts after the first.
        cache: Keeps answers as they arrive.
        budget: What may be spent, and prices; without it nothing is limited and costs are 0.
        requests_per_minute: Requests sent in any minute at most, retries included.
        tokens_per_minute: Tokens of prompts and answers in any minute at most, as estimated before and known after.
        clock: Seconds that only grow, for pace and circuit; the event loop's own where None.
        sleep: Waits between attempts.
        jitter: A number in 0-1 that spreads the pauses.
    """

    name = "openai"

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        base_url: str | None = None,
        concurrency: int = 16,
        timeout_s: float = 60.0,
        retries: int = 4,
        cache: AnswerCache | None = None,
        budget: Budget | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._base_url, self._api_key = base_url or OPENAI_URL, api_key
        self._concurrency, self._timeout_s, self._retries = concurrency, timeout_s, retries
        self._cache, self._clock, self._sleep, self._jitter = cache, clock, sleep, jitter
        self._ways: dict[str, _Way] = {}
        self._proven: set[tuple[str, int]] = set()  # (model, step) that an answer came back on
        self._probes: dict[str, asyncio.Event] = {}
        self._in_flight: dict[str, asyncio.Task[Outcome]] = {}
        self._unwritten: list[tuple[str, StoredAnswer, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._usage = Usage()
        self._responses = 0  # of the endpoint, whatever they said
        self._lost = ChatFailure(reason="judge_unavailable", message="nobody answered", connected=False)
        self._answer_tokens = 300.0  # of an answer, as a running mean; a guess until the first one came
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._client: AsyncOpenAI | None = None
        self.budget = budget or Budget()
        self._requests_per_minute, self._tokens_per_minute = requests_per_minute, tokens_per_minute
        self._cache_warned = False
        self._closed = False

    def __enter__(self) -> OpenAIChatModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def usage(self) -> Usage:
        """What was asked since the model was opened."""
        return self._usage

    def step(self, model: str | None = None) -> Step:
        """How the form of answers is asked for at present: ``json_schema``, ``json_object`` or ``text``."""
        return STEPS[self._ways.get(model or self.model, _Way()).step]

    @property
    def is_down(self) -> bool:
        """Whether a request has used up its attempts and nobody has answered since."""
        return self._thread is not None and self._circuit.is_open

    def session(self) -> ChatSession:
        """The same model with a count of its own."""
        return ChatSession(self)

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """As `ChatModel.complete_many`.

        Raises:
            TransientError: Only with `raise_if_down`: the endpoint is away. What it answered before is in the cache; without a
                cache it is raised only when nothing of this call was answered.
        """
        return self.ask(requests, raise_if_down=raise_if_down)[0]

    def ask(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> tuple[list[Outcome], Usage]:
        """`complete_many`, and what it took."""
        keys = [request.key for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        outcomes = self._kept(distinct)
        asked = {key: request for key, request in distinct.items() if key not in outcomes}
        call = _Call()
        if asked:
            outcomes |= self._run(self._ask_all(asked, call))
        away = [o for key in asked if isinstance(o := outcomes[key], ChatFailure) and not o.connected]
        if raise_if_down and away and (len(away) == len(asked) or (self.is_down and self._cache is not None)):
            raise TransientError(away[0].message)
        self._count(call, Usage(cache_hits=len(keys) - len(asked)))
        seen: set[str] = set()
        ordered: list[Outcome] = []
        for key in keys:
            ordered.append(replace(outcomes[key], cached=True) if key in seen else outcomes[key])
            seen.add(key)
        return ordered, call.usage

    def close(self) -> None:
        """End the background thread and the client; the cache stays open, as its owner is the caller."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        if self._writer is not None:
            self._writer.shutdown()

    # --- for batches ---

    @property
    def endpoint(self) -> str:
        """Address of the API, without credentials."""
        return self._where

    @property
    def has_cache(self) -> bool:
        """Whether answers are kept."""
        return self._cache is not None

    def knows_way(self, model: str) -> bool:
        """Whether an answer of a model has shown what its endpoint accepts."""
        return any(known == model for known, _ in self._proven)

    def arguments(self, request: ChatRequest) -> dict[str, Any]:
        """The body of the HTTP request that a single call would send at present."""
        return _arguments(request, request.messages, self._ways.get(request.model, _Way()))

    def clean(self, text: str) -> str:
        """A text of the endpoint in one short line, without the key."""
        return self._clean(text)

    def call(self, work: Callable[[AsyncOpenAI], Awaitable[T]]) -> T:
        """One exchange with another part of the API; the errors of the openai package pass."""

        async def exchange() -> T:
            return await work(self._open_client())

        return self._run(exchange())

    def stored(self, requests: Mapping[str, ChatRequest]) -> set[str]:
        """Keys of the requests whose outcome is in the cache.

        Raises:
            StefError: The cache cannot be read.
        """
        return set(self._cached(requests))

    def keep(self, requests: Mapping[str, ChatRequest], outcomes: Mapping[str, Outcome]) -> None:
        """Put outcomes into the cache; when this returns, a kill does not lose them.

        Raises:
            StefError: The cache cannot be written.
        """
        if self._cache is not None and outcomes:
            self._cache.put_many({key: _stored(requests[key], outcome) for key, outcome in outcomes.items()})

    def read_line(self, request: ChatRequest, status: int, body: Any, step: Step) -> Line:
        """Read the response to one line of a batch as that to a single call.

        Args:
            request: What the line asked.
            status: HTTP status of the response.
            body: Its JSON.
            step: How the form of the answer was asked for.
        """
        if not isinstance(body, dict):
            return Line(outcome=None)
        if status != 200:
            said = body.get("error")
            said = said if isinstance(said, dict) else {"message": str(said)}
            error = _ErrorResponse(
                status=status,
                message=str(said.get("message")),
                code=_word(said.get("code")),
                kind=_word(said.get("type")),
                param=_word(said.get("param")),
            )
            refused = self._refused(error, request, _Way(step=STEPS.index(step)))
            return Line(outcome=refused if isinstance(refused, ChatFailure) and refused.reason in SETTLED else None)
        from openai.types.chat import ChatCompletion

        raw = self._read(ChatCompletion.construct(**body), request, step)
        figures: Any = {"tokens_in": raw.tokens_in, "tokens_out": raw.tokens_out}
        if isinstance(raw, _Raw):
            text, problem = _fitted(raw, request)
            return Line(outcome=None if problem else self._given(request, raw, text, calls=1, **figures), **figures)
        settled = isinstance(raw, ChatFailure) and raw.reason in SETTLED
        return Line(outcome=raw if settled else None, **figures)  # type: ignore[arg-type]  # settled: a ChatFailure

    def hold(self, model: str, lines: Sequence[tuple[int, int]], *, sent: bool = False) -> Reservation:
        """As `Budget.hold`."""

        async def reserve() -> Reservation:
            return self.budget.hold(model, lines, sent=sent)

        return self._run(reserve())

    def release(self, held: Reservation, used: Usage) -> None:
        """Book what a batch took in the place of what was held for it."""

        async def book() -> None:
            self.budget.release(held)
            self.budget.book(calls=used.requests, tokens=used.tokens_in + used.tokens_out, cost=used.cost)

        self._run(book())
        with self._lock:
            self._usage += used

    # --- background loop ---

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                work.close()
                raise RuntimeError("this model is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._pace(self._clock or self._loop.time)
                self._thread = threading.Thread(target=self._loop.run_forever, name="stef-llm", daemon=True)
                self._thread.start()
                # one writer keeps the loop free while a busy cache makes it wait
                self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stef-answers")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _pace(self, clock: Callable[[], float]) -> None:
        self._slots, self._circuit = Slots(self._concurrency, clock), Circuit(clock)
        self._request_rate, self._token_rate = (
            None if limit is None else Rate(limit, clock) for limit in (self._requests_per_minute, self._tokens_per_minute)
        )

    async def _shut(self) -> None:
        for task in tuple(self._in_flight.values()):
            task.cancel()
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            await asyncio.sleep(0.01)  # transports close one turn of the loop later

    def _open_client(self) -> AsyncOpenAI:
        if self._client is None:
            import openai  # slow import: pay when the first request is sent

            http: Any
            try:
                http = openai.DefaultAioHttpClient(timeout=self._timeout_s)  # a quarter faster than the default transport
            except RuntimeError:
                http = openai.DefaultAsyncHttpxClient(timeout=self._timeout_s)
            parts = urlsplit(self._base_url)
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key,
                base_url=urlunsplit(parts._replace(query="")),
                default_query=dict(parse_qsl(parts.query)),  # Azure's api-version
                default_headers={"api-key": self._api_key} if (parts.hostname or "").endswith(_AZURE) else {},
                max_retries=0,
                timeout=self._timeout_s,
                http_client=http,
            )
        return self._client

    async def _ask_all(self, requests: Mapping[str, ChatRequest], call: _Call) -> dict[str, Outcome]:
        tasks = {key: self._task(key, request, call) for key, request in requests.items()}
        # shielded: when one caller goes away, an answer under way is still kept, and others may wait for it
        answers = await asyncio.gather(*(asyncio.shield(task) for task in tasks.values()))
        return dict(zip(tasks, answers, strict=True))

    def _task(self, key: str, request: ChatRequest, call: _Call) -> asyncio.Task[Outcome]:
        if key not in self._in_flight:
            task = asyncio.get_running_loop().create_task(self._ask(key, request, call))
            self._in_flight[key] = task
            task.add_done_callback(lambda _: self._in_flight.pop(key, None))
        return self._in_flight[key]

    async def _ask(self, key: str, request: ChatRequest, call: _Call) -> Outcome:
        await self._slots.acquire()
        try:
            if call.settled is not None:
                return call.settled
            outcome = await self._answer(request, call)
            if isinstance(outcome, ChatAnswer) or outcome.reason in SETTLED:
                await self._keep(key, request, outcome)  # within the slot: a kill loses no more than what is in flight
        finally:
            self._slots.release()
        return outcome

    async def _answer(self, request: ChatRequest, call: _Call) -> Outcome:
        tokens_in = tokens_out = calls = 0
        messages, problem = request.messages, ""
        for _ in range(2):  # the question, and one repair
            raw = await self._converse(request, messages, call)
            tokens_in, tokens_out = tokens_in + raw.tokens_in, tokens_out + raw.tokens_out
            cost = self.budget.price(request.model).of(tokens_in, tokens_out)
            if isinstance(raw, ChatFailure):
                return replace(raw, tokens_in=tokens_in, tokens_out=tokens_out, calls=raw.calls + calls, cost=cost)
            calls += 1
            text, problem = _fitted(raw, request)
            if not problem:
                return self._given(request, raw, text, tokens_in=tokens_in, tokens_out=tokens_out, calls=calls)
            repair = _REPAIR.format(problem=problem, schema=dumps(request.schema))
            messages = (*messages, Message(role="assistant", content=raw.text), Message(role="user", content=repair))
        return ChatFailure(
            reason="judge_invalid",
            message=f"The model's answer is outside its schema, also after one repair request: {problem}",
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            calls=calls,
            cost=cost,
        )

    def _given(self, request: ChatRequest, raw: _Raw, text: str, *, tokens_in: int, tokens_out: int, calls: int) -> ChatAnswer:
        return ChatAnswer(
            text=text,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            model=request.model,
            calls=calls,
            step=raw.step,
            cost=self.budget.price(request.model).of(tokens_in, tokens_out),
            probability=raw.probability,
        )

    async def _converse(self, request: ChatRequest, messages: Sequence[Message], call: _Call) -> _Raw | ChatFailure:
        """Send until there is a text or the retries are used up."""
        probe = await self._await_probe(request.model)
        trial: _Way | None = None
        attempt, heard = 0, self._responses
        try:
            while True:
                trying = self._circuit.is_open
                if trying and not self._circuit.admits():
                    return self._away(call)
                way = trial or self._ways.get(request.model, _Way())
                result = await self._send(request, messages, way, call)
                if isinstance(result, _Fault) and not result.connected:
                    if trying:
                        return self._give_up(result, attempt + 1, call, self._responses)
                elif not (isinstance(result, ChatFailure) and result.reason == "budget_exhausted"):
                    self._responses += 1
                    self._circuit.answered()
                if isinstance(result, _Unaccepted):
                    known = self._ways.get(request.model, _Way())
                    if trial is None and known != way:
                        continue  # another request found the way meanwhile
                    if result.way is None:
                        return ChatFailure(reason="judge_rejected", message=result.message)
                    if result.sure:
                        self._adopt(request.model, result.way)
                        trial = None
                    else:
                        trial = result.way
                    continue
                if isinstance(result, _Stop):
                    call.settled = result.failure
                    return result.failure
                if isinstance(result, _Raw):
                    if trial is not None:
                        self._adopt(request.model, trial)
                    self._slots.answered()
                    if request.schema:
                        self._proven.add((request.model, way.step))
                if not isinstance(result, _Fault):
                    return result
                if result.throttled:
                    self._slots.throttled()
                probe.set()
                if attempt == self._retries:
                    return self._give_up(result, attempt + 1, call, heard)
                await self._sleep(self._pause(attempt, result.wait_s))
                attempt += 1
                if call.settled is not None:
                    return call.settled
        finally:
            probe.set()

    async def _await_probe(self, model: str) -> asyncio.Event:
        probe = self._probes.get(model)
        if probe is None:
            return self._probes.setdefault(model, asyncio.Event())
        if not probe.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(probe.wait(), PROBE_S)
        return probe

    def _adopt(self, model: str, way: _Way) -> None:
        if self._ways.get(model, _Way()) != way:
            logger.info("model %s takes %s, answers asked for as %s", model, way.tokens, STEPS[way.step])
            self._ways[model] = way

    def _give_up(self, fault: _Fault, attempts: int, call: _Call, heard: int) -> ChatFailure:
        times = f" ({attempts} attempts)" if attempts > 1 else ""
        failure = ChatFailure(
            reason=fault.reason,
            message=fault.message + times,
            connected=fault.connected,
            tokens_in=fault.tokens_in,
            tokens_out=fault.tokens_out,
            calls=int(fault.reason == "judge_empty"),
        )
        if not fault.connected and self._responses == heard:
            self._lost = failure
            self._circuit.failed()
            call.settled = failure  # nobody there: the rest would only wait as long again
        return failure

    def _away(self, call: _Call) -> ChatFailure:
        call.settled = self._lost
        return self._lost

    def _pause(self, attempt: int, wait_s: float | None) -> float:
        if wait_s is not None:
            return min(wait_s, RETRY_AFTER_MAX_S) * (1 + 0.1 * self._jitter())
        return min(BACKOFF_MAX_S, BACKOFF_S * 2.0**attempt) * (0.5 + 0.5 * self._jitter())

    async def _send(
        self, request: ChatRequest, messages: Sequence[Message], way: _Way, call: _Call
    ) -> _Raw | ChatFailure | _Fault | _Unaccepted | _Stop:
        if not self.budget.limits and self._request_rate is None and self._token_rate is None:
            return (await self._exchange(request, messages, way, call))[0]
        tokens_in = sum(tokens_of(m.content) for m in messages)
        held = await self.budget.reserve(request.model, tokens_in, request.max_tokens)
        if held is None:
            return self._spent()
        used = Usage(tokens_in=tokens_in)  # of a request that nobody answered; it may be billed all the same
        try:
            promised = tokens_in + min(request.max_tokens, self._answer_tokens)
            rates = ((self._request_rate, 1.0), (self._token_rate, promised))
            wait_s = max((rate.reserve(units) for rate, units in rates if rate is not None), default=0.0)
            if wait_s > 0:
                await self._sleep(wait_s)
            result, used = await self._exchange(request, messages, way, call)
            if self._token_rate is not None:
                self._token_rate.correct(used.tokens_in + used.tokens_out - promised)
            return result
        finally:
            self.budget.settle(held, request.model, used.tokens_in, used.tokens_out)

    def _spent(self) -> ChatFailure:
        return ChatFailure(
            reason="budget_exhausted",
            message=f"the run's budget of {self.budget.used_up} is used up; raise it and run again: answers so far are kept",
        )

    async def _exchange(
        self, request: ChatRequest, messages: Sequence[Message], way: _Way, call: _Call
    ) -> tuple[_Raw | ChatFailure | _Fault | _Unaccepted | _Stop, Usage]:
        """One HTTP request and what it took."""
        self._count(call, Usage(requests=1))
        result = await self._response(request, messages, way)
        used = Usage()
        if not isinstance(result, _Unaccepted | _Stop):
            tokens = (result.tokens_in, result.tokens_out)
            cost = self.budget.price(request.model).of(*tokens)
            used = Usage(tokens_in=tokens[0], tokens_out=tokens[1], cost=cost)
            if any(tokens):
                self._count(call, used)
                self._answer_tokens += 0.05 * (tokens[1] - self._answer_tokens)
        return result, used

    async def _response(
        self, request: ChatRequest, messages: Sequence[Message], way: _Way
    ) -> _Raw | ChatFailure | _Fault | _Unaccepted | _Stop:
        import openai

        try:
            async with asyncio.timeout(self._timeout_s):  # the client's own limit starts again with every byte
                completion = await self._open_client().chat.completions.create(**_arguments(request, messages, way))
        except TimeoutError:
            return _Fault(self._late, connected=False)
        except openai.APIStatusError as error:
            said = _ErrorResponse(
                status=error.status_code,
                message=error.message,
                code=_word(error.code),
                kind=_word(error.type),
                param=_word(error.param),
                headers=error.response.headers,
            )
            return self._refused(said, request, way)
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            # the aiohttp transport calls a refused connection a connect timeout
            if isinstance(error, openai.APITimeoutError) and type(cause).__name__ != "ConnectTimeout":
                return _Fault(self._late, connected=False)
            detail = self._clean(str(cause) or type(cause).__name__)
            return _Fault(f"{self._where} cannot be reached: {detail}; check STEF_BASE_URL", connected=False)
        except (openai.OpenAIError, ValueError) as error:
            return _Fault(f"{self._where} sent a response that is not valid: {self._clean(str(error))}")
        if isinstance(completion, str) or not hasattr(completion, "choices"):
            return _Fault(f"{self._where} sent a page instead of JSON; check STEF_BASE_URL, it usually ends in /v1")
        return self._read(completion, request, STEPS[way.step])

    def _read(self, completion: Any, request: ChatRequest, step: Step) -> _Raw | ChatFailure | _Fault:
        usage = getattr(completion, "usage", None)
        tokens_in, tokens_out = (_count(getattr(usage, f"{side}_tokens", 0)) for side in ("prompt", "completion"))

        def failed(reason: Reason, message: str) -> ChatFailure:
            return ChatFailure(reason=reason, message=message, tokens_in=tokens_in, tokens_out=tokens_out, calls=1)

        choice = completion.choices[0] if isinstance(completion.choices, list) and completion.choices else None
        message = getattr(choice, "message", None)
        if choice is None or message is None:
            error = getattr(completion, "error", None)
            if error:
                return _Fault(f"{self._where} answered with an error: {self._clean(str(error))}")
            return _Fault("The model's response has no choices.", "judge_empty", tokens_in=tokens_in, tokens_out=tokens_out)
        refusal = getattr(message, "refusal", None)
        if refusal:
            return failed("judge_refused", f"The model declined: {self._clean(str(refusal))}")
        finish = getattr(choice, "finish_reason", None)
        if finish == "content_filter":
            return failed("judge_refused", "A content filter of the endpoint stopped the answer.")
        if finish == "length":
            return failed("judge_truncated", f"The answer was cut off at {request.max_tokens} tokens.")
        text = getattr(message, "content", None)
        if not isinstance(text, str) or not text.strip():
            return _Fault("The model's response has no text.", "judge_empty", tokens_in=tokens_in, tokens_out=tokens_out)
        if len(self._api_key) >= KEY_LONG:
            text = text.replace(self._api_key, "***")
        probability = _probability(getattr(choice, "logprobs", None), request.measured) if request.measured else None
        return _Raw(text, tokens_in, tokens_out, step, probability)

    def _refused(self, error: _ErrorResponse, request: ChatRequest, way: _Way) -> ChatFailure | _Fault | _Unaccepted | _Stop:
        status = error.status
        detail = self._clean(error.message)
        code = f"{error.code or ''} {error.kind or ''}"
        if (status == 429 and "insufficient_quota" not in code) or status in _RETRIED - {429} or status >= 500:
            return _Fault(
                f"{self._where} answers {status}: {detail}",
                wait_s=retry_after(error.headers),
                connected=status not in _NOBODY_THERE,
                throttled=status in _THROTTLED,
            )
        said = f"{self._where} answers {status}"
        if status in (400, 422):
            if "content_filter" in code or "content_filter" in detail or "ResponsibleAIPolicy" in detail:
                return ChatFailure(
                    reason="judge_refused", message=f"A content filter of the endpoint declined: {detail}", calls=1
                )
            other, sure = self._other_way(error, detail, request, way)
            return _Unaccepted(f"{said}: {detail}; check STEF_MODEL and the length of question and SQL", other, sure)
        shared = {
            401: "the key is not accepted; set STEF_API_KEY or OPENAI_API_KEY",
            402: "the account's quota is used up; raise it or use another key",
            404: f"no model {request.model!r} there; check STEF_MODEL and STEF_BASE_URL (it usually ends in /v1)",
            429: "the account's quota is used up; raise it or use another key",
        }
        if status in shared:
            return _Stop(ChatFailure(reason="judge_rejected", message=f"{said}: {shared[status]}"))
        hint = {403: "the key may not use this model", 413: "question and SQL are too long"}.get(status, "check STEF_BASE_URL")
        return ChatFailure(reason="judge_rejected", message=f"{said}: {detail}; {hint}")

    def _other_way(self, error: _ErrorResponse, detail: str, request: ChatRequest, way: _Way) -> tuple[_Way | None, bool]:
        def named(parameter: str) -> bool:
            return error.param == parameter or re.search(rf"['\"`]{parameter}['\"`]", detail) is not None

        if way.tokens == "max_tokens" and (named("max_tokens") or "max_completion_tokens" in detail):
            return replace(way, tokens="max_completion_tokens"), True
        if way.temperature and named("temperature"):
            return replace(way, temperature=False), True
        if way.logprobs and request.measured and "logprobs" in f"{error.param or ''} {detail}":
            return replace(way, logprobs=False), True
        if way.seed and request.seed is not None and named("seed"):
            return replace(way, seed=False), True
        if way.step + 1 == len(STEPS) or "context_length" in (error.code or ""):
            return None, True
        lower = replace(way, step=way.step + 1)
        if error.param == "response_format" or _FORM_WORDS.search(detail):
            return lower, True
        # the endpoint does not say what it dislikes: where this step never worked, try the next one for this request
        return (None, True) if (request.model, way.step) in self._proven else (lower, False)

    @property
    def _where(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self._base_url)

    @property
    def _late(self) -> str:
        return f"{self._where} gave no answer within {self._timeout_s:g} s; raise STEF_TIMEOUT_S if it is only slow"

    def _clean(self, text: str) -> str:
        text = self._without_key(" ".join(text.split()))
        return text if len(text) <= 200 else text[:199] + "…"

    def _without_key(self, text: str) -> str:
        """A text in which the endpoint may have quoted the key, or as much of it as its messages hold."""
        for length in range(len(self._api_key), KEY_QUOTED - 1, -1):
            text = text.replace(self._api_key[:length], "***")
        return text.replace(self._api_key, "***") if 4 < len(self._api_key) < KEY_QUOTED else text

    # --- cache and counts ---

    def _kept(self, requests: Mapping[str, ChatRequest]) -> dict[str, Outcome]:
        if self._cache is None or not requests:
            return {}
        try:
            return self._cached(requests)
        except TransientError as error:  # a damaged cache ends the run before anything is paid for
            self._warn(error)
            return {}

    def _cached(self, requests: Mapping[str, ChatRequest]) -> dict[str, Outcome]:
        kept = self._cache.get_many(list(requests)) if self._cache is not None else {}
        outcomes: dict[str, Outcome] = {}
        for key, stored in kept.items():
            figures: Any = {
                "tokens_in": stored.tokens_in,
                "tokens_out": stored.tokens_out,
                "calls": stored.calls,
                "cached": True,
                "cost": self.budget.price(requests[key].model).of(stored.tokens_in, stored.tokens_out),
            }
            if stored.reason is not None:
                outcomes[key] = ChatFailure(reason=stored.reason, message=stored.text, **figures)  # type: ignore[arg-type]
            elif not answer_problem(stored.text, requests[key]):  # kept by an older, laxer version: ask again
                outcomes[key] = ChatAnswer(
                    text=stored.text, model=stored.model, step=stored.step, probability=stored.probability, **figures
                )
        return outcomes

    async def _keep(self, key: str, request: ChatRequest, outcome: Outcome) -> None:
        if self._cache is None or self._writer is None:
            return
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append((key, _stored(request, outcome), kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._cache, self._writer))
        await kept

    async def _write(self, cache: AnswerCache, writer: ThreadPoolExecutor) -> None:
        """Write what waits; what comes in during one write goes into the next, as a thread hop for each answer is dear."""
        try:
            while self._unwritten:
                batch, self._unwritten = self._unwritten, []
                try:
                    answers = {key: stored for key, stored, _ in batch}
                    await asyncio.get_running_loop().run_in_executor(writer, cache.put_many, answers)
                except StefError as error:  # an answer in hand is worth more than its copy
                    self._warn(error)
                finally:
                    for _, _, kept in batch:
                        if not kept.done():
                            kept.set_result(None)
        finally:
            self._writing = None

    def _warn(self, error: StefError) -> None:
        if not self._cache_warned:
            self._cache_warned = True
            logger.warning("answers are not cached: %s", error)

    def _count(self, call: _Call, used: Usage) -> None:
        with self._lock:
            call.usage += used
            self._usage += used


class ChatSession:
    """A `ChatModel` over another one that counts for itself, so that several callers of one model know their own share."""

    def __init__(self, chat: OpenAIChatModel) -> None:
        self.chat = chat
        self.name, self.model = chat.name, chat.model
        self._usage, self._lock = Usage(), threading.Lock()

    @property
    def usage(self) -> Usage:
        """What was asked through this session."""
        return self._usage

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """As `OpenAIChatModel.complete_many`."""
        outcomes, used = self.chat.ask(requests, raise_if_down=raise_if_down)
        with self._lock:
            self._usage += used
        return outcomes

    def close(self) -> None:
        """The model is closed by who opened it."""


def _arguments(request: ChatRequest, messages: Sequence[Message], way: _Way) -> dict[str, Any]:
    sent = [{"role": m.role, "content": m.content} for m in messages]
    arguments: dict[str, Any] = {"model": request.model, way.tokens: request.max_tokens}
    if way.temperature:
        arguments["temperature"] = request.temperature
    if way.seed and request.seed is not None:
        arguments["seed"] = request.seed
    if way.logprobs and request.measured is not None:
        arguments["logprobs"] = True
    if not request.schema:
        return arguments | {"messages": sent}
    if STEPS[way.step] == "json_schema":
        form = {"name": request.schema_name, "schema": request.schema, "strict": True}
        arguments["response_format"] = {"type": "json_schema", "json_schema": form}
    else:
        sent[0] = sent[0] | {"content": sent[0]["content"] + _SCHEMA_NOTE.format(schema=dumps(request.schema))}
    if STEPS[way.step] == "json_object":
        arguments["response_format"] = {"type": "json_object"}
    return arguments | {"messages": sent}


def _word(value: object) -> str | None:
    """A code as text; some endpoints write numbers."""
    return None if value is None else str(value)


def _fitted(raw: _Raw, request: ChatRequest) -> tuple[str, str]:
    """An answer's text freed of what surrounds it, and what is wrong with it; empty when nothing is."""
    text = json_text(raw.text) if request.schema else raw.text.strip()
    return text, answer_problem(text, request)


def _stored(request: ChatRequest, outcome: Outcome) -> StoredAnswer:
    figures: Any = {
        "model": request.model,
        "schema_name": request.schema_name,
        "tokens_in": outcome.tokens_in,
        "tokens_out": outcome.tokens_out,
        "calls": outcome.calls,
    }
    if isinstance(outcome, ChatFailure):
        return StoredAnswer(text=outcome.message, reason=outcome.reason, **figures)
    return StoredAnswer(text=outcome.text, step=outcome.step, probability=outcome.probability, **figures)


def _probability(logprobs: Any, key: str) -> float | None:
    """The probability of the tokens that write the value of a key, 0-1; None where the endpoint does not tell."""
    tokens = [(str(t.token), t.logprob) for t in getattr(logprobs, "content", None) or []]
    *_, last = [None, *re.finditer(rf'"{re.escape(key)}"\s*:\s*"?([^",}}\s]+)', "".join(token for token, _ in tokens))]
    if last is None:
        return None
    total, at = 0.0, 0
    for token, logprob in tokens:
        if at < last.end(1) and at + len(token) > last.start(1):
            if not isinstance(logprob, int | float) or math.isnan(logprob):
                return None
            total += logprob
        at += len(token)
    return math.exp(min(0.0, total))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from ``Retry-After`` (seconds, or a date against the response's own date) or its millisecond form."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    text = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    with contextlib.suppress(ValueError, TypeError):
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    return None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
