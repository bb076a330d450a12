"""Pages that people write, with parts that are made: ``<!-- made: name -->`` … ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def remade(page: Path, parts: Mapping[str, Callable[[], str]]) -> str:
    """A page with its made parts made anew; the text between them stays.

    Raises:
        ValueError: The page lacks a part, or has one that nobody makes.
    """
    text = page.read_text(encoding="utf-8")
    there = [name for _, name, _ in PART.findall(text)]
    if sorted(there) != sorted(parts):
        raise ValueError(f"{page}: its parts are {sorted(there)}, those that are made are {sorted(parts)}")
    return PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]()}\n\n{found[3]}", text)


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table under a head with bars between its names."""
    names = [name.strip() for name in head.split("|")]
    body = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(names)} |", "|" + "---|" * len(names), *body])
