"""Batches in the workers of a real Dask cluster, told of on a real Prefect server: the tables and limits of one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drills.llm_days import Runs, write_day
from tests.openai_server import serving
from tests.pipeline.test_models import model_answer
from tests.prefect_house import ROOT, PrefectHouse, closing, until

pytestmark = pytest.mark.slow
pytest.importorskip("prefect_dask", reason="the extra dask is not installed")
ROWS = 300
SMALL = {"batch_size": 20, "coverage_min": 0.0}


class Cluster:
    """A scheduler of Dask and two workers of one thread each, in processes of their own."""

    def __init__(self, root: Path, house: PrefectHouse) -> None:
        self.root, self._environment = root, house.environment
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(root / "at.json")
        )
        until("the scheduler answers", lambda: (root / "at.json").exists(), 60, root / "dask-0.log")
        self.address = re.findall(r"tcp://[\d.]+:\d+", (root / "at.json").read_text())[0]
        self.workers = [self.worker() for _ in range(2)]
        for number in (1, 2):
            log = root / f"dask-{number}.log"
            until("a worker is there", lambda log=log: "Registered to" in log.read_text(), 60, log)  # type: ignore[misc]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny")

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.root / f"dask-{len(self.processes)}.log").open("wb") as log:
            command = [sys.executable, "-m", "distributed.cli.dask_" + kind, *arguments]
            process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectHouse]:
    with closing(PrefectHouse(tmp_path_factory.mktemp("prefect"))) as house:
        yield house


@pytest.fixture(scope="module")
def cluster(house: PrefectHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield stack.enter_context(closing(Cluster(tmp_path_factory.mktemp("dask"), house)))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log") / "logs"
    write_day(folder, ROWS)
    return folder


def runs(folder: Path, logs: Path, house: PrefectHouse, base_url: str = "http://127.0.0.1:9/v1", **settings: object) -> Runs:
    made = Runs(folder, logs, base_url, **SMALL | settings)
    made.environment |= {name: value for name, value in house.environment.items() if name.startswith("PREFECT_")}
    return made


@pytest.mark.parametrize("where", ["its own", "one that is there"])
def test_workers_of_dask_give_the_tables_of_one_process(
    where: str, house: PrefectHouse, cluster: Cluster, logs: Path, tmp_path: Path
) -> None:
    one, many = (runs(tmp_path / name, logs, house, judge="symbolic") for name in ("one", "many"))
    flags = ["--runner", "dask", *(["--address", cluster.address] if where != "its own" else [])]
    assert one.finish()[0] == 0

    code, said = many.finish(*flags)

    assert code == 0, said
    assert "distributed" not in said
    tables = many.tables()
    assert all(frame.equals(tables[name]) for name, frame in one.tables().items())


@pytest.mark.drill
def test_a_budget_holds_over_all_workers(house: PrefectHouse, cluster: Cluster, logs: Path, tmp_path: Path) -> None:
    with serving(model_answer) as server:
        many = runs(tmp_path, logs, house, server.base_url, max_calls=100, concurrency=8)

        code, said = many.finish("--runner", "dask", "--address", cluster.address)
        spent = server.requests
        rest = many.finish("--runner", "dask", "--address", cluster.address, max_calls=10_000)

        assert (code, spent) == (0, 100), said
        assert rest[0] == 0, rest[1]
        assert server.requests == 2 * ROWS
    run = many.read("scoring_runs").sort("started_at")
    assert run["llm_calls"].to_list() == [100, 2 * ROWS - 100]
    assert run["rows_scored"].to_list()[1] == ROWS


@pytest.mark.drill
def test_a_worker_that_dies_mid_batch_costs_no_row(house: PrefectHouse, cluster: Cluster, logs: Path, tmp_path: Path) -> None:
    one, many = (runs(tmp_path / name, logs, house, judge="symbolic") for name in ("one", "many"))
    assert one.finish()[0] == 0
    process = many.start("--runner", "dask", "--address", cluster.address)
    spool = tmp_path / "many" / "spool"
    until("batches are read", lambda: len(list(spool.glob("*/read-*.json"))) >= 2, 120, cluster.root / "dask-0.log")

    cluster.worker()  # one comes as another goes
    os.killpg(cluster.workers[0].pid, signal.SIGKILL)
    said, err = process.communicate()

    assert process.returncode == 0, said + err
    tables = many.tables()
    assert all(frame.equals(tables[name]) for name, frame in one.tables().items())


def test_dask_without_a_server_is_refused_in_one_line(logs: Path, tmp_path: Path) -> None:
    alone = Runs(tmp_path, logs, "http://127.0.0.1:9/v1", judge="symbolic")
    alone.environment.pop("PREFECT_API_URL", None)

    code, said = alone.finish("--runner", "dask")

    assert code == 2
    assert "prefect server start" in said
    assert "Traceback" not in said


def test_a_scheduler_that_is_not_there_is_told_in_one_line(house: PrefectHouse, logs: Path, tmp_path: Path) -> None:
    lost = runs(tmp_path, logs, house, judge="symbolic")

    code, said = lost.finish("--runner", "dask", "--address", "tcp://127.0.0.1:9")

    assert code == 3, said
    assert "tcp://127.0.0.1:9" in said
    assert "Traceback" not in said
