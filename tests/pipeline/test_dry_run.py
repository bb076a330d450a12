"""A dry run shows the very requests of the run, and touches neither endpoint nor warehouse nor cache."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from flows import cli
from stef_core.extract.question_llm import question_request
from stef_core.llm import ChatAnswer, ChatFailure, StoredAnswer
from stef_core.records import QueryRecord
from stef_core.rules import DEFAULT_RULES
from tasks.answer_cache import SqliteAnswerCache
from tasks.dry_run import Planned, Summary, UnsentModel, estimated_tokens, json_lines, plan
from tasks.settings import Settings
from tests.logs import DAY, table, write
from tests.openai_server import OpenAIServer, Reply, answer, serving

ROOT = Path(__file__).parents[2]
SPEC: dict[str, Any] = {"projections": [], "aggregations": [], "filters": [], "group_by": []}
MARKER = b"k" * 32
SETTINGS = Settings(judge="openai", model="m", cache=None, marker_key=SecretStr("k" * 32))
ROW = QueryRecord(query_id="1", user_question="How many orders came from Peru?", generated_sql="SELECT COUNT(*) FROM orders")
NOWHERE = "https://models.example.org/v1"  # no key is set for it, and nobody is there
ROWS = 6


@pytest.fixture(autouse=True)
def marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key of the marker for all runs, so that equal rows make equal requests."""
    monkeypatch.setenv("STEF_MARKER_KEY", MARKER.decode())


def model_answer(body: dict[str, Any], _: int = 0) -> Reply:
    if body["response_format"]["json_schema"]["name"] == "verdict":
        return answer({"reasons": ["as asked"], "grade": "correct", "confidence": 0.9})
    limited = SPEC | {"limit": 3, "asks_limit": True}  # what the offline reader would not say
    return answer(
        {"question": limited} | ({"enriched": limited} if "enriched_question" in body["messages"][1]["content"] else {})
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    monkeypatch.setenv("STEF_BASE_URL", NOWHERE)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    code = cli.run(list(arguments))
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def day_of(**columns: Any) -> Any:
    return table(ROWS, user_question=[f"How many orders came from city {n % 4}?" for n in range(ROWS)], **columns)


def dry_score(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Summary and requests of a dry run of one day."""
    arguments = ["score", "--dry-run", "--judge", "openai", "--model", "m", "--logs", "logs", "--date", str(DAY), "--json"]
    out, _ = ran(capsys, *arguments, "--out", "planned.jsonl", "--warehouse", "duckdb:///w.duckdb", *more)
    return json.loads(out), [json.loads(line) for line in Path("planned.jsonl").read_text(encoding="utf-8").splitlines()]


def sent_to(server: OpenAIServer) -> set[str]:
    return {json.dumps([body["model"], body["messages"]]) for body in server.bodies}


def would_be_sent(lines: list[dict[str, Any]]) -> set[str]:
    return {json.dumps([line["model"], line["messages"]]) for line in lines}


# --- single answers -------------------------------------------------------------------------------------------------


def test_one_answer_shows_its_two_requests_with_the_data_whole(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = ran(
        capsys, "explain", "--dry-run", "--judge", "openai", "--model", "m", "-q", "How many?", "-s", "SELECT COUNT(*) FROM t"
    )

    request = question_request(
        QueryRecord(query_id="", user_question="How many?", generated_sql=""), DEFAULT_RULES, "m", marker_key=MARKER
    )
    assert out.splitlines()[0].startswith("explain · question · model m · schema question · about ")
    assert request.messages[1].content in out
    assert "system: prompt question_v2@" in out
    assert "system: prompt judge_v2@" in out
    assert '"sql": "SELECT COUNT(*) FROM t"' in out
    assert "requests: 2, distinct: 2, already in the cache: 0" in out
    assert "offline reading" in out


def test_one_answer_can_be_shown_to_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "explain",
        "--dry-run",
        "--judge",
        "openai",
        "--model",
        "m",
        "-q",
        "How many?",
        "-s",
        "SELECT 1 FROM t",
        "--json",
    ]

    told = json.loads(ran(capsys, *arguments)[0])

    assert [each["stage"] for each in told["requests"]] == ["question", "verdict"]
    assert set(told["requests"][0]) == {
        "query_id", "stage", "model", "schema_name", "messages", "tokens_estimate", "cached"
    }  # fmt: skip
    assert told["requests"][1]["reading"] == "offline"
    assert told["summary"]["to_be_sent"] == 2


def test_a_file_gives_a_line_for_each_request_and_passes_over_bad_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"query_id": "a", "user_question": "How many?", "generated_sql": "SELECT 1 FROM t"},
        {"query_id": "b", "user_question": 3},
    ]
    Path("in.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    out, err = ran(capsys, "explain", "--dry-run", "--judge", "openai", "--model", "m", "--file", "in.jsonl")

    assert [json.loads(line)["query_id"] for line in out.splitlines()] == ["a", "a"]
    assert "bad_line: line 2: user_question is 3" in err
    assert "rows: 1, requests: 2" in err


def test_what_is_redacted_is_shown_as_it_would_be_sent(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules.json").write_text('{"redact": [{"kind": "email"}]}', encoding="utf-8")
    asked = ["-q", "Orders of kim@example.org?", "-s", "SELECT * FROM o WHERE mail = 'kim@example.org'"]

    out, _ = ran(capsys, "explain", "--dry-run", "--judge", "openai", "--model", "m", "--rules", "rules.json", *asked)

    assert "Orders of [redacted]?" in out
    assert "kim@example.org" not in out


@pytest.mark.parametrize("command", [["explain", "-q", "How many?", "-s", "SELECT 1"], ["score", "--logs", "logs"]])
def test_the_symbolic_judge_would_send_nothing(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = ran(capsys, *command, "--dry-run")

    assert out == "nothing would be sent: the judge is symbolic, which asks no model; add --judge openai\n"


def test_sql_that_cannot_be_read_would_send_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules.json").write_text('{"redact": ["email"]}', encoding="utf-8")
    arguments = [
        "--dry-run",
        "--judge",
        "openai",
        "--model",
        "m",
        "--rules",
        "rules.json",
        "-q",
        "How many?",
        "-s",
        "SELECT FROM ((",
    ]

    out, _ = ran(capsys, "explain", *arguments)

    assert out.startswith("nothing would be sent of this answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "--dry-run", "--judge", "openai", "-q", "a", "-s", "b"], "no model is named; set STEF_MODEL"),
        (["score", "--dry-run", "--judge", "openai", "--model", "m"], "no query log is named"),
        (
            ["score", "--dry-run", "--judge", "openai", "--model", "m", "--logs", "logs", "--date", str(DAY)],
            "no such partition",
        ),
        (["score", "--logs", "logs", "--out", "x"], "--out: belongs to --dry-run"),
    ],
)
def test_what_a_dry_run_needs_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(arguments)

    assert code == 2
    assert message in capsys.readouterr().err


def test_an_answer_is_planned_without_prefect() -> None:
    program = "import sys, tasks.dry_run; sys.exit('prefect' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# --- days -----------------------------------------------------------------------------------------------------------


def test_days_are_planned_and_nothing_is_written_but_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "logs", day_of())
    write(folder / "logs", table(2, query_id=["a", "b"]), day=DAY + dt.timedelta(days=1))

    summary, lines = dry_score(capsys, "--to", str(DAY + dt.timedelta(days=1)))

    assert sorted(path.name for path in folder.iterdir()) == ["logs", "planned.jsonl"]
    assert (folder / "planned.jsonl").stat().st_mode & 0o077 == 0
    assert [line["stage"] for line in lines] == ["question"] * 6 + ["verdict"] * 6 + ["question"] * 2 + ["verdict"] * 2
    assert [line["dt"] for line in lines] == [str(DAY)] * 12 + [str(DAY + dt.timedelta(days=1))] * 4
    assert [line["query_id"] for line in lines][:6] == [f"q{n}" for n in range(6)]
    assert (summary["rows"], summary["requests"], summary["in_cache"]) == (8, 16, 0)
    assert summary["distinct_requests"] == summary["to_be_sent"] == len(would_be_sent(lines))
    distinct = {json.dumps(line["messages"]): line["tokens_estimate"] for line in lines}
    assert summary["tokens_estimate"] == sum(distinct.values())
    assert any("no warehouse there" in note for note in summary["notes"])


def test_a_summary_and_the_first_requests_are_shown_where_there_is_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "logs", day_of())

    out, _ = ran(
        capsys, "score", "--dry-run", "--judge", "openai", "--model", "m", "--logs", "logs", "--date", str(DAY), "--quiet"
    )

    assert [line.split(" · ")[0] for line in out.splitlines() if " · question · " in line] == ["q0", "q1", "q2"]
    assert f"rows: {ROWS}, requests: {2 * ROWS}" in out


@pytest.mark.usefixtures("prefect_server")
def test_a_dry_run_plans_what_the_run_then_sends_and_after_it_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "logs", day_of(enriched_question=["Count orders of the city"] * ROWS))
    score = [
        "score",
        "--judge",
        "openai",
        "--model",
        "m",
        "--logs",
        "logs",
        "--date",
        str(DAY),
        "--warehouse",
        "duckdb:///w.duckdb",
    ]

    before, unread = dry_score(capsys)
    with serving(model_answer) as server:
        monkeypatch.setenv("STEF_BASE_URL", server.base_url)
        ran(capsys, *score)
        sent = sent_to(server)
    monkeypatch.setenv("STEF_BASE_URL", NOWHERE)
    published = (folder / "w.duckdb").read_bytes()
    after, read = dry_score(capsys)

    assert would_be_sent([line for line in unread if line["stage"] == "question"]) <= sent
    assert before["to_be_sent"] == before["distinct_requests"]
    assert would_be_sent(read) == sent
    assert (after["to_be_sent"], after["in_cache"], after["tokens_estimate"]) == (0, len(sent), 0)
    assert {line["reading"] for line in read if line["stage"] == "verdict"} == {"model"}
    assert (folder / "w.duckdb").read_bytes() == published


# --- parts ----------------------------------------------------------------------------------------------------------


def test_the_unsent_model_knows_what_the_cache_knows(tmp_path: Path) -> None:
    answered, refused, broken, new = (
        question_request(QueryRecord(query_id="", user_question=text, generated_sql=""), DEFAULT_RULES, "m")
        for text in ("a", "b", "c", "d")
    )
    with SqliteAnswerCache(tmp_path / "answers.sqlite") as cache:
        cache.put_many(
            {
                answered.key: StoredAnswer(text=json.dumps({"question": SPEC})),
                refused.key: StoredAnswer(text="no", reason="judge_refused"),
                broken.key: StoredAnswer(text="{}"),
            }
        )
        chat = UnsentModel(SETTINGS, cache)

        outcomes = chat.complete_many([answered, refused, broken, new])

    assert [type(outcome) for outcome in outcomes] == [ChatAnswer, ChatFailure, ChatFailure, ChatFailure]
    assert [o.reason for o in outcomes if isinstance(o, ChatFailure)] == ["judge_refused", *["judge_unavailable"] * 2]
    assert [cached for _, cached in chat.taken()] == [True, True, False, False]
    assert chat.taken() == []


def test_a_row_whose_reading_was_refused_gets_no_verdict_request() -> None:
    class Refused:
        def get_many(self, keys: Any) -> dict[str, StoredAnswer]:
            return {key: StoredAnswer(text="no", reason="judge_refused") for key in keys}

        def put_many(self, answers: Any) -> None: ...

        def close(self) -> None: ...

    planned = list(plan([(ROW, DEFAULT_RULES)], UnsentModel(SETTINGS, Refused()), Summary()))

    assert [(each.stage, each.cached) for each in planned] == [("question", True)]


def test_equal_requests_are_counted_once() -> None:
    summary = Summary()

    planned = list(plan([(ROW, DEFAULT_RULES)] * 3, UnsentModel(SETTINGS), summary))

    assert (summary.rows, summary.requests, summary.distinct, summary.offline) == (3, 6, 2, 3)
    assert summary.tokens == planned[0].tokens + planned[1].tokens


def test_tokens_are_a_quarter_of_the_characters_rounded_up() -> None:
    (request,) = [
        each.request for each in plan([(ROW, DEFAULT_RULES)], UnsentModel(SETTINGS), Summary()) if each.stage == "question"
    ]

    characters = sum(len(message.content) for message in request.messages)

    assert 0 <= 4 * estimated_tokens(request) - characters < 4
    assert Planned(query_id="1", stage="question", request=request, cached=False).tokens == estimated_tokens(request)


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "planned.jsonl"
    out.write_text("old", encoding="utf-8")

    def fail() -> None:
        with json_lines(out) as write_line:
            write_line({"a": "b"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert out.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["planned.jsonl"]


def test_a_file_holds_even_a_lone_surrogate_as_json(tmp_path: Path) -> None:
    out = tmp_path / "new" / "planned.jsonl"

    with json_lines(out) as write_line:
        write_line({"a": "\udc80 é"})

    assert json.loads(out.read_text(encoding="utf-8")) == {"a": "\udc80 é"}
