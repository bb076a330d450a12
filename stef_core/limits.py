"""How large a row is, told before any of it is read, and the limits within which rows are read.

A row that is plain is read in place, in well under a second. One that is heavy is read in a process of its own that a limit of
time and of memory bounds (`stef_core.guard`), as no thread of compiled code can be interrupted, and nesting can end a process.
One that is beyond all limits is not read. Either way a row that exceeds a limit is unscored as ``row_limit``, and no other row
is touched by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from stef_core.extract.sql_text import MAX_CHARS

ROW_LIMIT = "row_limit"  # reason of a row that exceeds a limit; also the note of SQL that does
QUESTION_MAX = MAX_CHARS  # characters of a question or reformulation; of SQL as many
# at most this much of each is read in place: measured to take less than a second and 200 MB, whatever it is made of
PLAIN_QUESTION, PLAIN_SQL = 8_000, 10_000  # characters
PLAIN_TOKENS = 3_000  # words and signs of SQL
PLAIN_DEPTH = 150  # brackets and CASEs of SQL, each taken as one level more, as what hides in a literal differs by dialect
PLAIN_CHAIN = 400  # operators of one kind in SQL; a chain of them makes a tree as deep
PLAIN_ITEMS = 2_000  # commas of SQL

Weight = Literal["plain", "heavy", "beyond"]

_TOKENS = re.compile(r"\w+|[^\w\s]")
_OPERATORS = ("+", "-", "*", "/", "%", "|", "&", "^", "~", "!", "=", "<", ">", ":", ".", "?", ";", "@", "#")
_WORDS = re.compile(
    r"\b(?:and|or|not|xor|union|intersect|except|minus|select|from|join|with|is|in|like|between|interval|collate|over|distinct|at"
    r"|when|values)\b"
)
_CASES = re.compile(r"\bcase\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimits:
    """What reading or aligning one heavy row may take."""

    seconds: float = 20.0
    memory_mb: int = 1_024  # beyond what the process takes that reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Upper bounds of what a text can make its reader do."""

    characters: int
    bytes: int
    tokens: int = 0
    depth: int = 0
    chain: int = 0
    items: int = 0

    def __str__(self) -> str:
        return (
            f"{self.characters:,} characters ({self.bytes:,} bytes), {self.tokens:,} tokens, "
            f"{self.depth:,} brackets and CASEs, {self.chain:,} operators of one kind, {self.items:,} commas"
        )


_limits: ContextVar[RowLimits] = ContextVar("row_limits", default=RowLimits())  # noqa: B039  # it is frozen


def limits_in_force() -> RowLimits:
    """The limits of heavy rows that hold here."""
    return _limits.get()


@contextmanager
def row_limits(*, seconds: float, memory_mb: int) -> Iterator[None]:
    """Read heavy rows within other limits than the usual ones, in this thread.

    Args:
        seconds: For reading one side of a row, and for aligning it.
        memory_mb: Memory for it, in MB.
    """
    before = _limits.set(RowLimits(seconds=seconds, memory_mb=memory_mb))
    try:
        yield
    finally:
        _limits.reset(before)


def size_of_sql(sql: str) -> Size:
    """The size of a statement, in linear time and without reading it."""
    lowered = sql.lower()
    words = Counter(match.group() for match in _WORDS.finditer(lowered))
    return Size(
        characters=len(sql),
        bytes=_bytes(sql),
        tokens=sum(1 for _ in _TOKENS.finditer(sql)),
        depth=sum(sql.count(opener) for opener in "([{") + sum(1 for _ in _CASES.finditer(lowered)),
        chain=max(*words.values(), *(sql.count(operator) for operator in _OPERATORS), 0),
        items=sql.count(","),
    )


def weigh_sql(sql: str | None) -> tuple[Weight, str]:
    """Whether a statement is read in place, in a process of its own, or not at all; and of the latter why.

    Args:
        sql: The text as the agent wrote it.
    """
    if not sql:
        return "plain", ""
    if len(sql) > MAX_CHARS:
        return "beyond", f"the SQL is {len(sql):,} characters long; at most {MAX_CHARS:,} are read"
    if len(sql) > PLAIN_SQL:
        return "heavy", ""
    if len(sql) <= 3 * PLAIN_CHAIN:  # has no room for as many words or commas
        depth = sum(map(sql.count, "([{")) + sql.lower().count("case")
        if depth <= PLAIN_DEPTH and (len(sql) <= PLAIN_CHAIN or max(map(sql.count, _OPERATORS)) <= PLAIN_CHAIN):
            return "plain", ""
    size = size_of_sql(sql)
    within = (
        size.tokens <= PLAIN_TOKENS and size.depth <= PLAIN_DEPTH and size.chain <= PLAIN_CHAIN and size.items <= PLAIN_ITEMS
    )
    return ("plain" if within else "heavy"), ""


def weigh_question(*texts: str | None) -> tuple[Weight, str]:
    """The same of a question and its reformulation."""
    longest = max((len(text) for text in texts if text), default=0)
    if longest > QUESTION_MAX:
        return "beyond", f"the question or its reformulation is {longest:,} characters long; at most {QUESTION_MAX:,} are read"
    return ("plain" if longest <= PLAIN_QUESTION else "heavy"), ""


def size_of_row(question: str | None, enriched: str | None, sql: str | None) -> str:
    """How large a row is, in words, for the message of one that exceeds a limit."""
    texts = [f"question {len(question or ''):,} characters ({_bytes(question or ''):,} bytes)"]
    if enriched:
        texts.append(f"reformulation {len(enriched):,} characters ({_bytes(enriched):,} bytes)")
    return "; ".join([*texts, f"SQL {size_of_sql(sql or '')}"])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
