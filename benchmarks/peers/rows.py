"""Rows that STEF and its peers judge alike: a question, the agent's SQL, gold SQL, and the database both run on."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import Row

PORTS = ("Bergen", "Turku", "Riga", "Gdynia", "Malmo", "Tallinn", "Kotka")
KINDS = ("ferry", "trawler", "yacht", "tug")
SCHEMA = (
    "CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, length_m REAL)",
    "CREATE TABLE moorings (id INTEGER PRIMARY KEY, boat_id INTEGER, port TEXT, berth INTEGER, day TEXT, fee REAL)",
)
TABLES = {
    "boats": ["id", "name", "kind", "length_m"],
    "moorings": ["id", "boat_id", "port", "berth", "day", "fee"],
}
# question, gold SQL, the same in other words, and SQL that forgets a filter; {x} makes each row different
SHAPES = (
    (
        "How many moorings in {port} had a fee above {x}?",
        "SELECT COUNT(*) FROM moorings WHERE port = '{port}' AND fee > {x}",
        "SELECT COUNT(m.id) FROM moorings AS m WHERE m.fee > {x} AND m.port = '{port}'",
        "SELECT COUNT(*) FROM moorings WHERE fee > {x}",
    ),
    (
        "What is the total fee of each kind of boat in {port}, for fees above {x}?",
        "SELECT b.kind, SUM(m.fee) FROM moorings m JOIN boats b ON b.id = m.boat_id"
        " WHERE m.port = '{port}' AND m.fee > {x} GROUP BY b.kind",
        "SELECT kind, SUM(fee) FROM boats JOIN moorings ON boats.id = moorings.boat_id"
        " WHERE moorings.fee > {x} AND moorings.port = '{port}' GROUP BY kind",
        "SELECT b.kind, SUM(m.fee) FROM moorings m JOIN boats b ON b.id = m.boat_id WHERE m.fee > {x} GROUP BY b.kind",
    ),
    (
        "What is the average length of {kind} boats that paid a fee above {x}?",
        "SELECT AVG(length_m) FROM boats WHERE kind = '{kind}' AND id IN (SELECT boat_id FROM moorings WHERE fee > {x})",
        "SELECT AVG(b.length_m) FROM boats AS b WHERE b.kind = '{kind}'"
        " AND EXISTS (SELECT 1 FROM moorings AS m WHERE m.boat_id = b.id AND m.fee > {x})",
        "SELECT AVG(length_m) FROM boats WHERE id IN (SELECT boat_id FROM moorings WHERE fee > {x})",
    ),
    (
        "Which three berths of {port} took the most in fees above {x}?",
        "SELECT berth, SUM(fee) AS total FROM moorings WHERE port = '{port}' AND fee > {x}"
        " GROUP BY berth ORDER BY total DESC LIMIT 3",
        "WITH paid AS (SELECT berth, fee FROM moorings WHERE port = '{port}' AND fee > {x})"
        " SELECT berth, SUM(fee) AS total FROM paid GROUP BY berth ORDER BY 2 DESC LIMIT 3",
        "SELECT berth, SUM(fee) AS total FROM moorings WHERE fee > {x} GROUP BY berth ORDER BY total DESC LIMIT 3",
    ),
)


def make_database(path: Path) -> None:
    """A small SQLite database, the same each time."""
    with sqlite3.connect(path) as store:
        for statement in SCHEMA:
            store.execute(statement)
        boats = [(n, f"boat {n}", KINDS[n % 4], 8.0 + (n * 37 % 101) / 3) for n in range(1, 61)]
        store.executemany("INSERT INTO boats VALUES (?, ?, ?, ?)", boats)
        moorings = [
            (
                n,
                1 + n * 7 % 60,
                PORTS[n * 5 % 7],
                1 + n * 11 % 13,
                f"2026-{1 + n % 12:02}-{1 + n % 28:02}",
                100 + (n * 7919 % 9973) / 31,
            )
            for n in range(1, 601)
        ]
        store.executemany("INSERT INTO moorings VALUES (?, ?, ?, ?, ?, ?)", moorings)
    store.close()


def make_rows(count: int, database: Path, *, right: bool) -> list[Row]:
    """Rows that are all different, with the results of both statements.

    Args:
        count: How many.
        database: What `make_database` made.
        right: Whether half of the rows have SQL that is right; else none has, and no result is that of the gold SQL.
    """
    store = sqlite3.connect(database)
    rows: list[Row] = []
    for n in range(count):
        question, gold, same, wrong = SHAPES[n % len(SHAPES)]
        shown = {"port": PORTS[n % 7], "kind": KINDS[n % 4], "x": round(0.01 * (n + 1), 2)}
        question, gold = question.format(**shown), gold.format(**shown)
        generated = (same if right and n // len(SHAPES) % 2 else wrong).format(**shown)
        row = {"id": str(n), "question": question, "generated_sql": generated, "gold_sql": gold}
        for name, sql in (("generated", generated), ("gold", gold)):
            cursor = store.execute(sql)
            columns, data = [column[0] for column in cursor.description], cursor.fetchall()
            row[f"{name}_split"] = json.dumps({"columns": columns, "index": list(range(len(data))), "data": data})
            row[f"{name}_csv"] = as_csv(columns, data)
        rows.append(row)
    store.close()
    return rows


def as_csv(columns: list[str], data: list[tuple[Any, ...]]) -> str:
    """A result as Ragas takes it."""
    out = io.StringIO()
    csv.writer(out).writerows([columns, *data])
    return out.getvalue()
