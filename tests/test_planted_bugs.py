"""Planted bugs: for each of them a golden case, a law of conservation or a gate must fail. No test that cannot fail."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stef_core.align as align_module
import tasks.score
from stef_core.aggregates import agent_daily
from stef_core.align_filters import FilterAlignment, align_filters
from stef_core.errors import GateError
from stef_core.evaluate import conclude_many, examine_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.frames import QUERY_FINDINGS, frame_of, records_of
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import Alignment
from stef_core.rows import examined_frame, judged_frame, score_frame
from stef_core.rules import Rules
from stef_core.scoring import band_of, compose, compose_frame, confidence_factor
from tasks.expectations import conservation_suite
from tasks.gates import check as gate
from tasks.gates import check_output, conservation, refuse
from tasks.spool import Spool
from tests.core import test_align, test_rows, test_scoring
from tests.pipeline import test_score

CAUGHT = (AssertionError, pytest.fail.Exception, ValueError, pl.exceptions.ComputeError)


@dataclass(frozen=True)
class Bug:
    """A change for the worse, and the check that has to notice it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    check: Callable[[], None]


def rewrite(function: Callable[..., Any], *changes: tuple[str, str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Plants `function` with texts of its source replaced, wherever it was imported to."""
    source, name = inspect.getsource(function), function.__qualname__
    for old, new in changes:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}"
        source = source.replace(old, new)

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        namespace = dict(vars(sys.modules[function.__module__]))
        exec(compile(source, f"<planted in {name}>", "exec"), namespace)
        ours = [m for path, m in list(sys.modules.items()) if path.split(".")[0] in ("stef_core", "tasks", "flows", "tests")]
        for module in ours:
            if vars(module).get(name) is function:
                monkeypatch.setattr(module, name, namespace[name])

    return plant


def status_told_as(told: dict[str, str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Plants an alignment of filters that tells some statuses as others."""
    right = align_filters

    def wrong(*arguments: Any, **named: Any) -> FilterAlignment:
        found = right(*arguments, **named)
        return replace(found, status=told.get(found.status, found.status))  # type: ignore[arg-type]  # of the same four

    return lambda monkeypatch: monkeypatch.setattr(align_module, "align_filters", wrong)


def lenient_is(value: int) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(Alignment, "lenient", property(lambda _: value))


# --- checks -----------------------------------------------------------------------------------------------------------


def golden_scores() -> None:
    for case in test_scoring.CASES:
        test_scoring.test_score_matches_golden_case(case)


def golden_alignments() -> None:
    for case in test_align.CASES:
        test_align.test_alignment_matches_golden_case(case)


def day_is_conserved() -> None:
    """Each row of a day, scored or not, comes out of the join exactly once, as the output gate holds it."""
    log = test_rows.log_of(test_rows.ROWS)
    scores = test_rows.scored(log, test_rows.Moody())
    result = gate("scores", conservation(log, scores), conservation_suite(log.height), day=test_rows.DAY, keys=("query_id",))
    assert result.passed, [f.message for f in result.failures]


def every_batch_is_scored() -> None:
    batches = [test_score.batch_of([test_score.BY_RULE], [i], judge="symbolic") for i in ("q0", "q1")]
    read = [test_score.EXTRACTED] * 2
    scored = tasks.score.score(Spool(Path()), "c", read, batches, 2, "r", test_score.NOW)
    assert scored.facts["rows_scored"] == 2
    with pytest.raises(ValueError, match="2 rows went in and 1 came out"):
        tasks.score.score(Spool(Path()), "c", read[:1], batches[:1], 2, "r", test_score.NOW)


UNVALIDATED = (
    'examined.join(judged, on="query_id", how="inner", validate="1:1")',
    'examined.join(judged, on="query_id", how="inner")',
)
UNVALIDATED_LOG = ('), on="query_id", how="inner", validate="1:1")', '), on="query_id", how="inner")')
UNCOUNTED = ("if joined.height != log.height", "if False")
BUGS = [
    Bug("a benign extra is never seen leniently", lenient_is(0), golden_alignments),
    Bug("every extra is seen leniently", lenient_is(1), golden_alignments),
    Bug("the lenient point is not added", rewrite(compose, ("lenient = alignment.lenient", "lenient = 0")), golden_scores),
    Bug("the factor is left out", rewrite(compose, ("phi = 10 * base * factor", "phi = 10.0 * base")), golden_scores),
    Bug(
        "a step of γ starts above its lowest value",
        rewrite(confidence_factor, ("if confidence >= lowest", "if confidence > lowest or not lowest")),
        golden_scores,
    ),
    Bug(
        "a band starts above its lowest score",
        rewrite(band_of, ("if phi >= lowest", "if phi > lowest or not lowest")),
        golden_scores,
    ),
    Bug("a missing filter goes unseen", status_told_as({"partially_applied": "fully_applied"}), golden_alignments),
    Bug("no filter at all counts as some", status_told_as({"not_applied": "partially_applied"}), golden_alignments),
    Bug("an extra filter goes unseen", status_told_as({"fully_applied_with_extras": "fully_applied"}), golden_alignments),
    Bug(
        "verdicts go to rows by place, not by id",
        rewrite(score_frame, (UNVALIDATED[0], 'pl.concat([examined, judged.drop("query_id")], how="horizontal")')),
        lambda: test_rows.test_a_day_in_frames_equals_its_rows_one_by_one(test_rows.Moody(), True),
    ),
    Bug(
        "the join does not mind repeated ids",
        rewrite(score_frame, UNVALIDATED, UNVALIDATED_LOG),
        test_rows.test_row_doubled_on_the_way_is_refused,
    ),
    Bug("rows lost by the join are not missed", rewrite(score_frame, UNCOUNTED), test_rows.test_row_lost_on_the_way_is_refused),
    Bug(
        "unscored rows are dropped after the join",
        rewrite(score_frame, ("whole.select(", "whole.filter(scored).select(")),
        day_is_conserved,
    ),
    Bug(
        "an unscored row scores zero in a frame",
        rewrite(compose_frame, ('.alias("phi"))', '.fill_null(0.0).alias("phi"))')),
        test_scoring.test_an_unscored_row_of_a_frame_keeps_no_score,
    ),
    Bug(
        "the last batch of a day is left out",
        rewrite(tasks.score.score, ("if sum(batch.rows for batch in judged) != rows", "if False")),
        every_batch_is_scored,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.check()  # sound code passes

    bug.plant(monkeypatch)

    with pytest.raises(CAUGHT):
        bug.check()


@pytest.mark.parametrize("ids", [("q00",), ("q00", "q00", "q01")], ids=["a row lost", "a row doubled"])
def test_the_output_gate_refuses_what_a_careless_join_lets_through(
    ids: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(score_frame, UNVALIDATED, UNVALIDATED_LOG, UNCOUNTED)(monkeypatch)
    log = test_rows.log_of([("How many orders?", "SELECT COUNT(*) FROM orders")] * 2)
    records, rules, judge = records_of(log), [Rules()] * 2, SymbolicJudge()
    examined = examine_many(records, rules, OfflineReader())
    left = examined_frame(examined, records, rules)
    right = judged_frame(conclude_many(examined, rules, judge), records, rules, judge=judge.name, model=judge.model)
    careless = sys.modules["stef_core.rows"].score_frame  # the planted one
    picked = pl.concat([left.filter(pl.col("query_id") == i) for i in ids])
    scores = careless(log, picked, right, day=test_rows.DAY, run_id="r", scored_at=test_rows.NOW, prompt_version=None)

    findings = frame_of([], QUERY_FINDINGS)
    results = check_output(log, scores, findings, agent_daily(scores, findings), day=test_rows.DAY, coverage_min=0.95)

    assert scores.height == len(ids)
    with pytest.raises(GateError, match="gate scores: "):
        refuse(results)
