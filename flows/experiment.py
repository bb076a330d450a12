"""Run an agent on questions with gold SQL, and say how many of its answers are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.experiments import Experiment, Run, analyse_run, check_experiment, run_experiment
from tasks.passing import as_is
from tasks.retrying import DELAYS_S, is_transient
from tasks.secrets import with_secret
from tasks.settings import load_settings

run = task(
    name="run-experiment",
    retries=len(DELAYS_S),
    retry_delay_seconds=list(DELAYS_S),
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
)(run_experiment)
analyse = task(name="analyse-experiment", cache_policy=NO_CACHE)(analyse_run)


@flow(name="experiment")
def experiment(
    name: str,
    dataset: str,
    database: str,
    agent: str | None = None,
    predictions: str | None = None,
    prompt: str | None = None,
    model: str | None = None,
    columns: dict[str, str] | None = None,
    limit: int | None = None,
    subset: bool = False,
    ignore_case: bool = False,
    max_rows: int = 10_000,
    timeout_s: float = 30.0,
    judge: str | None = None,
    judge_model: str | None = None,
    out: str = "experiments",
    warehouse: str | None = None,
) -> dict[str, Any]:
    """Run one experiment, and tell from the syntax trees why its wrong answers are wrong.

    Args:
        name: Of the run.
        dataset: CSV, JSON lines or Parquet with questions and gold SQL.
        database: URL of the database that they are about.
        agent: ``module:function`` that answers.
        predictions: File of answers, in the place of an agent.
        prompt: Prompt file of the agent.
        model: Model of the baseline agent.
        columns: The data set's name of a column, where it is not a known one.
        limit: Rows, from the first on.
        subset: Let predicted columns be that gold does not have.
        ignore_case: Texts that differ only in case are equal.
        max_rows: Results of more rows are compared by hash.
        timeout_s: Seconds that one query may take.
        judge: ``symbolic`` or ``openai``: who scores the answers beside their execution.
        judge_model: Model of that judge.
        out: Folder of the runs.
        warehouse: URL of the warehouse.

    Returns:
        The object of ``stef experiment run --json``.

    Raises:
        InputError: A file is wrong.
        RuleError: Options, settings, agent or database are wrong.
        TransientError: The endpoint answered for no row, or the warehouse is held.
    """
    wanted = Experiment(
        name=name,
        dataset=Path(dataset),
        database=database,
        agent=agent,
        predictions=Path(predictions) if predictions else None,
        prompt=Path(prompt) if prompt else None,
        columns=columns or {},
        limit=limit,
        subset=subset,
        ignore_case=ignore_case,
        max_rows=max_rows,
        timeout_s=timeout_s,
        out=Path(out),
    )
    settings = with_secret(load_settings({"judge": judge, "model": judge_model, "warehouse": warehouse}))
    asked = None
    if agent is None and predictions is None:
        asked = with_secret(load_settings({"judge": "openai", "model": model, "warehouse": warehouse}))
    check_experiment(wanted, settings, asked)
    found: Run = run(as_is(wanted), as_is(settings), as_is(asked))
    analysed = analyse(name, out=wanted.out, settings=as_is(settings.model_copy(update={"judge": "symbolic"})), record=True)
    summary = [f"# Experiment {name}", "", f"{found.accuracy.correct} of {found.accuracy.decided} right", ""]
    summary += [f"- {tally.code}: {tally.rows}" for tally in analysed.tallies]
    create_markdown_artifact(key="experiment", markdown="\n".join(summary), description="Execution accuracy of a run")
    return found.to_json()
