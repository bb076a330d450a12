"""Where batches are worked on: threads of this process and processes beside it, or the workers of a Dask cluster."""

from __future__ import annotations

from typing import Any, cast

from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from stef_core.errors import RuleError
from tasks.pool import threads_of, usable_cores
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
