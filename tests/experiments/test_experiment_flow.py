"""The Prefect flow: the same run as from the command line, and its errors as they are."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from stef_core.errors import RuleError
from tasks.demo_experiment import write_demo_experiment
from tasks.warehouse import connect

pytestmark = pytest.mark.usefixtures("prefect_server")


def test_flow_runs_analyses_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.experiment import experiment

    monkeypatch.chdir(tmp_path)
    files = write_demo_experiment(tmp_path)
    url = f"duckdb:///{tmp_path / 'w.duckdb'}"

    told = experiment(
        name="v1",
        dataset=str(files.questions),
        database=f"sqlite:///{files.database}",
        agent="tasks.demo_experiment:agent",
        prompt=str(files.prompts[0]),
        limit=12,
        warehouse=url,
    )

    with connect(url, read_only=True) as store:
        run, results = store.read("experiment_runs").to_dicts()[0], store.read("experiment_results")
    assert experiment.name == "experiment"
    assert (told["accuracy"]["rows"], run["rows"], results.height) == (12, 12, 12)
    wrong = results.filter(results["execution_accuracy"] == "incorrect")
    assert wrong.height == told["accuracy"]["incorrect"] > 0
    assert wrong["error_codes"].null_count() == 0


def test_flow_refuses_what_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.experiment import experiment

    monkeypatch.chdir(tmp_path)

    with pytest.raises(RuleError, match="nobody is named who answers"):
        experiment(name="v1", dataset="absent.csv", database="sqlite:///absent.sqlite")


def test_parameters_of_the_flow_are_documented() -> None:
    from flows.experiment import experiment

    assert set(inspect.signature(experiment.fn).parameters) == set(experiment.parameters.properties)
    assert all(found.get("description") for found in experiment.parameters.properties.values())
