"""`stef import` on traces: OpenTelemetry GenAI spans, Langfuse exports, LangSmith exports."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from flows import cli
from tasks.query_log import list_days, read_partition
from tests.imports.import_files import QUESTION, SQL, called, document, lines, otlp, otlp_export, otlp_span, said

LOGS = "query_log"
NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)
WRONG = "SELECT COUNT(*) FROM ordrs"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")
    return tmp_path


def imported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the import of one file says, and the rows of the log."""
    code = cli.run(["import", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    (file,) = json.loads(out)["files"]
    return file, [row for day in list_days(LOGS) for row in read_partition(LOGS, day).frame.to_dicts()]


def agent_trace(trace: str = "aa", question: str = QUESTION) -> list[dict[str, Any]]:
    """An agent that queries twice, the first time wrongly, and answers in prose."""
    asked = [said("system", "You answer with SQL, as SELECT 1 FROM t."), said("user", question)]
    return [
        otlp_span(f"{trace}-http", trace=trace, name="POST /ask", http__request__method="POST"),
        otlp_span(
            f"{trace}-agent", f"{trace}-http", trace=trace, at=1, name="invoke_agent shop",
            gen_ai__operation__name="invoke_agent", gen_ai__agent__id="asst_1", gen_ai__agent__name="shop-bot",
            gen_ai__agent__version="v3", gen_ai__conversation__id="conv-1", gen_ai__input__messages=json.dumps(asked),
            gen_ai__output__messages=json.dumps([said("assistant", "There are 42 open orders.")]), app__tenant="north",
        ),
        otlp_span(
            f"{trace}-chat-1", f"{trace}-agent", trace=trace, at=2, gen_ai__operation__name="chat",
            gen_ai__request__model="m-1", gen_ai__input__messages=asked,
            gen_ai__output__messages=[called("run_sql", {"query": WRONG})],
        ),
        otlp_span(
            f"{trace}-tool-2", f"{trace}-agent", trace=trace, at=5, gen_ai__operation__name="execute_tool",
            gen_ai__tool__call__arguments=json.dumps({"query": SQL}),
        ),
        otlp_span(
            f"{trace}-tool-1", f"{trace}-agent", trace=trace, at=3, gen_ai__operation__name="execute_tool",
            gen_ai__tool__call__arguments={"query": WRONG},
        ),
        otlp_span(f"{trace}-db", f"{trace}-tool-2", trace=trace, at=6, db__system__name="postgresql", db__query__text=SQL),
    ]  # fmt: skip


# --- OpenTelemetry --------------------------------------------------------------------------------------------------


def test_span_of_an_agent_is_one_answer_with_the_sql_that_ran_last(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = agent_trace(), agent_trace("bb", "Which customers are late?")
    lines(folder / "spans.jsonl", otlp_export(*first[3:]), otlp_export(*second), otlp_export(*first[:3]))

    file, rows = imported(capsys, "spans.jsonl")

    assert file["format"] == "OpenTelemetry, JSON lines"
    assert file["spans_aside"] == 2, "the spans of HTTP"
    by_id = {row["query_id"]: row for row in rows}
    assert set(by_id) == {"aa-agent", "bb-agent"}
    row = by_id["aa-agent"]
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)
    assert (row["agent_id"], row["agent_version"], row["dialect"]) == ("shop-bot", "v3", "postgresql")
    assert row["asked_at"] == NOON + dt.timedelta(seconds=1)
    assert json.loads(row["extra"]) == {
        "model": "m-1", "session_id": "conv-1", "span_name": "invoke_agent shop", "trace_id": "aa",
    }  # fmt: skip


def test_paths_lead_into_the_spans_of_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(folder / "spans.jsonl", otlp_export(*agent_trace()))

    _, (row,) = imported(
        capsys, "spans.jsonl", "--map", "app_id=attributes.app.tenant", "--map", "agent_id=attributes.gen_ai.agent.id",
        "--map", "dialect=attributes.db.system.name", "--map", "agent_version=resource.service.version",
    )  # fmt: skip

    assert (row["app_id"], row["agent_id"], row["agent_version"]) == ("north", "asst_1", "7")


def test_question_and_sql_in_attributes_of_ones_own_are_reached_in_any_span(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(
        folder / "spans.jsonl",
        otlp_export(
            otlp_span("child", "root", at=2, shop__sql=SQL),
            otlp_span("root", at=1, shop__question=QUESTION),
            otlp_span("x", "root"),
        ),
    )

    _, (row,) = imported(
        capsys, "spans.jsonl", "--map", "user_question=attributes.shop.question", "--map", "generated_sql=attributes.shop.sql"
    )

    assert (row["query_id"], row["user_question"], row["generated_sql"]) == ("root", QUESTION, SQL)


def test_agents_under_an_agent_are_part_of_its_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(
        folder / "spans.jsonl",
        otlp_export(
            otlp_span("top", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="top", gen_ai__prompt=QUESTION),
            otlp_span(
                "sub", "top", at=1, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="writer",
                gen_ai__prompt="Write SQL for open orders", gen_ai__completion=f"```sql\n{SQL}\n```",
            ),
        ),
    )  # fmt: skip

    _, (row,) = imported(capsys, "spans.jsonl")

    assert (row["agent_id"], row["user_question"], row["generated_sql"]) == ("top", QUESTION, SQL)


def event(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": "1", "attributes": otlp(**attributes)}


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(
            {"gen_ai__input__messages": [said("user", QUESTION)], "gen_ai__output__messages": [said("assistant", SQL)]},
            id="messages as values",
        ),
        pytest.param(
            {
                "gen_ai__prompt__0__role": "system", "gen_ai__prompt__0__content": "Write SQL.",
                "gen_ai__prompt__1__role": "user", "gen_ai__prompt__1__content": QUESTION,
                "gen_ai__completion__0__content": f"Here it is:\n```sql\n{SQL}\n```",
            },
            id="messages spread over attributes",
        ),
        pytest.param(
            {
                "gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": QUESTION,
                "gen_ai__completion__0__tool_calls__0__name": "run",
                "gen_ai__completion__0__tool_calls__0__arguments": json.dumps({"sql": SQL}),
            },
            id="tool call spread over attributes",
        ),
        pytest.param(
            {
                "events": [
                    event("gen_ai.user.message", content=QUESTION),
                    event("gen_ai.choice", index=0, message=json.dumps({"role": "assistant", "content": SQL})),
                ]
            },
            id="events a message",
        ),
        pytest.param(
            {
                "events": [
                    event("gen_ai.content.prompt", gen_ai__prompt=json.dumps([{"role": "user", "content": QUESTION}])),
                    event("gen_ai.content.completion", gen_ai__completion=json.dumps([{"role": "assistant", "content": SQL}])),
                ]
            },
            id="events of content",
        ),
        pytest.param(
            {
                "events": [
                    event(
                        "gen_ai.client.inference.operation.details",
                        gen_ai__input__messages=[said("user", QUESTION)], gen_ai__output__messages=[said("assistant", SQL)],
                    )
                ]
            },
            id="event of the operation",
        ),
        pytest.param({"openinference__span__kind": "LLM", "input__value": QUESTION, "output__value": SQL}, id="OpenInference"),
        pytest.param(
            {
                "traceloop__span__kind": "workflow", "traceloop__entity__input": json.dumps({"inputs": {"question": QUESTION}}),
                "traceloop__entity__output": json.dumps({"outputs": {"sql": SQL}}),
            },
            id="Traceloop",
        ),
    ],
)  # fmt: skip
def test_question_and_sql_are_found_in_every_form_of_the_conventions(
    folder: Path, capsys: pytest.CaptureFixture[str], attributes: dict[str, Any]
) -> None:
    document(folder / "spans.json", otlp_export(otlp_span("s", gen_ai__operation__name="chat", **attributes)))

    _, (row,) = imported(capsys, "spans.json")

    assert (row["query_id"], row["user_question"], row["generated_sql"]) == ("s", QUESTION, SQL)
    assert (row["agent_id"], row["agent_version"]) == ("shop-service", "7"), "of the resource where no agent is named"


def test_questions_without_an_agent_are_told_apart_within_a_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def chat(span: str, at: int, question: str, answer: str) -> dict[str, Any]:
        return otlp_span(
            span, "batch", at=at, gen_ai__operation__name="chat",
            gen_ai__input__messages=[said("user", question)], gen_ai__output__messages=[said("assistant", answer)],
        )  # fmt: skip

    lines(
        folder / "spans.jsonl",
        otlp_export(
            otlp_span("batch", name="nightly"),
            chat("one", 1, "A?", "SELECT 1"),
            chat("again", 2, "A?", "SELECT 11"),
            chat("two", 3, "B?", "SELECT 2"),
            chat("talk", 4, "Hello", "Hi!"),
        ),
    )

    file, rows = imported(capsys, "spans.jsonl")

    assert {(row["user_question"], row["generated_sql"]) for row in rows} == {("A?", "SELECT 1"), ("B?", "SELECT 2")}
    assert file["spans_aside"] == 2


def test_flat_spans_of_a_console_exporter_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(
        folder / "spans.jsonl",
        {
            "name": "chat m",
            "context": {"trace_id": "0xaa", "span_id": "0x1", "trace_state": "[]"},
            "parent_id": None,
            "start_time": "2026-03-02T12:00:00.000000Z",
            "attributes": {
                "gen_ai.operation.name": "chat",
                "gen_ai.agent.id": "asst_1",
                "gen_ai.input.messages": json.dumps([said("user", QUESTION)]),
                "gen_ai.output.messages": json.dumps([said("assistant", json.dumps({"sql": SQL, "why": "counts"}))]),
            },
            "events": [],
            "resource": {"attributes": {"service.name": "svc"}},
        },
    )

    _, (row,) = imported(capsys, "spans.jsonl")

    assert (row["query_id"], row["agent_id"], row["asked_at"]) == ("0x1", "asst_1", NOON)
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)


def test_answer_of_an_agent_without_sql_is_a_row_without_sql(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spans = agent_trace()[:2]
    lines(folder / "spans.jsonl", otlp_export(*spans))

    _, (row,) = imported(capsys, "spans.jsonl")

    assert (row["user_question"], row["generated_sql"]) == (QUESTION, None)


def test_spans_without_texts_say_how_texts_are_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(folder / "spans.jsonl", otlp_export(otlp_span("s", gen_ai__operation__name="chat", gen_ai__request__model="m")))

    code = cli.run(["import", "spans.jsonl"])

    assert code == 2
    assert "no question is recorded in its spans (1)" in (err := capsys.readouterr().err)
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in err


@pytest.mark.parametrize(
    "record",
    [
        {"resourceSpans": None},
        {"resourceMetrics": [{"scopeMetrics": []}]},
        {"resourceSpans": [None, 1, {"scopeSpans": [2, {"spans": [3, {}]}]}]},
        {"resourceSpans": [{"resource": 1, "scopeSpans": {"a": 1}}]},
        otlp_export({"spanId": 1, "parentSpanId": 1, "attributes": [1, {"key": 1}], "events": 3}),
    ],
    ids=range(5),
)  # fmt: skip
def test_malformed_spans_are_left_aside(folder: Path, capsys: pytest.CaptureFixture[str], record: Any) -> None:
    lines(folder / "spans.jsonl", record, otlp_export(*agent_trace()))

    _, rows = imported(capsys, "spans.jsonl")

    assert [row["user_question"] for row in rows] == [QUESTION]


def test_spans_that_are_their_own_parents_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat: dict[str, Any] = {"gen_ai__operation__name": "chat", "gen_ai__prompt": QUESTION, "gen_ai__completion": SQL}
    lines(folder / "spans.jsonl", otlp_export(otlp_span("a", "b", **chat), otlp_span("b", "a", **chat), otlp_span("c", "c")))

    _, rows = imported(capsys, "spans.jsonl")

    assert [row["generated_sql"] for row in rows] == [SQL]


# --- Langfuse -------------------------------------------------------------------------------------------------------

OBSERVATION = {
    "id": "o1",
    "traceId": "t1",
    "type": "GENERATION",
    "name": "write-sql",
    "startTime": "2026-03-02T12:00:01.000Z",
    "model": "m-1",
    "input": [{"role": "system", "content": "Schema: …"}, {"role": "user", "content": QUESTION}],
    "output": {"role": "assistant", "content": f"```sql\n{SQL}\n```"},
    "parentObservationId": None,
}
TRACE = {
    "id": "t1",
    "timestamp": "2026-03-02T12:00:00.000Z",
    "name": "sql-agent",
    "input": {"question": QUESTION},
    "output": {"answer": "42 orders are open."},
    "sessionId": "s1",
    "userId": "u1",
    "release": "r1",
    "version": "v2",
    "metadata": {"app_id": "shop", "dialect": "mysql"},
    "tags": [],
    "public": False,
}


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([TRACE | {"observations": [OBSERVATION], "scores": []}], id="trace with its observations"),
        pytest.param([{"trace": TRACE, "observations": [OBSERVATION], "scores": []}], id="downloaded trace"),
        pytest.param([TRACE | {"output": {"sql": SQL}}], id="trace alone"),
        pytest.param([TRACE | {"output": {"sql": SQL}, "metadata": json.dumps(TRACE["metadata"])}], id="metadata as text"),
    ],
)
@pytest.mark.parametrize("name", ["export.json", "export.jsonl"])
def test_langfuse_trace_is_an_answer(
    folder: Path, capsys: pytest.CaptureFixture[str], records: list[dict[str, Any]], name: str
) -> None:
    (document(folder / name, records) if name.endswith(".json") else lines(folder / name, *records))

    file, (row,) = imported(capsys, name)

    assert file["format"].startswith("Langfuse")
    assert (row["query_id"], row["agent_id"], row["agent_version"]) == ("t1", "sql-agent", "v2")
    assert (row["app_id"], row["dialect"], row["asked_at"]) == ("shop", "mysql", NOON)
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)
    assert json.loads(row["extra"])["session_id"] == "s1"


def test_langfuse_observations_of_the_bucket_export_are_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = {
        "id": "o1", "trace_id": "t1", "type": "GENERATION", "parent_observation_id": "o0", "trace_name": "sql-agent",
        "start_time": "2026-03-02 12:00:00.000000", "name": "write", "input": json.dumps(OBSERVATION["input"]),
        "output": json.dumps(OBSERVATION["output"]), "metadata": {}, "version": "v2", "session_id": "s1",
    }  # fmt: skip
    span = step | {"id": "o0", "type": "SPAN", "parent_observation_id": None, "name": "handle", "input": None, "output": None}
    lines(folder / "observations.jsonl", span, step)

    file, (row,) = imported(capsys, "observations.jsonl")

    assert (row["agent_id"], row["agent_version"], row["asked_at"]) == ("sql-agent", "v2", NOON)
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)
    assert file["spans_aside"] == 1


def test_langfuse_table_as_csv_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = TRACE | {"output": {"sql": SQL}}
    with (folder / "traces.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(record)
        writer.writerow([json.dumps(value) if isinstance(value, dict | list) else value for value in record.values()])

    file, (row,) = imported(capsys, "traces.csv")

    assert file["format"] == "Langfuse, CSV"
    assert (row["app_id"], row["user_question"], row["generated_sql"]) == ("shop", QUESTION, SQL)


# --- LangSmith ------------------------------------------------------------------------------------------------------

RUN = {
    "id": "r1",
    "trace_id": "r1",
    "name": "sql_chain",
    "run_type": "chain",
    "start_time": "2026-03-02T12:00:00.000000",
    "parent_run_id": None,
    "inputs": {"question": QUESTION},
    "outputs": {"output": "42 orders are open."},
    "extra": {"metadata": {"revision_id": "abc", "agent_id": "clerk"}},
}
MODEL_RUN = {
    "id": "r2",
    "trace_id": "r1",
    "name": "ChatModel",
    "run_type": "llm",
    "start_time": "2026-03-02T12:00:01.000000",
    "parent_run_id": "r1",
    "inputs": {
        "messages": [
            [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "schema", "SystemMessage"],
                    "kwargs": {"content": "Schema"},
                },
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "schema", "HumanMessage"],
                    "kwargs": {"content": QUESTION},
                },
            ]
        ]
    },
    "outputs": {"generations": [[{"text": SQL, "message": {"kwargs": {"content": SQL}}}]]},
}


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([RUN, MODEL_RUN], id="runs"),
        pytest.param([MODEL_RUN, RUN], id="runs in another order"),
        pytest.param([RUN | {"child_runs": [MODEL_RUN]}], id="nested runs"),
    ],
)
def test_langsmith_trace_is_an_answer(folder: Path, capsys: pytest.CaptureFixture[str], records: list[dict[str, Any]]) -> None:
    lines(folder / "runs.jsonl", *records)

    file, (row,) = imported(capsys, "runs.jsonl")

    assert file["format"] == "LangSmith, JSON lines"
    assert (row["query_id"], row["agent_id"], row["agent_version"], row["asked_at"]) == ("r1", "clerk", "abc", NOON)
    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)


def test_langsmith_model_run_alone_is_an_answer_to_the_human(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(folder / "runs.jsonl", MODEL_RUN)

    _, (row,) = imported(capsys, "runs.jsonl", "--set", "agent_id=clerk")

    assert (row["user_question"], row["generated_sql"]) == (QUESTION, SQL)


@pytest.mark.parametrize(
    "columns",
    [
        {"inputs": json.dumps({"input": QUESTION}), "outputs": json.dumps({"output": f"```sql\n{SQL}\n```"})},
        {"inputs.question": QUESTION, "outputs.sql": SQL},
    ],
    ids=["JSON in cells", "columns with dots"],
)
def test_langsmith_csv_is_read(folder: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, str]) -> None:
    record = {"id": "r1", "name": "sql_chain", "run_type": "chain", "start_time": "2026-03-02T12:00:00", **columns, "error": ""}
    with (folder / "runs.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([list(record), list(record.values())])

    _, (row,) = imported(capsys, "runs.csv")

    assert (row["agent_id"], row["user_question"], row["generated_sql"]) == ("sql_chain", QUESTION, SQL)
