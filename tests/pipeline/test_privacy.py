"""Planted personal data and a planted key, through a whole day: neither leaves the process, is stored or is told anywhere."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flows import cli
from stef_core.align import align
from tests.logs import DAY, NOON, table, write
from tests.openai_server import OpenAIServer, Reply, answer, completion, error, serving

pytestmark = pytest.mark.usefixtures("prefect_server")

KEY = "sk-planted-7f3a9c2e5b8d1046"
RULES = {
    "app_id": "shop",
    "redact": [
        "nick*",
        {"kind": "email"},
        {"kind": "phone", "region": ["DE", "US"]},
        {"kind": "card"},
        {"kind": "iban"},
        {"kind": "national_id", "region": ["PL", "US"]},
        {"pattern": "K-\\d{6}", "name": "customer_no"},
    ],
}
# (as people write it, as SQL has it)
PLANTED = {
    "email": ("Kim.Lund@planted.example.org", "'kim.lund@planted.example.org'"),
    "phone": ("+49 30 901820", "4930901820"),
    "phone at home": ("030 / 901827", "'030901827'"),
    "card": ("5105 1051 0510 5100", "5105105105105100"),
    "card in SQL": ("4111111111111111", "4111-1111-1111-1111"),
    "iban": ("DE89 3704 0044 0532 0130 00", "'DE89370400440532013000'"),
    "national id": ("44051401458", "'440514-01458'"),
    "social security": ("078-05-1120", "078051120"),
    "pattern": ("k-482915", "'K-482915'"),
    "column": ("Zorblaxia", "'zorblaxia'"),
    "other digits": ("４５３２ ０１５１ １２８３ ０３６６", "'4532015112830366'"),
    "hidden signs": ("jo\u200b.quill@planted.example.org", "'jo.quill@planted.example.org'"),
}
# what of them could be nothing else, letters and figures alone
TRACES = (
    "kimlund", "planted", "901820", "901827", "5105105105105100", "4111111111111111", "370400440532", "44051401458",
    "78051120", "482915", "zorblax", "4532015112830366", "quill",
)  # fmt: skip
LOGGERS = ("stef_core", "tasks", "flows", "openai", "httpx2", "httpcore2", "aiohttp", "asyncio", "great_expectations")
FALLEN = ("q5", "q10", "q15", "q20")  # rows that the evaluator fails on
COLUMNS = {"email": "mail", "column": "nickname"}
QUESTIONS = (
    "How many orders of the customer {said} came in {year}?",
    "List the amounts of the orders of {year} where the customer is {said} and not {said}.",
    "Wie viele Bestellungen hat {said} im Jahr {year}?",
)
ENDINGS = (
    "WHERE {column} = {written} AND year = {year}",
    "WHERE {column} IN ({written}, 'other') -- about {said}",
    "WHERE LOWER({column}) = {written} OR note LIKE '%{text}%'",
    "WHERE {column} = {written} AND ((",  # cut off
    "WHER {column} = {written} ORDR BY x",  # read by nobody
)


def asked(kind: str, n: int) -> dict[str, Any]:
    """A row that holds one planted value on all sides."""
    said, written = PLANTED[kind]
    words = {"said": said, "written": written, "text": written.strip("'"), "column": COLUMNS.get(kind, "customer")}
    words["year"] = str(1950 + n)  # so that no two rows ask the same
    told = "Count the orders where {column} is {said} and the year is {year}".format_map(words)
    sql = "SELECT COUNT(*) AS n, CASE WHEN {column} = {written} THEN 1 END FROM orders " + ENDINGS[n % len(ENDINGS)]
    return {
        "user_question": QUESTIONS[n % len(QUESTIONS)].format_map(words),
        "enriched_question": None if n % 2 else told,
        "generated_sql": sql.format_map(words),
        "session": {"history": [f"and {said}?"], "asked": {"value": written, "nickname": "Zorblaxia", "turn": 3}},
        "nickname": "Zorblaxia",
    }


ROWS = [asked(kind, n) for n, kind in enumerate(list(PLANTED) * len(ENDINGS))]


def echoing(body: dict[str, Any], _: int = 0) -> Reply:
    """A model that repeats what it was told, key included, and now and then fails on it."""
    said = body["messages"][1]["content"]
    if len(said) % 11 == 0:
        return error(400, f"key {KEY} may not ask {said[:60]}")
    if len(said) % 13 == 0:
        return completion({"content": None, "refusal": f"I will not speak of {said[:80]} to {KEY}"})
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": [f"seen {said[:200]}", f"by {KEY}"], "grade": "incorrect", "confidence": 0.9})
    placeholders = re.findall(r"\[redacted[^\]]*\]", said)
    condition = {"column": "customer", "op": "in", "value": placeholders or ["x"], "text": said[:60]}
    spec = {"projections": [], "aggregations": [], "filters": [condition], "group_by": [], "unread": [said[:40]]}
    return answer({"question": spec} | ({"enriched": spec} if "enriched_question" in said else {}))


def failing(right: Any) -> Any:
    """An alignment that trips over some rows, and quotes them in its error."""

    def failing(record: Any, *rest: Any) -> Any:
        if record.query_id in FALLEN:
            raise KeyError(record.user_question, record.generated_sql)
        return right(record, *rest)

    return failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that a run left behind or said, each by its name."""

    texts: dict[str, str]
    requests: int

    def holding(self, *traces: str) -> list[tuple[str, str]]:
        """Which of the traces stand where."""
        found = []
        for name, text in self.texts.items():
            bare = re.sub(r"[^0-9a-z]", "", text.casefold())
            found += [(name, trace) for trace in traces if trace in bare]
        return found


@contextmanager
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Catch what our code and its HTTP clients log, debug lines included; Prefect sets the root logger up anew."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(caplog.handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(caplog.handler)
            logger.setLevel(level)


def run_of(root: Path, server: OpenAIServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Told:
    """Score the planted day twice (the second time from the cache), write the report, and gather what there is to read."""
    from prefect.client.orchestration import get_client

    (root / "rules").mkdir()
    (root / "rules" / "shop.json").write_text(json.dumps(RULES), encoding="utf-8")
    moments = pa.array([NOON] * len(ROWS), pa.timestamp("us", "UTC"))
    write(root / "logs", table(len(ROWS), asked_at=moments, **{name: [row[name] for row in ROWS] for name in ROWS[0]}))
    url = f"duckdb:///{root / 'out' / 'w.duckdb'}"
    score = ["score", "--logs", str(root / "logs"), "--date", str(DAY), "--rules", str(root / "rules"), "--warehouse", url]
    score += ["--judge", "openai", "--model", "m", "--coverage-min", "0"]
    with everything_logged(caplog):
        codes = [
            cli.run(score),
            cli.run([*score, "--json"]),
            cli.run([*score, "--dry-run", "--out", str(root / "out" / "dry.jsonl")]),
        ]
        codes.append(cli.run(["report", "--warehouse", url, "--out", str(root / "out" / "report.html")]))
    out, err = capfd.readouterr()
    assert codes == [0, 0, 0, 0], err
    with get_client(sync_client=True) as client:
        recorded = {
            "artifacts": [a.model_dump(mode="json") for a in client.read_artifacts(limit=200)],
            "flow runs": [r.model_dump(mode="json") for r in client.read_flow_runs(limit=200)],
            "task runs": [r.model_dump(mode="json") for r in client.read_task_runs(limit=200)],
            "logs of runs": [entry.model_dump(mode="json") for entry in client.read_logs(limit=200)],
        }
    texts = {
        "requests": json.dumps(server.bodies, ensure_ascii=False),
        "standard output": out,
        "standard error": err,
        "log": "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records),
        **{name: json.dumps(value, ensure_ascii=False) for name, value in recorded.items()},
        **dict(tables_of(root / "out" / "w.duckdb")),
    }
    assert recorded["artifacts"]
    for path in sorted([*(root / "out").rglob("*"), *(root / ".stef").rglob("*")]):
        if path.is_file():
            texts[f"file {path.name}"] = path.read_bytes().decode("latin-1")
    return Told(texts=texts, requests=server.requests)


def tables_of(path: Path) -> Iterator[tuple[str, str]]:
    """Every text of every table of a warehouse, staging included."""
    with duckdb.connect(path, read_only=True) as connection:
        found = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        for schema, name in found:
            rows = connection.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall()
            yield f"table {schema}.{name}", json.dumps(rows, ensure_ascii=False, default=str)


def test_no_personal_value_leaves_the_process_or_is_stored_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_API_KEY", KEY)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # Prefect's handler holds the stderr of an earlier test
    # the name in the package is the function
    monkeypatch.setattr(importlib.import_module("stef_core.evaluate"), "align", failing(align))

    with serving(echoing) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        told = run_of(tmp_path, server, capfd, caplog)
        keys = set(server.keys)

    assert keys == {KEY}
    assert told.requests > len(ROWS)  # a question and a verdict of each row that can be read
    scores = told.texts["table main.query_scores"]
    assert scores.count("[redacted]") > 5 * len(ROWS)
    assert {"answers.sqlite", "w.duckdb", "w.bi.duckdb", "report.html", "dry.jsonl"} <= {
        name.removeprefix("file ") for name in told.texts
    }
    assert "is unscored (evaluator_error)" in told.texts["log"]
    assert "in failing" in told.texts["log"]  # the traceback, for debugging
    assert told.holding(*TRACES) == []
    assert told.holding("skplanted") == []


def test_a_failing_endpoint_that_repeats_the_key_is_told_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_API_KEY", KEY)
    monkeypatch.setattr("stef_core.openai_model.BACKOFF_S", 0.001)
    write(tmp_path / "logs", table(2))
    url = f"duckdb:///{tmp_path / 'w.duckdb'}"

    with serving(lambda *_: error(500, f"no such key: {KEY[:14]}… ({KEY})")) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        arguments = ["--judge", "openai", "--model", "m", "--warehouse", url, "--coverage-min", "0"]
        code = cli.run(["score", "--logs", str(tmp_path / "logs"), "--date", str(DAY), *arguments, "--quiet"])
        explained = cli.run(["explain", "-q", "How many?", "-s", "SELECT 1 FROM t", *arguments[:4], "--json"])
    out, err = capfd.readouterr()

    stored = "".join(text for _, text in tables_of(tmp_path / "w.duckdb"))
    assert (code, explained) == (3, 3)
    assert "answers 500" in out
    assert "***" in out + stored
    assert KEY[:14] not in out + err + stored
