"""A day written by strangers, through a run and what follows it: no name reaches a path, no SQL is run, no file is open."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL

from flows import cli
from tasks.query_log import list_days
from tasks.warehouse import connect
from tests.logs import DAY, table, write
from tests.openai_server import error, serving
from tests.pipeline.test_models import model_answer
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.usefixtures("prefect_server")
ROOT = Path(__file__).parents[2]
KEY = "sk-planted-51d0c7e2a94b8f36"
NAMES = (
    "../../evil", "/tmp/evil", "..", "a/../../b", "evil\\..\\c", "line\nbreak", "\x1b[31mred\x07", "tab\tbed", "nul\0byte",
    "it's", "'; DROP TABLE query_scores; --", 'say "so"', "$1", "%s {0}", "long" * 1500, "CON", "\u202egnp.exe",
    "<script>alert(1)</script>",
)  # fmt: skip


@pytest.fixture(params=["duckdb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "duckdb":
        yield f"duckdb:///{tmp_path / 'here' / 'out' / 'w.duckdb'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server("security")
    server.drop("security")


def strange_sql(root: Path) -> list[str]:
    """What a stranger would like to be run."""
    return [
        f"COPY (SELECT 1) TO '{root}/pwned-{n}.csv'; CREATE TABLE pwned_{n} AS SELECT 1; DROP TABLE query_scores; SELECT 1"
        for n in range(len(NAMES))
    ]


def test_names_of_strangers_reach_no_path_and_their_sql_is_not_run(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "here"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("STEF_DATA_DOCS", "docs")
    names, count = list(NAMES), len(NAMES)
    log = table(
        count, query_id=[f"{name[:200]}{n}" for n, name in enumerate(names)], agent_id=names, agent_version=names, app_id=names,
        generated_sql=strange_sql(home),
    )  # fmt: skip
    write(home / "logs", log)
    logs = ["--logs", "logs", "--warehouse", url]

    codes = [
        cli.run(["score", *logs, "--date", str(DAY), "--coverage-min", "0"]),
        cli.run(["score", *logs, "--date", str(DAY), "--missing", "--json"]),
        cli.run(["backfill", *logs, "--quiet"]),
        cli.run(["report", "--warehouse", url, "--out", "out/report.html"]),
        cli.run(["export", "--warehouse", url, "--out", "out/lake"]),
    ]

    out, err = capsys.readouterr()
    assert codes == [0] * 5, err
    with connect(url, read_only=True) as store:
        agents = set(store.read("query_scores")["agent_id"])
        assert store.query("SELECT COUNT(*) AS n FROM agent_daily WHERE agent_id = $1", ["it's"])["n"].item() > 0
        assert set(store.read("scoring_runs")["outcome"]) == {"published"}  # PostgreSQL keeps no NUL, so that row is done again
    assert agents == {name.replace("\0", "\ufffd") if url.startswith("postgresql") else name for name in names}
    assert {path.name for path in tmp_path.iterdir()} == {"here"}
    assert {path.name for path in home.iterdir()} <= {"logs", "docs", "out", ".stef"}
    made = [path.relative_to(home).as_posix() for path in home.rglob("*")]
    assert not [name for name in made if any(part in name for part in ("evil", "pwned", "long", "red", "script", 'so"'))]
    assert max(map(len, made)) < 120
    assert not {"\x1b", "\x07", "\0"} & set(out + err)
    assert "<script>alert(1)" not in (home / "out" / "report.html").read_text(encoding="utf-8")
    if url.startswith("duckdb"):
        with duckdb.connect(url.removeprefix("duckdb:///"), read_only=True) as connection:
            tables = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
        assert not [name for (name,) in tables if name.startswith("pwned")]


def test_folders_whose_names_only_resemble_a_day_are_left_aside(tmp_path: Path) -> None:
    write(tmp_path, table(2))
    for name in ("2026-W10-1", "20260303", "..", "2026-03-04\n", "2026-03-05;x", "2026-3-6", "x" * 200):
        (tmp_path / f"dt={name}").mkdir()

    assert list_days(str(tmp_path)) == [DAY]


UNDER_NO_UMASK = "import os, sys; os.umask(0); from flows.cli import run; sys.exit(run(sys.argv[1:]))"


def run_open(home: Path, *arguments: str, **environment: str) -> str:
    """Run a command where the umask forbids nothing."""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_NO_UMASK, *arguments],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_API_URL": str(PREFECT_API_URL.value())} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_what_holds_questions_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "here"
    home.mkdir(mode=0o700)
    write(home / "logs", table(40))
    shared = ["--warehouse", "duckdb:///out/w.duckdb"]
    with serving(model_answer) as server:
        run_open(
            home, *("score", "--logs", "logs", "--date", str(DAY), *shared, "--judge", "openai", "--model", "m"),
            STEF_BASE_URL=server.base_url, STEF_API_KEY=KEY, STEF_DATA_DOCS="docs", STEF_MAX_CALLS="1000",
        )  # fmt: skip
    run_open(home, "report", *shared, "--out", "out/report.html")
    run_open(home, "export", *shared, "--out", "out/lake")

    modes = {path.relative_to(home).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}

    private = ("out/w.duckdb", "out/w.bi.duckdb", ".stef/answers.sqlite", ".stef/marker.key", ".stef/spool")
    assert {name: oct(modes[name]) for name in private if modes[name] & 0o007} == {}
    assert modes["out/w.bi.duckdb"] & 0o222 == 0
    assert modes["out/report.html"] == 0o644


def test_a_budget_that_processes_share_is_kept_in_a_file_of_their_owner(tmp_path: Path) -> None:
    from stef_core.budget import Limits
    from tasks.crew import SharedBudget

    before = os.umask(0)
    try:
        SharedBudget(tmp_path / "new" / "budget.sqlite", Limits(calls=1))
    finally:
        os.umask(before)

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", tmp_path / "new" / "budget.sqlite")]
    assert [oct(mode) for mode in modes] == ["0o700", "0o600"]


def test_a_day_under_way_is_closed_to_others_up_to_the_root_of_the_spool(tmp_path: Path) -> None:
    from tasks.spool import open_spool

    before = os.umask(0)
    try:
        spool = open_spool(tmp_path / "spool", DAY)
        spool.note("read", 0, {})
    finally:
        os.umask(before)

    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "spool", spool.folder)] == ["0o700"] * 2


@pytest.mark.slow
def test_secrets_are_in_no_line_and_no_record_also_when_debugging(tmp_path: Path, postgres_server: PostgresServer) -> None:
    password = "planted-9c41f07ab3"
    postgres_server("secrets")
    url = postgres_server.url("secrets", user=f"postgres:{password}")
    write(tmp_path / "logs", table(4))
    try:
        with serving(lambda body, seen: error(401, f"no such key: {KEY}") if seen % 2 else model_answer(body, seen)) as server:
            said = run_open(
                tmp_path,
                *("score", "--logs", "logs", "--date", str(DAY), "--judge", "openai", "--model", "m", "--coverage-min", "0"),
                STEF_DEBUG="1", STEF_WAREHOUSE=url, STEF_BASE_URL=server.base_url, STEF_API_KEY=KEY, STEF_MARKER_KEY="m" * 20,
                PREFECT_LOGGING_LEVEL="DEBUG",
            )  # fmt: skip
        with get_client(sync_client=True) as client:
            records: list[Any] = [*client.read_flow_runs(limit=200), *client.read_task_runs(limit=200)]
            records += [*client.read_logs(limit=200), *client.read_artifacts(limit=200)]
        recorded = json.dumps([record.model_dump(mode="json") for record in records])
        with connect(url, read_only=True) as store:
            stored = str(store.read("scoring_runs").to_dicts())
    finally:
        postgres_server.drop("secrets")

    assert "daily-scoring" in said  # it did say what it does
    for secret in (KEY, password, "m" * 20):
        assert secret not in said + recorded + stored
