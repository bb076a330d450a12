"""Data sets: every kind of file, other people's column names, and what users get wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from stef_core.errors import InputError
from stef_core.experiments.gold import read_gold, statements

GUIDE = (
    "Query,SQL,Levels,split\n"
    '"How many ships, in all?","SELECT COUNT(*)\nFROM ships",Easy,test\n'
    "Which ports are there?,SELECT name FROM ports,medium,train\n"
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_header_of_the_guide_loads_as_it_is(tmp_path: Path) -> None:
    first, second = read_gold(written(tmp_path, "guide.csv", GUIDE))

    assert (first.question, first.gold_sql) == ("How many ships, in all?", ("SELECT COUNT(*)\nFROM ships",))
    assert (first.level, first.split, first.number) == ("easy", "test", 1)
    assert (second.question, second.level) == ("Which ports are there?", "medium")


def test_query_is_the_sql_beside_a_question(tmp_path: Path) -> None:
    (row,) = read_gold(written(tmp_path, "other.csv", "question,query,db_name\nHow many?,SELECT 1,x\n"))

    assert (row.question, row.gold_sql) == ("How many?", ("SELECT 1",))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    lines = [{"question": "How many?", "gold_sql": "SELECT 1; SELECT 2", "level": "hard", "split": "dev", "query_id": "a"}]
    path = tmp_path / f"set{suffix}"
    frame = pl.DataFrame(lines)
    writers: dict[str, Callable[[Path], object]] = {
        ".csv": frame.write_csv,
        ".jsonl": frame.write_ndjson,
        ".parquet": frame.write_parquet,
    }
    writers[suffix](path)

    (row,) = read_gold(path)

    assert (row.query_id, row.question, row.gold_sql, row.level, row.split) == (
        "a",
        "How many?",
        ("SELECT 1", "SELECT 2"),
        "hard",
        "dev",
    )


def test_accepted_queries_may_be_a_list(tmp_path: Path) -> None:
    lines = [{"question": "a", "sql": ["SELECT ';'", "SELECT 2;"]}, {"question": "b", "sql": '["SELECT 3", "SELECT 4"]'}]
    path = written(tmp_path, "set.jsonl", "\n".join(map(json.dumps, lines)))

    assert [row.gold_sql for row in read_gold(path)] == [("SELECT ';'", "SELECT 2"), ("SELECT 3", "SELECT 4")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1", ("SELECT 1",)),
        ("SELECT 1;", ("SELECT 1",)),
        ("SELECT 1;; SELECT 2 ; -- the end", ("SELECT 1", "SELECT 2")),
        ("SELECT ';' AS a; SELECT \";\"", ("SELECT ';' AS a", 'SELECT ";"')),
        ("SELECT 'it''s; so' -- a; b\n; SELECT /* ; */ 2", ("SELECT 'it''s; so' -- a; b", "SELECT /* ; */ 2")),
        ("SELECT 1; SELECT 1", ("SELECT 1",)),
        ("", ()),
        (" ; ", ()),
    ],
)
def test_semicolons_split_only_where_they_end_a_statement(text: str, parts: tuple[str, ...]) -> None:
    assert statements(text) == parts


def test_columns_are_mapped(tmp_path: Path) -> None:
    path = written(tmp_path, "set.csv", "asked,answer,query\nHow many?,SELECT 1,noise\n")

    (row,) = read_gold(path, {"question": "asked", "gold_sql": "answer"})

    assert (row.question, row.gold_sql) == ("How many?", ("SELECT 1",))


def test_ids_come_from_the_content_and_stay_the_same_in_a_part_of_the_file(tmp_path: Path) -> None:
    whole = read_gold(written(tmp_path, "whole.csv", "question,sql\na,SELECT 1\nb,SELECT 2\na,SELECT 1\n"))
    part = read_gold(written(tmp_path, "part.csv", "question,sql\nb,SELECT 2\n"))

    assert part[0].query_id == whole[1].query_id
    assert whole[2].query_id == f"{whole[0].query_id}-2"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "set.csv",
            "question,level\na,easy\n",
            r"no column for gold_sql \(known names: .*\); columns there: question, level; map",
        ),
        ("set.csv", "question,sql\na,\n", r"set.csv: row 1: column sql is ''; it must be SQL"),
        ("set.csv", "question,sql\na,SELECT 1\n,SELECT 2\n", r"set.csv: row 2: column question is ''; it must be a question"),
        ("set.csv", "question,sql\na,SELECT 1, 2\n", r"row 1 \(line 2\): has 3 values, the header 2 columns; quote"),
        ("set.csv", 'question,sql\na,"SELECT 1\n', r"set.csv: line 2: cannot be read as CSV"),
        ("set.csv", "question,question,sql\na,b,c\n", "column question stands twice"),
        ("set.csv", "question,sql\n", "holds no rows"),
        ("set.csv", "", "holds no rows"),
        ("set.csv", "id,question,sql\n7,a,SELECT 1\n7,b,SELECT 2\n", "row 2: column id is '7', as in row 1; ids must differ"),
        ("set.jsonl", '{"question": "a", "sql": "SELECT 1"}\n{"question"\n', "set.jsonl: line 2: not JSON"),
        ("set.jsonl", "[1]\n", "line 1: a line holds one JSON object, not list"),
        ("set.jsonl", '{"question": "a", "sql": [1]}\n', r"row 1: column sql is \[1\]; it must be SQL, or a list"),
        ("set.jsonl", '{"question": ["a"], "sql": "SELECT 1"}\n', r"row 1: column question is \['a'\]; it must be text"),
        ("set.parquet", "not parquet", "set.parquet: cannot be read as Parquet"),
        ("set.txt", "a", "is neither of .csv"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_gold(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"quesiton": "a"}, "--map quesiton=a: quesiton is none of question.*did you mean question"),
        ({"question": "Qery"}, "column Qery is missing; did you mean Query"),
    ],
)
def test_a_mapping_that_does_not_fit_is_named(tmp_path: Path, columns: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_gold(written(tmp_path, "guide.csv", GUIDE), columns)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_bytes(b"question,sql\n\xff,SELECT 1\n")

    with pytest.raises(InputError, match=r"set\.csv: not UTF-8"):
        read_gold(tmp_path / "set.csv")
    with pytest.raises(InputError, match="no such file"):
        read_gold(tmp_path / "absent.csv")
