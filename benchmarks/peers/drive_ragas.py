"""Ragas: `evaluate`, and the newer metrics of `ragas.metrics.collections`. Runs in Ragas' own environment.

Everything it has for SQL compares with gold SQL. `strings` compares the text of the statements, `results` their results as CSV
(DataCompy), `judge` asks a model through `evaluate`, whose `RunConfig` bounds what is in flight, and `batch` asks through
`SQLSemanticEquivalence.abatch_score`, which starts every row at once. `limited` asks its `ascore` with a limit of the caller's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # else it reports each evaluation to its makers, and waits for that
warnings.filterwarnings("ignore")

from openai import AsyncOpenAI  # noqa: E402
from ragas import EvaluationDataset, evaluate  # type: ignore[import-not-found]  # noqa: E402
from ragas.llms import llm_factory  # type: ignore[import-not-found]  # noqa: E402
from ragas.metrics import (  # type: ignore[import-not-found]  # noqa: E402
    DataCompyScore,
    ExactMatch,
    LLMSQLEquivalence,
    NonLLMStringSimilarity,
)
from ragas.metrics.collections import SQLSemanticEquivalence  # type: ignore[import-not-found]  # noqa: E402
from ragas.run_config import RunConfig  # type: ignore[import-not-found]  # noqa: E402

from benchmarks.peers.driver import Report, Row, Task, serve  # noqa: E402


def strings(rows: Sequence[Row], task: Task) -> Report:
    """Whether the statements are one text, and how alike they are letter by letter."""
    return run(rows, task, [ExactMatch(), NonLLMStringSimilarity()], ("generated_sql", "gold_sql"))


def results(rows: Sequence[Row], task: Task) -> Report:
    """How many rows of the results agree."""
    return run(rows, task, [DataCompyScore()], ("generated_csv", "gold_csv"))


def judge(rows: Sequence[Row], task: Task) -> Report:
    """A model says whether the statements are equivalent."""
    return run(rows, task, [LLMSQLEquivalence(llm=model(task))], ("generated_sql", "gold_sql"))


def batch(rows: Sequence[Row], task: Task) -> Report:
    """The same by the newer metric, all rows at once."""

    async def scored() -> Report:
        metric = SQLSemanticEquivalence(llm=model(task))
        found = await metric.abatch_score([given(row, task) for row in rows])
        return told([result.value for result in found])

    return asyncio.run(scored())


def limited(rows: Sequence[Row], task: Task) -> Report:
    """The newer metric row by row, with a limit and a care for exceptions of the caller's own."""

    async def scored() -> Report:
        metric, limit, report = SQLSemanticEquivalence(llm=model(task)), asyncio.Semaphore(task["in_flight"]), Report()

        async def one(row: Row) -> None:
            async with limit:
                try:
                    await metric.ascore(**given(row, task))
                except Exception as error:  # noqa: BLE001
                    report.unscored += 1
                    report.errors[type(error).__name__] += 1
                else:
                    report.graded += 1

        await asyncio.gather(*map(one, rows))
        return report

    return asyncio.run(scored())


def given(row: Row, task: Task) -> dict[str, Any]:
    return {"response": row["generated_sql"], "reference": row["gold_sql"], "reference_contexts": schema(task)}


def model(task: Task) -> Any:
    client = AsyncOpenAI(api_key="k", base_url=task["base_url"], timeout=task["timeout_s"])
    return llm_factory("m", client=client)


def schema(task: Task) -> list[str]:
    return [f"Table {table}: {', '.join(columns)}" for table, columns in task["tables"].items()]


def run(rows: Sequence[Row], task: Task, metrics: list[Any], sides: tuple[str, str]) -> Report:
    response, reference = sides
    samples = [
        {
            "user_input": row["question"],
            "response": row[response],
            "reference": row[reference],
            "reference_contexts": schema(task),
        }
        for row in rows
    ]
    found = evaluate(
        EvaluationDataset.from_list(samples),
        metrics=metrics,
        run_config=RunConfig(max_workers=task["in_flight"]),
        show_progress=False,
    )
    return told([list(scores.values())[-1] for scores in found.scores])


def told(values: Sequence[float]) -> Report:
    """NaN is all that is left of a failure; why is in the log alone."""
    silent = sum(math.isnan(value) for value in values)
    return Report(graded=len(values) - silent, silent=silent)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve("ragas", {"strings": strings, "results": results, "judge": judge, "batch": batch, "limited": limited})
