"""One worker a day: a claim keeps every other process out, and never outlives its holder."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from pathlib import Path

import pytest

from stef_core.errors import BusyError, RuleError
from tasks.warehouse import Warehouse, connect
from tests.processes import other_process

DAY = dt.date(2026, 3, 2)
NEXT = DAY + dt.timedelta(days=1)
HOLD = """
    import datetime as dt, sys, time
    from tasks.warehouse import connect
    with connect(sys.argv[1]) as warehouse:
        claim = warehouse.claim(dt.date(2026, 3, 2))
    with claim:
        print("ready", flush=True)
        time.sleep(120)
"""
COUNT_TOGETHER = """
    import datetime as dt, sys
    from pathlib import Path
    from tasks.warehouse import connect
    counter = Path(sys.argv[2])
    print("ready", flush=True)
    with connect(sys.argv[1], wait_s=60) as warehouse:
        claim = lambda: warehouse.claim(dt.date(2026, 3, 2), wait_s=60)
    for _ in range(8):
        with claim():
            counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_a_day_that_another_process_holds_is_busy_and_other_days_are_free(url: str) -> None:
    with other_process(HOLD, url), connect(url, wait_s=5) as warehouse:
        with pytest.raises(BusyError, match="another process works on 2026-03-02"), warehouse.claim(DAY, wait_s=0.3):
            raise AssertionError
        with warehouse.claim(NEXT, wait_s=0.3):
            pass


def test_a_killed_holder_lets_the_other_have_the_day(url: str) -> None:
    with other_process(HOLD, url) as holder, connect(url, wait_s=5) as warehouse:
        with pytest.raises(BusyError, match="2026-03-02"), warehouse.claim(DAY, wait_s=0.1):
            raise AssertionError
        holder.kill()
        holder.wait()

        with warehouse.claim(DAY, wait_s=5):
            assert holder.returncode == -9


def test_a_claim_ends_with_its_context_also_when_that_fails(warehouse: Warehouse) -> None:
    with pytest.raises(ZeroDivisionError), warehouse.claim(DAY):
        raise ZeroDivisionError

    with warehouse.claim(DAY, wait_s=0.3):
        pass


def test_a_day_is_claimed_once_in_one_process_too(warehouse: Warehouse) -> None:
    with warehouse.claim(DAY), pytest.raises(BusyError, match="2026-03-02"), warehouse.claim(DAY, wait_s=0.1):
        raise AssertionError


def test_a_claim_outlives_the_connection_it_was_asked_of(url: str) -> None:
    with connect(url) as warehouse:
        claim = warehouse.claim(DAY)

    with claim, connect(url) as warehouse, pytest.raises(BusyError), warehouse.claim(DAY, wait_s=0.1):
        raise AssertionError


def test_the_holder_of_a_day_can_publish_it_and_others_can_read(url: str, published_url: str) -> None:
    with connect(url) as warehouse:
        claim = warehouse.claim(DAY)
        warehouse.record_experiment({"name": "v1"}, warehouse.read("experiment_results"))

    with claim:
        with connect(url, wait_s=1) as warehouse:
            warehouse.record_run({"run_id": "run-1"})
        with connect(published_url, read_only=True, wait_s=1) as reader:
            assert reader.days() == []


def test_who_only_reads_claims_nothing(url: str) -> None:
    with connect(url):
        pass

    with connect(url, read_only=True) as reader, pytest.raises(RuleError, match="reading only"), reader.claim(DAY):
        raise AssertionError


def test_processes_that_take_turns_never_hold_a_day_together(url: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    with connect(url):
        pass

    with ExitStack() as stack:
        workers = [stack.enter_context(other_process(COUNT_TOGETHER, url, counter)) for _ in range(4)]
        ends = [worker.wait(timeout=120) for worker in workers]

    assert ends == [0] * 4
    assert counter.read_text() == "32"


def test_a_claim_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    with connect(f"duckdb:///{tmp_path / 'w.duckdb'}") as warehouse:
        with warehouse.claim(DAY):
            assert (tmp_path / "w.duckdb.2026-03-02.lock").exists()

        assert not list(tmp_path.glob("*2026*"))
