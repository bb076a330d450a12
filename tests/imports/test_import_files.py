"""`stef import` on files of many shapes: what they become, and what a stranger's mistakes are told."""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import gzip
import io
import json
import sqlite3
import stat
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import cli
from tasks.importing_files import DELIMITERS, Row, inspect, read_rows
from tasks.query_log import list_days, read_partition
from tests.imports.import_files import QUESTION, SQL, document, lines

HEAD = "question,sql,asked\n"
ROW = f'{QUESTION},"{SQL}",2026-03-02T12:00:00Z\n'
LOGS = "query_log"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    return tmp_path


def imported(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """What an import says as JSON."""
    got = cli.run(["import", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert got == code, out + err
    told: dict[str, Any] = json.loads(out)
    for file in told["files"]:
        parts = ("rows_written", "rows_refused", "rows_repeated", "rows_present", "rows_aside")
        assert file["rows_in"] == sum(file[part] for part in parts), "a row was lost"
    return told


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a mistake is told in; nothing is written."""
    code = cli.run(["import", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), out + err
    assert not Path(LOGS).exists()
    return err.removeprefix("error: ").rstrip("\n")


def log(*columns: str) -> list[dict[str, Any]]:
    """All rows of the log as the daily run reads them."""
    frames = [read_partition(LOGS, day).frame for day in list_days(LOGS)]
    rows = pl.concat(frames).to_dicts()
    return [{name: row[name] for name in columns} for row in rows] if columns else rows


def texts(root: str = LOGS) -> dict[str, bytes]:
    """Every file of the log by its path."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def moment(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc,arg-type]  # year, month, day and so on


# --- shapes ---------------------------------------------------------------------------------------------------------


def test_csv_with_quoted_newlines_becomes_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(
        "id,question,sql,created_at,team\n"
        f'7,"How many, by ""region""?","SELECT region, COUNT(*)\nFROM orders\nGROUP BY region",2026-03-02 09:14:00,north\n'
        f"8,{QUESTION},,2026-03-03 00:00:01,\n",
        encoding="utf-8",
    )

    told = imported(capsys, "q.csv")

    assert log("query_id", "agent_id", "asked_at", "user_question", "generated_sql", "extra") == [
        {
            "query_id": "7",
            "agent_id": "imported",
            "asked_at": moment(2026, 3, 2, 9, 14),
            "user_question": 'How many, by "region"?',
            "generated_sql": "SELECT region, COUNT(*)\nFROM orders\nGROUP BY region",
            "extra": '{"team":"north"}',
        },
        {
            "query_id": "8",
            "agent_id": "imported",
            "asked_at": moment(2026, 3, 3, 0, 0, 1),
            "user_question": QUESTION,
            "generated_sql": None,
            "extra": '{"team":null}',
        },
    ]
    assert any("imported" in note and "--set agent_id" in note for note in told["notes"])
    assert any("no zone; taken as UTC" in note for note in told["notes"])


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "utf-16-le"])
def test_delimiter_and_encoding_are_found_out(
    folder: Path, capsys: pytest.CaptureFixture[str], delimiter: str, encoding: str
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows(
        [["Question", "SQL", "Asked At"], ["Größe, Zahl; oder | mehr?", "SELECT a, b FROM größen", "2026-03-02T10:00:00+02:00"]]
    )
    (folder / "q.csv").write_bytes(text.getvalue().encode(encoding))

    imported(capsys, "q.csv")

    assert log("user_question", "generated_sql", "asked_at") == [
        {
            "user_question": "Größe, Zahl; oder | mehr?",
            "generated_sql": "SELECT a, b FROM größen",
            "asked_at": moment(2026, 3, 2, 8),
        }
    ]


def test_a_late_byte_that_is_no_utf8_is_seen_before_anything_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = HEAD + ROW * 40_000 + ROW.replace("open", "für")
    (folder / "q.csv").write_bytes(body.encode("cp1252"))

    told = imported(capsys, "q.csv")

    assert any("windows-1252" in note for note in told["notes"])
    assert "für" in log("user_question")[-1]["user_question"]


def test_named_encoding_and_delimiter_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.txt").write_bytes((HEAD + ROW).replace(",", "^").replace("open", "živé").encode("cp1250"))

    imported(capsys, "q.txt", "--encoding", "cp1250", "--delimiter", "^")

    assert log("user_question") == [{"user_question": "How many orders are živé?"}]


def test_nested_json_lines_are_reached_by_dotted_paths(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "chat": {"turns": [{"who": "me", "said": "hello"}, {"who": "me", "said": QUESTION}]},
        "reply": {"steps": [{"tool": "sql", "body": SQL}], "cost.total": 3},
        "when": 1_772_452_800_123,
        "meta": json.dumps({"bot": {"name": "clerk", "release": 4}}),
    }
    lines(folder / "q.jsonl", record)

    told = imported(
        capsys, "q.jsonl", "--map", "user_question=chat.turns[-1].said", "--map", "generated_sql=reply.steps.0.body",
        "--map", "asked_at=when", "--map", "agent_id=meta.bot.name", "--map", "agent_version=meta.bot.release",
    )  # fmt: skip

    (row,) = log()
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)
    assert (row["agent_id"], row["agent_version"]) == ("clerk", "4")
    assert row["asked_at"] == moment(2026, 3, 2, 12, 0, 0, 123_000)
    assert json.loads(json.loads(row["extra"])["reply"])["cost.total"] == 3
    assert told["files"][0]["mapping"]["agent_id"] == {"from": "meta.bot.name", "how": "named"}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"q": 1}], id="list"),
        pytest.param({"total": 1, "rows": [{"q": 1}]}, id="list in an object"),
        pytest.param({"a1": {"q": 1}, "a2": {"q": 1}}, id="objects by id"),
        pytest.param({"q": 1}, id="single object"),
    ],
)
def test_json_documents_of_several_forms_are_rows(folder: Path, capsys: pytest.CaptureFixture[str], value: Any) -> None:
    row = {"question": QUESTION, "sql": SQL, "ts": "2026-03-02"}
    document(folder / "q.json", json.loads(json.dumps(value).replace('{"q": 1}', json.dumps(row))))

    imported(capsys, "q.json")

    assert {(each["user_question"], each["generated_sql"]) for each in log()} == {(QUESTION, SQL)}


def test_json_by_columns_as_pandas_writes_it_is_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document(
        folder / "q.json",
        {
            "question": {"0": "A?", "1": "B?"},
            "sql": {"0": "SELECT 1", "1": "SELECT 2"},
            "ts": {"0": 1772452800, "1": 1772452801},
        },
    )

    imported(capsys, "q.json")

    assert log("user_question", "generated_sql") == [
        {"user_question": "A?", "generated_sql": "SELECT 1"},
        {"user_question": "B?", "generated_sql": "SELECT 2"},
    ]


def test_parquet_with_its_own_types_becomes_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(
        pa.table(
            {
                "id": [10, 11],
                "nl_question": [QUESTION, "Which?"],
                "answer": [{"sql": SQL, "rows": 3}, {"sql": "SELECT 2", "rows": None}],
                "start_time": pa.array([1_772_452_800_000_000_001] * 2, pa.timestamp("ns")),
                "thumb": [True, None],
                "score": [0.5, float("nan")],
                "raw": [b"\xff", b"a"],
            }
        ),
        folder / "q.parquet",
    )

    told = imported(capsys, "q.parquet")

    first, second = log()
    assert (first["query_id"], first["generated_sql"], first["user_feedback"]) == ("10", SQL, True)
    assert (second["generated_sql"], second["user_feedback"]) == ("SELECT 2", None)
    assert first["asked_at"] == moment(2026, 3, 2, 12)
    assert json.loads(first["extra"])["score"] == 0.5
    assert told["files"][0]["mapping"]["generated_sql"] == {"from": "answer.sql", "how": "guessed"}


def test_packed_file_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv.gz").write_bytes(gzip.compress((HEAD + ROW).encode()))

    assert imported(capsys, "q.csv.gz")["files"][0]["format"] == "CSV, gzip"
    assert log("user_question") == [{"user_question": QUESTION}]


def test_folder_and_pattern_take_each_file_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = folder / "in" / "deeper"
    inside.mkdir(parents=True)
    (inside / "a.csv").write_text(HEAD + ROW, encoding="utf-8")
    (inside / "copy.csv").write_text(HEAD + ROW, encoding="utf-8")
    (inside / "_notes.csv").write_text("nothing", encoding="utf-8")
    lines(folder / "in" / "b.jsonl", {"prompt": "B?", "output": {"sql": SQL}, "time": "2026-03-04T00:00:00Z"})

    told = imported(capsys, "in", "in/*.jsonl")

    assert [file["path"] for file in told["files"]] == ["in/b.jsonl", "in/deeper/a.csv"]
    assert any("copy.csv: holds the same as" in note for note in told["notes"])
    assert {row["user_question"] for row in log()} == {QUESTION, "B?"}


@pytest.mark.parametrize(
    ("answer", "sql"),
    [
        (f"Sure!\n```sql\n{SQL};\n```\nIt counts.", f"{SQL};"),
        (f"```\n{SQL}\n```", SQL),
        (json.dumps({"sql": SQL, "explanation": "select from"}), SQL),
        (json.dumps({"choices": [{"message": {"role": "assistant", "content": f"```sql\n{SQL}\n```"}}]}), SQL),
        (json.dumps({"tool_calls": [{"function": {"name": "run", "arguments": json.dumps({"query": SQL})}}]}), SQL),
        (f"```json\n{json.dumps({'sql_query': SQL})}\n```", SQL),
        (SQL, SQL),
        (f"-- how many\n{SQL}", f"-- how many\n{SQL}"),
        ("I cannot answer that.", "I cannot answer that."),
        ('{"error": "no table"}', '{"error": "no table"}'),
        ("```sql\nSELECT 1\n```\nor\n```sql\nSELECT 2\n```", "```sql\nSELECT 1\n```\nor\n```sql\nSELECT 2\n```"),
    ],
    ids=range(11),
)
def test_sql_is_taken_out_of_what_it_is_wrapped_in(
    folder: Path, capsys: pytest.CaptureFixture[str], answer: str, sql: str
) -> None:
    lines(folder / "q.jsonl", {"question": QUESTION, "answer_text": answer, "ts": 1772452800})

    imported(capsys, "q.jsonl", "--map", "generated_sql=answer_text")

    (row,) = log()
    assert row["generated_sql"] == sql
    assert (json.loads(row["extra"] or "{}").get("answer_text") == answer) is (answer != sql), "the answer itself goes along"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-02T12:00:00Z", moment(2026, 3, 2, 12)),
        ("2026-03-02 12:00:00.123456 UTC", moment(2026, 3, 2, 12, 0, 0, 123456)),
        ("2026-03-02T12:00:00.123456789+05:30", moment(2026, 3, 2, 6, 30, 0, 123456)),
        ("2026-03-02", moment(2026, 3, 2)),
        ("20260302", moment(2026, 3, 2)),
        ("2026/03/02 12:00", moment(2026, 3, 2, 12)),
        ("02.03.2026 12:00", moment(2026, 3, 2, 12)),
        ("Mon, 02 Mar 2026 12:00:00 +0100", moment(2026, 3, 2, 11)),
        ("1772452800", moment(2026, 3, 2, 12)),
        ("1772452800.25", moment(2026, 3, 2, 12, 0, 0, 250_000)),
        ("1.7724528e9", moment(2026, 3, 2, 12)),
        (1772452800, moment(2026, 3, 2, 12)),
        (1772452800_123, moment(2026, 3, 2, 12, 0, 0, 123_000)),
        (1772452800_123456, moment(2026, 3, 2, 12, 0, 0, 123456)),
        (1772452800_123456789, moment(2026, 3, 2, 12, 0, 0, 123456)),
        ("1772452800123456789", moment(2026, 3, 2, 12, 0, 0, 123456)),
    ],
    ids=str,
)
def test_time_stamps_of_many_forms_are_utc(
    folder: Path, capsys: pytest.CaptureFixture[str], value: Any, expected: dt.datetime
) -> None:
    lines(folder / "q.jsonl", {"question": QUESTION, "sql": SQL, "when": value})

    imported(capsys, "q.jsonl", "--map", "asked_at=when")

    assert log("asked_at") == [{"asked_at": expected}]


@pytest.mark.parametrize("value", ["soon", "03/02/2026 12:00", 5, True, {"a": 1}, [1], "0001-01-01T00:00:00+14:00", 1e300])
def test_what_is_no_time_is_refused_by_row_and_column(folder: Path, capsys: pytest.CaptureFixture[str], value: Any) -> None:
    good = {"question": QUESTION, "sql": SQL, "when": "2026-03-02"}
    lines(folder / "q.jsonl", good, good | {"when": value})

    told = imported(capsys, "q.jsonl", "--map", "asked_at=when", code=2)

    (bad,) = told["refused"]
    assert (bad["where"], bad["column"]) == ("line 2", "when")
    assert not Path(LOGS).exists()


def test_form_of_times_can_be_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f'question,sql,date\n{QUESTION},"{SQL}",03/02/2026 14:30\n', encoding="utf-8")

    hint = imported(capsys, "q.csv", code=2)["refused"][0]["reason"]
    imported(capsys, "q.csv", "--time-format", "%d/%m/%Y %H:%M")

    assert "--time-format" in hint
    assert log("asked_at") == [{"asked_at": moment(2026, 2, 3, 14, 30)}]


def test_said_day_is_that_of_rows_without_a_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f'question,sql\n{QUESTION},"{SQL}"\n', encoding="utf-8")

    missing = refused(capsys, "q.csv")
    imported(capsys, "q.csv", "--date", "2026-03-05")

    assert "--date YYYY-MM-DD" in missing
    assert "fields there: question, sql" in missing
    assert log("asked_at") == [{"asked_at": moment(2026, 3, 5)}]


def test_constants_and_database_names_fill_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f'question,query,db_id,date\n{QUESTION},"{SQL}",shop,2026-03-02\n', encoding="utf-8")

    told = imported(capsys, "q.csv", "--set", "agent_id=my-bot", "--set", "dialect=postgres", "--set", "agent_version=v2")

    (row,) = log("agent_id", "agent_version", "app_id", "dialect", "generated_sql")
    assert row == {"agent_id": "my-bot", "agent_version": "v2", "app_id": "shop", "dialect": "postgres", "generated_sql": SQL}
    assert not any("no field names the agent" in note for note in told["notes"])


def test_fields_of_the_same_name_as_a_column_that_is_mapped_elsewhere_go_along(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(
        folder / "q.jsonl",
        {"user_question": "old", "better": QUESTION, "sql": SQL, "ts": 1772452800, "dt": "x", "n": 2, "s": 1.5},
    )

    imported(capsys, "q.jsonl", "--map", "user_question=better")

    (row,) = log()
    assert row["user_question"] == QUESTION
    assert json.loads(row["extra"]) == {"source_user_question": "old", "source_dt": "x", "n": 2, "s": 1.5}


def test_further_fields_stay_out_where_that_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(folder / "q.jsonl", {"question": QUESTION, "sql": SQL, "ts": 1772452800, "email": "a@b.c"})

    imported(capsys, "q.jsonl", "--no-further")

    assert log("extra") == [{"extra": None}]
    assert not any(b"a@b.c" in data for data in texts().values())


def test_further_fields_of_changing_types_are_carried_in_one_that_holds_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": QUESTION, "sql": SQL, "ts": 1772452800}
    lines(
        folder / "q.jsonl",
        row | {"a": 1, "b": 1, "c": True},
        row | {"a": 1.5, "b": "x", "c": None},
        row | {"b": [1], "d": 2**70},
    )

    imported(capsys, "q.jsonl")

    assert [json.loads(each["extra"]) for each in log("extra")] == [
        {"a": 1.0, "b": "1", "c": True, "d": None},
        {"a": 1.5, "b": "x", "c": None, "d": None},
        {"a": None, "b": "[1]", "c": None, "d": str(2**70)},
    ]


# --- the same file again --------------------------------------------------------------------------------------------


def test_file_imported_twice_leaves_the_same_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW * 3 + ROW.replace("03-02", "03-04"), encoding="utf-8")

    imported(capsys, "q.csv")
    once = texts()
    (folder / "q.csv").rename(folder / "renamed.csv")
    told = imported(capsys, "renamed.csv")

    assert texts() == once
    assert len({row["query_id"] for row in log()}) == 4, "rows that say the same are as many as they were"
    assert any("had been imported before" in note for note in told["notes"])


def test_import_with_a_better_mapping_takes_the_place_of_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f"question,a,b,date\n{QUESTION},SELECT 1,SELECT 2,2026-03-02\n", encoding="utf-8")
    imported(capsys, "q.csv", "--map", "generated_sql=a")

    told = imported(capsys, "q.csv", "--map", "generated_sql=b", "--date", "2026-03-09")

    assert log("generated_sql", "asked_at") == [{"generated_sql": "SELECT 2", "asked_at": moment(2026, 3, 9)}]
    assert not (Path(LOGS) / "dt=2026-03-02").exists()
    assert any("2026-03-02 were taken away" in note for note in told["notes"])


def test_answers_of_two_agents_in_one_file_stand_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f"question,a,b,date\n{QUESTION},SELECT 1,SELECT 2,2026-03-02\n", encoding="utf-8")

    for agent in ("a", "b"):
        told = imported(capsys, "q.csv", "--map", f"generated_sql={agent}", "--set", f"agent_id={agent}")
    both = sorted((row["agent_id"], row["generated_sql"]) for row in log())
    imported(capsys, "q.csv", "--map", "generated_sql=a", "--set", "agent_id=c", "--replace")

    assert both == [("a", "SELECT 1"), ("b", "SELECT 2")]
    assert any("also in the log under another agent" in note for note in told["notes"])
    assert [(row["agent_id"], row["generated_sql"]) for row in log()] == [("c", "SELECT 1")]


def test_dialect_that_is_said_afterwards_doubles_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW, encoding="utf-8")
    imported(capsys, "q.csv")
    (before,) = log("query_id")

    imported(capsys, "q.csv", "--set", "dialect=mysql")

    assert log("query_id", "dialect") == [before | {"dialect": "mysql"}]


def test_longer_export_adds_only_what_is_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "monday.csv").write_text(HEAD + ROW * 2, encoding="utf-8")
    (folder / "tuesday.csv").write_text(HEAD + ROW * 2 + ROW.replace("open", "late"), encoding="utf-8")
    imported(capsys, "monday.csv")

    told = imported(capsys, "tuesday.csv")

    assert (told["files"][0]["rows_present"], told["files"][0]["rows_written"]) == (2, 1)
    assert read_partition(LOGS, dt.date(2026, 3, 2)).duplicates == ()
    assert len(log()) == 3


def test_other_row_under_an_id_of_the_log_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, sql in (("a", "SELECT 1"), ("b", "SELECT 2")):
        (folder / f"{name}.csv").write_text(f"id,question,sql,date\n1,{QUESTION},{sql},2026-03-02\n", encoding="utf-8")

    told = imported(capsys, "a.csv", "b.csv", code=2)
    imported(capsys, "a.csv", "b.csv", "--map", "query_id=")

    assert "another row '1'" in told["refused"][0]["reason"]
    assert sorted(row["generated_sql"] for row in log()) == ["SELECT 1", "SELECT 2"]


def test_field_that_was_guessed_for_an_id_and_repeats_loses_no_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{number},{QUESTION},SELECT {number},2026-03-02" for number in [*range(1100), 1099]]
    (folder / "q.csv").write_text("\n".join(["id,question,sql,date", *rows]), encoding="utf-8")

    message = refused(capsys, "q.csv")
    told = imported(capsys, "q.csv", "--map", "query_id=id")

    assert (
        "row 1101, line 1102: '1099', taken for a query_id, stands also at row 1100, line 1101; say --map query_id=" in message
    )
    assert (told["files"][0]["rows_written"], told["files"][0]["rows_repeated"]) == (1100, 1)
    assert any("1099 (row 1101, line 1102)" in note for note in told["notes"])


# --- bad rows -------------------------------------------------------------------------------------------------------


def test_bad_rows_are_named_and_stop_the_import(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(
        HEAD + ROW + 'too,"few"\n' + f' ,"{SQL}",2026-03-02\n' + 'x,"a"b,2026-03-02\n' + ROW, encoding="utf-8"
    )

    code = cli.run(["import", "q.csv"])
    out, err = capsys.readouterr()

    assert code == 2
    assert err.splitlines() == [
        "refused: q.csv: row 2, line 3: has 2 fields, the head has 3",
        "refused: q.csv: row 3, line 4: column question: holds no question",
        "refused: q.csv: row 4, line 5: a quote stands inside a quoted field; write it twice",
        "error: 3 rows cannot be taken, so nothing was written; mend them, or go on without them with --skip-bad",
    ]
    assert "5 rows in, 2 can be written, 3 refused" in out
    assert not Path(LOGS).exists()


def test_bad_rows_are_written_beside_where_the_rest_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"question": QUESTION, "sql": SQL, "ts": 1772452800}
    path = lines(folder / "q.jsonl", good, good | {"question": None}, good)
    path.write_bytes(path.read_bytes() + b"{broken\n[1]\n" + b'{"a":' * 100_000 + b"\n")

    told = imported(capsys, "q.jsonl", "--skip-bad")

    rejects = Path(told["files"][0]["rejects"])
    written = [json.loads(line) for line in rejects.read_text(encoding="utf-8").splitlines()]
    assert [each["where"] for each in written] == ["line 2", "line 4", "line 5", "line 6"]
    assert written[0]["record"] == good | {"question": None}
    assert stat.S_IMODE(rejects.stat().st_mode) == 0o600
    assert (told["files"][0]["rows_written"], told["files"][0]["rows_refused"]) == (2, 4)
    assert len(log()) == 2


@pytest.mark.parametrize("behind", [ROW, "Which?,SELECT 1,2026-03-02\n"], ids=["a quote follows", "none follows"])
def test_quote_that_is_not_closed_swallows_no_other_row(folder: Path, capsys: pytest.CaptureFixture[str], behind: str) -> None:
    (folder / "q.csv").write_text(HEAD + ROW + '"never closed,x,y\n' + behind * 3, encoding="utf-8")

    told = imported(capsys, "q.csv", "--skip-bad")

    (bad,) = told["refused"]
    assert bad["where"] == "row 2, line 3"
    assert "quote" in bad["reason"]
    assert told["files"][0]["rows_written"] == 4
    assert json.loads(Path(told["files"][0]["rejects"]).read_text(encoding="utf-8"))["record"] == '"never closed,x,y'


def test_answers_without_sql_are_kept_or_left_aside_as_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW + f"{QUESTION},,2026-03-02\n", encoding="utf-8")

    kept = imported(capsys, "q.csv")
    left = imported(capsys, "q.csv", "--only-sql")

    assert any("without SQL: 1 row" in note for note in kept["notes"])
    assert (left["files"][0]["rows_written"], left["files"][0]["rows_aside"]) == (1, 1)
    assert [row["generated_sql"] for row in log()] == [SQL]


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "none.csv: no such file or folder"),
        (["/dev/null"], "/dev/null: is neither a file nor a folder"),
        (["*.nothing"], "*.nothing: nothing matches"),
        (
            ["q.csv", "--map", "user_question=qestion"],
            "none of the first 1 rows has qestion (is 'question' meant?); fields there: question, sql, asked",
        ),
        (["q.csv", "--map", "user_qestion=question"], "(is 'user_question' meant?)"),
        (["q.csv", "--map", "question"], "write --map COLUMN=FIELD"),
        (["q.csv", "--set", "asked_at=now"], "--set takes agent_id, agent_version, app_id, dialect"),
        (["q.csv", "--map", "agent_id=sql", "--set", "agent_id=x"], "say only one of them"),
        (["q.csv", "--format", "xml"], "--format xml: is not known"),
        (["q.csv", "--encoding", "klingon"], "--encoding klingon: is not known"),
        (["q.csv", "--delimiter", "abc"], "--delimiter 'abc': is not one character"),
        (["q.csv", "--logs", "s3://bucket/log"], "import writes to a local folder"),
        (["q.csv", "--logs", "q.csv"], "--logs q.csv: is a file"),
        (["q.csv", "--logs", "."], "lies in the log . itself"),
        (["q.csv", "--encoding", "ascii", "--map", "user_question=sql"], "q.csv: is not ascii"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_mistake_of_a_command_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (folder / "q.csv").write_text(HEAD + ROW.replace("open", "für"), encoding="utf-8")

    assert message in refused(capsys, *arguments)


def sqlite_bytes() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    data: bytes = connection.serialize()
    return data


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("q.csv", b"", "is empty"),
        ("q.csv", b" \n\n", "is empty"),
        ("q.csv", HEAD.encode(), "holds no rows"),
        ("q.csv", ROW.encode(), "line 1: holds SQL and no names of columns"),
        ("q.csv", b"a,b\n1,2\n", "no field looks like the question of the user"),
        ("q.csv", f"question,when\n{QUESTION},2026-03-02\n".encode(), "no field looks like the SQL of the agent"),
        ("q.xlsx", b"PK\x03\x04rest", "is a spreadsheet"),
        ("q.db", sqlite_bytes(), "is a SQLite database"),
        ("q.json", b'[{"question": 1},', "is no JSON"),
        ("q.json", b"[" * 200_000, "is nested too deep"),
        ("q.json", b"[]", "holds no rows"),
        ("q.jsonl", b"nonsense\n", "none of its first 1 rows can be read"),
        ("q.parquet", b"PAR1 cut off", "cannot be read as Parquet"),
        ("q.csv.gz", gzip.compress(HEAD.encode() * 9)[:-9], "is cut off"),
        ("q.jsonl", codecs.BOM_UTF16_LE + b"{\x00\xff\xdf", "is not utf-16"),
    ],
    ids=range(15),
)
def test_file_that_cannot_be_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, message: str
) -> None:
    (folder / name).write_bytes(data)

    told = refused(capsys, name)

    assert told.startswith(name)
    assert message in told


def test_folder_that_cannot_be_written_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW, encoding="utf-8")
    (folder / "file").write_text("", encoding="utf-8")

    assert "--logs file/log: cannot be written" in refused(capsys, "q.csv", "--logs", "file/log")


# --- hostile contents -----------------------------------------------------------------------------------------------


def test_terminal_is_not_steered_by_what_a_file_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "q[red].csv"
    (folder / name).write_text(
        "question,sql,ts,[bold]x\n"
        + '"\x1b]0;owned\x07[link=http://x]Hi?","SELECT \x1b[31m1",2026-03-02,\x1b[2J\n' * 2
        + "\x1b[1m,,\x07,\n",
        encoding="utf-8",
    )

    codes = [cli.run(["import", name, *more]) for more in (["--dry-run"], ["--skip-bad"])]
    out, err = capsys.readouterr()

    assert codes == [2, 0]
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "[link=http://x]Hi?" in out
    assert log("generated_sql")[0] == {"generated_sql": "SELECT \x1b[31m1"}, "the log keeps what was said"


def test_message_is_one_line_whatever_a_field_is_called(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(folder / "q.jsonl", {"a\nb\x1b[2J": 1})

    assert "a b�[2J" in refused(capsys, "q.jsonl")


def test_half_characters_and_huge_numbers_are_refused_or_carried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"question": QUESTION, "sql": SQL, "ts": 1772452800}
    lines(
        folder / "q.jsonl",
        good | {"note": "\ud800", "n": 1e999},
        good | {"question": "\ud800?"},
        good | {"sql": "SELECT '\x00'"},
    )
    with (folder / "q.jsonl").open("a", encoding="utf-8") as handle:
        handle.write('{"question": "?", "sql": "SELECT 1", "ts": ' + "9" * 6000 + "}\n")

    told = imported(capsys, "q.jsonl", "--skip-bad")

    assert [(bad["where"], bad["column"]) for bad in told["refused"]] == [("line 2", "question"), ("line 4", None)]
    assert json.loads(log("extra")[0]["extra"])["note"] == "?"
    assert log("generated_sql")[1] == {"generated_sql": "SELECT '\x00'"}


def test_names_of_columns_may_repeat_and_lack(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f"question,sql,sql,,ts\n{QUESTION},SELECT 1,SELECT 2,x,2026-03-02\n", encoding="utf-8")

    imported(capsys, "q.csv", "--map", "generated_sql=sql_2")

    (row,) = log()
    assert row["generated_sql"] == "SELECT 2"
    assert json.loads(row["extra"]) == {"sql": "SELECT 1", "column_4": "x"}


# --- folders and output ---------------------------------------------------------------------------------------------


def test_folder_that_an_import_makes_is_closed_to_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW, encoding="utf-8")

    imported(capsys, "q.csv")

    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [Path(LOGS), *Path(LOGS).rglob("*")]}
    assert modes == {0}
    assert not list(Path(LOGS).glob(".import-*"))


def test_import_that_fails_at_the_last_leaves_the_log_as_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text(HEAD + ROW, encoding="utf-8")
    (folder / "b.csv").write_text(HEAD + ROW.replace("open", "late"), encoding="utf-8")
    (folder / "c.csv").write_text(HEAD, encoding="utf-8")
    imported(capsys, "a.csv")
    before = texts()

    code = cli.run(["import", "b.csv", "c.csv"])

    assert code == 2
    assert texts() == before
    assert "c.csv: holds no rows" in capsys.readouterr().err


def test_damaged_file_of_the_log_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW, encoding="utf-8")
    day = folder / LOGS / "dt=2026-03-02"
    day.mkdir(parents=True)
    (day / "part-0.parquet").write_bytes(b"nothing")

    code = cli.run(["import", "q.csv"])

    assert code == 2
    assert f"{LOGS}/dt=2026-03-02/part-0.parquet: a file of the log cannot be read" in capsys.readouterr().err
    assert list(day.iterdir()) == [day / "part-0.parquet"]


def test_dry_run_shows_mapping_and_rows_within_100_columns_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "q.csv").write_text(HEAD + ROW.replace("open", "open" * 60) * 7, encoding="utf-8")

    code = cli.run(["import", "q.csv", "--dry-run", "--set", "agent_id=an-agent-with-quite-a-long-name"])
    out, err = capsys.readouterr()

    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    assert all(word in out for word in ("user_question", "question", "guessed", "First rows", "2026-03-02 12:00", "7 rows in"))
    assert out.endswith("Nothing was written; run it without --dry-run to write the log.\n")
    assert {path.name for path in folder.iterdir()} == {"q.csv"}


def test_many_rows_and_days_are_written_in_pieces_and_none_is_lost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "q.csv").open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["question", "sql", "ts"])
        for number in range(45_000):
            writer.writerow([f"How many of {number % 900}?", f"SELECT {number}", 1_772_452_800 + (number % 3) * 86_400])

    told = imported(capsys, "q.csv")

    assert told["files"][0]["days"] == {"2026-03-02": 15_000, "2026-03-03": 15_000, "2026-03-04": 15_000}
    rows = log("query_id", "generated_sql")
    assert {row["generated_sql"] for row in rows} == {f"SELECT {number}" for number in range(45_000)}
    assert len({row["query_id"] for row in rows}) == 45_000


def test_fields_that_are_called_after_what_they_hold_do_not_become_columns_without_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": QUESTION, "sql": SQL, "ts": 1772452800}
    lines(folder / "q.jsonl", *(row | {f"user-{number}": number, "_where": "mine"} for number in range(700)))

    imported(capsys, "q.jsonl")

    rows = [json.loads(each["extra"]) for each in log("extra")]
    assert len(rows[0]) == 301, "300 fields, and one that holds the others"
    assert json.loads(rows[699]["further_fields"]) == {"user-699": 699}
    assert {each["_where"] for each in rows} == {"mine"}


def test_folder_in_which_the_log_lies_can_be_imported_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(HEAD + ROW, encoding="utf-8")
    imported(capsys, ".")
    before = texts()

    told = imported(capsys, ".")

    assert texts() == before
    assert f"files of the log {LOGS} itself were left out" in told["notes"]


def test_nothing_written_is_told_as_such(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_text(HEAD + ROW, encoding="utf-8")
    (folder / "b.csv").write_text(HEAD + ROW + "\n", encoding="utf-8")
    (folder / "c.csv").write_text(HEAD + "?,,2026-03-02\n", encoding="utf-8")

    outs = []
    for arguments in (["a.csv"], ["b.csv"], ["c.csv", "--only-sql", "--map", "generated_sql=sql"]):
        assert cli.run(["import", *arguments]) == 0
        outs.append(capsys.readouterr().out.splitlines()[-1])

    assert outs == [
        "  stef report",
        f"The log {LOGS} holds all of it already; there is nothing new to score.",
        "No row was written; there is nothing new to score.",
    ]


def test_delimiter_that_excel_tells_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q.csv").write_text(f"sep=;\nquestion;sql;date\n{QUESTION};{SQL};2026-03-02\n", encoding="utf-8")

    imported(capsys, "q.csv")

    assert log("user_question", "generated_sql") == [{"user_question": QUESTION, "generated_sql": SQL}]


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=3, max_size=3), min_size=1, max_size=6),
    delimiter=st.sampled_from(DELIMITERS),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_every_csv_that_is_written_rightly_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], delimiter: str, end: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "q.csv"
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
        writer.writerows([["a", "b", "c"], *rows])

    read = list(read_rows(inspect(path, "csv", "utf-8", delimiter)))

    there = [row for row in rows if any(cell.strip() for cell in row)]
    assert [list(row.record.values()) for row in read if isinstance(row, Row)] == [
        [cell or None for cell in row] for row in there
    ]
    assert len(read) == len(there)
