"""Where batches are worked on: threads of this process and processes beside it, or the workers of a Dask cluster."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from stef_core.errors import RuleError, TransientError
from tasks.crew import Crew
from tasks.pool import make_ready, processes_of, threads_of, usable_cores
from tasks.settings import Settings, load_settings
from tasks.spool import LEDGER

CONNECT_S = 10.0


def task_runner(settings: Settings | None = None) -> TaskRunner[PrefectFuture[Any]]:
    """The task runner of the settings; those in force where None, and threads where these are wrong.

    A flow that a worker of Prefect loads so runs where ``STEF_RUNNER`` of its job says; what is wrong with settings it tells
    when it runs.

    Raises:
        RuleError: Dask is not installed.
    """
    if settings is None:
        try:
            settings = load_settings()
        except RuleError:
            settings = Settings.model_construct()
    elif settings.runner == "dask":
        check_cluster(settings)
    if settings.runner == "dask":
        return _dask(settings)
    return cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner[Any](max_workers=threads_of(settings)))


def place_of(settings: Settings, rows: int) -> int | Crew:
    """Where the batches of a day are worked on: in so many processes of this machine, or by the crew of a cluster.

    A flow that was given any task runner but threads has a crew: Dask's workers, or `processes` of the settings.

    Args:
        settings: Settings of the run.
        rows: Of the day.

    Raises:
        RuleError: Dask is asked for, and the flow was started without it or without a server that its workers can reach.
    """
    context = FlowRunContext.get()
    assert context is not None  # asked within a flow
    runner: Any = context.task_runner
    if isinstance(runner, ThreadPoolTaskRunner):
        if settings.runner == "dask":
            raise RuleError(
                "the runner is dask, but this flow was started with threads; "
                "set STEF_RUNNER (and STEF_ADDRESS) in the environment of the deployment's jobs"
            )
        return processes_of(settings, rows)
    run = str(context.flow_run.id) if context.flow_run is not None else ""
    ledger = settings.spool.expanduser().absolute() / LEDGER.format(run=run)
    if ledger not in _crews:  # workers that come later change no limits of a run that is under way
        processes = settings.processes or usable_cores()
        if settings.runner == "dask":
            processes = len(runner.client.scheduler_info(n_workers=-1)["workers"])
        _crews.clear()
        _crews[ledger] = Crew(processes=max(1, processes), ledger=ledger)
    return _crews[ledger]


_crews: dict[Path, Crew] = {}


def check_cluster(settings: Settings) -> None:
    """See that a cluster can be reached, and that its workers can tell a Prefect server what becomes of their tasks.

    Raises:
        RuleError: There is no server but the one that this process starts for itself, or the address is none.
        TransientError: Nobody listens at the address.
    """
    if not PREFECT_API_URL.value():
        raise RuleError(
            "the runner is dask, whose workers need a Prefect server; start one with `prefect server start`, and set "
            "PREFECT_API_URL here and on the workers"
        )
    if settings.address is None:
        return
    parts = urlsplit(settings.address)
    try:
        where = (parts.hostname or "", parts.port or 0)
    except ValueError:
        where = ("", 0)
    if not all(where):
        raise RuleError(f"STEF_ADDRESS is {settings.address!r}; it is the scheduler's, e.g. tcp://host:8786")
    try:
        socket.create_connection(where, timeout=CONNECT_S).close()
    except OSError as error:
        why = error.strerror or error
        raise TransientError(f"Dask's scheduler at {settings.address} cannot be reached: {why}; see STEF_ADDRESS") from error


def wake_workers(settings: Settings) -> None:
    """Start a cluster and let its workers import what batches need, while this process reads the log; nothing without Dask."""
    context = FlowRunContext.get()
    assert context is not None  # asked within a flow
    if settings.runner != "dask" or isinstance(context.task_runner, ThreadPoolTaskRunner):
        return
    import distributed

    forget: Any = distributed.fire_and_forget
    client: Any = cast("Any", context.task_runner).client
    for worker in client.scheduler_info(n_workers=-1)["workers"]:
        forget(client.submit(make_ready, workers=[worker], pure=False))


def _dask(settings: Settings) -> TaskRunner[PrefectFuture[Any]]:
    try:
        import dask.config

        dask.config.set({"logging": {"distributed": "error"}})  # of a cluster's own coming and going nobody wants to hear
        logging.getLogger("distributed").setLevel(logging.ERROR)
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise RuleError("the runner is dask, which is not installed; pip install 'stef-pipeline[dask]'") from error
    if settings.address is not None:
        runner = DaskTaskRunner(address=settings.address)
    else:  # one thread a process: what is done there keeps a core busy
        processes = settings.processes or usable_cores()
        runner = DaskTaskRunner(cluster_kwargs={"n_workers": processes, "threads_per_worker": 1, "dashboard_address": ":0"})
    return cast("TaskRunner[PrefectFuture[Any]]", runner)
