"""The error tree, sorted by what the caller does about it.

StefError
├── InputError       a row, file or partition is wrong: keep the reason, go on with the rest
│   └── RowLimitError    reading a row takes more than it may
├── RuleError        rules or settings are wrong: stop before anything is written
├── GateError        data did not meet its expectations: nothing is published
└── TransientError   an endpoint or a warehouse could not be reached: try again
    ├── BusyError    somebody else holds it: try again later
    └── SpoolError   a disk refused a day's work under way, or files of it are gone: mend that, then run again
"""

from __future__ import annotations


class StefError(Exception):
    """Base of every error this project raises on purpose; its text is fit to be shown to a person."""


class InputError(StefError):
    """Data that came in is wrong; the message names the file, row and column."""


class RowLimitError(InputError):
    """Reading or aligning one row exceeds a limit; the message says which."""


class RuleError(StefError):
    """Rules or settings are wrong; the message names the file and the path inside it."""


class GateError(StefError):
    """A gate refused a table; the message names the expectation, the agent, observed and required."""


class TransientError(StefError):
    """An endpoint or a warehouse could not be reached; the same call may work later.

    Args:
        message: What could not be reached, and what to do.
        retry_after_s: Seconds the other side asked to wait, where it said so.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BusyError(TransientError):
    """Another process holds the warehouse or the day."""


class SpoolError(TransientError):
    """A day's work under way could not be written to its disk, or files of it are gone; at once it would fail again.

    Args:
        message: Which folder, why, and what to do.
        lost: Files are gone, so what is left of them serves no later run.
    """

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost
