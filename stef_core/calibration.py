"""How far Φ and p_right can be trusted: figures on labelled answers, each with a bootstrap interval over questions.

Scores of one question hang together, so questions are resampled and never rows. A figure that the rows cannot show (an AUROC
without wrong answers, a p_right of a judge that gives none) is None.

Source: experiments.md, "Calibration".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import polars as pl

from stef_core.catalogue import witness_of
from stef_core.evaluate import (
    BATCH,
    Examined,
    Judge,
    QuestionReader,
    Read,
    conclude,
    conclude_many,
    examine,
    read_many,
)
from stef_core.extract.question_offline import OfflineReader
from stef_core.frames import frame_of
from stef_core.judge.fitting import FOLDS, fit_side, fold_fits, grouped_folds, own_catalogue, row_of
from stef_core.judge.model import load_model
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.records import Evaluation, QueryRecord, SqlSpec, Verdict
from stef_core.rules import Rules

Array = np.ndarray[Any, Any]
Told = Callable[[str, int, int], None]  # what is being done, rows done, rows of it

THRESHOLD = 75.0  # from here on the band is good
P_RIGHT_CUT = 0.5
RESAMPLES = 1000
BINS = 10
FALSE_ALARMS = 0.1
SMALL = 30  # rows below which a group's figures say little
RANKED_AGENTS = 5  # agents that a rank correlation needs
LEVEL = 0.95
CELLS = 4_000_000  # weights held at once while resampling
ROC_POINTS = 200

# grain: one labelled answer of one agent
ANSWERS = pl.Schema(
    {
        "query_id": pl.String(),
        "agent": pl.String(),
        "database": pl.String(),
        "source": pl.String(),
        "question": pl.String(),  # folded: letter case and spacing do not make another question
        "right": pl.Boolean(),
        "error_types": pl.List(pl.String()),  # "Main/Sub"
        "features": pl.List(pl.String()),  # of the SQL, see `features_of`
        "status": pl.String(),  # scored | unscored
        "reason": pl.String(),
        "says_right": pl.Boolean(),  # the verdict's side: correct or likely_correct
        "phi": pl.Float64(),  # 0-100
        "gamma": pl.Float64(),  # 0-1
        "p_right": pl.Float64(),  # 0-1
        "seen": pl.Boolean(),  # the judge's model was fitted on this question; null: not known
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A published figure to hold ours against."""

    what: str
    figure: str
    sees: str  # what that judge sees and this one does not, or the other way round
    source: str


ANCHORS = (
    Anchor(
        what="LLMs on NL2SQL-BUGs (2,018 expert-labelled rows)",
        figure="accuracy 75.16 % on average",
        sees="question, SQL and the schema",
        source="NL2SQL-BUGs",
    ),
    Anchor(what="LLM judge against experts", figure="κ 0.87", sees="the gold SQL and its results", source="FLEX"),
    Anchor(what="LLM judge", figure="F1 0.70-0.76", sees="no gold SQL", source="Arize"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRow:
    """One labelled answer; several agents may have given it."""

    record: QueryRecord
    right: bool
    database: str
    source: str
    agents: tuple[str, ...] = ()
    error_types: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        """Name of the question: its text, letter case and spacing folded."""
        return fold(self.record.user_question)

    @property
    def corpus(self) -> str:
        """Where it comes from."""
        return self.source

    @property
    def agent(self) -> str:
        """The first of its agents."""
        return self.agents[0] if self.agents else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and how."""

    threshold: float = THRESHOLD  # Φ from which on an answer counts as right
    folds: int = FOLDS
    seed: int = 7
    resamples: int = RESAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its bootstrap interval at `LEVEL`; None where the rows cannot show it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How good "score ≥ cut means right" is; right is the positive class."""

    accuracy: Interval
    precision: Interval
    recall: Interval
    f1: Interval
    kappa: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How well one score tells right from wrong in some rows."""

    rows: int
    cut: float
    decision: Decision
    auroc: Interval
    pairwise: Interval  # of a right and a wrong answer to one question: how often the right one scores higher; ties half
    within_agent: Interval  # AUROC within each agent, weighted by its rows
    pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A cut fitted for the highest κ, judged on folds that did not fit it."""

    cut: float | None  # fitted on all rows: what to use elsewhere
    cuts: tuple[float, ...]  # of each fold
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Rows whose stated probability lies in a tenth of 0-1."""

    low: float
    high: float
    rows: int
    mean: float  # what was stated
    share: float  # what came true


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Whether a stated probability comes true: γ that the verdict is the label's, p_right that the answer is right."""

    ece: Interval
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Share of the wrong answers of one error type that are caught at `FALSE_ALARMS`."""

    name: str
    rows: int
    small: bool
    phi: Interval
    p_right: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The figures of one agent, source or SQL feature."""

    name: str
    rows: int
    questions: int
    small: bool
    base_rate: Interval
    phi: Figures
    p_right: Figures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Spearman's correlation of agents' mean scores with their shares of right answers."""

    agents: int
    phi: Interval
    p_right: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything that `calibrate` finds."""

    rows: int
    scored: int
    coverage: float
    unscored: Mapping[str, int]  # by reason
    questions: int
    databases: int
    agents: int
    base_rate: Interval
    threshold: float
    split_by: str  # what no part of a fit shares with the part it is judged on
    fit_rows_seen: int | None  # scored rows whose question the judge's model was fitted on; None: not known
    phi: Figures | None
    p_right: Figures | None
    phi_fitted: Fitted | None
    p_right_fitted: Fitted | None
    gamma_reliability: Reliability | None
    p_right_reliability: Reliability | None
    ranking: Ranking | None
    error_types: tuple[Recall, ...]  # all wrong answers together first, then the main types
    error_sub_types: tuple[Recall, ...]
    groups: Mapping[str, tuple[Group, ...]]  # agent, source, feature, fit
    roc: Mapping[str, tuple[tuple[float, float], ...]]  # false positive rate, true positive rate
    plan: Plan
    anchors: tuple[Anchor, ...] = ANCHORS
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The object of ``stef calibrate --json``; shares are 0-1, numbers rounded to six places."""
        rounded: dict[str, Any] = _rounded(dataclasses.asdict(self))
        return rounded


# --- from labelled rows to answers ----------------------------------------------------------------------------------


def fold(question: str | None) -> str:
    """A question's name: letter case and spacing folded."""
    return " ".join((question or "").casefold().split())


@cache
def fitted_questions(name: str = "symbolic_v1") -> frozenset[str]:
    """Hashes (`stef_core.catalogue.witness_of`) of the questions that a shipped model was fitted on."""
    path = resources.files("stef_core.judge") / f"{name}.questions"
    return frozenset(path.read_text(encoding="ascii").split())


def seen_by_fit(question: str | None, model: str | None) -> bool | None:
    """Whether the shipped model of this name was fitted on a question; None for a model of which that is not known."""
    if model != load_model().name:
        return None
    return witness_of(question) in fitted_questions()


def features_of(sql: SqlSpec) -> tuple[str, ...]:
    """What makes one SQL hard: ``nested window set operation aggregation``, and how many joins."""
    whole = (sql, *sql.branches)
    joins = len({(e.left_table, e.right_table) for spec in whole for e in spec.joins})
    found = {
        # the operands of a set operation count as its subqueries, and are not what makes it nested
        "nested": any(spec.subqueries for spec in sql.branches or (sql,)),
        "window": any(spec.windows for spec in whole) or "over (" in " ".join(sql.expressions),
        "set operation": sql.set_op is not None,
        "aggregation": any(spec.aggregations for spec in whole),
        "grouping": any(spec.group_by or spec.inner_groups for spec in whole),
        "order and limit": any((spec.limit is not None and spec.order_by) or spec.inner_limits for spec in whole),
    }
    count = ("no join", "1 join", "2 joins", "3 or more joins")[min(joins, 3)]
    return (*(name for name, has in found.items() if has), count)


def judge_rows(
    rows: Sequence[LabelledRow],
    rules: Callable[[QueryRecord], Rules],
    reader: QuestionReader,
    judge: Judge,
    *,
    catalogue: bool = True,
    tell: Told = lambda *_: None,
) -> list[Evaluation]:
    """Judge labelled answers; the labels are not looked at.

    Args:
        rows: Labelled answers; equal ones are judged once.
        rules: The rules of a record.
        reader: Reads the questions.
        judge: Gives the verdicts.
        catalogue: Hold each row against what the others show of tables, columns and joins.
        tell: Told how far it is.
    """
    place: dict[tuple[str | None, ...], int] = {}
    at = [place.setdefault(_answer_of(row.record), len(place)) for row in rows]
    distinct: dict[int, QueryRecord] = {}
    for index, row in zip(at, rows, strict=True):
        distinct.setdefault(index, row.record)
    records = list(distinct.values())
    chosen = [rules(record) for record in records]
    examined = _examined(records, chosen, reader, catalogue=catalogue, tell=tell)
    done: list[Evaluation] = []
    for start in range(0, len(records), BATCH):
        part = slice(start, start + BATCH)
        done += conclude_many(examined[part], chosen[part], judge)
        tell("judging", len(done), len(records))
    return [done[index] for index in at]


def judge_rows_refitted(
    rows: Sequence[LabelledRow],
    rules: Callable[[QueryRecord], Rules],
    *,
    plan: Plan,
    catalogue: bool = True,
    tell: Told = lambda *_: None,
) -> list[Evaluation]:
    """Judge each answer by a symbolic model that was fitted on these rows without its database and its question.

    Args:
        rows: Labelled answers.
        rules: The rules of a record.
        plan: Folds and seed.
        catalogue: As in `judge_rows`; made without labels, so it may hold rows of all folds.
        tell: Told how far it is.
    """
    records = [row.record for row in rows]
    chosen = [rules(record) for record in records]
    examined = _examined(records, chosen, OfflineReader(), catalogue=catalogue, tell=tell)
    judged = [i for i, e in enumerate(examined) if e.evidence is not None]
    fit_rows = [row_of(rows[i], e, rows[i].agents) for i in judged if (e := examined[i].evidence) is not None]
    verdicts: dict[int, Verdict] = {}
    steps = load_model().steps
    for mask, fitted in fold_fits(fit_rows, seed=plan.seed, folds=plan.folds):
        judge = SymbolicJudge(fitted.model("symbolic-refitted", steps))
        for index, held in zip(judged, mask, strict=True):
            evidence = examined[index].evidence
            if held and evidence is not None:
                verdicts[index] = judge.judge(evidence)
        tell("fitting", len(verdicts), len(judged))
    return [conclude(e, verdicts.get(i)) for i, e in enumerate(examined)]


def answers_of(rows: Sequence[LabelledRow], evaluations: Sequence[Evaluation], *, refitted: bool = False) -> pl.DataFrame:
    """Labelled rows and their evaluations as a frame of `ANSWERS`, a row for each agent.

    Args:
        rows: Labelled answers.
        evaluations: One for each, in order.
        refitted: The scores are out of fold, so no question was seen by its fit.
    """
    lines = []
    for row, found in zip(rows, evaluations, strict=True):
        verdict, score = found.verdict, found.score
        model = verdict.model if verdict else None
        line = {
            "query_id": row.record.query_id,
            "database": row.database,
            "source": row.source,
            "question": row.question,
            "right": row.right,
            "error_types": list(row.error_types),
            "features": list(features_of(found.reading.sql)) if found.reading else [],
            "status": found.status,
            "reason": found.reason,
            "says_right": verdict.grade in ("correct", "likely_correct") if verdict and verdict.grade else None,
            "phi": score.phi if score else None,
            "gamma": verdict.confidence if verdict and score else None,
            "p_right": verdict.p_right if verdict and score else None,
            # a rejection follows a rule, whatever was fitted
            "seen": False
            if refitted or (verdict and verdict.judge == "rule")
            else seen_by_fit(row.record.user_question, model),
        }
        lines += [line | {"agent": agent} for agent in row.agents or (None,)]
    return frame_of(lines, ANSWERS)


def _answer_of(record: QueryRecord) -> tuple[str | None, ...]:
    return (record.app_id, record.user_question, record.enriched_question, record.generated_sql, record.dialect)


def _examined(
    records: Sequence[QueryRecord], rules: Sequence[Rules], reader: QuestionReader, *, catalogue: bool, tell: Told
) -> list[Examined]:
    read: list[Read] = []
    for start in range(0, len(records), BATCH):
        part = slice(start, start + BATCH)
        read += read_many(records[part], rules[part], reader)
        tell("reading", len(read), len(records))
    log = own_catalogue(read) if catalogue else None
    examined = []
    for number, (row, rule) in enumerate(zip(read, rules, strict=True), 1):
        examined.append(examine(row, rule, log))
        if number % BATCH == 0 or number == len(read):
            tell("aligning", number, len(read))
    return examined


# --- figures --------------------------------------------------------------------------------------------------------


def calibrate(answers: pl.DataFrame, plan: Plan | None = None, *, notes: Iterable[str] = ()) -> Calibration:
    """Measure how far the scores of labelled answers can be trusted.

    Args:
        answers: Rows of `ANSWERS`.
        plan: Threshold, folds, seed and resamples; the defaults where None.
        notes: Sentences about where the rows come from, to stand before those found here.
    """
    plan = plan or Plan()
    scored = answers.filter((pl.col("status") == "scored") & pl.col("phi").is_not_null())
    reasons = answers.filter(pl.col("status") != "scored")["reason"].fill_null("unknown").value_counts(sort=True)
    known = scored["seen"].is_not_null().all() and scored.height > 0
    shared: dict[str, Any] = {
        "rows": answers.height,
        "scored": scored.height,
        "coverage": scored.height / answers.height if answers.height else 0.0,
        "unscored": dict(reasons.iter_rows()),
        "questions": answers.select("database", "question").n_unique(),
        "databases": answers["database"].n_unique(),
        "agents": answers["agent"].drop_nulls().n_unique(),
        "threshold": plan.threshold,
        "split_by": "database and question" if answers["database"].n_unique() > 1 else "question",
        "fit_rows_seen": int(scored["seen"].sum()) if known else None,
        "plan": plan,
    }
    if scored.is_empty():
        empty: dict[str, Any] = dict.fromkeys(
            "phi p_right phi_fitted p_right_fitted gamma_reliability p_right_reliability ranking".split()
        )
        none: dict[str, Any] = {"error_types": (), "error_sub_types": (), "groups": {}, "roc": {}}
        told = (*notes, "No row could be scored, so there is nothing to measure.")
        return Calibration(**shared, **empty, **none, base_rate=Interval(), notes=told)
    rows = _Rows.of(scored, plan)
    has_p = rows.scores["p_right"] is not None
    phi, p_right = rows.scores["phi"], rows.scores["p_right"]
    assert phi is not None
    hit = (scored["says_right"] == scored["right"]).to_numpy()
    main, sub = _error_recalls(scored, rows)
    return Calibration(
        **shared,
        base_rate=rows.intervals(lambda w: {"base": _share(w, rows.right)})["base"],
        phi=rows.figures("phi", plan.threshold),
        p_right=rows.figures("p_right", P_RIGHT_CUT) if has_p else None,
        phi_fitted=_fitted(scored, rows, phi, plan.threshold, plan),
        p_right_fitted=_fitted(scored, rows, p_right, P_RIGHT_CUT, plan) if p_right is not None else None,
        gamma_reliability=rows.reliability(scored["gamma"].to_numpy(), hit) if scored["gamma"].null_count() == 0 else None,
        p_right_reliability=rows.reliability(p_right, rows.right) if p_right is not None else None,
        ranking=_ranking(rows),
        error_types=main,
        error_sub_types=sub,
        groups=_groups(scored, rows, plan),
        roc={name: roc_points(s, rows.right) for name, s in rows.scores.items() if s is not None},
        notes=(*notes, *_notes(scored, has_p=has_p)),
    )


def auroc(scores: Sequence[float] | Array, right: Sequence[bool] | Array) -> float | None:
    """Chance that a right answer scores above a wrong one, ties counted half; None with one class only."""
    s, y = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool)
    return _number(_auroc(np.ones((1, len(s))), s, y)[0])


def cohen_kappa(said: Sequence[bool] | Array, right: Sequence[bool] | Array) -> float | None:
    """Agreement beyond chance; None where chance alone agrees always."""
    s, y = np.asarray(said, dtype=bool), np.asarray(right, dtype=bool)
    return _number(_decision(np.ones((1, len(s))), s, y)["kappa"][0])


def calibration_error(stated: Sequence[float] | Array, true: Sequence[bool] | Array) -> float | None:
    """Expected calibration error over `BINS` equal tenths of 0-1: the mean gap of stated and true, weighted by rows."""
    p, y = np.asarray(stated, dtype=float), np.asarray(true, dtype=bool)
    return _number(_ece(np.ones((1, len(p))), p, y)[0])


def pairwise_accuracy(
    scores: Sequence[float] | Array, right: Sequence[bool] | Array, questions: Sequence[Any] | Array
) -> float | None:
    """Over all pairs of a right and a wrong answer to one question: how often the right one scores higher, ties half."""
    won, total, _ = _pairs(np.asarray(scores, dtype=float), np.asarray(right, dtype=bool), np.asarray(questions))
    return _number(float(won.sum()) / float(total.sum())) if total.sum() else None


def recall_at_false_alarms(
    scores: Sequence[float] | Array,
    right: Sequence[bool] | Array,
    chosen: Sequence[bool] | Array,
    share: float = FALSE_ALARMS,
) -> float | None:
    """Share of the chosen wrong answers that score lowest, when so large a share of the right ones does too.

    Answers that tie at the cut count in part, so that exactly `share` of the right ones is alarmed at.
    """
    s, y, c = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool), np.asarray(chosen, dtype=bool)
    return _number(_recalls(np.ones((1, len(s))), s, y, {"chosen": c}, share)["chosen"][0])


def spearman(left: Sequence[float] | Array, right: Sequence[float] | Array) -> float | None:
    """Rank correlation, ties at their mean rank; None where a side does not vary."""
    a, b = _mean_ranks(np.asarray(left, dtype=float)), _mean_ranks(np.asarray(right, dtype=float))
    if len(a) < 2 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def best_cut(scores: Sequence[float] | Array, right: Sequence[bool] | Array) -> float | None:
    """The cut, midway between two scores that occur, with the highest κ of "score ≥ cut means right"; None where none helps."""
    s, y = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool)
    values, ranks = np.unique(s, return_inverse=True)
    if len(values) < 2:
        return None
    positive = np.bincount(ranks[y], minlength=len(values))[::-1].cumsum()[::-1]
    negative = np.bincount(ranks[~y], minlength=len(values))[::-1].cumsum()[::-1]
    tp, fp = positive[1:].astype(float), negative[1:].astype(float)  # cut below values[1:]
    kappa = _kappa(tp, fp, positive[0] - tp, negative[0] - fp)
    if not np.isfinite(kappa).any() or np.nanmax(kappa) <= 0:
        return None
    best = int(np.nanargmax(kappa))
    return float((values[best] + values[best + 1]) / 2)


def roc_points(scores: Sequence[float] | Array, right: Sequence[bool] | Array) -> tuple[tuple[float, float], ...]:
    """(false positive rate, true positive rate) from (0, 0) to (1, 1), at most `ROC_POINTS`; none with one class only."""
    s, y = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool)
    if y.all() or not y.any():
        return ()
    values, ranks = np.unique(-s, return_inverse=True)
    tpr = np.bincount(ranks[y], minlength=len(values)).cumsum() / y.sum()
    fpr = np.bincount(ranks[~y], minlength=len(values)).cumsum() / (~y).sum()
    kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), ROC_POINTS - 1)).round().astype(int))
    return ((0.0, 0.0), *((float(f), float(t)) for f, t in zip(fpr[kept], tpr[kept], strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows as arrays, with the draws of their questions. The first draw holds every question once: the point estimate."""

    right: Array
    question: Array  # number of the question of each row
    agent: Array  # number of the agent; -1 where it is not known
    scores: Mapping[str, Array | None]
    draws: Array  # (1 + resamples, questions): how often a question was drawn

    @classmethod
    def of(cls, scored: pl.DataFrame, plan: Plan) -> _Rows:
        question = _numbers(scored.select(pl.concat_str("database", "question", separator="\n")).to_series())
        count = int(question.max()) + 1
        rng = np.random.default_rng(plan.seed)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=plan.resamples).astype(np.int32)
        complete = scored["p_right"].null_count() == 0
        return cls(
            right=scored["right"].to_numpy(),
            question=question,
            agent=_numbers(scored["agent"]),
            scores={"phi": scored["phi"].to_numpy(), "p_right": scored["p_right"].to_numpy() if complete else None},
            draws=np.vstack([np.ones((1, count), dtype=np.int32), drawn]),
        )

    def only(self, mask: Array) -> _Rows:
        """Some of the rows, with the same draws."""
        return _Rows(
            right=self.right[mask],
            question=self.question[mask],
            agent=self.agent[mask],
            scores={name: None if s is None else s[mask] for name, s in self.scores.items()},
            draws=self.draws,
        )

    def intervals(self, measure: Callable[[Array], Mapping[str, Array]]) -> dict[str, Interval]:
        """Figures with intervals.

        Args:
            measure: From weights (draws x rows) to the figures of each draw, NaN where it shows none.
        """
        step = max(1, CELLS // max(1, len(self.question)))
        parts: dict[str, list[Array]] = {}
        for start in range(0, len(self.draws), step):
            weights = self.draws[start : start + step][:, self.question].astype(float)
            with np.errstate(divide="ignore", invalid="ignore"):
                for name, values in measure(weights).items():
                    parts.setdefault(name, []).append(values)
        return {name: _interval(np.concatenate(values)) for name, values in parts.items()}

    def figures(self, name: str, cut: float) -> Figures:
        """How well one score tells right from wrong."""
        scores = self.scores[name]
        assert scores is not None
        won, total, first = _pairs(scores, self.right, self.question)
        agents = [self.agent == a for a in np.unique(self.agent[self.agent >= 0])]
        mixed = [mask for mask in agents if 0 < self.right[mask].sum() < mask.sum()]

        def measure(w: Array) -> dict[str, Array]:
            drawn = w[:, first]
            within = np.zeros(len(w))
            counted = np.zeros(len(w))
            for mask in mixed:
                part = w[:, mask]
                value, size = _auroc(part, scores[mask], self.right[mask]), part.sum(axis=1)
                shown = np.isfinite(value)
                within += np.where(shown, np.nan_to_num(value) * size, 0.0)
                counted += np.where(shown, size, 0.0)
            return _decision(w, scores >= cut, self.right) | {
                "auroc": _auroc(w, scores, self.right),
                "pairwise": (drawn @ won) / (drawn @ total),
                "within_agent": within / counted,
            }

        found = self.intervals(measure)
        rest = {key: found.pop(key) for key in ("auroc", "pairwise", "within_agent")}
        return Figures(rows=len(scores), cut=cut, decision=Decision(**found), pairs=int(total.sum()), **rest)

    def reliability(self, stated: Array, true: Array) -> Reliability:
        """Whether stated probabilities come true."""
        bins = _bins(stated)
        return Reliability(
            ece=self.intervals(lambda w: {"ece": _ece(w, stated, true)})["ece"],
            bins=tuple(
                Bin(
                    low=b / BINS,
                    high=(b + 1) / BINS,
                    rows=int((bins == b).sum()),
                    mean=float(stated[bins == b].mean()),
                    share=float(true[bins == b].mean()),
                )
                for b in np.unique(bins).tolist()
            ),
        )


def _fitted(scored: pl.DataFrame, rows: _Rows, scores: Array, default: float, plan: Plan) -> Fitted | None:
    """The cut with the highest κ, judged where it was not fitted; None where there is nothing to divide."""
    questions = scored["question"].to_list()
    folds = grouped_folds(scored["database"].to_list(), questions, folds=plan.folds, seed=plan.seed)
    numbers = sorted(set(folds.tolist()))
    if len(numbers) < 2:
        return None
    said = np.zeros(len(scores), dtype=bool)
    cuts = []
    for k in numbers:
        seen = fit_side(folds, questions, k)
        cut = best_cut(scores[seen], rows.right[seen])
        cuts.append(default if cut is None else cut)
        said[folds == k] = scores[folds == k] >= cuts[-1]
    decision = Decision(**rows.intervals(lambda w: _decision(w, said, rows.right)))
    return Fitted(cut=best_cut(scores, rows.right), cuts=tuple(cuts), decision=decision)


def _ranking(rows: _Rows) -> Ranking | None:
    """Whether agents' mean scores order them as their labels do; only agents whose rows are not few."""
    numbers = [a for a in np.unique(rows.agent[rows.agent >= 0]) if (rows.agent == a).sum() >= SMALL]
    if len(numbers) < RANKED_AGENTS:
        return None
    part = rows.only(np.isin(rows.agent, numbers))
    place = np.searchsorted(numbers, part.agent)

    def measure(w: Array) -> dict[str, Array]:
        size = _sums(w, place, len(numbers))
        truth = _sums(w * part.right, place, len(numbers)) / size
        out = {}
        for name, scores in part.scores.items():
            if scores is not None:
                means = _sums(w * scores, place, len(numbers)) / size
                out[name] = np.array([_spearman_or_nan(m, t) for m, t in zip(means, truth, strict=True)])
        return out

    found = part.intervals(measure)
    return Ranking(agents=len(numbers), phi=found["phi"], p_right=found.get("p_right", Interval()))


def _error_recalls(scored: pl.DataFrame, rows: _Rows) -> tuple[tuple[Recall, ...], tuple[Recall, ...]]:
    """Recall of all wrong answers, of the main types and of the sub types, the most frequent first."""
    types = scored["error_types"].to_list()
    chosen: dict[str, Array] = {}
    for index, names in enumerate(types):
        for name in names or ():
            for key in {f"main:{name.partition('/')[0]}", f"sub:{name}"} if not rows.right[index] else ():
                chosen.setdefault(key, np.zeros(len(types), dtype=bool))[index] = True
    chosen["all"] = ~rows.right
    if rows.right.all() or not rows.right.any():
        return (), ()
    found: dict[str, dict[str, Interval]] = {}
    for score, values in rows.scores.items():
        if values is None:
            found[score] = dict.fromkeys(chosen, Interval())
        else:
            found[score] = rows.intervals(
                lambda w, values=values: _recalls(w, values, rows.right, chosen, FALSE_ALARMS)  # type: ignore[misc]
            )

    def recalls(prefix: str) -> tuple[Recall, ...]:
        keys = sorted((k for k in chosen if k.startswith(prefix)), key=lambda k: (-int(chosen[k].sum()), k))
        return tuple(
            Recall(
                name=key.removeprefix(prefix) or "all wrong answers",
                rows=int(chosen[key].sum()),
                small=int(chosen[key].sum()) < SMALL,
                phi=found["phi"][key],
                p_right=found["p_right"][key],
            )
            for key in keys
        )

    return (*recalls("all"), *recalls("main:")), recalls("sub:")


def _groups(scored: pl.DataFrame, rows: _Rows, plan: Plan) -> dict[str, tuple[Group, ...]]:
    """The figures by agent, source, SQL feature, and by whether the fit had seen the question."""
    indexed = scored.with_row_index("row")
    kinds = {
        "agent": indexed.select("row", name=pl.col("agent").fill_null("(unknown)")),
        "source": indexed.select("row", name=pl.col("source")),
        "feature": indexed.select("row", name=pl.col("features")).explode("name", empty_as_null=False),
        "fit": indexed.filter(pl.col("seen").is_not_null()).select(
            "row",
            name=pl.when("seen").then(pl.lit("question seen by the fit")).otherwise(pl.lit("question not seen by the fit")),
        ),
    }
    out: dict[str, tuple[Group, ...]] = {}
    for kind, frame in kinds.items():
        members = (
            frame.drop_nulls("name")
            .group_by("name")
            .agg("row")
            .sort(pl.col("row").list.len(), "name", descending=[True, False])
        )
        if kind != "feature" and members.height < 2:
            continue  # the whole again
        groups = []
        for name, indices in members.iter_rows():
            mask = np.zeros(scored.height, dtype=bool)
            mask[indices] = True
            groups.append(_group(name, rows.only(mask), plan))
        out[kind] = tuple(groups)
    return out


def _group(name: str, part: _Rows, plan: Plan) -> Group:
    return Group(
        name=name,
        rows=len(part.right),
        questions=len(np.unique(part.question)),
        small=len(part.right) < SMALL,
        base_rate=part.intervals(lambda w: {"base": _share(w, part.right)})["base"],
        phi=part.figures("phi", plan.threshold),
        p_right=part.figures("p_right", P_RIGHT_CUT) if part.scores["p_right"] is not None else None,
    )


def _notes(scored: pl.DataFrame, *, has_p: bool) -> list[str]:
    notes = []
    by_source = scored.group_by("source").agg(pl.col("right").mean(), pl.len()).sort("source")
    for side, word in ((0.0, "wrong"), (1.0, "right")):
        names = by_source.filter(pl.col("right") == side)["source"].to_list()
        if names and by_source.height > 1:
            notes.append(f"All answers of {', '.join(names)} are {word}: leave them out of an accuracy with --source.")
    if not has_p:
        notes.append("The judge states no p_right for some or all rows, so only Φ and γ are measured.")
    if scored["agent"].null_count() == scored.height:
        notes.append("No agent is named, so there is no AUROC within agent.")
    if scored["right"].n_unique() < 2:
        notes.append("All labels are equal, so nothing can be told apart: AUROC, κ and recalls are not known.")
    return notes


# --- measures over draws: weights are (draws, rows), results (draws,) -----------------------------------------------


def _sums(w: Array, groups: Array, count: int) -> Array:
    """Weights added up by group: (draws, count)."""
    out = np.zeros((len(w), count))
    if len(groups):
        order = np.argsort(groups, kind="stable")
        found = groups[order]
        starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]])
        out[:, found[starts]] = np.add.reduceat(w[:, order], starts, axis=1)
    return out


def _share(w: Array, true: Array) -> Array:
    return np.asarray((w @ true) / w.sum(axis=1))


def _auroc(w: Array, scores: Array, right: Array) -> Array:
    values, ranks = np.unique(scores, return_inverse=True)
    positive = _sums(w[:, right], ranks[right], len(values))
    negative = _sums(w[:, ~right], ranks[~right], len(values))
    below = negative.cumsum(axis=1) - negative
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((positive * (below + negative / 2)).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1)))


def _decision(w: Array, said: Array, right: Array) -> dict[str, Array]:
    tp, fp, fn, tn = (w @ (mask.astype(float)) for mask in (said & right, said & ~right, ~said & right, ~said & ~right))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "accuracy": (tp + tn) / (tp + fp + fn + tn),
            "precision": tp / (tp + fp),
            "recall": tp / (tp + fn),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "kappa": _kappa(tp, fp, fn, tn),
        }


def _kappa(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    n = tp + fp + fn + tn
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
        return np.asarray(np.where(chance < 1, ((tp + tn) / n - chance) / (1 - chance), np.nan))


def _bins(stated: Array) -> Array:
    return np.asarray(np.clip((stated * BINS).astype(int), 0, BINS - 1))


def _ece(w: Array, stated: Array, true: Array) -> Array:
    gaps = _sums(w * (stated - true), _bins(stated), BINS)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.abs(gaps).sum(axis=1) / w.sum(axis=1))


def _pairs(scores: Array, right: Array, questions: Array) -> tuple[Array, Array, Array]:
    """Of each question: pairs won, pairs, and the place of one of its rows."""
    order = np.argsort(questions, kind="stable")
    starts = np.flatnonzero(np.r_[True, questions[order][1:] != questions[order][:-1]]) if len(order) else np.array([], int)
    won, total = np.zeros(len(starts)), np.zeros(len(starts))
    for number, members in enumerate(np.split(order, starts[1:])) if len(order) else ():
        up, down = scores[members[right[members]]], scores[members[~right[members]]]
        if len(up) and len(down):
            gap = up[:, None] - down[None, :]
            won[number] = (gap > 0).sum() + (gap == 0).sum() / 2
            total[number] = gap.size
    return won, total, order[starts]


def _recalls(w: Array, scores: Array, right: Array, chosen: Mapping[str, Array], share: float) -> dict[str, Array]:
    values, ranks = np.unique(scores, return_inverse=True)
    alarmed = _sums(w[:, right], ranks[right], len(values)).cumsum(axis=1)
    lines = np.arange(len(w))
    with np.errstate(divide="ignore", invalid="ignore"):
        alarmed = np.hstack([np.zeros((len(w), 1)), alarmed / alarmed[:, -1:]])
        at = (alarmed > share).argmax(axis=1)  # the first score whose right answers exceed the share
        part = (share - alarmed[lines, at - 1]) / (alarmed[lines, at] - alarmed[lines, at - 1])
        out = {}
        for name, mask in chosen.items():
            wrong = mask & ~right
            caught = _sums(w[:, wrong], ranks[wrong], len(values)).cumsum(axis=1)
            caught = np.hstack([np.zeros((len(w), 1)), caught / caught[:, -1:]])
            out[name] = caught[lines, at - 1] + part * (caught[lines, at] - caught[lines, at - 1])
    return out


def _mean_ranks(values: Array) -> Array:
    _, ranks, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[ranks])


def _spearman_or_nan(left: Array, right: Array) -> float:
    both = np.isfinite(left) & np.isfinite(right)
    found = spearman(left[both], right[both])
    return float("nan") if found is None else found


def _numbers(series: pl.Series) -> Array:
    """A number for each distinct value, -1 for null."""
    places = {value: number for number, value in enumerate(series.drop_nulls().unique(maintain_order=True).to_list())}
    return np.array([-1 if value is None else places[value] for value in series.to_list()], dtype=int)


def _interval(draws: Array) -> Interval:
    """The first draw is the figure, the others its spread."""
    value, spread = draws[0], draws[1:][np.isfinite(draws[1:])]
    if not np.isfinite(value):
        return Interval()
    if not len(spread):
        return Interval(value=float(value))
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=float(value), low=float(low), high=float(high))


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value
