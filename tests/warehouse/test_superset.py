"""The dashboard for Superset: whole, and what its charts ask runs on a real PostgreSQL warehouse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with Prefect, without types

from tasks.warehouse import Warehouse, connect
from tasks.warehouse.sql import comments
from tests.postgres_server import PostgresServer
from tests.warehouse.bi_rows import fill

HERE = Path(__file__).parents[2] / "deployments" / "superset"
BUNDLE = HERE / "bundle"
Asset = dict[str, Any]


def assets(kind: str) -> list[Asset]:
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((BUNDLE / kind).rglob("*.yaml"))]


DATASETS = {found["uuid"]: found for found in assets("datasets")}
CHARTS = assets("charts")
(DASHBOARD,) = assets("dashboards")
(DATABASE,) = assets("databases")


@pytest.fixture(scope="module")
def warehouse(postgres_server: PostgresServer) -> Iterator[Warehouse]:
    name = f"superset_{uuid.uuid4().hex}"
    url = postgres_server(name)
    with connect(url, wait_s=5) as opened:
        fill(opened)
    with connect(url, read_only=True) as opened:
        yield opened
    postgres_server.drop(name)


def metrics_of(params: Asset) -> list[str]:
    named = [*params.get("metrics", []), *params.get("metrics_b", [])]
    single = [params[key] for key in ("metric", "timeseries_limit_metric", "timeseries_limit_metric_b") if params.get(key)]
    return [*named, *single]


def columns_of(params: Asset) -> list[str]:
    named = [*params.get("groupby", []), *params.get("groupby_b", []), *params.get("all_columns", [])]
    ordered = [json.loads(pair)[0] for pair in params.get("order_by_cols", [])]
    return [*named, *ordered, *([params["x_axis"]] if "x_axis" in params else [])]


def filters_of(params: Asset) -> list[Asset]:
    return [*params.get("adhoc_filters", []), *params.get("adhoc_filters_b", [])]


def test_parts_of_the_bundle_name_each_other() -> None:
    placed = {part["meta"]["uuid"] for key, part in DASHBOARD["position"].items() if key.startswith("CHART-")}

    assert {found["database_uuid"] for found in DATASETS.values()} == {DATABASE["uuid"]}
    assert {chart["dataset_uuid"] for chart in CHARTS} == set(DATASETS)
    assert placed == {chart["uuid"] for chart in CHARTS}
    assert len({chart["uuid"] for chart in CHARTS}) == len(CHARTS)
    assert all(chart["params"]["viz_type"] == chart["viz_type"] for chart in CHARTS)
    for key, part in DASHBOARD["position"].items():
        if key != "DASHBOARD_VERSION_KEY":
            assert part["id"] == key
            assert set(part.get("children", [])) <= set(DASHBOARD["position"])


def test_rows_of_the_dashboard_are_as_wide_as_the_grid() -> None:
    position = DASHBOARD["position"]

    for row in position["GRID_ID"]["children"]:
        assert sum(position[chart]["meta"]["width"] for chart in position[row]["children"]) == 12


def test_filters_of_the_dashboard_name_columns_of_its_datasets_and_charts_that_are_there() -> None:
    charts = {part["meta"]["chartId"] for key, part in DASHBOARD["position"].items() if key.startswith("CHART-")}

    found = DASHBOARD["metadata"]["native_filter_configuration"]
    targets = [target for one in found for target in one["targets"] if target]

    assert {one["filterType"] for one in found} == {"filter_select", "filter_time"}
    for target in targets:
        assert target["column"]["name"] in {column["column_name"] for column in DATASETS[target["datasetUuid"]]["columns"]}
    assert all(set(one["scope"]["excluded"]) <= charts for one in found)


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=lambda dataset: dataset["table_name"])
def test_dataset_has_the_columns_of_the_warehouse_with_their_comments(dataset: Asset, warehouse: Warehouse) -> None:
    table = dataset["table_name"]
    told = {column["column_name"]: column["description"] for column in dataset["columns"] if column["expression"] is None}

    assert dataset["schema"] == "stef"
    assert list(told) == warehouse.read(table).columns
    assert {"table": dataset["description"], **told} == comments()[table]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart["slice_name"])
def test_what_a_chart_asks_runs_and_gives_rows(chart: Asset, warehouse: Warehouse) -> None:
    dataset, params = DATASETS[chart["dataset_uuid"]], chart["params"]
    metrics = {metric["metric_name"]: metric["expression"] for metric in dataset["metrics"]}
    columns = {column["column_name"]: column["expression"] or column["column_name"] for column in dataset["columns"]}
    conditions = ["TRUE"]
    for one in filters_of(params):
        value = one["comparator"]
        if one["operator"] == "TEMPORAL_RANGE":
            conditions.append(f"{columns[one['subject']]} >= DATE '2000-01-01'")
        else:
            literal = f"'{value}'" if isinstance(value, str) else value
            conditions.append(f"{columns[one['subject']]} {one['operator'].replace('==', '=')} {literal}")
    groups = [columns[name] for name in dict.fromkeys(columns_of(params))]
    picked = groups + [metrics[name] for name in dict.fromkeys(metrics_of(params))]
    grouping = f"GROUP BY {', '.join(groups)}" if groups and params.get("query_mode") != "raw" else ""

    found = warehouse.query(
        f"SELECT {', '.join(f'{sql} AS c{n}' for n, sql in enumerate(picked))} FROM {dataset['table_name']} "
        f"WHERE {' AND '.join(conditions)} {grouping}"
    )

    assert found.height > 0
    assert all(found[f"c{n}"].null_count() < found.height for n in range(len(picked)))


@pytest.mark.parametrize(("dataset", "metric"), [(d, m) for d in DATASETS.values() for m in d["metrics"]])
def test_every_metric_runs(dataset: Asset, metric: Asset, warehouse: Warehouse) -> None:
    found = warehouse.query(f"SELECT {metric['expression']} AS value FROM {dataset['table_name']}")

    assert found["value"].null_count() == 0


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [sys.executable, str(HERE / "load.py"), *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_zip_holds_the_bundle_with_the_uri_of_the_environment(tmp_path: Path) -> None:
    uri = "postgresql://bi:pa'ss\"word@db/stef?sslmode=verify-full"
    file = tmp_path / "stef.zip"

    done = run("--zip", str(file), SUPERSET_STEF_URI=uri)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(file) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {f"stef/{path.relative_to(BUNDLE).as_posix()}" for path in BUNDLE.rglob("*.yaml")}
    assert yaml.safe_load(texts["stef/databases/STEF.yaml"])["sqlalchemy_uri"] == uri
    assert yaml.safe_load(texts["stef/metadata.yaml"])["type"] == "Dashboard"
    assert DATABASE["sqlalchemy_uri"] == "postgresql://bi@db.example/stef"


def test_import_hands_superset_the_whole_bundle_and_tells_its_refusal(tmp_path: Path) -> None:
    superset = tmp_path / "superset"
    superset.write_text(
        '#!/bin/sh\necho "$@" | cut -d" " -f1,2\nfind "$3" -name "*.yaml" | wc -l\necho "An error occurred: x"\n'
    )
    superset.chmod(0o755)

    done = run(SUPERSET_STEF_URI="postgresql://bi@db/stef", PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert done.returncode == 1
    assert done.stderr.split("\n")[0] == "import-directory --overwrite"
    assert int(done.stderr.split("\n")[1]) == len(list(BUNDLE.rglob("*.yaml")))


def test_missing_uri_or_superset_is_told(tmp_path: Path) -> None:
    without = run()
    no_superset = run(SUPERSET_STEF_URI="postgresql://bi@db/stef", PATH=str(tmp_path))

    assert (without.returncode, no_superset.returncode) == (2, 2)
    assert without.stderr.startswith("SUPERSET_STEF_URI must hold the URI")
    assert "activate Superset's environment" in no_superset.stderr
