"""Small query logs for tests, in the layout of the data contract."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DAY = dt.date(2026, 3, 2)
NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)


def table(rows: int = 2, /, **columns: Any) -> pa.Table:
    """A small, whole log; `columns` replace or add, None takes away."""
    base: dict[str, Any] = {
        "query_id": [f"q{i}" for i in range(rows)],
        "agent_id": ["clerk"] * rows,
        "agent_version": ["v1"] * rows,
        "app_id": ["shop"] * rows,
        "asked_at": pa.array([NOON] * rows, pa.timestamp("us", "UTC")),
        "user_question": ["How many orders are there?"] * rows,
        "enriched_question": pa.nulls(rows, pa.string()),
        "generated_sql": ["SELECT COUNT(*) FROM orders"] * rows,
        "dialect": ["duckdb"] * rows,
    }
    return pa.table({name: column for name, column in (base | columns).items() if column is not None})


def write(root: Path, *tables: pa.Table, day: dt.date = DAY) -> Path:
    folder = root / f"dt={day}"
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(tables):
        pq.write_table(each, folder / f"part-{number}.parquet")
    return folder
