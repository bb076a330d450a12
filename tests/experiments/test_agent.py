"""The baseline agent: one query out of whatever a model says, and failures that are no answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stef_core.errors import RuleError
from stef_core.experiments.agent import AgentPrompt, ChatAgent, check_prompt, one_query
from stef_core.llm import ChatAnswer, ChatFailure, ChatRequest, Outcome, Usage
from stef_core.openai_model import OpenAIChatModel
from stef_core.prompts import load_prompt
from tasks.answer_cache import SqliteAnswerCache
from tests.openai_server import EMPTY, REFUSAL, answer, serving

PROMPT = AgentPrompt(name="p", text='You write {dialect}. Tables:\n{schema}\nWrite like {"a": 1}.')


class Scripted:
    """A chat model that gives the outcomes it was made with, in order."""

    name, model, usage = "scripted", "m", Usage()

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[ChatRequest] = []

    def complete_many(self, requests: Sequence[ChatRequest], *, raise_if_down: bool = False) -> list[Outcome]:
        self.requests += requests
        return [self.outcomes.pop(0) for _ in requests]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT a FROM t", "SELECT a FROM t"),
        ("SELECT a FROM t;", "SELECT a FROM t"),
        ("  SELECT a FROM t ; ;\n", "SELECT a FROM t"),
        ("```sql\nSELECT a FROM t;\n```", "SELECT a FROM t"),
        ("```\nSELECT a FROM t\n```", "SELECT a FROM t"),
        ("Here is the query:\n```sql\nSELECT a\nFROM t;\n```\nIt lists every a.", "SELECT a\nFROM t"),
        ("Sure! The query is:\nSELECT a\nFROM t;\n\nThis lists every a.", "SELECT a\nFROM t"),
        ("Either\n```sql\nSELECT a FROM t\n```\nor\n```sql\nSELECT b FROM t\n```", "SELECT a FROM t"),
        ("<think>t has a; SELECT b?</think>\nSELECT a FROM t", "SELECT a FROM t"),
        ("WITH x AS (\n  SELECT a FROM t\n)\nSELECT a FROM x", "WITH x AS (\n  SELECT a FROM t\n)\nSELECT a FROM x"),
        ("-- all of them\nSELECT a FROM t", "-- all of them\nSELECT a FROM t"),
        ("(\nSELECT a FROM t)", "(\nSELECT a FROM t)"),
        ("SELECT 'a;\n\nThis stays' FROM t", "SELECT 'a;\n\nThis stays' FROM t"),
        ("DELETE FROM t\nWHERE a IN (\nSELECT a FROM u)", "DELETE FROM t\nWHERE a IN (\nSELECT a FROM u)"),
        ("I cannot answer that.", "I cannot answer that."),
        ("", ""),
    ],
)
def test_one_query_comes_out_of_what_a_model_says(text: str, sql: str) -> None:
    assert one_query(text) == sql


def test_the_prompts_slots_are_filled_and_its_other_braces_stay() -> None:
    chat = Scripted(ChatAnswer(text="SELECT 1;", tokens_in=7, tokens_out=2))
    agent = ChatAgent(chat, PROMPT, schema="CREATE TABLE t (a INT, note TEXT DEFAULT '{dialect}')", dialect="sqlite")

    (found,) = agent.answer_many(["How many?"])

    system, user = chat.requests[0].messages
    assert system.content == (
        "You write sqlite. Tables:\nCREATE TABLE t (a INT, note TEXT DEFAULT '{dialect}')\nWrite like {\"a\": 1}."
    )
    assert user.content == "How many?"
    assert (found.sql, found.reason, found.tokens_in, found.tokens_out) == ("SELECT 1", None, 7, 2)


def test_a_failure_is_no_answer_and_carries_its_reason() -> None:
    chat = Scripted(ChatFailure(reason="judge_unavailable", message="nobody there", connected=False))

    (found,) = ChatAgent(chat, PROMPT, "", "sqlite").answer_many(["How many?"])

    assert (found.sql, found.reason) == (None, "agent_unavailable: nobody there")


def test_an_edited_prompt_is_another_version() -> None:
    assert PROMPT.version.startswith("p@")
    assert PROMPT.version != AgentPrompt(name="p", text=PROMPT.text + " ").version


@pytest.mark.parametrize(("text", "message"), [("  ", "v1.md: the prompt is empty"), ("Write SQL.", "v1.md: has no {schema}")])
def test_a_prompt_that_cannot_work_is_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        check_prompt(text, "v1.md")


def test_the_built_in_prompt_works() -> None:
    check_prompt(load_prompt("sql_agent_v1").text, "sql_agent_v1")


def test_a_model_is_asked_for_plain_text_and_its_answer_is_cached(tmp_path: Path) -> None:
    with serving(lambda *_: answer("```sql\nSELECT 1\n```")) as server, SqliteAnswerCache(tmp_path / "a.sqlite") as cache:
        found = []
        for _ in range(2):
            with OpenAIChatModel(model="m", api_key="k", base_url=server.base_url, cache=cache) as chat:
                found += ChatAgent(chat, PROMPT, "CREATE TABLE t (a INT)", "sqlite").answer_many(["How many?"])

        assert server.requests == 1
        assert "response_format" not in server.bodies[0]
        assert [message["role"] for message in server.bodies[0]["messages"]] == ["system", "user"]
        assert "JSON" not in server.bodies[0]["messages"][0]["content"]
    assert [(each.sql, each.cached) for each in found] == [("SELECT 1", False), ("SELECT 1", True)]


def test_refusals_and_empty_answers_are_failures_of_the_run() -> None:
    replies = {"refuse": REFUSAL, "empty": EMPTY}
    with (
        serving(lambda body, _: replies[body["messages"][1]["content"]]) as server,
        OpenAIChatModel(model="m", api_key="k", base_url=server.base_url, retries=0) as chat,
    ):
        refused, empty = ChatAgent(chat, PROMPT, "", "sqlite").answer_many(["refuse", "empty"])

    assert refused.sql is None
    assert refused.reason == "agent_refused: The model declined: I cannot help with that."
    assert empty.sql is None
    assert (empty.reason or "").startswith("agent_empty: ")
