"""Every frame that crosses a border: its columns, types and grain.

Source: data-contract.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from stef_core.records import QueryRecord

# what a partition must hold; grain: query_id
QUERY_LOG = pl.Schema(
    {
        "query_id": pl.String(),
        "agent_id": pl.String(),
        "agent_version": pl.String(),
        "app_id": pl.String(),
        "asked_at": pl.Datetime("us", "UTC"),
        "user_question": pl.String(),
        "enriched_question": pl.String(),
        "generated_sql": pl.String(),
        "dialect": pl.String(),
    }
)
# optional in the log; absent ones come as nulls
OPTIONAL_LOG = pl.Schema({"user_feedback": pl.Boolean()})
# columns a partition may not lack; the others are added as nulls where absent
REQUIRED_COLUMNS = ("query_id", "agent_id", "asked_at", "user_question", "generated_sql")

# grain: dt, query_id
QUERY_SCORES = pl.Schema(
    {
        "dt": pl.Date(),
        **QUERY_LOG,
        "user_feedback": pl.Boolean(),
        "extra": pl.String(),  # JSON object of the log's further columns
        "status": pl.String(),  # scored | unscored
        "reason": pl.String(),  # why unscored
        "parse_status": pl.String(),
        "sql_dialect": pl.String(),  # the dialect it was read in
        "question_spec": pl.String(),  # JSON, canonical form
        "enriched_spec": pl.String(),
        "sql_spec": pl.String(),
        "alignment": pl.String(),
        "filter_status": pl.String(),
        "enrichment_status": pl.String(),
        "verdict": pl.String(),
        "confidence": pl.Float64(),  # γ, 0-1
        "verdict_reasons": pl.String(),  # JSON list
        "sigma_filters": pl.Int64(),
        "sigma_verdict": pl.Int64(),
        "delta_lenient": pl.Int64(),
        "base": pl.Int64(),
        "gamma_factor": pl.Float64(),
        "phi": pl.Float64(),  # 0-100
        "band": pl.String(),
        "p_right": pl.Float64(),  # 0-1
        "rules_app": pl.String(),  # app_id whose rules were used
        "rules_version": pl.String(),  # content hash of those rules
        "rules_hash": pl.String(),  # content hash of the part that bears on this row
        "catalogue": pl.String(),  # fingerprint of what the log had shown of the application; null: not used
        "judge": pl.String(),
        "model": pl.String(),
        "prompt_version": pl.String(),
        "core_version": pl.String(),
        "tokens_in": pl.Int64(),
        "tokens_out": pl.Int64(),
        "llm_calls": pl.Int64(),
        "cost": pl.Float64(),  # in the currency of the price table
        "run_id": pl.String(),
        "scored_at": pl.Datetime("us", "UTC"),
        "verdict_basis": pl.String(),  # JSON object: what a model's confidence was made of; null for the other judges
        "input_hash": pl.String(),  # of what is scored of the row: another one means that it must be scored anew
        "bearing": pl.String(),  # JSON object: columns and words of the row that rules can bear on
    }
)

# grain: dt, query_id, ordinal
QUERY_FINDINGS = pl.Schema(
    {
        "dt": pl.Date(),
        "query_id": pl.String(),
        "ordinal": pl.Int64(),
        "agent_id": pl.String(),
        "agent_version": pl.String(),
        "app_id": pl.String(),
        "code": pl.String(),
        "dimension": pl.String(),
        "severity": pl.String(),
        "stage": pl.String(),
        "question_part": pl.String(),
        "sql_part": pl.String(),
        "message": pl.String(),
        "run_id": pl.String(),
    }
)

# grain: dt, agent_id, agent_version, app_id; app_id "*" is all applications together
AGENT_DAILY = pl.Schema(
    {
        "dt": pl.Date(),
        "agent_id": pl.String(),
        "agent_version": pl.String(),
        "app_id": pl.String(),
        "rows": pl.Int64(),
        "scored": pl.Int64(),
        "coverage": pl.Float64(),  # scored / rows, 0-1
        "mean_phi": pl.Float64(),
        "median_phi": pl.Float64(),
        "p90_phi": pl.Float64(),  # linear interpolation
        "mean_p_right": pl.Float64(),
        "shares": pl.String(),  # JSON: {"band": {…}, "filter_status": {…}, "verdict": {…}, "enrichment": {…}, "finding": {…}}
        "tokens_in": pl.Int64(),
        "tokens_out": pl.Int64(),
        "llm_calls": pl.Int64(),
        "cost": pl.Float64(),
        "run_id": pl.String(),
    }
)

# grain: dt, agent_id, app_id, kind
AGENT_ALERTS = pl.Schema(
    {
        "dt": pl.Date(),
        "agent_id": pl.String(),
        "app_id": pl.String(),
        "kind": pl.String(),  # phi_fall | version_worse | finding_rise | coverage_fall
        "agent_version": pl.String(),
        "previous_version": pl.String(),
        "observed": pl.Float64(),  # phi_fall and version_worse: mean Φ, 0-100; the others: a share, 0-1
        "expected": pl.Float64(),
        "change": pl.Float64(),
        "p_value": pl.Float64(),  # corrected for all that was tested on the day
        "rows": pl.Int64(),
        "baseline_rows": pl.Int64(),
        "message": pl.String(),
        "detail": pl.String(),  # JSON: findings and example query_ids that drive it
        "run_id": pl.String(),
    }
)

# grain: run_id
SCORING_RUNS = pl.Schema(
    {
        "run_id": pl.String(),
        "kind": pl.String(),  # score | backfill | demo
        "dt": pl.Date(),
        "started_at": pl.Datetime("us", "UTC"),
        "ended_at": pl.Datetime("us", "UTC"),
        "outcome": pl.String(),  # published | gate_failed | failed
        "message": pl.String(),
        "logs": pl.String(),
        "files": pl.String(),  # JSON list of {"path", "size", "sha256"}: the input's fingerprint
        "rules_version": pl.String(),
        "judge": pl.String(),
        "model": pl.String(),
        "prompt_version": pl.String(),
        "core_version": pl.String(),
        "rows_in": pl.Int64(),
        "rows_scored": pl.Int64(),
        "rows_unscored": pl.Int64(),
        "duplicates": pl.Int64(),  # rows whose query_id had been seen; the first was kept
        "out_of_day": pl.Int64(),  # rows whose asked_at lies outside dt
        "llm_calls": pl.Int64(),
        "cache_hits": pl.Int64(),
        "tokens_in": pl.Int64(),
        "tokens_out": pl.Int64(),
        "cost": pl.Float64(),
        "gates": pl.String(),  # JSON list of gate results
        "notes": pl.String(),  # JSON list of sentences, e.g. unknown applications
        "data_docs": pl.String(),  # path of the index of the run's Data Docs; null: none are kept
    }
)

# grain: run_id, dt, query_id
SCORE_CHANGES = pl.Schema(
    {
        "run_id": pl.String(),
        "dt": pl.Date(),
        "query_id": pl.String(),
        "agent_id": pl.String(),
        "old_phi": pl.Float64(),
        "new_phi": pl.Float64(),
        "old_band": pl.String(),
        "new_band": pl.String(),
        "old_status": pl.String(),
        "new_status": pl.String(),
        "old_filter_status": pl.String(),
        "new_filter_status": pl.String(),
        "changed": pl.String(),  # JSON list: what changed (rules, judge, model, prompt, core)
    }
)

# what a day of the log shows of tables, columns and joins; grain: dt, app_id, kind, key
LOG_CATALOGUE = pl.Schema(
    {
        "dt": pl.Date(),
        "app_id": pl.String(),
        "kind": pl.String(),  # table column name edge pair value literal operator format compared
        "key": pl.String(),
        "questions": pl.Int64(),  # different questions of the day whose SQL shows it
        "witnesses": pl.String(),  # JSON list of the hashes of some of them
    }
)

# one named run of an experiment; grain: name
EXPERIMENT_RUNS = pl.Schema(
    {
        "name": pl.String(),
        "dataset": pl.String(),
        "database": pl.String(),  # URL without password
        "dialect": pl.String(),
        "agent": pl.String(),  # baseline, module:function or the file of predictions
        "model": pl.String(),
        "prompt": pl.String(),
        "prompt_version": pl.String(),
        "judge": pl.String(),
        "core_version": pl.String(),
        "options": pl.String(),  # JSON object: how results were compared
        "started_at": pl.Datetime("us", "UTC"),
        "ended_at": pl.Datetime("us", "UTC"),
        "rows": pl.Int64(),
        "correct": pl.Int64(),
        "incorrect": pl.Int64(),
        "not_run": pl.Int64(),
        "gold_failed": pl.Int64(),
        "accuracy": pl.Float64(),  # correct / (correct + incorrect), 0-1
        "accuracy_low": pl.Float64(),  # 95 % Wilson interval
        "accuracy_high": pl.Float64(),
        "coverage": pl.Float64(),  # (correct + incorrect) / rows, 0-1
        "mean_phi": pl.Float64(),
        "tokens": pl.Int64(),
    }
)

# one question of one run; grain: name, query_id
EXPERIMENT_RESULTS = pl.Schema(
    {
        "name": pl.String(),
        "ordinal": pl.Int64(),  # of the row in its data set, from 1
        "query_id": pl.String(),
        "query": pl.String(),
        "enriched_question": pl.String(),
        "expected_sql": pl.String(),  # accepted queries, ";" between them
        "predicted_sql": pl.String(),
        "level": pl.String(),
        "split": pl.String(),
        "execution_accuracy": pl.String(),  # correct | incorrect | not_run | gold_failed
        "accuracy_reason": pl.String(),
        "flags": pl.String(),  # JSON list, e.g. both_empty, tie
        "latency": pl.Float64(),  # seconds the agent took; null when the answer came from the cache
        "tokens": pl.Int64(),
        "phi": pl.Float64(),  # 0-100
        "p_right": pl.Float64(),  # 0-1
        "verdict": pl.String(),
        "gamma": pl.Float64(),  # 0-1
        "findings": pl.String(),  # JSON list of codes
        "status": pl.String(),  # of the score: scored | unscored
        "reason": pl.String(),  # why unscored
        "error_codes": pl.String(),  # JSON list; null until analysed
        "error_analysis": pl.String(),
    }
)

# rules as they were, so that a change can be told entry by entry; grain: app_id, content_hash
RULES_HISTORY = pl.Schema(
    {
        "app_id": pl.String(),
        "content_hash": pl.String(),
        "version": pl.String(),
        "document": pl.String(),  # canonical JSON
        "recorded_at": pl.Datetime("us", "UTC"),
    }
)

# answers of a model that runs share; no table of a day, and never published, as answers repeat parts of questions; grain: key
LLM_ANSWERS = pl.Schema(
    {
        "key": pl.String(),  # hash over everything that determines the answer
        "text": pl.String(),  # the answer, or the message of a settled failure
        "reason": pl.String(),  # of a settled failure; null: an answer
        "model": pl.String(),
        "schema_name": pl.String(),  # what was asked for, e.g. verdict
        "step": pl.String(),  # how its form was asked for
        "tokens_in": pl.Int64(),  # what it cost
        "tokens_out": pl.Int64(),
        "calls": pl.Int64(),
        "probability": pl.Float64(),  # of the value that was to be measured, where the endpoint told it
        "created_at": pl.Datetime("us", "UTC"),
    }
)

TABLES: dict[str, pl.Schema] = {
    "query_scores": QUERY_SCORES,
    "query_findings": QUERY_FINDINGS,
    "agent_daily": AGENT_DAILY,
    "agent_alerts": AGENT_ALERTS,
    "scoring_runs": SCORING_RUNS,
    "score_changes": SCORE_CHANGES,
    "log_catalogue": LOG_CATALOGUE,
    "experiment_runs": EXPERIMENT_RUNS,
    "experiment_results": EXPERIMENT_RESULTS,
    "rules_history": RULES_HISTORY,
}
# written at once; all others go through staging
RECORDED = ("scoring_runs", "experiment_runs", "experiment_results", "rules_history")


def records_of(frame: pl.DataFrame) -> list[QueryRecord]:
    """Rows of a query log as records; a null application becomes ``default``."""
    names = [*QUERY_LOG, *({"extra"} & set(frame.columns))]
    return [QueryRecord(**(row | {"app_id": row["app_id"] or "default"})) for row in frame.select(names).iter_rows(named=True)]


def frame_of(rows: Sequence[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Rows as a frame of exactly this schema; it keeps its types when empty.

    Raises:
        polars.exceptions.PolarsError: A value does not fit its column.
    """
    return pl.DataFrame(rows, schema=schema, orient="row")


def compact_json(value: Any) -> str:
    """JSON text with one spelling, as the tables hold it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)


def distinct_lines(values: Iterable[str]) -> list[str]:
    """Values without repeats, in order."""
    return list(dict.fromkeys(values))
