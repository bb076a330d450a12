"""From a data set to a balanced sample: duplicates dropped, a fixed number of rows a level, the same for the same seed.

Source: experiments.md, "The loop" 1.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from stef_core.experiments.gold import GoldRow, level_key


def without_duplicates(rows: Iterable[GoldRow]) -> list[GoldRow]:
    """Rows in order, without those whose question and SQL stood before; white space makes no difference."""
    first: dict[str, GoldRow] = {}
    for row in rows:
        first.setdefault(row.content, row)
    return list(first.values())


def balanced_sample(rows: Sequence[GoldRow], per_level: int, seed: int) -> list[GoldRow]:
    """At most `per_level` rows of each level, in the order of `rows`.

    A row is drawn by a hash of the seed and its own content, so neither the order of the file nor rows of other levels change
    the draw, and a larger sample holds the smaller one.

    Args:
        rows: Rows without duplicates.
        per_level: Rows a level, 1 or more; a level that has fewer gives all it has.
        seed: Any whole number.
    """
    kept: set[int] = set()
    for level in by_level(rows):
        of_level = [n for n, row in enumerate(rows) if row.level == level]
        kept.update(sorted(of_level, key=lambda n: _draw(rows[n], seed))[:per_level])
    return [row for n, row in enumerate(rows) if n in kept]


def by_level(rows: Iterable[GoldRow]) -> dict[str, int]:
    """Rows of each level, from easy to hard."""
    counts = Counter(row.level for row in rows)
    return {level: counts[level] for level in sorted(counts, key=level_key)}


def _draw(row: GoldRow, seed: int) -> str:
    return hashlib.sha256(f"{seed}\x00{row.content}".encode("utf-8", "surrogatepass")).hexdigest()
