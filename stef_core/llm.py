"""Chat models: one request in, one validated answer or one named failure out; what a request is and what its answer must be.

`stef_core.openai_model` asks any OpenAI-compatible endpoint; this module knows no network.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ValidationError

Reason: TypeAlias = Literal[
    "judge_unavailable",  # no usable response after all retries
    "judge_refused",  # the model, or a content filter before it, declined
    "judge_truncated",  # cut off at max_tokens
    "judge_empty",  # a response without text
    "judge_invalid",  # text outside the schema, also after one repair request
    "judge_rejected",  # the endpoint refuses the request as such: 400, 401, 404, …
    "budget_exhausted",  # the run may spend no more; the request was not sent
]
Step: TypeAlias = Literal["json_schema", "json_object", "text"]

STEPS: tuple[Step, ...] = ("json_schema", "json_object", "text")  # how an answer's form is asked for, strictest first
MARKER_LENGTH = 16  # hexadecimal digits
# failures that came as an answer and were paid for: asked again they would cost again and, at temperature 0, say the same
SETTLED: frozenset[str] = frozenset({"judge_refused", "judge_truncated", "judge_invalid"})

# invisible signs inside JSON text; json.dumps has escaped the controls below U+0020 already
_HIDDEN = re.compile(
    "[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


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
    # key of the answer whose value's probability is wanted beside it, from log-probabilities where the endpoint gives them
    measured: str | None = None
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
        if self.measured is not None:  # absent otherwise, so that answers without it keep their keys
            content["measured"] = self.measured
        return hashlib.sha256(dumps(content).encode("utf-8", "surrogatepass")).hexdigest()


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
    cost: float = 0.0  # at today's prices, for what it took when it was given
    probability: float | None = None  # of the value of `ChatRequest.measured`, 0-1


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
    cost: float = 0.0


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
    probability: float | None = None


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
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            cache_hits=self.cache_hits + other.cache_hits,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
        )


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
            raise_if_down: Raise when the endpoint is away, so that the caller can try the batch again.

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
    if fence := re.fullmatch(r"```[a-zA-Z]*+(.*?)```", text, flags=re.DOTALL):
        text = fence.group(1).strip()
    if not text.startswith("{") and 0 <= (start := text.find("{")) < (end := text.rfind("}")):
        text = text[start : end + 1]
    return text


def data_message(data: Mapping[str, Any], key: bytes | None = None) -> Message:
    """Text under judgement as a user message: one JSON object between two lines with a marker that its authors cannot guess.

    No text inside can end its string, hide a sign or begin a line: control, format and bidirectional characters and lone
    surrogates are written as ``\\uXXXX``. The marker is a keyed hash of the content, so equal content makes an equal message.

    Args:
        data: What is under judgement.
        key: Secret key of the marker; `process_key` where None.
    """
    lines = [f"{json.dumps(name)}: {dumps(value)}" for name, value in data.items()]  # a line a key; indents cost tokens
    content = _HIDDEN.sub(_escaped, "{" + ",\n".join(lines) + "}")
    marker = hmac.new(key or process_key(), content.encode(), hashlib.sha256).hexdigest()[:MARKER_LENGTH]
    return Message(role="user", content=f"{marker}\n{content}\n{marker}")


@cache
def process_key() -> bytes:
    """A random key of this process: markers of another process differ, so its cached answers are not found."""
    return secrets.token_bytes(32)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


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


def dumps(data: Any) -> str:
    """JSON as it is sent: compact, in the order of its keys."""
    # keys keep their order: a model writes an answer in the order of its schema
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
