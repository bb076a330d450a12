"""Values of strangers' files: moments, questions and SQL in whatever they are wrapped. Knows no Prefect."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FIRST_YEAR, LAST_YEAR = 2000, 2100  # a moment outside is another number, or an epoch of another unit
# epochs by their size: seconds, milliseconds, microseconds, nanoseconds
_EPOCHS = ((1e11, 1), (1e14, 10**3), (1e17, 10**6), (math.inf, 10**9))
_FORMS = (
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%b %d, %Y, %I:%M:%S %p",
    "%b %d, %Y, %I:%M %p",
    "%b %d, %Y %H:%M:%S",
    "%b %d, %Y",
    "%d %b %Y %H:%M:%S",
    "%d %b %Y",
)
_SLASHES = re.compile(r"\d{1,2}/\d{1,2}/\d{2,4}\b")
_NUMBER = re.compile(r"-?\d{9,}(?:\.\d+)?|-?\d+\.\d+(?:e\+?\d+)?", re.I)

_FENCE = re.compile(r"```[ \t]*+([A-Za-z0-9_+-]*+)[ \t]*+\r?\n?(.*?)```", re.S)
_COMMENTS = re.compile(r"^(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)+", re.S)
_SQL = re.compile(
    r"select\b(?:.*?\bfrom\b|\s+(?:[\d'\"(*@-]|\w+\s*\(|current_))"
    r"|with\s+(?:recursive\s+)?[\w\"`\[\].]++\s*+(?:\([^)]*\)\s*+)?as\s*+(?:not\s+)?(?:materialized\s*)?\("
    r"|insert\s+(?:overwrite\s+)?into\b|update\s+\S+\s+set\b|delete\s+from\b|merge\s+into\b|values\s*\("
    r"|(?:create|drop|alter|truncate)\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:table|view|index|database|schema)\b"
    r"|explain\s+(?:analyze\s+)?select\b",
    re.I | re.S,
)
# what JSON answers of agents call the query, best first; `query` last, as it may be the question
SQL_KEYS = (
    "generated_sql", "sql_query", "sql", "sqlquery", "final_sql", "sql_statement", "query_sql", "statement", "code", "query",
)  # fmt: skip
QUESTION_KEYS = (
    "user_question", "question", "user_query", "user_input", "user_message", "utterance", "input", "query", "prompt", "text",
    "message", "content", "messages", "chat_history", "value",
)  # fmt: skip
_WRAPPERS = (
    "output", "outputs", "answer", "response", "result", "content", "message", "messages", "choices", "tool_calls", "parts",
    "function", "arguments", "args", "input", "data", "kwargs", "text", "generations", "generation", "value",
    "additional_kwargs",
)  # fmt: skip
_DEPTH = 12


def read_moment(value: Any, form: str | None = None) -> tuple[dt.datetime, bool]:
    """The moment that a value stands for, in UTC, and whether it said its zone.

    Args:
        value: ISO text, a date, or an epoch in seconds, milli-, micro- or nanoseconds, as its size tells; no zone is UTC.
        form: Form of `datetime.strptime` that texts have, where they have another one.

    Raises:
        ValueError: It stands for none, or for one outside 2000-2100; the message says what it is.
    """
    moment, zoned = _moment(value, form)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    try:
        moment = moment.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueError(f"{shown(value)} is no time of {FIRST_YEAR}-{LAST_YEAR}") from error
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{shown(value)} is no time of {FIRST_YEAR}-{LAST_YEAR}")
    return moment, zoned


def _moment(value: Any, form: str | None) -> tuple[dt.datetime, bool]:
    if isinstance(value, dt.datetime):
        return value, value.tzinfo is not None
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time()), True  # a date of a log is a UTC day, there is nothing to doubt
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{shown(value)} is no time")
    if isinstance(value, int | float):
        return _epoch(value, value), True
    text = value.strip()
    if form is not None:
        try:
            moment = dt.datetime.strptime(text, form)  # noqa: DTZ007  # the zone is looked at by the caller
        except ValueError as error:
            raise ValueError(f"{shown(value)} does not have the form {form}") from error
        return moment, moment.tzinfo is not None
    if _NUMBER.fullmatch(text):
        return _epoch(float(text) if re.search("[.e]", text, re.I) else int(text), value), True
    return _from_text(text, value)


def _from_text(text: str, value: Any) -> tuple[dt.datetime, bool]:
    plain = re.sub(r"(?<!\s)\s*(?:UTC|GMT|Z)$", "+00:00", text, flags=re.I)
    plain = re.sub(r"(\d)\s+([+-]\d\d:?\d\d)$", r"\1\2", plain)
    try:
        moment = dt.datetime.fromisoformat(plain)
    except ValueError:
        pass
    else:
        return moment, moment.tzinfo is not None or len(plain) <= len("YYYY-MM-DD")
    for form in _FORMS:
        try:
            return dt.datetime.strptime(text, form), "H" not in form and "I" not in form  # noqa: DTZ007  # told by the flag
        except ValueError:
            continue
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        pass
    else:
        return moment, moment.tzinfo is not None
    if _SLASHES.match(text):
        raise ValueError(f"{shown(value)} may be read day first or month first; say --time-format '%d/%m/%Y' or the like")
    raise ValueError(f"{shown(value)} is no time that is known; say its form with --time-format")


def _epoch(number: float, value: Any) -> dt.datetime:
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"{shown(value)} is no time")
    per_second = next(per for limit, per in _EPOCHS if abs(number) < limit)
    try:  # whole microseconds, without the rounding of a float
        micro = number * 10**6 // per_second if isinstance(number, int) else round(number * 10**6 / per_second)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micro)
    except OverflowError as error:
        raise ValueError(f"{shown(value)} is no time of {FIRST_YEAR}-{LAST_YEAR}") from error


def looks_like_sql(text: str) -> bool:
    """Whether a text begins as SQL does, comments and brackets before it aside."""
    return _SQL.match(_COMMENTS.sub("", text[:20_000])) is not None


def find_sql(value: Any) -> tuple[str, str] | None:
    """The SQL in an answer, and what it was taken out of: ``text``, ``fence`` or ``json``; None where there is none.

    Args:
        value: Text, JSON as text or as values: messages, tool calls, parts, an object with ``sql``.
    """
    return _find(value, 0)


def _find(value: Any, depth: int) -> tuple[str, str] | None:
    if depth > _DEPTH:
        return None
    if isinstance(value, str):
        return _find_in_text(value, depth)
    if isinstance(value, Mapping):
        for key in SQL_KEYS:
            inner = value.get(key)
            if isinstance(inner, str) and (found := _find_in_text(inner, depth + 1)):
                return found[0], "json"
        for key in (*_WRAPPERS, *(key for key in value if key not in _WRAPPERS and key not in SQL_KEYS)):
            if key in value and isinstance(value[key], str | Mapping | Sequence) and (found := _find(value[key], depth + 1)):
                return found[0], "fence" if found[1] == "fence" else "json"
        return None
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        for each in reversed(value):  # the last message or call is the answer
            if (role_of(each) or "assistant") in ANSWERING and (found := _find(each, depth + 1)):
                return found
    return None


def _find_in_text(text: str, depth: int) -> tuple[str, str] | None:
    if (parsed := parse_json(text)) is not None:
        return (found[0], "json") if (found := _find(parsed, depth + 1)) else None
    blocks = _FENCE.findall(text) if "```" in text else []
    marked = [block for language, block in blocks if language.casefold().endswith("sql")]
    for chosen in (marked, [block if language else f"{language}{block}" for language, block in blocks]):
        if len(chosen) == 1:
            if (parsed := parse_json(chosen[0])) is not None and (found := _find(parsed, depth + 1)):
                return found[0], "json"
            if chosen is marked or looks_like_sql(chosen[0]):
                return chosen[0].strip(), "fence"
    return (text, "text") if not blocks and looks_like_sql(text) else None


def sql_of(value: Any) -> tuple[str | None, str]:
    """What the log keeps of an answer: its SQL, or the answer itself where none can be told apart from it.

    Returns:
        Text, or None for no answer; and ``text``, ``fence`` or ``json``, as `find_sql` has it.
    """
    found = find_sql(value)
    if found is not None:
        return found
    text = text_of(value)
    return (text if text and text.strip() else None), "text"


def question_of(value: Any) -> str | None:
    """The question in a text, in messages (the last of a user), or in an object that holds it; None where there is none."""
    return _question(value, 0)


def _question(value: Any, depth: int) -> str | None:
    if depth > _DEPTH or value is None:
        return None
    if isinstance(value, str):
        parsed = parse_json(value)
        found = _question(parsed, depth + 1) if parsed is not None else None
        return found or (value if value.strip() else None)
    if isinstance(value, Mapping):
        if value.get("lc") == 1 and isinstance(value.get("kwargs"), Mapping):  # LangChain's own form of a message
            return _question(value["kwargs"], depth + 1)
        if isinstance(value.get("parts"), Sequence):
            return message_text(value) or None
        for key in QUESTION_KEYS:
            if (
                key in value
                and isinstance(value[key], str | Mapping | Sequence)
                and (found := _question(value[key], depth + 1))
            ):
                return found
        texts = [inner for inner in value.values() if isinstance(inner, str) and inner.strip()]
        if len(texts) == 1:
            return texts[0]
        nested = [inner for inner in value.values() if isinstance(inner, Mapping | list)]
        return _question(nested[0], depth + 1) if len(nested) == 1 else None
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        of_user = [each for each in value if role_of(each) in ASKING]
        if of_user:
            return next((text for each in reversed(of_user) if (text := message_text(each))), None)
        if len(value) == 1:
            return _question(value[0], depth + 1)
        texts = [message_text(each) for each in value if role_of(each) is None]
        return next((text for text in reversed(texts) if text), None)
    return None


ASKING = frozenset({"user", "human", "humanmessage"})
ANSWERING = frozenset({"assistant", "ai", "aimessage", "model", "tool_call", "aimessagechunk"})


def role_of(message: Any) -> str | None:
    """Who speaks in a message of a chat, in lower case; None where it does not say."""
    if isinstance(message, Mapping):
        for key in ("role", "type"):
            if isinstance(message.get(key), str) and (key == "role" or "content" in message or "data" in message):
                role: str = message[key].casefold()
                if role == "constructor" and isinstance(message.get("id"), Sequence) and message["id"]:
                    return str(message["id"][-1]).casefold()
                return None if role in ("text", "output_text", "function") else role
        if message.get("lc") == 1 and isinstance(message.get("id"), Sequence) and message["id"]:
            return str(message["id"][-1]).casefold()
        return None
    if isinstance(message, list | tuple) and len(message) == 2 and all(isinstance(each, str) for each in message):
        return str(message[0]).casefold()  # ["human", "How many …"]
    return None


def message_text(message: Any) -> str:
    """The text of a message: its content, or that of its text parts."""
    if isinstance(message, str):
        return message
    if isinstance(message, list | tuple) and len(message) == 2 and role_of(message):
        return str(message[1])
    if not isinstance(message, Mapping):
        return ""
    for key in ("kwargs", "data"):
        if isinstance(message.get(key), Mapping) and "content" in message[key]:
            message = message[key]
    content = message.get("parts", message.get("content", message.get("text")))
    if isinstance(content, str):
        return content
    return "\n".join(_part_texts(content)) if isinstance(content, Sequence) else ""


def _part_texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping) and part.get("type", "text") in ("text", "input_text", "output_text"):
            text = part.get("text", part.get("content"))
            if isinstance(text, str):
                yield text


def parse_json(text: str) -> Any:
    """The object or list that a text holds as JSON; None where it holds none."""
    stripped = text.strip()
    if not stripped or stripped[0] + stripped[-1] not in ("{}", "[]"):
        return None
    try:
        parsed = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None


def text_of(value: Any) -> str | None:
    """A value as text: texts as they are, others as JSON has them; None for null and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return json.dumps(value, ensure_ascii=False, default=str)


def shown(value: Any) -> str:
    """A value for a message: one line, short, without control characters."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(char if char.isprintable() else "�" for char in text)
    return text if len(text) <= 60 else text[:59] + "…"
