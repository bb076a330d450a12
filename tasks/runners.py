"""Where batches are worked on: threads of this process and processes beside it, or the workers of a Dask cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from stef_core.errors import RuleError
from tasks.crew import Crew
from tasks.pool import processes_of, threads_of, usable_cores
from tasks.settings import Settings, load_settings


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
    if settings.runner == "dask":
        return _dask(settings)
    return cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner[Any](max_workers=threads_of(settings)))


def place_of(settings: Settings, rows: int) -> int | Crew:
    """Where the batches of a day are worked on: in so many processes of this machine, or by the crew of a cluster.

    Args:
        settings: Settings of the run.
        rows: Of the day.

    Raises:
        RuleError: Dask is asked for, and the flow was started without it or without a server that its workers can reach.
    """
    context = FlowRunContext.get()
    assert context is not None  # asked within a flow
    if not hasattr(context.task_runner, "cluster_kwargs"):
        if settings.runner == "dask":
            raise RuleError(
                "the runner is dask, but this flow was started with threads; "
                "set STEF_RUNNER (and STEF_ADDRESS) in the environment of the deployment's jobs"
            )
        return processes_of(settings, rows)
    run = str(context.flow_run.id) if context.flow_run is not None else ""
    ledger = settings.spool.expanduser().absolute() / f"budget-{run}.sqlite"
    if ledger not in _crews:  # workers that come later change no limits of a run that is under way
        client = cast("Any", context.task_runner).client
        _crews.clear()
        _crews[ledger] = Crew(processes=max(1, len(client.scheduler_info(n_workers=-1)["workers"])), ledger=ledger)
    return _crews[ledger]


_crews: dict[Path, Crew] = {}


def check_server() -> None:
    """See that workers of a cluster can tell a Prefect server what becomes of their tasks.

    Raises:
        RuleError: There is none but the one that this process starts for itself.
    """
    if not PREFECT_API_URL.value():
        raise RuleError(
            "the runner is dask, whose workers need a Prefect server; start one with `prefect server start`, and set "
            "PREFECT_API_URL here and on the workers"
        )


def _dask(settings: Settings) -> TaskRunner[PrefectFuture[Any]]:
    try:
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise RuleError("the runner is dask, which is not installed; pip install 'stef-pipeline[dask]'") from error
    if settings.address is not None:
        runner = DaskTaskRunner(address=settings.address)
    else:  # one thread a process: what is done there keeps a core busy
        processes = settings.processes or usable_cores()
        runner = DaskTaskRunner(cluster_kwargs={"n_workers": processes, "threads_per_worker": 1, "dashboard_address": None})
    return cast("TaskRunner[PrefectFuture[Any]]", runner)
