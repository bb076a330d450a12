"""The experiment demo, made anew by every run: a small library in SQLite, questions with gold SQL, three prompts, and an agent.

The agent is scripted: it knows the questions, and makes the mistake of each unless its prompt warns of it. So versions of the
prompt differ as they do with a model, offline and the same every time.
"""

from __future__ import annotations

import csv
import datetime as dt
import random
import sqlite3
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from tasks.experiment_agents import Context

PROMPTS = ("library-v1", "library-v2", "library-v3")
SEED = 20_26
# what a prompt must say for the agent to heed it
MARKERS = {
    "columns": "only the columns",
    "distinct": "Count people and things once",
    "values": "in small letters",
    "nulls": "no date of return",
    "dates": "half-open range",
    "rounding": "Never round",
    "sparing": "only where different ones are asked for",
}
DDL = """
CREATE TABLE branches (branch_id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL);
CREATE TABLE members (
    member_id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL, joined_on TEXT NOT NULL,
    branch_id INTEGER NOT NULL REFERENCES branches
);
CREATE TABLE books (
    book_id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL, genre TEXT NOT NULL, pages INTEGER NOT NULL,
    published INTEGER NOT NULL
);
CREATE TABLE copies (
    copy_id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES books, branch_id INTEGER NOT NULL REFERENCES branches,
    status TEXT NOT NULL
);
CREATE TABLE loans (
    loan_id INTEGER PRIMARY KEY, copy_id INTEGER NOT NULL REFERENCES copies, member_id INTEGER NOT NULL REFERENCES members,
    lent_on TEXT NOT NULL, due_on TEXT NOT NULL, returned_on TEXT
);
CREATE TABLE fines (
    fine_id INTEGER PRIMARY KEY, loan_id INTEGER NOT NULL REFERENCES loans, amount REAL NOT NULL, paid INTEGER NOT NULL
);
"""
_BRANCHES = (("Quay", "Lunde"), ("Mill", "Vassby"), ("Hill", "Lunde"), ("Station", "Torsund"))
_TOWNS = ("Lunde",) * 5 + ("Vassby",) * 3 + ("Torsund",) * 2 + ("Elvik",)
_FIRST = "Ada Alma Bo Carl Dina Edvin Frida Gustav Hanna Ivar Johan Klara Linn Mats Nora Olav Petra Rolf Siri Tove".split()
_LAST = "Aune Berg Dahl Eide Foss Grau".split()
_GENRES = ("crime",) * 4 + ("history",) * 3 + ("travel",) * 2 + ("poetry",)
_AUTHORS = ("Ines Holm", "Jon Vik", "Mara Lind", "Odd Sand", "Tuva Krog", "Arne Moe", "Siv Rud", "Per Lie")
_NOUNS = "harbour winter letter garden bridge lantern island mirror orchard signal river stranger".split()
_WAYS = ("The {}", "Beyond the {}", "A {} in June", "The last {}")
_FIRST_DAY = dt.date(2022, 1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One question of the demo, and how its agent goes wrong."""

    level: str
    ask: str
    gold: str
    wrong: str | None = None
    needs: str | None = None
    breaks: str | None = None
    unless: str | None = None

    def answer(self, prompt: str) -> str:
        """The SQL that the agent writes under a prompt."""
        heeds = {name for name, marker in MARKERS.items() if marker in prompt}
        if self.wrong is None or self.needs in heeds:
            return self.gold
        if self.breaks is not None and (self.breaks not in heeds or self.unless in heeds):
            return self.gold
        return self.wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFiles:
    """What the demo writes."""

    database: Path
    questions: Path
    prompts: tuple[Path, ...]


@cache
def questions() -> tuple[Scripted, ...]:
    """All questions of the demo, those included that building the data set drops."""
    text = (files("tasks") / "data" / "demo_experiment.toml").read_text(encoding="utf-8")
    return tuple(Scripted(**entry) for entry in tomllib.loads(text)["question"])


def agent(question: str, context: Context) -> str:
    """The scripted agent: ``--agent tasks.demo_experiment:agent`` with one of the demo's prompts, or your own version of it.

    Raises:
        LookupError: A question that the demo does not hold.
    """
    for each in questions():
        if each.ask == question:
            return f"Here is the query:\n```sql\n{each.answer(context.prompt or '')};\n```"
    raise LookupError("the scripted agent knows the questions of the demo only")


def write_demo_experiment(folder: Path) -> DemoFiles:
    """Write database, questions and prompts; files that are there are left, so that what was edited stays.

    Args:
        folder: Where they go; made where absent.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database, asked = folder / "library.sqlite", folder / "questions.csv"
    if not database.exists():
        _write_database(database)
    if not asked.exists():
        with asked.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["Query", "SQL", "Levels", "split"])  # the header of the Ragas guide
            writer.writerows([each.ask, each.gold, each.level, "test"] for each in questions())
    prompts = []
    for name in PROMPTS:
        path = folder / "prompts" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text((files("tasks") / "data" / "demo_prompts" / f"{name}.md").read_text(encoding="utf-8"), "utf-8")
        prompts.append(path)
    return DemoFiles(database=database, questions=asked, prompts=tuple(prompts))


def _write_database(path: Path) -> None:
    """The library, whole or not at all."""
    arriving = path.with_name(f".{path.name}.tmp")
    arriving.unlink(missing_ok=True)
    connection = sqlite3.connect(arriving)
    try:
        connection.executescript(DDL)
        for table, rows in _rows().items():
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608
        connection.commit()
    finally:
        connection.close()
    arriving.replace(path)


def _rows() -> dict[str, list[tuple[object, ...]]]:
    draw = random.Random(SEED).random  # noqa: S311  # a fixed sequence, the same in every version of Python

    def one(values: tuple[str, ...] | range) -> str | int:
        return values[int(draw() * len(values))]

    names = [f"{first} {last}" for last in _LAST for first in _FIRST][:70]
    days = sorted({int(draw() * 1000) for _ in range(400)})
    members: list[tuple[object, ...]] = []
    for n, name in enumerate(names, 1):
        joined = _FIRST_DAY + dt.timedelta(days=days[n * 4])  # all on different days
        members.append((n, name, one(_TOWNS), joined.isoformat(), 1 + int(draw() * len(_BRANCHES))))
    books: list[tuple[object, ...]] = []
    for n, title in enumerate((way.format(noun) for way in _WAYS for noun in _NOUNS), 1):
        # lengths differ, so that the longest of each genre is one book
        books.append((n, title, one(_AUTHORS), one(_GENRES), 90 + 7 * ((n * 31) % 48) + n % 5, 1940 + int(draw() * 84)))
    copies: list[tuple[object, ...]] = []
    for book in range(1, len(books) + 1):
        for _ in range(1 + int(draw() * 5)):
            status = "lost" if draw() < 0.1 else ("on loan" if draw() < 0.3 else "on shelf")
            copies.append((len(copies) + 1, book, 1 + int(draw() ** 1.5 * len(_BRANCHES)), status))
    loans: list[tuple[object, ...]] = []
    fines: list[tuple[object, ...]] = []
    for n in range(1, 401):
        copy = 1 + int(draw() ** 1.3 * (len(copies) - 12))  # the last copies are never lent
        member = 1 + int(draw() ** 2 * (len(members) - 9))  # nor do the newest members borrow
        joined = dt.date.fromisoformat(str(members[member - 1][3]))
        lent = joined + dt.timedelta(days=int(draw() * (dt.date(2025, 3, 1) - joined).days))
        out = 3 + int(draw() * 40)
        returned = None if draw() < 0.12 else lent + dt.timedelta(days=out)
        due = lent + dt.timedelta(days=28)
        loans.append((n, copy, member, lent.isoformat(), due.isoformat(), returned and returned.isoformat()))
        if out > 28:
            fines.append((len(fines) + 1, n, round(0.5 * (out - 28) + 0.3 * draw(), 2), int(draw() < 0.6)))
    return {
        "branches": [(n, name, town) for n, (name, town) in enumerate(_BRANCHES, 1)],
        "members": members,
        "books": books,
        "copies": copies,
        "loans": loans,
        "fines": fines,
    }
