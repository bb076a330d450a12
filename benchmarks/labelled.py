"""Labelled rows of ``../shared/data`` as records, with the groups that a fit may not split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stef_core import QueryRecord

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One labelled answer."""

    record: QueryRecord
    right: bool
    corpus: str  # bugs | spider | other
    source: str
    database: str
    agent: str
    question: str
    error_types: tuple[str, ...]


def labelled_rows(*, sources: frozenset[str] | None = None) -> Iterator[Labelled]:
    """Rows of ``labelled.parquet``.

    Raises:
        FileNotFoundError: The folder with the shared data is absent.
    """
    frame = pl.read_parquet(SHARED / "labelled.parquet")
    for row in frame.iter_rows(named=True):
        if sources is not None and row["source"] not in sources:
            continue
        corpus = "bugs" if row["source"] == "nl2sql_bugs" else "spider" if row["source"] == "nl2sql360_spider" else "other"
        yield Labelled(
            record=QueryRecord(
                query_id=row["query_id"],
                user_question=row["user_question"],
                enriched_question=row["enriched_question"],
                generated_sql=row["generated_sql"],
                dialect=row["dialect"],
                app_id=row["db_id"] or "default",
            ),
            right=row["label"],
            corpus=corpus,
            source=row["source"],
            database=row["db_id"] or "",
            agent=row["agent_id"] or "",
            question=" ".join((row["user_question"] or "").lower().split()),
            error_types=tuple(row["error_types"] or ()),
        )


def spider_rows() -> Iterator[tuple[Labelled, tuple[str, ...]]]:
    """Rows of ``spider_agents.parquet`` with the agents that wrote each.

    Raises:
        FileNotFoundError: The folder with the shared data is absent.
    """
    frame = pl.read_parquet(SHARED / "spider_agents.parquet")
    for index, row in enumerate(frame.iter_rows(named=True)):
        if row["label_synthetic"] is None:
            continue  # no database could decide it
        item = Labelled(
            record=QueryRecord(
                query_id=f"spider-{index}",
                user_question=row["user_question"],
                generated_sql=row["generated_sql"],
                dialect="sqlite",
                app_id=row["db_id"],
            ),
            right=row["label_synthetic"],
            corpus="spider",
            source="spider_agents",
            database=row["db_id"],
            agent="",
            question=" ".join(row["gold_sql"].lower().split()),
            error_types=(),
        )
        yield item, tuple(row["agents"])
