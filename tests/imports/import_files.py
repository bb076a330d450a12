"""Files as strangers have them, written for tests of `stef import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

QUESTION = "How many orders are open?"
SQL = "SELECT COUNT(*) FROM orders WHERE status = 'open'"


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def otlp(**attributes: Any) -> list[dict[str, Any]]:
    """Attributes as OTLP/JSON has them; a name's ``__`` stands for a dot."""
    return [{"key": name.replace("__", "."), "value": otlp_value(value)} for name, value in attributes.items()]


def otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp_value(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": name, "value": otlp_value(inner)} for name, inner in value.items()]}}
    return {"stringValue": value}


def otlp_span(
    span: str, parent: str = "", *, trace: str = "aa", at: int = 0, name: str = "step", **more: Any
) -> dict[str, Any]:
    """A span of a trace that begins at 2026-03-02 12:00 UTC; `at` is in seconds, attributes are the rest."""
    events = more.pop("events", [])
    return {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str((1_772_452_800 + at) * 10**9),
        "attributes": otlp(**more),
        "events": events,
    }


def otlp_export(*spans: dict[str, Any], service: str = "shop-service") -> dict[str, Any]:
    """One line of the file exporter."""
    resource = {"attributes": otlp(service__name=service, service__version="7")}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


def said(role: str, text: str) -> dict[str, Any]:
    """A message as ``gen_ai.input.messages`` has it."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def called(tool: str, arguments: Any) -> dict[str, Any]:
    """A model's message that calls a tool."""
    return {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": tool, "arguments": arguments}]}
