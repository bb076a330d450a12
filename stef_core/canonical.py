"""Records as canonical JSON, and back: one spelling in files, prompts, the warehouse and the conformance cases.

Evidence fields (tables, raw literals, spans) stay out of the canonical form; empty optional keys are left out of conditions and
aggregates, while specifications always carry their main lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stef_core.errors import InputError
from stef_core.records import (
    Aggregation,
    Alignment,
    AllOf,
    AnyOf,
    Basis,
    Column,
    ColumnValue,
    Condition,
    DatePart,
    DateTrunc,
    Evaluation,
    Filter,
    Finding,
    Now,
    OrderKey,
    Parameter,
    QuestionSpec,
    ScalarQuery,
    Score,
    SqlSpec,
    SubQuery,
    Value,
    Verdict,
    Window,
)

# --- out ------------------------------------------------------------------------------------------------------------


def column_json(column: Column) -> Any:
    """A column: its name, ``{"part", "column"}`` or ``{"trunc", "column"}``."""
    if isinstance(column, DatePart):
        return {"part": column.part, "column": column.column}
    if isinstance(column, DateTrunc):
        return {"trunc": column.unit, "column": column.column}
    return column


def value_json(value: Value) -> Any:
    """A value of a condition; lists of ``in`` are sorted, as OR has no order."""
    if isinstance(value, Now):
        now: dict[str, Any] = {"now_minus": [value.amount, value.unit]}
        return now | {"trunc": value.trunc} if value.trunc else now
    if isinstance(value, ColumnValue):
        return {"column": column_json(value.column)}
    if isinstance(value, ScalarQuery):
        scalar = {"func": value.func, "column": column_json(value.column), "filters": conditions_json(value.filters)}
        return {"scalar": scalar | ({"correlated": list(value.correlated)} if value.correlated else {})}
    if isinstance(value, SubQuery):
        return {
            "subquery": {"projections": [column_json(c) for c in value.projections], "filters": conditions_json(value.filters)}
        }
    if isinstance(value, Parameter):
        return {"parameter": value.name}
    if isinstance(value, tuple):
        return [value_json(v) for v in value]
    return value


def condition_json(condition: Condition) -> dict[str, Any]:
    """One condition of a top-level list."""
    if isinstance(condition, AnyOf):
        return {"any": conditions_json(condition.conditions)}
    if isinstance(condition, AllOf):
        return {"all": conditions_json(condition.conditions)}
    out: dict[str, Any] = {}
    if condition.agg:
        out["agg"] = condition.agg
        if condition.distinct:
            out["distinct"] = True
    if condition.window:
        out["window"] = condition.window
    if condition.op in ("exists", "not_exists"):
        filters = condition.value.filters if isinstance(condition.value, SubQuery) else ()
        return {"op": condition.op, "value": {"filters": conditions_json(filters)}}
    if condition.column is not None or not condition.window:
        out["column"] = None if condition.column is None else column_json(condition.column)
    out["op"] = condition.op
    if condition.op not in ("is_null", "is_not_null"):
        value = value_json(condition.value)
        out["value"] = sorted(value, key=repr) if condition.op in ("in", "not_in") and isinstance(value, list) else value
    return out


def conditions_json(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """A list of conditions joined by AND."""
    return [condition_json(c) for c in conditions]


def aggregation_json(aggregation: Aggregation) -> dict[str, Any]:
    """``{"func", "column", "distinct"}``, with ``"filter"`` for a conditional one."""
    out: dict[str, Any] = {
        "func": aggregation.func,
        "column": column_json(aggregation.column),
        "distinct": aggregation.distinct,
    }
    if aggregation.filter:
        out["filter"] = conditions_json(aggregation.filter)
    return out


def order_json(key: OrderKey) -> dict[str, Any]:
    """``{"column"|"agg"+"column"|"window", "dir"}``."""
    out: dict[str, Any] = {}
    if key.agg:
        out["agg"] = key.agg
    if key.window:
        out["window"] = key.window
    if key.column is not None:
        out["column"] = column_json(key.column)
    return out | {"dir": key.dir}


def window_json(window: Window) -> dict[str, Any]:
    """``{"func", "column"?, "partition_by", "order_by", "frame"?}``."""
    out: dict[str, Any] = {"func": window.func}
    if window.column is not None:
        out["column"] = column_json(window.column)
    out["partition_by"] = [column_json(c) for c in window.partition_by]
    out["order_by"] = [order_json(k) for k in window.order_by]
    return out | ({"frame": window.frame} if window.frame else {})


def sql_spec_json(spec: SqlSpec) -> dict[str, Any]:
    """The SQL side, with its parse status."""
    return {
        "parse_status": spec.parse_status,
        "dialect": spec.dialect,
        "projections": [column_json(c) for c in spec.projections],
        "aggregations": [aggregation_json(a) for a in spec.aggregations],
        "filters": conditions_json(spec.filters),
        "join_filters": conditions_json(spec.join_filters),
        "group_by": [column_json(c) for c in spec.group_by],
        "grouping_sets": [[column_json(c) for c in group] for group in spec.grouping_sets],
        "order_by": [order_json(k) for k in spec.order_by],
        "limit": spec.limit,
        "offset": spec.offset,
        "distinct": spec.distinct,
        "set_op": spec.set_op,
        "windows": [window_json(w) for w in spec.windows],
        "expressions": list(spec.expressions),
        "tables": list(spec.tables),
        "joins": [[e.left_table, e.left_column, e.right_table, e.right_column, e.kind] for e in spec.joins],
        **({"distinct_on": True} if spec.distinct_on else {}),
        **(
            {"inner_limits": [[n, [order_json(k) for k in keys]] for n, keys in spec.inner_limits]} if spec.inner_limits else {}
        ),
        **({"inner_groups": [[column_json(c) for c in group] for group in spec.inner_groups]} if spec.inner_groups else {}),
        "notes": list(spec.notes),
        **({"error": spec.error} if spec.error else {}),
        **({"branches": [sql_spec_json(b) for b in spec.branches]} if spec.branches else {}),
    }


def question_spec_json(spec: QuestionSpec) -> dict[str, Any]:
    """The question side, with what could not be read."""
    return {
        "projections": [column_json(c) for c in spec.projections],
        "aggregations": [aggregation_json(a) for a in spec.aggregations],
        "filters": conditions_json(spec.filters),
        "group_by": [column_json(c) for c in spec.group_by],
        "order_by": [order_json(k) for k in spec.order_by],
        "limit": spec.limit,
        "distinct": spec.distinct,
        "asks_order": spec.asks_order,
        "asks_limit": spec.asks_limit,
        "set_op": spec.set_op,
        "target": spec.target,
        "language": spec.language,
        "reader": spec.reader,
        "unread": list(spec.unread),
        "notes": list(spec.notes),
    }


def alignment_json(alignment: Alignment) -> dict[str, Any]:
    """The alignment without its findings, which stand beside it."""
    return {
        "filter_status": alignment.filter_status,
        "required": conditions_json(alignment.required),
        "matched": conditions_json(alignment.matched),
        "missing": conditions_json(alignment.missing),
        "extra": conditions_json(alignment.extra),
        "benign": conditions_json(alignment.benign),
        "group_by_required": alignment.group_by_required,
        "benign_group_by": [column_json(c) for c in alignment.benign_group_by],
        "order_by_tolerated": alignment.order_by_tolerated,
        "limit_is_safety": alignment.limit_is_safety,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """``{code, dimension, severity, stage, question_part, sql_part, message}``."""
    return {
        "code": finding.code,
        "dimension": finding.dimension,
        "severity": finding.severity,
        "stage": finding.stage,
        "question_part": finding.question_part,
        "sql_part": finding.sql_part,
        "message": finding.message,
    }


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """``{grade, confidence, judge, reasons}`` and what the answer cost."""
    return {
        "grade": verdict.grade,
        "confidence": verdict.confidence,
        "judge": verdict.judge,
        "model": verdict.model,
        "prompt_version": verdict.prompt_version,
        "reasons": list(verdict.reasons),
        **({"basis": basis_json(verdict.basis)} if verdict.basis else {}),
    }


def basis_json(basis: Basis) -> dict[str, Any]:
    """What the confidence of a model's verdict was made of."""
    return {
        "stated": basis.stated,
        "step": basis.step,
        "repaired": basis.repaired,
        "votes": dict(basis.votes),
        "agreement": basis.agreement,
        "probability": basis.probability,
    }


def score_json(score: Score) -> dict[str, Any]:
    """Every term of Φ."""
    return {
        "filters": score.filters,
        "verdict": score.verdict,
        "lenient": score.lenient,
        "base": score.base,
        "gamma_factor": score.gamma_factor,
        "phi": score.phi,
        "band": score.band,
        "p_right": score.p_right,
    }


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """The object that ``stef explain --file`` writes, one a row (interface.md)."""
    reading, verdict = evaluation.reading, evaluation.verdict
    return {
        "query_id": evaluation.query_id,
        "status": evaluation.status,
        "reason": evaluation.reason,
        "question_spec": question_spec_json(reading.question) if reading else None,
        "enriched_spec": question_spec_json(reading.enriched) if reading and reading.enriched else None,
        "sql_spec": sql_spec_json(reading.sql) if reading else None,
        "alignment": alignment_json(evaluation.alignment) if evaluation.alignment else None,
        "enrichment": {"status": evaluation.enrichment.status} if evaluation.enrichment else None,
        "verdict": verdict_json(verdict) if verdict else None,
        "score": score_json(evaluation.score) if evaluation.score else None,
        "findings": [finding_json(f) for f in evaluation.findings],
        "rules_version": evaluation.rules_version,
        "rules_hash": evaluation.rules_hash,
    }


# --- in (answers of a model are written in the same form) ---------------------------------------------------------------


def column_from_json(data: Any) -> Column:
    """Inverse of `column_json`.

    Raises:
        InputError: The value is no column.
    """
    if isinstance(data, str) and data.strip():
        return " ".join(data.lower().split())
    if isinstance(data, Mapping) and isinstance(data.get("column"), str):
        if isinstance(data.get("part"), str):
            return DatePart(part=data["part"].lower(), column=data["column"].lower())
        if isinstance(data.get("trunc"), str):
            return DateTrunc(unit=data["trunc"].lower(), column=data["column"].lower())
    raise InputError(f"not a column: {data!r}")


def value_from_json(data: Any) -> Value:
    """Inverse of `value_json`.

    Raises:
        InputError: The value is of no known form.
    """
    if isinstance(data, list):
        return tuple(value_from_json(v) for v in data)
    if isinstance(data, Mapping):
        if "now_minus" in data:
            amount, unit = data["now_minus"]
            return Now(amount=int(amount), unit=str(unit), trunc=data.get("trunc"))
        if "scalar" in data:
            inner = data["scalar"]
            return ScalarQuery(
                func=str(inner["func"]),
                column=column_from_json(inner["column"]),
                filters=conditions_from_json(inner.get("filters", ())),
                correlated=tuple(inner.get("correlated", ())),
            )
        if "subquery" in data:
            inner = data["subquery"]
            projections = tuple(column_from_json(c) for c in inner.get("projections", ()))
            return SubQuery(projections=projections, filters=conditions_from_json(inner.get("filters", ())))
        if "parameter" in data:
            return Parameter(name=str(data["parameter"]))
        if "column" in data:
            return ColumnValue(column=column_from_json(data["column"]))
        raise InputError(f"not a value: {dict(data)!r}")
    if isinstance(data, str):
        return " ".join(data.casefold().split())
    if data is None or isinstance(data, int | float | bool):
        return data
    raise InputError(f"not a value: {data!r}")


def condition_from_json(data: Mapping[str, Any]) -> Condition:
    """Inverse of `condition_json`.

    Raises:
        InputError: A key is missing or of the wrong type.
    """
    if "any" in data:
        return AnyOf(conditions=conditions_from_json(data["any"]))
    if "all" in data:
        return AllOf(conditions=conditions_from_json(data["all"]))
    op = data.get("op")
    if not isinstance(op, str):
        raise InputError(f"condition without op: {dict(data)!r}")
    if op in ("exists", "not_exists"):
        inner = data.get("value") or {}
        return Filter(op=op, value=SubQuery(filters=conditions_from_json(inner.get("filters", ()))))
    column = data.get("column")
    return Filter(
        column=None if column is None else column_from_json(column),
        op=op,
        value=value_from_json(data.get("value")),
        agg=data.get("agg"),
        window=data.get("window"),
        distinct=bool(data.get("distinct", False)),
    )


def conditions_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Inverse of `conditions_json`."""
    return tuple(condition_from_json(c) for c in data)
