"""Opens the question reader and the judge that the settings name. Knows no Prefect."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from stef_core.errors import RuleError
from stef_core.evaluate import Judge, QuestionReader
from stef_core.extract.question_llm import LLMReader
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.llm import LLMJudge
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.llm import OpenAIChatModel, Usage
from tasks.answer_cache import SqliteAnswerCache

# settings of the interface that nothing enforces yet; a limit that is only believed in costs more than a refusal
UNENFORCED = ("max_calls", "max_tokens", "max_cost", "requests_per_minute", "tokens_per_minute")
MARKER_KEY_FILE = "marker.key"  # beside the cache of answers
MARKER_KEY_BYTES, MARKER_KEY_MIN = 32, 16  # of the file; characters of one that is set
NO_KEY = "none"  # what an endpoint on this machine is sent where no key is set


class Secret(Protocol):
    """A value that shows itself only when asked, as pydantic's SecretStr."""

    def get_secret_value(self) -> str:
        """The value."""


class ModelSettings(Protocol):
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
    def cache(self) -> Path | None:
        """File of the answer cache; no cache where None."""

    @property
    def max_calls(self) -> int | None:
        """Calls a run may make; refused where set, as the four below."""

    @property
    def max_tokens(self) -> int | None:
        """Tokens a run may use."""

    @property
    def max_cost(self) -> float | None:
        """Money a run may spend."""

    @property
    def requests_per_minute(self) -> int | None:
        """Limit of the endpoint."""

    @property
    def tokens_per_minute(self) -> int | None:
        """Limit of the endpoint."""


@contextmanager
def open_stages(settings: ModelSettings, *, raise_if_down: bool = False) -> Iterator[tuple[QuestionReader, Judge]]:
    """The question reader and the judge; the LLM ones share one model, one client and one cache.

    Args:
        settings: `judge` ``symbolic`` gives the two built-in ones, ``openai`` the two that ask a model.
        raise_if_down: Let a batch raise TransientError when nobody answers, so that its task can try again.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    if settings.judge == "symbolic":
        yield OfflineReader(), SymbolicJudge()
        return
    with open_chat(settings) as chat:
        key = marker_key(settings)
        yield (
            LLMReader(chat, raise_if_down=raise_if_down, marker_key=key),
            LLMJudge(chat, raise_if_down=raise_if_down, marker_key=key),
        )


@contextmanager
def open_reader(settings: ModelSettings, *, raise_if_down: bool = False) -> Iterator[QuestionReader]:
    """The question reader alone, as `open_stages`."""
    with open_stages(settings, raise_if_down=raise_if_down) as (reader, _):
        yield reader


@contextmanager
def open_judge(settings: ModelSettings, *, raise_if_down: bool = False) -> Iterator[Judge]:
    """The judge alone, as `open_stages`."""
    with open_stages(settings, raise_if_down=raise_if_down) as (_, judge):
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
        for name in UNENFORCED:
            if getattr(settings, name) is not None:
                raise RuleError(
                    f"STEF_{name.upper()} ({name} in stef.toml) is set, but this version does not enforce it; "
                    "unset it, and limit the calls at the endpoint"
                )
        _model_arguments(settings, needed_by)


@contextmanager
def open_chat(settings: ModelSettings) -> Iterator[OpenAIChatModel]:
    """The model behind the endpoint, with its cache of answers; `judge` must be ``openai``.

    Raises:
        RuleError: A setting is missing or wrong; the message names it.
    """
    check_settings(settings)
    cache = SqliteAnswerCache(settings.cache) if settings.cache is not None else None
    try:
        with OpenAIChatModel(**_model_arguments(settings), cache=cache) as chat:
            yield chat
    finally:
        if cache is not None:
            cache.close()


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
