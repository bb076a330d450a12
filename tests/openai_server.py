"""A loopback server that speaks the chat-completions and Batch protocols, with faults on demand, and counts what comes."""

from __future__ import annotations

import contextlib
import email
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

# body and how often this body came before -> what to send
Script: TypeAlias = "Callable[[dict[str, Any], int], Reply]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One HTTP response; `hang` sends none until the server closes."""

    status: int = 200
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    drop: bool = False  # close the connection without a word


def completion(message: dict[str, Any], finish_reason: str = "stop") -> Reply:
    """A well-formed response around one message."""
    data = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant"} | message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    return Reply(body=json.dumps(data))


def answer(content: Any) -> Reply:
    """An answer: text as it stands, anything else as JSON."""
    return completion({"content": content if isinstance(content, str) else json.dumps(content)})


def error(status: int, message: str = "no", *, code: str | None = None, param: str | None = None, **headers: str) -> Reply:
    """An error in the protocol's own form; ``retry_after="1"`` becomes a header."""
    data = {"error": {"message": message, "type": "error", "code": code, "param": param}}
    return Reply(status=status, body=json.dumps(data), headers={k.replace("_", "-"): v for k, v in headers.items()})


REFUSAL = completion({"content": None, "refusal": "I cannot help with that."})
FILTERED = completion({"content": ""}, "content_filter")
TRUNCATED = completion({"content": '{"grade": "corr'}, "length")
EMPTY = completion({"content": ""})
NO_CHOICES = Reply(body='{"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": []}')
PAGE = Reply(body="<html><body>Sign in</body></html>", content_type="text/html")
BROKEN_JSON = Reply(body='{"id": "x", "choices": [{"message"')
HANG = Reply(hang=True)
DROP = Reply(drop=True)
BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How one batch goes: after `polls` looks at it, it ends."""

    polls: int = 0
    status: str = "completed"
    missing: frozenset[int] = frozenset()  # lines that stand in no file
    undone: frozenset[int] = frozenset()  # lines that were not answered, as those of a batch that expired
    code: str | None = None  # of the error of a batch that failed


class BatchApi:
    """Files and batches of a server; a batch's lines are answered by the server's script when the batch is made.

    `plan` says how the batch of a number goes, from 0. `intercept` is told each call, e.g. ``POST /batches``, ``before`` and
    ``after`` it is done; a reply of it is sent in the place of the true one.
    """

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server
        self.plan: Callable[[int], BatchPlan] = lambda _: BatchPlan()
        self.intercept: Callable[[str, str], Reply | None] = lambda _call, _stage: None
        self.files: dict[str, bytes] = {}
        self.made: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self._plans: dict[str, BatchPlan] = {}
        self._polls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def hurry(self) -> None:
        """Let batches end at the next look at them."""
        self.plan = lambda _: BatchPlan()
        self._plans = {name: replace(plan, polls=0) for name, plan in self._plans.items()}

    @property
    def lines(self) -> list[list[dict[str, Any]]]:
        """The lines of each batch."""
        return [_json_lines(self.files[batch["input_file_id"]]) for batch in self.made]

    def serve(self, method: str, path: str, query: str, raw: bytes, content_type: str) -> Reply:
        name, _, rest = path.rpartition("/v1/")[2].partition("/")
        call = f"{method} /{name}" + ("/{id}" if rest else "")
        with self._lock:
            self.calls.append(call)
        if (reply := self.intercept(call, "before")) is not None:
            return reply
        with self._lock:
            if call == "POST /files":
                reply = self._upload(raw, content_type)
            elif call == "GET /files/{id}":
                content = self.files.get(rest.removesuffix("/content"))
                reply = error(404, "no such file") if content is None else Reply(body=content.decode(), content_type=BINARY)
            elif call == "POST /batches":
                reply = self._make(json.loads(raw))
            elif call == "GET /batches":
                reply = self._list(query)
            else:
                reply = self._look(rest)
        return self.intercept(call, "after") or reply

    def _upload(self, raw: bytes, content_type: str) -> Reply:
        message = email.message_from_bytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + raw)
        parts = {part.get_param("name", header="content-disposition"): part for part in message.walk()}
        assert parts["purpose"].get_payload(decode=True) == b"batch"
        content = parts["file"].get_payload(decode=True)
        assert isinstance(content, bytes)
        file_id = f"file-{len(self.files)}"
        self.files[file_id] = content
        return Reply(body=json.dumps({"id": file_id, "object": "file", "purpose": "batch", "bytes": len(content)}))

    def _make(self, body: dict[str, Any]) -> Reply:
        assert (body["endpoint"], body["completion_window"]) == ("/v1/chat/completions", "24h")
        number = len(self.made)
        plan = self.plan(number)
        batch = {
            "id": f"batch-{number}",
            "object": "batch",
            "endpoint": body["endpoint"],
            "completion_window": "24h",
            "input_file_id": body["input_file_id"],
            "metadata": body.get("metadata"),
            "created_at": int(time.time()),
            "status": "validating",
        }
        self.made.append(batch)
        self._plans[str(batch["id"])] = plan
        lines = _json_lines(self.files[body["input_file_id"]])
        batch["request_counts"] = {"total": len(lines), "completed": 0, "failed": 0}
        if plan.status == "failed":
            return Reply(body=json.dumps(batch))
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for place, line in enumerate(lines):
            assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
            if place in plan.undone:
                bad.append({"custom_id": line["custom_id"], "response": None, "error": {"code": "batch_expired"}})
                continue
            reply = self.server.batched(line["body"])
            response = {"status_code": reply.status, "request_id": "r", "body": json.loads(reply.body)}
            if place not in plan.missing:
                (good if reply.status == 200 else bad).append(
                    {"id": "l", "custom_id": line["custom_id"], "response": response, "error": None}
                )
        for kind, written in (("output", good), ("error", bad)):
            if written:
                self.files[f"file-{kind}-{number}"] = "".join(
                    json.dumps(line, ensure_ascii=False) + "\n" for line in written
                ).encode()
        return Reply(body=json.dumps(batch))

    def _look(self, batch_id: str) -> Reply:
        batch = next((batch for batch in self.made if batch["id"] == batch_id), None)
        if batch is None:
            return error(404, "no such batch")
        plan, number = self._plans[batch_id], batch_id.removeprefix("batch-")
        self._polls[batch_id] += 1
        if self._polls[batch_id] <= plan.polls:
            batch["status"] = "in_progress"
            return Reply(body=json.dumps(batch))
        batch["status"] = plan.status
        if plan.code:
            batch["errors"] = {"object": "list", "data": [{"code": plan.code, "message": f"planned: {plan.code}"}]}
        for kind in ("output", "error"):
            if f"file-{kind}-{number}" in self.files:
                batch[f"{kind}_file_id"] = f"file-{kind}-{number}"
        done = len(_json_lines(self.files.get(f"file-output-{number}", b"")))
        batch["request_counts"] = batch["request_counts"] | {"completed": done}
        return Reply(body=json.dumps(batch))

    def _list(self, query: str) -> Reply:
        asked = dict(parse_qsl(query))
        newest = self.made[::-1]
        start = next((n + 1 for n, batch in enumerate(newest) if batch["id"] == asked.get("after")), 0)
        page = newest[start : start + int(asked.get("limit", 20))]
        return Reply(body=json.dumps({"object": "list", "data": page, "has_more": start + len(page) < len(newest)}))


def _json_lines(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.split(b"\n") if line]


def user_data(content: str) -> dict[str, Any]:
    """The JSON object of a user message, which stands between two lines with the same marker."""
    first, *lines, last = content.split("\n")
    assert first == last
    assert first.isalnum()
    data = json.loads("\n".join(lines))
    assert isinstance(data, dict)
    return data


class OpenAIServer:
    """Serves `script`; `bodies` are the requests in the order they came.

    It has no Batch API until `batches` is set. `answered` counts what was answered well, singly and in batches, by request.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.paths: list[str] = []
        self.answered: Counter[str] = Counter()
        self.batches: BatchApi | None = None
        self.in_flight = self.most_in_flight = 0
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> int:
        return len(self.bodies)

    @property
    def distinct(self) -> int:
        return len(self._seen)

    def user(self, index: int = -1) -> dict[str, Any]:
        """The data of the user message of one request."""
        return user_data(next(m["content"] for m in self.bodies[index]["messages"] if m["role"] == "user"))

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def respond(self, raw: bytes, authorization: str) -> Reply:
        body = json.loads(raw)
        with self._lock:
            said = json.dumps(body, sort_keys=True)
            before = self._seen[said]
            self._seen[said] += 1
            self.bodies.append(body)
            self.keys.append(authorization.removeprefix("Bearer "))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = self.script(body, before)
            if reply.hang:
                self._closing.wait()
            self._note(body, reply)
            return reply
        finally:
            with self._lock:
                self.in_flight -= 1

    def batched(self, body: dict[str, Any]) -> Reply:
        """The reply to one line of a batch."""
        said = json.dumps(body, sort_keys=True)
        reply = self.script(body, self._seen[said])
        self._seen[said] += 1
        self._note(body, reply)
        return reply

    def _note(self, body: dict[str, Any], reply: Reply) -> None:
        if reply.status == 200:
            with self._lock:
                self.answered[json.dumps(body, sort_keys=True)] += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is no news."""


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            server.paths.append(self.path)
            if self.path.partition("?")[0].endswith("/chat/completions"):
                self._send(server.respond(raw, self.headers.get("authorization", "")))
            else:
                self._serve(raw)

        def do_GET(self) -> None:
            self._serve(b"")

        def _serve(self, raw: bytes) -> None:
            parts = urlsplit(self.path)
            if server.batches is None:
                self._send(error(404, "no such path"))
            else:
                given = self.headers.get("content-type", "")
                self._send(server.batches.serve(self.command, parts.path, parts.query, raw, given))

        def _send(self, reply: Reply) -> None:
            if reply.hang or reply.drop:
                self.close_connection = True
                return
            body = reply.body.encode()
            self.send_response(reply.status)
            self.send_header("content-type", reply.content_type)
            self.send_header("content-length", str(len(body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may have gone
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving(script: Script) -> Iterator[OpenAIServer]:
    """A server for one test."""
    server = OpenAIServer(script)
    try:
        yield server
    finally:
        server.close()
