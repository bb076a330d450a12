"""SQLAS: `evaluate_batch`, with rules alone and with a judge. Runs in SQLAS' own environment.

It needs no gold SQL, but without it counts correctness as unverified. Rows are evaluated one after another, as it documents no
way to have several in flight; `threads` hands it rows from threads of the caller's own. A judge is a function of the caller's:
here the openai client, as in its README.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai import OpenAI
from sqlas import evaluate_batch  # type: ignore[import-not-found]

from benchmarks.peers.driver import Report, Row, Task, serve

# what a judge says to its three prompts, from memory: leaves the rules, as it does not run without a judge
READY = "Semantic_Score: 0.9\nOverall_Quality: 0.9\nComplexity_Match: 0.9\nReasoning: none"


def cases(rows: Sequence[Row], *, gold: bool) -> list[dict[str, Any]]:
    keys = ("question", "generated_sql", *(("gold_sql",) if gold else ()))
    return [{key: row[key] for key in keys} for row in rows]


def alone(rows: Sequence[Row], _: Task) -> Report:
    """The rules that need the question and the SQL alone."""
    return told(evaluate_batch(cases(rows, gold=False), lambda _: READY))


def gold(rows: Sequence[Row], task: Task) -> Report:
    """All rules: with gold SQL, its database and its schema."""
    columns = {table: set(names) for table, names in task["tables"].items()}
    return told(
        evaluate_batch(
            cases(rows, gold=True),
            lambda _: READY,
            db_path=task["database"],
            valid_tables=set(columns),
            valid_columns=columns,
        )
    )


def judge(rows: Sequence[Row], task: Task) -> Report:
    """With a judge, one row after another."""
    return told(evaluate_batch(cases(rows, gold=False), asker(task)))


def threads(rows: Sequence[Row], task: Task) -> Report:
    """With a judge, a batch of one row in each of the caller's threads."""
    ask = asker(task)
    with ThreadPoolExecutor(task["in_flight"]) as pool:
        parts = pool.map(lambda case: evaluate_batch([case], ask), cases(rows, gold=False))
        return told([scores for part in parts for scores in part])


def asker(task: Task) -> Callable[[str], str | None]:
    client = OpenAI(api_key="k", base_url=task["base_url"], timeout=task["timeout_s"])

    def ask(prompt: str) -> str | None:
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])
        return answer.choices[0].message.content

    return ask


def told(found: Sequence[Any]) -> Report:
    """Each row has a number, 0 where its judge failed, which its details say."""
    report = Report()
    for scores in found:
        kinds = set()
        if "batch_error" in scores.details:
            kinds.add(scores.details["batch_error_type"])
        for part in scores.details.values():
            if isinstance(part, dict):
                kinds |= {mark for mark in ("llm_error", "llm_parse_warning") if part.get(mark)}
        report.errors.update(kinds)
        if kinds:
            report.as_grade += 1
        else:
            report.graded += 1
    return report


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve("sqlas", {"alone": alone, "gold": gold, "judge": judge, "threads": threads})
