"""How much of an endpoint's rate the client gets: the same requests through it and through a bare asyncio loop, in one run.

    python -m benchmarks.llm_throughput [--requests 4000] [--in-flight 64] [--latency 0.1] [--rows 5000 50000] [--json FILE]

Why it matters: a million calls a month wait on the endpoint, so whatever the client adds (keys, cache, validation, pacing,
batches) is time and machines. The bare loop uses the same openai client and transport, keeps the same number of requests in
flight, and does nothing with the answers. Both run by turns; the figure is the ratio of the medians. Memory is the peak of a
process that scores rows through reader, judge and cache, for a small and a large number of rows.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.results import keep
from stef_core import QueryRecord
from stef_core.evaluate import evaluate_many
from stef_core.extract.question_llm import LLMReader, question_request
from stef_core.judge.llm import LLMJudge
from stef_core.openai_model import OpenAIChatModel
from stef_core.rules import DEFAULT_RULES
from tasks.answer_cache import SqliteAnswerCache
from tests.llm_endpoint import running

BATCH, AT_ONCE = 200, 4  # rows of a task, and tasks at once, as the daily flow has them
TARGET = 0.85


def records(count: int) -> list[QueryRecord]:
    """Rows that are all different."""
    return [
        QueryRecord(
            query_id=str(n),
            user_question=f"How many boats moored in Turku on berth {n} since May?",
            generated_sql=f"SELECT COUNT(*) FROM moorings WHERE port = 'Turku' AND berth = {n} AND day >= '2026-05-01'",
        )
        for n in range(count)
    ]


def bare(base_url: str, count: int, in_flight: int) -> float:
    """Requests a second of the openai client in a loop that does nothing else."""
    import openai

    requests = [question_request(record, DEFAULT_RULES, "m") for record in records(count)]
    bodies: list[dict[str, Any]] = [
        {
            "model": r.model,
            "max_tokens": r.max_tokens,
            "temperature": 0,
            "messages": [{"role": m.role, "content": m.content} for m in r.messages],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": r.schema_name, "schema": r.schema, "strict": True},
            },
        }
        for r in requests
    ]

    async def run() -> float:
        client = openai.AsyncOpenAI(
            api_key="k", base_url=base_url, max_retries=0, http_client=openai.DefaultAioHttpClient(timeout=60)
        )
        waiting = iter(bodies)

        async def worker() -> None:
            for body in waiting:
                await client.chat.completions.create(**body)

        await client.chat.completions.create(**bodies[0])
        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        taken = time.perf_counter() - started
        await client.close()
        return taken

    return count / asyncio.run(run())


def ours(base_url: str, count: int, in_flight: int) -> float:
    """Requests a second through the client with its cache, in batches as the daily flow makes them."""
    requests = [question_request(record, DEFAULT_RULES, "m") for record in records(count)]
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteAnswerCache(Path(folder) / "answers.sqlite") as cache,
        OpenAIChatModel(model="m", api_key="k", base_url=base_url, concurrency=in_flight, cache=cache) as chat,
    ):
        chat.complete_many([question_request(records(count + 1)[-1], DEFAULT_RULES, "m")])
        batches = [requests[start : start + BATCH] for start in range(0, count, BATCH)]
        started = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = [outcome for batch in pool.map(chat.complete_many, batches) for outcome in batch]
        taken = time.perf_counter() - started
        assert len(outcomes) == count
        assert chat.usage.requests == count + 1
    return count / taken


def peak_mib(base_url: str, rows: int) -> float:
    """Peak memory of a process that scores rows, in MiB."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.llm_throughput", "--score", str(rows), "--endpoint", base_url],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(done.stdout)


def score(base_url: str, rows: int) -> float:
    """Score rows lazily through reader, judge and cache; this process's peak in MiB."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteAnswerCache(Path(folder) / "answers.sqlite") as cache,
        OpenAIChatModel(model="m", api_key="k", base_url=base_url, concurrency=64, cache=cache) as chat,
    ):
        source = (
            QueryRecord(query_id=str(n), user_question=f"How many boats on berth {n}?", generated_sql=f"SELECT {n} FROM berths")
            for n in range(rows)
        )
        scored = sum(e.status == "scored" for e in evaluate_many(source, judge=LLMJudge(chat), reader=LLMReader(chat)))
        assert scored == rows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs=2, default=(5_000, 50_000))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--score", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.score is not None:
        print(score(options.endpoint, options.score))
        return
    figures: dict[str, Any] = {"requests": options.requests, "in_flight": options.in_flight, "latency_s": options.latency}
    with running("--latency", str(options.latency)) as endpoint:
        rates: dict[str, list[float]] = {"bare": [], "ours": []}
        for _ in range(options.repeat):
            rates["bare"].append(bare(endpoint.base_url, options.requests, options.in_flight))
            rates["ours"].append(ours(endpoint.base_url, options.requests, options.in_flight))
    figures |= {name: statistics.median(values) for name, values in rates.items()}
    figures["share"] = figures["ours"] / figures["bare"]
    with running() as endpoint:
        small, large = (peak_mib(endpoint.base_url, rows) for rows in options.rows)
    figures |= {"rows": list(options.rows), "peak_mib": [small, large], "memory": large / small}
    print(f"bare loop {figures['bare']:.0f}/s, ours {figures['ours']:.0f}/s: {figures['share']:.2f} of it (target {TARGET})")
    few, many = options.rows
    print(f"peak memory {small:.0f} MiB at {few:,} rows, {large:.0f} MiB at {many:,}: × {large / small:.2f}")
    keep(options.json, figures)


if __name__ == "__main__":
    main()
