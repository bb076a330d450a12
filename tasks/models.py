"""Opens the question reader and the judge that the settings name. Knows no Prefect.

A run opens its model once (`run_model`); the batches of the run share it, so that limits, budget and circuit hold for the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from stef_core.budget import Budget, Limits, Price
from stef_core.errors import RuleError
from stef_core.evaluate import Judge, QuestionReader
from stef_core.extract.question_llm import LLMReader
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.fused import FusedReader
from stef_core.judge.llm import LLMJudge
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.llm import ChatModel, Usage
from stef_core.openai_model import OpenAIChatModel
from tasks.crew import Crew, SharedBudget
from tasks.shared_answers import CacheSettings, open_answers

MARKER_KEY_FILE = "marker.key"  # beside the cache of answers
MARKER_KEY_BYTES, MARKER_KEY_MIN = 32, 16  # of the file; characters of one that is set
NO_KEY = "none"  # what an endpoint on this machine is sent where no key is set


class Secret(Protocol):
    """A value that shows itself only when asked, as pydantic's SecretStr."""

    def get_secret_value(self) -> str:
        """The value."""


class ModelSettings(CacheSettings, Protocol):
    """What this module reads of tasks.settings.Settings."""

    @property
    def judge(self) -> str:
        """``symbolic`` or ``openai``."""

    @property
    def model(self) -> str | None:
        """Model id."""

    @property
    def base_url(self) -> str | None:
        """Address of the API; OpenAI's own where None."""

    @property
    def api_key(self) -> Secret | None:
        """Key of the API."""

    @property
    def marker_key(self) -> Secret | None:
        """Secret of the marker around the data; made where None."""

    @property
    def concurrency(self) -> int:
        """Requests in flight at most."""

    @property
    def timeout_s(self) -> float:
        """Seconds for one attempt."""

    @property
    def fused(self) -> bool:
        """One call a row for reading and verdict."""

    @property
    def samples(self) -> int:
        """Verdicts asked for a row."""

    @property
    def sample_temperature(self) -> float:
        """Temperature where there are several."""

    @property
    def logprobs(self) -> bool:
        """Ask for the probability of the grade."""

    @property
    def max_calls(self) -> int | None:
        """Calls a run may make."""

    @property
    def max_tokens(self) -> int | None:
        """Tokens a run may use."""

    @property
    def max_cost(self) -> float | None:
        """Money a run may spend."""

    @property
    def prices(self) -> Mapping[str, TokenPrice]:
        """Price table by model."""

    @property
    def requests_per_minute(self) -> int | None:
        """Limit of the endpoint."""

    @property
    def tokens_per_minute(self) -> int | None:
        """Limit of the endpoint."""

    @property
    def runner(self) -> str:
        """``threads`` or ``dask``."""


class TokenPrice(Protocol):
    """Money for 1,000,000 tokens, as tasks.settings.ModelPrice."""

    @property
    def input(self) -> float:
        """Of prompts."""

    @property
    def output(self) -> float:
        """Of answers."""

    @property
    def batch(self) -> float:
        """What the Batch API charges of it, 0-1."""


class RunModel:
    """The one model of a run.

    Args:
        chat: Answers the requests of all its batches.
    """

    def __init__(self, chat: OpenAIChatModel) -> None:
        self.chat = chat
        self._given_up = False

    @property
    def given_up(self) -> bool:
        """Whether a batch has used up its tries and the endpoint is still away: the next ones need not wait as long again."""
        return self._given_up and self.chat.is_down

    def give_up(self) -> None:
        """A batch has used up its tries."""
        self._given_up = self.chat.is_down


_running: dict[str, RunModel] = {}
_turn = threading.Lock()


@contextmanager
def run_model(settings: ModelSettings) -> Iterator[RunModel | None]:
    """Keep one model open for all batches of a run in this process; None where the judge asks none.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    if settings.judge == "symbolic":
        yield None
        return
    key = _identity(settings)
    with open_chat(settings) as chat:
        mine = RunModel(chat)
        with _turn:
            before = _running.get(key)
            _running[key] = mine
        try:
            yield mine
        finally:
            with _turn:
                if before is None:
                    _running.pop(key, None)
                else:
                    _running[key] = before


_crews: dict[Crew, tuple[RunModel, contextlib.ExitStack]] = {}  # of this process, which works for one run at a time


def _model_of_crew(settings: ModelSettings, crew: Crew) -> RunModel:
    """This process's model of a run, opened with its first batch and closed with the first of another run."""
    with _turn:
        if crew not in _crews:
            for _, old in _crews.values():
                old.close()
            _crews.clear()
            stack = contextlib.ExitStack()
            _crews[crew] = RunModel(stack.enter_context(open_chat(settings, crew=crew))), stack
        return _crews[crew][0]


def run_usage(settings: ModelSettings) -> Callable[[], Usage] | None:
    """Asks what the run's model was asked so far; None where no run has one open."""
    running = _running.get(_identity(settings)) if settings.runner == "threads" else None  # else others ask
    return None if running is None else lambda: running.chat.usage


def _identity(settings: ModelSettings) -> str:
    names = [name for part in (ModelSettings, CacheSettings) for name in vars(part) if not name.startswith("_")]
    secret = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    marker = settings.marker_key.get_secret_value() if settings.marker_key is not None else ""
    parts = [f"{name}={getattr(settings, name)!r}" for name in names if name not in ("api_key", "marker_key")]
    return hashlib.sha256("\n".join([*parts, secret, marker]).encode()).hexdigest()


@contextmanager
def open_stages(
    settings: ModelSettings, *, raise_if_down: bool = False, crew: Crew | None = None
) -> Iterator[tuple[QuestionReader, Judge]]:
    """The question reader and the judge; the LLM ones share one model, one client and one cache.

    Args:
        settings: `judge` ``symbolic`` gives the two built-in ones, ``openai`` the two that ask a model.
        raise_if_down: Let a batch raise TransientError when nobody answers, so that its task can try again.
        crew: Whom this process shares the run's limits with; it then keeps the model open for the run's other batches.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    if settings.judge == "symbolic":
        yield OfflineReader(), SymbolicJudge()
        return
    shared = _running.get(_identity(settings)) if crew is None else _model_of_crew(settings, crew)
    if shared is None:
        with open_chat(settings) as chat:
            yield stages_of(settings, chat.session(), raise_if_down=raise_if_down)
        return
    patient = raise_if_down and not shared.given_up
    yield stages_of(settings, shared.chat.session(), raise_if_down=patient)
    if not raise_if_down:
        shared.give_up()


@contextmanager
def open_shared_chat(settings: ModelSettings) -> Iterator[OpenAIChatModel]:
    """The run's one model, or one of its own where there is none; `judge` must be ``openai``.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    shared = _running.get(_identity(settings))
    if shared is not None:
        yield shared.chat
        return
    with open_chat(settings) as chat:
        yield chat


def stages_of(settings: ModelSettings, chat: ChatModel, *, raise_if_down: bool = False) -> tuple[QuestionReader, Judge]:
    """The reader and the judge of the settings over a chat model that is open already."""
    key = marker_key(settings)
    judge = LLMJudge(
        chat,
        raise_if_down=raise_if_down,
        samples=settings.samples,
        sample_temperature=settings.sample_temperature,
        logprobs=settings.logprobs,
        marker_key=key,
    )
    if settings.fused:
        return FusedReader(chat, raise_if_down=raise_if_down, marker_key=key, logprobs=settings.logprobs), judge
    return LLMReader(chat, raise_if_down=raise_if_down, marker_key=key), judge


@contextmanager
def open_reader(settings: ModelSettings, *, raise_if_down: bool = False, crew: Crew | None = None) -> Iterator[QuestionReader]:
    """The question reader alone, as `open_stages`."""
    with open_stages(settings, raise_if_down=raise_if_down, crew=crew) as (reader, _):
        yield reader


@contextmanager
def open_judge(settings: ModelSettings, *, raise_if_down: bool = False, crew: Crew | None = None) -> Iterator[Judge]:
    """The judge alone, as `open_stages`."""
    with open_stages(settings, raise_if_down=raise_if_down, crew=crew) as (_, judge):
        yield judge


def usage_of(stage: QuestionReader | Judge) -> Usage:
    """What the model behind a reader or judge was asked since it was opened; nothing for the built-in ones."""
    return stage.chat.usage if isinstance(stage, LLMReader | LLMJudge) else Usage()


def check_settings(settings: ModelSettings, *, needed_by: str | None = None) -> None:
    """Refuse settings that no model can be opened with, before anything is read or written.

    Args:
        settings: What is in force.
        needed_by: Who needs the model, where it is not the judge.

    Raises:
        RuleError: The message names the setting and what to do.
    """
    if settings.judge not in ("symbolic", "openai"):
        raise RuleError(f"STEF_JUDGE is {settings.judge!r}; use symbolic or openai")
    if settings.judge == "openai":
        _model_arguments(settings, needed_by)
        if settings.fused and settings.samples > 1:
            raise RuleError("STEF_FUSED asks once a row, STEF_SAMPLES several times; set one of them")
        if settings.cache_shared and settings.marker_key is None:
            raise RuleError(
                "STEF_CACHE_SHARED is set, but machines ask alike only with one key of the marker around their data; "
                "set STEF_MARKER_KEY to the same long random text on all of them"
            )
        if settings.max_cost is not None and (settings.model or "").strip() not in settings.prices:
            known = ", ".join(sorted(settings.prices)) or "none"
            raise RuleError(
                f"STEF_MAX_COST is set, but the price table names no {settings.model!r} (it names: {known}); "
                f'add [prices."{settings.model}"] with input and output to stef.toml, or set STEF_PRICES'
            )


@contextmanager
def open_chat(settings: ModelSettings, *, crew: Crew | None = None) -> Iterator[OpenAIChatModel]:
    """The model behind the endpoint, with its cache of answers; `judge` must be ``openai``.

    Args:
        settings: What is in force.
        crew: Whom the limits are shared with.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    check_settings(settings)
    cache = open_answers(settings)
    limits = Limits(calls=settings.max_calls, tokens=settings.max_tokens, cost=settings.max_cost)
    arguments = _model_arguments(settings) | {
        "requests_per_minute": settings.requests_per_minute,
        "tokens_per_minute": settings.tokens_per_minute,
    }
    budget = Budget(limits, prices_of(settings))
    if crew is not None:
        shared = ("concurrency", "requests_per_minute", "tokens_per_minute")
        arguments |= {name: crew.share(arguments[name]) for name in shared if arguments[name] is not None}
        if limits != Limits():
            budget = SharedBudget(crew.ledger, limits, prices_of(settings), expiry_s=10 * settings.timeout_s)
    try:
        with OpenAIChatModel(**arguments, cache=cache, budget=budget) as chat:
            yield chat
    finally:
        if cache is not None:
            cache.close()


def prices_of(settings: ModelSettings) -> dict[str, Price]:
    """The price table of the settings."""
    return {name: Price(input=p.input, output=p.output, batch=p.batch) for name, p in settings.prices.items()}


def marker_key(settings: ModelSettings) -> bytes | None:
    """The secret of the marker around the data that a model is shown (`stef_core.llm.data_message`).

    Equal rows make equal requests only under an equal key: it is the one set, else the one in ``marker.key`` beside the cache
    of answers, which the first process makes for all; without a cache None, for a key of this process alone.

    Raises:
        RuleError: The key is too short, or no file of it can be kept there.
    """
    if settings.marker_key is not None and (stated := settings.marker_key.get_secret_value().strip()):
        if len(stated) < MARKER_KEY_MIN:
            raise RuleError(f"STEF_MARKER_KEY is shorter than {MARKER_KEY_MIN} characters; use a long random text, or unset it")
        return stated.encode()
    return None if settings.cache is None else _kept_key(settings.cache.expanduser().with_name(MARKER_KEY_FILE))


def _kept_key(path: Path) -> bytes:
    advice = "delete it, or set STEF_MARKER_KEY"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_key(path)
        path.chmod(0o600)  # a file that was there may have been open to others
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise RuleError(f"{path}: no key of the marker can be kept there: {error}; {advice}") from error
    if len(key) != MARKER_KEY_BYTES:
        raise RuleError(f"{path}: holds {len(key)} bytes, not {MARKER_KEY_BYTES}; {advice}")
    return key


def _make_key(path: Path) -> None:
    """Write a whole new key or none: of several processes the first one's stays."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(MARKER_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _model_arguments(settings: ModelSettings, needed_by: str | None = None) -> dict[str, Any]:
    why, otherwise = ("judge is openai", ", or use STEF_JUDGE=symbolic") if needed_by is None else (needed_by, "")
    model = (settings.model or "").strip()
    if not model:
        raise RuleError(f"{why}, but no model is named; set STEF_MODEL or --model{otherwise}")
    base_url = settings.base_url.strip() if settings.base_url else None
    if base_url is not None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RuleError(f"STEF_BASE_URL is {base_url!r}; it is the address of an API, e.g. https://host/v1")
        if parts.path.rstrip("/").endswith("/chat/completions"):
            raise RuleError("STEF_BASE_URL ends in /chat/completions; leave that part out")
    key = settings.api_key.get_secret_value().strip() if settings.api_key is not None else ""
    if not key:
        if base_url is None or not _is_loopback(base_url):
            raise RuleError(
                f"{why}, but there is no key; set STEF_API_KEY or OPENAI_API_KEY "
                f"(any word where the endpoint asks for none){otherwise}"
            )
        key = NO_KEY
    return {
        "model": model,
        "base_url": base_url,
        "api_key": key,
        "concurrency": settings.concurrency,
        "timeout_s": settings.timeout_s,
    }


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
