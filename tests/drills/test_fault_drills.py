"""Disks, warehouses, clocks and files that fail while a day is scored: a clear failure, and a second run mends it."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from tests.logs import DAY
from tests.pipeline.test_daily_scoring import House
from tests.pipeline.test_resume import left, log_of, whole
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.drill]
TO_COME = ("flows.stages.score_day", "flows.stages.stage_day", "flows.stages.publish_day")  # what a fault may come before


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_BATCH_SIZE", "10")
    monkeypatch.setenv("STEF_WAREHOUSE_WAIT_S", "1")
    house = House(tmp_path, capsys)
    log_of(house)
    return house


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system of its own, as large as it is said to be."""

    folder: Path

    def fill(self) -> None:
        """Leave no room."""
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def free(self) -> None:
        """Make room."""
        (self.folder / "ballast").unlink()

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield Disk(folder=folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def before(monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[[], None]) -> None:
    """Let a fault come once, before a step of a day is called."""
    module, _, step = name.rpartition(".")
    true = getattr(__import__(module, fromlist=[step]), step)
    come = threading.Event()

    def faulty(*arguments: Any, **named: Any) -> Any:
        if not come.is_set():
            come.set()
            fault()
        return true(*arguments, **named)

    monkeypatch.setattr(name, faulty)


def failed_runs(house: House) -> list[str]:
    runs = house.read("scoring_runs")
    return runs.filter(pl.col("outcome") == "failed")["message"].to_list()


def assert_same(house: House, expected: dict[str, pl.DataFrame]) -> None:
    for name, frame in house.tables().items():
        assert frame.equals(expected[name]), name


# --- full disks -----------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_from_the_start_is_told_and_mended(
    house: House, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(house)
    monkeypatch.setenv("STEF_SPOOL", str(disk.folder / "spool"))
    (disk.folder / "spool").mkdir()
    disk.fill()

    said = house.refused(code=3)

    assert said.startswith(f"STEF_SPOOL: {disk.folder / 'spool'}")
    assert "No space left on device" in said
    assert "make room there or name another folder, and run the day again" in said
    assert failed_runs(house) == [said]
    assert house.read("query_scores").is_empty()
    assert list((disk.folder / "spool").iterdir()) == []
    disk.free()
    assert house.score()[0] == 0
    assert_same(house, expected)


@pytest.mark.parametrize("moment", ["tasks.extract.extract", "tasks.judge.judge", "flows.stages.stage_day"])
def test_a_disk_that_fills_up_in_the_middle_keeps_what_was_done(
    house: House, disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected = whole(house)
    monkeypatch.setenv("STEF_SPOOL", str(disk.folder / "spool"))
    with monkeypatch.context() as first:
        before(first, moment, disk.fill)
        said = house.refused(code=3)
    assert "No space left on device" in said
    assert failed_runs(house) == [said]
    assert house.read("query_scores").is_empty()
    assert len(list((disk.folder / "spool").iterdir())) == 1
    disk.free()

    assert house.score()[0] == 0

    assert_same(house, expected)
    assert list((disk.folder / "spool").iterdir()) == []


@pytest.mark.parametrize("moment", ["flows.stages.stage_day", "flows.stages.publish_day"])
def test_a_warehouse_whose_disk_is_full_keeps_what_it_had(
    house: House, disk: Disk, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    later = DAY + dt.timedelta(days=1)
    log_of(house, later)
    expected = whole(house, "--to", str(later))
    house.url = f"duckdb:///{disk.folder / 'w.duckdb'}"
    assert house.score()[0] == 0
    published = house.tables()
    with monkeypatch.context() as first:
        before(first, moment, disk.fill)
        code, _, err = house.score("--quiet", date=later)
    assert (code, len(err.splitlines())) == (3, 1)
    assert "could not be read or written" in err
    disk.free()
    assert_same(house, published)

    assert house.score(date=later)[0] == 0

    assert_same(house, expected)


# --- a spool that goes away -----------------------------------------------------------------------------------------


def test_a_spool_that_cannot_be_written_is_told_before_anything_is_read(
    house: House, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEF_SPOOL", str(disk.folder / "spool"))
    disk.remount("ro")

    said = house.refused(code=2)

    assert "STEF_SPOOL" in said
    assert "Read-only file system" in said
    assert failed_runs(house) == [said]
    disk.remount("rw")
    assert house.score()[0] == 0


@pytest.mark.parametrize("moment", ["tasks.extract.extract", "tasks.judge.judge", "flows.daily_scoring.learn_day", *TO_COME])
def test_a_spool_that_is_deleted_in_the_middle_loses_no_row(house: House, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    expected = whole(house)

    def delete() -> None:
        for folder in left(house):
            while folder.exists():  # others are writing into it
                shutil.rmtree(folder, ignore_errors=True)

    with monkeypatch.context() as first:
        before(first, moment, delete)
        code, _, err = house.score("--quiet")

    if code:  # what is staged already needs no spool any more
        assert (code, len(err.splitlines())) == (3, 1)
        assert "STEF_SPOOL" in err
        assert "is gone while its day is under way; run the day again" in err
        assert len(failed_runs(house)) == 1
        assert house.read("query_scores").is_empty()
        assert left(house) == []
        assert house.score()[0] == 0
    assert (code, moment) in {(0, TO_COME[-1]), *((3, each) for each in (moment,) if each != TO_COME[-1])}
    assert_same(house, expected)


@pytest.mark.parametrize("kind", ["facts", "scores", "findings", "log", "read"])
def test_one_file_that_is_gone_is_no_smaller_day(house: House, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    expected = whole(house)
    moment = {"facts": "flows.daily_scoring.learn_day", "read": "flows.daily_scoring.learn_day"}.get(kind, TO_COME[0])

    def delete() -> None:
        (folder,) = left(house)
        (file,) = [path for path in folder.rglob(f"{kind}-000003.*") if path.suffix != ".json"]
        file.unlink()

    with monkeypatch.context() as first:
        before(first, moment, delete)
        said = house.refused(code=3)

    assert f"{kind}-000003" in said
    assert house.read("query_scores").is_empty()
    assert house.score()[0] == 0
    assert_same(house, expected)


def test_rows_that_an_interrupted_run_has_lost_are_read_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(house)
    with monkeypatch.context() as first:
        before(first, "flows.stages.publish_day", lambda: Path(house.url.removeprefix("duckdb:///")).unlink())
        assert house.score("--quiet")[0] == 3
    (folder,) = left(house)
    (folder / "log-000001.parquet").unlink()  # as whoever tidies up a folder of temporary files does

    assert house.score()[0] == 0

    assert_same(house, expected)


# --- a warehouse that goes away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "empty"])
@pytest.mark.parametrize("moment", ["flows.daily_scoring.read_window", *TO_COME[1:]])
def test_a_warehouse_file_that_vanishes_is_not_begun_anew_in_the_middle(
    house: House, monkeypatch: pytest.MonkeyPatch, moment: str, harm: str
) -> None:
    expected = whole(house)
    file = Path(house.url.removeprefix("duckdb:///"))

    def vanish() -> None:
        file.unlink() if harm == "gone" else os.truncate(file, 0)

    with monkeypatch.context() as first:
        before(first, moment, vanish)
        said = house.refused(code=3)

    assert said.endswith("is gone since this run began; put it back, or run the day again to begin a new warehouse")
    assert not file.exists() or file.stat().st_size == 0
    assert house.score()[0] == 0
    assert_same(house, expected)


@pytest.mark.parametrize("moment", ["flows.daily_scoring.read_window", *TO_COME[1:]])
def test_a_warehouse_file_that_is_cut_off_is_left_alone_and_goes_on_when_it_is_put_back(
    house: House, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected = whole(house)
    file, kept = Path(house.url.removeprefix("duckdb:///")), house.root / "kept.duckdb"

    def cut() -> None:
        shutil.copy(file, kept)
        os.truncate(file, file.stat().st_size // 2)

    with monkeypatch.context() as first:
        before(first, moment, cut)
        code, _, err = house.score("--quiet")

    assert (code, len(err.splitlines())) in {(2, 1), (3, 1)}
    assert str(file) in err
    assert 0 < file.stat().st_size < kept.stat().st_size
    kept.replace(file)
    assert house.score()[0] == 0
    assert_same(house, expected)


@pytest.mark.parametrize("back", [True, False])
def test_a_server_that_stops_inside_a_publish_publishes_the_day_once_it_is_back(
    house: House, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    expected = whole(house)
    server = PostgresServer(durable=True)
    try:
        house.url = server("stops")
        from tasks.warehouse.postgres import PostgresWarehouse

        starting = threading.Timer(1.0, server.start)
        replace = PostgresWarehouse._replace
        stopped = threading.Event()

        def stop_inside(self: PostgresWarehouse, table: str, *arguments: Any) -> None:
            replace(self, table, *arguments)
            if not stopped.is_set() and table == "query_scores":
                stopped.set()
                server.stop("immediate")
                if back:
                    starting.start()

        monkeypatch.setattr(PostgresWarehouse, "_replace", stop_inside)
        monkeypatch.setenv("STEF_WAREHOUSE_WAIT_S", "60" if back else "1")
        code, _, err = house.score("--quiet")
        if back:
            starting.join()
        else:
            assert (code, len(err.splitlines())) == (3, 1)
            server.start()
            assert house.read("query_scores").is_empty()
            code = house.score()[0]

        assert code == 0
        assert stopped.is_set()
        assert_same(house, expected)
        assert left(house) == []
    finally:
        server.close()


# --- clocks and late files ------------------------------------------------------------------------------------------


def clock(monkeypatch: pytest.MonkeyPatch, *moments: dt.datetime) -> None:
    """Let the clock of run records tell these moments, the last one ever after."""
    told = list(moments)

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return (told.pop(0) if len(told) > 1 else told[0]).astimezone(tz)

    monkeypatch.setattr("tasks.publish.dt", SimpleNamespace(**vars(dt) | {"datetime": Clock}))


def test_a_clock_that_goes_back_within_a_run_changes_no_table(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(house)
    now = dt.datetime.now(dt.UTC)

    with monkeypatch.context() as set_back:
        clock(set_back, now, now, now - dt.timedelta(hours=3))
        assert house.score()[0] == 0

    (run,) = house.read("scoring_runs").to_dicts()
    assert run["ended_at"] < run["started_at"]
    assert_same(house, expected)
    assert house.score("--missing")[1].count("no day is missing") or house.read("scoring_runs").height == 1


def test_a_clock_that_went_back_between_runs_makes_no_day_look_changed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.score()[0] == 0
    log_of(house, DAY)
    file = next((house.logs / f"dt={DAY}").glob("*.parquet"))
    pq.write_table(pq.read_table(file).slice(0, 30), file)
    with monkeypatch.context() as set_back:
        clock(set_back, dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
        assert house.score("--missing")[0] == 0
    assert house.read("scoring_runs").height == 2

    code, out, _ = house.score("--missing", "--json")

    assert (code, json.loads(out)["runs"]) == (0, [])
    assert house.read("query_scores").height == 30


def test_a_day_whose_files_change_while_it_is_scored_is_done_again_by_the_catch_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next((house.logs / f"dt={DAY}").glob("*.parquet"))
    rows = pq.read_table(file)

    def replace_one_and_add_one() -> None:
        pq.write_table(rows.slice(0, 25), file)
        late = rows.slice(0, 8)
        ids = late.column_names.index("query_id")
        pq.write_table(late.set_column(ids, "query_id", [[f"late{n}" for n in range(8)]]), file.with_name("late.parquet"))

    with monkeypatch.context() as first:
        before(first, "flows.daily_scoring.learn_day", replace_one_and_add_one)
        assert house.score()[0] == 0
    assert house.read("query_scores").height == 40  # what was there when it was read, and that whole

    code, out, _ = house.score("--missing", "--json")

    assert (code, [run["rows_in"] for run in json.loads(out)["runs"]]) == (0, [33])
    published = house.tables()
    assert published["query_scores"].height == 33
    assert_same(house, whole(house))
    assert json.loads(house.score("--missing", "--json")[1])["runs"] == []
