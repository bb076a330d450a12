"""Processes that die or meet while a day is scored: workers of the pool, the Prefect server, another run of the day."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from prefect.settings import PREFECT_API_URL

from tests.drills.llm_days import STEF, Runs, write_day
from tests.logs import DAY
from tests.prefect_house import PrefectHouse, closing, until

pytestmark = pytest.mark.drill
ROWS = 1200
BATCH = 20


def runs(root: Path, name: str, api: str, processes: int = 1) -> Runs:
    made = Runs(root / name, root / "logs", "http://127.0.0.1:9/v1", judge="symbolic", processes=processes, batch_size=BATCH)
    made.environment["PREFECT_API_URL"] = api
    return made


def assert_same(found: Runs, expected: Runs) -> None:
    tables = found.tables()
    for name, frame in expected.tables().items():
        assert frame.equals(tables[name]), name


def when(run: Runs, process: subprocess.Popen[str], files: str, count: int) -> None:
    """Wait until the spool of a day under way holds so many files of a kind."""

    def there() -> bool:
        assert process.poll() is None, "the run ended before the fault came"
        return len(list((run.folder / "spool").glob(files))) >= count

    end = time.monotonic() + 120
    while not there():
        assert time.monotonic() < end, f"no {files} in {run.folder}"
        time.sleep(0.01)


@pytest.fixture
def api(prefect_server: None) -> str:
    return str(PREFECT_API_URL.value())


@pytest.mark.parametrize("files", [f"{DAY}-*/read-*.bin", f"{DAY}-*/*/scores-*.parquet"])
def test_a_process_that_is_killed_in_a_batch_costs_that_batch_a_second_try(tmp_path: Path, api: str, files: str) -> None:
    write_day(tmp_path / "logs", ROWS)
    whole, killed = runs(tmp_path, "a", api), runs(tmp_path, "b", api, processes=2)
    assert whole.finish()[0] == 0

    process = killed.start()
    when(killed, process, files, 4)
    workers = [child for child in psutil.Process(process.pid).children(recursive=True) if "loky" in " ".join(child.cmdline())]
    victims = [worker for worker in workers if "resource_tracker" not in " ".join(worker.cmdline())]
    victims[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=300)

    assert process.returncode == 0, out + err
    assert_same(killed, whole)
    assert list((killed.folder / "spool").iterdir()) == []


@pytest.mark.parametrize("back", [True, False])
def test_a_prefect_server_that_goes_away_ends_a_day_in_words_or_not_at_all(tmp_path: Path, back: bool) -> None:
    write_day(tmp_path / "logs", ROWS)
    (tmp_path / "server").mkdir()
    with closing(PrefectHouse(tmp_path / "server")) as house:
        whole, left_alone = runs(tmp_path, "a", house.api), runs(tmp_path, "b", house.api)
        assert whole.finish()[0] == 0

        process = left_alone.start()
        when(left_alone, process, f"{DAY}-*/read-*.json", 5)
        server = house._processes[0]
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        port = house.api.rpartition(":")[2].removesuffix("/api")
        again = ("server", "start", "--no-ui", "--host", "127.0.0.1", "--port", port)
        if back:
            house.start("server again", *again)
        out, err = process.communicate(timeout=500)
        if process.returncode:
            assert (process.returncode, len(err.splitlines())) == (3, 1), out + err
            assert "the Prefect server could not be reached" in err
        print(f"\nback {back}: exit code {process.returncode}: {err}")
        if not back:
            house.start("server again", *again)
        until("the server answers", house._is_up, 180, house.log("server again"))

        code, said = left_alone.finish("--missing", "--to", str(DAY))

        assert code == 0, said
        assert_same(left_alone, whole)


def held(run: Runs, what: str) -> Callable[[], contextlib.AbstractContextManager[subprocess.Popen[str]]]:
    """A run in a process of its own that is stopped while it works on the day."""

    @contextlib.contextmanager
    def stopped() -> Iterator[subprocess.Popen[str]]:
        given = [what, "--logs", str(run.logs), "--warehouse", run.url, "--quiet"]
        given += ["--date", str(DAY)] if what == "score" else ["--from", str(DAY), "--to", str(DAY)]
        process = subprocess.Popen(
            [sys.executable, "-c", STEF, *given],
            cwd=Path(__file__).parents[2],
            env=run.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            when(run, process, f"{DAY}-*/read-*.json", 2)
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=300)

    return stopped


@pytest.mark.parametrize(("first", "second"), [("score", "score"), ("backfill", "score"), ("score", "backfill")])
def test_of_two_runs_that_work_on_one_day_one_leaves_and_the_other_publishes_it(
    tmp_path: Path, api: str, first: str, second: str
) -> None:
    write_day(tmp_path / "logs", ROWS)
    run = runs(tmp_path, "a", api)
    assert run.finish()[0] == 0
    expected = run.tables()
    rule = '{"app_id": "shop", "benign_filters": [{"column": "berth", "op": "=", "value": "*"}]}'
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "shop.json").write_text(rule)
    (tmp_path / "rules" / "default.json").write_text('{"app_id": "default"}')
    if first == "backfill" or second == "backfill":
        run.environment["STEF_RULES"] = str(tmp_path / "rules")

    with held(run, first)() as process:
        other = subprocess.run(
            [sys.executable, "-c", STEF, second, "--logs", str(run.logs), "--warehouse", run.url, "--quiet"]
            + (["--date", str(DAY)] if second == "score" else ["--from", str(DAY), "--to", str(DAY)]),
            cwd=Path(__file__).parents[2],
            env=run.environment | {"STEF_WAREHOUSE_WAIT_S": "5"},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    assert (other.returncode, len(other.stderr.splitlines())) == (3, 1), other.stderr
    assert str(DAY) in other.stderr
    assert process.returncode == 0
    assert run.read("scoring_runs")["outcome"].to_list() == ["published"] * 2
    tables = run.tables()
    assert tables["query_scores"]["query_id"].equals(expected["query_scores"]["query_id"])
    if "STEF_RULES" not in run.environment:
        assert all(frame.equals(tables[name]) for name, frame in expected.items())
    assert run.finish()[0] == 0
    assert all(frame.equals(run.tables()[name]) for name, frame in tables.items())
