"""Reads heavy rows in a process beside this one, within the limits of time and memory in force.

One process serves many rows; it is replaced when it was killed or has died, and ends with this one. Rows that are plain never
come here, so most runs start none.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any

from stef_core.errors import RowLimitError
from stef_core.limits import RowLimits, limits_in_force

KEPT = 32  # answers that are kept, as the same text is read for several purposes
RECURSION = 700  # deeper than any row that is read, and less than what is left of the stack where its answer is used
START_S = 120.0  # seconds for a process to start, on a busy machine
SLACK = 5.0  # times the limit that a process may take by the clock, on a busy machine
_TIME_IS_UP = getattr(signal, "SIGPROF", 0)
_HEAD = struct.Struct(">Q")
_MB = 1 << 20
_inside = False  # whether this process is such a one

# what the process does on the first message: path, then the loop below
_PROGRAM = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from stef_core.guard import serve; serve()"


def guarded(name: str, *arguments: Any) -> Any:
    """Call one of `FUNCTIONS` in the process beside this one; called there, it is called in place.

    Args:
        name: Of the function.
        arguments: What it takes; they and what it returns can be pickled.

    Raises:
        RowLimitError: It took longer than the limit, needed more memory, or ended its process.
    """
    if _inside:
        return _functions()[name](*arguments)
    limits = limits_in_force()
    with _turn:
        return _process.call(name, arguments, limits)


def is_guarded() -> bool:
    """Whether this is the process that reads heavy rows."""
    return _inside


class _Process:
    """The process, started with the first heavy row."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._memory_mb = 0
        self._catalogue: Any = None  # the one that the process holds
        self._answers: OrderedDict[bytes, Any] = OrderedDict()

    def call(self, name: str, arguments: tuple[Any, ...], limits: RowLimits) -> Any:
        """What the function returns; of a text that was read lately the same as then."""
        if name == "examine":
            *rest, catalogue = arguments
            return self._within(pickle.dumps((name, rest), protocol=5), limits, catalogue)
        request = pickle.dumps((name, arguments, limits), protocol=5)
        key = hashlib.sha256(request).digest()
        if key not in self._answers:
            try:
                self._answers[key] = self._within(request, limits)
            except RowLimitError as error:
                self._answers[key] = error
            if len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        answer = self._answers[key]
        if isinstance(answer, RowLimitError):
            raise RowLimitError(str(answer))
        return answer

    def _within(self, request: bytes, limits: RowLimits, catalogue: Any = None) -> Any:
        try:
            self._start(limits)
            if catalogue is not self._catalogue:
                self._ask(pickle.dumps(("catalogue", (catalogue,)), protocol=5), START_S)
                self._catalogue = catalogue
            done, answer = self._ask(request, limits.seconds)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            code = self._ended_by()
            self.close()
            if isinstance(error, _OutOfTimeError) or code == -_TIME_IS_UP:
                raise RowLimitError(f"it takes longer than the {limits.seconds:g} seconds of STEF_ROW_SECONDS") from error
            # compiled code that gets no memory, or runs out of its stack, ends its process
            allowed = f"{limits.memory_mb:,} MB by STEF_ROW_MEMORY_MB"
            ended = f"the process that reads it ended ({_ending(code)}), which had {allowed}"
            raise RowLimitError(ended) from error
        except BaseException:  # interrupted: what it would answer next belongs to this request
            self.close()
            raise
        if done:
            return answer
        if answer == "MemoryError":
            self.close()  # what is left of it is uncertain
            raise RowLimitError(f"it needs more than the {limits.memory_mb:,} MB of STEF_ROW_MEMORY_MB")
        if answer == "RecursionError":
            raise RowLimitError("it is nested more deeply than can be read")
        raise RuntimeError(answer)

    def close(self) -> None:
        child, self._child, self._catalogue = self._child, None, None
        if child is None:
            return
        child.kill()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was not written to a process that is gone
                    continue
        child.wait()

    def _start(self, limits: RowLimits) -> None:
        if self._child is not None and (self._child.poll() is not None or self._memory_mb != limits.memory_mb):
            self.close()
        if self._child is not None:
            return
        self._child = subprocess.Popen(  # noqa: S603  # this very interpreter, and our own module
            [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._memory_mb = limits.memory_mb
        self._ask(pickle.dumps(("limit", (limits.memory_mb,)), protocol=5), START_S)

    def _ask(self, request: bytes, seconds: float) -> tuple[bool, Any]:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(SLACK * seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            _send(child.stdin, struct.pack(">d", seconds) + request)
            answer: tuple[bool, Any] = pickle.loads(_receive(child.stdout))  # noqa: S301  # of a process of ours
        except (OSError, EOFError) as error:
            if late.is_set():
                raise _OutOfTimeError from error
            raise
        finally:
            timer.cancel()
        return answer

    def _ended_by(self) -> int | None:
        """Exit code, or minus the signal, of the process; None where it did not start or does not end."""
        try:
            return None if self._child is None else self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return None


def _ending(code: int | None) -> str:
    if code is None:
        return "it could not be started"
    return f"signal {-code}" if code < 0 else f"code {code}"


class _OutOfTimeError(OSError):
    """The time of a row is over."""


_process = _Process()
_turn = threading.Lock()
atexit.register(lambda: _process.close())


def _after_fork() -> None:
    """In a process that was forked: the one beside belongs to the other, which may have been waiting for it."""
    global _process, _turn
    _process, _turn = _Process(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- in the process -------------------------------------------------------------------------------------------------


def _functions() -> Mapping[str, Callable[..., Any]]:
    from stef_core.evaluate import examine  # imports this module
    from stef_core.extract.question_offline import OfflineReader
    from stef_core.extract.sql import read_heavy

    return {"sql": read_heavy, "question": OfflineReader().read_one, "examine": examine}


def serve() -> None:
    """Answer requests until the other side goes away."""
    global _inside
    _inside = True
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may come between the answers
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process, whatever code it is in
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side is interrupted, and ends this one
    functions = _functions()
    functions["sql"]("SELECT a FROM t WHERE b = 'c'")  # what is loaded late belongs to the process, not to a row
    sys.setrecursionlimit(RECURSION)
    catalogue: Any = None
    while True:
        try:
            message = _receive(source)
        except EOFError:
            return
        (seconds,) = struct.unpack(">d", message[:8])
        _limit_time(seconds)
        answer: tuple[bool, Any]
        try:
            name, arguments, *_ = pickle.loads(message[8:])  # noqa: S301  # of the process that started this one
            if name == "limit":
                _limit_memory(arguments[0])
                answer = True, None
            elif name == "catalogue":
                (catalogue,) = arguments
                answer = True, None
            elif name == "examine":
                answer = True, functions[name](*arguments, catalogue)
            else:
                answer = True, functions[name](*arguments)
            data = pickle.dumps(answer, protocol=5)
        except (MemoryError, RecursionError) as error:
            data = pickle.dumps((False, type(error).__name__))
        except Exception as error:  # noqa: BLE001  # told to the other side, without the row's text
            data = pickle.dumps((False, f"{type(error).__name__} while a heavy row was read"))
        _limit_time(0)
        _send(sink, data)


def _limit_memory(memory_mb: int) -> None:
    """Bound what the process takes beyond what it takes now; where the system tells neither, only time is bounded."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:
            taken = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory_mb * _MB, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return


def _limit_time(seconds: float) -> None:
    """End this process when it has worked for so many seconds, by its own time, which no busy machine changes; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_HEAD.pack(len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    (length,) = _HEAD.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
