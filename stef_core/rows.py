"""Evaluations as the rows of a day's tables: what each step adds, and the join that makes them whole.

A day is scored in two steps (`examine_many`, then a verdict); each leaves a frame of one row a `query_id`. `score_frame` joins
log, examinations and verdicts, and composes Φ: over a day it equals `evaluate` over its rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from stef_core.bearing import bearing_of, input_hash
from stef_core.canonical import alignment_json, basis_json, finding_json, question_spec_json, sql_spec_json
from stef_core.evaluate import Examined
from stef_core.extract.question_offline import lemmas_of
from stef_core.frames import QUERY_FINDINGS, QUERY_SCORES, compact_json, frame_of
from stef_core.lexicon import identifier_words
from stef_core.records import Evaluation, QueryRecord, Reading, SqlSpec, Verdict
from stef_core.redact import READ, Redaction, redact_record, redaction
from stef_core.rules import Rules
from stef_core.scoring import compose_frame
from stef_core.version import CORE_VERSION

# reasons of a row that an endpoint did not answer for, as opposed to one that it answered badly
UNANSWERED = frozenset({"judge_unavailable", "question_reader_unavailable"})
HIDDEN = "***"  # stands in a bearing for columns whose names may not be stored
UNREAD = SqlSpec(parse_status="unparseable")  # of a row that nothing is known of

# what reading and aligning say of a row; grain: query_id
EXAMINED = pl.Schema(
    {
        "query_id": pl.String(),
        # as they may be stored: what the rules redact is masked
        "user_question": pl.String(),
        "enriched_question": pl.String(),
        "generated_sql": pl.String(),
        "extra": pl.String(),
        "parse_status": pl.String(),
        "sql_dialect": pl.String(),
        "question_spec": pl.String(),
        "enriched_spec": pl.String(),
        "sql_spec": pl.String(),
        "alignment": pl.String(),
        "filter_status": pl.String(),  # null: nothing was aligned
        "delta_lenient": pl.Int64(),
        "enrichment_status": pl.String(),
        "rules_app": pl.String(),
        "rules_version": pl.String(),
        "rules_hash": pl.String(),
        "catalogue": pl.String(),
        "input_hash": pl.String(),
        "bearing": pl.String(),  # null: nothing was read
        "read_tokens_in": pl.Int64(),
        "read_tokens_out": pl.Int64(),
        "read_calls": pl.Int64(),
        "read_cost": pl.Float64(),
    }
)

# what the judge says of a row; grain: query_id
JUDGED = pl.Schema(
    {
        "query_id": pl.String(),
        "status": pl.String(),
        "reason": pl.String(),
        "verdict": pl.String(),
        "confidence": pl.Float64(),
        "verdict_reasons": pl.String(),
        "verdict_basis": pl.String(),
        "p_right": pl.Float64(),
        "judge": pl.String(),
        "model": pl.String(),
        "judge_tokens_in": pl.Int64(),
        "judge_tokens_out": pl.Int64(),
        "judge_calls": pl.Int64(),
        "judge_cost": pl.Float64(),
    }
)


def examined_frame(examined: Sequence[Examined], records: Sequence[QueryRecord], rules: Sequence[Rules]) -> pl.DataFrame:
    """What reading and aligning say of each row, as a frame of `EXAMINED`; what the rules redact is masked."""
    rows = zip(examined, records, rules, strict=True)
    return frame_of([_examined_row(*row) for row in rows], EXAMINED)


def judged_frame(
    evaluations: Sequence[Evaluation],
    records: Sequence[QueryRecord],
    rules: Sequence[Rules],
    *,
    judge: str,
    model: str | None,
) -> pl.DataFrame:
    """The verdict on each row, as a frame of `JUDGED`; what the rules redact is masked.

    Args:
        evaluations: One a row.
        records: The rows, in the same order.
        rules: The rules of each row, in the same order.
        judge: Name of the judge in force, for rows that got no verdict.
        model: Its model, likewise.
    """
    rows = zip(evaluations, records, rules, strict=True)
    return frame_of([_judged_row(*row, judge, model) for row in rows], JUDGED)


def findings_frame(
    evaluations: Sequence[Evaluation],
    records: Sequence[QueryRecord],
    rules: Sequence[Rules],
    *,
    day: dt.date,
    run_id: str,
) -> pl.DataFrame:
    """The findings of each row, numbered from 0, as a frame of `QUERY_FINDINGS`; what the rules redact is masked."""
    rows = []
    for evaluation, record, its_rules in zip(evaluations, records, rules, strict=True):
        mask = _masker(_redaction(its_rules, evaluation.reading, record), evaluation.reading)
        rows += [
            {
                "dt": day,
                "query_id": record.query_id,
                "ordinal": ordinal,
                "agent_id": record.agent_id,
                "agent_version": record.agent_version,
                "app_id": record.app_id,
                **mask(finding_json(found)),
                "run_id": run_id,
            }
            for ordinal, found in enumerate(evaluation.findings)
        ]
    return frame_of(rows, QUERY_FINDINGS)


def score_frame(
    log: pl.DataFrame,
    examined: pl.DataFrame,
    judged: pl.DataFrame,
    *,
    day: dt.date,
    run_id: str,
    scored_at: dt.datetime,
    prompt_version: str | None,
) -> pl.DataFrame:
    """Join log, examinations and verdicts of a day one to one, and compose Φ.

    Args:
        log: Columns of `QUERY_LOG`, ``user_feedback`` and ``extra``; unique in ``query_id``.
        examined: Of `EXAMINED`.
        judged: Of `JUDGED`.
        day: The partition.
        run_id: The run that scores it.
        scored_at: When, in UTC.
        prompt_version: Of the prompts in force; None without a model.

    Returns:
        A frame of `QUERY_SCORES`, sorted by ``query_id``: each row of the log exactly once.

    Raises:
        polars.exceptions.ComputeError: A ``query_id`` is there twice on one side.
        ValueError: A row of the log was lost on the way.
    """
    stored = [name for name in EXAMINED if name in log.columns and name != "query_id"]
    joined = (
        log.drop(stored)
        .with_columns(pl.col("app_id").fill_null("default"))
        .join(examined.join(judged, on="query_id", how="inner", validate="1:1"), on="query_id", how="inner", validate="1:1")
    )
    if joined.height != log.height:
        raise ValueError(f"{log.height} rows went in and {joined.height} came out of scoring {day}")
    totals = [
        (pl.col(f"read_{name}") + pl.col(f"judge_{name}")).alias(target)
        for name, target in (("tokens_in", "tokens_in"), ("tokens_out", "tokens_out"), ("calls", "llm_calls"), ("cost", "cost"))
    ]
    scored = pl.col("status") == "scored"
    whole = compose_frame(joined).with_columns(
        *totals,
        pl.when(scored).then(pl.col("delta_lenient")).alias("delta_lenient"),
        pl.lit(day).alias("dt"),
        pl.lit(prompt_version, dtype=pl.String).alias("prompt_version"),
        pl.lit(CORE_VERSION).alias("core_version"),
        pl.lit(run_id).alias("run_id"),
        pl.lit(scored_at).cast(pl.Datetime("us", "UTC")).alias("scored_at"),
    )
    return whole.select(QUERY_SCORES.names()).cast(QUERY_SCORES).sort("query_id")


def _examined_row(each: Examined, record: QueryRecord, rules: Rules) -> dict[str, Any]:
    reading, evidence = each.reading, each.evidence
    found = _redaction(rules, reading, record)
    mask = _masker(found, reading)
    stored = redact_record(record, reading.sql if reading else UNREAD, found, rules) if found is not None else record
    return {
        "query_id": each.query_id,
        "user_question": stored.user_question,
        "enriched_question": stored.enriched_question,
        "generated_sql": stored.generated_sql,
        "extra": stored.extra,
        "parse_status": reading.sql.parse_status if reading else None,
        "sql_dialect": reading.sql.dialect if reading else None,
        "question_spec": compact_json(mask(question_spec_json(reading.question))) if reading else None,
        "enriched_spec": compact_json(mask(question_spec_json(reading.enriched))) if reading and reading.enriched else None,
        "sql_spec": compact_json(mask(sql_spec_json(reading.sql))) if reading else None,
        "alignment": compact_json(mask(alignment_json(evidence.alignment))) if evidence else None,
        "filter_status": evidence.alignment.filter_status if evidence else None,
        "delta_lenient": evidence.alignment.lenient if evidence else 0,
        "enrichment_status": evidence.enrichment.status if evidence else None,
        "rules_app": each.rules_app,
        "rules_version": each.rules_version,
        "rules_hash": each.rules_hash,
        "catalogue": each.catalogue,
        "input_hash": input_hash(record),
        "bearing": _stored_bearing(reading, found, stored) if reading else None,
        "read_tokens_in": each.tokens_in,
        "read_tokens_out": each.tokens_out,
        "read_calls": each.calls,
        "read_cost": each.cost,
    }


def _stored_bearing(reading: Reading, found: Redaction | None, stored: QueryRecord) -> str:
    """What rules can bear on; where something is masked, only what the masked texts and the SQL's own names tell."""
    bearing = bearing_of(reading)
    if found is not None:
        told = frozenset().union(*(lemmas_of(text) for text in (stored.user_question, stored.enriched_question) if text))
        words = bearing.words & told
        named = frozenset(column for _, column in reading.sql.columns)
        known = frozenset(c for c in bearing.columns if c in named or set(identifier_words(c)) <= told)
        columns = frozenset(c for c in known if found.mask(c) == c)  # a value without quotes reads as a column
        if columns < bearing.columns:
            columns |= {HIDDEN}  # that there is one is no secret, and an entry for any column bears on it
        bearing = replace(bearing, words=words, columns=columns)
    return compact_json(bearing.to_json())


def _judged_row(each: Evaluation, record: QueryRecord, rules: Rules, judge: str, model: str | None) -> dict[str, Any]:
    verdict = each.verdict or Verdict(grade=None, judge=judge, model=model)
    graded = verdict.grade is not None
    mask = _masker(_redaction(rules, each.reading, record), each.reading)
    return {
        "query_id": each.query_id,
        "status": each.status,
        "reason": each.reason,
        "verdict": verdict.grade,
        "confidence": verdict.confidence if graded else None,
        "verdict_reasons": compact_json(mask(list(verdict.reasons))) if each.verdict else None,
        "verdict_basis": compact_json(basis_json(verdict.basis)) if verdict.basis else None,
        "p_right": each.score.p_right if each.score else None,
        "judge": verdict.judge,
        "model": verdict.model,
        "judge_tokens_in": verdict.tokens_in,
        "judge_tokens_out": verdict.tokens_out,
        "judge_calls": verdict.calls,
        "judge_cost": verdict.cost,
    }


def _redaction(rules: Rules, reading: Reading | None, record: QueryRecord) -> Redaction | None:
    """What the rules redact of a row; None where they redact nothing."""
    sides = (reading.sql, reading.question, reading.enriched) if reading else (UNREAD,)
    return redaction(rules, *sides, record=record) if rules.redact else None


def _masker(found: Redaction | None, reading: Reading | None) -> Callable[[Any], Any]:
    """What masks in a JSON value whatever is redacted of a row."""
    if found is None:
        return lambda value: value
    if reading is None or reading.sql.parse_status not in READ:
        # nobody knows which literals stand beside a redacted column, so none is kept
        return lambda value: _mask_unread(found, value)
    return found.mask_json


def _mask_unread(found: Redaction, value: Any) -> Any:
    if isinstance(value, str):
        return found.mask_json(found.mask_sql(value, all_literals=True))
    if isinstance(value, list):
        return [_mask_unread(found, item) for item in value]
    if isinstance(value, dict):
        return {key: _mask_unread(found, item) for key, item in value.items()}
    return found.mask_json(value)
