"""The baseline text-to-SQL agent: one prompt, the schema of the database, one question, one SQL query.

Source: experiments.md, "The loop" 2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stef_core.errors import RuleError
from stef_core.extract.sql_text import unpack
from stef_core.llm import ChatFailure, ChatModel, ChatRequest, Message

MAX_TOKENS = 2000  # of one query
SCHEMA_SLOT = "{schema}"
# where prose ends and a query begins, at the start of a line
_START = re.compile(r"^[ \t]*(?:SELECT|WITH)\b", re.IGNORECASE | re.MULTILINE)
_PROSE_AFTER = re.compile(r";\s*\n\s*\n(?=[A-Z*#])|\n\s*\n(?=(?:This|The|Note|Explanation|Here|I|It)\b)")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|/\*.*?\*/""", re.DOTALL)
_THINKING = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrompt:
    """A system prompt with the slots ``{schema}`` and ``{dialect}``; `version` is its name and a hash of its text."""

    name: str
    text: str

    @property
    def version(self) -> str:
        """Name and the first 8 hex digits of the SHA-256 of the text, so that an edited text is a new version."""
        return f"{self.name}@{hashlib.sha256(self.text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    def fill(self, schema: str, dialect: str) -> str:
        """The system message for one database; other braces stay as they are."""
        return self.text.replace("{dialect}", dialect).replace(SCHEMA_SLOT, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """What an agent made of one question: SQL, or the reason why there is none."""

    sql: str | None
    reason: str | None = None  # of absent SQL; experiments.md calls such a row not_run
    enriched_question: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached: bool = False  # taken from the cache of answers, so its latency says nothing


def check_prompt(text: str, origin: str) -> None:
    """Refuse a prompt that could not work.

    Raises:
        RuleError: It is empty or has no ``{schema}``.
    """
    if not text.strip():
        raise RuleError(f"{origin}: the prompt is empty")
    if SCHEMA_SLOT not in text:
        raise RuleError(f"{origin}: has no {SCHEMA_SLOT}; write it where the tables of the database belong")


class ChatAgent:
    """The baseline agent over a chat model.

    Args:
        chat: Answers the requests; it is not closed here.
        prompt: System prompt with its slots.
        schema: DDL of the database.
        dialect: Of the database.
    """

    def __init__(self, chat: ChatModel, prompt: AgentPrompt, schema: str, dialect: str) -> None:
        self.chat = chat
        self._system = Message(role="system", content=prompt.fill(schema, dialect))

    def request(self, question: str) -> ChatRequest:
        """What is asked for one question; its key says what the answer depends on."""
        return ChatRequest(
            messages=(self._system, Message(role="user", content=question)),
            schema_name="sql",
            schema={},  # plain text: what a prompt file asks for is the user's own affair
            model=self.chat.model,
            max_tokens=MAX_TOKENS,
        )

    def answer_many(self, questions: Sequence[str]) -> list[AgentAnswer]:
        """One answer a question, in order; a failure is an answer with a reason."""
        answers: list[AgentAnswer] = []
        for outcome in self.chat.complete_many([self.request(question) for question in questions]):
            if isinstance(outcome, ChatFailure):
                reason = f"{outcome.reason.replace('judge_', 'agent_')}: {outcome.message}"
                answers.append(AgentAnswer(sql=None, reason=reason, tokens_in=outcome.tokens_in, tokens_out=outcome.tokens_out))
                continue
            answers.append(
                AgentAnswer(
                    sql=one_query(outcome.text),
                    tokens_in=outcome.tokens_in,
                    tokens_out=outcome.tokens_out,
                    cached=outcome.cached,
                )
            )
        return answers


def one_query(text: str) -> str:
    """The SQL in a model's text: freed of thinking, a fence, prose before and after, and trailing semicolons.

    A text without a query comes back as it is: an answer that is no SQL is the agent's own, and is judged as such. Of several
    fenced blocks the first is taken.
    """
    text = _THINKING.sub("", text)
    unpacked = unpack(text)
    if unpacked.error:
        first = text.index("```")
        unpacked = unpack(text[first : text.index("```", first + 3) + 3])
    sql = unpacked.sql
    start = _START.search(sql)
    if start and start.start() > 0 and not _is_sql(sql[: start.start()]):
        sql = sql[start.start() :]
    quoted = [match.span() for match in _QUOTED.finditer(sql)]
    for after in _PROSE_AFTER.finditer(sql):
        if start and not any(low < after.start() < high for low, high in quoted):
            sql = sql[: after.start()]
            break
    return sql.strip().rstrip("; \t\r\n").rstrip() or text.strip()


def _is_sql(before: str) -> bool:
    """Whether what stands before the first SELECT or WITH at a line's start belongs to the query."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", "", before, flags=re.DOTALL).strip()
    return (
        bare == ""
        or bare.endswith("(")
        or re.match(r"(?:WITH|SELECT|EXPLAIN|INSERT|UPDATE|DELETE|CREATE|DROP)\b", bare, re.I) is not None
    )
