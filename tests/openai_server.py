"""A loopback server that speaks the chat-completions protocol, with faults on demand, and counts what it is asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

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


def user_data(content: str) -> dict[str, Any]:
    """The JSON object of a user message, which stands between two lines with the same marker."""
    first, *lines, last = content.split("\n")
    assert first == last
    assert first.isalnum()
    data = json.loads("\n".join(lines))
    assert isinstance(data, dict)
    return data


class OpenAIServer:
    """Serves `script`; `bodies` are the requests in the order they came."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
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
            before = self._seen[raw.decode()]
            self._seen[raw.decode()] += 1
            self.bodies.append(body)
            self.keys.append(authorization.removeprefix("Bearer "))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = self.script(body, before)
            if reply.hang:
                self._closing.wait()
            return reply
        finally:
            with self._lock:
                self.in_flight -= 1


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
            known = self.path.endswith("/chat/completions")
            reply = server.respond(raw, self.headers.get("authorization", "")) if known else error(404, "no such path")
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
