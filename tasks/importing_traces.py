"""Traces as answered questions: OpenTelemetry GenAI spans, Langfuse exports and LangSmith exports. Knows no Prefect.

A trace holds many spans and, as a rule, one answer. The span of the agent is that answer: its question, and the SQL of its
output, else the last SQL that a tool, a database or the model underneath was given or gave. Where no agent has a span, each
question that a model was asked for SQL is one.

Source: OpenTelemetry semantic conventions for generative AI (attributes ``gen_ai.*``; ``gen_ai.input.messages`` since 1.37,
before it ``gen_ai.prompt``, ``gen_ai.completion`` and events), OTLP/JSON; Langfuse's and LangSmith's export formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stef_core.dialects import sqlglot_dialect
from tasks.importing_files import Row
from tasks.importing_paths import look_up
from tasks.importing_values import find_sql, parse_json, question_of, text_of

FORMATS = ("otel", "langfuse", "langsmith")
SPANS = "spans"  # key under which a row keeps the spans it was made of; paths may lead into them
# what a row of a trace offers, by column of the log
COLUMNS = {
    "query_id": "id",
    "agent_id": "agent_id",
    "agent_version": "agent_version",
    "app_id": "app_id",
    "asked_at": "started_at",
    "user_question": "question",
    "generated_sql": "sql",
    "dialect": "dialect",
}
_AGENT, _MODEL, _TOOL, _OTHER = "agent", "model", "tool", "other"
_LANGFUSE_TYPES = frozenset(
    "SPAN EVENT GENERATION AGENT TOOL CHAIN RETRIEVER EVALUATOR EMBEDDING GUARDRAIL".split()
)  # fmt: skip
_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(?:(tool_calls)\.(\d+)\.)?(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One step of a trace, whoever recorded it."""

    trace: str
    span: str
    parent: str | None
    name: str | None
    kind: str  # agent, model, tool, other
    start: Any  # as it came
    question: str | None
    sql: str | None
    agent_id: str | None = None
    agent_version: str | None = None
    app_id: str | None = None
    dialect: str | None = None
    session: str | None = None
    model: str | None = None
    raw: Mapping[str, Any]


def trace_format(record: Mapping[str, Any]) -> str | None:
    """Which of `FORMATS` a record of a file is of; None for a plain row."""
    keys = record.keys()
    if keys & {"resourceSpans", "resource_spans"}:
        return "otel"
    attributes = record.get("attributes")
    identified = keys & {"traceId", "trace_id", "context", "spanId", "span_id"}
    timed = keys & {"startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "timestamp"}
    if identified and timed and (isinstance(attributes, dict | list) or isinstance(parse_json(str(attributes)), dict)):
        return "otel"
    flat = {key.partition(".")[0] for key in keys}
    if "run_type" in keys and flat & {"inputs", "outputs"}:
        return "langsmith"
    if "observations" in keys and (keys & {"trace", "input", "timestamp"}):
        return "langfuse"
    if keys & {"traceId", "trace_id"} and str(record.get("type")).upper() in _LANGFUSE_TYPES:
        return "langfuse"
    if {"id", "input", "output"} <= keys and keys & {"timestamp", "startTime", "start_time"}:
        hints = {"userId", "user_id", "sessionId", "session_id", "release", "bookmarked", "public", "htmlPath", "environment"}
        return "langfuse" if len(hints & keys) > 1 else None
    return None


def spans_of(record: Mapping[str, Any], kind: str, place: str) -> list[Span]:
    """The spans that a record of a file holds.

    Args:
        record: One JSON object, or one row of a table.
        kind: One of `FORMATS`.
        place: Where it stands; the identity of a span that has none.
    """
    readers = {"otel": _otel, "langfuse": _langfuse, "langsmith": _langsmith}
    return list(readers[kind](record, place))


def answers(spans: Iterable[Span], *, named: bool = False) -> tuple[list[Row], int]:
    """The answered questions of traces, and how many spans belong to none.

    Args:
        spans: Of any number of traces, in any order.
        named: Whether a person says where question or SQL stand: then each agent, and each trace without one, is an answer.

    Returns:
        A row for each, with the keys of `COLUMNS`, ``trace_id``, ``span_name``, ``model``, ``session_id``, and `SPANS`.
    """
    traces: dict[str, dict[str, Span]] = {}
    for span in spans:
        traces.setdefault(span.trace, {}).setdefault(span.span, span)
    rows: list[Row] = []
    aside = 0
    for trace in traces.values():
        groups = list(_groups(trace, named=named))
        rows += [_row(group) for group in groups]
        aside += len(trace) - len({span.span for group in groups for span in group})
    return rows, aside


def _groups(trace: Mapping[str, Span], *, named: bool) -> Iterator[list[Span]]:
    """Spans that make one answer, the one that stands for it first."""
    under: dict[str, list[Span]] = {}
    loose: list[Span] = []
    for span in trace.values():
        agent = _outermost_agent(span, trace)
        if agent is None:
            loose.append(span)
        else:
            under.setdefault(agent, []).append(span)
    for agent, group in under.items():
        first = trace[agent]
        group = [first, *(span for span in group if span is not first)]
        if named or any(span.question for span in group):
            yield group
    if named:
        if not under:
            yield sorted(loose, key=lambda span: (span.parent is not None, _order(span.start)))
        return
    by_question: dict[str, list[Span]] = {}
    for span in loose:
        if span.question and span.kind in (_MODEL, _OTHER):
            by_question.setdefault(span.question, []).append(span)
    with_sql = [group for group in by_question.values() if any(span.sql for span in group)]
    beside = [span for span in loose if span.sql and not span.question]
    if with_sql:
        yield from with_sql
    elif by_question and not under:
        yield [next(iter(by_question.values()))[0], *beside]


def _outermost_agent(span: Span, trace: Mapping[str, Span]) -> str | None:
    found: str | None = None
    seen: set[str] = set()
    at: Span | None = span
    while at is not None and at.span not in seen:
        seen.add(at.span)
        if at.kind == _AGENT:
            found = at.span
        at = trace.get(at.parent) if at.parent else None
    return found


def _row(group: list[Span]) -> Row:
    first = group[0]
    ordered = sorted(group, key=lambda span: _order(span.start))
    question = first.question or next((span.question for span in ordered if span.question), None)
    executed = next((span.sql for span in reversed(ordered) if span.sql and span is not first), None)

    def told(name: str) -> Any:
        return next((value for span in (first, *ordered) if (value := getattr(span, name)) is not None), None)

    record = {
        "id": first.span if first.span != first.trace else first.trace,
        "agent_id": told("agent_id"),
        "agent_version": told("agent_version"),
        "app_id": told("app_id"),
        "started_at": first.start if first.start is not None else told("start"),
        "question": question,
        "sql": first.sql or executed,
        "dialect": told("dialect"),
        "trace_id": first.trace,
        "span_name": first.name,
        "model": told("model"),
        "session_id": told("session"),
        SPANS: [first.raw, *(span.raw for span in reversed(ordered) if span is not first)],
    }
    return Row(where=f"trace {first.trace}, span {first.span}", record=record)


def _order(start: Any) -> tuple[int, float, str]:
    """Numbers by size, texts by their letters: spans of one file write their times alike."""
    if isinstance(start, int | float):
        return (0, float(start), "")
    text = "" if start is None else str(start)
    return (0, float(text), "") if text.isdecimal() else (1, 0.0, text)


def _first(record: Mapping[str, Any], *names: str) -> Any:
    """The first of several fields that holds something."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _opened(value: Any) -> Any:
    """A value, or what it holds as JSON text."""
    parsed = parse_json(value) if isinstance(value, str) else None
    return value if parsed is None else parsed


def _object(value: Any) -> Mapping[str, Any]:
    opened = _opened(value)
    return opened if isinstance(opened, Mapping) else {}


def _sql(*values: Any) -> str | None:
    return next((found[0] for value in values if value is not None and (found := find_sql(value))), None)


def _text(value: Any) -> str | None:
    text = text_of(value)
    return text if text and text.strip() else None


def _dialect(name: Any) -> str | None:
    text = text_of(name)
    return text if text and sqlglot_dialect(text) else None


# --- OpenTelemetry --------------------------------------------------------------------------------------------------


def _otel(record: Mapping[str, Any], place: str) -> Iterator[Span]:
    resources = record.get("resourceSpans", record.get("resource_spans"))
    if not isinstance(resources, list):
        yield _otel_span(record, _attributes(_object(record.get("resource")).get("attributes")), place)
        return
    number = 0
    for resource in (each for each in resources if isinstance(each, Mapping)):
        about = _attributes(_object(resource.get("resource")).get("attributes"))
        scopes = resource.get("scopeSpans", resource.get("scope_spans", resource.get("instrumentationLibrarySpans")))
        for scope in (each for each in scopes or [] if isinstance(each, Mapping)):
            for span in (each for each in scope.get("spans") or [] if isinstance(each, Mapping)):
                number += 1
                yield _otel_span(span, about, f"{place}.{number}")


def _otel_span(span: Mapping[str, Any], resource: Mapping[str, Any], place: str) -> Span:
    attributes = _attributes(span.get("attributes"))
    events = [
        {"name": event.get("name"), "attributes": _attributes(event.get("attributes")), "body": _value(event.get("body"))}
        for event in _list(span.get("events"))
        if isinstance(event, Mapping)
    ]
    context = _object(span.get("context"))
    own = _text(_first(span, "spanId", "span_id") or context.get("span_id") or context.get("spanId")) or place
    trace = _text(_first(span, "traceId", "trace_id") or context.get("trace_id") or context.get("traceId")) or own
    asked, answered = _otel_messages(attributes, events)
    parent = _text(_first(span, "parentSpanId", "parent_span_id", "parent_id", "parentId"))
    kind = _otel_kind(attributes)
    if kind == _OTHER and parent is None and asked and answered:
        kind = _AGENT  # the outermost step, which has no kind of its own
    tool = _first(attributes, "gen_ai.tool.call.arguments", "db.query.text", "db.statement", "tool.parameters")
    return Span(
        trace=trace,
        span=own,
        parent=parent,
        name=_text(span.get("name")),
        kind=kind,
        start=_first(span, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "timestamp"),
        question=question_of(asked) if kind != _TOOL else None,
        sql=_sql(*answered, tool) if kind != _TOOL else _sql(tool, *answered, asked),
        agent_id=_text(_first(attributes, "gen_ai.agent.name", "gen_ai.agent.id") or resource.get("service.name")),
        agent_version=_text(_first(attributes, "gen_ai.agent.version") or resource.get("service.version")),
        dialect=_dialect(_first(attributes, "db.system.name", "db.system")),
        session=_text(_first(attributes, "gen_ai.conversation.id", "session.id")),
        model=_text(_first(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")),
        raw={
            **{k: v for k, v in span.items() if k != "events"},
            "attributes": attributes,
            "events": events,
            "resource": resource,
        },
    )


def _otel_kind(attributes: Mapping[str, Any]) -> str:
    operation = str(attributes.get("gen_ai.operation.name", "")).casefold()
    if not operation:
        named = _first(attributes, "openinference.span.kind", "traceloop.span.kind", "langfuse.observation.type")
        operation = str(named or "").casefold()
    if operation in ("invoke_agent", "invoke_workflow", "agent", "workflow"):
        return _AGENT
    if operation in ("execute_tool", "tool") or attributes.keys() & {"db.query.text", "db.statement"}:
        return _TOOL
    if operation in ("chat", "text_completion", "generate_content", "llm", "generation"):
        return _MODEL
    return _MODEL if any(name.startswith(("gen_ai.prompt", "gen_ai.input", "llm.input")) for name in attributes) else _OTHER


def _otel_messages(attributes: Mapping[str, Any], events: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """What was asked, and what was answered in the order in which SQL is looked for."""
    asked: Any = _first(attributes, "gen_ai.input.messages")
    answered: list[Any] = [_first(attributes, "gen_ai.output.messages")]
    indexed = _indexed(attributes)
    said: list[Any] = []
    for event in events:
        name, held = str(event["name"]), event["attributes"]
        body = event["body"] if isinstance(event["body"], Mapping) else held
        if name == "gen_ai.client.inference.operation.details":
            asked = asked or _first(held, "gen_ai.input.messages")
            answered.append(_first(held, "gen_ai.output.messages"))
        elif name == "gen_ai.content.prompt":
            asked = asked or held.get("gen_ai.prompt")
        elif name == "gen_ai.content.completion":
            answered.append(held.get("gen_ai.completion"))
        elif name == "gen_ai.user.message":
            said.append({"role": "user", "content": body.get("content")})
        elif name == "gen_ai.choice":
            answered.append(_opened(body.get("message", body.get("content"))))
            answered.append(body.get("tool_calls"))
    asked = asked or indexed.get("prompt") or said or None
    answered.append(indexed.get("completion"))
    asked = asked or _first(
        attributes,
        "gen_ai.prompt",
        "langfuse.observation.input",
        "input.value",
        "traceloop.entity.input",
        "langfuse.trace.input",
    )
    answered += [
        attributes.get(name)
        for name in (
            "gen_ai.completion", "langfuse.observation.output", "output.value", "traceloop.entity.output",
            "langfuse.trace.output",
        )
    ]  # fmt: skip
    return _opened(asked), [_opened(each) for each in answered if each]


def _indexed(attributes: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Messages that are spread over attributes: ``gen_ai.prompt.0.role``, ``gen_ai.completion.0.tool_calls.0.arguments``."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in attributes.items():
        if match := _INDEXED.fullmatch(name):
            side, number, calls, call, what = match.groups()
            message = found.setdefault(side, {}).setdefault(int(number), {})
            if calls:
                message.setdefault("tool_calls", {}).setdefault(int(call), {})[what] = value
            else:
                message[what] = value
    for messages in found.values():
        for message in messages.values():
            if "tool_calls" in message:
                message["tool_calls"] = [message["tool_calls"][at] for at in sorted(message["tool_calls"])]
    return {side: [messages[at] for at in sorted(messages)] for side, messages in found.items()}


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes as names and plain values: of OTLP's list of keys, or of an object."""
    opened = _opened(value)
    if isinstance(opened, Mapping):
        return {str(name): _value(inner) for name, inner in opened.items()}
    pairs = [each for each in _list(opened) if isinstance(each, Mapping) and "key" in each]
    return {str(each["key"]): _value(each.get("value")) for each in pairs}


_OTLP_TYPES = ("stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue")


def _value(value: Any) -> Any:
    """The plain value of OTLP's ``{"stringValue": …}``; others as they are."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind not in _OTLP_TYPES:
        return value
    if kind == "arrayValue":
        return [_value(each) for each in _list(_object(inner).get("values"))]
    if kind == "kvlistValue":
        return _attributes(_object(inner).get("values"))
    if kind == "intValue" and isinstance(inner, str) and re.fullmatch(r"-?\d{1,19}", inner):
        return int(inner)
    return inner


def _list(value: Any) -> list[Any]:
    opened = _opened(value)
    return opened if isinstance(opened, list) else []


# --- Langfuse -------------------------------------------------------------------------------------------------------


def _langfuse(record: Mapping[str, Any], place: str) -> Iterator[Span]:
    trace = record["trace"] if isinstance(record.get("trace"), Mapping) else record
    observations = [each for each in _list(record.get("observations")) if isinstance(each, Mapping)]
    is_observation = _first(record, "traceId", "trace_id") is not None and not observations
    if is_observation:
        yield _langfuse_step(record, place, None)
        return
    identity = _text(trace.get("id")) or place
    # an export of one table may flatten what it nests
    yield _langfuse_step({**trace, "traceId": identity, "type": "AGENT"}, identity, None)
    for number, observation in enumerate(observations, start=1):
        yield _langfuse_step({**observation, "traceId": identity}, f"{identity}.{number}", identity)


def _langfuse_step(step: Mapping[str, Any], place: str, root: str | None) -> Span:
    identity = _text(step.get("id")) or place
    parent = _text(_first(step, "parentObservationId", "parent_observation_id")) or root
    metadata = _object(step.get("metadata"))
    asked, answered = _opened(step.get("input")), _opened(step.get("output"))
    kind = _by_type(str(step.get("type", "")), is_root=parent is None, answered=asked is not None and answered is not None)
    return Span(
        trace=_text(_first(step, "traceId", "trace_id")) or identity,
        span=identity,
        parent=parent,
        name=_text(step.get("name")),
        kind=kind,
        start=_first(step, "timestamp", "startTime", "start_time", "createdAt", "created_at"),
        question=question_of(asked) if kind != _TOOL else None,
        sql=_sql(answered) if kind != _TOOL else _sql(asked, answered),
        agent_id=_text(
            _first(metadata, "agent_id", "agent_name", "agent")
            or _first(step, "traceName", "trace_name")
            or (step.get("name") if kind == _AGENT or parent is None else None)
        ),
        agent_version=_text(_first(metadata, "agent_version") or _first(step, "version", "release")),
        app_id=_text(_first(metadata, "app_id")),
        dialect=_dialect(_first(metadata, "dialect", "sql_dialect")),
        session=_text(_first(step, "sessionId", "session_id")),
        model=_text(_first(step, "model", "providedModelName", "provided_model_name")),
        raw=step,
    )


# --- LangSmith ------------------------------------------------------------------------------------------------------


def _langsmith(record: Mapping[str, Any], place: str) -> Iterator[Span]:
    parent = _text(_first(record, "parent_run_id", "parentRunId"))
    identity = _text(_first(record, "id", "run_id")) or place
    extra = _object(record.get("extra"))
    metadata = {**_object(extra.get("metadata")), **_object(record.get("metadata")), **_gathered(record, "metadata")}
    asked = _opened(record.get("inputs")) or _gathered(record, "inputs") or None
    answered = _opened(record.get("outputs")) or _gathered(record, "outputs") or None
    kind = _by_type(str(record.get("run_type", "")), is_root=parent is None, answered=asked is not None)
    yield Span(
        trace=_text(_first(record, "trace_id", "traceId")) or identity,
        span=identity,
        parent=parent,
        name=_text(record.get("name")),
        kind=kind,
        start=_first(record, "start_time", "startTime"),
        question=question_of(asked) if kind != _TOOL else None,
        sql=_sql(answered) if kind != _TOOL else _sql(asked, answered),
        agent_id=_text(
            _first(metadata, "agent_id", "agent_name", "agent")
            or (record.get("name") if kind == _AGENT or parent is None else None)
        ),
        agent_version=_text(_first(metadata, "agent_version", "version", "revision_id")),
        app_id=_text(_first(metadata, "app_id")),
        dialect=_dialect(_first(metadata, "dialect", "sql_dialect")),
        session=_text(_first(metadata, "session_id", "conversation_id", "thread_id")),
        model=_text(_first(metadata, "ls_model_name") or look_up(extra, "invocation_params.model")),
        raw=record,
    )
    for number, child in enumerate(_list(record.get("child_runs")), start=1):
        if isinstance(child, Mapping):
            trace = _text(_first(record, "trace_id", "traceId")) or identity
            yield from _langsmith({"trace_id": trace, "parent_run_id": identity, **child}, f"{place}.{number}")


def _gathered(record: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Columns such as ``inputs.question``, as a table has them."""
    return {
        name[len(prefix) + 1 :]: value for name, value in record.items() if name.startswith(f"{prefix}.") and value is not None
    }


def _by_type(name: str, *, is_root: bool, answered: bool) -> str:
    kind = name.casefold()
    if kind == "agent":
        return _AGENT
    if kind in ("tool", "retriever"):
        return _TOOL
    if kind in ("generation", "llm"):
        return _MODEL
    if is_root and answered and kind not in ("embedding", "evaluator", "guardrail", "event"):
        return _AGENT  # whatever was called from outside
    return _OTHER
