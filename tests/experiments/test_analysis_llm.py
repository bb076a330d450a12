"""Error analysis by a model: what it is shown, what is taken from it, and what happens when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from stef_core.experiments.analysis_llm import WrongAnswer, analyse_many, analyse_offline
from stef_core.openai_model import OpenAIChatModel
from stef_core.prompts import load_prompt
from tests.openai_server import REFUSAL, Reply, answer, serving

WRONG = WrongAnswer(
    question="How many towns?",
    gold_sql=("SELECT COUNT(DISTINCT town) FROM people",),
    predicted_sql="SELECT COUNT(town) FROM people",
    dialect="sqlite",
    outcome="row 1: 70 where gold has 4",
)
GOOD = {"analysis": "Counts rows,  not towns.", "error_codes": ["AGGR_DISTINCT_MISSING", "AGGR_DISTINCT_MISSING"]}


def test_a_models_analysis_and_codes_are_taken() -> None:
    with (
        serving(lambda *_: answer(GOOD)) as server,
        OpenAIChatModel(model="m", api_key="k", base_url=server.base_url) as chat,
    ):
        (found,) = analyse_many([WRONG], chat)
        shown = server.user()

    assert (found.codes, found.text, found.by) == (("AGGR_DISTINCT_MISSING",), "Counts rows, not towns.", "m")
    assert shown["gold_sql"] == ["SELECT COUNT(DISTINCT town) FROM people"]
    assert shown["outcome"] == "row 1: 70 where gold has 4"
    assert shown["differences"] == ["computes count(town) where gold has count(distinct town)"]


@pytest.mark.parametrize(
    "reply",
    [
        REFUSAL,
        answer({"analysis": "x", "error_codes": []}),
        answer({"analysis": " ", "error_codes": ["OTHER"]}),
        answer({"analysis": "x", "error_codes": ["MADE_UP"]}),
        answer("no JSON at all"),
    ],
)
def test_where_the_model_fails_the_syntax_trees_tell(reply: Reply) -> None:
    def script(body: dict[str, Any], before: int) -> Reply:
        return reply

    with (
        serving(script) as server,
        OpenAIChatModel(model="m", api_key="k", base_url=server.base_url, retries=0) as chat,
    ):
        (found,) = analyse_many([WRONG], chat)

    offline = analyse_offline(WRONG)
    assert (found.codes, found.by) == (offline.codes, "trees")
    assert found.text.startswith(offline.text)
    assert "the model gave none" in found.text


@pytest.mark.parametrize("version", ["analyse_error_v2@58bbf6f0", "sql_agent_v1@42ccdaa2"])
def test_an_edited_prompt_needs_a_new_version_here(version: str) -> None:
    assert load_prompt(version.partition("@")[0]).version == version
