"""What only the DuckDB file knows: its lock, its copy for BI, being killed, and files that are no warehouse."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from stef_core.errors import BusyError, RuleError, TransientError
from stef_core.frames import TABLES, frame_of
from tasks.warehouse import connect
from tasks.warehouse.sql import VIEWS
from tests.processes import other_process

DAY = dt.date(2026, 3, 2)
Rows = Callable[..., pl.DataFrame]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "warehouse.duckdb"


@pytest.fixture
def url(file: Path) -> str:
    return f"duckdb:///{file}"


HOLD_WITH_STEF = """
    import sys, time
    from tasks.warehouse import connect
    with connect(sys.argv[1]):
        print("ready", flush=True)
        time.sleep(60)
"""
HOLD_WITH_DUCKDB = """
    import sys, time, duckdb
    with duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read"):
        print("ready", flush=True)
        time.sleep(60)
"""


# --- the lock -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_a_warehouse_that_another_run_writes_to_is_busy(url: str, file: Path, read_only: bool) -> None:
    with other_process(HOLD_WITH_STEF, url):
        begun = time.monotonic()

        with pytest.raises(BusyError) as caught:
            connect(url, read_only=read_only, wait_s=0.5)

    assert 0.4 < time.monotonic() - begun < 5
    assert str(file) in str(caught.value)
    assert "another process" in str(caught.value)
    assert "0.5 s" in str(caught.value)


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_file_that_a_foreign_program_holds_is_busy(url: str, file: Path, use: str) -> None:
    with connect(url):
        pass

    with other_process(HOLD_WITH_DUCKDB, file, use), pytest.raises(BusyError, match="another process holds it") as caught:
        connect(url, wait_s=0.5)

    assert str(file) in str(caught.value)


def test_readers_do_not_exclude_each_other(url: str, file: Path) -> None:
    with connect(url):
        pass

    with other_process(HOLD_WITH_DUCKDB, file, "read"), connect(url, read_only=True, wait_s=0) as reader:
        assert reader.days() == []


def test_a_writer_waits_until_the_other_lets_go(url: str) -> None:
    code = HOLD_WITH_STEF.replace("time.sleep(60)", "time.sleep(1)")

    with other_process(code, url), connect(url, wait_s=30) as warehouse:
        assert warehouse.days() == []


def test_the_lock_of_a_killed_writer_holds_nobody_up(url: str) -> None:
    with other_process(HOLD_WITH_STEF, url) as holder:
        holder.kill()
        holder.wait()

        with connect(url, wait_s=0.5) as warehouse:
            assert warehouse.days() == []


def test_a_writer_in_another_thread_of_this_process_is_waited_for_too(url: str) -> None:
    with connect(url):
        for read_only in (False, True):
            with pytest.raises(BusyError):
                connect(url, read_only=read_only, wait_s=0.2)


def test_a_failed_opening_lets_go_of_the_lock(url: str, file: Path) -> None:
    file.write_text("not a database")
    with pytest.raises(RuleError):
        connect(url)
    file.unlink()

    with connect(url, wait_s=0) as warehouse:
        assert warehouse.days() == []


# --- killed ---------------------------------------------------------------------------------------------------------

PUBLISH_FOR_EVER = """
    import datetime as dt, itertools, sys
    import polars as pl
    from stef_core.frames import TABLES, frame_of
    from tasks.warehouse import connect

    day, rows = dt.date(2026, 3, 2), 20_000
    with connect(sys.argv[1]) as warehouse:
        for number in itertools.count():
            run = f"run-{sys.argv[2]}-{number}"
            base = {"dt": day, "agent_id": "ann", "run_id": run}
            one = frame_of([base | {"query_id": "", "status": "scored", "generated_sql": "x" * 200}], TABLES["query_scores"])
            scores = pl.concat([one] * rows).with_columns(query_id=pl.int_range(rows).cast(pl.String))
            findings = frame_of([base | {"query_id": "0", "ordinal": 0, "code": "missing_filter"}], TABLES["query_findings"])
            warehouse.stage(run, day, {"query_scores": scores, "query_findings": findings})
            warehouse.publish(run, day, ["query_scores", "query_findings"], {"run_id": run, "outcome": "published"})
            if number == 0:
                print("ready", flush=True)
"""


def test_a_day_is_whole_after_every_kill(url: str, file: Path) -> None:
    pick = random.Random(5)
    for attempt in range(5):
        with other_process(PUBLISH_FOR_EVER, url, attempt) as writer:
            time.sleep(pick.uniform(0, 0.4))
            writer.send_signal(signal.SIGKILL)
            writer.wait()

        for name in (url, f"duckdb:///{file.with_name('warehouse.bi.duckdb')}"):
            with connect(name, read_only=True, wait_s=5) as warehouse:
                runs = warehouse.query("SELECT DISTINCT run_id FROM query_scores")["run_id"].to_list()
                assert len(runs) == 1
                assert warehouse.read("query_scores", columns=["query_id"])["query_id"].n_unique() == 20_000
                assert warehouse.read("query_findings")["run_id"].to_list() == runs
                assert warehouse.read("scoring_runs")["run_id"].to_list().count(runs[0]) == 1

    with connect(url) as warehouse:
        newest = warehouse.read("query_findings")["run_id"].to_list()
    with connect(f"duckdb:///{file.with_name('warehouse.bi.duckdb')}", read_only=True) as copy:
        assert copy.read("query_findings")["run_id"].to_list() == newest


def test_an_empty_file_that_a_killed_run_left_is_begun_anew(url: str, file: Path) -> None:
    file.touch()

    with connect(url) as warehouse:
        assert warehouse.days() == []


# --- the copy for BI ------------------------------------------------------------------------------------------------


def publish(url: str, rows: Rows, run_id: str = "run-1") -> None:
    with connect(url) as warehouse:
        scores = rows("query_scores", {"query_id": "a", "phi": 40.0}, {"query_id": "b", "phi": 100.0}, run_id=run_id)
        warehouse.stage(run_id, DAY, {"query_scores": scores})
        warehouse.publish(run_id, DAY, ["query_scores"], {"run_id": run_id})


def test_the_copy_is_read_by_another_process_while_the_writer_has_the_warehouse(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)
    code = """
        import sys, duckdb
        with duckdb.connect(sys.argv[1], read_only=True) as copy:
            print(copy.execute("SELECT count(*), max(run_id) FROM v_worst_queries, scoring_runs").fetchone())
    """

    with connect(url):
        command = [sys.executable, "-c", textwrap.dedent(code), str(file.with_name("warehouse.bi.duckdb"))]
        read = subprocess.run(command, capture_output=True, text=True, check=True)

    assert read.stdout == "(2, 'run-1')\n"


def test_the_copy_has_every_table_and_view_as_the_warehouse_has_it(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)

    with connect(url) as warehouse, connect(f"duckdb:///{file.with_name('warehouse.bi.duckdb')}", read_only=True) as copy:
        for name in (*TABLES, *VIEWS):
            assert copy.read(name).equals(warehouse.read(name)), name


def test_the_copy_holds_runs_of_experiments(url: str, file: Path) -> None:
    row = dict.fromkeys(TABLES["experiment_results"]) | {"name": "v1", "query_id": "a"}
    with connect(url) as warehouse:
        warehouse.record_experiment({"name": "v1"}, frame_of([row], TABLES["experiment_results"]))

    with connect(f"duckdb:///{file.with_name('warehouse.bi.duckdb')}", read_only=True) as copy:
        assert copy.read("experiment_results").select("name", "query_id").rows() == [("v1", "a")]


def test_staged_rows_do_not_reach_the_copy(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)
    with connect(url) as warehouse:
        warehouse.stage("run-2", DAY, {"query_scores": rows("query_scores", {"query_id": "secret"}, run_id="run-2")})
        warehouse.publish("run-1", DAY, ["query_scores"])

    with connect(f"duckdb:///{file.with_name('warehouse.bi.duckdb')}", read_only=True) as copy:
        assert copy.staged("query_scores", "run-2").is_empty()


@pytest.mark.parametrize("harm", ["taken away", "broken", "older"])
def test_a_copy_that_is_not_of_the_last_publish_is_made_anew(url: str, file: Path, rows: Rows, harm: str) -> None:
    copy_file = file.with_name("warehouse.bi.duckdb")
    publish(url, rows, "run-1")
    old = copy_file.read_bytes()
    publish(url, rows, "run-2")
    copy_file.unlink()
    if harm != "taken away":
        copy_file.write_bytes(old if harm == "older" else b"half")

    with connect(url):
        pass

    with connect(f"duckdb:///{copy_file}", read_only=True) as copy:
        assert copy.read("query_scores")["run_id"].unique().to_list() == ["run-2"]


def test_a_copy_that_is_good_is_left_alone(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)
    before = file.with_name("warehouse.bi.duckdb").stat().st_ino

    with connect(url):
        pass

    assert file.with_name("warehouse.bi.duckdb").stat().st_ino == before


def test_the_copy_is_no_warehouse_to_write_to(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)

    with pytest.raises(RuleError, match="is the copy for BI"):
        connect(f"duckdb:///{file.with_name('warehouse.bi.duckdb')}")


def test_nobody_but_owner_and_group_may_read_and_nobody_may_write_the_copy(url: str, file: Path, rows: Rows) -> None:
    old = os.umask(0o002)
    try:
        publish(url, rows)
    finally:
        os.umask(old)

    assert stat.S_IMODE(file.stat().st_mode) == 0o660
    assert stat.S_IMODE(file.with_name("warehouse.bi.duckdb").stat().st_mode) == 0o440


def test_nothing_but_the_warehouse_its_copy_and_its_lock_is_left(url: str, file: Path, rows: Rows) -> None:
    publish(url, rows)

    assert {entry.name for entry in file.parent.iterdir()} <= {
        "warehouse.duckdb",
        "warehouse.bi.duckdb",
        "warehouse.duckdb.lock",
    }


# --- URLs and files that do not work --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("warehouse.duckdb", "'warehouse.duckdb' does not work; write duckdb:///path/warehouse.duckdb"),
        ("duckdb://warehouse.duckdb", "three slashes before the path"),
        ("duckdb:///", "name a file"),
        ("duckdb:///:memory:", "must outlive its run"),
        ("duckdb:///w.duckdb?access_mode=read_only", "takes no options"),
        ("sqlite:///w.db", "begins with 'sqlite://' does not work"),
        ("", "'' does not work"),
    ],
)
def test_a_url_that_does_not_work_is_refused_with_one_that_does(wrong: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        connect(wrong)

    assert message in str(caught.value)
    assert "duckdb:///path/warehouse.duckdb" in str(caught.value)


def test_a_password_in_a_url_is_never_repeated() -> None:
    with pytest.raises(RuleError) as caught:
        connect("mysql://stef:hunter2@db.example/stef")

    assert "hunter2" not in str(caught.value)
    assert "postgresql://user@host:5432/database" in str(caught.value)


def test_three_slashes_are_a_path_from_here_and_folders_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with connect("duckdb:///new/deep/w.duckdb"):
        pass

    assert (tmp_path / "new/deep/w.duckdb").is_file()


def test_a_path_with_a_quote_in_it_works(tmp_path: Path, rows: Rows) -> None:
    publish(f"duckdb:///{tmp_path / chr(39)}s own.duckdb", rows)

    assert (tmp_path / "'s own.bi.duckdb").is_file()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_refused_and_left_alone(url: str, file: Path, read_only: bool) -> None:
    file.write_text("query_id,sql\n" * 2000)

    with pytest.raises(RuleError, match="not a valid DuckDB database") as caught:
        connect(url, read_only=read_only, wait_s=1)

    assert str(file) in str(caught.value)
    assert file.read_text().startswith("query_id,sql")


def test_a_folder_is_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be opened"):
        connect(f"duckdb:///{tmp_path}", wait_s=1)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a folder")

    with pytest.raises(RuleError, match=r"w\.duckdb: cannot be written: .*data"):
        connect(f"duckdb:///{tmp_path / 'data' / 'w.duckdb'}")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(RuleError, match="cannot be written: Permission denied"):
        connect(f"duckdb:///{tmp_path / 'w.duckdb'}")

    tmp_path.chmod(0o000)
    with pytest.raises(RuleError, match="cannot be read: Permission denied"):
        connect(f"duckdb:///{tmp_path / 'w.duckdb'}", read_only=True)
    tmp_path.chmod(0o700)


def test_reading_a_warehouse_that_is_not_there_makes_none(url: str, file: Path) -> None:
    for name in (url, f"duckdb:///{file.parent / 'deeper' / 'w.duckdb'}"):
        with pytest.raises(RuleError, match="no warehouse there; score a day into it first"):
            connect(name, read_only=True)

    assert not list(file.parent.iterdir())


def test_a_disk_that_fails_is_an_error_to_try_again(url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(url) as warehouse:

        def full(*_: object) -> None:
            raise duckdb.IOException("IO Error: Could not write file: No space left on device")

        monkeypatch.setattr(warehouse, "_append", full)

        with pytest.raises(TransientError, match="No space left"):
            warehouse.stage("run-1", DAY, {"query_scores": rows("query_scores", {"query_id": "a"})})

        assert warehouse.staged("query_scores", "run-1").is_empty()


# --- the schema, in other hands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "empty"])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_was_made_is_not_begun_anew(url: str, file: Path, harm: str, read_only: bool) -> None:
    connect(url).close()
    file.unlink() if harm == "gone" else os.truncate(file, 0)

    with pytest.raises(TransientError, match="is gone since this run began; put it back, or run the day again"):
        connect(url, read_only=read_only, made=True)

    assert not file.exists() or file.stat().st_size == 0


def test_a_database_without_stef_tables_is_not_read(url: str, file: Path) -> None:
    duckdb.connect(str(file)).close()

    with pytest.raises(RuleError, match="holds no STEF tables"):
        connect(url, read_only=True, wait_s=1)
