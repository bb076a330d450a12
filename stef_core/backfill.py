"""Which rows of a published day a change touches, what moved once they were scored anew, and why.

A row is scored anew when something that determines its result is another one now: its input, the rules that bear on it, the
judge, its model, its prompts, the version of this code, or what the log shows of its application. All else is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from stef_core.bearing import Bearing, RuleChange, diff_rules, input_hash, touched_by
from stef_core.frames import QUERY_SCORES, SCORE_CHANGES, compact_json, records_of
from stef_core.rules import DEFAULT_RULES, Rules

# reasons of a row that a further try may mend, whatever has changed
MENDABLE = frozenset({"judge_unavailable", "question_reader_unavailable", "judge_empty", "question_reader_empty"}) | {
    "budget_exhausted"
}
CHANGES = ("new", "input", "core", "judge", "model", "prompt", "rules", "catalogue", "unanswered")
# what a row of the log tells that no score rests on; taken from the log as it is now
CARRIED = ("agent_id", "agent_version", "asked_at", "user_feedback")
ROWS_AT_ONCE = 10_000  # of a day that are Python objects at a time
COMPARED = ("phi", "band", "status", "filter_status")

PLAN = pl.Schema(
    {
        "query_id": pl.String(),
        "agent_id": pl.String(),
        "app_id": pl.String(),
        "changed": pl.List(pl.String()),  # of CHANGES; empty: the published result stands
        "rules": pl.List(pl.String()),  # the rule changes that touch the row, in words
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Determinants:
    """What determines a result beside the row and its rules, as a run of today has it."""

    judge: str
    model: str | None
    prompt_version: str | None
    core_version: str


class RulesThen:
    """Rules as they were when rows were scored.

    Args:
        documents: Canonical JSON by content hash.
    """

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._documents = dict(documents)
        self._changes: dict[tuple[str, str], tuple[Rules, list[RuleChange]]] = {}

    def changes(self, then: str | None, now: Rules, bearing: Bearing) -> list[str]:
        """In words, the changes between two versions that touch a row; none where the earlier version is not known."""
        if then is None or then not in self._documents:
            return []
        key = (then, now.content_hash)
        if key not in self._changes:
            before = Rules.model_validate_json(self._documents[then])
            self._changes[key] = (before, diff_rules(before, now))
        before, changes = self._changes[key]
        return [change.text for change in touched_by(changes, before, now, bearing)]


def plan_day(
    log: pl.DataFrame,
    published: pl.DataFrame,
    rules: Mapping[str, Rules],
    now: Determinants,
    then: RulesThen,
    fingerprints: Mapping[str, str | None],
) -> pl.DataFrame:
    """What has to be scored anew of a day.

    Args:
        log: Rows of the day as the log has them now, of `QUERY_LOG`; unique in ``query_id``.
        published: Its rows of ``query_scores``.
        rules: Rules of today by `app_id`.
        now: Judge, model, prompts and code of today.
        then: Rules of earlier runs.
        fingerprints: Of what the log shows of each application today.

    Returns:
        A frame of `PLAN`, one row a row of the log, in its order.
    """
    wanted = (
        "query_id input_hash core_version judge model prompt_version rules_hash rules_version bearing catalogue status reason"
    ).split()
    fallback = rules.get("default", DEFAULT_RULES)
    parts = [PLAN.to_frame()]
    for part in log.iter_slices(ROWS_AT_ONCE):
        same = published.select(wanted).filter(pl.col("query_id").is_in(part["query_id"].implode()))
        stored = {row["query_id"]: row for row in same.iter_rows(named=True)}
        plan: list[dict[str, Any]] = []
        for record in records_of(part):
            its = rules.get(record.app_id, fallback)
            old = stored.get(record.query_id)
            changed, why = ["new"], list[str]()
            if old is not None:
                changed, why = _changed(old, input_hash(record), its, now, then, fingerprints.get(record.app_id))
            plan.append(
                {
                    "query_id": record.query_id,
                    "agent_id": record.agent_id,
                    "app_id": record.app_id,
                    "changed": changed,
                    "rules": why,
                }
            )
        parts.append(pl.DataFrame(plan, schema=PLAN, orient="row"))
    return pl.concat(parts)


def _changed(
    old: Mapping[str, Any], digest: str, rules: Rules, now: Determinants, then: RulesThen, fingerprint: str | None
) -> tuple[list[str], list[str]]:
    bearing = _bearing(old["bearing"]) if old["bearing"] else None
    judged = old["judge"] != "rule"  # SQL that is no query is scored by rule, whoever judges
    is_touched = bearing is None or bearing.rules(rules).content_hash != old["rules_hash"]
    found = {
        "input": old["input_hash"] != digest,
        "core": old["core_version"] != now.core_version,
        "judge": judged and old["judge"] != now.judge,
        "model": judged and old["model"] != now.model,
        "prompt": judged and old["prompt_version"] != now.prompt_version,
        "rules": is_touched,
        "catalogue": judged and old["catalogue"] != fingerprint,
        "unanswered": old["reason"] in MENDABLE,
    }
    why = then.changes(old["rules_version"], rules, bearing) if is_touched and bearing is not None else []
    return [name for name, there in found.items() if there], why


@lru_cache(maxsize=65_536)
def _bearing(text: str) -> Bearing:
    return Bearing.from_json(text)


def merge_scores(
    log: pl.DataFrame,
    published: pl.DataFrame,
    anew: pl.DataFrame,
    rules: Mapping[str, Rules],
    now: Determinants,
    fingerprints: Mapping[str, str | None],
    run_id: str,
) -> pl.DataFrame:
    """The day's ``query_scores``: rows scored anew, and the published ones of all others as a run of today would write them.

    Args:
        log: The day as the log has it now.
        published: Its rows of ``query_scores``.
        anew: Those scored by this run.
        rules: Rules of today by `app_id`.
        now: Judge, model, prompts and code of today.
        fingerprints: Of what the log shows of each application today.
        run_id: This run.
    """
    fallback = rules.get("default", DEFAULT_RULES)
    used = {app: rules.get(app, fallback) for app in fingerprints}

    def by_app(values: Mapping[str, str | None], name: str) -> pl.Expr:
        return pl.col("app_id").replace_strict(dict(values), default=None, return_dtype=pl.String).alias(name)

    kept = published.join(log.select("query_id"), on="query_id", how="semi").join(anew, on="query_id", how="anti")
    kept = (
        kept.drop(CARRIED)
        .join(log.select("query_id", *CARRIED), on="query_id", how="left", validate="1:1")
        .with_columns(
            by_app({app: its.content_hash for app, its in used.items()}, "rules_version"),
            by_app({app: its.app_id for app, its in used.items()}, "rules_app"),
            by_app(fingerprints, "catalogue"),
            pl.lit(now.prompt_version, dtype=pl.String).alias("prompt_version"),
            pl.lit(now.core_version).alias("core_version"),
            pl.lit(run_id).alias("run_id"),
        )
    )
    return pl.concat([kept.select(QUERY_SCORES.names()).cast(QUERY_SCORES), anew]).sort("query_id")


def merge_findings(scores: pl.DataFrame, published: pl.DataFrame, anew: pl.DataFrame, redone: pl.DataFrame) -> pl.DataFrame:
    """The day's ``query_findings``, likewise.

    Args:
        scores: The merged ``query_scores``.
        published: The day's rows of ``query_findings``.
        anew: Those of the rows scored by this run.
        redone: ``query_id`` of the rows scored by this run.
    """
    about = ["agent_id", "agent_version", "app_id", "run_id"]
    kept = published.join(redone, on="query_id", how="anti").drop(about)
    kept = kept.join(scores.select("query_id", *about), on="query_id", how="inner", validate="m:1")
    return pl.concat([kept.select(anew.columns).cast(anew.schema), anew]).sort("query_id", "ordinal")


def score_changes(published: pl.DataFrame, scores: pl.DataFrame, plan: pl.DataFrame, run_id: str) -> pl.DataFrame:
    """Rows whose score, band, status or filter status is another one now, with what did it, as ``score_changes``.

    Args:
        published: The day's rows of ``query_scores`` before.
        scores: And after.
        plan: Of `plan_day`.
        run_id: The run that did it.
    """
    old = published.select("query_id", *(pl.col(name).alias(f"old_{name}") for name in COMPARED))
    new = scores.select("dt", "query_id", "agent_id", *(pl.col(name).alias(f"new_{name}") for name in COMPARED))
    moved = old.join(new, on="query_id", how="inner", validate="1:1").filter(
        pl.any_horizontal(pl.col(f"old_{name}").ne_missing(pl.col(f"new_{name}")) for name in COMPARED)
    )
    told = plan.select("query_id", pl.struct("changed", "rules").map_elements(_told, return_dtype=pl.String).alias("changed"))
    joined = moved.join(told, on="query_id", how="left").with_columns(pl.lit(run_id).alias("run_id"))
    return joined.select(SCORE_CHANGES.names()).cast(SCORE_CHANGES).sort("query_id")


def _told(row: Mapping[str, Sequence[str]]) -> str:
    changed = list(row["changed"])
    if row["rules"] and "rules" in changed:
        at = changed.index("rules")
        changed[at : at + 1] = [f"rules: {text}" for text in row["rules"]]
    return compact_json(changed)


def moved_by_agent(changes: pl.DataFrame, published: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """What moved, one row an agent: rows, how many moved, up, down, changed their band, and the mean of Φ before and after."""
    figures = [pl.len().alias("rows"), pl.col("phi").mean().alias("mean")]
    old, new = (frame.group_by("agent_id").agg(figures) for frame in (published, scores))
    change = pl.col("new_phi").fill_null(0) - pl.col("old_phi").fill_null(0)
    counts = changes.group_by("agent_id").agg(
        pl.len().alias("moved"),
        (change > 0).sum().alias("up"),
        (change < 0).sum().alias("down"),
        pl.col("old_band").ne_missing(pl.col("new_band")).sum().alias("other_band"),
    )
    return (
        new.join(counts, on="agent_id", how="left")
        .join(old.select("agent_id", pl.col("mean").alias("mean_before")), on="agent_id", how="left")
        .select(
            "agent_id",
            "rows",
            *(pl.col(name).fill_null(0) for name in ("moved", "up", "down", "other_band")),
            "mean_before",
            pl.col("mean").alias("mean_after"),
        )
        .sort("agent_id")
    )
