"""From labelled answers to a calibration: read, judge, measure. Knows no Prefect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stef_core.calibration import (
    Calibration,
    Plan,
    Told,
    answers_of,
    calibrate,
    judge_rows,
    judge_rows_refitted,
)
from stef_core.errors import InputError, RuleError, TransientError
from stef_core.evaluate import rules_picker
from stef_core.rows import UNANSWERED
from tasks.labelled import is_warehouse, read_labelled, read_published
from tasks.models import check_settings, open_stages
from tasks.settings import Settings, application_rules, shown_url

FOLDS_MIN, FOLDS_MAX = 2, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to calibrate on, and how."""

    labelled: str  # file, or URL of a warehouse
    columns: Mapping[str, str] = field(default_factory=dict)  # our name of a column → the file's
    sources: tuple[str, ...] = ()
    catalogue: bool = True
    refit: bool = False
    published: bool = False  # take a warehouse's scores as they stand
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration, and what it is of."""

    labelled: str
    scores: str  # judged | published | refitted
    judge: str
    model: str | None
    catalogue: bool
    sample: str  # in_sample | partly_in_sample | out_of_sample | out_of_fold | unknown
    found: Calibration

    @property
    def sample_text(self) -> str:
        """How honest the figures are, in a sentence."""
        seen, scored = self.found.fit_rows_seen or 0, self.found.scored
        fitted, otherwise = "the built-in model was fitted on", "--refit-folds measures without that."
        return {
            "out_of_fold": f"Out of fold: each answer was judged by a model fitted without its {self.found.split_by}.",
            "in_sample": f"IN-SAMPLE: {fitted} these very questions; {otherwise}",
            "partly_in_sample": f"PARTLY IN-SAMPLE: {fitted} the questions of {seen:,} of {scored:,} rows; {otherwise}",
            "out_of_sample": f"Out of sample: {fitted} none of these questions.",
            "unknown": f"Not known: whether {self.judge} has learned from these questions cannot be told.",
        }[self.sample]

    @property
    def scores_text(self) -> str:
        """Where the scores come from, in a few words."""
        how = {"published": "scores as published", "refitted": "fitted anew for each fold", "judged": "judged now"}[self.scores]
        if self.scores == "published":
            return how
        return f"{how}, {'with' if self.catalogue else 'without'} what the rows show to each other"

    def to_json(self) -> dict[str, Any]:
        """The object of ``stef calibrate --json``."""
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "found"}
        return about | {"sample_text": self.sample_text} | self.found.to_json()


def labelled_of(named: str | None, settings: Settings) -> str:
    """The labelled answers to measure on: those that were named, else those of the settings.

    Raises:
        RuleError: Neither names any.
    """
    found = named or settings.labelled
    if found is None:
        raise RuleError("no labelled answers are named; set --labelled, STEF_LABELLED or labelled in stef.toml")
    return found


def takes_published(labelled: str, judge: str | None, *, refit: bool) -> bool:
    """Whether the published scores of a warehouse are measured as they stand: nobody is named to judge anew."""
    return is_warehouse(labelled) and judge is None and not refit


def check_request(request: Request, settings: Settings) -> None:
    """Refuse what cannot be done, before anything is read.

    Raises:
        RuleError: The message names the option.
    """
    if not 0 <= request.plan.threshold <= 100:
        raise RuleError(f"--threshold {request.plan.threshold:g}: Φ lies within 0-100")
    if not FOLDS_MIN <= request.plan.folds <= FOLDS_MAX:
        raise RuleError(f"--folds {request.plan.folds}: takes {FOLDS_MIN} to {FOLDS_MAX}")
    if request.plan.seed < 0:
        raise RuleError(f"--seed {request.plan.seed}: takes 0 or more")
    if request.plan.resamples < 0:
        raise RuleError(f"--resamples {request.plan.resamples}: takes 0 or more")
    if request.refit and settings.judge != "symbolic":
        raise RuleError(f"--refit-folds fits the symbolic judge; it does not go with --judge {settings.judge}")
    if request.published and (request.columns or request.sources):
        raise RuleError("--map and --source are for files, or for a warehouse with --judge")
    check_settings(settings)


def run_calibration(request: Request, settings: Settings, tell: Told = lambda *_: None) -> Calibrated:
    """Measure how far Φ and p_right can be trusted.

    Args:
        request: What to calibrate on, and how.
        settings: Say who judges, and by which rules.
        tell: Told how far it is.

    Raises:
        InputError: The file, a column or a value is wrong, or there is nothing to measure.
        RuleError: Options, settings or rules are wrong.
        TransientError: The endpoint answered for no row, or the warehouse is held.
    """
    check_request(request, settings)
    if request.published:
        published = read_published(request.labelled, wait_s=settings.warehouse_wait_s)
        tell("measuring", 0, published.answers.height)
        found = calibrate(published.answers, request.plan, notes=published.notes)
        return _calibrated(request, found, "published", ", ".join(published.judges) or "unknown", None)
    labelled = read_labelled(request.labelled, request.columns, request.sources, wait_s=settings.warehouse_wait_s)
    pick = rules_picker(application_rules(settings))
    if request.refit:
        if len({(row.database, row.question) for row in labelled.rows}) < FOLDS_MIN:
            raise InputError(f"{shown_url(request.labelled)}: --refit-folds needs two questions at least")
        evaluations = judge_rows_refitted(labelled.rows, pick, plan=request.plan, catalogue=request.catalogue, tell=tell)
        name, model = "symbolic", ""
    else:
        with open_stages(settings) as (reader, judge):
            evaluations = judge_rows(labelled.rows, pick, reader, judge, catalogue=request.catalogue, tell=tell)
            name, model = judge.name, judge.model or ""
        if all(evaluation.reason in UNANSWERED for evaluation in evaluations):
            raise TransientError("the endpoint did not answer for any row; see that STEF_BASE_URL is up and try again")
    answers = answers_of(labelled.rows, evaluations, refitted=request.refit)
    tell("measuring", 0, answers.height)
    found = calibrate(answers, request.plan, notes=labelled.notes)
    return _calibrated(request, found, "refitted" if request.refit else "judged", name, model or None)


def _calibrated(request: Request, found: Calibration, scores: str, judge: str, model: str | None) -> Calibrated:
    return Calibrated(
        labelled=shown_url(request.labelled),
        scores=scores,
        judge=judge,
        model=model,
        catalogue=request.catalogue and scores != "published",
        sample=_sample(found, scores),
        found=found,
    )


def _sample(found: Calibration, scores: str) -> str:
    if scores == "refitted":
        return "out_of_fold"
    if found.fit_rows_seen is None:
        return "unknown"
    if found.fit_rows_seen == 0:
        return "out_of_sample"
    return "in_sample" if found.fit_rows_seen == found.scored else "partly_in_sample"
