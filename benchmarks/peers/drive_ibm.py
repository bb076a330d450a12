"""IBM's text2sql-eval-toolkit: `async_evaluate_predictions`, with rules alone and with its judge. Runs in its own environment.

Its rules compare with gold SQL and with the results of both statements, which are handed to it. Its judge is the packaged one
that sees no gold SQL; it is asked where the results differ. `max_concurrency` rows are evaluated at once, in the threads of
asyncio's own pool, of which a machine of few cores has fewer; `threads` makes that pool as wide as the limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from loguru import logger  # type: ignore[import-not-found]
from text2sql_eval_toolkit import async_evaluate_predictions, load_llm_judge_config  # type: ignore[import-not-found]
from text2sql_eval_toolkit.evaluation import llm_as_judge  # type: ignore[import-not-found]

from benchmarks.peers.driver import Report, Row, Task, serve


def rules(rows: Sequence[Row], task: Task) -> Report:
    """Its metrics without a model: parsing, equivalence by sqlglot and sqlparse, and comparisons of results."""
    return asyncio.run(evaluate(rows, task, None))


def judge(rows: Sequence[Row], task: Task) -> Report:
    """The judge, in the threads that asyncio has."""
    return asyncio.run(evaluate(rows, task, config(task)))


def threads(rows: Sequence[Row], task: Task) -> Report:
    """The judge, in as many threads as requests are to be in flight."""

    async def widened() -> Report:
        with ThreadPoolExecutor(task["in_flight"]) as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            return await evaluate(rows, task, config(task))

    return asyncio.run(widened())


def config(task: Task) -> dict[str, Any]:
    os.environ.pop("OLLAMA_BASE_URL", None)  # which it would ask instead
    os.environ |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": task["base_url"]}
    found: dict[str, Any] = load_llm_judge_config(str(llm_as_judge.PACKAGED_JUDGE_CONFIG_DIR / "llm_judge_no_gt.yaml"))
    # further keys go to the client's call as they are, so that a request has a limit
    return found | {"model": {**found["model"], "id": "openai:m", "timeout": task["timeout_s"]}}


async def evaluate(rows: Sequence[Row], task: Task, judge_config: dict[str, Any] | None) -> Report:
    records = [
        {
            "id": row["id"],
            "utterance": row["question"],
            "page_content": row["question"],
            "sql": row["gold_sql"],
            "gt_df": row["gold_split"],
            "schema": task["tables"],
            "db_type": "sqlite",
            "predictions": {"agent": {"predicted_sql": row["generated_sql"], "predicted_df": row["generated_split"]}},
        }
        for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "predictions.json"
        given.write_text(json.dumps(records), encoding="utf-8")
        data, _ = await async_evaluate_predictions(str(given), llm_judge_config=judge_config, max_concurrency=task["in_flight"])
    report = Report()
    for record in data:
        found = record["predictions"]["agent"]["evaluation"]
        if found.get("eval_error"):
            report.unscored += 1
            report.errors[found["eval_error_message"][:40]] += 1
        elif judge_config is None:
            report.graded += 1
        elif "llm_judge_error" in found:
            report.unscored += 1
            report.errors[found["llm_judge_error"][:60]] += 1
        elif found["llm_score"] == 1.0:  # the endpoint says Yes to each row
            report.graded += 1
        else:
            report.as_grade += 1
            report.errors["N/A"] += 1
    return report


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    logger.remove()
    serve("text2sql-eval-toolkit", {"rules": rules, "judge": judge, "threads": threads})
