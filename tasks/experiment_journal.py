"""What a run of an experiment has done so far, a JSON line each: a killed run goes on where it stopped. Knows no Prefect."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from filelock import FileLock, Timeout

from stef_core.errors import BusyError, InputError

Kind: TypeAlias = Literal["answer", "row"]


class Journal:
    """An append-only file of answers and finished rows by key.

    A key covers everything that determines its entry, so an entry under another prompt, model or database is simply not found.
    Each line is flushed as it is written: it outlives its process. A line that a kill cut off is dropped.

    Args:
        path: The file; made where absent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.Lock()
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._file: IO[bytes] | None = None
        whole = b""
        if path.exists():
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            for number, line in enumerate(whole.splitlines(), 1):
                self._take(line, number)
            if len(whole) < len(content):
                with path.open("r+b") as file:
                    file.truncate(len(whole))
        self._file = path.open("ab")

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The entry under a key, the latest where there are several."""
        return self._entries.get((kind, key))

    def add(self, kind: Kind, key: str, value: Mapping[str, Any]) -> None:
        """Keep an entry; it is in the file when this returns."""
        line = json.dumps({"kind": kind, "key": key, "value": value}, ensure_ascii=True, separators=(",", ":"), default=str)
        with self._turn:
            assert self._file is not None
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            self._entries[kind, key] = dict(value)

    def close(self) -> None:
        """Close the file; calling it twice is harmless."""
        with self._turn:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _take(self, line: bytes, number: int) -> None:
        try:
            entry = json.loads(line)
            self._entries[entry["kind"], entry["key"]] = dict(entry["value"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path}: line {number}: is no entry of a journal; move the file away to begin anew"
            ) from error


@contextlib.contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """The journal of a run's folder, held by one process at a time.

    Raises:
        BusyError: Another process is at this run.
        InputError: The folder cannot be written, or its journal is none.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "journal.lock", fallback_to_soft=False, thread_local=False)
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"{folder}: another process is running this experiment; let it finish, or choose another --name"
        ) from None
    except (OSError, NotImplementedError) as error:
        raise InputError(f"{folder}: cannot be written: {getattr(error, 'strerror', None) or error}") from error
    try:
        journal = Journal(folder / "journal.jsonl")
        try:
            yield journal
        finally:
            journal.close()
    finally:
        lock.release()


def key_of(*parts: Any) -> str:
    """SHA-256, in hex, over values that have one JSON text."""
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
