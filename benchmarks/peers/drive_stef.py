"""STEF: the symbolic path and the LLM judge, in batches of the size that the daily flow has. Runs in STEF's environment.

It is given the question and the generated SQL, and neither gold SQL nor schema nor database.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers.driver import Report, Row, Task, serve
from stef_core import Evaluation, QueryRecord
from stef_core.evaluate import conclude_many, evaluate_many, examine_many
from stef_core.extract.question_llm import LLMReader
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.llm import LLMJudge
from stef_core.openai_model import OpenAIChatModel
from stef_core.rules import DEFAULT_RULES
from tasks.answer_cache import SqliteAnswerCache

BATCH, AT_ONCE = 200, 4  # rows of a task, and tasks at once, as the daily flow has them


def records(rows: Sequence[Row]) -> list[QueryRecord]:
    return [
        QueryRecord(query_id=row["id"], user_question=row["question"], generated_sql=row["generated_sql"], dialect="sqlite")
        for row in rows
    ]


def rules(rows: Sequence[Row], _: Task) -> Report:
    """The symbolic path, on one core."""
    return told(list(evaluate_many(records(rows))))


def judge(rows: Sequence[Row], task: Task) -> Report:
    """A model reads the question and gives the verdict: two requests a row, as `stef score --judge openai` makes them."""
    return told(asked(rows, task, read=True), grade="correct")


def verdict(rows: Sequence[Row], task: Task) -> Report:
    """A model gives the verdict alone, as the peers' do: one request a row."""
    return told(asked(rows, task, read=False), grade="correct")


def asked(rows: Sequence[Row], task: Task, *, read: bool) -> list[Evaluation]:
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteAnswerCache(Path(folder) / "answers.sqlite") as cache,
        OpenAIChatModel(
            model="m",
            api_key="k",
            base_url=task["base_url"],
            concurrency=task["in_flight"],
            timeout_s=task["timeout_s"],
            cache=cache,
        ) as chat,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        reader, model = LLMReader(chat) if read else OfflineReader(), LLMJudge(chat)

        def score(batch: Sequence[QueryRecord]) -> list[Evaluation]:
            chosen = [DEFAULT_RULES] * len(batch)
            return conclude_many(examine_many(batch, chosen, reader, None), chosen, model)

        given = records(rows)
        batches = [given[start : start + BATCH] for start in range(0, len(given), BATCH)]
        return [evaluation for part in pool.map(score, batches) for evaluation in part]


def told(found: Sequence[Evaluation], grade: str | None = None) -> Report:
    """What became of each row; `grade` is the one that the endpoint gives to all."""
    report = Report()
    for evaluation in found:
        if evaluation.verdict is not None and evaluation.status == "scored":
            if grade in (None, evaluation.verdict.grade):
                report.graded += 1
            else:
                report.as_grade += 1
        else:
            report.unscored += 1
            report.errors[evaluation.reason or "no reason"] += 1
    return report


if __name__ == "__main__":
    serve("stef-pipeline", {"rules": rules, "judge": judge, "verdict": verdict})
