"""Agents that an experiment can run: the baseline over a model, a Python callable, a file of predictions. Knows no Prefect."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stef_core.errors import InputError, RuleError
from stef_core.experiments.agent import AgentAnswer, AgentPrompt, ChatAgent, one_query
from stef_core.experiments.gold import GoldRow, named_columns, read_table
from stef_core.llm import ChatModel
from tasks.experiment_journal import key_of

BASELINE = "baseline"
PREDICTION_NAMES: dict[str, tuple[str, ...]] = {
    "predicted_sql": ("predicted_sql", "prediction", "predicted", "generated_sql", "sql"),
    "question": ("question", "user_question", "query"),
    "query_id": ("query_id", "question_id", "id"),
    "enriched_question": ("enriched_question",),
}
_STOPS = "agent_rejected"  # a wrong key or an unknown model fails every question alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a callable agent gets beside the question, as its second argument."""

    schema: str  # DDL of the database
    dialect: str
    prompt: str | None  # text of the file that --prompt names, its slots filled
    query_id: str


class Agent(Protocol):
    """Answers questions; safe to use from several threads."""

    @property
    def name(self) -> str:
        """``baseline``, ``module:function``, or the file of predictions."""

    def key(self, row: GoldRow) -> str:
        """A hash over everything that the answer to this question depends on."""

    def answer(self, row: GoldRow) -> AgentAnswer:
        """The answer to one question; a failure is an answer with a reason."""


class Baseline:
    """The baseline agent of `stef_core.experiments.agent`."""

    name = BASELINE

    def __init__(self, chat: ChatModel, prompt: AgentPrompt, schema: str, dialect: str) -> None:
        self._agent = ChatAgent(chat, prompt, schema, dialect)
        self._stopped: AgentAnswer | None = None
        self._answered = False

    def key(self, row: GoldRow) -> str:
        """The key of the request."""
        return self._agent.request(row.question).key

    def answer(self, row: GoldRow) -> AgentAnswer:
        """Ask the model; once it has rejected a request for a reason that all share, no further one is sent."""
        if self._stopped is not None:
            return self._stopped
        (answer,) = self._agent.answer_many([row.question])
        if answer.sql is not None:
            self._answered = True
        elif not self._answered and (answer.reason or "").startswith(_STOPS):
            self._stopped = answer
        return answer


class FunctionAgent:
    """A Python function: ``f(question)`` or ``f(question, context)``, plain or async; it returns SQL or a mapping with ``sql``.

    Args:
        reference: ``module:function``; modules of the working directory are found.
        prompt: What ``--prompt`` names.
        schema: DDL of the database.
        dialect: Of the database.

    Raises:
        RuleError: There is no such function.
    """

    def __init__(self, reference: str, prompt: AgentPrompt | None, schema: str, dialect: str) -> None:
        self.name = reference
        self._function, source = _load(reference)
        self._schema, self._dialect = schema, dialect
        self._prompt = None if prompt is None else prompt.fill(schema, dialect)
        self._takes_context = _parameters(self._function, reference) > 1
        self._identity = key_of(reference, source, self._prompt, schema, dialect)

    def key(self, row: GoldRow) -> str:
        """Reference, source text of the function's file, prompt, schema, and the question."""
        return key_of(self._identity, row.question, row.query_id)

    def answer(self, row: GoldRow) -> AgentAnswer:
        """Call the function; what it raises is the reason why there is no SQL."""
        context = Context(schema=self._schema, dialect=self._dialect, prompt=self._prompt, query_id=row.query_id)
        try:
            given = self._function(row.question, context) if self._takes_context else self._function(row.question)
            if inspect.isawaitable(given):
                given = asyncio.run(_awaited(given))
        except Exception as error:  # noqa: BLE001  # whatever an agent raises, the other rows are answered
            said = " ".join(str(error).split())[:300]
            return AgentAnswer(sql=None, reason=f"agent_failed: {self.name} raised {type(error).__name__}: {said}")
        return self._read(given)

    def _read(self, given: Any) -> AgentAnswer:
        fields: Mapping[str, Any] = given if isinstance(given, Mapping) else {"sql": given}
        sql = fields.get("sql")
        if sql is not None and not isinstance(sql, str):
            return AgentAnswer(sql=None, reason=f"agent_failed: {self.name} returned {type(sql).__name__}, not SQL text")
        counts = {name: fields[name] for name in ("tokens_in", "tokens_out") if isinstance(fields.get(name), int)}
        enriched = fields.get("enriched_question")
        return AgentAnswer(
            sql=one_query(sql or ""), enriched_question=enriched if isinstance(enriched, str) else None, **counts
        )


class Predictions:
    """Answers that stand in a file, found by ``query_id`` where data set and file have one, else by the question.

    A question that the file lacks was not run; one with an empty prediction was answered with nothing.

    Args:
        path: CSV, JSON lines or Parquet with one prediction a row.
        columns: The file's names of columns of `PREDICTION_NAMES`.

    Raises:
        InputError: The file or a column is wrong.
    """

    def __init__(self, path: Path, columns: Mapping[str, str] | None = None) -> None:
        self.name = str(path)
        lines = read_table(path)
        if not lines:
            raise InputError(f"{path}: holds no rows")
        named = named_columns(list(lines[0]), self.name, PREDICTION_NAMES, ("predicted_sql",), columns or {})
        if "question" not in named and "query_id" not in named:
            raise InputError(f"{path}: has neither a column query_id nor a question, so no prediction finds its row")
        self._by_id: dict[str, AgentAnswer] = {}
        self._by_question: dict[str, list[AgentAnswer]] = defaultdict(list)
        for number, line in enumerate(lines, 1):
            sql = line[named["predicted_sql"]]
            if sql is not None and not isinstance(sql, str):
                raise InputError(f"{path}: row {number}: column {named['predicted_sql']} is {sql!r}; it must be SQL text")
            enriched = line.get(named.get("enriched_question", ""))
            answer = AgentAnswer(sql=one_query(sql or ""), enriched_question=enriched or None)
            if line.get(named.get("query_id", "")) is not None:
                self._by_id[str(line[named["query_id"]])] = answer
            if line.get(named.get("question", "")) is not None:
                self._by_question[_folded(str(line[named["question"]]))].append(answer)

    def key(self, row: GoldRow) -> str:
        """The prediction itself."""
        answer = self.answer(row)
        return key_of("prediction", row.query_id, answer.sql, answer.enriched_question)

    def answer(self, row: GoldRow) -> AgentAnswer:
        """The prediction for one question."""
        if row.query_id in self._by_id:
            return self._by_id[row.query_id]
        found = {answer.sql: answer for answer in self._by_question.get(_folded(row.question), ())}
        if len(found) == 1:
            return next(iter(found.values()))
        why = (
            "has several predictions for this question; add a query_id to both files"
            if found
            else "has no prediction for this question"
        )
        return AgentAnswer(sql=None, reason=f"no_prediction: {self.name} {why}")


def _folded(question: str) -> str:
    return " ".join(question.split()).casefold()


async def _awaited(value: Any) -> Any:
    return await value


_loading = threading.Lock()


def _load(reference: str) -> tuple[Callable[..., Any], str]:
    """A function, and a hash of the file it is written in."""
    module_name, separator, name = reference.partition(":")
    if not separator or not module_name or not name:
        raise RuleError(f"--agent {reference}: write module:function, as in my_agent:answer")
    here = str(Path.cwd())
    with _loading:
        if here not in sys.path:
            sys.path.append(here)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # a user's module may raise anything
            raise RuleError(
                f"--agent {reference}: {module_name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise RuleError(f"--agent {reference}: {module_name} has no function {name}")
    source = ""
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(inspect.unwrap(found)) or module.__file__
        source = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return found, source


def _parameters(function: Callable[..., Any], reference: str) -> int:
    """How many of question and context a function takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for count in (2, 1):
        with suppress(TypeError):
            signature.bind(*[None] * count)
            return count
    raise RuleError(f"--agent {reference}: must take (question) or (question, context), not {signature}")
