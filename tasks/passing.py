"""How values go into tasks: untouched, as Prefect else walks through every record, which costs more than the task itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from prefect.utilities.annotations import quote

from tasks.crew import Crew

T = TypeVar("T")


def as_is(value: T) -> T:
    """A parameter that holds no futures; the task gets the very object."""
    return cast(T, quote(value))


def passing(place: int | Crew) -> Callable[[Any], Any]:
    """How values go into tasks at a place: Dask takes the mark of `as_is` for a value."""
    return (lambda value: value) if isinstance(place, Crew) else as_is
