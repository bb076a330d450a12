"""Dotted paths into nested values: ``output.sql``, ``messages.-1.content``, ``messages[0].content``. Knows no Prefect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.importing_values import parse_json

DEPTH = 5  # of paths that are offered as a guess
_INDEX = re.compile(r"\[(-?\d+)\]")


def look_up(record: Any, path: str) -> Any:
    """What stands at a path; None where nothing does.

    Args:
        record: Nested mappings and lists; text that holds JSON is opened on the way.
        path: Names and list indexes with dots between them. A name may hold dots itself: the longest that is there counts, so
            that ``attributes.gen_ai.prompt`` finds its way.
    """
    return _walk(record, _INDEX.sub(r".\1", path).split("."))


def _walk(value: Any, steps: list[str]) -> Any:
    if not steps:
        return value
    if isinstance(value, str):
        value = parse_json(value)
    if isinstance(value, Mapping):
        for length in range(len(steps), 0, -1):
            name = ".".join(steps[:length])
            if name in value and (found := _walk(value[name], steps[length:])) is not None:
                return found
        return None
    if isinstance(value, list) and re.fullmatch(r"-?\d+", steps[0]) and -len(value) <= int(steps[0]) < len(value):
        return _walk(value[int(steps[0])], steps[1:])
    return None


def paths_of(record: Mapping[str, Any], prefix: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Every path of a record with what stands there, outer ones first; lists are taken whole."""
    inner: list[tuple[str, Mapping[str, Any]]] = []
    for name, value in record.items():
        path = f"{prefix}{name}"
        yield path, value
        opened = parse_json(value) if isinstance(value, str) else value
        if isinstance(opened, Mapping) and depth > 1:
            inner.append((path, opened))
    for path, opened in inner:
        yield from paths_of(opened, f"{path}.", depth - 1)
