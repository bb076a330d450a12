"""What a day under way leaves on disk: whole files, of its own classes only, found again by the same work and by no other."""

from __future__ import annotations

import datetime as dt
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stef_core.errors import RuleError, SpoolError
from stef_core.evaluate import read_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.records import QueryRecord
from stef_core.rules import Rules
from tasks.settings import Settings
from tasks.spool import KEPT_DAYS, LEDGER, Spool, SpooledTable, gathered, is_worth_keeping, open_spool, sweep, work_of

DAY = dt.date(2026, 3, 2)
SCHEMA = pl.Schema({"a": pl.Int64(), "run_id": pl.String()})


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return open_spool(tmp_path / "spool", DAY)


def numbers(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"a": values})


def test_batches_come_back_in_order(spool: Spool) -> None:
    for number in (11, 2, 0):
        spool.write("log", number, numbers(number))

    assert [part.name for part in spool.parts("log")] == [f"log-{n:06}.parquet" for n in (0, 2, 11)]
    assert spool.scan("log", SCHEMA).collect()["a"].to_list() == [0, 2, 11]
    assert spool.read("log", 2).equals(numbers(2))


def test_a_kind_without_batches_has_its_schema(spool: Spool) -> None:
    assert spool.scan("none", SCHEMA).collect().schema == SCHEMA


def test_kinds_whose_names_begin_alike_are_kept_apart(spool: Spool) -> None:
    spool.write("log", 0, numbers(1))
    spool.write("log-old", 0, numbers(2))

    assert spool.scan("log", SCHEMA).collect()["a"].to_list() == [1]


def test_a_write_that_fails_leaves_no_batch(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SpoolError, match=r"STEF_SPOOL: .*: No space left on device; make room there"):
        spool.write("log", 0, numbers(1))

    assert list(spool.folder.iterdir()) == []


def test_a_batch_that_is_gone_is_told_and_never_taken_for_a_smaller_day(spool: Spool) -> None:
    for number in range(3):
        spool.write("log", number, numbers(number))
    (spool.folder / "log-000001.parquet").unlink()

    for look in (
        lambda: spool.read("log", 1),
        lambda: spool.read_objects("read", 1),
        lambda: spool.parts("log", 3),
        lambda: spool.scan("log", SCHEMA, 3),
        lambda: list(SpooledTable(spool=spool, kind="log", batches=3, schema=SCHEMA, constants={})),
    ):
        with pytest.raises(SpoolError, match=r"-000001\.\w+: is gone while its day is under way; run the day again") as caught:
            look()
        assert caught.value.lost
        assert not is_worth_keeping(caught.value)


def test_what_is_there_under_the_name_of_the_work_goes_where_files_of_it_are_gone(spool: Spool, tmp_path: Path) -> None:
    earlier, work = open_spool(tmp_path, "2026-03-02"), tmp_path / "2026-03-02-work"
    for number in range(2):
        earlier.write("log", number, numbers(number))
        spool.write("log", number, numbers(number))
    earlier = earlier.become(work)
    (work / "log-000001.parquet").unlink()

    assert spool.become(work).parts("log", 2)
    assert not spool.exists


def test_a_full_disk_leaves_what_was_done_for_the_next_run() -> None:
    assert is_worth_keeping(SpoolError("no space"))
    assert not is_worth_keeping(ValueError("wrong"))


def test_readings_come_back_as_they_were(spool: Spool) -> None:
    record = QueryRecord(
        query_id="q",
        user_question="How many boats have moored in Riga since 2024-02-29, by month?",
        enriched_question="Count boats by month where port is Riga and date >= 2024-02-29",
        generated_sql="SELECT month, COUNT(*) FROM boats WHERE port = 'Riga' AND d >= '2024-02-29' AND (a OR NOT b) GROUP BY 1",
    )
    (read,) = read_many([record], [Rules()], OfflineReader())
    kept = replace(read, record=None)  # type: ignore[arg-type]  # records stand in the log

    spool.write_objects("read", 0, [kept])

    assert spool.read_objects("read", 0) == [kept]


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("true",))


@pytest.mark.parametrize("harm", [Harm(), Path("x"), {"nested": [Harm()]}])
def test_a_file_that_would_call_anything_is_refused(spool: Spool, harm: Any) -> None:
    spool.write_objects("read", 0, harm)

    with pytest.raises(pickle.UnpicklingError, match="does not belong into a spool"):
        spool.read_objects("read", 0)


def test_functions_of_own_modules_are_no_records(spool: Spool) -> None:
    spool.write_objects("read", 0, read_many)

    with pytest.raises(pickle.UnpicklingError, match=r"stef_core\.evaluate\.read_many does not belong"):
        spool.read_objects("read", 0)


def test_what_a_batch_came_to_is_none_until_it_is_noted(spool: Spool) -> None:
    assert spool.noted("read", 0) is None
    spool.note("read", 0, {"rows": 3})
    assert spool.noted("read", 0) == {"rows": 3}


def test_a_spool_is_for_its_owner_alone(spool: Spool) -> None:
    spool.within("c").write("log", 0, numbers(1))

    assert [oct(path.stat().st_mode & 0o777) for path in (spool.folder, spool.folder / "c")] == ["0o700"] * 2


def test_what_is_there_under_the_name_of_the_work_stays(spool: Spool, tmp_path: Path) -> None:
    spool.write("log", 0, numbers(1))
    first = spool.become(tmp_path / "spool" / f"{DAY}-work")
    first.note("read", 0, {"rows": 1})
    again = open_spool(tmp_path / "spool", DAY)
    again.write("log", 0, numbers(1))

    second = again.become(first.folder)

    assert second == first
    assert second.noted("read", 0) == {"rows": 1}
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [f"{DAY}-work"]


FILES = ({"path": "a", "size": 1, "sha256": "0"},)
BASE = Settings(logs="logs")


def name_of(**changed: Any) -> str:
    given: dict[str, Any] = {"settings": BASE, "rules": {"default": Rules()}, "day": DAY, "files": FILES} | changed
    return work_of(**given)


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": Settings(logs="logs", judge="openai", model="m")},
        {"settings": Settings(logs="logs", batch_size=7)},
        {"settings": Settings(logs="logs", warehouse="duckdb:///other.duckdb")},
        {"rules": {"default": Rules(), "shop": Rules(app_id="shop")}},
        {"rules": {"default": Rules(no_sql="exclude")}},
        {"day": DAY + dt.timedelta(days=1)},
        {"files": ({"path": "a", "size": 1, "sha256": "1"},)},
        {"more": "backfill"},
    ],
)
def test_other_rows_rules_or_judges_are_other_work(changed: dict[str, Any]) -> None:
    assert name_of(**changed) != name_of()


@pytest.mark.parametrize("changed", [{"concurrency": 3}, {"coverage_min": 0.5}, {"processes": 2}, {"data_docs": Path("x")}])
def test_what_bears_on_no_result_is_the_same_work(changed: dict[str, Any]) -> None:
    assert name_of(settings=Settings(logs="logs", **changed)) == name_of()


def test_what_nobody_came_back_to_is_swept_away(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    old, new = open_spool(root, DAY), open_spool(root, DAY)
    (root / "notes").mkdir()
    ledger = root / LEDGER.format(run="r")
    ledger.touch()
    for path in (old.folder, ledger):
        os.utime(path, (0, 0))

    assert sweep(root, clock=lambda: (KEPT_DAYS + 1) * 86_400.0) == 2
    assert sorted(path.name for path in root.iterdir()) == sorted([new.folder.name, "notes"])


def test_a_folder_that_cannot_be_made_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RuleError, match=r"STEF_SPOOL: .*file: no folder can be made there: Not a directory"):
        open_spool(tmp_path / "file", DAY)


def test_small_frames_are_put_together(spool: Spool) -> None:
    heights = [frame.height for frame in gathered((numbers(*range(n)) for n in (2, 3, 1, 4, 1)), rows=4)]

    assert heights == [5, 5, 1]


def test_a_spooled_table_gets_its_constants_each_time_it_is_asked_for(spool: Spool) -> None:
    for number in range(3):
        spool.write("rows", number, numbers(2 - number).with_columns(run_id=pl.lit("")))
    table = SpooledTable(spool=spool, kind="rows", batches=len(spool.parts("rows")), schema=SCHEMA, constants={"run_id": "r"})

    assert [row for frame in table for row in frame.rows()] == [(2, "r"), (1, "r"), (0, "r")]
    assert table.frame("a").rows() == [(0, "r"), (1, "r"), (2, "r")]
