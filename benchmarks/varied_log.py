"""A query log of any size whose rows are all different, made from the real one so that its mix stays.

    python -m benchmarks.varied_log FOLDER [--rows 1000000] [--day 2026-11-02]

A log of repeats flatters whatever keeps answers. Here no two rows share `query_id`, question or SQL, while agents, versions,
applications, dialects, reformulations, kinds of questions and broken SQL come in the shares of the source. Each source row
becomes a template with one place that varies, of the first kind that it has:

1. a literal that both question and SQL hold (``'Brazil'``): its first word becomes another made-up word in both;
2. a number that both hold: it becomes another number in both;
3. neither: the question asks for at most so many rows and the SQL gets that LIMIT; where it has a LIMIT, or is no SELECT, the
   question asks for a label and the SQL gets a comment with it.

The same arguments give the same bytes, and rows are written in groups, so that a million of them need the memory of one group.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.demo_data import demo_frames

SHARED_LOG = Path(__file__).parents[2] / "shared" / "data" / "query_log"
ROW_GROUP = 50_000
DAY = dt.date(2026, 11, 2)
SCHEMA = pa.schema(
    {
        "query_id": pa.string(),
        "agent_id": pa.string(),
        "agent_version": pa.string(),
        "app_id": pa.string(),
        "asked_at": pa.timestamp("us", "UTC"),
        "user_question": pa.string(),
        "enriched_question": pa.string(),
        "generated_sql": pa.string(),
        "dialect": pa.string(),
    }
)
SLOT = "\0"  # stands in a template where the row's own word or number goes
SYLLABLES = tuple(c + v for c in "bdfgklmnprstvzhj" for v in "aeiou")
WORDS = len(SYLLABLES) ** 4
STRIDE = 15_485_863  # a prime that shares no factor with WORDS: neighbours get words that look unlike, all get different ones
FIRST_NUMBER = 2_101  # above what reads as a year

_LITERAL = re.compile(r"'((?:[^']|'')*)'|(?:=|<>|\blike|\bin\s*\()\s*\"([^\"]*)\"", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,}")
_NUMBER = re.compile(r"(?<![\w.'\"-])\d+(?![\w.'\"-])")
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
_QUERY = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_ENDS_WITH_LIMIT = re.compile(r"\b(?:limit|offset|fetch)\b[^()]*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A row of the source with `SLOT` where its rows differ; `kind` is ``word``, ``number``, ``limit`` or ``label``."""

    row: dict[str, Any]
    kind: str
    question: str
    enriched: str | None
    sql: str | None


def source(logs: Path = SHARED_LOG) -> tuple[list[dict[str, Any]], str]:
    """Rows to vary, in an order that makes any first part a sample, and where they are from: `logs`, else the demo week."""
    if logs.is_dir():
        frame, origin = pl.read_parquet(logs / "*" / "*.parquet", hive_partitioning=False), f"{logs.parent.name}/{logs.name}"
    else:
        frame, origin = demo_frames()[0], f"the demo week, as {logs} is not there"
    rows = frame.sort("asked_at", "query_id").to_dicts()
    random.Random("varied log").shuffle(rows)
    return rows, origin


def template(row: dict[str, Any]) -> Template:
    """Where a row can vary without a change of what it is an example of."""
    question, enriched, sql = row["user_question"] or "", row["enriched_question"], row["generated_sql"]
    for word in _shared_words(question, sql or ""):
        vary = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        return Template(
            row=row,
            kind="word",
            question=vary.sub(SLOT, question),
            enriched=enriched and vary.sub(SLOT, enriched),
            sql=_in_literals(vary, sql),
        )
    for number in _NUMBER.findall(question):
        vary = re.compile(rf"(?<![\w.'\"-]){number}(?![\w.'\"-])")
        if not _YEAR.fullmatch(number) and vary.search(sql or ""):
            return Template(
                row=row,
                kind="number",
                question=vary.sub(SLOT, question),
                enriched=enriched and vary.sub(SLOT, enriched),
                sql=vary.sub(SLOT, sql),
            )
    if sql and _QUERY.match(sql) and not _ENDS_WITH_LIMIT.search(sql):
        wish = f"Show at most {SLOT} rows."
        return Template(
            row=row,
            kind="limit",
            question=_with_sentence(question, wish),
            enriched=enriched and _with_sentence(enriched, wish),
            sql=f"{sql.rstrip().rstrip(';')} LIMIT {SLOT}",
        )
    return Template(
        row=row,
        kind="label",
        question=_with_sentence(question, f"Label it {SLOT}."),
        enriched=enriched and _with_sentence(enriched, f"Label it {SLOT}."),
        sql=f"/* {SLOT} */ {sql}" if sql and sql.strip() else sql,
    )


def varied_rows(rows: Sequence[dict[str, Any]], count: int, day: dt.date = DAY) -> Iterator[dict[str, Any]]:
    """`count` rows of a day with the columns of `SCHEMA`, all different, spread over the day.

    Args:
        rows: The source, with those columns.
        count: At most 40,960,000, the number of made-up words.
        day: UTC day of every row.
    """
    if count > WORDS:
        raise ValueError(f"{count:,} rows are asked for; at most {WORDS:,} can be told apart")
    templates = [template(row) for row in rows]
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    step = dt.timedelta(days=1) / max(count, 1)
    for number, each in zip(range(count), itertools.cycle(templates), strict=False):
        value = made_up_word(number) if each.kind in ("word", "label") else str(FIRST_NUMBER + number)
        yield {
            **{name: each.row.get(name) for name in SCHEMA.names},
            "query_id": f"{day:%Y%m%d}-{number:08d}",
            "asked_at": start + number * step,
            "user_question": each.question.replace(SLOT, value),
            "enriched_question": each.enriched and each.enriched.replace(SLOT, value),
            "generated_sql": each.sql and each.sql.replace(SLOT, value),
        }


def write_partition(
    logs: Path, count: int, day: dt.date = DAY, *, rows: Sequence[dict[str, Any]] | None = None, row_group: int = ROW_GROUP
) -> Path:
    """Write ``<logs>/dt=<day>/part-0.parquet`` with `count` different rows, a row group at a time.

    Args:
        logs: Root of the log; folders are made.
        count: Rows of the day.
        day: UTC day.
        rows: What to vary; `source` where None.
        row_group: Rows held in memory at once.

    Returns:
        The file.
    """
    folder = logs / f"dt={day}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "part-0.parquet"
    waiting = varied_rows(source()[0] if rows is None else rows, count, day)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        while group := list(itertools.islice(waiting, row_group)):
            writer.write_table(pa.Table.from_pylist(group, schema=SCHEMA))
    return path


def made_up_word(number: int) -> str:
    """A capitalised word of four syllables; another one for each number below `WORDS`."""
    rest, syllables = number * STRIDE % WORDS, []
    for _ in range(4):
        rest, index = divmod(rest, len(SYLLABLES))
        syllables.append(SYLLABLES[index])
    return "".join(syllables).capitalize()


def _shared_words(question: str, sql: str) -> Iterator[str]:
    """First words of literals of the SQL that the question says."""
    for match in _LITERAL.finditer(sql):
        word = _WORD.search(match[1] or match[2] or "")
        if word and re.search(rf"(?<!\w){re.escape(word[0])}(?!\w)", question, re.IGNORECASE):
            yield word[0]


def _in_literals(vary: re.Pattern[str], sql: str) -> str:
    return _LITERAL.sub(lambda literal: vary.sub(SLOT, literal[0]), sql)


def _with_sentence(text: str, sentence: str) -> str:
    text = text.rstrip()
    return f"{text}{'' if text.endswith(('.', '?', '!', ';')) else '.'} {sentence}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--day", type=dt.date.fromisoformat, default=DAY)
    options = parser.parse_args()
    rows, origin = source()
    path = write_partition(options.folder, options.rows, options.day, rows=rows)
    print(f"{options.rows:,} rows of {origin}: {path} ({path.stat().st_size / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()
