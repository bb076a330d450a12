"""How values go into tasks: untouched, as Prefect else walks through every record, which costs more than the task itself."""

from __future__ import annotations

from typing import TypeVar, cast

from prefect.futures import PrefectFuture
from prefect.utilities.annotations import opaque, quote

T = TypeVar("T")


def as_is(value: T) -> T:
    """A parameter that holds no futures; the task gets the very object."""
    return cast(T, quote(value))


def result_of(future: PrefectFuture[T]) -> T:
    """A parameter that is the result of another task; the task waits for it and gets the very object."""
    return cast(T, opaque(future))
