"""A loopback endpoint in a process of its own, for drills and benchmarks: fast, with faults drawn from the request itself.

    python -m tests.llm_endpoint --latency 0.1 --faults '{"429": 0.2, "500": 0.05, "hang": 0.02}' [--each-attempt]

Prints its address on the first line. ``GET /stats`` counts requests, distinct ones and distinct ones that were answered. The
same request meets the same fault in every run: on its first attempt only, or drawn anew for each attempt.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

KINDS = ("429", "500", "hang", "invalid", "refusal", "truncated")
SPEC: dict[str, Any] = {"projections": [], "aggregations": [], "filters": [], "group_by": []}
GRADES = ("correct", "likely_correct", "potentially_incorrect", "incorrect")


class Endpoint:
    """Answers chat completions, and counts."""

    def __init__(self, latency_s: float, faults: dict[str, float], *, each_attempt: bool) -> None:
        self.latency_s, self.faults, self.each_attempt = latency_s, faults, each_attempt
        self.requests = 0
        self.seen: Counter[bytes] = Counter()
        self.answered: Counter[bytes] = Counter()
        self.drawn: Counter[str] = Counter()

    def stats(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "distinct": len(self.seen),
            "answered": sum(self.answered.values()),
            "answered_distinct": len(self.answered),
            "drawn": dict(self.drawn),
        }

    async def chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        key = hashlib.sha256(raw).digest()
        before = self.seen[key]
        self.requests += 1
        self.seen[key] += 1
        fault = self._fault(key, before)
        if fault is not None:
            self.drawn[fault] += 1
        if fault == "hang":
            await asyncio.sleep(3600)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if fault == "429":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "0.2"})
        if fault == "500":
            return web.json_response({"error": {"message": "broken"}}, status=500)
        self.answered[key] += 1
        if fault == "refusal":
            return _completion({"content": None, "refusal": "I would rather not."})
        if fault == "truncated":
            return _completion({"content": '{"grade": "corr'}, "length")
        if fault == "invalid":
            return _completion({"content": "It looks right to me."})
        return _completion({"content": self.answer(json.loads(raw))})

    def answer(self, body: dict[str, Any]) -> str:
        """What the message of a good answer says."""
        return json.dumps(answer_to(body))

    def _fault(self, key: bytes, before: int) -> str | None:
        if before and not self.each_attempt:
            return None
        chance = int.from_bytes(hashlib.sha256(key + bytes([before % 256])).digest()[:8]) / 2**64
        for kind in KINDS:
            chance -= self.faults.get(kind, 0.0)
            if chance < 0:
                return kind
        return None


def answer_to(body: dict[str, Any]) -> dict[str, Any]:
    """What a model says of a request: the same for the same text."""
    form = body.get("response_format", {}).get("json_schema", {}).get("name")
    text = next(m["content"] for m in body["messages"] if m["role"] == "user")
    if form == "verdict":
        digest = hashlib.sha256(text.encode()).digest()
        return {"reasons": ["as asked"], "grade": GRADES[digest[0] % 4], "confidence": round(0.5 + digest[1] / 512, 3)}
    return {"question": SPEC} | ({"enriched": SPEC} if form == "question_pair" else {})


def _completion(message: dict[str, Any], finish: str = "stop") -> web.Response:
    return web.json_response(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant"} | message}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
        }
    )


async def serve(endpoint: Endpoint) -> None:
    """Serve until the process ends."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    app.router.add_get("/stats", lambda _: _stats(endpoint))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    assert runner.addresses
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def _stats(endpoint: Endpoint) -> web.Response:
    return web.json_response(endpoint.stats())


class Running:
    """An endpoint in another process."""

    def __init__(self, address: str) -> None:
        self.address, self.base_url = address, f"{address}/v1"

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.address}/stats", timeout=30) as response:
            found = json.load(response)
        assert isinstance(found, dict)
        return found


@contextlib.contextmanager
def running(*arguments: str, module: str = "tests.llm_endpoint") -> Iterator[Running]:
    """Start an endpoint with these arguments, and end it; `module` is one that calls `main`."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Running(process.stdout.readline().strip())
        finally:
            process.kill()


def main(kind: type[Endpoint] = Endpoint) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before an answer")
    parser.add_argument("--faults", type=json.loads, default={}, help="JSON: share of requests by kind of fault")
    parser.add_argument("--each-attempt", action="store_true", help="draw a fault for each attempt, not for the first alone")
    options = parser.parse_args()
    asyncio.run(serve(kind(options.latency, options.faults, each_attempt=options.each_attempt)))


if __name__ == "__main__":
    main()
