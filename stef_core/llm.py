"""Chat models behind any OpenAI-compatible endpoint: one request in, one validated answer or one named failure out.

The only module that imports openai. Retries of a single call live here; retries of a batch belong to the task that sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import random
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ValidationError

from stef_core.errors import StefError, TransientError

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"

Reason: TypeAlias = Literal[
    "judge_unavailable",  # no usable response after all retries
    "judge_refused",  # the model, or a content filter before it, declined
    "judge_truncated",  # cut off at max_tokens
    "judge_empty",  # a response without text
    "judge_invalid",  # text outside the schema, also after one repair request
    "judge_rejected",  # the endpoint refuses the request as such: 400, 401, 404, …
]
Step: TypeAlias = Literal["json_schema", "json_object", "text"]

STEPS: tuple[Step, ...] = ("json_schema", "json_object", "text")  # how an answer's form is asked for, strictest first
RETRY_AFTER_MAX_S = 60.0  # a longer wait that the endpoint asks for is cut to this
BACKOFF_S, BACKOFF_MAX_S = 0.5, 20.0
KEY_QUOTED = 8  # characters from which on the beginning of the key is taken for the key in a message of the endpoint
KEY_LONG = 16  # characters from which on a key is looked for in answers, where a shorter one may be any word
# how long others wait for the first request to find out what the endpoint accepts; a 400 comes at once, an answer may not
PROBE_S = 2.0
# failures that came as an answer and were paid for: asked again they would cost again and, at temperature 0, say the same
SETTLED: frozenset[str] = frozenset({"judge_refused", "judge_truncated", "judge_invalid"})

_RETRIED = frozenset({408, 409, 425, 429})
_NOBODY_THERE = frozenset({502, 503, 504})  # a gateway answered for an endpoint that did not
_FORM_WORDS = re.compile(r"response_format|json_schema|json_object|structured.?output|guided", re.IGNORECASE)
# invisible signs inside JSON text; json.dumps has escaped the controls below U+0020 already
_HIDDEN = re.compile(
    "[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_REPAIR = (
    "Your answer does not fit the JSON Schema: {problem}\n"
    "Answer again with one JSON object and nothing else. The JSON Schema is:\n{schema}"
)
_SCHEMA_NOTE = "\n\nAnswer with one JSON object and nothing else. It must fit this JSON Schema:\n{schema}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One question to a model. `answer` validates what comes back; all the rest determines it and makes the `key`."""

    messages: tuple[Message, ...]
    schema_name: str
    schema: Mapping[str, Any]  # JSON Schema of the answer; an empty one asks for plain text, taken as it comes
    model: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    answer: type[BaseModel] | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """SHA-256, in hex, over everything that determines the answer; the endpoint's address takes no part."""
        content = {
            "messages": [asdict(m) for m in self.messages],
            "schema_name": self.schema_name,
            "schema": self.schema,
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": float(self.temperature),
            "seed": self.seed,
        }
        return hashlib.sha256(_dumps(content).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """An answer that fits its schema.

    `tokens_in`, `tokens_out` and `calls` (model answers it rests on: 2 after a repair) say what the answer took when it was
    given; `cached` says that it cost nothing this time. So a row's figures are the same in every run.
    """

    text: str  # JSON, or plain text where no schema was asked for
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    cached: bool = False
    calls: int = 1
    step: str = "json_schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFailure:
    """Why there is no answer. Figures as in `ChatAnswer`; `connected` False: nobody answered at all."""

    reason: Reason
    message: str
    tokens_in: int = 0
    tokens_out: int = 0
    cached: bool = False
    calls: int = 0
    connected: bool = True


Outcome: TypeAlias = ChatAnswer | ChatFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What a cache keeps of one request: an answer, or a settled failure (`reason` set, `text` its message)."""

    text: str
    reason: str | None = None
    model: str = ""
    schema_name: str = ""
    step: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 1


class AnswerCache(Protocol):
    """Answers by request key; safe to use from several threads and processes at once."""

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Those of the keys that are there."""

    def put_many(self, answers: Mapping[str, StoredAnswer]) -> None:
        """Keep answers, so that a kill after this returns does not lose them; nothing replaces an answer that is there."""

    def close(self) -> None:
        """Give back what is held open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a model was asked since it was opened."""

    requests: int = 0  # HTTP requests sent, retries and repairs included
    cache_hits: int = 0  # answers taken from the cache or shared with an equal request
    tokens_in: int = 0  # paid for in this run
    tokens_out: int = 0


class ChatModel(Protocol):
    """Answers chat requests."""

    @property
    def name(self) -> str:
        """Kind of endpoint: ``openai``."""

    @property
    def model(self) -> str:
        """Model id that requests should carry."""

    @property
    def usage(self) -> Usage:
        """What was asked so far."""

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """One outcome a request, in order; equal requests are asked once.

        Args:
            requests: What to ask.
            raise_if_down: Raise when no request of this call reached the endpoint, so that the caller can try the batch again.

        Raises:
            TransientError: Only with `raise_if_down`. One failed request never raises.
        """

    def close(self) -> None:
        """End what runs in the background; calling it twice is harmless."""


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a pydantic model in the subset that strict structured output takes.

    Every property is required, no other one is allowed, and limits of values are left to the validation of the answer.
    """
    schema = _strict(model.model_json_schema())
    assert isinstance(schema, dict)
    return schema


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(n) for n in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": node["$ref"]}  # a reference stands alone
    dropped = {"title", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "format"}
    dropped |= {"minLength", "maxLength", "minItems", "maxItems", "description"}  # the prompt describes; a docstring may change
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            out[key] = {name: _strict(inner) for name, inner in value.items()}
        elif key not in dropped:
            out[key] = _strict(value)
    if "properties" in out:
        out |= {"required": list(out["properties"]), "additionalProperties": False}
    return out


def json_text(text: str) -> str:
    """The JSON object in a model's text, freed of a leading ``<think>`` block, a markdown fence and prose around it."""
    text = re.sub(r"^\s*<think>.*?</think>", "", text, flags=re.DOTALL).strip()
    if fence := re.fullmatch(r"```[a-zA-Z]*\s*(.*?)\s*```", text, flags=re.DOTALL):
        text = fence.group(1)
    if not text.startswith("{") and 0 <= (start := text.find("{")) < (end := text.rfind("}")):
        text = text[start : end + 1]
    return text


def data_message(data: Mapping[str, Any]) -> Message:
    """Text under judgement as a user message of one JSON object: no text inside can end its string or hide a sign.

    Control, format and bidirectional characters and lone surrogates are written as ``\\uXXXX``.
    """
    lines = [f"{json.dumps(key)}: {_dumps(value)}" for key, value in data.items()]  # a line a key; indents cost tokens
    return Message(role="user", content=_HIDDEN.sub(_escaped, "{" + ",\n".join(lines) + "}"))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


# --- the adapter ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Way:
    """What an endpoint accepts for one model, found out by its 400s."""

    step: int = 0
    tokens: str = "max_tokens"
    temperature: bool = True
    seed: bool = True


@dataclass(frozen=True, slots=True)
class _Raw:
    """Text of one response, before it is validated."""

    text: str
    tokens_in: int
    tokens_out: int
    step: Step


@dataclass(frozen=True, slots=True)
class _Fault:
    """A response, or none, that may be better next time; `reason` is what it becomes when it is not."""

    message: str
    reason: Reason = "judge_unavailable"
    wait_s: float | None = None
    connected: bool = True
    tokens_in: int = 0
    tokens_out: int = 0


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

    responses: int = 0
    settled: ChatFailure | None = None


class OpenAIChatModel:
    """A model behind an OpenAI-compatible endpoint (OpenAI, Azure, vLLM, Ollama, LiteLLM, …).

    Requests run on one background thread with one event loop and one HTTP client, so any number of threads may share a model.
    429, 5xx, timeouts and broken connections are retried with growing, jittered pauses; ``Retry-After`` is honoured up to
    `RETRY_AFTER_MAX_S`. The answer's form is asked for by JSON Schema, by JSON mode where the endpoint refuses that, and in
    words where it refuses both; an answer outside its schema gets one repair request.

    Args:
        model: Model id.
        base_url: Address of the API, usually ending in ``/v1``; OpenAI's own where None.
        api_key: Key; never part of a message or a log line.
        concurrency: Requests in flight at most.
        timeout_s: Seconds for one attempt, connecting included.
        retries: Further attempts after the first.
        cache: Keeps answers as they arrive.
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
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._base_url, self._api_key = base_url or OPENAI_URL, api_key
        self._concurrency, self._timeout_s, self._retries = concurrency, timeout_s, retries
        self._cache, self._sleep, self._jitter = cache, sleep, jitter
        self._ways: dict[str, _Way] = {}
        self._proven: set[tuple[str, int]] = set()  # (model, step) that an answer came back on
        self._probes: dict[str, asyncio.Event] = {}
        self._in_flight: dict[str, asyncio.Task[Outcome]] = {}
        self._unwritten: list[tuple[str, StoredAnswer, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._usage = Usage()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._client: AsyncOpenAI | None = None
        self._slots: asyncio.Semaphore | None = None
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

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        """As `ChatModel.complete_many`.

        Raises:
            TransientError: Only with `raise_if_down`: no request of this call that had to be sent was answered by anyone.
        """
        keys = [request.key for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        outcomes = self._kept(distinct)
        asked = {key: request for key, request in distinct.items() if key not in outcomes}
        if asked:
            outcomes |= self._run(self._ask_all(asked))
        failures = [o for key in asked if isinstance(o := outcomes[key], ChatFailure)]
        if raise_if_down and asked and len(failures) == len(asked) and not any(f.connected for f in failures):
            raise TransientError(failures[0].message)
        self._count(cache_hits=len(keys) - len(asked))
        seen: set[str] = set()
        ordered: list[Outcome] = []
        for key in keys:
            ordered.append(replace(outcomes[key], cached=True) if key in seen else outcomes[key])
            seen.add(key)
        return ordered

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

    # --- background loop ---

    def _run(self, work: Coroutine[Any, Any, dict[str, Outcome]]) -> dict[str, Outcome]:
        with self._lock:
            if self._closed:
                work.close()
                raise RuntimeError("this model is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
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
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key, base_url=self._base_url, max_retries=0, timeout=self._timeout_s, http_client=http
            )
        return self._client

    async def _ask_all(self, requests: Mapping[str, ChatRequest]) -> dict[str, Outcome]:
        call = _Call()
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
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._concurrency)
        async with self._slots:
            if call.settled is not None:
                return call.settled
            outcome = await self._answer(request, call)
            if isinstance(outcome, ChatAnswer) or outcome.reason in SETTLED:
                await self._keep(key, request, outcome)  # within the slot: a kill loses no more than what is in flight
        return outcome

    async def _answer(self, request: ChatRequest, call: _Call) -> Outcome:
        tokens_in = tokens_out = calls = 0
        messages, problem = request.messages, ""
        for _ in range(2):  # the question, and one repair
            raw = await self._converse(request, messages, call)
            tokens_in, tokens_out = tokens_in + raw.tokens_in, tokens_out + raw.tokens_out
            if isinstance(raw, ChatFailure):
                return replace(raw, tokens_in=tokens_in, tokens_out=tokens_out, calls=raw.calls + calls)
            calls += 1
            text = json_text(raw.text) if request.schema else raw.text.strip()
            problem = answer_problem(text, request)
            if not problem:
                return ChatAnswer(
                    text=text, tokens_in=tokens_in, tokens_out=tokens_out, model=request.model, calls=calls, step=raw.step
                )
            repair = _REPAIR.format(problem=problem, schema=_dumps(request.schema))
            messages = (*messages, Message(role="assistant", content=raw.text), Message(role="user", content=repair))
        return ChatFailure(
            reason="judge_invalid",
            message=f"The model's answer is outside its schema, also after one repair request: {problem}",
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            calls=calls,
        )

    async def _converse(self, request: ChatRequest, messages: Sequence[Message], call: _Call) -> _Raw | ChatFailure:
        """Send until there is a text or the retries are used up."""
        probe = await self._await_probe(request.model)
        trial: _Way | None = None
        attempt = 0
        try:
            while True:
                way = trial or self._ways.get(request.model, _Way())
                result = await self._send(request, messages, way)
                if isinstance(result, _Unaccepted):
                    call.responses += 1
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
                if not isinstance(result, _Fault) or result.connected:
                    call.responses += 1
                if isinstance(result, _Stop):
                    call.settled = result.failure
                    return result.failure
                if isinstance(result, _Raw):
                    if trial is not None:
                        self._adopt(request.model, trial)
                    if request.schema:
                        self._proven.add((request.model, way.step))
                if not isinstance(result, _Fault):
                    return result
                probe.set()
                if attempt == self._retries:
                    return self._give_up(result, attempt + 1, call)
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

    def _give_up(self, fault: _Fault, attempts: int, call: _Call) -> ChatFailure:
        times = f" ({attempts} attempts)" if attempts > 1 else ""
        failure = ChatFailure(
            reason=fault.reason,
            message=fault.message + times,
            connected=fault.connected,
            tokens_in=fault.tokens_in,
            tokens_out=fault.tokens_out,
            calls=int(fault.reason == "judge_empty"),
        )
        if not fault.connected and not call.responses:
            call.settled = failure  # nobody there: the rest of this call would only wait as long again
        return failure

    def _pause(self, attempt: int, wait_s: float | None) -> float:
        if wait_s is not None:
            return min(wait_s, RETRY_AFTER_MAX_S) * (1 + 0.1 * self._jitter())
        return min(BACKOFF_MAX_S, BACKOFF_S * 2.0**attempt) * (0.5 + 0.5 * self._jitter())

    async def _send(
        self, request: ChatRequest, messages: Sequence[Message], way: _Way
    ) -> _Raw | ChatFailure | _Fault | _Unaccepted | _Stop:
        import openai

        self._count(requests=1)
        try:
            async with asyncio.timeout(self._timeout_s):  # the client's own limit starts again with every byte
                completion = await self._open_client().chat.completions.create(**_arguments(request, messages, way))
        except TimeoutError:
            return _Fault(self._late, connected=False)
        except openai.APIStatusError as error:
            return self._refused(error, request, way)
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
        self._count(tokens_in=tokens_in, tokens_out=tokens_out)

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
        return _Raw(text, tokens_in, tokens_out, step)

    def _refused(self, error: APIStatusError, request: ChatRequest, way: _Way) -> ChatFailure | _Fault | _Unaccepted | _Stop:
        status = error.status_code
        detail = self._clean(error.message)
        code = f"{error.code or ''} {error.type or ''}"
        if (status == 429 and "insufficient_quota" not in code) or status in _RETRIED - {429} or status >= 500:
            return _Fault(
                f"{self._where} answers {status}: {detail}",
                wait_s=_retry_after(error.response.headers),
                connected=status not in _NOBODY_THERE,
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

    def _other_way(self, error: APIStatusError, detail: str, request: ChatRequest, way: _Way) -> tuple[_Way | None, bool]:
        def named(parameter: str) -> bool:
            return error.param == parameter or re.search(rf"['\"`]{parameter}['\"`]", detail) is not None

        if way.tokens == "max_tokens" and (named("max_tokens") or "max_completion_tokens" in detail):
            return replace(way, tokens="max_completion_tokens"), True
        if way.temperature and named("temperature"):
            return replace(way, temperature=False), True
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
            kept = self._cache.get_many(list(requests))
        except StefError as error:
            self._warn(error)
            return {}
        outcomes: dict[str, Outcome] = {}
        for key, stored in kept.items():
            figures: Any = {
                "tokens_in": stored.tokens_in,
                "tokens_out": stored.tokens_out,
                "calls": stored.calls,
                "cached": True,
            }
            if stored.reason is not None:
                outcomes[key] = ChatFailure(reason=stored.reason, message=stored.text, **figures)  # type: ignore[arg-type]
            elif not answer_problem(stored.text, requests[key]):  # kept by an older, laxer version: ask again
                outcomes[key] = ChatAnswer(text=stored.text, model=stored.model, step=stored.step, **figures)
        return outcomes

    async def _keep(self, key: str, request: ChatRequest, outcome: Outcome) -> None:
        if self._cache is None or self._writer is None:
            return
        failed = isinstance(outcome, ChatFailure)
        stored = StoredAnswer(
            text=outcome.message if isinstance(outcome, ChatFailure) else outcome.text,
            reason=outcome.reason if isinstance(outcome, ChatFailure) else None,
            model=request.model,
            schema_name=request.schema_name,
            step="" if failed else outcome.step,  # type: ignore[union-attr]
            tokens_in=outcome.tokens_in,
            tokens_out=outcome.tokens_out,
            calls=outcome.calls,
        )
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append((key, stored, kept))
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

    def _count(self, *, requests: int = 0, cache_hits: int = 0, tokens_in: int = 0, tokens_out: int = 0) -> None:
        with self._lock:
            old = self._usage
            self._usage = Usage(
                requests=old.requests + requests,
                cache_hits=old.cache_hits + cache_hits,
                tokens_in=old.tokens_in + tokens_in,
                tokens_out=old.tokens_out + tokens_out,
            )


def answer_problem(text: str, request: ChatRequest) -> str:
    """What is wrong with an answer under its schema, in one line; empty when nothing is, or when there is no schema."""
    if not request.schema:
        return ""
    try:
        if request.answer is None:
            json.loads(text)
        else:
            request.answer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(p) for p in first['loc']) or 'the whole'}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return ""


def _arguments(request: ChatRequest, messages: Sequence[Message], way: _Way) -> dict[str, Any]:
    sent = [{"role": m.role, "content": m.content} for m in messages]
    arguments: dict[str, Any] = {"model": request.model, way.tokens: request.max_tokens}
    if way.temperature:
        arguments["temperature"] = request.temperature
    if way.seed and request.seed is not None:
        arguments["seed"] = request.seed
    if not request.schema:
        return arguments | {"messages": sent}
    if STEPS[way.step] == "json_schema":
        form = {"name": request.schema_name, "schema": request.schema, "strict": True}
        arguments["response_format"] = {"type": "json_schema", "json_schema": form}
    else:
        sent[0] = sent[0] | {"content": sent[0]["content"] + _SCHEMA_NOTE.format(schema=_dumps(request.schema))}
    if STEPS[way.step] == "json_object":
        arguments["response_format"] = {"type": "json_object"}
    return arguments | {"messages": sent}


def _retry_after(headers: Mapping[str, str]) -> float | None:
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


def _dumps(data: Any) -> str:
    # keys keep their order: a model writes an answer in the order of its schema
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
