"""Whatever is nested ten thousand deep, megabytes long or no text at all is answered, within limits, and ends no process."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stef_core import QueryRecord, evaluate
from stef_core.errors import InputError
from stef_core.limits import ROW_LIMIT, row_limits
from stef_core.records import Evaluation
from stef_core.rules import DEFAULT_RULES
from tasks.query_log import read_partition
from tests.fuzz.hostile import NESTED, QUESTIONS, sized
from tests.fuzz.targets import parquet_values, redacted, stored
from tests.logs import DAY, table, write

DEEP = 10_000
SECONDS = 1.0  # for reading a side, and for aligning the two
# of this process, whose own part is linear: measuring, and showing what there is
OWN_S = 5.0


def answered(record: QueryRecord) -> Evaluation:
    start = time.process_time()
    with row_limits(seconds=SECONDS, memory_mb=512):
        evaluation = evaluate(record)
    json.dumps(evaluation.to_json(), allow_nan=False)
    assert time.process_time() - start < OWN_S
    assert evaluation.reason in (None, "sql_unparseable", ROW_LIMIT)
    return evaluation


def of_sql(sql: str) -> QueryRecord:
    return QueryRecord(query_id="q", user_question="How many open orders?", generated_sql=sql)


def of_question(question: str, enriched: str | None = None) -> QueryRecord:
    statement = "SELECT COUNT(*) FROM orders WHERE status = 'open'"
    return QueryRecord(query_id="q", user_question=question, enriched_question=enriched, generated_sql=statement)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NESTED)
def test_ten_thousand_of_anything_in_sql_are_answered(kind: str) -> None:
    evaluation = answered(of_sql(NESTED[kind](DEEP)))

    assert (evaluation.status == "scored") == (evaluation.reason is None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUESTIONS)
def test_ten_thousand_of_anything_in_a_question_are_answered(kind: str) -> None:
    evaluation = answered(of_question(QUESTIONS[kind](DEEP), QUESTIONS[kind](DEEP // 2)))

    assert (evaluation.status == "scored") == (evaluation.reason is None)


@pytest.mark.parametrize("kind", ["AND", "texts in IN", "quotes that never close", "brackets", "comments", "spaces"])
def test_five_megabytes_of_sql_are_told_at_once(kind: str) -> None:
    evaluation = answered(of_sql(sized(NESTED[kind], 5_000_000)))

    assert evaluation.reason == ROW_LIMIT


def test_five_megabytes_of_a_question_are_told_at_once() -> None:
    assert answered(of_question("open orders " * 420_000)).reason == ROW_LIMIT


@pytest.mark.parametrize("kind", ["texts in IN", "numbers in IN"])
def test_list_of_fifty_thousand_is_answered(kind: str) -> None:
    with row_limits(seconds=60, memory_mb=1_024):
        evaluation = evaluate(of_sql(NESTED[kind](50_000)))

    assert evaluation.status == "scored"


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "SELECT\x00 1",
        "SELECT '\ud800' FROM t",
        "SELECT \u0430 FROM t",
        "SELECT \u202ea\u202c FROM t",
        "\ufeffSELECT 1",
        "\U000e0041",
    ],
    ids=ascii,
)
def test_odd_characters_are_answered_and_stored(text: str) -> None:
    assert answered(of_sql(text)).query_id == answered(of_question(text, text)).query_id == "q"
    assert stored(of_sql(text.encode("utf-8", "replace").decode())) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"NUL \x00 byte", None),
        ("\u043erders \u202eopen\u202c \u200b".encode(), None),
        (b"half \xed\xa0\x80 a character", "holds text that is not UTF-8"),
        (b"\xff\xfe", "holds text that is not UTF-8"),
        (b"open orders " * 420_000, None),
    ],
    ids=["NUL", "homoglyphs and marks", "lone surrogate", "no UTF-8", "5 MB"],
)
def test_log_with_odd_values_is_read_or_refused_by_file_and_column(text: bytes, told: str | None, tmp_path: Path) -> None:
    data = pa.array([text], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 1, data.buffers())
    folder = write(tmp_path, table(1, user_question=strings))

    if told is None:
        assert read_partition(str(tmp_path), DAY).lazy().collect()["user_question"].item() == text.decode()
        parquet_values(text)
    else:
        with pytest.raises(Exception, match=told) as refused:
            read_partition(str(tmp_path), DAY)
        assert str(folder / "part-0.parquet") in str(refused.value)
        assert "column user_question" in str(refused.value)
    assert pq.read_metadata(folder / "part-0.parquet").num_rows == 1


def test_file_with_a_column_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, table(1, surplus=["x"])) / "part-0.parquet"
    file.write_bytes(file.read_bytes().replace(b"surplus", b"surpl\x80s"))

    with pytest.raises(InputError, match="no readable Parquet file"):
        read_partition(str(tmp_path), DAY)


def test_fuzzing_sees_a_secret_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.targets.RULES", DEFAULT_RULES)

    with pytest.raises(AssertionError, match="the secret is stored"):
        redacted("orders of \u00a7", "SELECT 1 FROM t WHERE c = '\u00a7'")


def test_text_that_is_too_long_to_read_is_masked_whole() -> None:
    secret = "K-482913 " * 150_000

    assert stored(of_question(secret)) == stored(of_sql(f"SELECT a FROM t WHERE b = '{secret}'")) == 1
