"""Gates: put a table to its suite, and say in words which expectation failed, for which agent, observed against required."""

from __future__ import annotations

import datetime as dt
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from stef_core import trailing
from stef_core.errors import GateError, TransientError
from stef_core.frames import QUERY_SCORES
from stef_core.trailing import Room
from tasks import expectations
from tasks.publish import Table
from tasks.query_log import PARTITION_LOG, Partition, SpooledPartition
from tasks.spool import ROWS_AT_ONCE

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

EXAMPLES = 3  # rows a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One expectation that did not hold, for one agent where rows name agents."""

    expectation: str
    column: str | None
    agent: str | None
    observed: str
    required: str
    severity: str  # critical stops the day; warning is reported
    message: str
    evaluated: bool = True  # False: the expectation could not be evaluated at all


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One table against one suite. `passed` is False when anything critical failed or could not be evaluated."""

    gate: str
    passed: bool
    expectations: int
    failures: tuple[Failure, ...] = ()
    validation: Any = field(default=None, repr=False, compare=False)  # Great Expectations' own result, for Data Docs

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences: what is unusual and stops nothing."""
        return tuple(failure.message for failure in self.failures if failure.severity != "critical")

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``scoring_runs.gates``."""
        return {
            "gate": self.gate,
            "passed": self.passed,
            "expectations": self.expectations,
            "failures": [asdict(failure) for failure in self.failures],
        }


def check(
    gate: str,
    rows: pl.DataFrame | Iterable[pl.DataFrame],
    suite: ExpectationSuite,
    *,
    day: dt.date,
    keys: Sequence[str] = (),
) -> GateResult:
    """Put one table to its suite.

    Args:
        gate: Name of the gate, for messages.
        rows: The rows, in one frame or several; Great Expectations gets each as pandas. What a suite asks of several rows
            together, that keys are unique, it asks within a frame; how many rows there are it asks of all.
        suite: What they must satisfy.
        day: For messages.
        keys: Columns that name a row in messages; ``agent_id`` among them splits failures by agent.
    """
    outcomes, there = [], list[str]()
    for frame in [rows] if isinstance(rows, pl.DataFrame) else rows:
        there = [key for key in keys if key in frame.columns]
        batch = _batches().get_batch({"dataframe": frame.to_pandas()})
        asked = {"result_format": "COMPLETE", "unexpected_index_column_names": there}
        outcomes.append(batch.validate(suite, result_format=asked))
    outcome = _together(outcomes)
    failures = [failure for result in outcome.results if not result.success for failure in _failures(gate, result, day, there)]
    failures.sort(key=lambda f: (f.severity != "critical", f.expectation, f.column or "", f.agent or ""))
    return GateResult(
        gate=gate,
        passed=all(failure.severity != "critical" for failure in failures),
        expectations=len(suite.expectations),
        failures=tuple(failures),
        validation=outcome,
    )


# what a result counts, and what it lists
_COUNTED = ("element_count", "unexpected_count", "missing_count")
_LISTED = ("unexpected_list", "unexpected_index_list", "partial_unexpected_list", "partial_unexpected_index_list")


def _together(outcomes: Sequence[Any]) -> Any:
    """One outcome of a suite out of those of parts of a table."""
    first, *others = outcomes
    for outcome in others:
        for whole, part in zip(first.results, outcome.results, strict=True):
            _add(whole, part)
    for whole in first.results if others else ():
        _count_anew(whole)
    if others:
        met = sum(result.success for result in first.results)
        first.success = met == len(first.results)
        first.statistics |= {
            "successful_expectations": met,
            "unsuccessful_expectations": len(first.results) - met,
            "success_percent": 100.0 * met / len(first.results),
        }
    return first


def _add(whole: Any, part: Any) -> None:
    """Add what one expectation found in a further part of a table."""
    whole.success = whole.success and part.success
    if _error(part.exception_info):
        whole.exception_info = part.exception_info
    for name in _COUNTED:
        if name in part.result:
            whole.result[name] = whole.result.get(name, 0) + part.result[name]
    for name in _LISTED:
        if part.result.get(name):
            whole.result[name] = [*(whole.result.get(name) or ()), *part.result[name]]
    if part.expectation_config.type in _ROW_COUNTS:
        whole.result["observed_value"] += part.result["observed_value"]
    elif not part.success and part.result.get("observed_value") is not None:
        whole.result |= {"observed_value": part.result["observed_value"], "details": part.result.get("details")}


_ROW_COUNTS = ("expect_table_row_count_to_be_between", "expect_table_row_count_to_equal")


def _count_anew(whole: Any) -> None:
    """Shares, and whether the number of rows is right, of all parts together."""
    elements, there = whole.result.get("element_count", 0), whole.result.get("unexpected_count", 0)
    for name, of in (
        ("unexpected_percent", elements - whole.result.get("missing_count", 0)),
        ("unexpected_percent_total", elements),
    ):
        if name in whole.result and of:
            whole.result[name] = there / of * 100
    if whole.expectation_config.type in _ROW_COUNTS and not _error(whole.exception_info):
        arguments, rows = whole.expectation_config.kwargs, whole.result["observed_value"]
        exact = arguments.get("value")
        least, most = (arguments.get("min_value"), arguments.get("max_value")) if exact is None else (exact, exact)
        whole.success = (least is None or rows >= least) and (most is None or rows <= most)


def check_input(partition: Partition | SpooledPartition) -> list[GateResult]:
    """The input gate: is this day fit to be scored."""
    result = check(
        "query_log",
        _or_empty(partition.frames(), PARTITION_LOG),
        expectations.query_log_suite(partition.day),
        day=partition.day,
        keys=("query_id", "agent_id"),
    )
    return [result]


def check_output(
    log: pl.DataFrame | pl.LazyFrame,
    scores: pl.DataFrame | Table,
    findings: pl.DataFrame | Table,
    agent_daily: pl.DataFrame,
    *,
    day: dt.date,
    coverage_min: float,
) -> list[GateResult]:
    """The output gate, on the staged rows: is this day fit to be published.

    Args:
        log: The day's input, unique in ``query_id``.
        scores: Staged ``query_scores``.
        findings: Staged ``query_findings``.
        agent_daily: Staged ``agent_daily``.
        day: The partition.
        coverage_min: Share of each agent's rows that must be scored, 0-1.
    """
    rows = ("query_id", "agent_id")
    rows_in = log.lazy().select(pl.len()).collect(engine="streaming").item()
    found = expectations.conservation_suite(rows_in)
    results = [
        check("scores", _or_empty(_frames(scores), QUERY_SCORES), expectations.scores_suite(), day=day, keys=rows),
        check("scores", conservation(log, scores.lazy()), found, day=day, keys=rows),
        check("scores", agent_coverage(agent_daily), expectations.agents_suite(coverage_min), day=day, keys=("agent_id",)),
        check(
            "agent_daily", agent_daily, expectations.agent_daily_suite(), day=day, keys=("agent_id", "agent_version", "app_id")
        ),
    ]
    if findings.lazy().head(1).collect().height:  # a day may be without fault
        results.append(check("findings", _frames(findings), expectations.findings_suite(), day=day, keys=rows))
    return results


def check_history(
    scores: pl.DataFrame | pl.LazyFrame,
    agent_daily: pl.DataFrame,
    alerts: pl.DataFrame,
    before: Mapping[str, pl.DataFrame],
    *,
    day: dt.date,
    room: Room,
) -> list[GateResult]:
    """The day against the days before it. What is unusual is a warning: it is told, and the day is published.

    Args:
        scores: Staged ``query_scores``.
        agent_daily: Staged ``agent_daily``.
        alerts: Staged ``agent_alerts``: what they tell of an agent is not told again as a warning.
        before: What `tasks.publish.read_window` gives of the days before.
        day: The partition.
        room: How far a day may be from the usual.
    """
    scores = scores.lazy()
    counted = scores.select(pl.len().alias("rows"), pl.col("asked_at").max().alias("latest")).collect(engine="streaming")
    rows, latest = counted.row(0)
    frames = {
        "volume": trailing.volume(day, rows, latest if isinstance(latest, dt.datetime) else None, before["latest"], room),
        "inputs": trailing.input_drift(trailing.input_counts(scores), before["input_counts"], room),
        "agent_drift": trailing.agent_drift(agent_daily, before["agent_daily"], [before["agent_alerts"], alerts], day, room),
    }
    suites = {
        "volume": expectations.volume_suite,
        "inputs": expectations.inputs_suite,
        "agent_drift": expectations.agent_drift_suite,
    }
    # a first day has no days before it, and nothing to compare
    return [
        check(name, frame, suites[name](), day=day, keys=("subject", "agent_id"))
        for name, frame in frames.items()
        if frame.height
    ]


def conservation(log: pl.DataFrame | pl.LazyFrame, scores: pl.DataFrame | pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """How often each ``query_id`` stands in the log and among the scores; grain: query_id, of either side.

    In frames of about `ROWS_AT_ONCE` rows, each id in one of them.
    """
    rows = scores.lazy().select(pl.len()).collect(engine="streaming").item()
    parts = max(1, math.ceil(rows / ROWS_AT_ONCE))
    for number in range(parts):
        counts = [
            side.lazy()
            .with_columns(pl.col("query_id").str.replace_all("\0", "\ufffd", literal=True))  # as PostgreSQL has to keep it
            .filter(pl.col("query_id").hash() % parts == number)
            .group_by("query_id")
            .agg(pl.len().alias(name), pl.col("agent_id").first())
            .collect(engine="streaming")
            for name, side in (("in_log", log), ("in_scores", scores))
        ]
        both = counts[0].join(counts[1], on="query_id", how="full", coalesce=True, validate="1:1", suffix="_scored")
        yield both.select(
            "query_id",
            pl.coalesce("agent_id", "agent_id_scored").alias("agent_id"),
            pl.col("in_log").fill_null(0),
            pl.col("in_scores").fill_null(0),
        ).sort("query_id")


def _frames(table: pl.DataFrame | Table) -> Iterator[pl.DataFrame]:
    return iter([table]) if isinstance(table, pl.DataFrame) else table.frames()


def _or_empty(frames: Iterable[pl.DataFrame], schema: pl.Schema) -> Iterator[pl.DataFrame]:
    """Frames, or where there is none an empty one: a table without rows has to be put to its suite too."""
    found = iter(frames)
    yield next(found, schema.to_frame())
    yield from found


def agent_coverage(agent_daily: pl.DataFrame) -> pl.DataFrame:
    """Coverage of each agent over all its versions and applications; grain: agent_id."""
    everything = (
        agent_daily.filter(pl.col("app_id") == "*").group_by("agent_id").agg(pl.col("rows").sum(), pl.col("scored").sum())
    )
    return everything.with_columns((pl.col("scored") / pl.col("rows")).alias("coverage")).sort("agent_id")


def refuse(results: Iterable[GateResult], causes: Sequence[str] = (), *, away: bool = False) -> None:
    """Stop when a gate did not pass.

    Args:
        results: Of the gates.
        causes: Sentences that name what is behind a failure, where it is known.
        away: Rows are unscored because an endpoint went away; the same run may pass later.

    Raises:
        GateError: Names each critical failure.
        TransientError: Likewise, where an endpoint was `away`.
    """
    messages = [f.message for r in results if not r.passed for f in r.failures if f.severity == "critical"]
    if messages:
        raise (TransientError if away else GateError)("; ".join([*messages, *causes]))


@task(name="gate", task_run_name="gate-input-{partition.day}", cache_policy=NO_CACHE)
def gate_input(partition: Partition | SpooledPartition) -> list[GateResult]:
    """`check_input` as a task."""
    return check_input(partition)


@task(name="gate", task_run_name="gate-output-{day}", cache_policy=NO_CACHE)
def gate_output(
    log: pl.DataFrame | pl.LazyFrame,
    staged: Mapping[str, Table],
    before: Mapping[str, pl.DataFrame],
    day: dt.date,
    coverage_min: float,
    room: Room,
) -> list[GateResult]:
    """`check_output` and `check_history` as a task."""
    scores, findings = staged["query_scores"], staged["query_findings"]
    daily, alerts = (staged[name].lazy().collect() for name in ("agent_daily", "agent_alerts"))
    results = check_output(log, scores, findings, daily, day=day, coverage_min=coverage_min)
    return results + check_history(scores.lazy(), daily, alerts, before, day=day, room=room)


@lru_cache(maxsize=1)
def _batches() -> Any:
    """One context and one in-memory source a process; it asks no network and draws no progress bars."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    # it sets its own level on import, and tells of a folder that is of no use here
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("staged").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def _failures(gate: str, result: Any, day: dt.date, keys: Sequence[str]) -> list[Failure]:
    config = result.expectation_config
    arguments = dict(config.kwargs)
    name = "".join(part.capitalize() for part in config.type.split("_"))
    pair = _bounded(arguments)
    column = arguments.get("column") or (pair and pair[0]) or ", ".join(arguments.get("column_list", ())) or None
    severity = str(getattr(config.severity, "value", config.severity))
    required = _required(config.type, arguments)
    label = f"({name}{f' {column}' if column else ''})"

    def failure(agent: str | None, observed: str, text: str, *, evaluated: bool = True) -> Failure:
        return Failure(
            expectation=name,
            column=column,
            agent=agent,
            observed=observed,
            required=required,
            severity=severity if evaluated else "critical",
            message=f"gate {gate}: {text} {label}",
            evaluated=evaluated,
        )

    error = _error(result.exception_info)
    if error:
        return [failure(None, error, f"{column or 'table'} on {day} could not be evaluated: {error}", evaluated=False)]
    unexpected = result.result.get("unexpected_index_list")
    if not unexpected:
        observed = _shown(result.result.get("observed_value"))
        what = {"expect_table_row_count_to_be_between": "row count", "expect_table_row_count_to_equal": "row count"}
        if config.type == "expect_table_columns_to_match_set":
            odd = result.result.get("details", {}).get("mismatched", {})
            hows = ("missing", "unexpected") if arguments.get("exact_match", True) else ("missing",)
            told = "; ".join(f"{how} {', '.join(odd[how])}" for how in hows if how in odd)
            return [failure(None, told, f"columns on {day}: {told}")]
        return [failure(None, observed, f"{what.get(config.type, column)} on {day} is {observed}, required {required}")]
    if pair:
        return [failure(row.get("agent_id"), *_out_of_bound(row, *pair, day)) for row in _by_subject(unexpected)]
    return [
        failure(agent, *_observed(rows, column, agent, day, keys, required))
        for agent, rows in sorted(_by_agent(unexpected).items())
    ]


def _bounded(arguments: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Of two columns the one that is observed, its bound, and which bound that is; None for all other expectations."""
    larger, smaller = arguments.get("column_A"), arguments.get("column_B")
    if larger is None or smaller is None:
        return None
    return (larger, smaller, "at least") if smaller == f"{larger}_least" else (smaller, larger, "at most")


def _by_subject(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: _shown(row.get("subject")))


def _out_of_bound(row: Mapping[str, Any], column: str, bound: str, which: str, day: dt.date) -> tuple[str, str]:
    """What was observed, and the sentence about it."""
    observed = _shown(row[column])
    what = _WORDS.get(column, column)
    return observed, f"{what} of {row.get('subject')} on {day} is {observed}, usual is {which} {_shown(row[bound])}"


# columns whose names alone say too little
_WORDS = {
    "rows": "row count",
    "quiet_hours": "hours without a row at the end",
    "psi": "shift (population stability index)",
    "band_psi": "shift of bands (population stability index)",
}


def _by_agent(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_shown(row.get("agent_id")), []).append(row)
    return groups


def _observed(
    rows: Sequence[Mapping[str, Any]], column: str | None, agent: str, day: dt.date, keys: Sequence[str], required: str
) -> tuple[str, str]:
    """What was found in an agent's rows, and the sentence about it."""
    values = list(dict.fromkeys(_shown(row.get(column or "")) for row in rows))[:EXAMPLES]
    observed = ", ".join(values)
    if "query_id" not in keys:
        return observed, f"{column} of agent {agent} on {day} is {observed}, required {required}"
    ids = [_shown(row.get("query_id")) for row in rows[:EXAMPLES]]
    more = f" and {len(rows) - EXAMPLES} more" if len(rows) > EXAMPLES else ""
    where = f"in {len(rows)} rows (query_id {', '.join(ids)}{more})"
    return observed, f"{column} of agent {agent} on {day} is {observed} {where}, required {required}"


def _required(kind: str, arguments: Mapping[str, Any]) -> str:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if low is not None and high is not None:
        if arguments.get("column") == "coverage":
            return f"at least {_shown(low)}"  # a share cannot exceed 1
        return f"from {_shown(low)} {'to before' if arguments.get('strict_max') else 'to'} {_shown(high)}"
    if low is not None:
        return f"at least {_shown(low)}"
    if pair := _bounded(arguments):
        return f"{pair[2]} {pair[1]}"
    words = {"not_be_null": "a value", "be_null": "no value", "unique": "unique", "match_set": "the columns of the contract"}
    for part, word in words.items():
        if part in kind:
            return word
    if "value_set" in arguments:
        return f"one of {' '.join(_shown(v) for v in arguments['value_set'])}"
    return _shown(arguments.get("type_") or arguments.get("value"))


def _error(info: Any) -> str | None:
    """The cause when an expectation raised; a missing column comes as one entry a metric."""
    entries = [info, *info.values()] if isinstance(info, dict) else []
    for entry in entries:
        if isinstance(entry, dict) and str(entry.get("raised_exception")) == "True":
            return str(entry.get("exception_message") or "unknown cause").strip().splitlines()[0]
    return None


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
