"""Reading a partition: what is accepted, what is reported, what is refused and in which words."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from stef_core.errors import InputError, TransientError
from tasks import query_log
from tasks.query_log import PARTITION_LOG, LogDay, read_partition, spool_partition
from tasks.spool import batch_rows, open_spool
from tests.logs import DAY, NOON, table, write


def refusal(root: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_partition(str(root), DAY)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_partition_comes_in_its_own_types_with_the_fingerprint_of_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path, table(3), table(2, query_id=["x", "y"]))

    partition = read_partition(str(tmp_path), DAY)

    assert partition.frame.schema == PARTITION_LOG
    assert partition.frame["query_id"].to_list() == ["q0", "q1", "q2", "x", "y"]
    first = (folder / "part-0.parquet").read_bytes()
    assert partition.files[0] == {
        "path": str(folder / "part-0.parquet"),
        "size": len(first),
        "sha256": hashlib.sha256(first).hexdigest(),
    }
    assert (partition.rows_read, partition.repeats, partition.out_of_day, partition.nulls, partition.notes) == (5, 0, 0, (), ())


def test_absent_partition_says_which_days_are_there(tmp_path: Path) -> None:
    write(tmp_path, table(), day=dt.date(2026, 3, 1))
    write(tmp_path, table(), day=dt.date(2026, 3, 4))

    message = refusal(tmp_path)

    assert message == f"{tmp_path}/dt=2026-03-02: no such partition; partitions there: 2026-03-01 to 2026-03-04"


def test_absent_root_is_told_apart(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere").endswith("there are no dt=YYYY-MM-DD folders under it")


@pytest.mark.parametrize("names", [[], ["_SUCCESS"], ["part-0.csv"]], ids=["empty", "a mark", "a CSV"])
def test_partition_without_parquet_files_is_refused(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / f"dt={DAY}").mkdir()
    for name in names:
        (tmp_path / f"dt={DAY}" / name).touch()

    assert refusal(tmp_path) == f"{tmp_path}/dt=2026-03-02: holds no *.parquet file"


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_file_cut_off_is_refused_by_name(tmp_path: Path, keep: float) -> None:
    file = write(tmp_path, table(50)) / "part-0.parquet"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])

    assert refusal(tmp_path).startswith(f"{file}: no readable Parquet file (cut off, or still being written): ")


def test_one_bad_file_of_several_is_the_one_named(tmp_path: Path) -> None:
    folder = write(tmp_path, table(), table())
    (folder / "part-1.parquet").write_bytes(b"PAR1 no, this is text")

    assert "part-1.parquet" in refusal(tmp_path)


@pytest.mark.parametrize("column", ["query_id", "agent_id", "asked_at", "user_question", "generated_sql"])
def test_missing_required_column_is_named_with_its_file(tmp_path: Path, column: str) -> None:
    write(tmp_path, table(), table(**{column: None}))

    assert f"part-1.parquet: column {column} is missing" in refusal(tmp_path)


def test_missing_column_with_a_similar_name_is_hinted_at(tmp_path: Path) -> None:
    write(tmp_path, table(user_question=None, user_questions=["a", "b"]))

    assert "column user_question is missing (is 'user_questions' meant?); columns there: " in refusal(tmp_path)


def test_optional_columns_may_be_absent_and_differ_between_files(tmp_path: Path) -> None:
    bare = table(2, agent_version=None, app_id=None, enriched_question=None, dialect=None, query_id=["x", "y"])
    write(tmp_path, table(2, user_feedback=[True, None]), bare)

    frame = read_partition(str(tmp_path), DAY).frame

    assert frame["app_id"].to_list() == ["shop", "shop", None, None]
    assert frame["user_feedback"].to_list() == [True, None, None, None]


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("asked_at", ["2026-03-02 12:00:00"] * 2, "string; it must be timestamp[us, UTC]"),
        ("asked_at", pa.array([DAY] * 2, pa.date32()), "date32[day]; it must be timestamp[us, UTC]"),
        ("user_question", [1, 2], "int64; it must be string"),
        ("generated_sql", [b"a", b"b"], "binary; it must be string"),
        ("user_feedback", ["yes", "no"], "string; it must be bool"),
    ],
)
def test_wrong_type_is_named_with_file_and_column(tmp_path: Path, column: str, values: Any, kind: str) -> None:
    file = write(tmp_path, table(2, **{column: values})) / "part-0.parquet"

    assert refusal(tmp_path) == f"{file}: column {column} has type {kind}"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_are_taken(tmp_path: Path, unit: str) -> None:
    write(tmp_path, table(2, asked_at=pa.array([NOON] * 2, pa.timestamp(unit, "UTC"))))

    assert read_partition(str(tmp_path), DAY).frame["asked_at"].to_list() == [NOON, NOON]


def test_nanoseconds_below_a_microsecond_do_not_stop_the_day(tmp_path: Path) -> None:
    write(tmp_path, table(1, asked_at=pa.array([int(NOON.timestamp()) * 10**9 + 7], pa.timestamp("ns", "UTC"))))

    assert read_partition(str(tmp_path), DAY).frame["asked_at"].to_list() == [NOON]


def test_other_time_zone_is_the_same_moment_in_utc(tmp_path: Path) -> None:
    write(tmp_path, table(2, asked_at=pa.array([NOON] * 2, pa.timestamp("us", "America/Lima"))))

    assert read_partition(str(tmp_path), DAY).frame["asked_at"].to_list() == [NOON, NOON]


def test_time_without_zone_is_taken_as_utc_and_noted(tmp_path: Path) -> None:
    file = write(tmp_path, table(2, asked_at=pa.array([NOON.replace(tzinfo=None)] * 2, pa.timestamp("ms")))) / "part-0.parquet"

    partition = read_partition(str(tmp_path), DAY)

    assert partition.frame["asked_at"].to_list() == [NOON, NOON]
    assert partition.notes == (f"{file}: asked_at has no time zone; taken as UTC",)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_every_kind_of_text_is_taken(tmp_path: Path, kind: pa.DataType) -> None:
    write(tmp_path, table(2, agent_id=pa.array(["a", "b"]).cast(kind)))

    assert read_partition(str(tmp_path), DAY).frame["agent_id"].to_list() == ["a", "b"]


def test_categorical_of_polars_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / f"dt={DAY}"
    folder.mkdir()
    frame = pl.from_arrow(table(2))
    assert isinstance(frame, pl.DataFrame)
    frame.cast({"agent_id": pl.Categorical, "dialect": pl.Enum(["duckdb"])}).write_parquet(folder / "a.parquet")

    assert read_partition(str(tmp_path), DAY).frame["agent_id"].to_list() == ["clerk", "clerk"]


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    bad = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    file = write(tmp_path, table(2, user_question=bad)) / "part-0.parquet"

    assert refusal(tmp_path) == f"{file}: column user_question holds text that is not UTF-8"


def test_first_of_each_query_id_is_kept_and_the_others_reported(tmp_path: Path) -> None:
    write(
        tmp_path,
        table(3, query_id=["a", "b", "a"], user_question=["one", "two", "three"]),
        table(2, query_id=["b", "c"], user_question=["four", "five"]),
    )

    partition = read_partition(str(tmp_path), DAY)

    assert partition.frame.select("query_id", "user_question").rows() == [("a", "one"), ("b", "two"), ("c", "five")]
    assert (partition.duplicates, partition.repeats, partition.rows_read) == (("a", "b"), 2, 5)


def test_rows_without_a_key_are_counted_not_merged(tmp_path: Path) -> None:
    file = write(tmp_path, table(3, query_id=[None, None, "a"])) / "part-0.parquet"

    partition = read_partition(str(tmp_path), DAY)

    assert partition.frame.height == 3
    assert partition.nulls == (f"{file}: query_id is null in 2 of 3 rows",)


def test_rows_outside_the_day_are_kept_and_counted(tmp_path: Path) -> None:
    late = [NOON, dt.datetime(2026, 3, 3, tzinfo=dt.UTC)]
    write(tmp_path, table(2, asked_at=pa.array(late, pa.timestamp("us", "UTC"))))

    partition = read_partition(str(tmp_path), DAY)

    assert (partition.frame.height, partition.out_of_day) == (2, 1)


def test_further_columns_travel_as_json(tmp_path: Path) -> None:
    further = {
        "dt": ["2026-03-02"] * 2,  # the folder's name, written into the file too
        "latency": [1.5, float("nan")],
        "on": pa.array([DAY, None], pa.date32()),
        "at": pa.array([NOON, None], pa.timestamp("ns", "UTC")),
        "tags": [["a", "ü"], None],
        "raw": [b"\x00\xff", None],
    }
    write(tmp_path, table(2, **further))

    first, second = (json.loads(text) for text in read_partition(str(tmp_path), DAY).frame["extra"])

    at = first.pop("at")
    assert dt.datetime.fromisoformat(at) == NOON
    assert first == {"latency": 1.5, "on": "2026-03-02", "tags": ["a", "ü"], "raw": "AP8="}
    assert second == {"latency": None, "on": None, "at": None, "tags": None, "raw": None}


def test_no_further_columns_leave_extra_null(tmp_path: Path) -> None:
    write(tmp_path, table(2))

    assert read_partition(str(tmp_path), DAY).frame["extra"].null_count() == 2


def test_column_written_twice_is_refused(tmp_path: Path) -> None:
    whole = table(2)
    write(tmp_path, whole.append_column("dialect", whole.column("dialect")))

    assert refusal(tmp_path).endswith("column dialect is there more than once")


def test_log_is_read_through_a_uri_and_through_any_filesystem(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="stands in for an object store")

    write(tmp_path, table(2))
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/bucket/logs/dt={DAY}/a.parquet", (tmp_path / f"dt={DAY}" / "part-0.parquet").read_bytes())

    by_uri = read_partition(tmp_path.as_uri(), DAY)
    parent = pafs.SubTreeFileSystem(str(tmp_path.parent), pafs.LocalFileSystem())
    by_subtree = read_partition(tmp_path.name, DAY, filesystem=parent)
    by_store = read_partition("bucket/logs", DAY, filesystem=pafs.PyFileSystem(pafs.FSSpecHandler(memory)))

    assert by_uri.frame.equals(by_subtree.frame)
    assert by_uri.frame.equals(by_store.frame)


def test_unknown_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ftp://host/logs: no file system that can be read"):
        read_partition("ftp://host/logs", DAY)


# --- into a spool ---


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_spooled_day_is_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("tasks.query_log.ROWS_READ", 4)
    ids = ["q1", "q2", "q1", "q3", "q4", "q2", "q5", "q3", "q6"]
    late = [NOON, *([NOON + dt.timedelta(days=1)] * 8)]
    write(
        tmp_path / "logs",
        table(9, query_id=ids, asked_at=pa.array(late, pa.timestamp("us", "UTC")), note=[str(n) for n in range(9)]),
        table(3, query_id=["q6", "q7", None], agent_id=["a", None, "b"]),
    )
    whole = read_partition(str(tmp_path / "logs"), DAY)

    spooled = spool_partition(str(tmp_path / "logs"), DAY, open_spool(tmp_path / "spool", DAY), size)

    told = {each.name for each in fields(LogDay)}
    assert {name: getattr(spooled, name) for name in told} == {name: getattr(whole, name) for name in told}
    assert (spooled.rows, spooled.repeats, spooled.duplicates) == (8, 4, ("q1", "q2", "q3", "q6"))
    assert spooled.lazy().collect().equals(whole.frame)
    assert pl.concat(spooled.frames()).equals(whole.frame)
    heights = [pl.read_parquet(part).height for part in spooled.spool.parts("log")]
    assert len(heights) == spooled.batches
    assert heights[:-1] == [size] * (len(heights) - 1)


def test_ids_whose_hashes_are_alike_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.query_log.ROWS_READ", 2)
    monkeypatch.setattr(pl.Series, "hash", lambda series: pl.Series([7] * series.len(), dtype=pl.UInt64))
    write(tmp_path, table(5, query_id=["a", "b", "c", "a", "d"]))

    partition = read_partition(str(tmp_path), DAY)

    assert partition.frame["query_id"].to_list() == ["a", "b", "c", "d"]
    assert partition.duplicates == ("a",)


@pytest.mark.parametrize(
    ("asked", "rows", "size"),
    [
        (200, 0, 200),
        (200, 8_000, 200),
        (200, 20_000, 500),
        (200, 1_000_000, 1_000),
        (200, 5_000_000, 5_000),
        (7_000, 1_000_000, 7_000),
    ],
)
def test_a_large_day_has_larger_batches(asked: int, rows: int, size: int) -> None:
    assert batch_rows(asked, rows) == size


def test_a_file_that_is_replaced_while_it_is_read_is_read_again_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, table(3))
    true = query_log._rows_of

    def replaced(*arguments: Any) -> pl.DataFrame:
        pq.write_table(table(2), folder / "arriving")
        (folder / "arriving").rename(folder / "part-0.parquet")
        return true(*arguments)

    monkeypatch.setattr(query_log, "_rows_of", replaced)
    with pytest.raises(TransientError, match=r"part-0.parquet: was replaced while it was read; run the day again"):
        read_partition(str(tmp_path), DAY)
    monkeypatch.setattr(query_log, "_rows_of", true)
    assert read_partition(str(tmp_path), DAY).rows == 2


def test_a_day_without_rows_has_no_batches(tmp_path: Path) -> None:
    write(tmp_path / "logs", table(0))

    spooled = spool_partition(str(tmp_path / "logs"), DAY, open_spool(tmp_path / "spool", DAY), 5)

    assert (spooled.batches, spooled.rows, spooled.lazy().collect().height) == (0, 0, 0)
