"""A real Prefect server with a home of its own, a process worker, and a webhook that keeps what it is sent, all on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import httpx

ROOT = Path(__file__).parents[1]
START_S = 180.0
T = TypeVar("T")


class PrefectHouse:
    """Server, worker and their client; `close` ends every process, and those that these started.

    Args:
        root: Folder for home, logs and the worker's working folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workplace = root / "work"
        self.workplace.mkdir()
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api"
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "STEF_", "OPENAI_"))}
        self.environment = ours | {
            "PREFECT_HOME": str(root / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_CLI_WRAP_LINES": "false",
            "DO_NOT_TRACK": "1",
            "PYTHONPATH": str(ROOT),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._client = httpx.Client(base_url=self.api, timeout=60)
        self.start("server", "server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(port))
        until("the server answers", self._is_up, START_S, self.log("server"))

    def prefect(self, *arguments: str) -> str:
        """Run a command of Prefect's and give what it says."""
        return self.python("-m", "prefect", *arguments)

    def python(self, *arguments: str) -> str:
        """Run Python with the server's environment and give what it says."""
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str, *arguments: str, **environment: str) -> None:
        """Start a command of Prefect's that stays, in the working folder."""
        with self.log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "prefect", *arguments],
                    cwd=self.workplace,
                    env=self.environment | environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that its children can be ended with it
                )
            )

    def log(self, name: str) -> Path:
        """What a process that stays has said."""
        return self.root / f"{name}.log"

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the server to a POST."""
        return self._ask("POST", path, json=dict(body or {}))

    def get(self, path: str) -> Any:
        """The answer of the server to a GET."""
        return self._ask("GET", path)

    def close(self) -> None:
        """End all processes, the last one first."""
        self._client.close()
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in reversed(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        def answered() -> httpx.Response | None:
            answer = self._client.request(method, path, **body)
            return None if answer.status_code == 503 else answer  # its SQLite is busy

        answer = until(f"the server has time for {path}", answered, 60, self.log("server"))
        assert answer.is_success, answer.text
        return answer.json()

    def _is_up(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._client.get("/health").status_code == 200
        return False


class Webhook:
    """Keeps the JSON bodies that it is posted."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def closing(thing: T) -> Iterator[T]:
    """A thing that is closed whatever happens."""
    try:
        yield thing
    finally:
        thing.close()  # type: ignore[attr-defined]


def until(what: str, found: Callable[[], T | None], seconds: float, *logs: Path) -> T:
    """Wait until `found` gives something true; else fail with the ends of the logs."""
    end = time.monotonic() + seconds
    while not (got := found()):
        if time.monotonic() > end:
            tails = "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
            raise AssertionError(f"after {seconds:.0f} s not yet: {what}\n{tails}")
        time.sleep(0.5)
    return got


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
